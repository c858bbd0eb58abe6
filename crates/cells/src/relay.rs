//! Handing on: one worker for each cell sends what waits for it, oldest first, a batch at a time. The next batch
//! goes out when the last is answered and that is kept, so what a cell hears of a user or a topic is in the order of
//! acceptance.
//!
//! A line's key is the message's id, so whatever is sent again after a failure, a restart or by another front is
//! taken once. What a cell cannot take now holds back its own cell alone; an app that a cell refuses now holds back its
//! own parts alone ([`apart`]); what it refuses for good is recorded.
//!
//! Two refusals let later parts pass: one for a quota of topics or retained messages, where the later parts have other
//! topics, and one for a quota of inboxes, which the cell decides at the commit.

mod apart;

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

use self::apart::Apart;
use crate::cell::{Cell, Traces};
use crate::client::Ask;
use crate::front::Front;
use crate::splice::splice;
use crate::upkeep::GRACE;

/// A cell commits that many at once.
const BATCH_LINES_MAX: usize = 500;
/// A quarter of what a cell takes in one body.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// The same of an app that is apart.
const APART_LINES_MAX: usize = 100;
const APART_BYTES_MAX: usize = 1 << 20;
const CANCELS_MAX: usize = 64;
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// For what another front on the same store accepted.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// Of the worker's right to hand on, among fronts on one store; renewed by each round. A request that takes
/// longer does no harm: what another front sends meanwhile has the same keys and the same order.
const LEASE: Duration = Duration::from_secs(10);

/// What a round came to.
enum Round {
    Idle,
    Done,
    /// Something has to be tried again, for a reason that is the cell's.
    Again(String),
}

pub(crate) async fn run(front: Arc<Front>, cell: Arc<Cell>) {
    let (mut pause, mut apart) = (BACKOFF.0, Apart::default());
    loop {
        cell.until_up().await;
        match round(&front, &cell, &mut apart).await {
            Round::Done => pause = BACKOFF.0,
            Round::Idle => {
                pause = BACKOFF.0;
                let due_in = apart.next_due().map(|at| at.saturating_duration_since(Instant::now()));
                let look_again = due_in.map_or(LOOK_AGAIN, |due_in| due_in.min(LOOK_AGAIN));
                let _ = tokio::time::timeout(look_again, cell.work.notified()).await;
            }
            Round::Again(reason) => {
                tracing::debug!(cell = cell.name(), reason, "what is for the cell waits");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(BACKOFF.1);
            }
        }
    }
}

async fn round(front: &Front, cell: &Cell, apart: &mut Apart) -> Round {
    let round = hand_on(front, cell, apart).await;
    cell.set_apart(apart.apps());
    round.unwrap_or_else(|error| Round::Again(error.to_string()))
}

/// Of which one front does it at a time.
fn task(cell: &Cell) -> String {
    format!("cells/relay/{}", cell.name())
}

/// Another front need not wait for the lease of this one.
pub(crate) async fn leave(front: &Front) {
    for cell in &front.cells {
        if let Err(error) = front.state.delivery.store().yield_lead(&task(cell), front.holder).await {
            tracing::debug!(cell = cell.name(), %error, "the next front waits for the lease of this one");
        }
    }
}

