//! From mail to sockets: marks messages at their recipients, and writes what is marked.
//!
//! [`crate::fanout::Fanout`] decides in which order; this file finds the recipients, asks adapters for their
//! packets, and closes connections whose sockets are broken. Messages to adapters are a small head of the
//! connection's own and a rest that all connections of the protocol share, in one `writev`. An adapter counts what
//! it sends (packet ids, windows), so a message is offered to it only if it will be sent.
//!
//! Invariants: no ordered message overtakes one that waits for room. Between [`Shard::offer_marked`] and
//! [`Shard::write_outbound`] nothing else is sent to the connection.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use noroshi_delivery::preferences::LiveCount;
use noroshi_types::{AppId, CloseReason, DeviceNum, Message, NotificationId, Outcome, Timestamp, Topic};

use crate::fanout::batch::{BATCH_BYTES, Batch, Outbound};
use crate::fanout::history::OfferHistory;
use crate::fanout::mail::{Audience, Mail};
use crate::fanout::marks::Marks;
use crate::fanout::{Output, Queue};
use crate::protocol::adapter::{Cause, Offered};
use crate::protocol::context::Encoding;
use crate::session::attachment::Attachment;
use crate::session::catch_up::{Hold, Paged};
use crate::session::following::{Decision, Source};
use crate::session::registry::{Address, Key};
use crate::session::topic_index::{Entry, Pass, Subscription};
use crate::shard::Shard;
use crate::shard::connection::Connection;
use crate::wire::Framing;
use crate::wire::dispatch::Dispatch;

/// Mail processed in one turn; mail without a recipient here takes no place in the ring.
const MAIL_PER_TURN: usize = 256;

/// Connections written to in one turn, of each kind: about 4 ms at 8 µs a write.
const URGENT_PER_TURN: usize = 512;

const TOPIC_PER_TURN: usize = 256;

impl Shard {
    /// Marks a turn's share of mail.
    pub(crate) fn take_mail(&mut self) {
        if catch_unwind(AssertUnwindSafe(|| self.mark_mail())).is_err() {
            self.rebuild_fanout();
        }
        self.remove_ended();
    }

    /// Whether [`Shard::next_mail`] has something.
    pub(crate) fn has_next_mail(&self) -> bool {
        self.fanout.can_resume_stalled() || self.fanout.can_admit() && !self.receivers.mail.is_empty()
    }

    /// The next mail that can be marked now, and whether it passes other mail.
    fn next_mail(&mut self) -> Option<(Mail, bool)> {
        if let Some(mail) = self.fanout.resume_stalled() {
            return Some((mail, false));
        }
        while self.fanout.can_admit() {
            let mail = self.receivers.mail.try_recv();
            // Lost mail came before everything that is taken from now on. Checked also where no mail is left: none may
            // follow for long.
            if self.mailbox().take_lost() {
                self.resync(self.fanout.offered());
            }
            let (connections, topics) = (&self.connections, &self.sessions.topics);
            let admitted = self.fanout.admit(mail.ok()?, |stalled, to| {
                let connection = connections.get(to.slot as usize);
                connection.filter(|connection| connection.generation == to.generation).is_some_and(
                    |connection| stalled.may_concern(to.slot, &connection.attachment.topics, topics),
                )
            });
            if admitted.is_some() {
                return admitted;
            }
        }
        None
    }

