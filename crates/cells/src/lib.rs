//! A front: one API over several independent clusters, its *cells*. It keeps no connections; a dead cell delays
//! only who lives there.
//!
//! ```text
//!   provider ──► front ──► outbox (one commit) ──► 202
//!                  │            └─ a worker for each cell ──► POST /v1/notifications/relay, in order, once by key
//!                  ├─ asks the cells concerned, adds up ──► states, presence, topics
//!   device ────────┴─ assigns a cell (by user), hands on ─► the cell answers: token, addresses to connect to
//! ```
//!
//! Reading order: [`config`], `cell` (one cell as it is seen from here), `client`, `choose` (which cell a newcomer
//! gets), [`front`], then the work behind requests: `outbox` (accepting), `relay` (handing on), `provision` (apps and
//! keys), `moves`, `upkeep`; then [`mod@router`] with its handlers. What is kept is `noroshi_store::cells`.
//!
//! Invariants: what was answered 202 is in the store first, and is handed on until its cell has answered or its time
//! is over, with a key under which the cell takes it once; cells are asked with a key of the front's own, which is no
//! provider's; a front decides who a provider is and never who a device is: that is the cell's.
//!
//! Device tokens are signed by the cell that issued them, and cells do not share keys. The front reads the device's
//! id from the token unverified, finds the cell by it, and lets the cell decide; where devices of several apps have
//! that id, the cells are asked one after the other, and only the right one's signature fits. App JWTs are verified
//! here too, before a device that is not known gets a place.

pub mod config;
pub mod front;
pub mod metrics;
pub mod router;

mod cell;
mod choose;
mod client;
mod handler;
mod moves;
mod outbox;
mod probe;
mod provision;
mod relay;
mod splice;
mod upkeep;

pub use config::{CellConfig, Config};
pub use front::{Error, Front};
pub use metrics::Metrics;
