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
//! Invariants: a batch is finished exactly once or taken again after its lease; a slow recipient holds up the
//! finish of its own batch and nothing else; everything in memory is bounded by [`config::Config`].

mod ahead;
mod batch;
pub(crate) mod collector;
pub mod config;
pub mod credential;
mod finisher;
mod flight;
mod gather;
mod hygiene;
pub(crate) mod metrics;
pub mod outlet;
mod publication;
pub mod retry;
pub(crate) mod sender;
mod settle;
mod side;

pub use config::Config;
pub use credential::{CredentialView, Tested};
pub use outlet::Outlet;
pub(crate) use side::Side;
