//! What a conversation asks of whoever owns the connection, and what it is answered. The words are the
//! session's; whatever XMPP needs to put an answer into an element travels with the question as a
//! [`Request`] and comes back with it, so a conversation remembers nothing of what it asked.

use std::sync::Arc;

use bytes::Bytes;
use noroshi_types::{CloseReason, DeviceId, JsonText, Message, NotificationId, Presence, Topic};

use super::accounts::{
    ArchiveRules, Card, NodeRequest, PersonalItem, PushChange, Recipient, Relayed, RosterChange,
};
use super::archive::{ArchivePage, ArchiveQuery};
use super::error::StanzaError;
use super::management::Suspended;
use super::scram::{Hash, Keys};
use crate::native::Token;

/// What came of an input: first `bytes` are written, then the actions are done in order.
#[derive(Debug, Default)]
pub struct Output {
    /// Ready for the transport's writer, framed as the conversation was told.
    pub bytes: Vec<u8>,
    pub actions: Vec<Action>,
    /// Requests for confirmations among the bytes: as many elements more the client may send.
    pub requests: u32,
}

#[derive(Debug)]
pub enum Action {
    /// Everything from here on is TLS: what came behind the request in the clear is dropped (RFC 6120
    /// §5.4.3.3). Answered by `Conversation::encrypted`.
    StartTls,
    /// Is this token good? Answered by `authenticated` or `refused`. The device it names must be the one the
    /// user name stands for, in any case.
    Authenticate {
        user: Box<str>,
        /// The app that the user name says ([`crate::app_name`]).
        app: Option<Box<str>>,
        token: Token,
    },
    /// The keys or the token of the device with this name, lower case. Answered by `keys`.
    FindKeys {
        user: Box<str>,
        hash: Hash,
    },
    /// What the client brought does not prove who it is, for the reason given. It knows; whoever runs the service is
    /// to know too.
    Refused(&'static str),
    /// A session for the device begins; answered by `logged_in` or `refused`. Until `Presence` says that it
    /// is there nothing but topics is delivered to it. An account has one for each resource.
    LogIn {
        device: DeviceId,
        resource: Box<str>,
    },
    /// The session kept under this id, if it is this device's, with its log-in; answered by `resumed`.
    Resume {
        device: DeviceId,
        id: Box<str>,
    },
    /// `Offline`: connected, but the device's own notifications wait in its inbox (RFC 6121 §4.5, and
    /// negative priorities, §8.5.2). What waits is delivered when it leaves `Offline` (XEP-0160 §3).
    Presence(Presence),
    /// The client has them. None of them: it only made room for more.
    Acknowledge(Vec<NotificationId>),
    /// The client did not confirm them before it was resumed, and they are not at hand: to be read from its
    /// inbox again.
    Redeliver(Vec<NotificationId>),
    /// A durable subscription is the account's, another ends with the connection.
    Subscribe {
        topic: Topic,
        durable: bool,
        request: Request,
    },
    Unsubscribe {
        topic: Topic,
        durable: bool,
        request: Request,
    },
    /// Of the device, or what it has to this topic.
    Subscriptions {
        topic: Option<Topic>,
        request: Request,
    },
    /// The latest, at most `max`, the oldest of them first; or the one with this id.
    Items {
        topic: Topic,
        id: Option<NotificationId>,
        max: usize,
        request: Request,
    },
    Publish {
        topic: Topic,
        data: JsonText,
        request: Request,
    },
    /// May this device publish to the topic, and is there nothing of it yet?
    Create {
        topic: Topic,
        request: Request,
    },
    /// What the topic rules make this device to a topic.
    Affiliation {
        topic: Topic,
        request: Request,
    },
    /// Of an account: a node at the PubSub service. Where no account made it `topic` is to be done, or that is the answer.
    Node {
        command: NodeRequest,
        topic: Result<Box<Action>, (StanzaError, &'static str)>,
        request: Request,
    },
    /// Of an account: what a topic is.
    DescribeTopic {
        request: Request,
    },
    /// Conformance only.
    Register {
        user: Box<str>,
        password: Token,
        request: Request,
    },
    /// Conformance only: the connection's own account goes; its streams end once the answer is written.
    Unregister {
        request: Request,
    },
    /// Of an account: a stanza for somebody, itself perhaps. Where it cannot be delivered it is answered as
    /// refused.
    Relay {
        to: Recipient,
        stanza: Relayed,
        request: Option<Request>,
    },
    /// Of an account: presence for all who may know it.
    Announce(Relayed),
    /// Of an account: its roster, unless the client has this version of it.
    Roster {
        known: Option<Box<str>>,
        request: Request,
    },
    ChangeRoster {
        change: RosterChange,
        request: Request,
    },
    /// Of an account: what it publishes of itself (XEP-0163).
    PublishPersonal {
        item: PersonalItem,
        request: Request,
    },
    /// Of an account: what it or another, by bare address, published.
    PersonalItems {
        owner: Box<str>,
        node: Box<str>,
        request: Request,
    },
    /// What the archive of the device, or of the account, holds.
    Archive {
        query: ArchiveQuery,
        request: Request,
    },
    /// Of an account: what is archived (XEP-0313 §5), and what is from now on.
    ArchiveRules {
        rules: Option<ArchiveRules>,
        request: Request,
    },
    /// Of an account: whether this resource gets copies of what others send and receive (XEP-0280).
    Copy {
        wanted: bool,
        request: Request,
    },
    /// Of an account: its card, or that of another, by bare address (XEP-0054).
    Card {
        owner: Option<Box<str>>,
        request: Request,
    },
    /// Of an account: where it is told of messages that wait (XEP-0357).
    ChangePush {
        change: PushChange,
        request: Request,
    },
    /// Of an account: the card it has from now on.
    PutCard {
        card: Card,
        request: Request,
    },
    /// Of an account: whether it may know that there is another, by bare address.
    Describe {
        owner: Box<str>,
        request: Request,
    },
    /// Of an account: the nodes that its client wants to hear of.
    Want(Vec<Box<str>>),
    /// The last word is in `bytes`.
    Close(CloseReason),
}

/// A question that waits for its answer. Dropping it leaves the client without one.
#[derive(Debug)]
pub struct Request {
    pub(super) stanza: &'static str,
    pub(super) id: Box<str>,
    /// Whom the client asked; empty is its own account.
    pub(super) asked: Box<str>,
    pub(super) about: About,
}

impl Request {
    /// What its strings hold.
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

    /// Subscriptions that are told before those of topics, as elements.
    pub fn add_subscriptions(&mut self, elements: Bytes) {
        if let About::Subscriptions { more, .. } = &mut self.about {
            *more = elements;
        }
    }
}

#[derive(Debug)]
pub(super) enum About {
    Subscription {
        node: Box<str>,
        jid: Box<str>,
    },
    Subscriptions {
        node: Option<Box<str>>,
        /// Elements of others.
        more: Bytes,
    },
    Items {
        node: Box<str>,
    },
    Publication {
        node: Box<str>,
    },
    Creation {
        node: Box<str>,
    },
    Affiliation {
        node: Box<str>,
    },
    /// A topic, in the words of this namespace.
    Topic {
        node: Box<str>,
        namespace: &'static str,
    },
    /// Of an account.
    Unsubscription,
    /// A message that says something: only an error is an answer.
    Decision,
    /// An account, in the words of this namespace.
    Account {
        namespace: &'static str,
    },
    /// Messages of an archive, in the client's name for the question.
    Archive {
        query_id: Box<str>,
    },
    Nothing,
}

/// The answer to a [`Request`].
#[derive(Debug)]
pub enum Answer {
    Done,
    /// Topic and whether it is durable.
    Subscriptions(Vec<(Topic, bool)>),
    Items(Vec<Arc<Message>>),
    Published(NotificationId),
    /// XEP-0060 §4.1.
    Affiliation(&'static str),
    Archive(ArchivePage),
    /// The only child of the result.
    Content(Bytes),
    Refused(Refusal),
    /// The condition, and what XEP-0060 adds to it.
    Error(StanzaError, &'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Not allowed to this device.
    Forbidden,
    NotFound,
    NotSubscribed,
    TooManySubscriptions,
    TooBig,
    /// There is one already.
    Conflict,
    /// Nobody takes it.
    Unavailable,
    Overloaded,
    Internal,
}

impl Refusal {
    /// The condition and what XEP-0060 adds to it.
    pub(super) fn condition(self) -> (StanzaError, &'static str) {
        match self {
            Refusal::Forbidden => (StanzaError::Forbidden, ""),
            Refusal::NotFound => (StanzaError::ItemNotFound, ""),
            Refusal::NotSubscribed => (StanzaError::UnexpectedRequest, "not-subscribed"),
            Refusal::TooManySubscriptions => (StanzaError::PolicyViolation, "too-many-subscriptions"),
            Refusal::TooBig => (StanzaError::NotAcceptable, "payload-too-big"),
            Refusal::Conflict => (StanzaError::Conflict, ""),
            Refusal::Unavailable => (StanzaError::ServiceUnavailable, ""),
            Refusal::Overloaded => (StanzaError::ResourceConstraint, ""),
            Refusal::Internal => (StanzaError::InternalServerError, ""),
        }
    }
}

/// What is kept to check a SCRAM proof against.
#[derive(Debug, Clone)]
pub enum Credentials {
    Keys { device: DeviceId, keys: Keys },
    Password { device: DeviceId, password: Token },
}

/// What became of a session that was to be resumed.
#[derive(Debug)]
pub enum Resumed {
    Yes(Box<Suspended>),
    /// Gone, or another device's; how many of the client's stanzas were handled, if that is known still.
    Gone {
        handled: Option<u32>,
    },
}

/// What became of a message that was to be delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// To be written now.
    Write,
    /// Too much waits to be confirmed, or there is no session: not to be written.
    Full,
}
