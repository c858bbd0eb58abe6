//! What a device may say, read strictly: an unknown type or field, a wrong type or a value over its limit
//! is an error that names the field. The text of an error holds field names and rules, never a value,
//! since any value may be a token put in the wrong place.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fmt;

use noroshi_types::{Epoch, NotificationId, Position, Presence, Topic, limits};
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

/// A device token or the app's JWT: `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Box<str>);

impl Token {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// One frame of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientFrame {
    /// The first frame, where the token did not come with the request.
    Connect { token: Token },
    /// At most `limits::ACK_IDS_MAX`.
    Ack { ids: Vec<NotificationId> },
    /// `Active` or `Idle`.
    Presence(Presence),
    /// At most `limits::TOPICS_PER_DEVICE_MAX` topics, each once; `since` names only topics of `topics`.
    Sub { topics: Vec<Topic>, since: Vec<(Topic, Position)> },
    Unsub { topics: Vec<Topic> },
    Ping,
    /// Renews the token of an open connection.
    Token { token: Token },
}

/// What is wrong with a frame, in words for the client's developer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FrameError(String);

impl FrameError {
    /// The stable code of the error frame that answers it.
    pub fn code(&self) -> &'static str {
        "bad_frame"
    }
}

pub fn parse_client_frame(text: &str) -> Result<ClientFrame, FrameError> {
    let _ = text;
    Err(FrameError(String::new()))
}