    fn mark_mail(&mut self) {
        for _ in 0..MAIL_PER_TURN {
            let Some((mail, passes)) = self.next_mail() else { return };
            if !passes && let Some(dispatch) = mail.dispatch() {
                self.fanout.note_offered(dispatch);
            }
            self.mailbox().marked(&mail);
            match mail {
                Mail::Direct { dispatch, to } => self.mark_direct(&dispatch, &to),
                Mail::Topic { dispatch, key, .. } => self.topic_mail(dispatch, key),
                Mail::Offered { key, position } => {
                    if let Some(index) = self.sessions.topics.find(key) {
                        self.sessions.topics.reach(index, position);
                    }
                }
                Mail::Condition { dispatch, audience, .. } => self.mark_audience(&dispatch, &audience),
                Mail::Subscribe { to, topics } => {
                    let connection = self.at(to.slot, to.generation);
                    let Some(session) = connection.and_then(|it| it.attachment.session.clone()) else {
                        continue;
                    };
                    for (topic, key) in topics {
                        if self.rules().may_receive(&session, &topic) {
                            self.subscribe(to.slot, topic, key, Subscription::durable, None, None);
                        }
                    }
                    self.advance(to.slot);
                }
                Mail::Reread { to, since: Some(since) } => self.reread(&to, since),
                Mail::Reread { to, since: None } => {
                    for address in to {
                        if self.at(address.slot, address.generation).is_some() {
                            self.read_held_back(address.slot);
                        }
                    }
                }
                Mail::Follow { to, change } => {
                    if let Some(connection) = self.at(to.slot, to.generation) {
                        connection.attachment.take_change(*change);
                    }
                }
                Mail::Items { to, notice } => {
                    to.into_iter().for_each(|address| self.report_items(address, &notice));
                }
                Mail::Stanza { to, stanza } => {
                    if self.at(to.slot, to.generation).is_some() {
                        self.deliver_stanza(to.slot, &stanza);
                    }
                }
                Mail::Unsubscribe { to, key } => {
                    if self.at(to.slot, to.generation).is_some() {
                        self.unsubscribe(to.slot, &[key]);
                    }
                }
            }
        }
    }

    fn mark_direct(&mut self, dispatch: &Arc<Dispatch>, to: &[Address]) {
        let place = self.put(dispatch, Queue::Urgent, to.len());
        for address in to {
            match self.at(address.slot, address.generation).is_some() {
                true => self.mark(address.slot, place, None, Queue::Urgent),
                false => {
                    if let Some(frame) = self.fanout.ring.frame_mut(place) {
                        frame.add_gone();
                    }
                }
            }
        }
        self.end_frame(place);
    }

    fn topic_mail(&mut self, dispatch: Arc<Dispatch>, key: Key) {
        let index = self.sessions.topics.find(key);
        let dispatch = match index {
            Some(index) => self.look_for_gap(dispatch, index),
            None => Some(dispatch),
        };
        // A message that was offered before is not offered again; its topic's log may have been faster.
        if let Some(dispatch) = dispatch
            && self.fanout.history.note_topic(&dispatch.message)
        {
            self.mark_topic(&dispatch, index);
        }
    }

    /// A message of another node may be missing before this one, or this one was missing. Returns none if the log has
    /// to bring the message behind the missing one: if it were written now, the device could acknowledge it, and its
    /// position would be behind a message that it never received.
    fn look_for_gap(&mut self, dispatch: Arc<Dispatch>, index: u32) -> Option<Arc<Dispatch>> {
        let message = &dispatch.message;
        let Some(place) = message.topic.as_ref().filter(|_| self.shared.registry.is_shared()) else {
            return Some(dispatch);
        };
        if dispatch.is_reoffered {
            return Some(dispatch);
        }
        match self.sessions.topics.pass(index, place.position) {
            Pass::Next => Some(dispatch),
            Pass::Gap { behind } => {
                self.delivery.nodes.topic_gap(message.app, place.topic.clone(), behind);
                (!dispatch.is_stored()).then_some(dispatch)
            }
            // Pages that reach further may have been read before it existed.
            Pass::Late => Some(Dispatch::offered(message.clone(), true)),
        }
    }

