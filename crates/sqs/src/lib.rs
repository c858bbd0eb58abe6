//! Amazon SQS for two purposes: the queue of push batches between the dispatcher and the senders, and a source of
//! notifications for backends that prefer a queue to HTTP requests.
//!
//! ```text
//!   dispatcher ─ put ─► [lane's queue] ─ pull ─► senders            Queue: cluster::BatchQueue
//!   backend ─────────► [intake queue] ─► intake ─► publish ─┬─► delete, once accepted
//!                                          │                └─► retry later (visibility)
//!                                          └─ never acceptable ─► [dead-letter queue]
//! ```
//!
//! Reading order: [`config`], [`call`] (the limits of one call), `client`, `queue`, `intake`, [`metrics`].
//!
//! The feature `aws` enables Amazon's SDK; without it there is only the configuration, so that a node can report the
//! missing feature. Credentials come from the SDK's chain: environment, profile, web identity, container, instance.

pub mod call;
#[cfg(feature = "aws")]
mod client;
pub mod config;
#[cfg(feature = "aws")]
pub mod intake;
pub mod metrics;
#[cfg(feature = "aws")]
mod queue;

pub use config::{Connection, IntakeConfig, QueueConfig};
#[cfg(feature = "aws")]
pub use queue::Queue;

/// Whether this build supports SQS.
pub const AVAILABLE: bool = cfg!(feature = "aws");