async fn hand_on(front: &Front, cell: &Cell, apart: &mut Apart) -> Result<Round, noroshi_store::Error> {
    if !front.state.delivery.store().lead(&task(cell), front.holder, LEASE).await? {
        // The new leader builds its own list.
        *apart = Apart::default();
        return Ok(Round::Idle);
    }
    let cancelled = cancel(front, cell).await?;
    let parts = read(front, cell, apart).await?;
    if parts.is_empty() {
        return Ok(if cancelled { Round::Done } else { Round::Idle });
    }
    let now = front.state.now();
    let (over, parts): (Vec<_>, Vec<_>) =
        parts.into_iter().partition(|part| part.expires_at.saturating_add(GRACE) < now);
    let mut ended: Vec<(u64, PartEnd)> = over.iter().map(|part| (part.num, PartEnd::Expired)).collect();
    let mut by_app: BTreeMap<AppId, Vec<Part>> = BTreeMap::new();
    for part in parts {
        by_app.entry(part.app).or_default().push(part);
    }
    let mut again = None;
    let batches = by_app.into_iter().map(async |(app, parts)| (app, send(front, cell, app, parts).await));
    for (app, sent) in join_all(batches).await {
        ended.extend(sent.ended);
        match sent.again {
            None => apart.passed(app, Instant::now()),
            Some(Again::App(reason)) => {
                if apart.refused(app, Instant::now(), sent.past) {
                    tracing::info!(
                        cell = cell.name(),
                        ?app,
                        reason,
                        "the cell refuses an app for now: its messages wait, others do not"
                    );
                }
            }
            Some(Again::Cell(reason)) => again = again.or(Some(reason)),
        }
    }
    record(front, cell, ended).await?;
    Ok(again.map_or(Round::Done, Round::Again))
}

/// The next parts of the apps that are due, and of all that are not apart.
async fn read(front: &Front, cell: &Cell, apart: &mut Apart) -> Result<Vec<Part>, noroshi_store::Error> {
    if apart.is_empty() {
        return front.store.waiting(cell.num, Wanted::ALL, BATCH_LINES_MAX, BATCH_BYTES_MAX).await;
    }
    // Read before the parts: every smaller number is committed by then. On PostgreSQL it waits for whoever accepts, so
    // not in every round.
    let newest = match apart.is_look_due(Instant::now()) {
        true => Some(front.store.newest().await?),
        false => None,
    };
    let mut parts = front.store.waiting(cell.num, apart.others(), BATCH_LINES_MAX, BATCH_BYTES_MAX).await?;
    if let Some(newest) = newest {
        apart.skip(parts.first().map_or(newest, |first| newest.min(first.num - 1)));
    }
    for app in apart.due(Instant::now()) {
        let read = async |after| {
            let wanted = Wanted::Of { app, after };
            front.store.waiting(cell.num, wanted, APART_LINES_MAX, APART_BYTES_MAX).await
        };
        let after = apart.position(app);
        let mut of_app = read(after).await?;
        if of_app.is_empty() && after > 0 {
            apart.wrap(app);
            of_app = read(0).await?;
        }
        if of_app.is_empty() {
            apart.leave(app);
        }
        parts.extend(of_app);
    }
    Ok(parts)
}

/// Why something goes again, and whom that holds back.
#[derive(Debug, PartialEq, Eq)]
enum Again {
    /// Only the app.
    App(String),
    /// All that is for the cell.
    Cell(String),
}

/// What became of a batch.
struct Sent {
    ended: Vec<(u64, PartEnd)>,
    /// Why some of it goes again.
    again: Option<Again>,
    /// The last part, where all that goes again was refused for its topic: what is behind it need not wait.
    past: Option<u64>,
    /// What the cell made of lines that name a trace. One that it refused goes without in the next round.
    traces: Option<Traces>,
}

/// One app's parts, in their order.
async fn send(front: &Front, cell: &Cell, app: AppId, parts: Vec<Part>) -> Sent {
    let parts = as_taken(cell.traces(), parts);
    let sent = send_once(front, cell, app, &parts).await;
    if let Some(traces) = sent.traces {
        let before = cell.note_traces(traces);
        if traces == Traces::Refused && before != Traces::Refused {
            tracing::warn!(cell = cell.name(), "the cell is of an older version, and is told of no traces");
        }
    }
    sent
}

