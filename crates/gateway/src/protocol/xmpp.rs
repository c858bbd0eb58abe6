//! XMPP on a connection: bytes to the conversation, what it asks for to the session core, and answers and
//! messages back. What XMPP is stands in `protocol::xmpp`.
//!
//! A device is the localpart of an address, its token the password. Over TCP it comes by a listener of its
//! own, in the clear until STARTTLS or under TLS from the start; over a WebSocket by `GET /xmpp` (RFC 7395).
//!
//! `log_in` is the way to a session, `topics` what is asked of PubSub, `parking` keeps sessions that may be
//! resumed, `accounts` is the conformance suites'.
//!
//! Invariant: what is marked at a connection is written before its conversation says anything, so that both
//! count stanzas in the same order (XEP-0198 §4).

use std::cell::Cell;
use std::ops::ControlFlow;
use std::time::Duration;

use bytes::Bytes;
use noroshi_auth::Identity;
use noroshi_protocol::ws::{self, Upgrade};
use noroshi_protocol::xmpp::{
    self, Action, Context as Cx, Conversation, Delivery, Framer, Input, Output, Security, Suspended,
};
use noroshi_types::{AppId, CloseReason, Presence, Timestamp};

use crate::io::timer::ticks;
use crate::io::tls::TlsSession;
use crate::lifecycle::phase::Phase;
use crate::protocol::conversation::{Context, Offered, Talk};
use crate::rate::{Bucket, Rate};
use crate::session::parking::Capacity;
use crate::session::permission::Op;
use crate::session::registry::Key;
use crate::shard::Shard;
use crate::shard::shared::Shared;
use crate::wire::dispatch::Dispatch;
use crate::wire::{Framing, Protocol, Speaks};

mod accounts;
mod archive;
mod log_in;
mod parking;
mod topics;

use crate::config::xmpp::Config;
use accounts::Accounts;
use log_in::Resuming;
use parking::{Parked, Parking};
pub(crate) use topics::ASKED_MAX;

/// A message that is older than this when it is written waited for its device, and is told when it was sent
/// (XEP-0203).
const DELAYED: Duration = Duration::from_secs(1);

/// How long stanzas wait for more of them before the client is asked to confirm them (XEP-0198 §4): a client that was
/// answered is still awake then.
const CHECKPOINT_AFTER: Duration = Duration::from_secs(1);

/// What all connections of XMPP share.
pub(crate) struct Service {
    parking: Parking,
    accounts: Accounts,
    random: &'static dyn rustls::crypto::SecureRandom,
}

impl Service {
    pub(crate) fn new(config: &mut Config, capacity: Capacity) -> Self {
        let random = rustls::crypto::ring::default_provider().secure_random;
        let mut epoch = [0; 8];
        if random.fill(&mut config.protocol.decoy).is_err() || random.fill(&mut epoch).is_err() {
            // Salts of names nobody has could be foreseen then, and a roster's version be an old one; nothing secret can.
            tracing::warn!("the system has no randomness");
        }
        let accounts = Accounts::new(&config.protocol.domain, u64::from_be_bytes(epoch), &config.accounts);
        Self { parking: Parking::new(capacity), accounts, random }
    }
}

impl Shared {
    /// Drops the session that a device left, which it may not resume any more.
    pub(crate) fn forget_xmpp(&self, device_key: Key) {
        self.xmpp.parking.forget(device_key);
    }

    pub(crate) fn forget_xmpp_app(&self, app: AppId) {
        self.xmpp.parking.forget_app(app);
    }

    /// Drops sessions that cannot be resumed any more.
    pub(crate) fn observe_xmpp(&self, now: Timestamp) {
        let (suspended, bytes) = self.xmpp.parking.expire(now);
        self.metrics.xmpp_suspended.set(i64::try_from(suspended).unwrap_or(i64::MAX));
        self.metrics.observe_parked(Protocol::Xmpp, bytes);
    }
}

pub(crate) struct Xmpp {
    framer: Framer,
    conversation: Conversation,
    /// Who proved to be who, until the log-in.
    identity: Option<Box<Identity>>,
    /// The session that the client asks for, until it has it or is told that it is gone.
    resuming: Option<Box<Resuming>>,
    /// Something that is kept was not written: the client was not there for it.
    passed_over: bool,
    /// What was sent already may be read from the store once more.
    repeats: bool,
    begins_tls: bool,
    resumed: bool,
}

// With its box and the conversation's own (`protocol::xmpp`) an idle session stays within 1 KiB of a native one.
const _: () = assert!(size_of::<Xmpp>() <= 128);

