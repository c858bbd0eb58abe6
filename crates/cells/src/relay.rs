//! Forwards messages: one worker per cell sends its queued messages in batches, oldest first. The next batch follows
//! when the answers to the last one are stored, so a cell receives the messages of a user or a topic in the order of
//! acceptance.
//!
//! The key of a line is the message's id, so a cell accepts a line once, even if it is sent again after a failure, a
//! restart or by another front. A cell that is down delays only its own messages; an app that a cell rejects for now
//! delays only its own ([`deferred`]); a permanent rejection is recorded.
//!
//! Two kinds of rejections let later parts pass: for a quota of topics or retained messages, where later parts have
//! other topics, and for a quota of inboxes, which the cell checks at its commit.

mod deferred;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use http::StatusCode;
use noroshi_api::{Code, OVER_QUOTA_FIELD};
use noroshi_store::cells::{Part, PartEnd, Wanted};
use noroshi_types::{AppId, NotificationId};
use serde::Deserialize;

use self::deferred::Deferred;
use crate::cell::{Cell, Traces};
use crate::cell_set::CellSet;
use crate::client::CellRequest;
use crate::splice::splice;
use crate::upkeep::GRACE;

/// The number of lines that a cell commits at once.
const BATCH_LINES_MAX: usize = 500;
/// A quarter of the size limit of a cell's request body.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// The same for a deferred app.
const DEFERRED_LINES_MAX: usize = 100;
const DEFERRED_BYTES_MAX: usize = 1 << 20;
const CANCELS_MAX: usize = 64;
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// Between two looks for messages that another front on the same store accepted.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Duration of the lease for forwarding to a cell; each round renews it. A slower request is harmless: another front
/// sends the same keys in the same order.
const LEASE: Duration = Duration::from_secs(10);

/// The result of a round.
enum Round {
    Idle,
    Done,
    /// Retry, because of the cell.
    Retry(String),
}

pub(crate) async fn run(cells: Arc<CellSet>, cell: Arc<Cell>) {
    let (mut pause, mut deferred) = (BACKOFF.0, Deferred::default());
    loop {
        cell.until_up().await;
        match round(&cells, &cell, &mut deferred).await {
            Round::Done => pause = BACKOFF.0,
            Round::Idle => {
                pause = BACKOFF.0;
                let due_in = deferred.next_due().map(|at| at.saturating_duration_since(Instant::now()));
                let poll_after = due_in.map_or(POLL_INTERVAL, |due_in| due_in.min(POLL_INTERVAL));
                let _ = tokio::time::timeout(poll_after, cell.work.notified()).await;
            }
            Round::Retry(reason) => {
                tracing::debug!(cell = cell.name(), reason, "messages for the cell have to wait");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(BACKOFF.1);
            }
        }
    }
}

async fn round(cells: &CellSet, cell: &Cell, deferred: &mut Deferred) -> Round {
    let round = forward(cells, cell, deferred).await;
    cell.set_deferred(deferred.apps());
    round.unwrap_or_else(|error| Round::Retry(error.to_string()))
}

/// The lease that one front holds at a time.
fn task(cell: &Cell) -> String {
    format!("cells/relay/{}", cell.name())
}

/// Releases the leases, so that another front can continue at once.
pub(crate) async fn release_leases(cells: &CellSet) {
    for cell in cells.iter() {
        if let Err(error) = cells.state.delivery.store().yield_lead(&task(cell), cells.holder).await {
            tracing::debug!(cell = cell.name(), %error, "failed to release the lease; the next front has to wait for its expiry");
        }
    }
}

