//! From the store to live, without a gap, a repetition or a change of order: what one connection
//! still has to catch up with. Pure: [`crate::backlog`] reads and writes.
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
//! A session of MQTT that goes on is first sent again what it had in flight, read by id. Pages, logs and held messages
//! leave that out.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use noroshi_protocol::mqtt::Owed;
use noroshi_store::{BacklogPage, Place};
use noroshi_types::{Message, NotificationId, Position, Topic};

use crate::dispatch::Dispatch;

mod ended;

pub(crate) use ended::{Ended, EndedNames};

/// Live messages held for one connection or one of its topics; more are read from the store.
const HELD_MAX: usize = 64;

/// 512 × 16 B, twice: 16 KiB for a connection that catches up.
const CONFIRMED_MIN: usize = 512;

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
enum Anew {
    No,
    Wanted(Option<NotificationId>),
    Reading,
}

/// What a session had in flight.
#[derive(Debug, PartialEq, Eq)]
enum Again {
    Wanted(Vec<Owed>),
    /// In the queue or out.
    Reading(Vec<Owed>),
    /// These were found.
    Read(HashSet<Owed>),
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
    anew: Anew,
    /// Up to where pages brought everything.
    paged: Option<NotificationId>,
    /// Where the next reading begins, if that is before `after`.
    back_to: Option<NotificationId>,
    /// What only this connection hears, its own topics and by wildcards, it heard up to here, wherever pages begin.
    heard: Option<NotificationId>,
    /// It was live before, and nothing was missed since: of topics it was offered what its shard was.
    pub(crate) was_live: bool,
    /// One at a time, once the backlog is done.
    recoveries: VecDeque<Recovery>,
    /// Of the last page written: allowed to be unsent besides the usual.
    pub(crate) page_bytes: usize,
    /// Of a page, where the conversation had no room for more ([`crate::offering`]).
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
    again: Again,
    /// Of filters with wildcards: what their logs do not have to bring.
    ended: EndedNames,
    /// What reads that began before they were written may bring once more.
    confirmed: Confirmed,
    /// Reads of what the topics of filters with wildcards retain. Nothing overtakes what they bring.
    retained_reads: u32,
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
    beside: Option<Position>,
    /// What is retained is a copy: the message itself comes besides if it was published after the subscription.
    copies: bool,
    held: VecDeque<Arc<Dispatch>>,
    missed: bool,
}

/// What became of a live message at a connection that catches up.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// It is none of those that wait.
    Not,
    Held,
    /// No room: if it is kept it will be read.
    Missed,
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
        told: bool,
        index: u32,
        reached: Reached,
    },
    Done,
}