    fn mark_topic(&mut self, dispatch: &Arc<Dispatch>, index: Option<u32>) {
        let message = &dispatch.message;
        let position = message.topic.as_ref().map(|place| place.position);
        let skips =
            index.zip(position).map(|(index, position)| self.sessions.topics.take_skips(index, position));
        let skips = skips.unwrap_or_default();
        let entry = index.and_then(|index| self.sessions.topics.entry(index));
        let subscribers = entry.into_iter().flat_map(|entry| entry.subscribers.iter().copied());
        let mut slots: Vec<u32> = subscribers.filter(|slot| !skips.contains(slot)).collect();
        if let Some(place) = message.topic.as_ref().filter(|_| !self.sessions.wildcards.is_empty()) {
            self.add_wildcards(message.app, &place.topic, entry, &mut slots);
        }
        if slots.is_empty() {
            return;
        }
        // Sockets and connections lie in memory in the order of their arrival.
        slots.sort_unstable();
        let place = self.put(dispatch, Queue::Topic, slots.len());
        for slot in slots {
            self.mark(slot, place, index, Queue::Topic);
        }
        self.end_frame(place);
    }

    /// Adds the subscribers whose filter matches, and not the topic's name.
    fn add_wildcards(&self, app: AppId, topic: &Topic, entry: Option<&Entry>, slots: &mut Vec<u32>) {
        if topic.is_everyone() {
            return;
        }
        let mut wild = Vec::new();
        self.sessions.wildcards.matching(app, topic.as_str(), &mut wild);
        wild.sort_unstable();
        wild.dedup();
        wild.retain(|slot| entry.is_none_or(|entry| !entry.subscribers.contains(slot)));
        slots.extend(wild);
    }

    fn mark_audience(&mut self, dispatch: &Arc<Dispatch>, audience: &Audience) {
        let indices: Vec<Option<u32>> =
            audience.topics.iter().map(|(_, key)| self.sessions.topics.find(*key)).collect();
        let is_subscribed = |slot: u32, topic: &noroshi_types::Topic| {
            let at = audience.topics.iter().position(|(named, _)| named == topic);
            let entry = at.and_then(|at| indices[at]).and_then(|index| self.sessions.topics.entry(index));
            entry.is_some_and(|entry| entry.subscribers.contains(&slot))
        };
        // Devices without any of the topics are recipients only if the condition matches them.
        let candidates = match audience.condition.matches_none() {
            true => vec![self.sessions.topics.find(audience.everyone)],
            false => indices.clone(),
        };
        let entries = candidates.into_iter().flatten().filter_map(|index| self.sessions.topics.entry(index));
        let mut slots: Vec<u32> = entries.flat_map(|entry| entry.subscribers.iter().copied()).collect();
        slots.sort_unstable();
        slots.dedup();
        slots.retain(|slot| audience.condition.matches(|topic| is_subscribed(*slot, topic)));
        let place = self.put(dispatch, Queue::Topic, slots.len());
        for slot in slots {
            self.mark(slot, place, None, Queue::Topic);
        }
        self.end_frame(place);
    }

    /// Puts a message in flight, or if it is late only to report that.
    fn put(&mut self, dispatch: &Arc<Dispatch>, queue: Queue, recipients: usize) -> usize {
        let place = self.fanout.ring.put(dispatch.clone(), queue, recipients);
        if dispatch.is_late(self.shared.config.live_age_max)
            && let Some(frame) = self.fanout.ring.frame_mut(place)
        {
            frame.set_late();
        }
        place
    }

    fn mark(&mut self, slot: u32, place: usize, topic: Option<u32>, queue: Queue) {
        if let Some(connection) = self.connections.get_mut(slot as usize) {
            let now = self.now.wall;
            self.fanout.mark(place, connection.recipient(slot), topic, queue, now);
        }
    }

    /// Removes a message from the ring if no connection waits for it.
    fn end_frame(&mut self, place: usize) {
        if let Some(mut frame) = self.fanout.ring.take_ended(place) {
            let now = self.delivery.clock().now();
            frame.observe_latency(&self.shared.metrics.written_seconds, now);
            frame.report(&mut self.sessions.outcomes, now);
        }
    }

