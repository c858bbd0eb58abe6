//! Frames to the service, collected (F3, F7, L1).

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::connection::sorted;
use super::effect::Effect;
use super::machine::{Machine, Task};
use super::outbox::Kind;
use super::timer::Timer;
use crate::error::{Code, Error};
use crate::message::Position;

const FLUSH_INTERVAL: Duration = Duration::from_millis(100);
/// Of JSON, in the worst case: below the 64 KiB of `limits.client_message` (L1).
const FRAME_BYTES_MAX: usize = 60_000;
const FRAME_ENTRIES_MAX: usize = 1_000;

impl Machine {
    /// Flushes at the end of this input, or 100 ms after the last flush (F7).
    pub(super) fn flush_later(&mut self) {
        if !self.connection.in_session() || self.connection.will_flush {
            return;
        }
        self.connection.will_flush = true;
        let at = self.connection.flushed_at.map(|at| at + FLUSH_INTERVAL);
        match at.filter(|at| *at > self.now.at) {
            Some(at) => self.timers.set(Timer::Flush, at),
            None => self.tasks.push_back(Task::Flush { attempt: self.connection.attempt }),
        }
    }

    pub(super) fn flush_soon(&mut self, attempt: u64) {
        if attempt == self.connection.attempt && self.connection.will_flush {
            self.flush();
        }
    }

    /// Sends what waits. A stream with other topics begins, unless the service is about to end this one (X4).
    pub(super) fn flush(&mut self) {
        self.send_waiting();
        if self.connection.in_session()
            && self.connection.is_one_way()
            && self.connection.closing.is_none()
            && self.connection.dialed_topics != sorted(&self.stream_topics())
        {
            self.reopen();
        }
    }

    /// Topics that the request of a stream can name: it separates them by commas.
    pub(super) fn stream_topics(&self) -> Vec<String> {
        self.topics.iter().filter(|topic| !topic.contains(',')).map(str::to_owned).collect()
    }

    /// In the order of F3.
    pub(super) fn send_waiting(&mut self) {
        if !self.connection.in_session() {
            return;
        }
        self.timers.clear(Timer::Flush);
        self.connection.will_flush = false;
        let is_stream = self.connection.is_one_way();
        if self.is_idle != self.sent_idle {
            // P3
            self.sent_idle = self.is_idle;
            if is_stream {
                self.report_presence(); // X7
            } else {
                let frame = json!({"t": "presence", "state": self.presence()});
                self.send_collected(&frame);
            }
        }
        let (unsub, sub, acks) = (self.to_unsub.take(), self.to_sub.take(), self.acks.take());
        self.joined.extend(sub.iter().cloned());
        if is_stream {
            if !acks.is_empty() {
                self.connection.flushed_at = Some(self.now.at);
                self.report(Kind::Acks, &acks);
            }
            for topic in sub.into_iter().filter(|topic| topic.contains(',')) {
                let error =
                    Error::new(Code::BadTopic, "a stream has no topics with a comma; a WebSocket has");
                self.fail(error.about_topic(topic, String::new())); // X4
            }
            return;
        }
        for part in parts(&unsub) {
            self.send_collected(&json!({"t": "unsub", "topics": part}));
        }
        for part in parts(&sub) {
            let since = self.since(part);
            let mut frame = json!({"t": "sub", "topics": part});
            if !since.is_empty() {
                frame["since"] = json!(since);
            }
            self.send_collected(&frame);
        }
        for part in parts(&acks) {
            self.send_collected(&json!({"t": "ack", "ids": part}));
        }
    }

    /// R2.
    fn since(&mut self, topics: &[String]) -> BTreeMap<String, Option<Position>> {
        let mut since = BTreeMap::new();
        for topic in topics {
            if self.subscriptions.get(topic).is_some_and(|known| known.recovers) {
                let position = self.inflow.positions.get(topic).cloned();
                if position.is_none() {
                    self.asked.insert(topic.clone());
                }
                since.insert(topic.clone(), position);
            }
        }
        since
    }

    fn send_collected(&mut self, frame: &Value) {
        self.connection.flushed_at = Some(self.now.at);
        self.send(frame);
    }

    pub(super) fn send(&mut self, frame: &Value) {
        let attempt = self.connection.attempt;
        self.emit(Effect::Send { attempt, frame: frame.to_string() });
    }
}

/// Splits a list for frames (L1).
fn parts(texts: &[String]) -> Vec<&[String]> {
    let mut parts = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (n, text) in texts.iter().enumerate() {
        // Each unit of UTF-16 takes at most three bytes, or six of a control character, which only ids have. A topic appears once
        // more in `since`, with its position.
        let cost = 6 * text.encode_utf16().count() + 64;
        if n > start && (n - start >= FRAME_ENTRIES_MAX || bytes + cost > FRAME_BYTES_MAX) {
            parts.push(&texts[start..n]);
            (start, bytes) = (n, 0);
        }
        bytes += cost;
    }
    if start < texts.len() {
        parts.push(&texts[start..]);
    }
    parts
}
