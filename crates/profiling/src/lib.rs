//! Profiles of the program's CPU time and memory in the format of pprof: on demand, or continuously to a Pyroscope
//! server.
//!
//! ```text
//!   Profiler::cpu ─────┐              thread "noroshi-profile"
//!   Pusher ── window ──┴─► sampler ─► SIGPROF on a running thread ─► stacks ─► names ─► pprof, gzip
//!   Profiler::heap ──────► jemalloc's samples ─────────────────────────────────────►
//!   Pusher ── upload (the newest only) ── POST /ingest by egress
//! ```
//!
//! Reading order: `profile`, `map`, `symbol`, `pprof`, `sampler`, `cpu`, `heap`, `folded` and [`tree`] (the input of flame
//! graphs), [`profiler`], then [`push`].
//!
//! Invariants: without a request nothing samples the CPU, allocates or writes; at most one CPU profile is taken at a
//! time; on-demand profiles take precedence over continuous ones.

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
pub mod tree;

pub use profiler::{Ask, Detail, Error, Profiler};
pub use push::{Config, Metrics, Pusher};

/// Whether this build can take CPU profiles.
pub const CPU: bool = cfg!(feature = "cpu");

/// Whether this build can take heap profiles.
pub const HEAP: bool = cfg!(feature = "heap");
