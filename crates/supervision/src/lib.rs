//! Supervises the long-lived threads of a process: which exist, whether each makes progress, and which failed first.
//!
//! ```text
//!   shard, writer, … ── Heartbeat: working, waiting, dropped ──► Threads ◄── samples at every tick ── watchdog (node)
//!                                                              │
//!                                                              └──► the first Failure: readiness, exit code
//! ```
//!
//! A thread gets its [`Heartbeat`] from [`Threads`] and reports when it starts to work and when it waits: one relaxed store
//! each, no clock. A panic drops the pulse, which reports the failure. The watchdog detects stalls; only it has a clock.
//!
//! This crate logs nothing and ends no process; `node::supervise` does. Reading order: [`kind`], [`failure`],
//! `registry`, [`heartbeat`], [`threads`], then `fault`, which exists in debug builds only.

pub mod failure;
#[cfg(debug_assertions)]
pub mod fault;
pub mod heartbeat;
pub mod kind;
pub mod panics;
mod registry;
pub mod threads;

pub use failure::{Failure, What};
pub use heartbeat::Heartbeat;
pub use kind::{Kind, OnFailure};
pub use threads::{Sample, Threads};