async fn forward(
    cells: &CellSet,
    cell: &Cell,
    deferred: &mut Deferred,
) -> Result<Round, noroshi_store::Error> {
    if !cells.state.delivery.store().lead(&task(cell), cells.holder, LEASE).await? {
        // The new leader builds its own list.
        *deferred = Deferred::default();
        return Ok(Round::Idle);
    }
    let cancelled = cancel(cells, cell).await?;
    let parts = read(cells, cell, deferred).await?;
    if parts.is_empty() {
        return Ok(if cancelled { Round::Done } else { Round::Idle });
    }
    let now = cells.state.now();
    let (over, parts): (Vec<_>, Vec<_>) =
        parts.into_iter().partition(|part| part.expires_at.saturating_add(GRACE) < now);
    let mut ended: Vec<(u64, PartEnd)> = over.iter().map(|part| (part.num, PartEnd::Expired)).collect();
    let mut by_app: BTreeMap<AppId, Vec<Part>> = BTreeMap::new();
    for part in parts {
        by_app.entry(part.app).or_default().push(part);
    }
    let mut retry = None;
    let batches = by_app.into_iter().map(async |(app, parts)| (app, send(cells, cell, app, parts).await));
    for (app, sent) in join_all(batches).await {
        ended.extend(sent.ended);
        match sent.retry {
            None => deferred.passed(app, Instant::now()),
            Some(Retry::App(reason)) => {
                if deferred.refused(app, Instant::now(), sent.past) {
                    tracing::info!(
                        cell = cell.name(),
                        ?app,
                        reason,
                        "the cell rejects an app for now; its messages wait, those of other apps do not"
                    );
                }
            }
            Some(Retry::Cell(reason)) => retry = retry.or(Some(reason)),
        }
    }
    record(cells, cell, ended).await?;
    Ok(retry.map_or(Round::Done, Round::Retry))
}

/// The next parts of the deferred apps that are due, and of all other apps.
async fn read(
    cells: &CellSet,
    cell: &Cell,
    deferred: &mut Deferred,
) -> Result<Vec<Part>, noroshi_store::Error> {
    if deferred.is_empty() {
        return cells.store.waiting(cell.num, Wanted::ALL, BATCH_LINES_MAX, BATCH_BYTES_MAX).await;
    }
    // Read before the parts, when every smaller number is committed. On PostgreSQL this waits for accepting
    // transactions, so it does not happen in every round.
    let newest = match deferred.is_look_due(Instant::now()) {
        true => Some(cells.store.newest().await?),
        false => None,
    };
    let mut parts =
        cells.store.waiting(cell.num, deferred.others(), BATCH_LINES_MAX, BATCH_BYTES_MAX).await?;
    if let Some(newest) = newest {
        deferred.skip(parts.first().map_or(newest, |first| newest.min(first.num - 1)));
    }
    for app in deferred.due(Instant::now()) {
        let read = async |after| {
            let wanted = Wanted::Of { app, after };
            cells.store.waiting(cell.num, wanted, DEFERRED_LINES_MAX, DEFERRED_BYTES_MAX).await
        };
        let after = deferred.position(app);
        let mut of_app = read(after).await?;
        if of_app.is_empty() && after > 0 {
            deferred.wrap(app);
            of_app = read(0).await?;
        }
        if of_app.is_empty() {
            deferred.remove(app);
        }
        parts.extend(of_app);
    }
    Ok(parts)
}

/// Why parts are retried, and what that delays.
#[derive(Debug, PartialEq, Eq)]
enum Retry {
    /// Delays only the app.
    App(String),
    /// Delays everything for the cell.
    Cell(String),
}

/// The result of a batch.
struct Sent {
    ended: Vec<(u64, PartEnd)>,
    /// Why some parts are retried.
    retry: Option<Retry>,
    /// The last part, if all retried parts were rejected for their topic: later parts need not wait.
    past: Option<u64>,
    /// Whether the cell accepted lines with a trace. A rejected line is retried without it.
    traces: Option<Traces>,
}

/// Sends the parts of one app, in order.
async fn send(cells: &CellSet, cell: &Cell, app: AppId, parts: Vec<Part>) -> Sent {
    let parts = sendable(cell.traces(), parts);
    let sent = send_once(cells, cell, app, &parts).await;
    if let Some(traces) = sent.traces {
        let before = cell.note_traces(traces);
        if traces == Traces::Refused && before != Traces::Refused {
            tracing::warn!(
                cell = cell.name(),
                "the cell's version does not support traces; the front omits them"
            );
        }
    }
    sent
}

