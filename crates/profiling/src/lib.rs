//! Where the time and the memory of the program go: profiles in the format of pprof, taken when somebody asks, or
//! pushed to a Pyroscope server window by window.
//!
//! ```text
//!   Profiler::cpu ─────┐              thread "noroshi-profile"
//!   Pusher ── window ──┴─► sampler ─► SIGPROF on whatever thread runs ─► stacks ─► names ─► pprof, gzip
//!   Profiler::heap ──────► jemalloc's samples ─────────────────────────────────────►
//!   Pusher ── parcel (one, the newest) ── POST /ingest by egress
//! ```
//!
//! Reading order: [`profiler`], `cpu`, `sampler`, `map`, `symbol`, `heap`, `pprof`, then [`push`] and `folded` (what a
//! flame graph is drawn from).
//!
//! Invariants: nothing samples the CPU, allocates or writes before somebody asks; at most one CPU profile is taken at a
//! time; who asks goes before what is pushed.

#[cfg(feature = "cpu")]
mod cpu;
#[cfg(feature = "cpu")]
pub mod folded;
#[cfg(feature = "heap")]
pub mod heap;
#[cfg(feature = "cpu")]
mod map;
#[cfg(feature = "cpu")]
mod pprof;
mod profile;
pub mod profiler;
pub mod push;
#[cfg(feature = "cpu")]
mod sampler;
#[cfg(feature = "cpu")]
mod symbol;

pub use profiler::{Ask, Detail, Error, Profiler};
pub use push::{Config, Metrics, Pusher};

/// Whether this build takes CPU profiles.
pub const CPU: bool = cfg!(feature = "cpu");

/// Whether this build takes heap profiles.
pub const HEAP: bool = cfg!(feature = "heap");
