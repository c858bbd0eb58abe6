//! Live tails: what happens to an app's notifications and devices now, for a person who looks at it.
//!
//! ```text
//!   event rings ─► collector ─► Tap::read ─► state: whose event, which tails ─► queue of each tail ─┐  (bounded)
//!                                                    │ unknown: one read of the store per flush     │
//!                                                    ▼                                              ▼
//!                                                  store                    flush every 250 ms: JSON ─► viewers
//!   other nodes ◄── their filters, every 5 s ───────────────────────────────────────┘    ▲
//!        └───────── reports, at most one per flush and tail ─────────────────────────────┘
//! ```
//!
//! Reading order: [`kinds`], [`filter`], `owners`, `queue`, `entry`, `state`, `report`, `inbox`, `viewing`,
//! [`tails`], [`metrics`].
//!
//! Invariants:
//! - While no tail is open, nothing here runs, and emitting an event costs nothing more than without this crate.
//! - A tail shows an event only if the event, what was learned from other events, or the store says that it belongs to the
//!   tail's app. What cannot be assigned is left out, and the tail states that.
//! - Every queue and map is bounded. What a tail leaves out is counted by kind and stated.

mod entry;
pub mod filter;
mod inbox;
pub mod kinds;
pub mod metrics;
mod owners;
mod queue;
mod report;
mod state;
pub mod tails;
mod viewing;

pub use filter::Filter;
pub use kinds::Kinds;
pub use metrics::Metrics;
pub use tails::{Refused, Tails, Viewer};