    /// Writes to a turn's share of the connections with marks.
    pub(crate) fn write_marked(&mut self) {
        self.write_queue(Queue::Urgent, URGENT_PER_TURN);
        self.write_queue(Queue::Topic, TOPIC_PER_TURN);
        for place in self.fanout.ring.taken() {
            self.end_frame(place);
        }
        let now = self.delivery.clock().now();
        let latencies = &self.shared.metrics.written_seconds;
        self.fanout.ring.frames_mut().for_each(|frame| frame.observe_latency(latencies, now));
    }

    #[cfg(not(feature = "io-uring"))]
    fn write_queue(&mut self, queue: Queue, count: usize) {
        self.write_each(queue, count);
    }

    /// Writes to at most `count` connections of a queue, one after the other.
    pub(crate) fn write_each(&mut self, queue: Queue, count: usize) {
        for _ in 0..count {
            let Some(slot) = self.next_marked(queue) else { break };
            self.guard(Some(slot), |shard| shard.flush(slot));
        }
    }

    pub(crate) fn next_marked(&mut self, queue: Queue) -> Option<u32> {
        let connections = &self.connections;
        let has_marks =
            |slot| connections.get(slot as usize).is_some_and(|connection| !connection.marks.is_empty());
        self.fanout.next(queue, has_marks)
    }

    /// Writes the marked messages of a connection, with one write.
    pub(crate) fn flush(&mut self, slot: u32) {
        self.flush_written(slot, None);
    }

    /// [`Shard::flush`] where the write may have happened: `written` is how much the socket took.
    pub(crate) fn flush_written(&mut self, slot: u32, written: Option<usize>) {
        let Some((device, bits)) = self.take_marked(slot) else { return };
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        if connection.adapter.is_some() {
            let places = self.fanout.ring.in_order(bits);
            let outbound = self.offer_marked(slot, &places);
            return self.write_outbound(slot, outbound, None);
        }
        let out = Output {
            socket: &mut connection.socket,
            framing: connection.framing,
            written,
            soft_bytes: self.shared.config.send_queue_soft_bytes,
            now_tick: self.now.tick,
        };
        let (trailers, is_gzip) = (&mut self.trailers, connection.framing == Framing::GzipEvents);
        let sent = |dispatch: &Dispatch| {
            if is_gzip {
                trailers.add(slot, dispatch.gzip());
            }
        };
        let Ok(written) = self.fanout.write(device, bits, out, sent) else {
            return self.abort(slot, CloseReason::PeerReset);
        };
        connection.frames.grant(written.messages);
        self.tally.bytes_out += written.bytes as u64;
        self.tally.slow_drops += written.dropped;
        self.tally.deflate.merge(written.deflate);
        self.tally.messages_out[connection.protocol as usize] += u64::from(written.messages);
        self.limit_unsent(slot);
    }

    /// Takes the marks off a connection. None if it has none, or no session.
    pub(crate) fn take_marked(&mut self, slot: u32) -> Option<(DeviceNum, u64)> {
        let connection = self.connections.get_mut(slot as usize)?;
        let (device, is_alive) =
            (connection.attachment.session.as_ref().map(|session| session.num), connection.is_alive());
        self.fanout.take_marks(&mut connection.marks, device, is_alive)
    }

    /// After a panic on one connection, which may have taken its marks off without writing: messages without a mark
    /// would never leave the ring.
    pub(crate) fn recount_frames(&mut self) {
        self.fanout.ring.recount(self.connections.iter().map(|(_, connection)| connection.marks.bits()));
    }

    /// After a panic while marking: drops the messages in flight and reads stored messages again.
    fn rebuild_fanout(&mut self) {
        self.shared.metrics.panics.inc();
        tracing::error!(shard = self.index, "a delivery panicked; reading backlogs again");
        for (_, connection) in &mut self.connections {
            connection.marks = Marks::default();
        }
        // Every session reads behind its own watermark and may receive unacknowledged messages again.
        for mail in self.fanout.rebuild(OfferHistory::new(self.shared.registry.is_shared())) {
            self.mailbox().dropped(&mail);
        }
        self.resync(NotificationId::from_bytes([0; 16]));
    }

