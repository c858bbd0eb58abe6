//! Requests of a conversation to the owner of the connection, in terms of the session core. The conversation
//! itself uses neither store nor socket.

use noroshi_types::{CloseReason, NotificationId, Presence, Since, Topic};

use super::encode;
use super::recovery::Offset;
use crate::engine_io::Outgoing;
use crate::native::Token;

/// To be executed in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// The caller answers with `logged_in`, `refuse` or a close.
    LogIn(Box<LogIn>),
    /// The device ended its session but may keep the connection. Another log-in may follow.
    LogOut,
    /// Subscribes until the connection ends. The caller answers through `reply`.
    Subscribe { topics: Vec<Topic>, since: Vec<(Topic, Since)>, reply: Reply },
    /// Ends subscriptions.
    Unsubscribe { topics: Vec<Topic> },
    /// The device has received these messages.
    Acknowledge { ids: Vec<NotificationId> },
    /// `Active` or `Idle`.
    Presence(Presence),
    /// Renews the session's token. The caller answers through `reply`.
    RenewToken { token: Token, reply: Reply },
    /// Send a packet.
    Send(Outgoing),
    /// Start to close: `Conversation::last_words` returns the remaining packets.
    Close(CloseReason),
}

/// A log-in request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogIn {
    /// `None`: use the token of the HTTP request, if it has one.
    pub token: Option<Token>,
    /// The app of an app JWT.
    pub app: Option<Box<str>>,
    /// Subscriptions of the connection from its start, without duplicates.
    pub topics: Vec<Topic>,
    /// The id of the lost connection. Passing it to `logged_in` again reports the connection as recovered.
    pub pid: Option<Box<str>>,
    /// The last message with an offset that the client received.
    pub offset: Option<Offset>,
}

impl LogIn {
    /// Whether the client can have missed no stored message: durable subscriptions and the inbox continue
    /// after the last acknowledgement, and `topics` after `offset`.
    pub fn is_recoverable(&self) -> bool {
        self.pid.is_some() && (self.offset.is_some() || self.topics.is_empty())
    }
}

/// The destination of an event's reply: the client's callback, or an `error` event if the client set none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply(pub(super) Option<u64>);

impl Reply {
    /// The packet to send. `Err`: a stable code and a text for people.
    pub fn answer(self, result: Result<(), (&str, &str)>) -> Option<Outgoing> {
        match (self.0, result) {
            (Some(id), result) => Some(encode::ack(id, result)),
            (None, Err((code, message))) => Some(encode::error(code, message)),
            (None, Ok(())) => None,
        }
    }
}