/// The parts that may be sent at once. While it is unknown whether the cell accepts traces, the first line with a trace
/// is the last of its batch: if the cell rejects it, it is still the next in its order, without the trace.
fn sendable(traces: Traces, mut parts: Vec<Part>) -> Vec<Part> {
    match traces {
        Traces::Taken => {}
        Traces::Untried => {
            let first = parts.iter().position(|part| part.trace.is_some());
            parts.truncate(first.map_or(parts.len(), |first| first + 1));
        }
        Traces::Refused => parts.iter_mut().for_each(|part| part.trace = None),
    }
    parts
}

async fn send_once(cells: &CellSet, cell: &Cell, app: AppId, parts: &[Part]) -> Sent {
    let nothing = |retry: Retry| Sent { ended: Vec::new(), retry: Some(retry), past: None, traces: None };
    let app_refused = |reason: &str| nothing(Retry::App(reason.to_owned()));
    // A deleted app has deleted its messages: the next read does not return them.
    let Ok(key) = cells.key(cell, app) else { return app_refused("the app is deleted") };
    let Some(body) = lines(parts) else { return app_refused("a stored message is not JSON") };
    let request =
        CellRequest::post("/v1/notifications/relay", key, cells.timeout(), CellRequest::NDJSON, body);
    let answer = match cell.send(request).await {
        Ok(answer) => answer,
        Err(error) => return nothing(Retry::Cell(error.to_string())),
    };
    match answer.status {
        StatusCode::OK => read_answers(parts, &answer.body),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            cell.unprovisioned.notify_one();
            app_refused("the cell does not know the front's key for the app")
        }
        StatusCode::TOO_MANY_REQUESTS => app_refused("too many requests"),
        status => nothing(Retry::Cell(format!("the cell answered {}", status.as_u16()))),
    }
}

/// Cells hash these lines: without a trace, a line is byte by byte the same as before traces existed.
fn lines(parts: &[Part]) -> Option<String> {
    let mut text =
        String::with_capacity(parts.iter().map(|part| part.to.len() + part.body.len() + 200).sum());
    for part in parts {
        let notification = splice(part.body.as_bytes(), &[], &[("to", &part.to)])?;
        let (key, expires_at) = (part.id, part.expires_at.0);
        let trace = part.trace.map_or_else(String::new, |trace| format!("\"traceparent\":\"{trace}\","));
        text += &format!(
            "{{\"key\":\"{key}\",\"expires_at_ms\":{expires_at},{trace}\"notification\":{notification}}}\n"
        );
    }
    Some(text)
}

#[derive(Deserialize)]
struct LineBody {
    id: Option<String>,
    error: Option<LineError>,
}

#[derive(Deserialize)]
struct LineError {
    code: String,
    status: u16,
    field: Option<String>,
}

impl LineBody {
    /// An older cell does not know the field.
    fn refuses_trace(&self) -> bool {
        self.error.as_ref().is_some_and(|error| {
            error.code == Code::UnknownField.as_str() && error.field.as_deref() == Some("traceparent")
        })
    }

    /// Whether the line is done, or was rejected for its own topic.
    fn lets_others_pass(&self) -> bool {
        let passes = |error: &LineError| match error.status {
            429 => error.field.as_deref() == Some(OVER_QUOTA_FIELD),
            status => !matches!(status, 408 | 500..),
        };
        self.error.as_ref().is_none_or(passes)
    }
}

/// A missing or malformed line is retried.
fn read_answers(parts: &[Part], body: &[u8]) -> Sent {
    let past = parts.last().map(|part| part.num);
    let mut sent = Sent { ended: Vec::with_capacity(parts.len()), retry: None, past, traces: None };
    let mut lines = body.split(|byte| *byte == b'\n');
    for part in parts {
        let line: Option<LineBody> = lines.next().and_then(|line| serde_json::from_slice(line).ok());
        if let (Some(_), Some(line)) = (part.trace, &line) {
            if line.refuses_trace() {
                (sent.traces, sent.past) = (Some(Traces::Refused), None);
                continue;
            }
            // Any other answer proves that it parsed the line.
            sent.traces = sent.traces.or(Some(Traces::Taken));
        }
        if !line.as_ref().is_some_and(LineBody::lets_others_pass) {
            sent.past = None;
        }
        match line.map(end_of) {
            Some(Ok(end)) => sent.ended.push((part.num, end)),
            // A reason of the cell takes precedence over one of the app.
            Some(Err(retry @ Retry::App(_))) => sent.retry = sent.retry.or(Some(retry)),
            Some(Err(retry)) => sent.retry = Some(retry),
            None => sent.retry = Some(Retry::Cell("the cell's answer has a malformed line".to_owned())),
        }
    }
    sent
}

