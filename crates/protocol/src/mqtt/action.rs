//! What a conversation asks of the session core, in its neutral words, and what is handed back to it.

use noroshi_types::{CloseReason, JsonText, NotificationId, Presence, Topic};

use super::flight::Sent;
use super::{Publication, Qos, ReasonCode, SubscribeOptions, Subscription, TopicFilter, Violation};

/// What one packet asks for; at most one thing. What is to be sent besides was written.
#[derive(Debug)]
pub enum Action<'a> {
    None,
    /// Answered by `logged_in` or `close`.
    LogIn(LogIn<'a>),
    /// `answer` goes to `published`, if there is one, when what becomes of it is certain.
    Publish {
        publication: Publication<'a>,
        answer: Option<Answer>,
    },
    /// Answered by `subscribed`.
    Subscribe(SubscribeRequest),
    /// Answered by `unsubscribed`.
    Unsubscribe(UnsubscribeRequest),
    /// The device has these. `room`: what was refused as [`super::Delivery::Full`] may be offered again.
    Settled {
        ids: Vec<NotificationId>,
        room: bool,
    },
    Presence(Presence),
    /// `answer` goes to `published`.
    RenewToken {
        token: &'a str,
        answer: Option<Answer>,
    },
    /// It is over: what the client brought lets nobody in, for the reason given, which it was told.
    Refused(&'static str),
    /// The conversation is over; the last word was written.
    Close {
        reason: CloseReason,
        violation: Option<Violation>,
    },
}

/// Who wants in.
#[derive(Clone, PartialEq)]
pub struct LogIn<'a> {
    /// The device it says to be: the user name, or else the client identifier. The token has to be this
    /// device's; without a name it is any.
    pub device: Option<&'a str>,
    /// Missing only where anonymous clients are let in.
    pub token: Option<&'a str>,
    /// CONNECT's user property `app`, or what the user name says ([`crate::app_name`]).
    pub app: Option<&'a str>,
    pub client_id: &'a str,
    /// What is kept of the session is to be forgotten first (§3.1.2.4).
    pub clean_start: bool,
    /// How long it outlives its connection; 0 not at all.
    pub session_expiry_s: u32,
    /// The will that it leaves, which it must be allowed to publish.
    pub will: Option<OfferedWill>,
}

/// The will of a CONNECT, to be checked before its client is let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferedWill {
    pub topic: Topic,
    pub payload_bytes: usize,
    pub properties_bytes: usize,
}

impl std::fmt::Debug for LogIn<'_> {
    /// Not the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LogIn({:?}, clean start {})", self.device, self.clean_start)
    }
}

/// A session that began.
#[derive(Debug, Default)]
pub struct LoggedIn<'a> {
    /// Becomes the client identifier of a client that brought none (§3.1.3.1).
    pub device: &'a str,
    /// The same for all connections of one device, and tells nobody which: for No Local.
    pub origin: u64,
    /// The session was there before (§3.2.2.1.1). Not with a clean start.
    pub session_present: bool,
    /// Those of the session; also those that it has without having asked for them over MQTT.
    pub subscriptions: Vec<Subscription>,
    /// What its last connection left, if this node still has it.
    pub saved: Option<Box<Saved>>,
}

/// Names a received message until its publisher can be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    pub(super) packet_id: u16,
    pub(super) qos: Qos,
}

impl Answer {
    /// Whether the message is to be published exactly once.
    pub fn is_exactly_once(&self) -> bool {
        self.qos == Qos::ExactlyOnce
    }
}

/// Why what a client published was not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublishRefused {
    /// The app or the token does not allow it.
    NotAllowed,
    /// The payload is over the limit of what clients may publish.
    TooBig,
    /// Over another limit: of what may wait, or of what the topic may hold.
    OverQuota,
    /// What was published to be the session's new token has expired.
    TokenExpired,
    /// What was published to be the session's new token is not valid, or not for this session.
    BadToken,
    /// The service cannot now; the client may try again.
    Unavailable,
}

