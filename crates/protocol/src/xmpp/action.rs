//! Requests of a conversation to the owner of the connection, and the answers. They use the terms of the
//! session core; what XMPP needs to build the response travels with the question as a [`Request`] and comes
//! back with the answer, so a conversation stores no pending requests.

use bytes::Bytes;
use noroshi_types::{CloseReason, DeviceId, JsonText, NotificationId, Presence, Topic};

use super::accounts::{Command, NodeRequest};
use super::archive::ArchiveQuery;
use super::error::Refused;
use super::management::Suspended;
use super::scram::{Hash, Keys};
use crate::native::Token;

/// The result of an input: write `bytes` first, then execute the actions in order.
#[derive(Debug, Default)]
pub struct Output {
    /// Ready for the transport, framed for this connection.
    pub bytes: Vec<u8>,
    pub actions: Vec<Action>,
    /// The number of acknowledgement requests in `bytes`: the client may send that many more elements.
    pub requests: u32,
}

#[derive(Debug)]
pub enum Action {
    /// Start TLS: plaintext received after the request must be dropped (RFC 6120 §5.4.3.3). The caller
    /// answers with `Conversation::encrypted`.
    StartTls,
    /// Verify a token. The caller answers with `authenticated` or `refused`. The token's device must equal
    /// the user name, ignoring case.
    Authenticate {
        user: Box<str>,
        /// The app in the user name ([`crate::app_name`]).
        app: Option<Box<str>>,
        token: Token,
    },
    /// Find the keys or the token of the device with this lower-case name. The caller answers with `keys`.
    FindKeys { user: Box<str>, hash: Hash },
    /// The client failed to prove its identity for this reason. The client has been informed; the caller
    /// records the reason for the operator.
    Refused(&'static str),
    /// Start a session for the device. The caller answers with `logged_in` or `refused`. Until `Presence`
    /// makes it available, only messages of topics are delivered. An account has one session per resource.
    LogIn { device: DeviceId, resource: Box<str> },
    /// Resume the session with this id, if it belongs to this device, and log in. The caller answers with
    /// `resumed`.
    Resume { device: DeviceId, id: Box<str> },
    /// `Offline`: connected, but the device's own notifications stay in its inbox (RFC 6121 §4.5, and
    /// negative priorities, §8.5.2). They are delivered when it leaves `Offline` (XEP-0160 §3).
    Presence(Presence),
    /// The client received these. Empty: only more capacity became available.
    Acknowledge(Vec<NotificationId>),
    /// The client did not acknowledge these before the session was resumed, and they are not cached: read them
    /// from the inbox again.
    Redeliver(Vec<NotificationId>),
    /// A durable subscription belongs to the account, another one ends with the connection.
    Subscribe { topic: Topic, durable: bool, request: Request },
    /// End a subscription.
    Unsubscribe { topic: Topic, durable: bool, request: Request },
    /// List the device's subscriptions, or those to this topic.
    Subscriptions { topic: Option<Topic>, request: Request },
    /// The latest items, at most `max`, oldest first; or the one with this id.
    Items { topic: Topic, id: Option<NotificationId>, max: usize, request: Request },
    /// Publish an item to a topic.
    Publish { topic: Topic, data: JsonText, request: Request },
    /// Check that the device may publish to the topic, and that the topic is still empty.
    Create { topic: Topic, request: Request },
    /// The device's affiliation to a topic according to the topic rules.
    Affiliation { topic: Topic, request: Request },
    /// Accounts only: a node at the PubSub service. If no account created it, `topic` is executed, or is the
    /// answer.
    Node { command: NodeRequest, topic: Result<Box<Action>, Refused>, request: Request },
    /// Accounts only: describe a topic.
    DescribeTopic { request: Request },
    /// For conformance suites only.
    Register { user: Box<str>, password: Token, request: Request },
    /// For conformance suites only: remove the connection's own account; its streams end after the response
    /// is written.
    Unregister { request: Request },
    /// Accounts only. Without a request, the client expects no answer.
    Account { command: Command, request: Option<Request> },
    /// A page of the archive of the device or account.
    Archive { query: ArchiveQuery, request: Request },
    /// Close the connection; the closing element is in `bytes`.
    Close(CloseReason),
}

/// A question whose answer is pending. If it is dropped, the client gets no response.
#[derive(Debug)]
pub struct Request {
    pub(super) stanza: &'static str,
    pub(super) id: Box<str>,
    /// The address that the client asked; empty for its own account.
    pub(super) asked: Box<str>,
    pub(super) about: About,
}

impl Request {
    /// Bytes of its strings.
    pub fn held_bytes(&self) -> usize {
        let about = match &self.about {
            About::Subscription { node, jid } => node.len() + jid.len(),
            About::Subscriptions { node, more } => node.as_ref().map_or(0, |node| node.len()) + more.len(),
            About::Items { node }
            | About::Publication { node }
            | About::Creation { node }
            | About::Affiliation { node }
            | About::Topic { node, .. } => node.len(),
            About::Archive { query_id } => query_id.len(),
            About::Account { .. } | About::Unsubscription | About::Decision | About::Nothing => 0,
        };
        self.id.len() + self.asked.len() + about
    }

    /// Adds subscription elements that precede those of topics.
    pub fn add_subscriptions(&mut self, elements: Bytes) {
        if let About::Subscriptions { more, .. } = &mut self.about {
            *more = elements;
        }
    }
}

#[derive(Debug)]
pub(super) enum About {
    /// A new subscription of this address.
    Subscription { node: Box<str>, jid: Box<str> },
    /// The list of subscriptions.
    Subscriptions {
        node: Option<Box<str>>,
        /// Elements of other subscriptions.
        more: Bytes,
    },
    /// Items of a topic.
    Items { node: Box<str> },
    /// A published item.
    Publication { node: Box<str> },
    /// A created topic.
    Creation { node: Box<str> },
    /// The affiliation to a topic.
    Affiliation { node: Box<str> },
    /// A topic, described in this namespace.
    Topic { node: Box<str>, namespace: &'static str },
    /// Accounts only.
    Unsubscription,
    /// A message instead of a request: only an error is answered.
    Decision,
    /// An account, described in this namespace.
    Account { namespace: &'static str },
    /// Archived messages, with the client's query id.
    Archive { query_id: Box<str> },
    /// The response needs nothing else.
    Nothing,
}

/// What a SCRAM proof is verified with.
#[derive(Debug, Clone)]
pub enum Credentials {
    Keys { device: DeviceId, keys: Keys },
    Password { device: DeviceId, password: Token },
}

/// The outcome of a resumption.
#[derive(Debug)]
pub enum Resumed {
    /// The session continues.
    Yes(Box<Suspended>),
    /// It no longer exists or belongs to another device; with the number of the client's stanzas that were
    /// handled, if known.
    Gone { handled: Option<u32> },
}

/// The outcome of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// Write the message now.
    Write,
    /// Do not write it: too many stanzas are unacknowledged, or there is no session.
    Full,
}
