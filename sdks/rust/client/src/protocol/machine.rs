//! The state of a client, and the inputs of the application.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::time::Duration;

use super::connection::Connection;
use super::effect::Effect;
use super::inflow::Inflow;
use super::outbox::{Kind, Outboxes};
use super::request::Requests;
use super::set::OrderedSet;
use super::timer::{Timer, Timers};
use super::token::Tokens;
use crate::error::Error;
use crate::event::Event;
use crate::presence::PresenceMode;
use crate::state::{Reason, State, Transport};

const IDLE_AFTER: Duration = Duration::from_secs(10);
pub(super) const ACKS_MAX: usize = 10_000;
const ACKED_MAX: usize = 4_096;

/// When a stored message is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Acknowledge {
    /// After the application has handled it.
    #[default]
    Handled,
    /// When it arrives. A program that ends before it has handled the message loses it.
    Received,
    /// When the application calls [`Client::ack`](crate::Client::ack).
    Manual,
}

/// The time of an input.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Moment {
    /// Of a clock that never goes back.
    pub(crate) at: Duration,
    /// Since 1970.
    pub(crate) unix: Duration,
}

pub(crate) struct Config {
    pub(crate) acknowledge: Acknowledge,
    pub(crate) ping_interval: Duration,
    /// In the order of preference; one or two.
    pub(crate) transports: Vec<Transport>,
    /// Reports that an earlier process left.
    pub(crate) kept: Vec<String>,
    /// Whether `Keep` effects are wanted.
    pub(crate) keeps: bool,
    /// Whether the application handles messages.
    pub(crate) listens: bool,
    /// A number from 0 up to, but not including, 1.
    pub(crate) random: Box<dyn Fn() -> f64 + Send + Sync>,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("transports", &self.transports).finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(super) struct Subscription {
    pub(super) recovers: bool,
}

/// What happens at the end of an input.
#[derive(Debug)]
pub(super) enum Task {
    Flush { attempt: u64 },
    Report(Kind),
    CaughtUp,
}

#[derive(Debug)]
pub(crate) struct Machine {
    pub(super) config: Config,
    pub(super) now: Moment,
    effects: Vec<Effect>,
    pub(super) tasks: VecDeque<Task>,
    pub(super) timers: Timers,
    pub(super) tokens: Tokens,
    pub(super) inflow: Inflow,
    pub(super) requests: Requests,
    pub(super) outboxes: Outboxes,
    pub(super) connection: Connection,
    state: State,

    pub(super) subscriptions: HashMap<String, Subscription>,
    pub(super) topics: OrderedSet,
    /// Topics that a session had: without a position a gap cannot be excluded (R3).
    pub(super) joined: HashSet<String>,
    /// Topics whose position the service was asked for.
    pub(super) asked: HashSet<String>,
    pub(super) to_sub: OrderedSet,
    pub(super) to_unsub: OrderedSet,
    pub(super) acks: OrderedSet,
    /// Messages that the application acknowledged itself, for the case that they arrive again (D2).
    pub(super) acked: OrderedSet,
    pub(super) is_listening: bool,
    pub(super) is_idle: bool,
    pub(super) sent_idle: bool,
    preference: PresenceMode,
    is_hidden: bool,
}

impl Machine {
    /// In the state idle.
    pub(crate) fn new(config: Config) -> Self {
        let mut outboxes = Outboxes::default();
        let opened = outboxes.of_mut(Kind::Opened);
        opened.keeps = config.keeps;
        for id in &config.kept {
            opened.waiting.insert(id);
        }
        Self {
            is_listening: config.listens,
            config,
            outboxes,
            now: Moment::default(),
            effects: Vec::new(),
            tasks: VecDeque::new(),
            timers: Timers::default(),
            tokens: Tokens::default(),
            inflow: Inflow::default(),
            requests: Requests::default(),
            connection: Connection::default(),
            state: State::Idle,
            subscriptions: HashMap::new(),
            topics: OrderedSet::default(),
            joined: HashSet::new(),
            asked: HashSet::new(),
            to_sub: OrderedSet::default(),
            to_unsub: OrderedSet::default(),
            acks: OrderedSet::default(),
            acked: OrderedSet::default(),
            is_idle: false,
            sent_idle: false,
            preference: PresenceMode::Auto,
            is_hidden: false,
        }
    }

    /// What to carry out since the last call, in order.
    pub(crate) fn effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// When `advance` is due.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timers.next().map(|(at, _)| at)
    }

    /// Handles every timer that is due.
    pub(crate) fn advance(&mut self, now: Moment) {
        while let Some((at, timer)) = self.timers.next().filter(|(at, _)| *at <= now.at) {
            debug_assert!(at <= now.at);
            self.timers.clear(timer);
            self.input(now, |m| m.fire(timer));
        }
    }

