//! Amazon SQS, twice: the queue of push batches between the dispatcher and the senders, and a source of
//! notifications for backends that would rather put a message than make a request.
//!
//! ```text
//!   dispatcher ─ put ─► [lane's queue] ─ pull ─► senders            Queue: cluster::BatchQueue
//!   backend ─────────► [intake queue] ─► intake ─► publish ─┬─► delete, once it is accepted
//!                                          │                └─► come back later (visibility)
//!                                          └─ what can never be accepted ─► [dead-letter queue]
//! ```
//!
//! Reading order: [`config`], [`call`] (what fits into one call), `client`, `queue`, `intake`, [`metrics`].
//!
//! The SDK is Amazon's own, behind the feature `aws`; without it there is only the configuration, so that a node that
//! was built without it can say so. Credentials come from the SDK's chain: environment, profile, web identity,
//! container, instance.

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

/// Whether this build can reach SQS.
pub const AVAILABLE: bool = cfg!(feature = "aws");
