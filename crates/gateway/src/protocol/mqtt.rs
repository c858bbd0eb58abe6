//! MQTT on a connection. The protocol itself is `noroshi_protocol::mqtt`; this adapter connects it to the session of a
//! device.
//!
//! The user name is the device (or the client identifier, without a user name), and the password is its token. Over a
//! WebSocket (`GET /mqtt`) packets may begin and end anywhere in binary messages (§6); the server sends one packet in
//! each message.
//!
//! Files: [`adapter`] packets to effects, and messages to packets, [`login`] CONNECT to a session, [`publish`],
//! [`subscribe`], [`job`] the queue of jobs, [`task`] what they do outside the shard, [`scan`] retained messages,
//! [`session`] what outlives a connection in memory, [`stored`] in the store, and [`final_write`] on the way there,
//! [`will`], [`close`].

use std::time::Duration;

use noroshi_protocol::mqtt::{Conversation, Decoder, Subscription, TopicFilter};
use noroshi_protocol::ws::{self, Opcode};
use noroshi_store::Place;
use noroshi_types::{CloseReason, Timestamp};
use tokio::sync::Semaphore;

use crate::io::timer::ticks;
use crate::metrics::Metrics;
use crate::protocol::context::Context;
use crate::protocol::services::Services;
use crate::session::parking::Capacity;
use crate::session::registry::Session;
use crate::wire::Protocol;

mod adapter;
mod close;
mod final_write;
mod job;
mod login;
mod publish;
mod scan;
pub(crate) mod session;
mod stored;
mod subscribe;
mod task;
mod will;

pub(crate) use adapter::Request;
use job::Queue;
use session::ParkedSessions;

/// What all connections of MQTT share.
pub(crate) struct Service {
    pub(crate) sessions: ParkedSessions,
    /// Limits how many pages of retained messages the node reads at once ([`scan`]).
    scan_pages: Semaphore,
}

impl Service {
    pub(crate) fn new(now: Timestamp, capacity: Capacity) -> Self {
        Self { sessions: ParkedSessions::new(now, capacity), scan_pages: Semaphore::new(scan::PAGES_AT_ONCE) }
    }

    pub(crate) fn observe(&self, metrics: &Metrics) {
        let (sessions, bytes) = self.sessions.held();
        metrics.observe_parked(Protocol::Mqtt, sessions, bytes);
    }
}

fn service(services: &Services) -> &Service {
    services.of::<Service>()
}

pub(crate) struct Mqtt {
    decoder: Decoder,
    conversation: Conversation,
    /// When the client last sent something.
    heard_tick: u32,
    /// Filters with wildcards were served up to here, or further.
    since: Place,
    /// Jobs that the client waits for.
    queue: Option<Box<Queue>>,
    /// How long the session outlives its connection.
    expiry_s: u32,
    clean_start: bool,
    /// The session continues with the subscriptions of an earlier connection: the client already has the retained
    /// messages of their topics.
    resumed: bool,
    /// It has or had shared subscriptions: the end of the connection ends or suspends them.
    has_shares: bool,
}

// With a conversation's 64 bytes and its decoder's 8.
const _: () = assert!(size_of::<Mqtt>() <= 104);

impl Mqtt {
    /// CONNECT is expected.
    pub(crate) fn new(now_tick: u32) -> Self {
        Self {
            decoder: Decoder::new(),
            conversation: Conversation::new(),
            heard_tick: now_tick,
            since: Place(0),
            queue: None,
            expiry_s: 0,
            clean_start: true,
            resumed: false,
            has_shares: false,
        }
    }

    /// `due`: topics and filters whose retained messages were not read yet.
    fn subscriptions(&self, due: &[Box<str>]) -> Vec<Subscription> {
        let held = self.conversation.subscriptions().cloned();
        let is_due = |held: &Subscription| due.iter().any(|due| **due == *held.filter.as_str());
        held.map(|held| Subscription { retained_due: is_due(&held), ..held }).collect()
    }

    fn wildcard_filters(&self) -> Vec<TopicFilter> {
        let filters = self.conversation.subscriptions().map(|held| &held.filter);
        filters.filter(|filter| filter.has_wildcards()).cloned().collect()
    }

    /// Sets when the client will have been silent for too long.
    fn set_timeout(&self, cx: &mut Context<'_>) {
        let silence = self.conversation.idle_timeout_ms().map(Duration::from_millis);
        let due = silence.map_or(u32::MAX, |silence| self.heard_tick.saturating_add(ticks(silence)));
        cx.set_timeout(due.saturating_add(1));
    }

    /// Lets the conversation answer. If it cannot, the connection closes.
    fn answer(
        &mut self,
        cx: &mut Context<'_>,
        answer: impl FnOnce(&mut Conversation, &mut Vec<u8>) -> Result<(), CloseReason>,
    ) {
        let mut out = Vec::new();
        let result = answer(&mut self.conversation, &mut out);
        send(cx, out);
        if let Err(reason) = result {
            cx.close(reason);
        }
    }
}

fn send(cx: &mut Context<'_>, out: Vec<u8>) {
    if out.is_empty() {
        return;
    }
    match cx.facts.framing.is_websocket() {
        true => cx.send(ws::frame(Opcode::Binary, &out)),
        false => cx.send(out),
    }
}

/// Half of a hash, so that it does not reveal the device.
fn origin(session: &Session) -> u64 {
    (session.device_key >> 64) as u64
}
