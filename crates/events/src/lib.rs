//! The event log: records what happened without ever making the emitting thread wait.
//!
//! ```text
//!   any thread ── Events::emit ──► ring of the thread ─┐             (wait-free, bounded; full: counted)
//!   any thread ── Events::emit ──► ring of the thread ─┴─► collector ─ lines ─► batch (events, bytes, time)
//!                                                                                 │ shared, not copied
//!                                     ┌───────────────────────────┬──────────────┴┐
//!                                   feed                        feed             feed     one per sink; memory, then disk
//!                                     │ worker                    │ worker        │ worker
//!                              rotated files                   Firehose        webhook, standard output
//! ```
//!
//! While it is open, the collector also passes every record to the [`Tap`] (the live tail of the console).
//!
//! Reading order: [`event`] (the closed set), [`mod@line`] (how one is written: docs/events.md), [`emit`], `ring`, `collector`,
//! `tap`, [`batch`], `feed`, [`spool`], `worker`, `health`, [`sink`], [`service`], [`config`], [`metrics`].
//!
//! Invariant: emitting never touches a lock, a file or a socket that another thread may hold.

pub mod batch;
mod collector;
pub mod config;
pub mod emit;
pub mod event;
mod feed;
mod health;
pub mod line;
pub mod metrics;
mod ring;
pub mod service;
pub mod sink;
pub mod spool;
mod tap;
mod worker;

pub use config::Config;
pub use emit::Events;
pub use event::{Event, Kind, Record, Subject};
pub use line::Names;
pub use metrics::Metrics;
pub use service::{Drained, Error, Service};
pub use tap::Tap;
