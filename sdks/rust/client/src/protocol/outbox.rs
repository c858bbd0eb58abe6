//! Reports that wait for the network: bounded, sent in batches, repeated (O1 to O6).

use http::Method;
use serde_json::json;

use super::backoff::backoff;
use super::effect::Effect;
use super::machine::{ACKS_MAX, Machine, Task};
use super::request::{Call, Purpose};
use super::set::OrderedSet;
use super::timer::Timer;
use crate::error::{Code, Error};

/// Ids of messages in a request, and reports of opened messages that wait.
const BATCH_MAX: usize = 1_000;
const EXPOSURES_MAX: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Opened,
    Exposures,
    Acks,
    /// Of a stream; the newest replaces earlier ones (X7).
    Presence,
}

const COUNT: usize = Kind::Presence as usize + 1;

pub(super) const KINDS: [Kind; COUNT] = [Kind::Opened, Kind::Exposures, Kind::Acks, Kind::Presence];

impl Kind {
    fn timer(self) -> Timer {
        match self {
            Kind::Opened => Timer::Opened,
            Kind::Exposures => Timer::Exposures,
            Kind::Acks => Timer::Acks,
            Kind::Presence => Timer::Presence,
        }
    }

    fn path(self) -> &'static str {
        match self {
            Kind::Opened => "/v1/me/opened",
            Kind::Exposures => "/v1/me/exposures",
            Kind::Acks => "/v1/me/inbox/ack",
            Kind::Presence => "/v1/me/presence",
        }
    }

    fn call(self, entries: &[String]) -> Call {
        let (method, body) = match self {
            Kind::Opened | Kind::Acks => (Method::POST, json!({"ids": entries})),
            Kind::Exposures => (Method::POST, json!({"experiments": entries})),
            Kind::Presence => (Method::PUT, json!({"state": entries.first()})),
        };
        Call { body: Some(body.to_string()), ..Call::new(method, self.path()) }
    }

    fn batch(self) -> usize {
        match self {
            Kind::Opened | Kind::Acks => BATCH_MAX,
            Kind::Exposures => EXPOSURES_MAX,
            Kind::Presence => 1,
        }
    }

    fn max(self) -> usize {
        match self {
            Kind::Opened => BATCH_MAX,
            Kind::Exposures => EXPOSURES_MAX,
            Kind::Acks => ACKS_MAX,
            Kind::Presence => 1,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Outbox {
    pub(super) waiting: OrderedSet,
    pub(super) keeps: bool,
    failures: u32,
    /// Entries of a request, while a bad one is sought (O4).
    limit: Option<usize>,
    is_busy: bool,
    /// The answer to the present request says nothing about what waits now.
    is_outdated: bool,
    is_closed: bool,
    will_send: bool,
}

#[derive(Debug, Default)]
pub(super) struct Outboxes([Outbox; COUNT]);

impl Outboxes {
    pub(super) fn of(&self, kind: Kind) -> &Outbox {
        &self.0[kind as usize]
    }

    pub(super) fn of_mut(&mut self, kind: Kind) -> &mut Outbox {
        &mut self.0[kind as usize]
    }
}

impl Machine {
    pub(super) fn report(&mut self, kind: Kind, entries: &[String]) {
        for entry in entries {
            let outbox = self.outboxes.of_mut(kind);
            outbox.waiting.insert(entry);
            if outbox.waiting.len() > kind.max() {
                outbox.waiting.remove_oldest();
                if kind == Kind::Presence {
                    continue;
                }
                self.fail(Error::new(Code::QueueFull, format!("too many reports wait for {}", kind.path()))); // O2
            }
        }
        self.keep_reports(kind);
        if !self.timers.is_set(kind.timer()) {
            self.send_reports_later(kind);
        }
    }

    fn keep_reports(&mut self, kind: Kind) {
        let outbox = self.outboxes.of(kind);
        if outbox.keeps {
            let ids = outbox.waiting.to_vec();
            self.emit(Effect::Keep(ids));
        }
    }

    /// Sends at the end of this input.
    pub(super) fn send_reports_later(&mut self, kind: Kind) {
        let outbox = self.outboxes.of_mut(kind);
        if !outbox.will_send && !outbox.is_busy && !outbox.waiting.is_empty() {
            outbox.will_send = true;
            self.tasks.push_back(Task::Report(kind));
        }
    }

    pub(super) fn open_outboxes(&mut self) {
        for kind in KINDS {
            self.outboxes.of_mut(kind).is_closed = false;
            self.send_reports_later(kind);
        }
    }

    /// Tries at once what waits after a failure.
    pub(super) fn wake_outboxes(&mut self) {
        for kind in KINDS {
            if self.timers.is_set(kind.timer()) {
                self.send_reports(kind);
            }
        }
    }

    /// Sends what has not been tried, and nothing later.
    pub(super) fn close_outboxes(&mut self) {
        for kind in KINDS {
            if !self.timers.is_set(kind.timer()) {
                self.send_reports(kind);
            }
            self.outboxes.of_mut(kind).is_closed = true;
            self.timers.clear(kind.timer());
        }
    }

    /// The stream has ended: the next one is active (P2).
    pub(super) fn forget_presence(&mut self) {
        self.timers.clear(Timer::Presence);
        let outbox = self.outboxes.of_mut(Kind::Presence);
        outbox.waiting.clear();
        outbox.is_outdated = outbox.is_busy;
    }

    pub(super) fn send_reports(&mut self, kind: Kind) {
        let outbox = self.outboxes.of_mut(kind);
        outbox.will_send = false;
        if outbox.is_busy || outbox.is_closed || outbox.waiting.is_empty() {
            return;
        }
        outbox.is_busy = true;
        let count = outbox.limit.unwrap_or(kind.batch());
        let entries: Vec<String> = outbox.waiting.iter().take(count).map(str::to_owned).collect();
        self.timers.clear(kind.timer());
        self.request(kind.call(&entries), Purpose::Report { kind, entries });
    }

    pub(super) fn reported(&mut self, kind: Kind, entries: &[String], result: Result<(), Error>) {
        let outbox = self.outboxes.of_mut(kind);
        outbox.is_busy = false;
        if std::mem::take(&mut outbox.is_outdated) {
            self.send_reports_later(kind);
            return;
        }
        match result {
            Err(error) if can_repeat(&error) => {
                if outbox.is_closed {
                    return;
                }
                let failures = outbox.failures;
                outbox.failures = failures.saturating_add(1);
                let wait = backoff(failures, self.random()).max(error.retry_after().unwrap_or_default()); // O3
                self.timers.set(kind.timer(), self.now.at + wait);
                return;
            }
            // O4: the service rejects all entries for a bad one.
            Err(error) if entries.len() > 1 && matches!(error.status(), Some(400 | 413 | 422)) => {
                outbox.limit = Some(entries.len() / 2);
                self.send_reports_later(kind);
                return;
            }
            Err(error) => {
                outbox.limit = None;
                self.fail(error);
            }
            Ok(()) => outbox.failures = 0,
        }
        let outbox = self.outboxes.of_mut(kind);
        for entry in entries {
            outbox.waiting.remove(entry);
        }
        self.keep_reports(kind);
        self.send_reports_later(kind);
    }
}

/// Whether another attempt can help.
fn can_repeat(error: &Error) -> bool {
    error.status().is_none_or(|status| status >= 500 || matches!(status, 401 | 408 | 429))
}
