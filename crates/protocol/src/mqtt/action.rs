//! Requests of a conversation to the session core, in protocol-neutral terms, and the results that the core
//! returns.

use noroshi_types::{CloseReason, JsonText, NotificationId, Presence, Topic};

use super::flight::Sent;
use super::{Publication, Qos, ReasonCode, SubscribeOptions, Subscription, TopicFilter, Violation};

/// The request of one packet; at most one. Replies that need no request are already in the output.
#[derive(Debug)]
pub enum Action<'a> {
    /// Nothing to do.
    None,
    /// The caller answers with `logged_in` or `close`.
    LogIn(LogIn<'a>),
    /// If `answer` is set, the caller passes it to `published` once the outcome is final.
    Publish { publication: Publication<'a>, answer: Option<Answer> },
    /// The caller answers with `subscribed`.
    Subscribe(SubscribeRequest),
    /// The caller answers with `unsubscribed`.
    Unsubscribe(UnsubscribeRequest),
    /// The device has received these messages. `room`: messages rejected as [`super::Delivery::Full`] may be
    /// offered again.
    Settled { ids: Vec<NotificationId>, room: bool },
    /// The client reports that it is in use, or idle.
    Presence(Presence),
    /// The caller passes `answer` to `published`.
    RenewToken { token: &'a str, answer: Option<Answer> },
    /// The connection is over: the credentials are rejected for this reason, which was sent to the client.
    Refused(&'static str),
    /// The conversation is over; the closing packet is in the output.
    Close { reason: CloseReason, violation: Option<Violation> },
}

/// A log-in request.
#[derive(Clone, PartialEq)]
pub struct LogIn<'a> {
    /// The claimed device: the user name, or else the client identifier. The token must belong to it; without
    /// a name any token is valid.
    pub device: Option<&'a str>,
    /// `None` only if anonymous clients are allowed.
    pub token: Option<&'a str>,
    /// CONNECT's user property `app`, or the app in the user name ([`crate::app_name`]).
    pub app: Option<&'a str>,
    pub client_id: &'a str,
    /// The stored session must be discarded first (§3.1.2.4).
    pub clean_start: bool,
    /// How long the session outlives its connection; 0: not at all.
    pub session_expiry_s: u32,
    /// The will, which the client must be allowed to publish.
    pub will: Option<OfferedWill>,
}

/// The will of a CONNECT, to be authorized before the log-in succeeds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferedWill {
    pub topic: Topic,
    pub payload_bytes: usize,
    pub properties_bytes: usize,
}

impl std::fmt::Debug for LogIn<'_> {
    /// Omits the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LogIn({:?}, clean start {})", self.device, self.clean_start)
    }
}

/// A session that started.
#[derive(Debug, Default)]
pub struct LoggedIn<'a> {
    /// Becomes the client identifier of a client that sent none (§3.1.3.1).
    pub device: &'a str,
    /// Equal for all connections of a device, without identifying it: for No Local.
    pub origin: u64,
    /// The session existed before (§3.2.2.1.1). Never with a clean start.
    pub session_present: bool,
    /// All subscriptions of the session, including those not made over MQTT.
    pub subscriptions: Vec<Subscription>,
    /// The state of its last connection, if this node still has it.
    pub saved: Option<Box<Saved>>,
}

/// Identifies a received message until its publisher can be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    pub(super) packet_id: u16,
    pub(super) qos: Qos,
}

impl Answer {
    /// Whether the message must be published exactly once.
    pub fn is_exactly_once(&self) -> bool {
        self.qos == Qos::ExactlyOnce
    }
}

/// Why a client's message was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublishRefused {
    /// The app or the token does not allow it.
    NotAllowed,
    /// The payload exceeds the limit for clients.
    TooBig,
    /// Another limit is exceeded: of pending messages, of the topic, or of the app's quota.
    OverQuota,
    /// The message contains a new token for the session, which has expired.
    TokenExpired,
    /// The message contains a new token for the session, which is invalid or belongs to another session.
    BadToken,
    /// The service is temporarily unable; the client may retry.
    Unavailable,
}

/// Why a log-in is rejected, where a close reason is too general.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogInRefused {
    /// The client may not publish to the will's topic.
    Will,
    /// The will exceeds the limit for published messages.
    WillTooBig,
    /// The token is valid, but for another device.
    OtherDevice,
}

impl LogInRefused {
    /// A rejected will is an authorization error: name and password are valid (§3.2.2.2).
    pub(super) fn reason_code(self) -> ReasonCode {
        match self {
            LogInRefused::Will => ReasonCode::NotAuthorized,
            // The packet is within the maximum packet size (0x95): this is a limit of the server's, as in
            // PUBACK.
            LogInRefused::WillTooBig => ReasonCode::QuotaExceeded,
            LogInRefused::OtherDevice => ReasonCode::BadUserNameOrPassword,
        }
    }

    /// Text for the client and the log.
    pub fn text(self) -> &'static str {
        match self {
            LogInRefused::Will => "the will is rejected: the client may not publish to its topic",
            LogInRefused::WillTooBig => {
                "the will is rejected: it exceeds the size limit for published messages"
            }
            LogInRefused::OtherDevice => {
                "the token belongs to another device than the user name or client identifier"
            }
        }
    }
}