/// The error is a reason to retry. Too many requests (RFC 6585 §4) concern one app.
fn end_of(line: LineBody) -> Result<PartEnd, Retry> {
    if let Some(id) = line.id.as_deref().and_then(|id| NotificationId::parse(id).ok()) {
        return Ok(PartEnd::Forwarded(id));
    }
    match line.error {
        Some(LineError { code, status: 429, .. }) => Err(Retry::App(code)),
        // 408 and 5xx are temporary (RFC 9110 §15.5.9, §15.6).
        Some(LineError { code, status: 408 | 500.., .. }) => Err(Retry::Cell(code)),
        Some(LineError { code, .. }) => Ok(PartEnd::Refused(code)),
        None => Err(Retry::Cell("a line without an id".to_owned())),
    }
}

async fn record(
    cells: &CellSet,
    cell: &Cell,
    ended: Vec<(u64, PartEnd)>,
) -> Result<(), noroshi_store::Error> {
    if ended.is_empty() {
        return Ok(());
    }
    let count = |wanted: fn(&PartEnd) -> bool| ended.iter().filter(|(_, end)| wanted(end)).count() as u64;
    let forwarded = count(|end| matches!(end, PartEnd::Forwarded(_)));
    let refused = count(|end| matches!(end, PartEnd::Refused(_)));
    let expired = count(|end| matches!(end, PartEnd::Expired));
    cells.store.end(cell.num, ended).await?;
    cell.metrics.forwarded.inc_by(forwarded);
    cell.metrics.refused.inc_by(refused);
    cell.metrics.expired.inc_by(expired);
    let ended = forwarded + refused + expired;
    // An approximation: `upkeep` measures it periodically.
    let less = |waiting: u64| Some(waiting.saturating_sub(ended));
    let _ = cell.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    Ok(())
}

/// Cancels messages in the cell that were cancelled after they were forwarded. True if there were any.
async fn cancel(cells: &CellSet, cell: &Cell) -> Result<bool, noroshi_store::Error> {
    let cancelling = cells.store.cancelling(cell.num, CANCELS_MAX).await?;
    let mut done = Vec::new();
    for (num, app, remote) in cancelling {
        let Ok(key) = cells.key(cell, app) else { continue };
        let request = CellRequest::delete(format!("/v1/notifications/{remote}"), key, cells.timeout());
        match cell.send(request).await {
            Ok(answer) if answer.status.is_success() || answer.status == StatusCode::NOT_FOUND => {
                done.push(num)
            }
            _ => break,
        }
    }
    let any = !done.is_empty();
    if any {
        cells.store.cancelled(cell.num, done).await?;
    }
    Ok(any)
}

#[cfg(test)]
mod tests {
    use super::*;
    use noroshi_types::{Timestamp, TraceContext};

    const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn part(num: u64) -> Part {
        Part {
            num,
            id: NotificationId::from_bytes([num as u8; 16]),
            app: AppId(1),
            to: r#"{"users":["u"]}"#.to_owned(),
            body: r#"{"data":{"n": 1},"ttl":"60s"}"#.to_owned(),
            expires_at: Timestamp(7),
            trace: None,
        }
    }

    fn traced(num: u64) -> Part {
        let trace = TraceContext::parse(TRACEPARENT.as_bytes());
        Part { trace: Some(trace.expect("a context")), ..part(num) }
    }

    #[test]
    fn a_line_has_the_message_its_key_and_its_expiry() {
        let expected = "{\"key\":\"01010101-0101-0101-0101-010101010101\",\"expires_at_ms\":7,\"notification\":\
                        {\"to\":{\"users\":[\"u\"]},\"data\":{\"n\": 1},\"ttl\":\"60s\"}}\n";
        assert_eq!(lines(&[part(1)]).as_deref(), Some(expected));
        let with_trace = expected.replace("7,\"not", &format!("7,\"traceparent\":\"{TRACEPARENT}\",\"not"));
        assert_eq!(lines(&[traced(1)]), Some(with_trace));
    }

