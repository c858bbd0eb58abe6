//! What an adapter asks of the shard. The vocabulary is the same for all protocols: each logs in, subscribes and
//! acknowledges. Work outside the shard, such as publishing, is no effect but a job (`Context::run`).

use std::sync::Arc;

use bytes::Bytes;
use noroshi_auth::{Identity, Refused};
use noroshi_delivery::rules::{AppRules, Reason};
use noroshi_protocol::engine_io::Outgoing;
use noroshi_protocol::engine_io::session::Output;
use noroshi_types::{AppId, CloseReason, NotificationId, Presence, Since, Topic};

use super::polling::Legs;
use crate::io::tls::TlsSession;
use crate::session::permission::Decided;
use crate::session::registry::Address;
use crate::session::renewal::NotRenewed;
use crate::session::request::BoxedRequest;

/// The reason in events of a log-in that an adapter refuses itself ([`Effect::ReportRefusal`]).
pub(crate) const REFUSED_BY_PROTOCOL: &str = "protocol";

/// The shard carries effects out in order, after the method of the adapter has returned. If the connection closes
/// meanwhile, the shard drops its remaining effects, unless they concern other connections.
pub(crate) enum Effect {
    /// Send bytes behind the messages that are marked for the connection.
    Send(Bytes),
    /// Close the connection; `Adapter::close` follows.
    Close(CloseReason),
    /// End the connection without a close packet.
    Abort(CloseReason),
    /// What follows on the socket is TLS. `Adapter::handle_tls` follows.
    StartTls(Box<TlsSession>),

    /// Check a token. Outcome: [`Reply::Verified`].
    Verify {
        token: Option<Box<str>>,
        app: Option<Box<str>>,
        request: BoxedRequest,
    },
    /// Read the device from the store and attach a session. `Adapter::handle_login` or `close` follows.
    Attach(Box<Attach>),
    /// End the session; the connection waits for another log-in.
    LogOut,
    /// The connection waits for a log-in again.
    AwaitLogin,
    /// Count and log a refused log-in.
    ReportRefusal(Box<str>),
    /// Ask the connection of `at` to leave its session if that has the id. `Adapter::handle_predecessor_gone` follows.
    Resume {
        at: Address,
        id: Box<str>,
    },
    /// Close another session.
    CloseSession {
        at: Address,
        reason: CloseReason,
    },

    /// Let topic rules decide. Outcome: [`Reply::Decided`].
    Authorize(BoxedRequest),
    /// Subscribe the connection. Outcome, where a request is given: [`Reply::Subscribed`].
    Subscribe {
        topics: Vec<Topic>,
        since: Vec<(Topic, Since)>,
        request: Option<BoxedRequest>,
    },
    /// Subscribe to one topic without a limit. `durable`: the store has the subscription. `retained`: also read the
    /// topic's retained message, for a topic that is subscribed already too.
    SubscribeTopic {
        topic: Topic,
        durable: bool,
        retained: Option<bool>,
    },
    /// End subscriptions of the connection.
    Unsubscribe(Vec<Topic>),
    /// Deliver messages of all topics that a filter matches.
    AddFilter(Box<str>),
    RemoveFilter(AppId, Box<str>),
    /// Topic rules may have changed since they allowed something.
    Recheck(Option<Arc<AppRules>>),

    /// The device has these messages.
    Acknowledge(Vec<NotificationId>),
    /// The client's window has room again.
    MakeRoom,
    /// Continue with the backlog.
    Advance,
    /// Read the backlog again, behind a message or from its beginning.
    Reread(Option<NotificationId>),
    /// The device is in use, or not.
    SetPresence(Presence),
    /// Replace the session's token. Outcome: [`Reply::Renewed`].
    RenewToken {
        token: Box<str>,
        request: BoxedRequest,
    },

    /// Continue behind the effects before this one. Outcome: [`Reply::Continue`].
    Continue(BoxedRequest),

    /// A stanza for another session of this shard.
    Relay {
        to: Address,
        stanza: Bytes,
    },

    /// Keep a text frame until the log-in has its outcome.
    KeepEarly(Box<str>),
    /// What follows on an event stream is compressed.
    BeginGzip,
    /// The client sends nothing, so TCP has to find out if it vanished.
    DetectVanishedPeer,
    /// Send a comment on an event stream.
    SendKeepAlive,
    /// Answer in HTTP with this status instead of an event stream.
    RefuseInHttp(u16, Box<Refusal>),

    /// Wake the adapter at a millisecond rather than at a tick.
    WakeAt(u64),
    /// Output of the engine of a polling session.
    Engine(Output),
    /// The engine's outputs are complete: the slot of a closed session ends if nothing remains to be sent.
    EngineSettled,
    /// Queue a packet for the next poll, behind the messages that are marked.
    Queue(Outgoing),
    /// The session has something for the poll that waits.
    PollReady,
    /// A polling session ended: answer its poll and close its probe.
    EndLegs(Box<Legs>),
}

impl Effect {
    /// Whether it concerns others too, so that it is carried out also if the connection closes meanwhile.
    pub(crate) fn outlives_connection(&self) -> bool {
        matches!(
            self,
            Effect::Engine(_)
                | Effect::EngineSettled
                | Effect::PollReady
                | Effect::EndLegs(_)
                | Effect::RemoveFilter(..)
                | Effect::Relay { .. }
                | Effect::CloseSession { .. }
                | Effect::ReportRefusal(_)
        )
    }
}

/// A log-in whose token is verified.
pub(crate) struct Attach {
    pub(crate) identity: Identity,
    /// Subscriptions of the connection from its first moment.
    pub(crate) topics: Vec<Topic>,
    /// The last message that the client has.
    pub(crate) resume: Option<NotificationId>,
}

/// The outcome of a request.
pub(crate) enum Reply {
    Verified(Result<Identity, Refused>),
    Decided(Decided),
    /// An error has a stable code and a text for people.
    Subscribed(Result<(), (&'static str, String)>),
    Renewed(Result<(), NotRenewed>),
    Continue,
}

/// A log-in that is refused although its token is valid, or an event stream that cannot begin.
#[derive(Clone)]
pub(crate) struct Refusal {
    pub(crate) code: &'static str,
    pub(crate) text: String,
    pub(crate) reason: CloseReason,
    /// Seconds until the client may reconnect.
    pub(crate) after_s: Option<u64>,
}

/// A topic that a client may not use, or not any more.
pub(crate) struct TopicNotice<'a> {
    pub(crate) code: &'a str,
    pub(crate) topic: &'a Topic,
    pub(crate) reason: Reason,
}