impl Xmpp {
    fn new(conversation: Conversation) -> Self {
        Self {
            framer: Framer::new(),
            conversation,
            identity: None,
            resuming: None,
            passed_over: false,
            repeats: false,
            begins_tls: false,
            resumed: false,
        }
    }

    pub(crate) fn offer(&mut self, context: &Context<'_>, dispatch: &Dispatch) -> Offered {
        let message = &dispatch.message;
        let is_own = message.topic.as_ref().is_none_or(|place| place.topic.is_everyone());
        let is_open = self.conversation.is_open();
        // RFC 6121 §4.5: who is not available gets none of its own; XEP-0160 §3: later it does.
        if !is_open || (is_own && self.conversation.presence() == Presence::Offline) {
            self.passed_over |= message.wants_ack();
            return Offered::Pass { confirmed: false };
        }
        if self.repeats && self.conversation.is_unconfirmed(message.id) {
            return Offered::Pass { confirmed: false };
        }
        let config = &context.config.xmpp.protocol;
        let delayed = context.now.saturating_since(message.sent_at) >= DELAYED;
        let bytes = dispatch.xmpp(config, framing_of(context.framing), delayed);
        match self.conversation.deliver(config, message.id, message.wants_ack(), bytes) {
            Delivery::Write => Offered::Send { shared: bytes.clone(), confirmed: false },
            Delivery::Full => Offered::Full,
        }
    }

    pub(crate) fn follow(&mut self, config: &crate::Config, out: &mut Vec<u8>) {
        self.conversation.push_checkpoint(&config.xmpp.protocol, out);
    }

    pub(crate) fn caught_up(&mut self) {
        (self.repeats, self.resumed) = (false, false);
    }

    pub(crate) fn wants_retained(&self) -> bool {
        !self.resumed
    }
}

fn framing_of(framing: Framing) -> xmpp::Framing {
    match framing {
        Framing::WebSocket | Framing::Deflated(_) => xmpp::Framing::WebSocket,
        Framing::Stream | Framing::Events | Framing::GzipEvents | Framing::Polling => xmpp::Framing::Stream,
    }
}

impl Shard {
    /// A stream header is awaited.
    pub(crate) fn open_xmpp(&mut self, slot: u32, framing: Framing) {
        self.set_protocol(slot, Protocol::Xmpp, framing);
        let deadline = self.now.tick_after(self.shared.config.auth_timeout);
        let has_starttls = self.shared.config.xmpp.starttls.is_some();
        let Some(connection) = self.connection(slot) else { return };
        let security = match framing {
            Framing::Stream if connection.transport.is_tls() => Security::Encrypted,
            Framing::Stream if has_starttls => Security::StartTls,
            Framing::Stream => Security::Plaintext,
            // What protects the HTTP listener, its own TLS or a proxy's, is said there for all that come by it.
            Framing::WebSocket
            | Framing::Deflated(_)
            | Framing::Events
            | Framing::GzipEvents
            | Framing::Polling => Security::Encrypted,
        };
        let conversation = Conversation::new(framing_of(framing), security);
        connection.phase = Phase::AwaitToken;
        connection.deadline_tick = deadline;
        connection.talk = Some(Box::new(Talk::Xmpp(Xmpp::new(conversation))));
        self.refill_frames(slot);
    }

    /// Whose connection it is was not known before, so its allowance may be another now: where suites run, what nobody may
    /// say is more than what a device may.
    fn refill_frames(&mut self, slot: u32) {
        if !self.shared.config.conformance {
            return;
        }
        let rate = self.conformance_rate(slot).unwrap_or_else(|| self.shared.frame_rate());
        let now_ms = self.now.ms32();
        if let Some(connection) = self.connection(slot) {
            connection.frames = Bucket::full(rate, now_ms);
        }
    }

    /// A request for `/xmpp`.
    pub(crate) fn upgrade_to_xmpp(&mut self, slot: u32, upgrade: &Upgrade) {
        let mut answer = Vec::with_capacity(192);
        ws::push_upgrade_response(&mut answer, upgrade);
        self.open_xmpp(slot, Framing::agreed(upgrade));
        self.send(slot, answer.into());
        self.arm(slot);
    }

