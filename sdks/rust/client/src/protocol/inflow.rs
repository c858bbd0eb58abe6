//! Messages on their way to the application: each id once, in order, one at a time (D, A, R7).

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

use super::effect::Effect;
use super::machine::{Acknowledge, Machine, Moment, Task};
use crate::error::{BoxError, Code, Error};
use crate::event::{Event, Recovered};
use crate::message::{Message, Position};

/// Messages that wait for the application (L2).
pub(crate) const QUEUE_MAX: usize = 1_000;
/// Of all kinds. At most 1,000 of them are not handled, so at least 3,096 handled ones are remembered (D4).
const SEEN_MAX: usize = 4_096;

#[derive(Debug)]
enum Entry {
    Message {
        message: Message,
        session: u64,
    },
    /// Waits until all earlier messages are settled (R4).
    Recovered(Recovery),
}

#[derive(Debug)]
pub(super) struct Recovery {
    pub(super) topic: String,
    pub(super) complete: bool,
    pub(super) position: Option<Position>,
    /// The answer to `null` is not reported.
    pub(super) is_asked: bool,
    pub(super) session: u64,
}

#[derive(Debug, Default)]
pub(super) struct Inflow {
    queue: VecDeque<Entry>,
    /// The application has the first message of the queue.
    is_passed: bool,
    is_running: bool,
    /// Whether it was handled, and its place in `seen_order`.
    seen: HashMap<String, (bool, u64)>,
    seen_order: BTreeMap<u64, String>,
    seen_next: u64,
    /// Topics with a message that was not handled: acknowledging a later one would acknowledge it too (A3).
    blocked: HashSet<String>,
    /// Of topics: everything up to here was handled (R7).
    pub(super) positions: HashMap<String, Position>,
    /// X5: the last handled stored message of a stream, while none failed.
    pub(super) last_id: Option<String>,
    pub(super) session: u64,
    is_stream: bool,
    has_failed: bool,
}

impl Inflow {
    /// Begins a session: messages that were not handled arrive again.
    pub(super) fn restart(&mut self, is_stream: bool) {
        self.session += 1;
        self.is_stream = is_stream;
        if !is_stream {
            self.last_id = None; // X5
        }
        self.blocked.clear();
        self.has_failed = false;
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Forgets the messages that the application does not have yet. They arrive again.
    pub(super) fn drop_waiting(&mut self) {
        let kept = usize::from(self.is_passed).min(self.queue.len());
        for entry in self.queue.split_off(kept) {
            if let Entry::Message { message, .. } = entry {
                self.forget(message.id());
            }
        }
    }

    /// Moves the position of a topic forward, unless a message of the topic was not handled (R7).
    fn reach(&mut self, topic: &str, to: &Position) {
        if self.blocked.contains(topic) {
            return;
        }
        let known = self.positions.get(topic);
        if known.is_none_or(|known| known.epoch != to.epoch || known.offset < to.offset) {
            self.positions.insert(topic.to_owned(), to.clone()); // R5
        }
    }

    fn remember(&mut self, id: &str) {
        self.seen.insert(id.to_owned(), (false, self.seen_next));
        self.seen_order.insert(self.seen_next, id.to_owned());
        self.seen_next += 1;
        if self.seen.len() > SEEN_MAX {
            let is_handled = |id: &&String| self.seen.get(*id).is_some_and(|(is_handled, _)| *is_handled);
            if let Some(oldest) = self.seen_order.values().find(is_handled).cloned() {
                self.forget(&oldest);
            }
        }
    }

    fn forget(&mut self, id: &str) {
        if let Some((_, place)) = self.seen.remove(id) {
            self.seen_order.remove(&place);
        }
    }
}

impl Machine {
    /// Returns false if the queue is full.
    pub(super) fn receive(&mut self, message: Message) -> bool {
        if let Some((is_handled, _)) = self.inflow.seen.get(message.id()) {
            if *is_handled {
                let session = self.inflow.session;
                self.done(&message, session); // D2
            }
            return true;
        }
        if self.inflow.queue.len() >= QUEUE_MAX {
            return false;
        }
        self.inflow.remember(message.id());
        let session = self.inflow.session;
        self.inflow.queue.push_back(Entry::Message { message, session });
        self.pump();
        true
    }

