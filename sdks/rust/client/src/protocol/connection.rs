//! Connections: attempts, sessions, their ends, and the wait until the next one (S, B, C, H, X).

use std::time::Duration;

use super::backoff::{backoff, rounded};
use super::close::{reason_of, rejects_token};
use super::effect::{Dial, Effect, Ended};
use super::incoming::CloseFrame;
use super::machine::{Machine, Moment};
use super::timer::Timer;
use super::token::Waiter;
use crate::error::{Code, Error};
use crate::event::{Event, Recovered};
use crate::state::{Reason, State, Transport};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
pub(super) const PONG_TIMEOUT: Duration = Duration::from_secs(10);
const STABLE_AFTER: Duration = Duration::from_secs(5);
const WEB_SOCKET_AGAIN: Duration = Duration::from_secs(300);
/// Whatever the service says, the client is not busy with pings.
const PING_INTERVAL_MIN: Duration = Duration::from_millis(100);
const PING_INTERVAL_MAX_S: f64 = 86_400.0;
/// Of a service that does not say it: `gateway.ping_interval`.
const SERVER_PING_S: f64 = 240.0;
/// Four minutes between comments of a stream, which has no `ping_s`, and half a minute for them to arrive (X8).
const STREAM_SILENCE: Duration = Duration::from_secs(270);
const REJECTIONS_MAX: u32 = 5;
/// A day.
const HINT_MAX_MS: u64 = 86_400_000;
/// T5 begins with 4 s: the backoff after three failures.
const RENEWAL_FAILURES: u32 = 3;

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) transport: Transport,
    /// Number of the newest attempt. Reports about others are outdated.
    pub(super) attempt: u64,
    is_dialed: bool,
    is_open: bool,
    failures: u32,
    /// In a row.
    rejections: u32,
    /// Attempts in a row of the WebSocket that found no server.
    unopened: u32,
    /// X3: streams in between do not postpone it.
    web_socket_at: Option<Duration>,
    /// Only in a session.
    ready_at: Option<Duration>,
    pub(super) closing: Option<CloseFrame>,
    pub(super) waits_for_hint: bool,
    pub(super) is_too_slow: bool,
    heard_at: Duration,
    beat_interval: Duration,
    pub(super) flushed_at: Option<Duration>,
    pub(super) will_flush: bool,
    renewals: u32,
    /// The next renewal sends the current token again (T5).
    renews_with_current: bool,
    /// The token of a frame that was not answered with an error.
    pub(super) sent_token: Option<String>,
    /// The token of the session; requests may have got a newer one.
    token: String,
    /// The topics in the request of a stream.
    pub(super) dialed_topics: Vec<String>,
}

impl Default for Connection {
    fn default() -> Self {
        Self {
            transport: Transport::WebSocket,
            attempt: 0,
            is_dialed: false,
            is_open: false,
            failures: 0,
            rejections: 0,
            unopened: 0,
            web_socket_at: None,
            ready_at: None,
            closing: None,
            waits_for_hint: false,
            is_too_slow: false,
            heard_at: Duration::ZERO,
            beat_interval: Duration::ZERO,
            flushed_at: None,
            will_flush: false,
            renewals: 0,
            renews_with_current: false,
            sent_token: None,
            token: String::new(),
            dialed_topics: Vec::new(),
        }
    }
}

impl Connection {
    /// The application connects: earlier failures do not count.
    pub(super) fn begin(&mut self) {
        (self.failures, self.rejections, self.unopened) = (0, 0, 0);
    }

    pub(super) fn in_session(&self) -> bool {
        self.ready_at.is_some()
    }

    pub(super) fn is_one_way(&self) -> bool {
        self.transport == Transport::Sse
    }

    fn is_current(&self, attempt: u64) -> bool {
        self.is_dialed && attempt == self.attempt
    }
}

impl Machine {
    pub(super) fn open(&mut self) {
        self.timers.clear(Timer::Retry);
        let connection = &mut self.connection;
        connection.attempt += 1;
        connection.closing = None;
        connection.ready_at = None;
        connection.is_open = false;
        let attempt = connection.attempt;
        self.become_state(State::Connecting);
        self.take_token(Waiter::Open { attempt });
    }

