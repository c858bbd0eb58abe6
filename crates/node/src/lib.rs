//! One node: its configuration, its wiring, its tasks and its end.
//!
//! ```text
//!   file < environment < flags ──► config::Config
//!                                      │
//!   build::start ──► store ──► auth ──► delivery ──► gateway ──► api ──► admin listener
//!                                      │
//!   signals ──► drain ──► tasks finish ──► store closes ──► exit code
//! ```
//!
//! Reading order: [`config`], then [`build`], which is the architecture read top to bottom, then
//! [`tasks`] and [`run`]. This is the only crate that names implementations.

pub mod config;

pub use config::Config;
