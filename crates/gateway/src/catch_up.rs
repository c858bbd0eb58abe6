//! From the store to live, without a gap, a repetition or a change of order.
//!
//! A session that logged in is attached before anything of its backlog is written, so whatever is
//! committed from then on comes by live. While the backlog is being read, page by page and each only
//! when the socket took the last, live messages are *held*. The last page is a read that began after
//! the attaching, or one before which no stamp moved ([`crate::stamp`]): together with what is held
//! it is everything. Ids tell the order of commits, so what is held and not above the connection's
//! watermark (the highest id the pages brought) was in a page and is dropped; the rest follows in
//! order, and the connection is live. If more comes than may be held, the backlog is read on instead.
//!
//! A subscription made on an open connection does the same for one topic by offsets: into the index
//! first, then the read, then what was held above the last offset read. A message that the read
//! brought but whose mail is still on its way is skipped by the index ([`crate::topic_index`]).
//!
//! All of this exists only until it is done: an idle connection owns none of it.

use std::collections::VecDeque;
use std::sync::Arc;

use noroshi_delivery::Error;
use noroshi_protocol::native;
use noroshi_store::{Backlog, BacklogPage, Recover};
use noroshi_types::{CloseReason, Message, NotificationId, Outcome, Position, Topic};

use crate::connection::{Connection, Phase, Protocol, Subscription};
use crate::dispatch::Dispatch;
use crate::mailbox::Reply;
use crate::registry::Key;
use crate::shard::Shard;

/// Reads of one shard out at once: logins of a storm take turns.
pub(crate) const READS_MAX: usize = 64;
/// Live messages held for one connection or one of its topics; more are read from the store.
const HELD_MAX: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// To be read when the socket took what was written.
    Wanted,
    /// In the queue or out.
    Reading,
    /// All was written; what is held follows when the socket took it.
    Read,
    Done,
}

/// What a connection has to catch up with.
pub(crate) struct CatchUp {
    stage: Stage,
    after: Option<NotificationId>,
    own_topics: Vec<Topic>,
    /// By id; each is written at its place.
    retained: VecDeque<Arc<Message>>,
    held: VecDeque<Arc<Dispatch>>,
    /// Something was committed that is neither in the pages nor held.
    missed: bool,
    /// One at a time, once the backlog is done.
    recoveries: VecDeque<Recovery>,
    /// Of the last page written: allowed to be unsent besides the usual.
    pub(crate) page_bytes: usize,
}

struct Recovery {
    /// Tells answers apart.
    number: u64,
    index: u32,
    topic: Topic,
    stage: Stage,
    since: Option<Position>,
    /// The client named a position: it is told when that is done.
    told: bool,
    retained: bool,
    complete: bool,
    last: Option<Position>,
    held: VecDeque<Arc<Dispatch>>,
    missed: bool,
}

/// Reads that wait for their turn.
#[derive(Default)]
pub(crate) struct Reads {
    waiting: VecDeque<(u32, u64)>,
    out: usize,
    recoveries: u64,
}

impl CatchUp {
    fn new(stage: Stage, after: Option<NotificationId>) -> Self {
        Self {
            stage,
            after,
            own_topics: Vec::new(),
            retained: VecDeque::new(),
            held: VecDeque::new(),
            missed: false,
            recoveries: VecDeque::new(),
            page_bytes: 0,
        }
    }

    /// The first page came with the log-in. `missed`: something may have been committed since.
    pub(crate) fn after_log_in(resume: Option<NotificationId>, own_topics: Vec<Topic>, missed: bool) -> Self {
        Self { own_topics, missed, ..Self::new(Stage::Reading, resume) }
    }