    pub(super) fn token_to_open(&mut self, attempt: u64, result: Result<&str, Error>) {
        if attempt != self.connection.attempt {
            return;
        }
        match result {
            Ok(token) => self.dial(token),
            Err(error) if *error.code() == Code::SignedOut => self.stop(Reason::SignedOut), // T7
            Err(error) => {
                self.fail(error);
                let wait = self.own_backoff();
                self.retry(Reason::ConnectionLost, wait, false);
            }
        }
    }

    /// Counts a failure.
    fn own_backoff(&mut self) -> Duration {
        let failures = self.connection.failures;
        self.connection.failures = failures.saturating_add(1);
        backoff(failures, self.random())
    }

    fn dial(&mut self, token: &str) {
        let is_fallback = self.connection.unopened >= 2 && self.config.transports.len() > 1; // X1
        let transport = self.config.transports[usize::from(is_fallback)];
        let topics = self.stream_topics();
        let connection = &mut self.connection;
        connection.transport = transport;
        token.clone_into(&mut connection.token);
        connection.dialed_topics = sorted(&topics);
        connection.is_dialed = true;
        let attempt = connection.attempt;
        self.timers.set(Timer::Connect, self.now.at + CONNECT_TIMEOUT); // S3
        self.emit(Effect::Dial(match transport {
            Transport::WebSocket => {
                Dial { attempt, transport, token: None, topics: Vec::new(), last_event_id: None }
            }
            Transport::Sse => Dial {
                attempt,
                transport,
                token: Some(token.to_owned()),
                topics,
                last_event_id: self.inflow.last_id.clone(),
            },
        }));
    }

    /// The WebSocket is open, or the stream has begun with status 200.
    pub(crate) fn opened(&mut self, now: Moment, attempt: u64) {
        self.input(now, |m| {
            if !m.connection.is_current(attempt) || m.connection.is_open {
                return;
            }
            m.connection.is_open = true;
            if m.connection.is_one_way() {
                m.connection.unopened = 2;
                m.ready(None, None); // X6
            } else {
                m.connection.unopened = 0;
                let token = m.connection.token.clone();
                m.send(&serde_json::json!({"t": "connect", "token": token})); // F1
            }
        });
    }

    /// Bytes arrived.
    pub(crate) fn heard(&mut self, now: Moment, attempt: u64) {
        self.input(now, |m| m.hear(attempt));
    }

    fn hear(&mut self, attempt: u64) {
        if self.connection.is_current(attempt) {
            self.connection.heard_at = self.now.at;
            self.timers.clear(Timer::Pong);
        }
    }

    /// A message of the service. None: a binary one.
    pub(crate) fn frame(&mut self, now: Moment, attempt: u64, text: Option<&str>) {
        self.input(now, |m| {
            if m.connection.is_current(attempt) && m.connection.is_open {
                m.hear(attempt);
                m.handle_frame(text);
            }
        });
    }

    /// The connection ended, or could not be opened.
    pub(crate) fn ended(&mut self, now: Moment, attempt: u64, end: &Ended) {
        self.input(now, |m| {
            if m.connection.is_current(attempt) {
                m.end(end);
            }
        });
    }

    pub(super) fn connect_timeout(&mut self) {
        self.end(&Ended::default());
    }

    pub(super) fn connection_lost(&mut self) {
        self.lost(&Ended::default());
    }

    fn end(&mut self, end: &Ended) {
        if !self.connection.is_open {
            if self.connection.is_one_way() {
                self.connection.unopened = 0; // X2
            } else {
                self.connection.unopened += 1;
            }
        }
        self.lost(end);
    }

