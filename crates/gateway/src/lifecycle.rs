//! How connections are admitted, drained and closed.

pub(crate) mod clients;
pub mod drain;
pub(crate) mod phase;
pub(crate) mod refusal;
pub(crate) mod sparing;
pub(crate) mod strangers;