/// Why who wants in is not let in, where a close reason does not say enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogInRefused {
    /// The client may not publish to the will's topic.
    Will,
    /// The will is longer than what a client may publish.
    WillTooBig,
    /// The token is good, and names another device.
    OtherDevice,
}

impl LogInRefused {
    /// A refused will is a matter of what the client may do: its name and password are good (§3.2.2.2).
    pub(super) fn reason_code(self) -> ReasonCode {
        match self {
            LogInRefused::Will => ReasonCode::NotAuthorized,
            // The packet is within the maximum packet size (0x95): it is a limit of the server's, as in PUBACK.
            LogInRefused::WillTooBig => ReasonCode::QuotaExceeded,
            LogInRefused::OtherDevice => ReasonCode::BadUserNameOrPassword,
        }
    }

    /// For the client and the log.
    pub fn text(self) -> &'static str {
        match self {
            LogInRefused::Will => "the will is refused: the client may not publish to its topic",
            LogInRefused::WillTooBig => {
                "the will is refused: it is over the size limit of what clients may publish"
            }
            LogInRefused::OtherDevice => {
                "the token is another device's than the user name or client identifier says"
            }
        }
    }
}

/// Why a subscription was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubscribeRefused {
    NotAllowed,
    /// More than a device may have.
    OverQuota,
    Unavailable,
}

/// A SUBSCRIBE. What the conversation refuses by itself is refused already.
#[derive(Debug)]
pub struct SubscribeRequest {
    pub(super) packet_id: u16,
    /// The subscription identifier, 0 if none.
    pub(super) id: u32,
    pub(super) items: Vec<SubscribeItem>,
}

#[derive(Debug)]
pub(super) struct SubscribeItem {
    pub(super) filter: Result<TopicFilter, ReasonCode>,
    pub(super) options: SubscribeOptions,
}

impl SubscribeRequest {
    /// What is asked for; to be kept with the session where it is one that lasts. `since`: [`Subscription::since`].
    pub fn subscriptions(&self, since: i64) -> impl Iterator<Item = Subscription> {
        self.filters().map(move |(filter, options)| {
            let filter = filter.clone();
            Subscription { filter, options, id: self.id, is_of_client: true, since, retained_due: false }
        })
    }

    fn filters(&self) -> impl Iterator<Item = (&TopicFilter, SubscribeOptions)> {
        self.items.iter().filter_map(|item| Some((item.filter.as_ref().ok()?, item.options)))
    }

    /// The shared ones of what is asked for.
    pub fn shares(&self) -> impl Iterator<Item = (&TopicFilter, Qos)> {
        self.filters()
            .filter(|(filter, _)| filter.share().is_some())
            .map(|(filter, options)| (filter, options.qos()))
    }

    /// How many are asked for and not refused.
    pub fn count(&self) -> usize {
        self.filters().count()
    }

    /// Refuses those that `refuse` names a reason for.
    pub fn refuse(&mut self, refuse: impl Fn(&TopicFilter) -> Option<SubscribeRefused>) {
        for item in &mut self.items {
            if let Some(refused) = item.filter.as_ref().ok().and_then(&refuse) {
                item.filter = Err(refused.reason_code());
            }
        }
    }
}

impl SubscribeRefused {
    pub(super) fn reason_code(self) -> ReasonCode {
        match self {
            SubscribeRefused::NotAllowed => ReasonCode::NotAuthorized,
            SubscribeRefused::OverQuota => ReasonCode::QuotaExceeded,
            SubscribeRefused::Unavailable => ReasonCode::UnspecifiedError,
        }
    }
}

impl PublishRefused {
    pub(super) fn reason_code(self) -> ReasonCode {
        match self {
            PublishRefused::NotAllowed | PublishRefused::TokenExpired | PublishRefused::BadToken => {
                ReasonCode::NotAuthorized
            }
            // PUBACK has no "packet too large" (§3.4.2.1): this is its code for a limit of the server's.
            PublishRefused::TooBig | PublishRefused::OverQuota => ReasonCode::QuotaExceeded,
            PublishRefused::Unavailable => ReasonCode::UnspecifiedError,
        }
    }

