//! Live tails: what happens to an app's notifications and devices now, for a person who looks at it.
//!
//! ```text
//!   event rings ─► collector ─► Tap::read ─► state: which tails of its app ─► queue of each tail ─┐  (bounded)
//!                                                    │ topics, names: one read of the store per flush
//!                                                    ▼                                              ▼
//!                                                  store                    flush every 250 ms: JSON ─► viewers
//!   other nodes ◄── their filters, every 5 s ───────────────────────────────────────┘    ▲
//!        └───────── reports, at most one per flush and tail ─────────────────────────────┘
//! ```
//!
//! Reading order: [`kinds`], [`filter`], `known`, `queue`, `entry`, `state`, `report`, `inbox`, `viewing`,
//! [`tails`], [`metrics`].
//!
//! Invariants:
//! - While no tail is open, nothing here runs, and emitting an event costs nothing more than without this crate.
//! - An event names its app ([`noroshi_events::Event::app`]). A tail ignores events of other apps before anything else.
//! - If a tail filters by topic or campaign, an event waits until those of its notification are known. If they stay
//!   unknown, the event is left out, and the tail states that.
//! - Every queue and map is bounded. What a tail leaves out is counted by kind and stated.

mod entry;
pub mod filter;
mod inbox;
pub mod kinds;
mod known;
pub mod metrics;
mod queue;
mod report;
mod state;
pub mod tails;
mod viewing;

pub use filter::Filter;
pub use kinds::Kinds;
pub use metrics::Metrics;
pub use tails::{Refused, Tails, Viewer};
