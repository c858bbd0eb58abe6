//! What one connection still has to catch up with, from the store to live delivery, without a gap, a duplicate or a
//! change of order. Pure: the shard reads and writes (`shard::backlog`).
//!
//! A session is attached before anything of its backlog is written, so everything committed from then on also arrives
//! live. While the backlog is read, page by page and each only when the socket took the last one, live messages are
//! *held*. The last page is a read that began after the session was attached, or one before which no stamp changed
//! ([`crate::session::stamp`]): together with the held messages it is complete. Ids have the order of commits, so a
//! held message up to the connection's watermark (the highest id of the pages) was in a page and is dropped; the others
//! follow in order, and the connection is live. If more messages arrive than may be held, the backlog is read further
//! instead.
//!
//! A subscription on an open connection does the same for one topic by offsets: first the index, then the read, then
//! the held messages above the last offset. The index skips a message that the read brought before its mail arrived
//! ([`crate::session::topic_index`]).
//!
//! This file has the stages and the pages of the backlog. [`held`] has the live messages that wait, [`recovery`] one
//! topic, [`in_flight`] what an MQTT session had in flight and what must not be sent again, [`logs`] and [`ended`] what
//! filters with wildcards read.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use noroshi_protocol::mqtt::UnacknowledgedMessage;
use noroshi_store::{BacklogPage, Place};
use noroshi_types::{Message, NotificationId, Position, Recovered, Topic};

use crate::wire::dispatch::Dispatch;

mod ended;
mod held;
mod in_flight;
mod logs;
mod recovery;

pub(crate) use ended::{EndedNames, Gaps, Range};
pub(crate) use held::Hold;
use in_flight::{Acknowledged, Outstanding, SentByName};
pub(crate) use recovery::Reached;
use recovery::Recovery;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    /// Read when the socket took the output so far.
    Wanted,
    /// Queued or in progress.
    Reading,
    /// Everything is written; held messages follow when the socket took it.
    Read,
    #[default]
    Done,
}

/// Another read of the backlog, from its beginning or behind a message, on a connection that passed over some of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Reread {
    #[default]
    No,
    Wanted(Option<NotificationId>),
    Reading,
}

/// Exists only until the connection has caught up: an idle connection owns none. By default it is for a live connection
/// that subscribes to topics.
#[derive(Default)]
pub(crate) struct CatchUp {
    stage: Stage,
    after: Option<NotificationId>,
    own_topics: Vec<Topic>,
    /// Sorted by id; each is written at its place in the order.
    retained: VecDeque<Arc<Message>>,
    held: VecDeque<Arc<Dispatch>>,
    /// Something was committed that is neither in the pages nor held.
    missed: bool,
    /// Another read of what was passed over.
    reread: Reread,
    /// Pages brought everything up to here.
    paged: Option<NotificationId>,
    /// Where the next read begins, if that is before `after`.
    back_to: Option<NotificationId>,
    /// Pages begin before this for the messages that recoveries hold; of the others they bring nothing new up to here.
    brought_to: Option<NotificationId>,
    /// The connection received everything up to here that only it receives (its own topics, and what filters with
    /// wildcards match), wherever pages begin.
    received_to: Option<NotificationId>,
    /// The connection was live before and missed nothing since: it was offered the same topic messages as its shard.
    pub(crate) was_live: bool,
    /// One at a time, after the backlog.
    recoveries: VecDeque<Recovery>,
    /// Bytes of the last page: they may be unsent in addition to the usual limit.
    pub(crate) page_bytes: usize,
    /// The rest of a page for which the conversation had no room ([`crate::fanout::batch`]).
    rest: Vec<Paged>,
    /// Nothing continues before the client acknowledges.
    pub(crate) waits_for_room: bool,
    /// The logs of the app's topics are read from here, after the backlog: for filters with wildcards.
    log: Option<Place>,
    reads_log: bool,
    /// Logs brought everything up to here.
    logged_to: Place,
    /// Messages accepted up to here do not arrive live.
    as_of: Place,
    /// Messages behind `as_of` that logs brought.
    logged: HashSet<NotificationId>,
    /// Read before everything else.
    outstanding: Outstanding,
    sent_by_name: SentByName,
    /// Pages brought everything up to here; and the place of the read in progress, if it is the last.
    covered: Place,
    asked_at: Place,
    /// What the logs need not bring for filters with wildcards.
    ended: EndedNames,
    /// What the logs left out and still have to bring.
    gaps: Gaps,
    /// Where the current read for gaps began.
    reads_gaps: Option<Place>,
    /// Messages that earlier reads may bring once more.
    acknowledged: Acknowledged,
    /// Reads of retained messages, each with its filters. Nothing overtakes their results.
    retained_reads: VecDeque<Vec<Box<str>>>,
}

/// What the connection does next.
pub(crate) enum Step {
    Wait,
    /// The rest of a page.
    Page(Vec<Paged>),
    /// Request a turn; then [`CatchUp::begin_read`] returns the read.
    Read,
    Release(Arc<Dispatch>),
    Recovered {
        index: u32,
        reached: Reached,
        /// For the client, if it named a position or asked for one.
        report: Option<Recovered>,
    },
    Done,
}