    pub(super) fn text(self) -> &'static str {
        match self {
            PublishRefused::NotAllowed => "publishing to this topic is not allowed",
            PublishRefused::TooBig => "the payload is over the size limit of what clients may publish",
            PublishRefused::OverQuota => {
                "too much waits to be stored, the topic is full, or the app has used up its quota"
            }
            PublishRefused::TokenExpired => "the new token has expired; the session keeps its old one",
            PublishRefused::BadToken => {
                "the new token is not valid for this session, which keeps its old one"
            }
            PublishRefused::Unavailable => "it could not be stored now; publish it again later",
        }
    }
}

/// A subscription that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscribed {
    pub filter: TopicFilter,
    /// It replaced none of the same filter.
    pub is_new: bool,
    /// Retained messages are wanted (§3.8.3.1).
    pub wants_retained: bool,
}

/// An UNSUBSCRIBE.
#[derive(Debug)]
pub struct UnsubscribeRequest {
    pub(super) packet_id: u16,
    pub(super) filters: Vec<Option<TopicFilter>>,
}

impl UnsubscribeRequest {
    pub fn filters(&self) -> impl Iterator<Item = &TopicFilter> {
        self.filters.iter().flatten()
    }
}

/// What is left of a connection.
#[derive(Debug, Default)]
pub struct Parting {
    /// To be published when its delay or the session is over, whichever is first, and not if a connection
    /// resumes the session before (§3.1.3.2.2).
    pub will: Option<Box<Will>>,
    /// 0: the session ends here.
    pub session_expiry_s: u32,
    pub subscriptions: Vec<Subscription>,
    /// None if the session ends here.
    pub saved: Option<Box<Saved>>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Will {
    pub topic: Topic,
    /// The notification's.
    pub data: JsonText,
    pub qos: Qos,
    pub retain: bool,
    pub has_payload: bool,
    pub delay_s: u32,
    pub expiry_s: Option<u32>,
}

impl Will {
    /// Bytes on the heap, about.
    pub fn held_bytes(&self) -> usize {
        self.topic.as_str().len() + self.data.as_str().len()
    }
}

/// A message that a session still owes its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owed {
    pub id: NotificationId,
    /// Because its topic retained it.
    pub retained: bool,
}

pub(super) fn in_flight(sent: &[Sent]) -> impl Iterator<Item = Owed> {
    sent.iter().filter(|sent| sent.is_open()).map(|sent| Owed { id: sent.id, retained: sent.retained })
}

/// A session's state that is not in the store (§4.1): what is in flight both ways, and the subscriptions.
#[derive(Debug, Default)]
pub struct Saved {
    pub(super) sent: Vec<Sent>,
    pub(super) unreleased: Vec<u16>,
    pub(super) last_packet_id: u16,
    /// Some that were given out before are not known.
    pub(super) forgot_ids: bool,
}

impl Saved {
    /// Bytes on the heap and its own, about.
    pub fn held_bytes(&self) -> usize {
        size_of::<Self>()
            + self.sent.capacity() * size_of::<Sent>()
            + self.unreleased.capacity() * size_of::<u16>()
    }

    /// What was sent and not confirmed, in the order in which it was sent.
    pub fn in_flight(&self) -> impl Iterator<Item = Owed> {
        in_flight(&self.sent)
    }

    /// A message was published whose connection ended before it could be told: sent again, it is the same one.
    pub fn published(&mut self, answer: Answer) {
        if answer.is_exactly_once()
            && let Err(at) = self.unreleased.binary_search(&answer.packet_id)
        {
            self.unreleased.insert(at, answer.packet_id);
        }
    }
}

/// Where else to go (§4.11).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerReference<'a> {
    /// `host:port`, or several with spaces between.
    pub servers: &'a str,
    /// For good, not only now.
    pub moved: bool,
}