/// What may go to the cell at once. As long as it is not known whether it takes traces, nothing goes behind the
/// first line that has one: that is refused where it does not, and stays the next in its order to go without.
fn as_taken(traces: Traces, mut parts: Vec<Part>) -> Vec<Part> {
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

async fn send_once(front: &Front, cell: &Cell, app: AppId, parts: &[Part]) -> Sent {
    let nothing = |again: Again| Sent { ended: Vec::new(), again: Some(again), past: None, traces: None };
    let of_app = |reason: &str| nothing(Again::App(reason.to_owned()));
    // An app that was deleted took its messages along: they are gone with the next look.
    let Ok(key) = front.key(cell, app) else { return of_app("its app is gone") };
    let Some(body) = lines(parts) else { return of_app("a kept message is no JSON") };
    let ask = Ask::post("/v1/notifications/relay", key, front.timeout(), Ask::NDJSON, body);
    let answer = match cell.ask(ask).await {
        Ok(answer) => answer,
        Err(error) => return nothing(Again::Cell(error.to_string())),
    };
    match answer.status {
        StatusCode::OK => read_answers(parts, &answer.body),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            cell.unprovisioned.notify_one();
            of_app("it does not know the front's key of the app")
        }
        StatusCode::TOO_MANY_REQUESTS => of_app("too many requests"),
        status => nothing(Again::Cell(format!("it answered {}", status.as_u16()))),
    }
}

/// As cells hash them: without its trace a line is byte by byte what it was before there were traces.
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

    /// It ended, or was refused for a reason that is its topic's.
    fn lets_others_pass(&self) -> bool {
        let passes = |error: &LineError| match error.status {
            429 => error.field.as_deref() == Some(OVER_QUOTA_FIELD),
            status => !matches!(status, 408 | 500..),
        };
        self.error.as_ref().is_none_or(passes)
    }
}

/// A line that is missing or makes no sense goes again.
fn read_answers(parts: &[Part], body: &[u8]) -> Sent {
    let past = parts.last().map(|part| part.num);
    let mut sent = Sent { ended: Vec::with_capacity(parts.len()), again: None, past, traces: None };
    let mut lines = body.split(|byte| *byte == b'\n');
    for part in parts {
        let line: Option<LineBody> = lines.next().and_then(|line| serde_json::from_slice(line).ok());
        if let (Some(_), Some(line)) = (part.trace, &line) {
            if line.refuses_trace() {
                (sent.traces, sent.past) = (Some(Traces::Refused), None);
                continue;
            }
            // Whatever else it says of the line, it has read it.
            sent.traces = sent.traces.or(Some(Traces::Taken));
        }
        if !line.as_ref().is_some_and(LineBody::lets_others_pass) {
            sent.past = None;
        }
        match line.map(end_of) {
            Some(Ok(end)) => sent.ended.push((part.num, end)),
            // A reason of the cell's stands before one of the app's.
            Some(Err(again @ Again::App(_))) => sent.again = sent.again.or(Some(again)),
            Some(Err(again)) => sent.again = Some(again),
            None => sent.again = Some(Again::Cell("its answer has a line that makes no sense".to_owned())),
        }
    }
    sent
}

/// An error's code where it passes. Too many requests (RFC 6585 §4) are one app's.
fn end_of(line: LineBody) -> Result<PartEnd, Again> {
    if let Some(id) = line.id.as_deref().and_then(|id| NotificationId::parse(id).ok()) {
        return Ok(PartEnd::Forwarded(id));
    }
    match line.error {
        Some(LineError { code, status: 429, .. }) => Err(Again::App(code)),
        // 408 and 5xx pass (RFC 9110 §15.5.9, §15.6).
        Some(LineError { code, status: 408 | 500.., .. }) => Err(Again::Cell(code)),
        Some(LineError { code, .. }) => Ok(PartEnd::Refused(code)),
        None => Err(Again::Cell("a line without an id".to_owned())),
    }
}

async fn record(front: &Front, cell: &Cell, ended: Vec<(u64, PartEnd)>) -> Result<(), noroshi_store::Error> {
    if ended.is_empty() {
        return Ok(());
    }
    let count = |wanted: fn(&PartEnd) -> bool| ended.iter().filter(|(_, end)| wanted(end)).count() as u64;
    let forwarded = count(|end| matches!(end, PartEnd::Forwarded(_)));
    let refused = count(|end| matches!(end, PartEnd::Refused(_)));
    let expired = count(|end| matches!(end, PartEnd::Expired));
    front.store.end(cell.num, ended).await?;
    cell.metrics.forwarded.inc_by(forwarded);
    cell.metrics.refused.inc_by(refused);
    cell.metrics.expired.inc_by(expired);
    let ended = forwarded + refused + expired;
    // Measured again from time to time: it is only about right.
    let less = |waiting: u64| Some(waiting.saturating_sub(ended));
    let _ = cell.waiting.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    Ok(())
}

