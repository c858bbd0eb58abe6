//! A front: one API over several independent clusters, its *cells*. It holds no device connections; a dead cell affects
//! only the devices assigned to it.
//!
//! ```text
//!   provider ──► front ──► outbox (one commit) ──► 202
//!                  │            └─ one worker per cell ──► POST /v1/notifications/relay, in order, deduplicated by key
//!                  ├─ queries the cells, merges answers ──► states, presence, topics
//!   device ────────┴─ assigns a cell (by user), forwards ─► the cell answers: token, addresses to connect to
//! ```
//!
//! Reading order: [`config`], `cell` (one cell as the front sees it), `client`, `cell_set`, `choose` (the cell of a new
//! device), `placement`, then the workers: `outbox` (accepting), `relay` (forwarding), `provision` (apps and keys),
//! `moves`, `probe`, `upkeep`; then [`front`], which assembles them, and [`mod@router`] with its handlers. The stored
//! state is `noroshi_store::cells`.
//!
//! Invariants: a message is in the store before it is answered 202, and is forwarded until its cell answers or it
//! expires, with a key by which the cell deduplicates. The front calls cells with its own key, never with a provider's.
//! The front authenticates providers; only cells authenticate devices.
//!
//! The cell that issued a device token signed it, and cells share no keys. The front reads the device id from the
//! unverified token, finds the cell, and lets the cell decide. If devices of several apps have that id, the front tries
//! their cells one after the other; only the issuer's signature fits. The front verifies app JWTs itself before it
//! assigns a cell to an unknown device.

pub mod config;
pub mod front;
pub mod metrics;
pub mod router;

mod cell;
mod cell_set;
mod choose;
mod client;
mod error;
mod handler;
mod moves;
mod outbox;
mod placement;
mod probe;
mod provision;
mod relay;
mod splice;
mod upkeep;

pub use config::{CellConfig, Config};
pub use error::Error;
pub use front::Front;
pub use metrics::Metrics;