    /// Offers messages to a connection with an adapter. `places`: their bits are off its marks.
    /// [`Shard::write_outbound`] writes the result.
    pub(crate) fn offer_marked(&mut self, slot: u32, places: &[usize]) -> Outbound {
        let Outbound { mut batch, mut failed } = Outbound::default();
        let soft = self.shared.config.send_queue_soft_bytes;
        for place in places {
            let Some(frame) = self.fanout.ring.frame_mut(*place) else { continue };
            frame.end_wait();
            let Some(connection) = self.connections.get_mut(slot as usize) else { continue };
            let Some(device) = connection.attachment.session.as_ref().map(|session| session.num) else {
                continue;
            };
            let dispatch = frame.dispatch().clone();
            // Ordered messages wait behind one that waits for room.
            if let Some(catch_up) = &mut connection.attachment.catch_up {
                match catch_up.hold(&dispatch, None) {
                    Hold::Held => continue,
                    Hold::Missed => {
                        if !dispatch.is_stored() {
                            frame.add_slow(device);
                        }
                        continue;
                    }
                    Hold::Not => {}
                }
            }
            if !dispatch.is_stored() && connection.unsent_bytes() > soft {
                self.tally.slow_drops += 1;
                frame.add_slow(device);
                continue;
            }
            // Since it was marked, others may have reached a daily cap.
            if let Some(Suppression { outcome }) =
                suppresses(connection, &dispatch.message, Source::Live, self.now.wall)
            {
                outcome.into_iter().for_each(|outcome| frame.add_suppressed(outcome, device));
                continue;
            }
            match offer(
                &self.shared.config,
                self.now.wall,
                connection,
                &dispatch,
                Cause::Published,
                &mut batch,
            ) {
                Fate::Written => {
                    self.tally.messages_out[connection.protocol as usize] += 1;
                    grant(connection, 1);
                    frame.add_written(device);
                    self.fanout.counts.extend(count(connection, &dispatch.message, self.now.wall));
                }
                // The adapter does not want it: a kept one stays in the store.
                Fate::Passed { acknowledged }
                    if !acknowledged && !dispatch.is_stored() && dispatch.message.topic.is_none() =>
                {
                    frame.add_offline(device);
                }
                Fate::Passed { .. } => {}
                Fate::Full if dispatch.is_ordered() => self.park(slot, &dispatch),
                Fate::Full => {
                    self.tally.slow_drops += 1;
                    frame.add_slow(device);
                }
            }
            if batch.bytes() >= BATCH_BYTES {
                failed |= !self.write_batch(slot, &mut batch, None);
            }
        }
        self.follow(slot, &mut batch);
        Outbound { batch, failed }
    }

    /// Writes the rest of an outbound batch. `written`: how much the socket took, where it was sent together with
    /// others.
    pub(crate) fn write_outbound(&mut self, slot: u32, outbound: Outbound, written: Option<usize>) {
        if !self.is_alive(slot) {
            return;
        }
        let Outbound { mut batch, failed } = outbound;
        let broken = failed | !self.write_batch(slot, &mut batch, written);
        self.acknowledge(slot, batch.acknowledged);
        match broken {
            true => self.abort(slot, CloseReason::PeerReset),
            false => self.limit_unsent(slot),
        }
    }

    /// False if the socket is broken.
    fn write_batch(&mut self, slot: u32, batch: &mut Batch, written: Option<usize>) -> bool {
        let now_tick = self.now.tick;
        let Some(connection) = self.connections.get_mut(slot as usize) else { return true };
        if batch.packets.is_empty() {
            return true;
        }
        if connection.framing == Framing::Polling {
            self.adapters.polled.ready.push(slot);
        }
        self.tally.deflate.merge(std::mem::take(&mut batch.totals));
        if connection.framing == Framing::Polling {
            let Some(adapter) = &mut connection.adapter else { return true };
            batch.queue(|packet| adapter.queue(packet));
            return true;
        }
        let written = batch.write(&mut connection.socket, now_tick, written);
        self.tally.bytes_out += *written.as_ref().unwrap_or(&0) as u64;
        written.is_ok()
    }

