//! Sockets and what is on them: listeners, transports, TLS, io_uring, compression, unsent bytes, timers.

pub(crate) mod bridge;
pub mod handover;
pub(crate) mod listener;
pub(crate) mod socket;
mod tail;
pub(crate) mod timer;
pub mod tls;
pub(crate) mod transport;
#[cfg(feature = "io-uring")]
pub(crate) mod uring;