/// A read of the store.
pub(crate) enum Read {
    /// Own topics are read behind `received_to`, if that is later.
    Backlog {
        after: Option<NotificationId>,
        own_topics: Vec<Topic>,
        received_to: Option<NotificationId>,
    },
    Topic {
        number: u64,
        topic: Topic,
        since: Option<Position>,
        retained: bool,
    },
    Log {
        since: Place,
    },
    Outstanding {
        ids: Vec<NotificationId>,
    },
}

/// A message of a page; retained ones are not at their place in the order.
pub(crate) struct Paged {
    pub(crate) message: Arc<Message>,
    pub(crate) retained: bool,
    pub(crate) by: Brought,
}

/// Which read returned a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Brought {
    /// A read of the backlog or of one topic.
    Page,
    /// A read of the logs of all topics.
    Log,
    /// A read by id.
    ById,
}

impl Paged {
    fn page(message: Arc<Message>, retained: bool) -> Self {
        Self { message, retained, by: Brought::Page }
    }

    fn owed(&self) -> UnacknowledgedMessage {
        UnacknowledgedMessage { id: self.message.id, retained: self.retained }
    }
}

impl CatchUp {
    /// The first page came with the log-in. `missed`: something may have been committed since.
    pub(crate) fn after_log_in(resume: Option<NotificationId>, own_topics: Vec<Topic>, missed: bool) -> Self {
        let (stage, after) = (Stage::Reading, resume);
        Self { stage, after, paged: after, own_topics, missed, ..Self::default() }
    }

    /// The connection receives its own topics from here on, wherever pages begin.
    pub(crate) fn receive_own_from(&mut self, place: NotificationId) {
        self.received_to = Some(place);
    }

    /// A read of the backlog that begins now is complete up to here, if it is the last.
    pub(crate) fn ask_at(&mut self, place: Place) {
        self.asked_at = place;
    }

    /// Mail was lost: the backlog is read behind `after`.
    pub(crate) fn read_on(&mut self, after: NotificationId, own_topics: Vec<Topic>) {
        if self.stage == Stage::Done {
            self.stage = Stage::Wanted;
            self.after = Some(after);
            self.own_topics = own_topics;
        }
        self.missed = true;
        self.was_live = false;
        self.covered = self.covered.min(Place::of(after));
        for recovery in &mut self.recoveries {
            recovery.missed = true;
        }
    }

    /// The connection wants what it passed over: the backlog is read again, behind `after` or from its beginning. A
    /// live connection was offered everything up to `offered`.
    pub(crate) fn reread(
        &mut self,
        after: Option<NotificationId>,
        own_topics: Vec<Topic>,
        offered: NotificationId,
    ) {
        // Held messages were not offered yet, and are released only if pages do not reach beyond them.
        let covered = match self.has_all_pages() {
            true => Some(self.before_held().map_or(offered, |before| before.min(offered))),
            false => self.after,
        };
        self.covered = self.covered.max(covered.map_or(Place(0), Place::of));
        self.received_to = if self.has_all_pages() { covered } else { self.received_to.max(covered) };
        if self.stage == Stage::Done {
            self.stage = Stage::Wanted;
        }
        let after = if let Reread::Wanted(earlier) = self.reread { earlier.min(after) } else { after };
        (self.reread, self.missed, self.was_live) = (Reread::Wanted(after), true, false);
        self.own_topics = own_topics;
    }

    /// Whether a page brings messages that were offered before and passed over.
    pub(crate) fn is_reread(&self) -> bool {
        self.reread == Reread::Reading
    }

    /// Retained messages are read for new filters: live messages wait for them. A live connection was offered
    /// everything up to `offered`.
    pub(crate) fn await_retained(
        &mut self,
        filters: Vec<Box<str>>,
        own_topics: Vec<Topic>,
        offered: NotificationId,
    ) {
        self.retained_reads.push_back(filters);
        self.leave_live(Stage::Read, offered, own_topics);
    }

    /// A live connection, which has everything up to `after`, catches up again. False if it was not live.
    fn leave_live(&mut self, stage: Stage, after: NotificationId, own_topics: Vec<Topic>) -> bool {
        let was_live = self.stage == Stage::Done;
        if was_live {
            self.stage = stage;
            (self.after, self.paged) = (Some(after), Some(after));
            self.own_topics = own_topics;
        }
        was_live
    }

    pub(crate) fn take_retained(&mut self, messages: Vec<Arc<Message>>) {
        self.retained_reads.pop_front();
        self.rest.extend(messages.into_iter().map(|message| Paged::page(message, true)));
    }

    /// Topics and filters whose retained messages were not read yet.
    pub(crate) fn retained_due(&self) -> Vec<Box<str>> {
        let topics = self.recoveries.iter().filter(|recovery| recovery.retained_due);
        let topics = topics.map(|recovery| recovery.topic.as_str().into());
        topics.chain(self.retained_reads.iter().flatten().cloned()).collect()
    }