    /// Reports a recovery once all earlier messages are settled (R4).
    pub(super) fn after_messages(&mut self, recovery: Recovery) {
        if self.inflow.queue.is_empty() {
            self.recovered(recovery);
            return;
        }
        self.inflow.queue.push_back(Entry::Recovered(recovery));
        self.pump();
    }

    fn recovered(&mut self, recovery: Recovery) {
        let Recovery { topic, complete, position, is_asked, session } = recovery;
        if !self.subscriptions.get(&topic).is_some_and(|known| known.recovers) {
            return;
        }
        let is_current = self.connection.in_session() && session == self.inflow.session;
        if let Some(position) = position.filter(|_| is_current) {
            self.inflow.reach(&topic, &position); // R7
        }
        if !is_asked {
            self.tell(Event::Recovered(Recovered { topic, complete: Some(complete) }));
        }
    }

    /// The result of `Pass`.
    pub(crate) fn settled(&mut self, now: Moment, result: Result<(), BoxError>) {
        self.input(now, |m| {
            if !m.inflow.is_passed {
                return;
            }
            m.inflow.is_passed = false;
            let is_handled = result.is_ok();
            if let Err(cause) = result {
                let text = format!("the application did not handle a message: {cause}");
                m.fail(Error::new(Code::ListenerFailed, text).caused_by(cause)); // A2
            }
            m.settle(is_handled);
            m.pump();
        });
    }

    /// The application has not taken the message of `Pass`, and will not. It arrives again.
    pub(crate) fn returned(&mut self, now: Moment) {
        self.input(now, |m| {
            if std::mem::take(&mut m.inflow.is_passed) {
                m.settle(false);
                m.pump();
            }
        });
    }

    pub(super) fn pump(&mut self) {
        if self.inflow.is_running {
            return;
        }
        self.inflow.is_running = true;
        while !self.inflow.is_passed {
            match self.inflow.queue.front() {
                None => break,
                Some(Entry::Recovered(_)) => {
                    if let Some(Entry::Recovered(recovery)) = self.shift() {
                        self.recovered(recovery);
                    }
                }
                Some(Entry::Message { .. }) if !self.is_listening => self.settle(false), // A4
                Some(Entry::Message { message, .. }) => {
                    let message = message.clone();
                    self.inflow.is_passed = true;
                    self.emit(Effect::Pass(message));
                }
            }
        }
        self.inflow.is_running = false;
    }

    fn shift(&mut self) -> Option<Entry> {
        let first = self.inflow.queue.pop_front();
        if self.inflow.queue.is_empty() {
            self.tasks.push_back(Task::CaughtUp);
        }
        first
    }

    /// Removes the first message.
    fn settle(&mut self, is_handled: bool) {
        let Some(Entry::Message { message, session }) = self.shift() else { return };
        if is_handled {
            if let Some((is_handled, _)) = self.inflow.seen.get_mut(message.id()) {
                *is_handled = true;
            }
            self.done(&message, session);
            return;
        }
        self.inflow.forget(message.id());
        self.inflow.has_failed = true;
        if let Some(topic) = message.topic() {
            self.inflow.blocked.insert(topic.to_owned());
        }
    }

    fn done(&mut self, message: &Message, session: u64) {
        if let Some(topic) = message.topic() {
            if self.inflow.blocked.contains(topic) {
                return;
            }
            if let Some(position) = message.position().filter(|_| self.topics.contains(topic)) {
                self.inflow.reach(topic, position); // R5
            }
        }
        if !message.is_stored() {
            return; // A7
        }
        if self.inflow.is_stream && session == self.inflow.session && !self.inflow.has_failed {
            self.inflow.last_id = Some(message.id().to_owned());
        }
        if self.config.acknowledge == Acknowledge::Handled || self.acked.contains(message.id()) {
            self.ack_ids(&[message.id()]);
        }
    }
}
