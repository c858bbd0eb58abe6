//! The types of a device's frames, and the error for an invalid frame.

/// The value of `t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Connect,
    Ack,
    Presence,
    Sub,
    Unsub,
    Ping,
    Token,
}

impl Kind {
    const ALL: [Kind; 7] =
        [Kind::Connect, Kind::Ack, Kind::Presence, Kind::Sub, Kind::Unsub, Kind::Ping, Kind::Token];

    pub(super) fn from_name(name: &str) -> Option<Self> {
        Kind::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Kind::Connect => "connect",
            Kind::Ack => "ack",
            Kind::Presence => "presence",
            Kind::Sub => "sub",
            Kind::Unsub => "unsub",
            Kind::Ping => "ping",
            Kind::Token => "token",
        }
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
