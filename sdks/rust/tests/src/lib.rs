//! A real node, a network with faults, and devices that record what they show.

pub mod node;
pub mod proxy;
pub mod recorder;

/// The error of a test.
pub type Problem = Box<dyn std::error::Error + Send + Sync>;