    /// Appends the adapter's output that follows offered messages.
    fn follow(&mut self, slot: u32, batch: &mut Batch) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        let Some(adapter) = &mut connection.adapter else { return };
        let before = batch.heads.len();
        adapter.finish_offers(&self.shared.config, &mut batch.heads);
        if batch.heads.len() > before {
            batch.push(Bytes::new());
        }
    }

    /// A live message has no room: from here on the connection receives messages from its catch-up, when there is room.
    fn park(&mut self, slot: u32, dispatch: &Arc<Dispatch>) {
        if let Some((catch_up, own_topics, _)) = self.catch_up(slot) {
            catch_up.park(dispatch, own_topics);
        }
    }

    /// Records messages as acknowledged: by the client, or because no client will acknowledge them.
    pub(crate) fn acknowledge(&mut self, slot: u32, ids: Vec<NotificationId>) {
        let Some(connection) = self.connections.get_mut(slot as usize).filter(|_| !ids.is_empty()) else {
            return;
        };
        if let Some(catch_up) = &mut connection.attachment.catch_up {
            catch_up.acknowledge(&ids);
        }
        if let Some(session) = &connection.attachment.session {
            self.delivery.acks.push(session.app, session.num, ids);
        }
    }

    /// Offers a held message. False if there is no room: it stays first.
    pub(crate) fn release_to_adapter(&mut self, slot: u32, dispatch: &Arc<Dispatch>) -> bool {
        let mut batch = Batch::default();
        let Some(connection) = self.connections.get_mut(slot as usize) else { return true };
        let Some(session) = connection.attachment.session.clone() else { return true };
        let message = &dispatch.message;
        match offer(&self.shared.config, self.now.wall, connection, dispatch, Cause::Published, &mut batch) {
            Fate::Written => {
                self.tally.messages_out[connection.protocol as usize] += 1;
                grant(connection, 1);
                self.fanout.counts.extend(count(connection, message, self.now.wall));
                self.sessions.outcomes.wrote(message.app, 1);
                self.sessions.outcomes.one(message, Outcome::Written, session.num);
                self.follow(slot, &mut batch);
                match self.write_batch(slot, &mut batch, None) {
                    true => self.limit_unsent(slot),
                    false => self.abort(slot, CloseReason::PeerReset),
                }
            }
            Fate::Passed { .. } => {}
            Fate::Full => return false,
        }
        self.acknowledge(slot, batch.acknowledged);
        true
    }

    /// Writes a page of the backlog, as far as there is room.
    pub(crate) fn write_page_to_adapter(&mut self, slot: u32, paged: Vec<Paged>) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        let Some(num) = connection.attachment.session.as_ref().map(|session| session.num) else { return };
        let (mut batch, mut written) = (Batch::default(), 0);
        let mut paged = paged.into_iter();
        let mut rest = Vec::new();
        for one in paged.by_ref() {
            // What the client had in flight is sent again in any case.
            let catch_up = connection.attachment.catch_up.as_ref();
            let is_again =
                !one.retained && catch_up.is_some_and(|catch_up| catch_up.is_sent_again(one.message.id));
            if !is_again
                && let Some(Suppression { outcome }) =
                    suppresses(connection, &one.message, Source::Store, self.now.wall)
            {
                outcome
                    .into_iter()
                    .for_each(|outcome| self.sessions.outcomes.one(&one.message, outcome, num));
                continue;
            }
            let dispatch = Dispatch::new(one.message.clone());
            let cause = if one.retained { Cause::Retained } else { Cause::Published };
            match offer(&self.shared.config, self.now.wall, connection, &dispatch, cause, &mut batch) {
                Fate::Written => {
                    written += 1;
                    self.fanout.counts.extend(count(connection, &one.message, self.now.wall));
                    self.sessions.outcomes.wrote(one.message.app, 1);
                    self.sessions.outcomes.one(&one.message, Outcome::Written, num);
                }
                Fate::Passed { .. } => {}
                Fate::Full => {
                    rest.push(one);
                    break;
                }
            }
        }
        rest.extend(paged);
        self.tally.messages_out[connection.protocol as usize] += u64::from(written);
        grant(connection, written);
        if let Some(catch_up) = &mut connection.attachment.catch_up {
            catch_up.page_bytes = batch.bytes();
            catch_up.keep_rest(rest);
        }
        self.follow(slot, &mut batch);
        let whole = self.write_batch(slot, &mut batch, None);
        self.acknowledge(slot, batch.acknowledged);
        match whole {
            true => {
                self.limit_unsent(slot);
                self.advance(slot);
            }
            false => self.abort(slot, CloseReason::PeerReset),
        }
    }

    /// An acknowledgement freed space: offers the waiting messages again.
    pub(crate) fn make_room(&mut self, slot: u32) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        if let Some(catch_up) = &mut connection.attachment.catch_up {
            catch_up.waits_for_room = false;
            self.advance(slot);
        }
    }
}

