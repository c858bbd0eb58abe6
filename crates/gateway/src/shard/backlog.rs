//! Reads of the store for connections that catch up: sends them, and writes what they return.
//!
//! [`crate::session::catch_up`] decides what to read next and in which order to write; this file reads and writes. The
//! next read of a connection begins only when its socket took the result of the last one.

use std::collections::HashSet;
use std::sync::Arc;

use noroshi_delivery::Error;
use noroshi_store::{Backlog, BacklogPage, Head, LogPage, Outstanding, Place, Recover};
use noroshi_types::{CloseReason, Message, NotificationId, Outcome, Presence, Since, Topic};

use crate::protocol::adapter::Matched;
use crate::session::catch_up::{CatchUp, Paged, Reached, Read, Step};
use crate::session::following::{Decision, Source};
use crate::session::phase::Phase;
use crate::session::registry::{Address, Key};
use crate::session::topic_index::Subscription;
use crate::shard::Shard;
use crate::shard::connection::Connection;
use crate::shard::delivery::{self, Suppression};
use crate::shard::mailbox::{ReadAnswer, Reply};
use crate::wire::Framing;
use crate::wire::dispatch::{Dispatch, encode_paged};

/// Rows of logs that one read examines.
const LOG_ROWS: usize = 512;

impl Shard {
    /// Subscribes to a topic. Its log since `since` and its retained message are read first. `retained`: given by clients
    /// that choose whether they want the retained message, also of a topic that they are subscribed to already.
    pub(crate) fn subscribe(
        &mut self,
        slot: u32,
        topic: Topic,
        key: Key,
        kind: fn(u32) -> Subscription,
        since: Option<Since>,
        retained: Option<bool>,
    ) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        let (index, new) = self.sessions.topics.subscribe(&self.shared.registry, key, &topic, slot);
        if new {
            connection.attachment.topics.push(kind(index));
        }
        if !retained.unwrap_or(new || since.is_some()) {
            return;
        }
        let number = self.sessions.reads.next_recovery();
        let catch_up = connection.attachment.catch_up.get_or_insert_default();
        match retained {
            Some(_) => catch_up.copy_retained(number, index, topic),
            None => catch_up.recover(number, index, topic, since, new),
        }
    }

    /// Unsubscribes from topics, in one pass over the connection's subscriptions.
    pub(crate) fn unsubscribe(&mut self, slot: u32, keys: &[Key]) {
        let named: HashSet<u32> = keys.iter().filter_map(|key| self.sessions.topics.find(*key)).collect();
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        let mut left = Vec::new();
        connection.attachment.topics.retain(|subscription| {
            let stays = !named.contains(&subscription.index());
            left.extend((!stays).then_some(subscription.index()));
            stays
        });
        if left.is_empty() {
            return;
        }
        if let Some(catch_up) = &mut connection.attachment.catch_up {
            catch_up.forget_topics(&named);
        }
        for index in left {
            self.sessions.topics.unsubscribe(&self.shared.registry, index, slot);
        }
        self.advance(slot);
    }

    /// Does the next steps of a connection that catches up, as far as the socket takes their output.
    pub(crate) fn advance(&mut self, slot: u32) {
        loop {
            let Some(connection) = self.connections.get_mut(slot as usize) else { return };
            if connection.phase != Phase::Open || connection.is_behind() {
                return;
            }
            let Some(catch_up) = &mut connection.attachment.catch_up else { return };
            match catch_up.step() {
                Step::Wait => return,
                Step::Read => {
                    self.sessions.reads.push((slot, connection.generation));
                    return;
                }
                Step::Page(rest) => return self.write_page_to_adapter(slot, rest),
                Step::Release(dispatch) => self.release_held(slot, &dispatch),
                Step::Recovered { index, reached, report } => {
                    if reached != Reached::default() {
                        self.sessions.topics.skip(index, slot, reached);
                    }
                    if let Some(recovered) = report {
                        self.converse(slot, |it, cx| it.handle_recovered(cx, &recovered));
                    }
                }
                Step::Done => {
                    connection.attachment.catch_up = None;
                    let acknowledged = connection.adapter.as_mut().map(|adapter| adapter.handle_caught_up());
                    self.acknowledge(slot, acknowledged.unwrap_or_default());
                    return self.read_held_back(slot);
                }
            }
        }
    }

    /// Writes a message that was held, unless the pages contained it or it has expired.
    fn release_held(&mut self, slot: u32, dispatch: &Arc<Dispatch>) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        let Some(session) = connection.attachment.session.clone() else { return };
        let message = &dispatch.message;
        let logged =
            connection.attachment.catch_up.as_ref().is_some_and(|catch_up| catch_up.is_logged(message.id));
        let late = message.expires_at > message.sent_at && message.expires_at <= self.now.wall;
        let fresh = connection.attachment.catch_up.as_mut().is_none_or(|catch_up| catch_up.pass(message));
        if late || logged || !fresh || self.fanout.history.is_known(dispatch, connection.received()) {
            return;
        }
        let decision = match connection.attachment.following.as_mut() {
            Some(following) => following.decide(message, session.presence(), self.now.wall),
            None => Decision::Passes,
        };
        if session.holds_back(message, decision == Decision::Waits) {
            return;
        }
        let gated = crate::fanout::gate(message, session.presence());
        if gated.is_none()
            && let Some(Suppression { outcome }) =
                delivery::suppresses(connection, message, Source::Live, self.now.wall)
        {
            outcome
                .into_iter()
                .for_each(|outcome| self.sessions.outcomes.one(message.id, outcome, session.num));
            return;
        }
        let outcome = match gated {
            Some(outcome) => outcome,
            None if connection.adapter.is_some() => {
                let released = self.release_to_adapter(slot, dispatch);
                let catch_up =
                    self.connection(slot).and_then(|connection| connection.attachment.catch_up.as_mut());
                if let Some(catch_up) = catch_up.filter(|_| !released) {
                    catch_up.put_back(dispatch);
                }
                return;
            }
            None => {
                connection.frames.grant(1);
                self.fanout.counts.extend(delivery::count(connection, message, self.now.wall));
                self.tally.messages_out[connection.protocol as usize] += 1;
                if connection.framing == Framing::GzipEvents {
                    self.send_packed(slot, &dispatch.gzip().clone());
                } else {
                    let bytes = dispatch.encoded(connection.framing).clone();
                    if let Framing::Deflated(_) = connection.framing {
                        self.tally.deflate.add(dispatch.encoded(Framing::WebSocket).len(), bytes.len());
                    }
                    self.send(slot, bytes);
                }
                Outcome::Written
            }
        };
        self.sessions.outcomes.wrote(message.app, usize::from(outcome == Outcome::Written));
        self.sessions.outcomes.one(message.id, outcome, session.num);
    }

    /// Sends the reads whose turn it is.
    pub(crate) fn send_reads(&mut self) {
        while let Some(to) = self.sessions.reads.next() {
            let (slot, generation) = to;
            let now = self.now.wall;
            let connection = self.connections.get_mut(slot as usize);
            let Some(connection) =
                connection.filter(|c| c.generation == generation && c.phase == Phase::Open)
            else {
                continue;
            };
            let offered = connection.offered_to(self.fanout.offered());
            let (Some(session), Some(catch_up)) =
                (&connection.attachment.session, &mut connection.attachment.catch_up)
            else {
                continue;
            };
            let wild = connection.adapter.as_ref().and_then(|adapter| adapter.wildcards_since());
            catch_up.ask_at(Place::of(offered));
            let (shared, index) = (self.shared.clone(), usize::from(self.index));
            let reply = move |what, result| shared.mailboxes[index].reply(Reply::Read { to, what, result });
            match catch_up.begin_read(wild) {
                Some(Read::Backlog { after, own_topics: session_topics, received_to: session_since }) => {
                    let (app, device) = (session.app, session.num);
                    let backlog = Backlog { app, device, after, session_topics, session_since, now };
                    self.delivery
                        .backlog(backlog, move |result| reply("a backlog", result.map(ReadAnswer::Backlog)));
                }
                Some(Read::Topic { number, topic, since, retained }) => {
                    let recover = Recover { app: session.app, topic, since, retained, now };
                    let brought = move |page| ReadAnswer::Topic(number, page);
                    self.delivery.recover(recover, move |result| reply("a backlog", result.map(brought)));
                }
                Some(Read::Log { since }) => {
                    let (delivery, app) = (self.delivery.clone(), session.app);
                    self.delivery.work(async move {
                        let page = delivery.store().log_page(app, since, LOG_ROWS, now).await;
                        reply("logs", page.map(ReadAnswer::Log).map_err(Error::from));
                    });
                }
                Some(Read::Outstanding { ids }) => {
                    let (delivery, app, device) = (self.delivery.clone(), session.app, session.num);
                    self.delivery.work(async move {
                        let asked = Outstanding { app, device, ids, now };
                        let messages = delivery.store().outstanding(asked).await;
                        let result = messages.map(ReadAnswer::Outstanding).map_err(Error::from);
                        reply("the messages in flight of a session", result);
                    });
                }
                None => continue,
            }
            self.sessions.reads.out += 1;
            self.shared.metrics.backlog_reads.inc();
        }
    }

    /// The result of a read.
    pub(crate) fn handle_read(
        &mut self,
        (slot, generation): (u32, u64),
        what: &'static str,
        result: Result<ReadAnswer, Error>,
    ) {
        self.sessions.reads.out -= 1;
        if self.at(slot, generation).is_none() {
            return;
        }
        self.guard(Some(slot), |shard| match result {
            Ok(ReadAnswer::Backlog(page)) => shard.handle_page(slot, page),
            Ok(ReadAnswer::Topic(number, page)) => shard.handle_recovered(slot, number, page),
            Ok(ReadAnswer::Log(page)) => shard.handle_log(slot, page),
            Ok(ReadAnswer::Outstanding(messages)) => shard.handle_outstanding(slot, &messages),
            Err(error) => {
                // Unread messages stay in the store: the device reconnects to get them.
                tracing::warn!(%error, "cannot read {what}");
                shard.begin_close(slot, CloseReason::Overloaded);
            }
        });
    }

    fn handle_log(&mut self, slot: u32, LogPage { mut messages, next }: LogPage) {
        let to = messages.last().map(|message| Place::of(message.id));
        messages.retain(|message| self.matches_by_wildcard(slot, message));
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        let Some(catch_up) = &mut connection.attachment.catch_up else { return };
        let paged = catch_up.take_log(messages, to, next);
        self.write_page(slot, paged);
    }

    fn handle_outstanding(&mut self, slot: u32, messages: &[Arc<Message>]) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        let Some(catch_up) = &mut connection.attachment.catch_up else { return };
        let found = catch_up.take_again(messages);
        if let Some(adapter) = &mut connection.adapter {
            adapter.handle_outstanding(&found);
        }
        self.advance(slot);
    }

    /// Whether a filter with wildcards matches a message that the backlog does not bring by its topic's name.
    fn matches_by_wildcard(&self, slot: u32, message: &Message) -> bool {
        let Some(matched) = self.matched(slot, message) else { return false };
        matched.by_wildcard && (matched.before_name || !self.is_subscribed_by_name(slot, message))
    }

    /// Whether only filters with wildcards match the message now, even if a name matched it before.
    fn matches_only_by_wildcard(&self, slot: u32, message: &Message) -> bool {
        self.matched(slot, message).is_some_and(|matched| matched.by_wildcard)
            && !self.is_subscribed_by_name(slot, message)
    }

    fn matched(&self, slot: u32, message: &Message) -> Option<Matched> {
        let adapter = self.connections.get(slot as usize)?.adapter.as_ref()?;
        Some(adapter.matched(&message.topic.as_ref()?.topic, Place::of(message.id)))
    }

    fn is_subscribed_by_name(&self, slot: u32, message: &Message) -> bool {
        let key = |topic| self.shared.registry.topic_key(message.app, topic);
        message
            .topic
            .as_ref()
            .is_some_and(|place| self.sessions.topics.is_subscribed(key(&place.topic), slot))
    }

    /// A page of the backlog.
    pub(crate) fn handle_page(&mut self, slot: u32, page: BacklogPage) {
        // Names that ended while the page was read: filters with wildcards bring their messages.
        let of_ended = page.messages.iter().filter(|message| self.matches_only_by_wildcard(slot, message));
        let of_ended: HashSet<NotificationId> = of_ended.map(|message| message.id).collect();
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        let Some(catch_up) = &mut connection.attachment.catch_up else { return };
        let heads = page.heads.clone();
        let mut paged = catch_up.take_page(page);
        let is_whole = catch_up.is_whole();
        let highest = paged.iter().map(|paged| paged.message.id).max();
        connection.attachment.watermark =
            highest.map_or(connection.attachment.watermark, |id| connection.attachment.watermark.max(id));
        let (session, now) = (connection.attachment.session.as_deref(), self.now.wall);
        let following = &mut connection.attachment.following;
        let mut waits = |message: &Message| {
            let Some(session) = session else { return false };
            let decision = following.as_mut().map(|it| it.decide(message, session.presence(), now));
            session.holds_back(message, decision == Some(Decision::Waits))
        };
        let wants_retained = connection.adapter.as_ref().is_none_or(|adapter| adapter.wants_retained());
        paged.retain(|paged| {
            let (id, retained) = (paged.message.id, paged.retained);
            let is_settled =
                catch_up.is_sent_again(id) || catch_up.is_acknowledged(id) || of_ended.contains(&id);
            if !retained && is_settled || waits(&paged.message) {
                return false;
            }
            let is_wanted = !retained || wants_retained;
            is_wanted && self.fanout.admit_paged(&paged.message, catch_up, connection.generation)
        });
        if is_whole {
            self.begin_topics(slot, &heads);
        }
        self.write_page(slot, paged);
    }

    /// The page covers topics that had no subscriber here before: the next message of each reveals a gap.
    fn begin_topics(&mut self, slot: u32, heads: &[Head]) {
        let registry = &self.shared.registry;
        let app = self.session(slot).map(|session| session.app);
        let Some(app) = app.filter(|_| registry.is_shared()) else { return };
        for head in heads {
            if let Some(index) = self.sessions.topics.find(registry.topic_key(app, &head.topic)) {
                self.sessions.topics.begin(index, head.position);
            }
        }
    }

    fn handle_recovered(&mut self, slot: u32, number: u64, page: BacklogPage) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        let Some(catch_up) = &mut connection.attachment.catch_up else { return };
        match catch_up.take_recovered(number, page) {
            Some(paged) => {
                for Paged { message, .. } in &paged {
                    self.fanout.history.note_page(message, connection.generation);
                }
                self.write_page(slot, paged);
            }
            // Unsubscribed meanwhile; other reads may wait.
            None => self.advance(slot),
        }
    }

    fn write_page(&mut self, slot: u32, paged: Vec<Paged>) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        if let Some(catch_up) =
            connection.attachment.catch_up.as_mut().filter(|catch_up| catch_up.awaits_again())
        {
            catch_up.defer(paged);
            return self.advance(slot);
        }
        if connection.adapter.is_some() {
            return self.write_page_to_adapter(slot, paged);
        }
        let Some(num) = connection.attachment.session.as_ref().map(|session| session.num) else { return };
        let (mut bytes, mut written) = (Vec::new(), 0);
        for Paged { message, retained, .. } in &paged {
            if let Some(Suppression { outcome }) =
                delivery::suppresses(connection, message, Source::Store, self.now.wall)
            {
                outcome.into_iter().for_each(|outcome| self.sessions.outcomes.one(message.id, outcome, num));
                continue;
            }
            written += 1;
            self.fanout.counts.extend(delivery::count(connection, message, self.now.wall));
            encode_paged(connection.framing, message, *retained, &mut bytes, &mut self.tally.deflate);
            self.sessions.outcomes.wrote(message.app, 1);
            self.sessions.outcomes.one(message.id, Outcome::Written, num);
        }
        self.tally.messages_out[connection.protocol as usize] += u64::from(written);
        connection.frames.grant(written);
        if let Some(catch_up) = &mut connection.attachment.catch_up {
            catch_up.page_bytes = bytes.len();
        }
        if !bytes.is_empty() {
            self.send_unbounded(slot, bytes.into());
        }
        self.advance(slot);
    }

    /// Messages of other nodes may have been lost: these sessions read behind `since`.
    pub(crate) fn reread(&mut self, to: &[Address], since: NotificationId) {
        for Address { slot, generation, .. } in to {
            if self.at(*slot, *generation).is_some_and(|connection| connection.phase == Phase::Open)
                && let Some((catch_up, own_topics, watermark)) = self.catch_up(*slot)
            {
                catch_up.read_again(watermark.max(since), own_topics);
                self.advance(*slot);
            }
        }
    }

    /// The device is active again: messages that were held back are read from its inbox. A connection that catches up
    /// does so at its end, since its pages left them out.
    pub(crate) fn read_held_back(&mut self, slot: u32) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        if connection.phase != Phase::Open || connection.attachment.catch_up.is_some() {
            return;
        }
        let session =
            connection.attachment.session.as_ref().filter(|session| session.presence() == Presence::Active);
        if let Some(after) = session.and_then(|session| session.take_held()) {
            self.reread_backlog(slot, Some(after));
        }
    }

    /// The session wants messages that it passed over: behind `after`, or from the beginning of its backlog. Other
    /// messages that the device has not acknowledged are sent once more with the same ids.
    pub(crate) fn reread_backlog(&mut self, slot: u32, after: Option<NotificationId>) {
        let Some(connection) = self.connections.get(slot as usize) else { return };
        let offered = Place::of(connection.offered_to(self.fanout.offered()));
        let offered = noroshi_delivery::id_at(self.fanout.before_marked(connection.marks, offered));
        let Some((catch_up, own_topics, _)) = self.catch_up(slot) else { return };
        catch_up.reread(after, own_topics, offered);
        self.advance(slot);
    }

    /// What a connection catches up with, the topics that it subscribed to itself, and its watermark.
    pub(crate) fn catch_up(&mut self, slot: u32) -> Option<(&mut CatchUp, Vec<Topic>, NotificationId)> {
        let attachment = &mut self.connections.get_mut(slot as usize)?.attachment;
        let own_topics = self.sessions.topics.own(&attachment.topics);
        Some((attachment.catch_up.get_or_insert_default(), own_topics, attachment.watermark))
    }

    /// Mail was lost: every session reads the messages after those it was offered.
    pub(crate) fn resync(&mut self, offered: NotificationId) {
        self.shared.metrics.resyncs.inc();
        tracing::warn!(shard = self.index, "deliveries were lost; reading backlogs again");
        let is_open = |connection: &Connection| {
            connection.phase == Phase::Open && connection.attachment.session.is_some()
        };
        let open = self.connections.iter().filter(|(_, connection)| is_open(connection));
        let slots: Vec<u32> = open.map(|(slot, _)| u32::try_from(slot).unwrap_or(u32::MAX)).collect();
        for slot in slots {
            let Some((catch_up, own_topics, watermark)) = self.catch_up(slot) else { continue };
            catch_up.read_on(watermark.max(offered), own_topics);
            self.advance(slot);
        }
    }
}
