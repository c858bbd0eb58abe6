//! Assembles a front: opens its cells, connects the components, and runs the workers. Handlers reach the components
//! through [`Front`]; nothing below names it.

use std::sync::{Arc, Mutex, PoisonError};

use noroshi_api::State;
use noroshi_store::cells::Cells;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::cell_set::CellSet;
use crate::config::Config;
use crate::error::Error;
use crate::metrics::Metrics;
use crate::outbox::{self, Outbox, Waiter};
use crate::placement::Placement;
use crate::{moves, probe, provision, relay, upkeep};

/// Shared as `Arc<Front>`.
pub struct Front {
    pub(crate) cells: Arc<CellSet>,
    pub(crate) placement: Placement,
    pub(crate) outbox: Outbox,
    /// The receiving end of `outbox`, until [`Front::run`] takes it. The lock is held for the `take`.
    accepting: Mutex<Option<mpsc::Receiver<Waiter>>>,
}

impl Front {
    /// `state` is that of an API whose delivery has no connections: the front uses its apps, keys and limits. `store`
    /// is the same database.
    pub async fn new(
        config: Config,
        state: Arc<State>,
        store: Arc<dyn Cells>,
        metrics: Metrics,
    ) -> Result<Arc<Self>, Error> {
        let cells = Arc::new(CellSet::open(config, state, store, metrics).await?);
        upkeep::measure(&cells).await?;
        let placement = Placement::new(cells.clone());
        let (outbox, accepting) = outbox::new();
        Ok(Arc::new(Self { cells, placement, outbox, accepting: Mutex::new(Some(accepting)) }))
    }

    /// Forwards accepted messages, probes the cells and moves devices until `end` resolves. Call it once. The next
    /// start repeats what was interrupted; idempotency keys make the repetition harmless.
    pub async fn run(self: Arc<Self>, end: impl Future<Output = ()>) {
        let Some(accepting) = self.accepting.lock().unwrap_or_else(PoisonError::into_inner).take() else {
            return;
        };
        let cells = &self.cells;
        let mut tasks = JoinSet::new();
        tasks.spawn(outbox::run(cells.clone(), accepting));
        tasks.spawn(upkeep::run(cells.clone()));
        for cell in cells.iter() {
            tasks.spawn(probe::run(cell.clone(), cells.config.probe_interval));
            tasks.spawn(relay::run(cells.clone(), cell.clone()));
            tasks.spawn(provision::run(cells.clone(), cell.clone()));
            tasks.spawn(moves::run(cells.clone(), cell.clone()));
        }
        tokio::select! {
            () = end => {}
            // No worker ends unless it failed; the supervisor of the node restarts the front.
            Some(ended) = tasks.join_next() => match ended {
                Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
                _ => tracing::error!("a task of the front ended"),
            },
        }
        tasks.shutdown().await;
        relay::release_leases(cells).await;
    }
}
