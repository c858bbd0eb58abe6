//! Which long-lived threads a process has, whether each makes progress, and which one failed first.
//!
//! ```text
//!   shard, writer, … ── Pulse: working, waiting, dropped ──► Threads ◄── samples once a tick ── watchdog (node)
//!                                                              │
//!                                                              └──► the first Failure: readiness, exit code
//! ```
//!
//! A thread gets its [`Pulse`] from [`Threads`] and reports when it starts to work and when it waits for more: one
//! relaxed store each, no clock. A pulse that is dropped by a panic reports the failure at once. Stalls are the
//! watchdog's business: only it has a clock.
//!
//! This crate logs nothing and ends nothing; `node::supervise` decides. Reading order: [`kind`], [`pulse`],
//! [`threads`], then [`fault`], which exists in debug builds only.

#[cfg(debug_assertions)]
pub mod fault;
pub mod kind;
pub mod panics;
pub mod pulse;
pub mod threads;

pub use kind::{Kind, OnFailure};
pub use pulse::Pulse;
pub use threads::{Failure, Sample, Threads, What};