    /// The backlog may have messages behind `after` that were never offered.
    pub(crate) fn read_again(&mut self, after: NotificationId, own_topics: Vec<Topic>) {
        if self.leave_live(Stage::Wanted, after, own_topics) {
            self.was_live = true;
        } else {
            // Held messages that were written may lie behind the lost ones.
            self.missed = true;
            self.back_to = Some(self.back_to.map_or(after, |back_to| back_to.min(after)));
            self.received_to = self.received_to.map(|received| received.min(after));
        }
        self.covered = self.covered.min(Place::of(after));
    }

    pub(crate) fn step(&mut self) -> Step {
        if self.waits_for_room || !self.retained_reads.is_empty() {
            return Step::Wait;
        }
        match &mut self.outstanding {
            Outstanding::Wanted(owed) => {
                self.outstanding = Outstanding::Reading(std::mem::take(owed));
                return Step::Read;
            }
            Outstanding::Reading(_) => return Step::Wait,
            Outstanding::Read(_) => {}
        }
        if !self.rest.is_empty() {
            return Step::Page(std::mem::take(&mut self.rest));
        }
        match self.stage {
            Stage::Reading => return Step::Wait,
            Stage::Read if self.missed => self.stage = Stage::Wanted,
            Stage::Read if self.log.is_some() || !self.gaps.is_empty() => {
                (self.stage, self.reads_log) = (Stage::Reading, true);
                return Step::Read;
            }
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
        while let Some(recovery) = self.recoveries.front_mut() {
            match recovery.step() {
                Step::Done => self.recoveries.pop_front(),
                step => return step,
            };
        }
        Step::Done
    }

    /// The read whose turn it is. Messages that cannot be held from here on are missed by this read too. `wild`: up to
    /// where a connection with wildcard filters received what they match.
    pub(crate) fn begin_read(&mut self, wild: Option<Place>) -> Option<Read> {
        if let Outstanding::Reading(owed) = &self.outstanding {
            let mut ids: Vec<NotificationId> = owed.iter().map(|owed| owed.id).collect();
            ids.dedup();
            return Some(Read::Outstanding { ids });
        }
        if self.stage == Stage::Reading && self.reads_log {
            return self.begin_log().map(|since| Read::Log { since });
        }
        if self.stage == Stage::Reading {
            self.missed = false;
            if let Some(back_to) = self.back_to.take() {
                // Never before what pages brought: a page leaves nothing out.
                self.after = self.after.min(self.paged.max(Some(back_to)));
                self.brought_to = None;
            }
            if let Some(heard) = wild {
                self.read_log_too(heard);
            }
            if let Reread::Wanted(after) = self.reread {
                self.reread = Reread::Reading;
                (self.after, self.paged, self.brought_to) = (after, after, None);
            }
            self.begin_before_recoveries();
            let (after, own_topics) = (self.after, self.own_topics.clone());
            return Some(Read::Backlog { after, own_topics, received_to: self.received_to });
        }
        let recovery = self.recoveries.front_mut().filter(|recovery| recovery.stage == Stage::Reading)?;
        recovery.missed = false;
        Some(Read::Topic {
            number: recovery.number,
            topic: recovery.topic.clone(),
            since: recovery.since,
            retained: std::mem::take(&mut recovery.retained),
        })
    }

    /// Takes a page of the backlog. Returns the messages to write, in order.
    pub(crate) fn take_page(&mut self, page: BacklogPage) -> Vec<Paged> {
        let mut retained = Vec::from(std::mem::take(&mut self.retained));
        retained.extend(page.retained);
        retained.sort_by_key(|message| message.id);
        self.retained = retained.into();
        let mut paged = Vec::with_capacity(page.messages.len());
        for message in page.messages {
            if self.brought_to.is_some_and(|to| message.id <= to) && !self.waits_in_recovery(&message) {
                self.after = Some(message.id);
                continue;
            }
            while let Some(before) = self.retained.pop_front_if(|retained| retained.id <= message.id) {
                if before.id != message.id {
                    paged.push(Paged::page(before, true));
                }
            }
            self.after = Some(message.id);
            self.paged = self.after;
            paged.push(Paged::page(message, false));
        }
        if !page.more {
            paged.extend(self.retained.drain(..).map(|message| Paged::page(message, true)));
        }
        self.stage = if page.more { Stage::Wanted } else { Stage::Read };
        if !page.more {
            self.covered = self.covered.max(self.asked_at);
            self.after = self.after.max(self.brought_to.take());
        }
        paged
    }

    /// Whether all pages of the backlog are read, as far as is known.
    fn has_all_pages(&self) -> bool {
        let reads_pages = self.stage == Stage::Reading && !self.reads_log;
        self.stage == Stage::Done || !self.missed && !reads_pages && self.stage != Stage::Wanted
    }

    /// The last page was taken, and nothing arrived since that is neither in the pages nor held.
    pub(crate) fn is_whole(&self) -> bool {
        self.stage == Stage::Read && !self.missed
    }
}

/// The place before an id, in the order of commits.
fn behind(id: NotificationId) -> NotificationId {
    noroshi_delivery::id_at(Place(Place::of(id).0 - 1))
}

#[cfg(test)]
mod tests;
