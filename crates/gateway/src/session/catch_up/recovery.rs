//! What a connection gets of one topic that it subscribes to, or for which it names a position: the log behind the
//! position, the retained message, and what was published meanwhile, by offsets.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use noroshi_store::BacklogPage;
use noroshi_types::{Message, Position, Recovered, Since, Topic};

use super::{CatchUp, Paged, Stage, Step};
use crate::session::catch_up::behind;
use crate::wire::dispatch::Dispatch;

pub(super) struct Recovery {
    /// Distinguishes results.
    pub(super) number: u64,
    pub(super) index: u32,
    pub(super) topic: Topic,
    pub(super) stage: Stage,
    pub(super) since: Option<Position>,
    /// The client named a position or asked for one: it gets a report at the end.
    pub(super) is_reported: bool,
    /// A new subscription whose client asks for a position: it receives what follows the end of the log.
    pub(super) begins_at_end: bool,
    /// The end of the log at the last read.
    pub(super) head: Option<Position>,
    pub(super) retained: bool,
    /// The retained message was not read yet.
    pub(super) retained_due: bool,
    pub(super) complete: bool,
    pub(super) last: Option<Position>,
    pub(super) retained_at: Option<Position>,
    /// The retained message is a copy: the message itself follows too if it was published after the subscription.
    pub(super) copies: bool,
    pub(super) held: VecDeque<Arc<Dispatch>>,
    pub(super) missed: bool,
}

/// What reading a topic brought.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Reached {
    /// Everything up to here.
    pub(crate) last: Option<Position>,
    /// Exactly this one: the retained message, of a log that was not read.
    pub(crate) retained_at: Option<Position>,
}

impl Recovery {
    pub(super) fn step(&mut self) -> Step {
        match self.stage {
            Stage::Reading => return Step::Wait,
            Stage::Wanted => {}
            Stage::Read if self.missed => self.since = self.read_on_from(),
            Stage::Read => {
                self.stage = Stage::Done;
                let reached = Reached { last: self.last, retained_at: self.retained_at };
                let report = self.is_reported.then(|| self.report());
                return Step::Recovered { index: self.index, reached, report };
            }
            Stage::Done => match self.held.pop_front() {
                Some(dispatch) => return Step::Release(dispatch),
                // More arrived while the held messages were released, and was dropped.
                None if self.missed => {
                    self.since = self.read_on_from();
                    self.is_reported = false;
                }
                None => return Step::Done,
            },
        }
        self.stage = Stage::Reading;
        Step::Read
    }

    fn report(&self) -> Recovered {
        let position = match (self.last, self.head) {
            (Some(last), Some(head)) if last.epoch == head.epoch && last.offset > head.offset => Some(last),
            (last, head) => head.or(last),
        };
        Recovered { topic: self.topic.clone(), complete: self.complete, position }
    }

    /// Behind the last message that was written; before the first held one where none was written.
    fn read_on_from(&self) -> Option<Position> {
        let held = self.held.front().and_then(|dispatch| dispatch.message.topic.as_ref());
        self.last.or_else(|| held.map(|place| before(place.position))).or(self.since)
    }

    /// Moves forward to `position`. False if it was reached before.
    pub(super) fn reach(&mut self, position: Position) -> bool {
        let reached =
            self.last.is_some_and(|last| last.epoch == position.epoch && position.offset <= last.offset);
        if !reached {
            self.last = Some(position);
        }
        !reached
    }
}

pub(super) fn before(at: Position) -> Position {
    Position { offset: at.offset.saturating_sub(1), ..at }
}