    #[test]
    fn a_batch_ends_at_the_first_untried_trace() {
        let parts = vec![part(1), traced(2), part(3), traced(4)];
        assert_eq!(sendable(Traces::Taken, parts.clone()), parts);
        assert_eq!(sendable(Traces::Untried, parts.clone()), parts[..2]);
        assert_eq!(sendable(Traces::Untried, vec![part(1), part(3)]), [part(1), part(3)]);
        assert_eq!(sendable(Traces::Refused, parts), [part(1), part(2), part(3), part(4)]);
    }

    #[test]
    fn a_line_rejected_for_its_trace_is_retried() {
        let refusal = |field: &str| {
            format!("{{\"error\":{{\"code\":\"unknown_field\",\"status\":400,\"field\":\"{field}\"}}}}\n")
        };
        let refused = |num: u64| (num, PartEnd::Refused("unknown_field".to_owned()));
        let body = refusal("traceparent") + &refusal("notification.new") + &refusal("traceparent");
        let sent = read_answers(&[traced(1), traced(2), part(3)], body.as_bytes());
        assert_eq!((sent.ended, sent.traces), (vec![refused(2), refused(3)], Some(Traces::Refused)));
        let sent = read_answers(&[traced(2)], refusal("notification.new").as_bytes());
        assert_eq!((sent.ended, sent.traces), (vec![refused(2)], Some(Traces::Taken)));
        let busy = b"{\"error\":{\"code\":\"overloaded\",\"status\":503}}";
        assert_eq!(read_answers(&[traced(1)], busy).traces, Some(Traces::Taken));
        assert_eq!(read_answers(&[traced(1)], b"nonsense").traces, None);
        assert_eq!(read_answers(&[part(1)], busy).traces, None);
    }

    #[test]
    fn an_app_over_its_quota_does_not_delay_the_cell() {
        let over = "{\"error\":{\"code\":\"quota_exceeded\",\"status\":429}}\n";
        let busy = "{\"error\":{\"code\":\"overloaded\",\"status\":503}}\n";
        let retry = |body: String| read_answers(&[part(1), part(2)], body.as_bytes()).retry;
        assert_eq!(retry(over.repeat(2)), Some(Retry::App("quota_exceeded".to_owned())));
        for mixed in [format!("{over}{busy}"), format!("{busy}{over}")] {
            assert_eq!(retry(mixed), Some(Retry::Cell("overloaded".to_owned())));
        }
    }

    #[test]
    fn temporary_errors_are_retried_and_others_are_final() {
        let id = NotificationId::from_bytes([9; 16]);
        let parts: Vec<Part> = (1..=5).map(part).collect();
        let body = format!(
            "{{\"id\":\"{id}\",\"targets\":1}}\n{{\"error\":{{\"code\":\"data_too_large\",\"status\":413}}}}\n\
             {{\"error\":{{\"code\":\"overloaded\",\"status\":503}}}}\nnonsense\n"
        );
        let sent = read_answers(&parts, body.as_bytes());
        assert_eq!(
            sent.ended,
            [(1, PartEnd::Forwarded(id)), (2, PartEnd::Refused("data_too_large".to_owned()))]
        );
        assert!(sent.retry.is_some());
        assert_eq!(read_answers(&parts[..1], b"").ended, []);
    }

    #[test]
    fn only_a_rejection_for_its_topic_lets_later_parts_pass() {
        let id = NotificationId::from_bytes([9; 16]);
        let taken = format!("{{\"id\":\"{id}\",\"targets\":1}}\n");
        let over =
            |field: &str| format!("{{\"error\":{{\"code\":\"quota_exceeded\",\"status\":429{field}}}}}\n");
        let of_topic = over(",\"field\":\"to.topic\"");
        let past = |body: String| read_answers(&[part(1), part(2)], body.as_bytes()).past;
        assert_eq!(past(of_topic.repeat(2)), Some(2));
        assert_eq!(past(format!("{of_topic}{taken}")), Some(2));
        assert_eq!(past(format!("{of_topic}{}", over(""))), None, "over its rate: keeps its order");
        assert_eq!(past(of_topic), None, "a line is missing");
    }
}
