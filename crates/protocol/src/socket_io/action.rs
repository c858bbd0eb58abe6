//! What a conversation asks of who owns the connection, in the words of the session core. The conversation
//! itself knows neither the store nor a socket.

use noroshi_types::{CloseReason, NotificationId, Position, Presence, Topic};

use super::encode;
use super::recovery::Offset;
use crate::engine_io::Outgoing;
use crate::native::Token;

/// To be done in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Answered by `logged_in`, `refuse` or a close.
    LogIn(Box<LogIn>),
    /// The device left, its connection may stay: the session ends. Another log-in may follow.
    LogOut,
    /// For as long as the connection lasts. Answered through `reply`.
    Subscribe {
        topics: Vec<Topic>,
        since: Vec<(Topic, Position)>,
        reply: Reply,
    },
    Unsubscribe {
        topics: Vec<Topic>,
    },
    /// The device has them.
    Acknowledge {
        ids: Vec<NotificationId>,
    },
    /// `Active` or `Idle`.
    Presence(Presence),
    /// Renews the token of the session. Answered through `reply`.
    RenewToken {
        token: Token,
        reply: Reply,
    },
    Send(Outgoing),
    /// Begin to close: `Conversation::last_words` has what is still to be sent.
    Close(CloseReason),
}

/// Who wants in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogIn {
    /// `None`: the one that came with the HTTP request, if one did.
    pub token: Option<Token>,
    /// The app of an app JWT.
    pub app: Option<Box<str>>,
    /// Subscriptions of the connection from its first moment, each once.
    pub topics: Vec<Topic>,
    /// Of the connection that was lost. Given to `logged_in` again it says "recovered".
    pub pid: Option<Box<str>>,
    /// The last message with an offset that the client had.
    pub offset: Option<Offset>,
}

impl LogIn {
    /// Whether nothing that is kept can have been missed: what the device subscribes to durably and its inbox
    /// begin where it confirmed, and `topics` after `offset`.
    pub fn is_recoverable(&self) -> bool {
        self.pid.is_some() && (self.offset.is_some() || self.topics.is_empty())
    }
}

/// Where the answer to an event goes: to the client's callback, or nowhere unless it is an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply(pub(super) Option<u64>);

impl Reply {
    /// What to send. `Err`: a stable code and a text for people.
    pub fn answer(self, result: Result<(), (&str, &str)>) -> Option<Outgoing> {
        match (self.0, result) {
            (Some(id), result) => Some(encode::ack(id, result)),
            (None, Err((code, message))) => Some(encode::error(code, message)),
            (None, Ok(())) => None,
        }
    }
}