    /// Whether a live message has to wait. `topic`: its index.
    pub(crate) fn hold(&mut self, dispatch: &Arc<Dispatch>, topic: Option<u32>) -> Hold {
        if !dispatch.is_ordered() {
            return Hold::Not;
        }
        let recovery = topic.and_then(|index| self.recoveries.iter_mut().find(|r| r.index == index));
        let (held, missed, releasing) = match recovery {
            Some(recovery) => (&mut recovery.held, &mut recovery.missed, recovery.stage == Stage::Done),
            None if self.stage != Stage::Done => {
                (&mut self.held, &mut self.missed, self.stage == Stage::Read)
            }
            None => return Hold::Not,
        };
        // While the held ones go out, none may follow one that was missed: it is read first.
        if held.len() < HELD_MAX && !(*missed && releasing) {
            held.push_back(dispatch.clone());
            return Hold::Held;
        }
        *missed = true;
        Hold::Missed
    }
}

/// What became of a live message at a connection that catches up.
pub(crate) enum Hold {
    /// It is none of those that wait.
    Not,
    Held,
    /// No room: if it is kept it will be read.
    Missed,
}

impl CatchUp {
    /// Remembers that a held message goes out. False if a read brought it.
    fn pass(&mut self, message: &Message) -> bool {
        let Some(place) = message.topic.as_ref().filter(|_| self.stage == Stage::Done) else {
            self.after = self.after.max(Some(message.id));
            return true;
        };
        let Some(recovery) = self.recoveries.front_mut().filter(|recovery| recovery.topic == place.topic)
        else {
            return true;
        };
        if recovery.last.is_some_and(|last| reaches(last, place.position)) {
            return false;
        }
        recovery.last = Some(place.position);
        true
    }
}

/// Whether reading up to `last` brought what is at `position`.
fn reaches(last: Position, position: Position) -> bool {
    last.epoch == position.epoch && position.offset <= last.offset
}

/// What is to be done next for a connection that catches up.
enum Step {
    Wait,
    Read,
    Release(Arc<Dispatch>),
    Recovered { topic: Topic, complete: bool, told: bool, index: u32, last: Option<Position> },
    Done,
}

impl CatchUp {
    fn step(&mut self) -> Step {
        match self.stage {
            Stage::Reading => return Step::Wait,
            Stage::Read if self.missed => self.stage = Stage::Wanted,
            Stage::Read => match self.held.pop_front() {
                Some(dispatch) => return Step::Release(dispatch),
                None => self.stage = Stage::Done,
            },
            Stage::Wanted | Stage::Done => {}
        }
        if self.stage == Stage::Wanted {
            self.stage = Stage::Reading;
            return Step::Read;
        }
        let Some(recovery) = self.recoveries.front_mut() else { return Step::Done };
        match recovery.stage {
            Stage::Reading => Step::Wait,
            Stage::Wanted => {
                recovery.stage = Stage::Reading;
                Step::Read
            }
            Stage::Read if recovery.missed => {
                recovery.since = recovery.read_on_from();
                recovery.stage = Stage::Reading;
                Step::Read
            }
            Stage::Read => {
                recovery.stage = Stage::Done;
                let Recovery { topic, complete, told, index, last, .. } = recovery;
                Step::Recovered {
                    topic: topic.clone(),
                    complete: *complete,
                    told: *told,
                    index: *index,
                    last: *last,
                }
            }
            Stage::Done => match recovery.held.pop_front() {
                Some(dispatch) => Step::Release(dispatch),
                // More came while the held ones went out, and was dropped.
                None if recovery.missed => {
                    recovery.since = recovery.read_on_from();
                    recovery.told = false;
                    recovery.stage = Stage::Reading;
                    Step::Read
                }
                None => {
                    self.recoveries.pop_front();
                    self.step()
                }
            },
        }
    }
}

impl Recovery {
    /// Behind what was read; where nothing was, before what was held first.
    fn read_on_from(&self) -> Option<Position> {
        let held = self.held.front().and_then(|dispatch| dispatch.message.topic.as_ref());
        let before = |at: Position| Position { offset: at.offset.saturating_sub(1), ..at };
        self.last.or_else(|| held.map(|place| before(place.position))).or(self.since)
    }
}