/// Cancels at the cell what was cancelled here after it was handed on. True if there was anything.
async fn cancel(front: &Front, cell: &Cell) -> Result<bool, noroshi_store::Error> {
    let cancelling = front.store.cancelling(cell.num, CANCELS_MAX).await?;
    let mut done = Vec::new();
    for (num, app, remote) in cancelling {
        let Ok(key) = front.key(cell, app) else { continue };
        let ask = Ask::delete(format!("/v1/notifications/{remote}"), key, front.timeout());
        match cell.ask(ask).await {
            Ok(answer) if answer.status.is_success() || answer.status == StatusCode::NOT_FOUND => {
                done.push(num)
            }
            _ => break,
        }
    }
    let any = !done.is_empty();
    if any {
        front.store.cancelled(cell.num, done).await?;
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
    fn a_line_holds_the_message_its_key_and_its_end() {
        let expected = "{\"key\":\"01010101-0101-0101-0101-010101010101\",\"expires_at_ms\":7,\"notification\":\
                        {\"to\":{\"users\":[\"u\"]},\"data\":{\"n\": 1},\"ttl\":\"60s\"}}\n";
        assert_eq!(lines(&[part(1)]).as_deref(), Some(expected));
        let with_trace = expected.replace("7,\"not", &format!("7,\"traceparent\":\"{TRACEPARENT}\",\"not"));
        assert_eq!(lines(&[traced(1)]), Some(with_trace));
    }

    #[test]
    fn nothing_goes_behind_a_trace_that_may_be_refused() {
        let parts = vec![part(1), traced(2), part(3), traced(4)];
        assert_eq!(as_taken(Traces::Taken, parts.clone()), parts);
        assert_eq!(as_taken(Traces::Untried, parts.clone()), parts[..2]);
        assert_eq!(as_taken(Traces::Untried, vec![part(1), part(3)]), [part(1), part(3)]);
        assert_eq!(as_taken(Traces::Refused, parts), [part(1), part(2), part(3), part(4)]);
    }

    #[test]
    fn what_is_refused_for_its_trace_has_not_ended() {
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
    fn an_app_over_its_quota_is_no_trouble_of_the_cell() {
        let over = "{\"error\":{\"code\":\"quota_exceeded\",\"status\":429}}\n";
        let busy = "{\"error\":{\"code\":\"overloaded\",\"status\":503}}\n";
        let again = |body: String| read_answers(&[part(1), part(2)], body.as_bytes()).again;
        assert_eq!(again(over.repeat(2)), Some(Again::App("quota_exceeded".to_owned())));
        for mixed in [format!("{over}{busy}"), format!("{busy}{over}")] {
            assert_eq!(again(mixed), Some(Again::Cell("overloaded".to_owned())));
        }
    }

    #[test]
    fn what_passes_goes_again_and_the_rest_ends() {
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
        assert!(sent.again.is_some());
        assert_eq!(read_answers(&parts[..1], b"").ended, []);
    }

    #[test]
    fn only_what_is_refused_for_its_topic_lets_later_parts_pass() {
        let id = NotificationId::from_bytes([9; 16]);
        let taken = format!("{{\"id\":\"{id}\",\"targets\":1}}\n");
        let over =
            |field: &str| format!("{{\"error\":{{\"code\":\"quota_exceeded\",\"status\":429{field}}}}}\n");
        let of_topic = over(",\"field\":\"to.topic\"");
        let past = |body: String| read_answers(&[part(1), part(2)], body.as_bytes()).past;
        assert_eq!(past(of_topic.repeat(2)), Some(2));
        assert_eq!(past(format!("{of_topic}{taken}")), Some(2));
        assert_eq!(past(format!("{of_topic}{}", over(""))), None, "over its rate, it keeps its order");
        assert_eq!(past(of_topic), None, "a line is missing");
    }
}