impl CatchUp {
    /// Reads a topic `since` a position, and its retained message if the subscription is `new`.
    pub(crate) fn recover(&mut self, number: u64, index: u32, topic: Topic, since: Option<Since>, new: bool) {
        // A topic for which another position is named starts again. Not searched otherwise: 1,000 topics may come in
        // one frame.
        if !new {
            self.recoveries.retain(|recovery| recovery.index != index);
        }
        self.recoveries.push_back(Recovery {
            number,
            index,
            topic,
            stage: Stage::Wanted,
            since: match since {
                Some(Since::Position(position)) => Some(position),
                Some(Since::Now) | None => None,
            },
            is_reported: since.is_some(),
            begins_at_end: new && since == Some(Since::Now),
            head: None,
            retained: new,
            retained_due: new,
            complete: true,
            last: None,
            retained_at: None,
            copies: false,
            held: VecDeque::new(),
            missed: false,
        });
    }

    /// Reads the retained message in addition to the subscription.
    pub(crate) fn copy_retained(&mut self, number: u64, index: u32, topic: Topic) {
        self.recover(number, index, topic, None, true);
        if let Some(recovery) = self.recoveries.back_mut() {
            recovery.copies = true;
        }
    }

    pub(crate) fn forget_topics(&mut self, indices: &HashSet<u32>) {
        self.recoveries.retain(|recovery| !indices.contains(&recovery.index));
    }

    /// Messages that recoveries hold are released after all pages. Pages that bring later messages of the topic have to
    /// bring these too: pages reach further, so nothing else would.
    pub(super) fn begin_before_recoveries(&mut self) {
        let first = self.recoveries.iter().filter_map(|recovery| recovery.held.front());
        let first = first.map(|dispatch| behind(dispatch.message.id)).min();
        if first.is_some() && first < self.after {
            self.brought_to = self.brought_to.max(self.after);
            self.after = first;
        }
    }

    /// Whether a recovery holds this message, or an earlier one of its topic.
    pub(super) fn waits_in_recovery(&self, message: &Message) -> bool {
        let of_topic =
            |recovery: &&Recovery| message.topic.as_ref().is_some_and(|place| place.topic == recovery.topic);
        let mut first = self.recoveries.iter().filter(of_topic).filter_map(|recovery| recovery.held.front());
        first.any(|dispatch| dispatch.message.id <= message.id)
    }

    /// Takes a page of a topic. Returns the messages to write, in order; none if the subscription ended meanwhile.
    pub(crate) fn take_recovered(&mut self, number: u64, page: BacklogPage) -> Option<Vec<Paged>> {
        let recovery = self.recoveries.front_mut().filter(|recovery| recovery.number == number)?;
        recovery.retained_due = false;
        let last =
            page.messages.last().and_then(|message| message.topic.as_ref()).map(|place| place.position);
        let mut paged: Vec<Paged> =
            page.messages.into_iter().map(|message| Paged::page(message, false)).collect();
        paged.extend(page.retained.into_iter().map(|message| Paged::page(message, true)));
        paged.sort_by_key(|paged| paged.message.id);
        for Paged { message, retained, .. } in &paged {
            let Some(place) = &message.topic else { continue };
            if *retained && recovery.since.is_none() {
                // Messages published between the subscription and this one were not read.
                recovery.retained_at = Some(place.position).filter(|_| !recovery.copies);
            } else {
                recovery.reach(place.position);
            }
        }
        let head = page.heads.iter().find(|head| head.topic == recovery.topic);
        recovery.complete &= head.is_none_or(|head| head.complete);
        recovery.head = head.map(|head| head.position);
        match (page.more, last) {
            (true, Some(last)) => {
                recovery.since = Some(last);
                recovery.stage = Stage::Wanted;
            }
            _ => recovery.stage = Stage::Read,
        }
        // The client will name this position after a reconnection: it must have everything up to it now.
        if let Some(head) = recovery.head.filter(|_| std::mem::take(&mut recovery.begins_at_end)) {
            recovery.reach(head);
        }
        if recovery.since.is_none() {
            // If more messages arrive than can be held, they are read from here on.
            recovery.since = head.map(|head| head.position);
        }
        Some(paged)
    }
}
