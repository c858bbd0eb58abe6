//! `GET /push/receipt/{token}`: the delivery receipt of a message (RFC 8030 §5.1, §6.3).
//!
//! The RFC keeps such a request open and sends receipts by HTTP/2 server push, which clients no longer support. Here each
//! message has its own receipt subscription (§5.1 allows that), and the status is the receipt: 204 acknowledged, 410 never to be
//! acknowledged, 202 pending. With `Prefer: wait=N` (RFC 7240 §4.3) the response waits for 204 or 410.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State as Shared;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use noroshi_auth::Permit;
use noroshi_delivery::Delivery;
use noroshi_store::{NotificationState, State as Stored};
use noroshi_types::{AppId, NotificationId, Outcome, When};
use tokio::time::Instant;

use super::fields::prefers;
use super::{Refused, WebPush};
use crate::error::Problem;
use crate::request::parameter::Path;

/// Proxies close silent requests after a minute.
const WAIT_MAX: Duration = Duration::from_secs(50);
/// Interval between reads of the store, since any node may receive the acknowledgement.
const POLL_FIRST: Duration = Duration::from_millis(100);
const POLL_LAST: Duration = Duration::from_secs(2);

pub(crate) async fn receipt(
    Shared(web_push): Shared<Arc<WebPush>>,
    Path(token): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    let unknown = || Problem::not_found("receipt");
    let (app, id) = web_push.auth.permitted(Permit::Receipt, &token).ok_or_else(unknown)?;
    let _request = web_push.limiter.begin_request(app).ok_or_else(Refused::busy)?;
    let seconds = prefers(&headers, "wait").and_then(|seconds| seconds.parse().ok()).unwrap_or(0);
    let wait = Duration::from_secs(seconds).min(WAIT_MAX);
    // If too many already wait, responds at once.
    let waits = if wait.is_zero() { None } else { web_push.limiter.begin_receipt(app) };
    let until = Instant::now() + if waits.is_some() { wait } else { Duration::ZERO };
    let _waiting = waits.as_ref().map(|_| web_push.metrics.receipt_waits());
    let mut pause = POLL_FIRST;
    loop {
        let status = status(&web_push.delivery, app, id).await?.ok_or_else(unknown)?;
        let left = until.saturating_duration_since(Instant::now());
        let drained = !web_push.ready.load(std::sync::atomic::Ordering::Relaxed);
        if status != StatusCode::ACCEPTED || left.is_zero() || drained {
            let mut response = status.into_response();
            if status == StatusCode::ACCEPTED {
                response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            return Ok(response);
        }
        tokio::time::sleep(pause.min(left)).await;
        pause = (pause * 2).min(POLL_LAST);
    }
}

/// None if the message no longer exists.
async fn status(delivery: &Delivery, app: AppId, id: NotificationId) -> Result<Option<StatusCode>, Problem> {
    let found = delivery.store().notification(app, id, delivery.clock().now()).await?;
    Ok(found.as_ref().map(status_of))
}

/// A message goes to one device, so its counts are the device's outcomes.
fn status_of(found: &NotificationState) -> StatusCode {
    let any = |outcomes: &[Outcome]| {
        found.counts.iter().any(|(outcome, count)| *count > 0 && outcomes.contains(outcome))
    };
    let kept = found.message.when == When::Stored;
    // A message with a TTL of 0 is never acknowledged: written to the connection is the final state.
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
