//! What filters with wildcards read from the logs of an app's topics, and up to where a connection was sent it. A
//! filter has no position in a topic; a place in the order of commits takes its role.

use std::sync::Arc;

use noroshi_store::Place;
use noroshi_types::{Message, NotificationId, Topic};

use super::{Brought, CatchUp, EndedNames, Gaps, Paged, Stage};

impl CatchUp {
    /// Reads logs behind `since` too before held messages are released.
    pub(crate) fn read_log(&mut self, since: Place, as_of: Place) {
        (self.log, self.as_of) = (Some(since), as_of);
        self.logged_to = self.logged_to.max(since);
    }

    /// Where the next read of logs begins. Gaps are read before anything else.
    pub(super) fn begin_log(&mut self) -> Option<Place> {
        self.reads_gaps = self.gaps.begin();
        self.reads_gaps.or(self.log)
    }

    /// Takes a page of logs up to `to`, with the messages of this connection. Returns the messages to write.
    pub(crate) fn take_log(
        &mut self,
        messages: Vec<Arc<Message>>,
        to: Option<Place>,
        next: Option<Place>,
    ) -> Vec<Paged> {
        (self.reads_log, self.stage) = (false, Stage::Read);
        let mut messages = messages;
        let by = match self.reads_gaps.take() {
            // No place shows that it was not sent, so its id does until it is.
            Some(since) => {
                messages.retain(|message| self.gaps.has(message));
                self.gaps.close(since, next);
                Brought::ById
            }
            None => {
                messages.retain(|message| !self.ended.brought(message));
                self.log = next;
                self.logged_to = self.logged_to.max(to.unwrap_or(Place(0))).max(next.unwrap_or(Place(0)));
                Brought::Log
            }
        };
        let ids = messages.iter().map(|message| message.id);
        self.logged.extend(ids.filter(|id| Place::of(*id) > self.as_of));
        let had = |id| self.is_sent_again(id) || self.is_acknowledged(id);
        let messages = messages.into_iter().filter(|message| !had(message.id));
        messages.map(|message| Paged { message, retained: false, by }).collect()
    }

    /// Whether a log brought it, or it was in flight before.
    pub(crate) fn is_logged(&self, id: NotificationId) -> bool {
        self.logged.contains(&id) || self.is_sent_again(id)
    }

    /// The first filter with wildcards is added while pages are read. Pages reach further than held messages, and leave
    /// out what only a wildcard matches. The filter does not match messages accepted up to `since`.
    pub(crate) fn read_log_from(&mut self, since: Place) {
        if self.stage != Stage::Done && self.log.is_none() {
            self.read_log(since, since);
        }
    }

    /// A topic that was received by its name behind `behind` is matched by wildcards only from here on. A live
    /// connection was sent everything up to `offered`; pages reached up to `watermark`. A message of the topic that a
    /// page brought and that was not written has no position any more: its id is kept.
    pub(crate) fn end_name(
        &mut self,
        topic: &Topic,
        behind: Place,
        offered: Place,
        watermark: NotificationId,
    ) {
        let up_to = self.brought_by_name(topic, behind, offered, watermark).max(self.sent_by_name.to(topic));
        if self.awaits_again() {
            self.sent_by_name.end(topic, behind);
        }
        for paged in &mut self.rest {
            if paged.by == Brought::Page && !paged.retained && is_of(topic, &paged.message) {
                paged.by = Brought::ById;
            }
        }
        // Messages that the name's own read holds are dropped with it.
        let mut of_topic = self.recoveries.iter().filter(|recovery| recovery.topic == *topic);
        let waits = of_topic.any(|recovery| recovery.missed || !recovery.held.is_empty());
        let logged_to = self.log.map_or(self.logged_to, |log| log.max(self.logged_to));
        let left_out_to = if waits { logged_to.max(offered) } else { logged_to };
        // Logs also leave out the gap's messages: a later connection may begin to read them before it.
        self.ended.add(topic, behind, up_to.max(left_out_to));
        self.gaps.add(topic, up_to.max(behind), left_out_to);
    }

    /// Up to where a name brought everything of its topic.
    pub(crate) fn brought_by_name(
        &self,
        topic: &Topic,
        behind: Place,
        offered: Place,
        watermark: NotificationId,
    ) -> Place {
        let mut up_to = match self.has_all_pages() {
            true => offered,
            false => self.after.map_or(Place(0), Place::of).max(self.covered),
        };
        let of_recoveries = self.recoveries.iter().flat_map(|recovery| &recovery.held);
        for dispatch in self.held.iter().chain(of_recoveries) {
            if is_of(topic, &dispatch.message) && !dispatch.is_paged(watermark) {
                up_to = up_to.min(Place(Place::of(dispatch.message.id).0 - 1));
            }
        }
        let mut of_topic = self.recoveries.iter().filter(|recovery| recovery.topic == *topic);
        match of_topic.any(|recovery| recovery.missed && recovery.held.is_empty()) {
            true => up_to.min(behind),
            false => up_to,
        }
    }

    /// Reads gaps if there are any. A live connection was offered everything up to `offered`.
    pub(crate) fn await_gaps(&mut self, own_topics: Vec<Topic>, offered: NotificationId) {
        if !self.gaps.is_empty() {
            self.leave_live(Stage::Read, offered, own_topics);
        }
    }

    pub(crate) fn gaps(&mut self) -> &mut Gaps {
        &mut self.gaps
    }

    pub(crate) fn ended(&mut self) -> &mut EndedNames {
        &mut self.ended
    }

    /// Up to where the connection was sent what only wildcards match. A live one was sent everything up to `offered`.
    /// Pages reached up to `watermark`: held messages before that are not released.
    pub(crate) fn sent_to(&self, offered: Place, watermark: NotificationId) -> Place {
        let read_on = || self.after.max(self.received_to).map_or(Place(0), Place::of).max(self.logged_to);
        let to = match self.log {
            Some(log) => log,
            None if self.missed || self.stage == Stage::Wanted => read_on(),
            None => offered,
        };
        let rest = self.rest.iter().filter(|paged| paged.by == Brought::Log).map(|paged| paged.message.id);
        // Recoveries hold messages that names match.
        let held = self.held.iter().filter(|dispatch| !dispatch.is_paged(watermark));
        let held = held.map(|dispatch| dispatch.message.id);
        // Logs brought their messages up to there; the others have positions or are a gap.
        let held = held.filter(|id| Place::of(*id) > self.logged_to && !self.is_logged(*id));
        let waits = rest.chain(held);
        waits.map(|id| Place(Place::of(id).0 - 1)).fold(to, Place::min)
    }

    /// Logs bring what pages leave out because only a wildcard matches it: pages may reach further than held messages,
    /// and missed messages are held nowhere.
    pub(super) fn read_log_too(&mut self, heard: Place) {
        if self.log.is_none() {
            let after = self.after.max(self.received_to).map_or(heard, Place::of);
            self.log = Some(after.max(heard).max(self.logged_to));
            // Logs brought these before; from here on the record starts empty.
            self.held.retain(|dispatch| !self.logged.contains(&dispatch.message.id));
            self.logged.clear();
        }
    }
}

fn is_of(topic: &Topic, message: &Message) -> bool {
    message.topic.as_ref().is_some_and(|place| place.topic == *topic)
}
