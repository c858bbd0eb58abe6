//! Push services, as the decisions use them: credentials, the queue of work, and what comes of it.
//!
//! ```text
//!   publish ──► Store::accept ─┐ (work in the same commit)
//!   collector ──► walks ───────┴─► push queue ──► sender ──► batch ──► Services::send
//!                                       ▲           (lanes, room)  │        │
//!                                       │                          ▼        ▼ answers, as they come
//!                                       └── retries ── finisher ◄─ settle ◄─ gather
//! ```
//!
//! Reading order: [`config`], `flight` (how much is under way), `sender` (takes batches), `batch` (one batch's
//! way), `gather`, `settle` with [`retry`] and `hygiene` (what answers mean), `finisher`, `collector`, [`credential`].
//!
//! Several nodes: `lead` (who walks and dispatches), `lease` (whose a batch is), and, where a queue of the cluster is in
//! between, `dispatcher` (store → queue), `parcel`, `puller` (queue → sender).
//!
//! Invariants: a batch is finished exactly once or taken again after its lease; a slow recipient holds up the
//! finish of its own batch and nothing else; everything in memory is bounded by [`config::Config`].

mod ahead;
mod batch;
mod collector;
pub mod config;
pub mod credential;
mod dispatcher;
mod failure;
mod finisher;
mod flight;
mod gather;
mod hygiene;
pub(crate) mod lead;
mod lease;
pub(crate) mod metrics;
pub mod outlet;
mod parcel;
mod publication;
mod puller;
pub mod retry;
mod sender;
mod settle;
mod side;
mod stint;

use std::sync::Arc;

use tokio::sync::watch;

use crate::delivery::Delivery;

pub use config::Config;
pub use credential::{CredentialView, Tested};
pub use outlet::Outlet;
pub(crate) use side::Side;

/// Walks, dispatches and sends until `draining` is true, then gives what is under way its time. A node that does not send
/// for its cell only keeps what it needs to answer questions.
pub(crate) async fn run(delivery: &Arc<Delivery>, side: &Arc<Side>, draining: &watch::Receiver<bool>) {
    let parts = || (delivery.clone(), side.clone(), draining.clone());
    if !side.config.sends {
        return;
    }
    let ((d1, s1, w1), (d2, s2, w2), (d3, s3, w3), (d4, s4, w4)) = (parts(), parts(), parts(), parts());
    tokio::join!(
        lead::run(d1, s1, w1),
        collector::run(d2, s2, w2),
        dispatcher::run(d3, s3, w3),
        sender::run(d4, s4, w4),
    );
}
