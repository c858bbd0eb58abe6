//! Probes whether a cell answers. Two failures in a row mark it as down, the first answer as up. A failed request
//! triggers a probe, so a dead cell is detected within a fraction of a second.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, StatusCode};

use crate::cell::Cell;
use crate::client::CellRequest;

const TIMEOUT: Duration = Duration::from_secs(2);
/// Between a failure and the probe that confirms it.
const RETRY_AFTER: Duration = Duration::from_millis(200);
const FAILURES: u32 = 2;

pub(crate) async fn run(cell: Arc<Cell>, interval: Duration) {
    let mut failures = 0;
    loop {
        match answers(&cell).await {
            true => {
                failures = 0;
                if cell.set_up(true) {
                    tracing::info!(cell = cell.name(), "the cell answers again");
                    cell.unprovisioned.notify_one();
                }
            }
            false => {
                failures += 1;
                if failures >= FAILURES && cell.set_up(false) {
                    tracing::warn!(cell = cell.name(), "the cell does not answer; its messages are queued");
                }
            }
        }
        let pause = if failures == 1 { RETRY_AFTER } else { interval };
        // A failed request to a cell that is known to be down is no news.
        let _ = match cell.is_up() {
            true => tokio::time::timeout(pause, cell.probe_due.notified()).await.is_ok(),
            false => {
                tokio::time::sleep(pause).await;
                false
            }
        };
    }
}

/// Any answer of its provider API, except a server error and that of a node without this API.
async fn answers(cell: &Cell) -> bool {
    let request = CellRequest { timeout: Some(TIMEOUT), ..CellRequest::get("/") };
    match cell.send(request.with(HeaderValue::from_static("none"))).await {
        Ok(answer) => !answer.status.is_server_error() && answer.status != StatusCode::MISDIRECTED_REQUEST,
        Err(_) => false,
    }
}