    /// The allowance of a connection of a conformance suite, of an account or of nobody yet: a hundred times a device's,
    /// since suites send as fast as they can. A device has its own also where suites run.
    pub(crate) fn conformance_rate(&mut self, slot: u32) -> Option<Rate> {
        const MORE: u32 = 100;
        if !self.shared.config.conformance {
            return None;
        }
        let has_session = self.connection(slot)?.session.is_some();
        let is_account = self.xmpp(slot)?.conversation.account().is_some();
        let Rate { per_second, burst } = self.shared.frame_rate();
        let [per_second, burst] = [per_second, burst].map(|it| it.saturating_mul(MORE));
        (is_account || !has_session).then_some(Rate { per_second, burst })
    }

    fn xmpp(&mut self, slot: u32) -> Option<&mut Xmpp> {
        match self.connection(slot)?.talk.as_deref_mut()? {
            Talk::Xmpp(xmpp) => Some(xmpp),
            _ => None,
        }
    }

    /// Bytes of a stream, however the transport cut them.
    pub(crate) fn feed_xmpp(&mut self, slot: u32, bytes: &[u8]) {
        let limits = self.shared.config.xmpp.protocol.xml;
        let Some(xmpp) = self.xmpp(slot) else { return };
        let mut framer = std::mem::take(&mut xmpp.framer);
        let result = framer.feed(bytes, &limits, &mut |input| {
            if self.take_frame(slot) {
                self.converse(slot, |conversation, cx, out| conversation.receive(cx, input, out));
            }
            let goes_on = self.is_alive(slot) && self.xmpp(slot).is_some_and(|xmpp| !xmpp.begins_tls);
            if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        let Some(xmpp) = self.xmpp(slot) else { return };
        match result {
            Ok(consumed) if xmpp.begins_tls => self.start_tls(slot, consumed == bytes.len()),
            Ok(_) => xmpp.framer = framer,
            Err(error) => {
                self.converse(slot, |conversation, cx, out| conversation.receive_error(cx, error, out));
            }
        }
    }

    /// A message of a WebSocket: one element (RFC 7395 §3.3). It is off the allowance already.
    pub(crate) fn hear_xmpp(&mut self, slot: u32, text: &str) {
        self.converse(slot, |conversation, cx, out| conversation.receive(cx, Input::Element(text), out));
    }

    /// `clean`: nothing came in the clear behind the request.
    fn start_tls(&mut self, slot: u32, clean: bool) {
        let config = self.shared.config.xmpp.starttls.as_ref().map(|acceptor| acceptor.config(Speaks::Xmpp));
        let Some(connection) = self.connection(slot) else { return };
        // RFC 6120 §5.3.1: it could have been put there by anybody.
        if !clean {
            return self.begin_close(slot, CloseReason::ProtocolError);
        }
        // `<proceed/>` is a few bytes: who does not take them takes nothing.
        if connection.tail.is_some() {
            return self.begin_close(slot, CloseReason::SlowConsumer);
        }
        let session = config.map(TlsSession::new);
        let began = match session {
            Some(Ok(session)) => self.begin_tls(slot, session).map_err(|error| error.to_string()),
            Some(Err(error)) => Err(error.to_string()),
            None => Err("there is no certificate".to_owned()),
        };
        if let Err(error) = began {
            tracing::warn!(error, "STARTTLS failed");
            return self.doom(slot, CloseReason::Internal);
        }
        if let Some(xmpp) = self.xmpp(slot) {
            xmpp.begins_tls = false;
            xmpp.conversation.encrypted();
        }
    }

    /// Lets the conversation speak, and does what it asks for.
    fn converse(&mut self, slot: u32, speak: impl FnOnce(&mut Conversation, &Cx<'_>, &mut Output)) {
        self.flush(slot);
        let shared = self.shared.clone();
        let failed = Cell::new(false);
        let random = |bytes: &mut [u8]| {
            if shared.xmpp.random.fill(bytes).is_err() {
                failed.set(true);
            }
        };
        let cx = Cx { config: &shared.config.xmpp.protocol, random: &random, now_ms: self.now.ms32() };
        let Some(xmpp) = self.xmpp(slot) else { return };
        let mut out = Output::default();
        speak(&mut xmpp.conversation, &cx, &mut out);
        if failed.get() {
            tracing::error!("the system has no randomness");
            return self.doom(slot, CloseReason::Internal);
        }
        let wants_checkpoint = xmpp.conversation.wants_checkpoint();
        if !out.bytes.is_empty() {
            self.send(slot, out.bytes.into());
        }
        if let Some(connection) = self.connection(slot) {
            connection.frames.grant(out.requests);
        }
        if wants_checkpoint {
            self.schedule_checkpoint(slot);
        }
        for action in out.actions {
            if !self.is_alive(slot) {
                return;
            }
            self.handle_xmpp(slot, action);
        }
    }

    /// An open connection has no other deadline.
    fn schedule_checkpoint(&mut self, slot: u32) {
        let tick = self.now.tick_after(CHECKPOINT_AFTER);
        let Some(connection) = self.connection(slot) else { return };
        if connection.phase == Phase::Open && connection.deadline_tick == u32::MAX {
            connection.deadline_tick = tick;
            self.arm(slot);
        }
    }

    /// What was sent some time ago is to be confirmed.
    pub(crate) fn handle_checkpoint_due(&mut self, slot: u32) {
        let Some(connection) = self.connection(slot) else { return };
        connection.deadline_tick = u32::MAX;
        self.converse(slot, |conversation, cx, out| conversation.remind(cx, out));
    }

    fn handle_xmpp(&mut self, slot: u32, action: Action) {
        match action {
            Action::StartTls => {
                if let Some(xmpp) = self.xmpp(slot) {
                    xmpp.begins_tls = true;
                }
            }
            Action::Authenticate { user, app, token } => {
                self.authenticate_xmpp(slot, &user, app.as_deref(), token.as_str());
            }
            Action::FindKeys { user, .. } => self.find_keys(slot, &user),
            Action::Refused(why) => self.tell_refused(slot, &why),
            Action::LogIn { resource, .. } => self.log_in_xmpp(slot, &resource),
            Action::Resume { id, .. } => self.resume_xmpp(slot, id),
            Action::Presence(presence) => self.handle_presence(slot, presence),
            Action::Acknowledge(ids) => {
                self.confirm(slot, ids);
                self.make_room(slot);
            }
            // The log-in of whoever resumes reads the backlog from its beginning: they are in it.
            Action::Redeliver(_) => {}
            Action::Subscribe { topic, durable, request } => {
                self.run_op(slot, Op::XmppSubscribe { topic, durable, request });
            }
            Action::Unsubscribe { topic, durable, request } => {
                self.run_op(slot, Op::XmppUnsubscribe { topic, durable, request });
            }
            Action::Subscriptions { topic, request } => self.tell_subscriptions(slot, topic, request),
            Action::Items { topic, id, max, request } => {
                self.run_op(slot, Op::XmppItems { topic, id, max, request });
            }
            Action::Publish { topic, data, request } => {
                self.run_op(slot, Op::XmppPublish { topic, data, request });
            }
            Action::Create { topic, request } => self.run_op(slot, Op::XmppCreate { topic, request }),
            Action::Affiliation { topic, request } => self.tell_affiliation(slot, &topic, request),
            Action::Node { command, topic, request } => self.ask_node(slot, command, topic, request),
            Action::DescribeTopic { request } => self.answer_xmpp(slot, request, xmpp::Answer::Done),
            Action::Register { user, password, request } => {
                self.register_account(slot, &user, password.as_str(), request);
            }
            Action::Unregister { request } => self.unregister_account(slot, request),
            Action::Relay { to, stanza, request } => self.relay(slot, &to, &stanza, request),
            Action::Announce(presence) => self.announce(slot, presence),
            Action::Roster { known, request } => self.tell_roster(slot, known.as_deref(), request),
            Action::PublishPersonal { item, request } => self.publish_personal(slot, item, request),
            Action::PersonalItems { owner, node, request } => {
                self.tell_personal(slot, &owner, &node, request);
            }
            Action::Archive { query, request } => self.tell_archive(slot, query, request),
            Action::ArchiveRules { rules, request } => self.rule_archive(slot, rules, request),
            Action::Copy { wanted, request } => self.copy_messages(slot, wanted, request),
            Action::Card { owner, request } => self.tell_card(slot, owner.as_deref(), request),
            Action::PutCard { card, request } => self.put_card(slot, card, request),
            Action::ChangePush { change, request } => self.change_push(slot, change, request),
            Action::Describe { owner, request } => self.describe_account(slot, &owner, request),
            Action::Want(nodes) => self.want_personal(slot, nodes),
            Action::ChangeRoster { change, request } => self.change_roster(slot, change, request),
            Action::Close(reason) => self.close_xmpp(slot, reason),
        }
    }

    fn handle_presence(&mut self, slot: u32, presence: Presence) {
        let Some(connection) = self.connection(slot) else { return };
        let Some(session) = connection.session.clone() else { return };
        if session.set_presence(presence) {
            self.read_held_back(slot);
        }
        if presence == Presence::Offline {
            return;
        }
        if let Some(xmpp) = self.xmpp(slot)
            && std::mem::take(&mut xmpp.passed_over)
        {
            xmpp.repeats = true;
            self.read_anew(slot, None);
        }
    }

    /// The conversation said its last word.
    fn close_xmpp(&mut self, slot: u32, reason: CloseReason) {
        let framing = self.connection(slot).map(|connection| connection.framing);
        // RFC 7395 §3.6: the WebSocket ends after its stream.
        if reason == CloseReason::PeerClosed && framing.is_some_and(Framing::is_websocket) {
            let mut frame = Vec::new();
            ws::push_close(&mut frame, 1_000, "");
            self.send(slot, frame.into());
        }
        self.begin_close(slot, reason);
    }

    /// Something is to be said that a client which is there answers, or it did not.
    pub(crate) fn handle_xmpp_due(&mut self, slot: u32) {
        let (now, timeout) = (self.now, self.shared.config.ping_timeout);
        let next = now.tick_after(self.shared.config.ping_interval);
        let Some(connection) = self.connection(slot) else { return };
        if connection.phase != Phase::Open {
            connection.ping_tick = u32::MAX;
        } else if !connection.ping_out {
            (connection.ping_out, connection.heard) = (true, false);
            connection.ping_tick = now.tick.saturating_add(ticks(timeout));
            self.converse(slot, |conversation, cx, out| conversation.push_ping(cx.config, &mut out.bytes));
        } else if connection.heard {
            connection.ping_out = false;
            connection.ping_tick = next.saturating_sub(ticks(timeout)).max(now.tick + 1);
        } else {
            self.begin_close(slot, CloseReason::PingTimeout);
        }
    }

    /// A stanza of another account.
    pub(crate) fn deliver_stanza(&mut self, slot: u32, stanza: &Bytes) {
        self.converse(slot, |conversation, cx, out| conversation.deliver_relayed(cx, stanza, out));
    }

    /// The stream error of what ended the connection.
    pub(crate) fn end_xmpp_word(&mut self, slot: u32, reason: CloseReason) {
        let shared = self.shared.clone();
        let account = self.xmpp(slot).and_then(|xmpp| xmpp.conversation.account()).map(str::to_owned);
        account.into_iter().for_each(|account| self.forget_account(slot, &account));
        // A WebSocket's would be an address of another kind (RFC 7395 §3.6.1).
        let is_stream = self.connection(slot).is_some_and(|connection| connection.framing == Framing::Stream);
        let redirect =
            shared.config.xmpp.redirect.as_deref().filter(|_| is_stream && reason == CloseReason::Drain);
        let mut suspended = None;
        self.converse(slot, |conversation, cx, out| {
            // Where a log-in waits for its answer, this is it.
            conversation.refused(cx, reason, out);
            match reason {
                // Taken over by whoever resumes it, or too long unheard: it may come back for it.
                CloseReason::Replaced | CloseReason::PingTimeout => {
                    suspended = conversation.close_suspended(cx, reason, out);
                }
                _ => conversation.close(cx, reason, redirect, out),
            }
        });
        if let Some(suspended) = suspended {
            self.park_session(slot, suspended);
        }
    }

    /// The connection is over: without a word, its client may come back for the session.
    pub(crate) fn part_xmpp(&mut self, slot: u32, mut xmpp: Xmpp) {
        if let Some(account) = xmpp.conversation.account() {
            self.forget_account(slot, account);
        }
        let reason = self.connection(slot).and_then(|connection| connection.close_reason);
        if matches!(reason, None | Some(CloseReason::PeerReset | CloseReason::PeerClosed))
            && let Some(suspended) = xmpp.conversation.suspend()
        {
            self.park_session(slot, suspended);
        }
    }

    fn park_session(&mut self, slot: u32, suspended: Box<Suspended>) {
        let shared = self.shared.clone();
        let Some(connection) = self.connections.get(slot as usize) else { return };
        let Some(session) = connection.session.as_ref() else { return };
        let present = shared.registry.device(session.device_key);
        if present.is_some_and(|present| present.address.generation > session.address.generation) {
            return; // the device has a newer session, and one at most
        }
        let topics = crate::shard::backlog::own_topics(connection, &self.topics);
        let time = Duration::from_secs(shared.config.xmpp.protocol.resume_max_s.into());
        let parked = Parked { suspended, topics, holder: session.holder() };
        let evicted = shared.xmpp.parking.park(session.device_key, session.app, parked, self.now.wall, time);
        shared.metrics.count_evicted(Protocol::Xmpp, evicted);
    }
}
