//! From the store to live, without a gap, a repetition or a change of order: what one connection
//! still has to catch up with. Pure: [`crate::shard::backlog`] reads and writes.
//!
//! A session that logged in is attached before anything of its backlog is written, so whatever is
//! committed from then on comes by live. While the backlog is being read, page by page and each only
//! when the socket took the last, live messages are *held*. The last page is a read that began after
//! the attaching, or one before which no stamp moved ([`crate::session::stamp`]): together with what is held
//! it is everything. Ids tell the order of commits, so what is held and not above the connection's
//! watermark (the highest id the pages brought) was in a page and is dropped; the rest follows in
//! order, and the connection is live. If more comes than may be held, the backlog is read on instead.
//!
//! A subscription made on an open connection does the same for one topic by offsets: into the index
//! first, then the read, then what was held above the last offset read. A message that the read
//! brought but whose mail is still on its way is skipped by the index ([`crate::session::topic_index`]).
//!
//! Here are the stages of the whole and the pages of the backlog. Each other part has a module: [`held`] what waits live,
//! [`recovery`] one topic, [`in_flight`] what an MQTT session had in flight, [`logs`] and [`ended`] what filters with
//! wildcards read, [`confirmed`] what must not come once more.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use noroshi_protocol::mqtt::Owed;
use noroshi_store::{BacklogPage, Place};
use noroshi_types::{Message, NotificationId, Position, Topic};

use crate::wire::dispatch::Dispatch;

mod confirmed;
mod ended;
mod held;
mod in_flight;
mod logs;
mod recovery;

use confirmed::Confirmed;
pub(crate) use ended::{Ended, EndedNames, Gap, Gaps};
pub(crate) use held::Hold;
use in_flight::{Outstanding, SentByName};
pub(crate) use recovery::Reached;
use recovery::Recovery;

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

/// A reading of the backlog from its beginning or behind a message, on a connection that passed over some of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reread {
    No,
    Wanted(Option<NotificationId>),
    Reading,
}

/// Exists only until it is done: an idle connection owns none.
pub(crate) struct CatchUp {
    stage: Stage,
    after: Option<NotificationId>,
    own_topics: Vec<Topic>,
    /// By id; each is written at its place.
    retained: VecDeque<Arc<Message>>,
    held: VecDeque<Arc<Dispatch>>,
    /// Something was committed that is neither in the pages nor held.
    missed: bool,
    /// What was passed over is read once more.
    reread: Reread,
    /// Up to where pages brought everything.
    paged: Option<NotificationId>,
    /// Where the next reading begins, if that is before `after`.
    back_to: Option<NotificationId>,
    /// Pages begin before this for what recoveries hold; of the rest they bring nothing new up to here.
    brought_to: Option<NotificationId>,
    /// What only this connection hears, its own topics and by wildcards, it heard up to here, wherever pages begin.
    heard: Option<NotificationId>,
    /// It was live before, and nothing was missed since: of topics it was offered what its shard was.
    pub(crate) was_live: bool,
    /// One at a time, once the backlog is done.
    recoveries: VecDeque<Recovery>,
    /// Of the last page written: allowed to be unsent besides the usual.
    pub(crate) page_bytes: usize,
    /// Of a page, where the conversation had no room for more ([`crate::fanout::batch`]).
    rest: Vec<Paged>,
    /// Nothing goes on before the client confirms.
    pub(crate) waits_for_room: bool,
    /// The logs of the app's topics are read from here, behind the backlog: for filters with wildcards.
    log: Option<Place>,
    reads_log: bool,
    /// Up to where they brought everything.
    logged_to: Place,
    /// What was accepted up to here cannot come by live.
    as_of: Place,
    /// What that brought behind `as_of`.
    logged: HashSet<NotificationId>,
    /// Read before everything else.
    outstanding: Outstanding,
    sent_by_name: SentByName,
    /// Pages brought everything up to here; and where the read stands that is out, if it is the last.
    covered: Place,
    asked_at: Place,
    /// Of filters with wildcards: what their logs do not have to bring.
    ended: EndedNames,
    /// And what they left out, and have to bring after all.
    gaps: Gaps,
    /// Where the read began that is out for it.
    reads_gaps: Option<Place>,
    /// What reads that began before they were written may bring once more.
    confirmed: Confirmed,
    /// Reads of what topics retain, each with its filters. Nothing overtakes what they bring.
    retained_reads: VecDeque<Vec<Box<str>>>,
}

/// What is to be done next.
pub(crate) enum Step {
    Wait,
    /// What was left of a page.
    Page(Vec<Paged>),
    /// Ask for a turn; then [`CatchUp::begin_read`] says what for.
    Read,
    Release(Arc<Dispatch>),
    Recovered {
        topic: Topic,
        complete: bool,
        is_resumed: bool,
        index: u32,
        reached: Reached,
    },
    Done,
}

/// What the store is to be asked.
pub(crate) enum Read {
    /// Own topics are read behind `heard`, if that is later.
    Backlog {
        after: Option<NotificationId>,
        own_topics: Vec<Topic>,
        heard: Option<NotificationId>,
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

/// Which read brought a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Brought {
    /// Of a backlog or of one topic.
    Page,
    /// Of the logs of all topics.
    Log,
    /// By its id.
    ById,
}

impl Paged {
    fn page(message: Arc<Message>, retained: bool) -> Self {
        Self { message, retained, by: Brought::Page }
    }