/// Why a subscription was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubscribeRefused {
    NotAllowed,
    /// The device has the maximum number of subscriptions.
    OverQuota,
    Unavailable,
}

/// A SUBSCRIBE. Filters that the conversation rejects are already marked.
#[derive(Debug)]
pub struct SubscribeRequest {
    pub(super) packet_id: u16,
    /// The subscription identifier; 0: none.
    pub(super) id: u32,
    pub(super) items: Vec<SubscribeItem>,
}

#[derive(Debug)]
pub(super) struct SubscribeItem {
    pub(super) filter: Result<TopicFilter, ReasonCode>,
    pub(super) options: SubscribeOptions,
}

impl SubscribeRequest {
    /// The requested subscriptions, which the caller stores with a persistent session. `since`:
    /// [`Subscription::since`].
    pub fn subscriptions(&self, since: i64) -> impl Iterator<Item = Subscription> {
        self.filters().map(move |(filter, options)| {
            let filter = filter.clone();
            Subscription { filter, options, id: self.id, is_of_client: true, since, retained_due: false }
        })
    }

    fn filters(&self) -> impl Iterator<Item = (&TopicFilter, SubscribeOptions)> {
        self.items.iter().filter_map(|item| Some((item.filter.as_ref().ok()?, item.options)))
    }

    /// The requested shared subscriptions.
    pub fn shares(&self) -> impl Iterator<Item = (&TopicFilter, Qos)> {
        self.filters()
            .filter(|(filter, _)| filter.share().is_some())
            .map(|(filter, options)| (filter, options.qos()))
    }

    /// The number of requested subscriptions that are not rejected.
    pub fn count(&self) -> usize {
        self.filters().count()
    }

    /// Rejects the filters for which `refuse` returns a reason.
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
            PublishRefused::TooBig => "the payload exceeds the size limit for published messages",
            PublishRefused::OverQuota => {
                "too many messages are pending, the topic is full, or the app has exhausted its quota"
            }
            PublishRefused::TokenExpired => "the new token has expired; the session keeps its old one",
            PublishRefused::BadToken => "the new token is invalid for this session, which keeps its old one",
            PublishRefused::Unavailable => "the message could not be stored; publish it again later",
        }
    }
}

/// A subscription that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscribed {
    pub filter: TopicFilter,
    /// False if it replaced one with the same filter.
    pub is_new: bool,
    /// The client expects the retained messages (§3.8.3.1).
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

/// The state that remains when a connection ends.
#[derive(Debug, Default)]
pub struct ConnectionEnd {
    /// To be published after its delay or at the end of the session, whichever is first, unless a connection
    /// resumes the session before (§3.1.3.2.2).
    pub will: Option<Box<Will>>,
    /// 0: the session ends now.
    pub session_expiry_s: u32,
    pub subscriptions: Vec<Subscription>,
    /// `None` if the session ends now.
    pub saved: Option<Box<Saved>>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Will {
    pub topic: Topic,
    /// The data of the resulting notification.
    pub data: JsonText,
    pub qos: Qos,
    pub retain: bool,
    pub has_payload: bool,
    pub delay_s: u32,
    pub expiry_s: Option<u32>,
}

impl Will {
    /// Approximate heap bytes.
    pub fn held_bytes(&self) -> usize {
        self.topic.as_str().len() + self.data.as_str().len()
    }
}

/// A message that is sent and not yet acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UnacknowledgedMessage {
    pub id: NotificationId,
    /// It was sent as a retained message.
    pub retained: bool,
}

pub(super) fn in_flight(sent: &[Sent]) -> impl Iterator<Item = UnacknowledgedMessage> {
    sent.iter()
        .filter(|sent| sent.is_open())
        .map(|sent| UnacknowledgedMessage { id: sent.id, retained: sent.retained })
}

/// Session state that is not in the store (§4.1): in-flight messages in both directions, and the
/// subscriptions.
#[derive(Debug, Default)]
pub struct Saved {
    pub(super) sent: Vec<Sent>,
    pub(super) unreleased: Vec<u16>,
    pub(super) last_packet_id: u16,
    /// Some packet ids in use are unknown.
    pub(super) forgot_ids: bool,
}

impl Saved {
    /// Approximate bytes, on the heap and inline.
    pub fn held_bytes(&self) -> usize {
        size_of::<Self>()
            + self.sent.capacity() * size_of::<Sent>()
            + self.unreleased.capacity() * size_of::<u16>()
    }

    /// Messages sent and not acknowledged, in sending order.
    pub fn in_flight(&self) -> impl Iterator<Item = UnacknowledgedMessage> {
        in_flight(&self.sent)
    }

    /// Records that a message was published although its connection ended before the acknowledgement: if it
    /// is sent again, it is a duplicate.
    pub fn published(&mut self, answer: Answer) {
        if answer.is_exactly_once()
            && let Err(at) = self.unreleased.binary_search(&answer.packet_id)
        {
            self.unreleased.insert(at, answer.packet_id);
        }
    }
}

/// Another server to use (§4.11).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerReference<'a> {
    /// `host:port`, or several separated by spaces.
    pub servers: &'a str,
    /// Permanently, not only temporarily.
    pub moved: bool,
}
