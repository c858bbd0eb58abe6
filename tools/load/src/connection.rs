//! The state of a device's connection, which the device and its protocol share: the stage of the log-in, how
//! it reads, and why it ended.

use std::io;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The TLS handshake is in progress, and nothing will be sent afterwards.
    Handshaking,
    /// Waiting for the first response: to an upgrade, a stream request or MQTT's CONNECT.
    Opening,
    /// Waiting for the result of the log-in.
    LoggingIn,
    /// Waiting for the response to the subscription, or to the request after it.
    Subscribing,
    Ready,
}

/// Why a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) reason: String,
    /// Whether a later attempt may succeed.
    pub(crate) retry: bool,
    /// The server's reconnect delay.
    pub(crate) after_ms: Option<u64>,
}

/// The reason of a connection that was opened only for its handshake.
pub(crate) const HANDSHAKE_DONE: &str = "handshake done";

/// How a device reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Reads everything at once.
    Eager,
    /// Reads only through [`Device::read_bytes`](crate::device::Device::read_bytes); its messages are not counted.
    Slow,
}

impl Ended {
    pub(crate) fn permanent(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), retry: false, after_ms: None }
    }

    pub(crate) fn temporary(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), retry: true, after_ms: None }
    }

    pub(crate) fn io(error: &io::Error) -> Self {
        Self::temporary(error.kind().to_string())
    }
}
