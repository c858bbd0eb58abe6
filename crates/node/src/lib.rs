//! A node: configuration, assembly, tasks and shutdown.
//!
//! ```text
//!   file < environment < flags ──► config::Config
//!                                      │
//!   build::start ──► store ──► auth ──► delivery ──► gateway + api ──► admin
//!                                      │
//!   signals ──► drain ──► tasks end ──► store closes ──► exit code
//! ```
//!
//! Modules are layers, from the bottom up:
//! 1. [`data`], [`process`], [`push_key`]: files and process. [`host`], [`descriptors`], [`capacity`], [`mod@doctor`]: the machine.
//! 2. [`config`]: validated configuration. [`tasks`] and `supervise`: running tasks and failures.
//! 3. Components, one module each, from configuration to a handle: `store`, `cluster`, `delivery`, `push`, `gateway`, `api`,
//!    `handover`, `front`, `admin`, `events`, `inspection`, `otel`, `profiling`, `sqs`, `egress`, [`development`], `reload`, `drain`.
//! 4. [`build`]: assembles the components. [`mod@run`]: the life of the process.
//!
//! [`metrics`] lists metrics for the documentation. This is the only crate that names implementations.

pub mod build;
pub mod capacity;
pub mod cluster;
pub mod config;
mod console;
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
mod inspection;
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