    fn owed(&self) -> Owed {
        Owed { id: self.message.id, retained: self.retained }
    }
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
            reread: Reread::No,
            paged: after,
            back_to: None,
            brought_to: None,
            heard: None,
            was_live: false,
            recoveries: VecDeque::new(),
            page_bytes: 0,
            rest: Vec::new(),
            waits_for_room: false,
            log: None,
            reads_log: false,
            logged_to: Place(0),
            as_of: Place(0),
            logged: HashSet::new(),
            outstanding: Outstanding::Read(HashSet::new()),
            sent_by_name: SentByName::default(),
            covered: Place(0),
            asked_at: Place(0),
            ended: EndedNames::default(),
            gaps: Gaps::default(),
            reads_gaps: None,
            confirmed: Confirmed::default(),
            retained_reads: VecDeque::new(),
        }
    }

    /// The first page came with the log-in. `missed`: something may have been committed since.
    pub(crate) fn after_log_in(resume: Option<NotificationId>, own_topics: Vec<Topic>, missed: bool) -> Self {
        Self { own_topics, missed, ..Self::new(Stage::Reading, resume) }
    }

    /// Its own topics it hears from here on, wherever pages begin.
    pub(crate) fn hear_from(&mut self, place: NotificationId) {
        self.heard = Some(place);
    }

    /// A read of the backlog that begins now brings everything up to here, if it is the last.
    pub(crate) fn ask_at(&mut self, place: Place) {
        self.asked_at = place;
    }

    /// Of a connection that is live, for topics that it begins to hear.
    pub(crate) fn live() -> Self {
        Self::new(Stage::Done, None)
    }

    /// Mail was lost: the backlog is read on behind `after`.
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

    /// What the connection passed over it wants now: the backlog is read once more, behind `after` or from its
    /// beginning. A connection that is live was offered everything up to `offered`.
    pub(crate) fn reread(
        &mut self,
        after: Option<NotificationId>,
        own_topics: Vec<Topic>,
        offered: NotificationId,
    ) {
        // What is held was offered to nobody yet, and goes out only if pages do not reach beyond it.
        let covered = match self.has_all_pages() {
            true => Some(self.before_held().map_or(offered, |before| before.min(offered))),
            false => self.after,
        };
        self.covered = self.covered.max(covered.map_or(Place(0), Place::of));
        self.heard = if self.has_all_pages() { covered } else { self.heard.max(covered) };
        if self.stage == Stage::Done {
            self.stage = Stage::Wanted;
        }
        let after = if let Reread::Wanted(earlier) = self.reread { earlier.min(after) } else { after };
        (self.reread, self.missed, self.was_live) = (Reread::Wanted(after), true, false);
        self.own_topics = own_topics;
    }

    /// Whether a page brings what was offered before, and passed over.
    pub(crate) fn is_reread(&self) -> bool {
        self.reread == Reread::Reading
    }

    /// What topics retain is being read for new filters: live messages wait for it. A connection that is live was
    /// offered everything up to `offered`.
    pub(crate) fn await_retained(
        &mut self,
        filters: Vec<Box<str>>,
        own_topics: Vec<Topic>,
        offered: NotificationId,
    ) {
        self.retained_reads.push_back(filters);
        if self.stage == Stage::Done {
            self.stage = Stage::Read;
            (self.after, self.paged) = (Some(offered), Some(offered));
            self.own_topics = own_topics;
        }
    }

    pub(crate) fn take_retained(&mut self, messages: Vec<Arc<Message>>) {
        self.retained_reads.pop_front();
        self.rest.extend(messages.into_iter().map(|message| Paged::page(message, true)));
    }

    /// The topics and filters that retained messages were not read for yet.
    pub(crate) fn retained_due(&self) -> Vec<Box<str>> {
        let topics = self.recoveries.iter().filter(|recovery| recovery.retained_due);
        let topics = topics.map(|recovery| recovery.topic.as_str().into());
        topics.chain(self.retained_reads.iter().flatten().cloned()).collect()
    }

    /// The backlog may have something behind `after` that was never offered.
    pub(crate) fn read_again(&mut self, after: NotificationId, own_topics: Vec<Topic>) {
        if self.stage == Stage::Done {
            self.stage = Stage::Wanted;
            (self.after, self.paged) = (Some(after), Some(after));
            self.own_topics = own_topics;
            self.was_live = true;
        } else {
            // What it wrote of held messages may stand behind what was lost.
            self.missed = true;
            self.back_to = Some(self.back_to.map_or(after, |back_to| back_to.min(after)));
            self.heard = self.heard.map(|heard| heard.min(after));
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

    /// The turn came: what to ask. What cannot be held from here on is missed by this read too. A connection with
    /// filters with wildcards heard by them what was accepted up to `wild`.
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
            return Some(Read::Backlog { after, own_topics, heard: self.heard });
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

    /// A page of the backlog: what is to be written, in order.
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

    /// Nothing has to be read of the backlog any more, as far as is known.
    fn has_all_pages(&self) -> bool {
        let reads_pages = self.stage == Stage::Reading && !self.reads_log;
        self.stage == Stage::Done || !self.missed && !reads_pages && self.stage != Stage::Wanted
    }

    /// The last page was taken, and nothing came since that is neither in the pages nor held.
    pub(crate) fn is_whole(&self) -> bool {
        self.stage == Stage::Read && !self.missed
    }
}

#[cfg(test)]
mod tests;
