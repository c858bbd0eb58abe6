//! How connections are admitted, drained and closed.

pub(crate) mod admission;
pub(crate) mod clients;
pub(crate) mod close;
pub mod drain;
pub(crate) mod parking;
pub(crate) mod pulse;
pub(crate) mod refusal;
pub(crate) mod sparing;
pub(crate) mod strangers;
