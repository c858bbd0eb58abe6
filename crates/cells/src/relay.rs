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
mod line;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use http::StatusCode;
use noroshi_store::cells::{Part, PartEnd, Wanted};
use noroshi_types::AppId;

use self::deferred::Deferred;
use self::line::{Retry, Sent, lines, read_answers, sendable};
use crate::cell::{Cell, Traces};
use crate::cell_set::CellSet;
use crate::client::CellRequest;
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
        if let Err(error) = cells.state.delivery.store().release_lead(&task(cell), cells.holder).await {
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

async fn send_once(cells: &CellSet, cell: &Cell, app: AppId, parts: &[Part]) -> Sent {
    let app_refused = |reason: &str| Sent::failed(Retry::App(reason.to_owned()));
    // A deleted app has deleted its messages: the next read does not return them.
    let Ok(key) = cells.key(cell, app) else { return app_refused("the app is deleted") };
    let Some(body) = lines(parts) else { return app_refused("a stored message is not JSON") };
    let request = CellRequest::post_lines("/v1/notifications/relay", body).with(key);
    let answer = match cell.send(request).await {
        Ok(answer) => answer,
        Err(error) => return Sent::failed(Retry::Cell(error.to_string())),
    };
    match answer.status {
        StatusCode::OK => read_answers(parts, &answer.body),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            cell.unprovisioned.notify_one();
            app_refused("the cell does not know the front's key for the app")
        }
        StatusCode::TOO_MANY_REQUESTS => app_refused("too many requests"),
        status => Sent::failed(Retry::Cell(format!("the cell answered {}", status.as_u16()))),
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
        let request = CellRequest::delete(format!("/v1/notifications/{remote}")).with(key);
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
