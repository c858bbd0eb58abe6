//! The types of a device's frames, and the error for an invalid frame.

noroshi_types::names! {
    /// The value of `t`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Kind {
        Connect => "connect",
        Ack => "ack",
        Presence => "presence",
        Sub => "sub",
        Unsub => "unsub",
        Ping => "ping",
        Token => "token",
    }
}

/// Why a frame is invalid, for the client's developer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FrameError(String);

impl FrameError {
    pub(super) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The stable code in the error frame.
    pub fn code(&self) -> &'static str {
        "bad_frame"
    }
}