impl Shard {
    /// Hears a topic from now on; `since` and the retained message are read first.
    pub(crate) fn subscribe(
        &mut self,
        slot: u32,
        topic: Topic,
        key: Key,
        kind: fn(u32) -> Subscription,
        since: Option<Position>,
    ) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        let (index, new) = self.topics.subscribe(&self.shared.registry, key, &topic, slot);
        if new {
            connection.topics.push(kind(index));
        } else if since.is_none() {
            return; // heard already
        }
        self.reads.recoveries += 1;
        let catch_up = connection.catch_up.get_or_insert_with(|| Box::new(CatchUp::new(Stage::Done, None)));
        // One that names a position again starts anew.
        catch_up.recoveries.retain(|recovery| recovery.index != index);
        catch_up.recoveries.push_back(Recovery {
            number: self.reads.recoveries,
            index,
            topic,
            stage: Stage::Wanted,
            since,
            told: since.is_some(),
            retained: new,
            complete: true,
            last: None,
            held: VecDeque::new(),
            missed: false,
        });
    }

    pub(crate) fn unsubscribe(&mut self, slot: u32, key: Key) {
        let Some(index) = self.topics.find(key) else { return };
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        let before = connection.topics.len();
        connection.topics.retain(|subscription| subscription.index() != index);
        if connection.topics.len() == before {
            return;
        }
        if let Some(catch_up) = &mut connection.catch_up {
            catch_up.recoveries.retain(|recovery| recovery.index != index);
        }
        self.topics.unsubscribe(&self.shared.registry, index, slot);
        self.advance(slot);
    }

    /// Does what is next for a connection that catches up, as far as the socket takes it.
    pub(crate) fn advance(&mut self, slot: u32) {
        loop {
            let Some(connection) = self.connections.get_mut(slot as usize) else { return };
            if connection.phase != Phase::Open || connection.tail.is_some() {
                return;
            }
            let Some(catch_up) = &mut connection.catch_up else { return };
            match catch_up.step() {
                Step::Wait => return,
                Step::Read => {
                    self.reads.waiting.push_back((slot, connection.generation));
                    return;
                }
                Step::Release(dispatch) => self.release_held(slot, &dispatch),
                Step::Recovered { topic, complete, told, index, last } => {
                    if let Some(last) = last {
                        self.topics.skip(index, slot, last);
                    }
                    if told {
                        let mut json = Vec::new();
                        native::recovered(&mut json, &topic, complete);
                        self.send_json(slot, "recovered", &json);
                    }
                }
                Step::Done => {
                    connection.catch_up = None;
                    return;
                }
            }
        }
    }

    /// Writes a message that waited, unless the pages brought it.
    fn release_held(&mut self, slot: u32, dispatch: &Arc<Dispatch>) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        let Some(session) = connection.session.clone() else { return };
        let message = &dispatch.message;
        let late = message.expires_at > message.sent_at && message.expires_at <= self.now.wall;
        let fresh = connection.catch_up.as_mut().is_none_or(|catch_up| catch_up.pass(message));
        if late || !fresh || message.id <= connection.watermark {
            return;
        }
        let outcome = match crate::fanout::gate(message, session.presence()) {
            Some(outcome) => outcome,
            None => {
                let bytes = dispatch.encoded(connection.protocol).clone();
                self.tally.messages_out += 1;
                self.send(slot, bytes);
                Outcome::Written
            }
        };
        self.outcomes.one(message.id, outcome, session.num);
    }

    /// Sends the reads whose turn it is.
    pub(crate) fn send_reads(&mut self) {
        while self.reads.out < READS_MAX {
            let Some(to) = self.reads.waiting.pop_front() else { return };
            let (slot, generation) = to;
            let now = self.now.wall;
            let Some(connection) = self
                .connections
                .get_mut(slot as usize)
                .filter(|c| c.generation == generation && c.phase == Phase::Open)
            else {
                continue;
            };
            let (Some(session), Some(catch_up)) = (&connection.session, &mut connection.catch_up) else {
                continue;
            };
            let (shared, index) = (self.shared.clone(), usize::from(self.index));
            if catch_up.stage == Stage::Reading {
                // What is committed from here on and cannot be held is missed by this read too.
                catch_up.missed = false;
                let backlog = Backlog {
                    app: session.app,
                    device: session.num,
                    after: catch_up.after,
                    session_topics: catch_up.own_topics.clone(),
                    now,
                };
                self.delivery.backlog(backlog, move |result| {
                    shared.mailboxes[index].reply(Reply::Backlog { to, result });
                });
            } else if let Some(recovery) =
                catch_up.recoveries.front_mut().filter(|r| r.stage == Stage::Reading)
            {
                recovery.missed = false;
                let number = recovery.number;
                let recover = Recover {
                    app: session.app,
                    topic: recovery.topic.clone(),
                    since: recovery.since,
                    retained: std::mem::take(&mut recovery.retained),
                    now,
                };
                self.delivery.recover(recover, move |result| {
                    shared.mailboxes[index].reply(Reply::Recovered { to, recovery: number, result });
                });
            } else {
                continue;
            }
            self.reads.out += 1;
            self.shared.metrics.backlog_reads.inc();
        }
    }

    pub(crate) fn handle_backlog(&mut self, to: (u32, u64), result: Result<BacklogPage, Error>) {
        self.reads.out -= 1;
        let (slot, generation) = to;
        if self.at(slot, generation).is_none() {
            return;
        }
        self.guard(Some(slot), |shard| match result {
            Ok(page) => shard.handle_page(slot, page),
            Err(error) => shard.fail_read(slot, &error),
        });
    }

    fn fail_read(&mut self, slot: u32, error: &Error) {
        // What it did not get stays in the store: it comes back for it.
        tracing::warn!(%error, "a backlog could not be read");
        self.begin_close(slot, CloseReason::Overloaded);
    }

    /// Writes a page of the backlog, retained messages at their place in it.
    pub(crate) fn handle_page(&mut self, slot: u32, page: BacklogPage) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        let Some(mut catch_up) = connection.catch_up.take() else { return };
        let mut bytes = Vec::new();
        let mut written = Vec::new();
        let protocol = connection.protocol;
        let mut retained = Vec::from(std::mem::take(&mut catch_up.retained));
        retained.extend(page.retained);
        retained.sort_by_key(|message| message.id);
        catch_up.retained = retained.into();
        for message in &page.messages {
            while let Some(retained) = catch_up.retained.pop_front_if(|retained| retained.id <= message.id) {
                if retained.id != message.id {
                    Self::encode_retained(protocol, &retained, &mut bytes);
                    written.push(retained.id);
                }
            }
            encode(protocol, message, &mut bytes);
            written.push(message.id);
            catch_up.after = Some(message.id);
        }
        if !page.more {
            for retained in catch_up.retained.drain(..) {
                Self::encode_retained(protocol, &retained, &mut bytes);
                written.push(retained.id);
            }
        }
        catch_up.stage = if page.more { Stage::Wanted } else { Stage::Read };
        connection.watermark = written.iter().copied().fold(connection.watermark, Ord::max);
        connection.catch_up = Some(catch_up);
        self.send_page(slot, bytes, &written);
        self.advance(slot);
    }

    fn send_page(&mut self, slot: u32, bytes: Vec<u8>, written: &[NotificationId]) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        if let Some(catch_up) = &mut connection.catch_up {
            catch_up.page_bytes = bytes.len();
        }
        let num = connection.session.as_ref().map(|session| session.num);
        let Some(num) = num.filter(|_| !bytes.is_empty()) else { return };
        for id in written {
            self.outcomes.one(*id, Outcome::Written, num);
        }
        self.tally.messages_out += written.len() as u64;
        self.send_unbounded(slot, bytes.into());
    }

    pub(crate) fn handle_recovered(
        &mut self,
        to: (u32, u64),
        number: u64,
        result: Result<BacklogPage, Error>,
    ) {
        self.reads.out -= 1;
        let (slot, generation) = to;
        if self.at(slot, generation).is_none() {
            return;
        }
        self.guard(Some(slot), |shard| match result {
            Ok(page) => shard.handle_recovered_page(slot, number, page),
            Err(error) => shard.fail_read(slot, &error),
        });
    }

    fn handle_recovered_page(&mut self, slot: u32, number: u64, page: BacklogPage) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        let protocol = connection.protocol;
        let waiting = connection.catch_up.as_mut().and_then(|catch_up| catch_up.recoveries.front_mut());
        let Some(recovery) = waiting.filter(|recovery| recovery.number == number) else {
            // Unsubscribed meanwhile: there may be others.
            return self.advance(slot);
        };
        let mut messages: Vec<(&Arc<Message>, bool)> =
            page.messages.iter().map(|message| (message, false)).collect();
        messages.extend(page.retained.iter().map(|message| (message, true)));
        messages.sort_by_key(|(message, _)| message.id);
        let (mut bytes, mut written) = (Vec::new(), Vec::new());
        for (message, is_retained) in messages {
            match is_retained {
                true => Self::encode_retained(protocol, message, &mut bytes),
                false => encode(protocol, message, &mut bytes),
            }
            written.push(message.id);
            if let Some(place) = message.topic.as_ref()
                && !recovery.last.is_some_and(|last| reaches(last, place.position))
            {
                recovery.last = Some(place.position);
            }
        }
        recovery.complete &=
            page.heads.iter().filter(|head| head.topic == recovery.topic).all(|head| head.complete);
        let last =
            page.messages.last().and_then(|message| message.topic.as_ref()).map(|place| place.position);
        match (page.more, last) {
            (true, Some(last)) => {
                recovery.since = Some(last);
                recovery.stage = Stage::Wanted;
            }
            _ => recovery.stage = Stage::Read,
        }
        if recovery.since.is_none() {
            // If more than can be held came meanwhile, it is read from here on.
            recovery.since = page.heads.first().map(|head| head.position);
        }
        self.send_page(slot, bytes, &written);
        self.advance(slot);
    }

    /// Mail was lost: every session reads on behind what it was offered.
    pub(crate) fn resync(&mut self, offered: NotificationId) {
        self.shared.metrics.resyncs.inc();
        tracing::warn!(shard = self.index, "deliveries found a full mailbox; backlogs are read again");
        let slots: Vec<u32> = self
            .connections
            .iter()
            .filter(|(_, connection)| connection.phase == Phase::Open && connection.session.is_some())
            .map(|(slot, _)| u32::try_from(slot).unwrap_or(u32::MAX))
            .collect();
        for slot in slots {
            let Some(connection) = self.connections.get_mut(slot as usize) else { continue };
            let own_topics = own_topics(connection, &self.topics);
            let after = connection.watermark.max(offered);
            let catch_up =
                connection.catch_up.get_or_insert_with(|| Box::new(CatchUp::new(Stage::Done, None)));
            if catch_up.stage == Stage::Done {
                catch_up.stage = Stage::Wanted;
                catch_up.after = Some(after);
                catch_up.own_topics = own_topics;
            }
            catch_up.missed = true;
            for recovery in &mut catch_up.recoveries {
                recovery.missed = true;
            }
            self.advance(slot);
        }
    }
}

fn own_topics(connection: &Connection, topics: &crate::topic_index::TopicIndex) -> Vec<Topic> {
    let own = connection.topics.iter().filter(|subscription| subscription.is_own());
    own.filter_map(|subscription| topics.entry(subscription.index()))
        .map(|entry| entry.topic.clone())
        .collect()
}

fn encode(protocol: Protocol, message: &Message, out: &mut Vec<u8>) {
    use noroshi_protocol::{sse, ws};
    match protocol {
        Protocol::Sse => out.extend_from_slice(&sse::event(message)),
        Protocol::WebSocket | Protocol::Http | Protocol::Echo => {
            ws::push_frame(out, ws::Opcode::Text, &native::message_json(message));
        }
    }
}