    pub(super) fn ready(&mut self, device: Option<String>, ping_s: Option<f64>) {
        if self.connection.in_session() {
            return;
        }
        self.timers.clear(Timer::Connect);
        let is_stream = self.connection.is_one_way();
        self.connection.ready_at = Some(self.now.at);
        self.connection.heard_at = self.now.at;
        self.connection.rejections = 0;
        self.connection.flushed_at = None;
        self.inflow.restart(is_stream);
        self.sent_idle = false; // P2
        self.to_unsub.clear();
        self.asked.clear();
        for topic in self.topics.to_vec() {
            self.to_sub.insert(&topic); // R1
            let recovers = self.subscriptions.get(&topic).is_some_and(|known| known.recovers);
            if !recovers || !self.joined.contains(&topic) {
                continue;
            }
            let is_known = match is_stream {
                true => self.inflow.last_id.is_some(),
                false => self.inflow.positions.contains_key(&topic),
            };
            match (is_known, is_stream) {
                (false, _) => self.tell(Event::Recovered(Recovered { topic, complete: Some(false) })), // R3
                (true, true) => self.tell(Event::Recovered(Recovered { topic, complete: None })),      // X6
                (true, false) => {}
            }
        }
        self.begin_beat(ping_s);
        self.schedule_renewal();
        if !is_stream {
            self.connection.web_socket_at = None;
        } else if self.config.transports.len() > 1 {
            // X3
            let at = *self.connection.web_socket_at.get_or_insert(self.now.at + WEB_SOCKET_AGAIN);
            self.timers.set(Timer::WebSocket, at);
        }
        self.become_state(State::Connected { transport: self.connection.transport, device });
        self.flush();
    }

    pub(super) fn web_socket_again(&mut self) {
        self.connection.web_socket_at = None;
        self.connection.unopened = 0;
        self.reopen();
    }

    pub(super) fn reopen(&mut self) {
        self.detach();
        self.open();
    }

    /// Starts the heartbeat of a session (H1, H2, X8).
    fn begin_beat(&mut self, ping_s: Option<f64>) {
        let ping_s = ping_s.filter(|seconds| *seconds > 0.0).unwrap_or(SERVER_PING_S);
        let of_server = Duration::from_secs_f64(ping_s.min(PING_INTERVAL_MAX_S));
        let of_socket = self.config.ping_interval.min(of_server).max(PING_INTERVAL_MIN);
        let is_stream = self.connection.is_one_way();
        self.connection.beat_interval = if is_stream { STREAM_SILENCE } else { of_socket };
        self.timers.set(Timer::Beat, self.now.at + self.connection.beat_interval);
    }

    pub(super) fn beat(&mut self) {
        let at = self.connection.heard_at + self.connection.beat_interval;
        if at > self.now.at {
            self.timers.set(Timer::Beat, at);
        } else if self.connection.is_one_way() {
            self.connection_lost();
        } else {
            self.ping();
            self.timers.set(Timer::Beat, self.now.at + self.connection.beat_interval);
        }
    }

    pub(super) fn ping(&mut self) {
        if !self.connection.is_one_way() && !self.timers.is_set(Timer::Pong) {
            self.send(&serde_json::json!({"t": "ping"}));
            self.timers.set(Timer::Pong, self.now.at + PONG_TIMEOUT);
        }
    }

    pub(super) fn schedule_renewal(&mut self) {
        self.connection.sent_token = None;
        self.connection.renews_with_current = false;
        if let Some(at) = self.tokens.renew_at {
            self.timers.set(Timer::Renew, at.max(self.now.at));
        }
    }

    /// T5.
    pub(super) fn renew_later(&mut self, with_current: bool) {
        let renewals = self.connection.renewals;
        self.connection.renewals = renewals.saturating_add(1);
        self.connection.renews_with_current = with_current;
        let wait = backoff(RENEWAL_FAILURES.saturating_add(renewals), self.random());
        self.timers.set(Timer::Renew, self.now.at + wait);
    }

    /// Sends another token over the open connection (T4).
    pub(super) fn renew(&mut self) {
        let waiter = Waiter::Renew { attempt: self.connection.attempt };
        match self.connection.renews_with_current {
            true => self.take_token(waiter),
            false => self.renew_token(waiter),
        }
    }

    pub(super) fn token_to_renew(&mut self, attempt: u64, result: Result<&str, Error>) {
        if attempt != self.connection.attempt || !self.is_connected() {
            return;
        }
        match result {
            Err(error) if *error.code() == Code::SignedOut => self.stop(Reason::SignedOut),
            Err(error) => {
                self.fail(error);
                self.renew_later(false);
            }
            Ok(_) if self.connection.is_one_way() => self.reopen(), // X8
            Ok(token) => {
                self.send(&serde_json::json!({"t": "token", "token": token}));
                self.schedule_renewal();
                self.connection.sent_token = Some(token.to_owned());
                token.clone_into(&mut self.connection.token);
            }
        }
    }