/// What became of one message.
enum Fate {
    Written,
    /// Not for this client now. `acknowledged`: and never will be, which the store has to know.
    Passed {
        acknowledged: bool,
    },
    Full,
}

fn offer(
    config: &crate::Config,
    now: noroshi_types::Timestamp,
    connection: &mut Connection,
    dispatch: &Dispatch,
    cause: Cause,
    batch: &mut Batch,
) -> Fate {
    let encoding = Encoding { config, framing: connection.framing, now };
    let Some(adapter) = &mut connection.adapter else {
        return Fate::Passed { acknowledged: false };
    };
    let (begin, message) = (batch.heads.len(), &dispatch.message);
    match adapter.offer(&encoding, dispatch, cause, &mut batch.heads) {
        Offered::Send { mut shared, acknowledged } => {
            if let Framing::Deflated(window_bits) = connection.framing {
                let plain_bytes = batch.heads.len() - begin + shared.len();
                shared = dispatch.pack(window_bits, &mut batch.heads, begin, shared);
                batch.totals.add(plain_bytes, batch.heads.len() - begin + shared.len());
            }
            batch.push(shared);
            batch.acknowledged.extend((acknowledged && message.wants_ack()).then_some(message.id));
            Fate::Written
        }
        Offered::Pass { acknowledged } => {
            let acknowledged = acknowledged && message.wants_ack();
            batch.acknowledged.extend(acknowledged.then_some(message.id));
            Fate::Passed { acknowledged }
        }
        Offered::Full => Fate::Full,
    }
}

/// Preferences of a device suppress a message.
pub(super) struct Suppression {
    /// `None`: it was reported before.
    pub(super) outcome: Option<Outcome>,
}

/// Whether preferences of the device suppress a message.
pub(super) fn suppresses(
    connection: &mut Connection,
    message: &Message,
    source: Source,
    now: Timestamp,
) -> Option<Suppression> {
    let Attachment { following, session, .. } = &mut connection.attachment;
    let following = following.as_mut()?;
    match following.decide(message, session.as_ref()?.presence(), now) {
        Decision::Suppressed(outcome) => {
            Some(Suppression { outcome: following.report(message, outcome, source).then_some(outcome) })
        }
        Decision::Passes | Decision::Waits => None,
    }
}

/// A message is written: what the store has to count for daily caps.
pub(super) fn count(connection: &mut Connection, message: &Message, now: Timestamp) -> Option<LiveCount> {
    let Attachment { following, session, .. } = &mut connection.attachment;
    following.as_mut()?.count(message, session.as_ref()?, now)
}

fn grant(connection: &mut Connection, messages: u32) {
    let each = connection.adapter.as_ref().map_or(1, |adapter| adapter.frames_granted());
    connection.frames.grant(messages.saturating_mul(each));
}
