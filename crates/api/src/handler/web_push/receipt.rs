//! `GET /push/receipt/{token}`: what became of a message whose sender asked for a receipt (RFC 8030 §5.1, §6.3).
//!
//! The RFC leaves such a request open and sends receipts by HTTP/2 server push, which clients have given up. Here each
//! message has a receipt subscription of its own (§5.1 allows a new one for each), and the answer to the request is the
//! receipt: 204 confirmed, 410 it never will be, 202 not known yet. With `Prefer: wait=N` (RFC 7240 §4.3) the answer
//! waits for one of the first two.

use std::time::Duration;

use axum::extract::State as Shared;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use noroshi_auth::Permit;
use noroshi_store::{NotificationState, State as Stored};
use noroshi_types::{AppId, NotificationId, Outcome, When};
use tokio::time::Instant;

use super::Refused;
use super::fields::prefers;
use crate::error::Problem;
use crate::extract::Path;
use crate::metrics::Counted;
use crate::state::{Api, State};

/// Proxies give up on silent requests after a minute.
const WAIT_MAX: Duration = Duration::from_secs(50);
/// Between looks: a confirmation may come by any node, so the store is asked.
const LOOK_FIRST: Duration = Duration::from_millis(100);
const LOOK_LAST: Duration = Duration::from_secs(2);

pub(crate) async fn receipt(
    Shared(api): Shared<Api>,
    Path(token): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    let unknown = || Problem::not_found("receipt");
    let (app, id) = api.auth.permitted(Permit::Receipt, &token).ok_or_else(unknown)?;
    let _work = api.load.pace.begin(app).ok_or_else(Refused::busy)?;
    let seconds = prefers(&headers, "wait").and_then(|seconds| seconds.parse().ok()).unwrap_or(0);
    let wait = Duration::from_secs(seconds).min(WAIT_MAX);
    // Where too many wait already, it is answered at once.
    let waits = if wait.is_zero() { None } else { api.load.pace.wait(app) };
    let until = Instant::now() + if waits.is_some() { wait } else { Duration::ZERO };
    let _waiting = waits.as_ref().map(|_| Counted::by(&api.metrics.receipts_waiting));
    let mut pause = LOOK_FIRST;
    loop {
        let status = status(&api, app, id).await?.ok_or_else(unknown)?;
        let left = until.saturating_duration_since(Instant::now());
        let drained = !api.ready.load(std::sync::atomic::Ordering::Relaxed);
        if status != StatusCode::ACCEPTED || left.is_zero() || drained {
            let mut response = status.into_response();
            if status == StatusCode::ACCEPTED {
                response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            return Ok(response);
        }
        tokio::time::sleep(pause.min(left)).await;
        pause = (pause * 2).min(LOOK_LAST);
    }
}

/// None if nothing is known of the message any more.
async fn status(api: &State, app: AppId, id: NotificationId) -> Result<Option<StatusCode>, Problem> {
    let found = api.delivery.store().notification(app, id, api.now()).await?;
    Ok(found.as_ref().map(status_of))
}

/// A message goes to one device: one of these counts decides.
fn status_of(found: &NotificationState) -> StatusCode {
    let any = |outcomes: &[Outcome]| {
        found.counts.iter().any(|(outcome, count)| *count > 0 && outcomes.contains(outcome))
    };
    let kept = found.message.when == When::Stored;
    // Without time to live nothing is confirmed: written to the connection is all that can be known.
    if any(&[Outcome::Acked]) || (!kept && any(&[Outcome::Written])) {
        return StatusCode::NO_CONTENT;
    }
    let lost = [Outcome::Offline, Outcome::Inactive, Outcome::Slow, Outcome::Unknown];
    let ended =
        [Outcome::Expired, Outcome::Collapsed, Outcome::Cancelled, Outcome::Evicted, Outcome::Unknown];
    let over = matches!(found.state, Stored::Expired | Stored::Cancelled);
    match over || any(&ended) || (!kept && any(&lost)) {
        true => StatusCode::GONE,
        false => StatusCode::ACCEPTED,
    }
}