    fn fire(&mut self, timer: Timer) {
        match timer {
            Timer::Retry => self.open(),
            Timer::Connect => self.connect_timeout(),
            Timer::Pong => self.connection_lost(),
            Timer::Beat => self.beat(),
            Timer::Renew => self.renew(),
            Timer::WebSocket => self.web_socket_again(),
            Timer::Flush => self.flush(),
            Timer::Idle => self.update_presence(),
            Timer::Token => self.token_timeout(),
            Timer::Opened => self.send_reports(Kind::Opened),
            Timer::Exposures => self.send_reports(Kind::Exposures),
            Timer::Acks => self.send_reports(Kind::Acks),
            Timer::Presence => self.send_reports(Kind::Presence),
            Timer::Repeat => self.repeat_reads(),
        }
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// How many messages wait for the application.
    pub(crate) fn waiting(&self) -> usize {
        self.inflow.len()
    }

    pub(super) fn emit(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    pub(super) fn tell(&mut self, event: Event) {
        self.emit(Effect::Tell(event));
    }

    /// Reports an error that no call returns.
    pub(super) fn fail(&mut self, error: Error) {
        self.tell(Event::Error(error));
    }

    pub(super) fn random(&self) -> f64 {
        (self.config.random)()
    }

    pub(super) fn input<R>(&mut self, now: Moment, handle: impl FnOnce(&mut Self) -> R) -> R {
        self.now = now;
        let result = handle(self);
        while let Some(task) = self.tasks.pop_front() {
            match task {
                Task::Flush { attempt } => self.flush_soon(attempt),
                Task::Report(kind) => self.send_reports(kind),
                Task::CaughtUp => self.caught_up(),
            }
        }
        result
    }

    pub(super) fn become_state(&mut self, state: State) {
        let is_connected = matches!(state, State::Connected { .. });
        self.state = state.clone();
        self.tell(Event::State(state));
        if is_connected {
            self.requests_connected();
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        matches!(self.state, State::Connected { .. })
    }

    pub(super) fn is_at_rest(&self) -> bool {
        matches!(self.state, State::Idle | State::Closed { .. })
    }

    /// Connects, and stays connected until `close` (S5).
    pub(crate) fn connect(&mut self, now: Moment) {
        self.input(now, |m| {
            m.open_outboxes();
            if m.is_at_rest() {
                m.connection.begin();
                m.open();
            }
        });
    }

    /// Sends pending acknowledgements, and ends the connection (S4).
    pub(crate) fn close(&mut self, now: Moment) {
        self.input(now, |m| {
            if !m.is_at_rest() {
                m.send_waiting();
                m.stop(Reason::Closed);
            }
            m.close_outboxes();
        });
    }

    /// Subscribes, or changes the options of a subscription.
    pub(crate) fn subscribe(&mut self, now: Moment, topic: &str, recovers: bool) {
        self.input(now, |m| {
            m.subscriptions.insert(topic.to_owned(), Subscription { recovers });
            if m.topics.insert(topic) {
                m.to_unsub.remove(topic);
                m.to_sub.insert(topic);
                m.flush_later();
            }
        });
    }

    /// Ends a subscription, and forgets its position (R6).
    pub(crate) fn unsubscribe(&mut self, now: Moment, topic: &str) {
        self.input(now, |m| {
            if m.topics.contains(topic) {
                m.forget(topic);
                m.to_unsub.insert(topic);
                m.flush_later();
            }
        });
    }

    /// Ends a subscription here.
    pub(super) fn forget(&mut self, topic: &str) {
        self.subscriptions.remove(topic);
        self.topics.remove(topic);
        self.joined.remove(topic);
        self.asked.remove(topic);
        self.to_sub.remove(topic);
        self.inflow.positions.remove(topic);
    }

    /// Whether the application handles messages.
    pub(crate) fn listen(&mut self, now: Moment, is_listening: bool) {
        self.input(now, |m| m.is_listening = is_listening);
    }

    /// Acknowledges messages that the application handled.
    pub(crate) fn ack(&mut self, now: Moment, ids: &[&str]) {
        self.input(now, |m| m.ack_ids(ids));
    }

    pub(super) fn ack_ids(&mut self, ids: &[&str]) {
        for id in ids {
            self.acks.insert(id);
            if self.config.acknowledge == Acknowledge::Manual {
                self.acked.insert(id);
                if self.acked.len() > ACKED_MAX {
                    self.acked.remove_oldest();
                }
            }
            if self.acks.len() > ACKS_MAX {
                self.acks.remove_oldest(); // O1
            }
        }
        self.flush_later();
    }

    /// States the presence (P1).
    pub(crate) fn set_presence(&mut self, now: Moment, mode: PresenceMode) {
        self.input(now, |m| {
            m.preference = mode;
            m.update_presence();
        });
    }

    /// Whether the user sees the application.
    pub(crate) fn set_hidden(&mut self, now: Moment, is_hidden: bool) {
        self.input(now, |m| {
            if is_hidden == m.is_hidden {
                return;
            }
            m.is_hidden = is_hidden;
            if is_hidden {
                m.timers.set(Timer::Idle, now.at + IDLE_AFTER);
            } else {
                m.update_presence();
                m.wake();
            }
        });
    }

    fn update_presence(&mut self) {
        self.timers.clear(Timer::Idle);
        self.is_idle = match self.preference {
            PresenceMode::Auto => self.is_hidden,
            PresenceMode::Active => false,
            PresenceMode::Idle => true,
        };
        self.flush_later();
    }

    /// As the service calls it.
    pub(super) fn presence(&self) -> &'static str {
        if self.is_idle { "idle" } else { "active" }
    }

    /// The network works again.
    pub(crate) fn network_returned(&mut self, now: Moment) {
        self.input(now, |m| {
            m.wake();
            m.wake_outboxes();
        });
    }

    fn wake(&mut self) {
        match self.state {
            State::Waiting { .. } if !self.connection.waits_for_hint => self.open(), // B5
            State::Connected { .. } => self.ping(),                                  // H3
            _ => {}
        }
    }
}
