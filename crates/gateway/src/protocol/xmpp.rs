//! XMPP on a connection. The protocol itself is `noroshi_protocol::xmpp`; this adapter connects it to the session of a
//! device.
//!
//! A device is the localpart of an address, its token the password. Over TCP it has a separate listener, in plaintext
//! until STARTTLS or under TLS from the start; over a WebSocket it connects with `GET /xmpp` (RFC 7395).
//!
//! Files: [`adapter`] input to effects, and messages to stanzas, [`login`] authentication to a session, [`subscribe`]
//! and [`publish`] PubSub, [`job`] queries of the store and the archive, [`session`] sessions that may be resumed,
//! [`close`], and [`accounts`] for the conformance suites.
//!
//! Invariant: messages marked for a connection are written before its conversation sends anything, so that both count
//! stanzas in the same order (XEP-0198 §4). So output that follows an effect that may send messages is sent by a later
//! call ([`Effect::Continue`]).

use std::cell::Cell;
use std::time::Duration;

use noroshi_auth::Identity;
use noroshi_protocol::xmpp::{self, Action, Context as Cx, Conversation, Framer, Output, Security};
use noroshi_types::{AppId, CloseReason, Timestamp};

use crate::config::xmpp::Config;
use crate::metrics::Metrics;
use crate::protocol::context::Context;
use crate::protocol::effect::Effect;
use crate::protocol::services::Services;
use crate::rate::{Bucket, Rate};
use crate::session::parking::Capacity;
use crate::session::phase::Phase;
use crate::session::registry::Key;
use crate::wire::{Framing, Protocol};

mod accounts;
mod adapter;
mod close;
mod job;
mod login;
mod publish;
mod session;
mod subscribe;

use accounts::Accounts;
pub(crate) use adapter::Request;
use login::Resuming;
use session::Parking;

/// A message that is older than this when it is written waited for its device: it carries the time at which it was sent
/// (XEP-0203).
const DELAYED: Duration = Duration::from_secs(1);

/// How long the node waits for further stanzas before it asks the client to acknowledge them (XEP-0198 §4): a client that
/// got an answer is still awake then.
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
            // Salts of names without an account could be predicted then, and a roster's version could be an old one. No
            // secret depends on this randomness.
            tracing::warn!("the system has no randomness");
        }
        let accounts = Accounts::new(&config.protocol.domain, u64::from_be_bytes(epoch), &config.accounts);
        Self { parking: Parking::new(capacity), accounts, random }
    }

    /// Drops the session that a device left and may not resume any more.
    pub(crate) fn forget(&self, device_key: Key) {
        self.parking.forget(device_key);
    }

    pub(crate) fn forget_app(&self, app: AppId) {
        self.parking.forget_app(app);
    }

    /// Drops sessions that cannot be resumed any more.
    pub(crate) fn observe(&self, metrics: &Metrics, now: Timestamp) {
        let (sessions, bytes) = self.parking.expire(now);
        metrics.observe_parked(Protocol::Xmpp, sessions, bytes);
    }
}

fn service(services: &Services) -> &Service {
    services.of::<Service>()
}

pub(crate) struct Xmpp {
    framer: Framer,
    conversation: Conversation,
    /// The verified identity, until the log-in.
    identity: Option<Box<Identity>>,
    /// The session that the client requests, until it gets it or the session turns out to be gone.
    resuming: Option<Box<Resuming>>,
    /// A stored message was not written, because the client was not available for it.
    passed_over: bool,
    /// Messages that were sent may be read from the store once more.
    repeats: bool,
    begins_tls: bool,
    resumed: bool,
}

// With its box and the conversation's own (`protocol::xmpp`) an idle session stays within 1 KiB of a native one.
const _: () = assert!(size_of::<Xmpp>() <= 128);

impl Xmpp {
    /// A stream header is expected. `starttls`: the server has a certificate for it.
    pub(crate) fn new(framing: Framing, is_tls: bool, starttls: bool) -> Self {
        let security = match framing {
            Framing::Stream if is_tls => Security::Encrypted,
            Framing::Stream if starttls => Security::StartTls,
            Framing::Stream => Security::Plaintext,
            // The TLS of the HTTP listener, or of a proxy, protects all its connections.
            _ => Security::Encrypted,
        };
        Self {
            framer: Framer::new(),
            conversation: Conversation::new(framing_of(framing), security),
            identity: None,
            resuming: None,
            passed_over: false,
            repeats: false,
            begins_tls: false,
            resumed: false,
        }
    }

    /// Calls the conversation, and carries out its actions.
    fn speak(&mut self, cx: &mut Context<'_>, speak: impl FnOnce(&mut Conversation, &Cx<'_>, &mut Output)) {
        let services = cx.services;
        let failed = Cell::new(false);
        let random = |bytes: &mut [u8]| {
            if service(services).random.fill(bytes).is_err() {
                failed.set(true);
            }
        };
        let pcx = Cx { config: &services.config.xmpp.protocol, random: &random, now_ms: cx.now.ms32() };
        let mut out = Output::default();
        speak(&mut self.conversation, &pcx, &mut out);
        if failed.get() {
            tracing::error!("the system has no randomness");
            return cx.push(Effect::Abort(CloseReason::Internal));
        }
        if !out.bytes.is_empty() {
            cx.send(out.bytes);
        }
        cx.frames.grant(out.requests);
        if self.conversation.wants_checkpoint() {
            schedule_checkpoint(cx);
        }
        if matches!(cx.facts.phase, Phase::Closing | Phase::Dead) {
            return; // its stream ends: what the client asked for is not done
        }
        let mut actions = out.actions.into_iter();
        let first = actions.next();
        // Each further action follows the effects of the one before.
        let rest: Vec<Action> = actions.collect();
        if let Some(action) = first {
            self.act(cx, action);
        }
        rest.into_iter().for_each(|action| cx.continue_with(Request::Act(action)));
    }

    /// The allowance of a connection of a conformance suite, whether it belongs to an account or has not logged in yet:
    /// a hundred times a device's, since suites send as fast as they can. A device has its own allowance also where
    /// suites run.
    fn conformance_rate(&self, services: &Services, has_session: bool) -> Option<Rate> {
        const MORE: u32 = 100;
        if !services.config.conformance {
            return None;
        }
        let is_account = self.conversation.account().is_some();
        let Rate { per_second, burst } = services.frame_rate();
        let [per_second, burst] = [per_second, burst].map(|it| it.saturating_mul(MORE));
        (is_account || !has_session).then_some(Rate { per_second, burst })
    }

    /// The connection's owner was not known before, so its allowance may differ now: where suites run, a connection
    /// that turns out to be a device's may send no more than a device.
    fn refill_frames(&self, cx: &mut Context<'_>) {
        if cx.config().conformance {
            let rate = self.conformance_rate(cx.services, cx.session.is_some());
            let rate = rate.unwrap_or_else(|| cx.services.frame_rate());
            *cx.frames = Bucket::full(rate, cx.now.ms32());
        }
    }
}

/// An open connection has no other deadline.
fn schedule_checkpoint(cx: &mut Context<'_>) {
    if cx.facts.phase == Phase::Open && *cx.deadline_tick == u32::MAX {
        cx.set_deadline(cx.now.tick_after(CHECKPOINT_AFTER));
    }
}

fn framing_of(framing: Framing) -> xmpp::Framing {
    match framing.is_websocket() {
        true => xmpp::Framing::WebSocket,
        false => xmpp::Framing::Stream,
    }
}
