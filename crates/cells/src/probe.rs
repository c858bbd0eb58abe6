//! Whether a cell answers. It is away after two failures in a row, and back with the first answer. A request that
//! failed brings the next probe forward, so a cell that died is known within a fraction of a second.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, StatusCode};

use crate::cell::Cell;
use crate::client::Ask;
use crate::front::Front;

const TIMEOUT: Duration = Duration::from_secs(2);
/// Between a failure and the probe that decides.
const AGAIN: Duration = Duration::from_millis(200);
const FAILURES: u32 = 2;

pub(crate) async fn run(front: Arc<Front>, cell: Arc<Cell>) {
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
                    tracing::warn!(cell = cell.name(), "the cell does not answer; what is for it waits");
                }
            }
        }
        let pause = if failures == 1 { AGAIN } else { front.config.probe_interval };
        // A doubt about a cell that is known to be away is nothing new.
        let _ = match cell.is_up() {
            true => tokio::time::timeout(pause, cell.doubt.notified()).await.is_ok(),
            false => {
                tokio::time::sleep(pause).await;
                false
            }
        };
    }
}

/// Any answer of its provider API but a failure or that of a node that does not serve it.
async fn answers(cell: &Cell) -> bool {
    let nobody = HeaderValue::from_static("none");
    match cell.ask(Ask::get("/", nobody, TIMEOUT)).await {
        Ok(answer) => !answer.status.is_server_error() && answer.status != StatusCode::MISDIRECTED_REQUEST,
        Err(_) => false,
    }
}