/// What reading a topic brought.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Reached {
    /// Everything up to here.
    pub(crate) last: Option<Position>,
    /// Exactly this one: the retained message, of a log that was not read.
    pub(crate) beside: Option<Position>,
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
    Again,
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
            anew: Anew::No,
            paged: after,
            back_to: None,
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
            again: Again::Read(HashSet::new()),
            ended: EndedNames::default(),
            confirmed: Confirmed::default(),
            retained_reads: 0,
        }
    }

    /// The first page came with the log-in. `missed`: something may have been committed since.
    pub(crate) fn after_log_in(resume: Option<NotificationId>, own_topics: Vec<Topic>, missed: bool) -> Self {
        Self { own_topics, missed, ..Self::new(Stage::Reading, resume) }
    }

    /// Of a connection that is live, for topics that it begins to hear.
    pub(crate) fn live() -> Self {
        Self::new(Stage::Done, None)
    }

    /// A topic whose index the connection is in: read `since`, and the retained message if it is `new`
    /// there.
    pub(crate) fn recover(
        &mut self,
        number: u64,
        index: u32,
        topic: Topic,
        since: Option<Position>,
        new: bool,
    ) {
        // One that names a position again starts anew. Not looked for otherwise: 1,000 topics may come
        // in one frame.
        if !new {
            self.recoveries.retain(|recovery| recovery.index != index);
        }
        self.recoveries.push_back(Recovery {
            number,
            index,
            topic,
            stage: Stage::Wanted,
            since,
            told: since.is_some(),
            retained: new,
            complete: true,
            last: None,
            beside: None,
            copies: false,
            held: VecDeque::new(),
            missed: false,
        });
    }

    /// What a topic retains, beside what is heard of it.
    pub(crate) fn copy_retained(&mut self, number: u64, index: u32, topic: Topic) {
        self.recover(number, index, topic, None, true);
        if let Some(recovery) = self.recoveries.back_mut() {
            recovery.copies = true;
        }
    }

    pub(crate) fn forget_topics(&mut self, indices: &HashSet<u32>) {
        self.recoveries.retain(|recovery| !indices.contains(&recovery.index));
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
        for recovery in &mut self.recoveries {
            recovery.missed = true;
        }
    }

    /// What the connection passed over it wants now: the backlog is read once more, behind `after` or from its
    /// beginning. A connection that is live was offered everything up to `offered`.
    pub(crate) fn read_anew(
        &mut self,
        after: Option<NotificationId>,
        own_topics: Vec<Topic>,
        offered: NotificationId,
    ) {
        let heard = if self.stage == Stage::Done || !self.missed { Some(offered) } else { self.after };
        if self.stage == Stage::Done {
            self.stage = Stage::Wanted;
        }
        self.heard = self.heard.or(heard).min(heard);
        let after = if let Anew::Wanted(earlier) = self.anew { earlier.min(after) } else { after };
        (self.anew, self.missed, self.was_live) = (Anew::Wanted(after), true, false);
        self.own_topics = own_topics;
    }

    /// Whether a page brings what was offered before, and passed over.
    pub(crate) fn is_anew(&self) -> bool {
        self.anew == Anew::Reading
    }

    /// A live message has no room: it and those behind it are held, and read if they become too many.
    pub(crate) fn park(&mut self, dispatch: &Arc<Dispatch>, own_topics: Vec<Topic>) {
        self.waits_for_room = true;
        let after = behind(dispatch.message.id);
        self.held.push_back(dispatch.clone());
        if self.stage == Stage::Done {
            self.stage = Stage::Read;
            (self.after, self.paged) = (Some(after), Some(after));
            self.own_topics = own_topics;
        }
    }

    /// One that was taken to be let out has no room.
    pub(crate) fn put_back(&mut self, dispatch: &Arc<Dispatch>) {
        self.waits_for_room = true;
        if let Some(recovery) = self.recoveries.front_mut().filter(|_| self.stage == Stage::Done) {
            let place = dispatch.message.topic.as_ref();
            recovery.last = place.map(|place| before(place.position)).or(recovery.last);
            recovery.held.push_front(dispatch.clone());
        } else {
            self.after = self.after.min(Some(behind(dispatch.message.id)));
            self.held.push_front(dispatch.clone());
        }
    }

    /// What is left of a page has no room.
    pub(crate) fn keep_rest(&mut self, rest: Vec<Paged>) {
        self.waits_for_room |= !rest.is_empty();
        self.rest.splice(0..0, rest);
    }

    /// What logs hold behind `since` is read too before what is held goes out.
    pub(crate) fn read_log(&mut self, since: Place, as_of: Place) {
        (self.log, self.as_of) = (Some(since), as_of);
    }

    /// A page of that, which reached `to`, with what is this connection's: what is to be written.
    pub(crate) fn take_log(
        &mut self,
        messages: Vec<Arc<Message>>,
        to: Option<Place>,
        next: Option<Place>,
    ) -> Vec<Paged> {
        (self.log, self.reads_log, self.stage) = (next, false, Stage::Read);
        self.logged_to = self.logged_to.max(to.unwrap_or(Place(0))).max(next.unwrap_or(Place(0)));
        let ids = messages.iter().map(|message| message.id);
        self.logged.extend(ids.filter(|id| Place::of(*id) > self.as_of));
        let had = |id| self.is_sent_again(id) || self.is_confirmed(id);
        let messages = messages.into_iter().filter(|message| !had(message.id));
        messages.map(|message| Paged { message, retained: false, by: Brought::Log }).collect()
    }

    /// The client has these. What was read of them before does not go out any more.
    pub(crate) fn confirm(&mut self, ids: &[NotificationId]) {
        self.confirmed.add(ids);
        let confirmed = &self.confirmed;
        self.rest.retain(|paged| paged.retained || !confirmed.has(paged.message.id));
    }

    /// Whether the client confirmed it lately.
    pub(crate) fn is_confirmed(&self, id: NotificationId) -> bool {
        self.confirmed.has(id)
    }

    /// Whether a log brought it, or it was in flight before.
    pub(crate) fn is_logged(&self, id: NotificationId) -> bool {
        self.logged.contains(&id) || self.is_sent_again(id)
    }

    /// The first filter with wildcards was made while pages are being read: they reach further than what is held, and
    /// leave out what is heard by a wildcard alone. What was accepted up to `since` it does not match.
    pub(crate) fn read_log_from(&mut self, since: Place) {
        if self.stage != Stage::Done && self.log.is_none() {
            self.read_log(since, since);
        }
    }

    /// What the session had in flight is sent before everything else.
    pub(crate) fn send_again(&mut self, owed: Vec<Owed>) {
        if !owed.is_empty() {
            self.again = Again::Wanted(owed);
        }
    }

    /// Whether that is not read yet: until then nothing is written.
    pub(crate) fn awaits_again(&self) -> bool {
        !matches!(self.again, Again::Read(_))
    }

    /// A message was in flight when the session went on: it is sent again, or was.
    pub(crate) fn is_sent_again(&self, id: NotificationId) -> bool {
        matches!(&self.again, Again::Read(found) if found.contains(&Owed { id, retained: false }))
    }

    /// A page that has to wait for what was in flight.
    pub(crate) fn defer(&mut self, page: Vec<Paged>) {
        self.rest.extend(page);
    }

    /// What of the messages in flight is still there; returned is which they are.
    pub(crate) fn take_again(&mut self, messages: &[Arc<Message>]) -> HashSet<Owed> {
        let Again::Reading(owed) = &self.again else { return HashSet::new() };
        let by_id: HashMap<NotificationId, &Arc<Message>> =
            messages.iter().map(|message| (message.id, message)).collect();
        let find = |owed: &Owed| {
            let message = Arc::clone(by_id.get(&owed.id)?);
            Some(Paged { message, retained: owed.retained, by: Brought::Again })
        };
        let again: Vec<Paged> = owed.iter().filter_map(find).collect();
        let found: HashSet<Owed> = again.iter().map(Paged::owed).collect();
        self.rest.retain(|paged| !found.contains(&paged.owed()));
        self.rest.splice(0..0, again);
        self.again = Again::Read(found.clone());
        found
    }

    /// What the connection was not sent of what it would be owed though no log told: what was in flight before, and what
    /// topics retain.
    pub(crate) fn unsent(&self) -> Vec<Owed> {
        let (Again::Wanted(owed) | Again::Reading(owed)) = &self.again else {
            let rest = self.rest.iter().filter(|paged| paged.retained || paged.by == Brought::Again);
            return rest.map(Paged::owed).collect();
        };
        owed.clone()
    }

    /// A topic whose name was heard behind `behind` is heard by wildcards alone from here on. A live connection was sent
    /// everything up to `offered`; pages reached up to `watermark`. What a page brought of the topic and was not written
    /// has no position any more: it is owed by its id.
    pub(crate) fn end_name(
        &mut self,
        topic: &Topic,
        behind: Place,
        offered: Place,
        watermark: NotificationId,
    ) {
        let is_of = |message: &Message| message.topic.as_ref().is_some_and(|place| place.topic == *topic);
        let reads_pages = self.stage == Stage::Reading && !self.reads_log;
        let mut up_to = match self.missed || reads_pages || self.stage == Stage::Wanted {
            true => self.after.map_or(Place(0), Place::of),
            false => offered,
        };
        let of_recoveries = self.recoveries.iter().flat_map(|recovery| &recovery.held);
        for dispatch in self.held.iter().chain(of_recoveries) {
            if is_of(&dispatch.message) && !dispatch.is_paged(watermark) {
                up_to = up_to.min(Place(Place::of(dispatch.message.id).0 - 1));
            }
        }
        for paged in &mut self.rest {
            if paged.by == Brought::Page && !paged.retained && is_of(&paged.message) {
                paged.by = Brought::Again;
            }
        }
        self.ended.add(topic, behind, up_to);
    }

    pub(crate) fn ended(&mut self) -> &mut EndedNames {
        &mut self.ended
    }

    /// Up to where the connection was sent what it hears by wildcards alone, if a live one was sent everything up to
    /// `offered`. Pages reached up to `watermark`: what is held and stands before that does not go out.
    pub(crate) fn sent_to(&self, offered: Place, watermark: NotificationId) -> Place {
        let read_on = || self.after.max(self.heard).map_or(Place(0), Place::of).max(self.logged_to);
        let to = match self.log {
            Some(log) => log,
            None if self.missed || self.stage == Stage::Wanted => read_on(),
            None => offered,
        };
        let rest = self.rest.iter().filter(|paged| paged.by == Brought::Log).map(|paged| paged.message.id);
        let of_recoveries = self.recoveries.iter().flat_map(|recovery| &recovery.held);
        let held = self.held.iter().chain(of_recoveries).filter(|dispatch| !dispatch.is_paged(watermark));
        let held = held.map(|dispatch| dispatch.message.id);
        let waits = rest.chain(held.filter(|id| !self.is_logged(*id)));
        waits.map(|id| Place(Place::of(id).0 - 1)).fold(to, Place::min)
    }

    /// What topics retain is being read for new filters: live messages wait for it. A connection that is live was
    /// offered everything up to `offered`.
    pub(crate) fn await_retained(&mut self, own_topics: Vec<Topic>, offered: NotificationId) {
        self.retained_reads += 1;
        if self.stage == Stage::Done {
            self.stage = Stage::Read;
            (self.after, self.paged) = (Some(offered), Some(offered));
            self.own_topics = own_topics;
        }
    }

    pub(crate) fn take_retained(&mut self, messages: Vec<Arc<Message>>) {
        self.retained_reads = self.retained_reads.saturating_sub(1);
        self.rest.extend(messages.into_iter().map(|message| Paged::page(message, true)));
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
        self.was_live = false;
        Hold::Missed
    }

    /// Whether a message waits here: a page that brings it must be written with it, for it is not let out any
    /// more then. One that is offered again is let out all the same.
    pub(crate) fn holds(&self, id: NotificationId) -> bool {
        let of_recoveries = self.recoveries.iter().flat_map(|recovery| &recovery.held);
        self.held.iter().chain(of_recoveries).any(|dispatch| !dispatch.again && dispatch.message.id == id)
    }

    /// Remembers that a held message goes out. False if a read brought it.
    pub(crate) fn pass(&mut self, message: &Message) -> bool {
        let Some(place) = message.topic.as_ref().filter(|_| self.stage == Stage::Done) else {
            self.after = self.after.max(Some(message.id));
            return true;
        };
        let recovery = self.recoveries.front_mut().filter(|recovery| recovery.topic == place.topic);
        recovery
            .is_none_or(|recovery| recovery.reach(place.position) && recovery.beside != Some(place.position))
    }

    pub(crate) fn step(&mut self) -> Step {
        if self.waits_for_room || self.retained_reads > 0 {
            return Step::Wait;
        }
        match &mut self.again {
            Again::Wanted(owed) => {
                self.again = Again::Reading(std::mem::take(owed));
                return Step::Read;
            }
            Again::Reading(_) => return Step::Wait,
            Again::Read(_) => {}
        }
        if !self.rest.is_empty() {
            return Step::Page(std::mem::take(&mut self.rest));
        }
        match self.stage {
            Stage::Reading => return Step::Wait,
            Stage::Read if self.missed => self.stage = Stage::Wanted,
            Stage::Read if self.log.is_some() => {
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
        if let Again::Reading(owed) = &self.again {
            let mut ids: Vec<NotificationId> = owed.iter().map(|owed| owed.id).collect();
            ids.dedup();
            return Some(Read::Outstanding { ids });
        }
        if let Some(since) = self.log.filter(|_| self.stage == Stage::Reading && self.reads_log) {
            return Some(Read::Log { since });
        }
        if self.stage == Stage::Reading {
            self.missed = false;
            if let Some(back_to) = self.back_to.take() {
                // Never before what pages brought: a page leaves nothing out.
                self.after = self.after.min(self.paged.max(Some(back_to)));
            }
            if let Some(heard) = wild {
                self.read_log_too(heard);
            }
            if let Anew::Wanted(after) = self.anew {
                self.anew = Anew::Reading;
                (self.after, self.paged) = (after, after);
            }
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

    /// What pages leave out because it is heard by a wildcard alone, logs bring: pages may reach further than what
    /// is held, and what is missed is held nowhere.
    fn read_log_too(&mut self, heard: Place) {
        if self.log.is_none() {
            let after = self.after.max(self.heard).map_or(heard, Place::of);
            self.log = Some(after.max(heard).max(self.logged_to));
            // Logs brought these before; what they bring now is remembered anew.
            self.held.retain(|dispatch| !self.logged.contains(&dispatch.message.id));
            self.logged.clear();
        }
    }

    /// A page of the backlog: what is to be written, in order.
    pub(crate) fn take_page(&mut self, page: BacklogPage) -> Vec<Paged> {
        let mut retained = Vec::from(std::mem::take(&mut self.retained));
        retained.extend(page.retained);
        retained.sort_by_key(|message| message.id);
        self.retained = retained.into();
        let mut paged = Vec::with_capacity(page.messages.len());
        for message in page.messages {
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
        paged
    }

    /// The last page was taken, and nothing came since that is neither in the pages nor held.
    pub(crate) fn is_whole(&self) -> bool {
        self.stage == Stage::Read && !self.missed
    }

    /// A page of a topic: what is to be written, in order. None if it is not wanted any more.
    pub(crate) fn take_recovered(&mut self, number: u64, page: BacklogPage) -> Option<Vec<Paged>> {
        let recovery = self.recoveries.front_mut().filter(|recovery| recovery.number == number)?;
        let last =
            page.messages.last().and_then(|message| message.topic.as_ref()).map(|place| place.position);
        let mut paged: Vec<Paged> =
            page.messages.into_iter().map(|message| Paged::page(message, false)).collect();
        paged.extend(page.retained.into_iter().map(|message| Paged::page(message, true)));
        paged.sort_by_key(|paged| paged.message.id);
        for Paged { message, retained, .. } in &paged {
            let Some(place) = &message.topic else { continue };
            if *retained && recovery.since.is_none() {
                // What was published between the subscription and this one was not read.
                recovery.beside = Some(place.position).filter(|_| !recovery.copies);
            } else {
                recovery.reach(place.position);
            }
        }
        let head = page.heads.iter().find(|head| head.topic == recovery.topic);
        recovery.complete &= head.is_none_or(|head| head.complete);
        match (page.more, last) {
            (true, Some(last)) => {
                recovery.since = Some(last);
                recovery.stage = Stage::Wanted;
            }
            _ => recovery.stage = Stage::Read,
        }
        if recovery.since.is_none() {
            // If more than can be held came meanwhile, it is read from here on.
            recovery.since = head.map(|head| head.position);
        }
        Some(paged)
    }
}

/// What a connection confirmed lately: at least the last [`CONFIRMED_MIN`], at most twice as many.
///
/// A confirmation is written some milliseconds later, so that is far more than reads can miss.
#[derive(Default)]
struct Confirmed {
    last: HashSet<NotificationId>,
    before: HashSet<NotificationId>,
}

impl Confirmed {
    fn add(&mut self, ids: &[NotificationId]) {
        for id in ids {
            if self.last.len() >= CONFIRMED_MIN {
                self.before = std::mem::take(&mut self.last);
            }
            self.last.insert(*id);
        }
    }

    fn has(&self, id: NotificationId) -> bool {
        self.last.contains(&id) || self.before.contains(&id)
    }
}

impl Recovery {
    fn step(&mut self) -> Step {
        match self.stage {
            Stage::Reading => return Step::Wait,
            Stage::Wanted => {}
            Stage::Read if self.missed => self.since = self.read_on_from(),
            Stage::Read => {
                self.stage = Stage::Done;
                let (topic, complete, told) = (self.topic.clone(), self.complete, self.told);
                let reached = Reached { last: self.last, beside: self.beside };
                return Step::Recovered { topic, complete, told, index: self.index, reached };
            }
            Stage::Done => match self.held.pop_front() {
                Some(dispatch) => return Step::Release(dispatch),
                // More came while the held ones went out, and was dropped.
                None if self.missed => {
                    self.since = self.read_on_from();
                    self.told = false;
                }
                None => return Step::Done,
            },
        }
        self.stage = Stage::Reading;
        Step::Read
    }

    /// Behind what was written; where nothing was, before what was held first.
    fn read_on_from(&self) -> Option<Position> {
        let held = self.held.front().and_then(|dispatch| dispatch.message.topic.as_ref());
        self.last.or_else(|| held.map(|place| before(place.position))).or(self.since)
    }

    /// Moves forward to `position`. False if it was reached before.
    fn reach(&mut self, position: Position) -> bool {
        let reached =
            self.last.is_some_and(|last| last.epoch == position.epoch && position.offset <= last.offset);
        if !reached {
            self.last = Some(position);
        }
        !reached
    }
}

fn before(at: Position) -> Position {
    Position { offset: at.offset.saturating_sub(1), ..at }
}

/// The place right before an id, in the order of commits.
fn behind(id: NotificationId) -> NotificationId {
    noroshi_delivery::id_at(Place(Place::of(id).0 - 1))
}

#[cfg(test)]
mod tests;