    /// Ends the connection: no event of it is handled any more.
    pub(super) fn detach(&mut self) {
        use Timer::{Beat, Connect, Flush, Pong, Renew, Retry, WebSocket};
        for timer in [Connect, Pong, Beat, Renew, WebSocket, Flush, Retry] {
            self.timers.clear(timer);
        }
        let connection = &mut self.connection;
        let attempt = connection.attempt;
        connection.attempt += 1;
        connection.will_flush = false;
        connection.renewals = 0;
        connection.ready_at = None;
        if std::mem::take(&mut connection.is_dialed) {
            self.emit(Effect::Hangup { attempt });
        }
        self.forget_presence();
    }

    pub(super) fn stop(&mut self, reason: Reason) {
        self.detach();
        self.timers.clear(Timer::Idle);
        self.connection.is_too_slow = false;
        self.inflow.drop_waiting(); // S4
        self.become_state(State::Closed { reason });
    }

    fn lost(&mut self, end: &Ended) {
        let closing = self.connection.closing.take();
        let ready_at = self.connection.ready_at;
        let reason = match (&closing, end.code.and_then(reason_of), end.status) {
            (Some(closing), ..) => Reason::from(closing.reason.as_str()),
            (None, Some(reason), _) => reason,
            (None, None, Some(401)) => Reason::from(end.problem.as_deref().unwrap_or("unauthorized")),
            _ => Reason::ConnectionLost,
        };
        self.detach();
        if ready_at.is_some_and(|at| self.now.at.saturating_sub(at) >= STABLE_AFTER) {
            self.connection.failures = 0; // B2
        }
        if rejects_token(&reason) || end.status == Some(401) {
            self.rejected(reason);
            return;
        }
        if reason == Reason::Replaced || closing.as_ref().is_some_and(|frame| frame.reconnect == Some(false))
        {
            self.stop(reason); // C2, C4
            return;
        }
        let of_frame = closing.and_then(|frame| frame.after_ms);
        // A negative number or a fraction is not from the service.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let of_frame = of_frame.map(|ms| Duration::from_millis((ms.max(0.0) as u64).min(HINT_MAX_MS)));
        let hint = of_frame.or(end.retry_after);
        let own = match hint {
            Some(_) if self.connection.failures == 0 => {
                self.connection.failures = 1;
                Duration::ZERO
            }
            _ => self.own_backoff(), // B3
        };
        let is_hint = hint.is_some_and(|hint| hint >= own);
        self.retry(reason, hint.unwrap_or_default().max(own), is_hint);
    }

    /// C3.
    fn rejected(&mut self, reason: Reason) {
        let token = std::mem::take(&mut self.connection.token);
        self.tokens.reject(&token);
        self.connection.rejections += 1;
        if self.connection.rejections > REJECTIONS_MAX {
            self.fail(Error::new(Code::Unauthorized, "the service rejected 6 tokens in a row"));
            self.stop(Reason::Unauthorized);
            return;
        }
        let failures = self.connection.failures;
        self.connection.failures = failures.saturating_add(1);
        let wait = match reason {
            _ if self.connection.rejections > 1 => backoff(failures, self.random()),
            Reason::Revoked => rounded(1_000.0 + 1_000.0 * self.random()),
            _ => Duration::ZERO,
        };
        self.retry(reason, wait, false);
    }

    fn retry(&mut self, reason: Reason, wait: Duration, is_hint: bool) {
        self.connection.waits_for_hint = is_hint;
        self.become_state(State::Waiting { reason, retry_in: Some(wait) });
        self.timers.set(Timer::Retry, self.now.at + wait);
    }

    /// L2: messages that were not handled arrive again after the application has caught up.
    pub(super) fn too_slow(&mut self) {
        self.connection.is_too_slow = true;
        self.detach();
        self.connection.waits_for_hint = true;
        self.fail(Error::new(Code::QueueFull, "1,000 messages wait for the application"));
        self.become_state(State::Waiting { reason: Reason::QueueFull, retry_in: None });
    }

    pub(super) fn caught_up(&mut self) {
        if !self.connection.is_too_slow || self.inflow.len() > 0 {
            return;
        }
        self.connection.is_too_slow = false;
        if matches!(self.state(), State::Waiting { reason: Reason::QueueFull, .. }) {
            self.open();
        }
    }
}

/// For the comparison of sets of topics.
pub(super) fn sorted(topics: &[String]) -> Vec<String> {
    let mut topics = topics.to_vec();
    topics.sort_unstable();
    topics
}
