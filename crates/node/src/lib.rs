//! One node: its configuration, its wiring, its tasks and its end.
//!
//! ```text
//!   file < environment < flags ──► config::Config
//!                                      │
//!   build::start ──► store ──► auth ──► delivery ──► gateway + api ──► admin
//!                                      │
//!   signals ──► drain ──► tasks finish ──► store closes ──► exit code
//! ```
//!
//! Reading order: [`config`], then [`build`], which is the architecture read top to bottom, then
//! [`tasks`], [`mod@run`] and `supervise`; [`data`], [`development`], [`push_key`], [`descriptors`] and [`process`] are what those
//! stand on; [`host`], [`capacity`] and [`mod@doctor`] tell what the machine allows; [`metrics`] lists what others count.
//! This is the only crate that names implementations.

pub mod build;
pub mod capacity;
pub mod cluster;
pub mod config;
pub mod data;
pub mod descriptors;
pub mod development;
pub mod doctor;
pub mod host;
pub mod metrics;
pub mod migrate;
pub mod process;
pub mod push_key;
pub mod run;
pub mod tasks;

mod admin;
mod admin_thread;
mod api;
mod delivery;
mod drain;
mod egress;
mod events;
mod front;
mod gateway;
mod handover;
mod otel;
mod profiling;
mod push;
mod reload;
mod request_head;
mod small_file;
mod sqs;
mod store;
mod supervise;
mod xmpp;

pub use build::Node;
pub use config::Config;
pub use run::run;
