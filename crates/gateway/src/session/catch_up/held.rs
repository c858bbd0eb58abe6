//! Live messages that wait while a connection catches up, or that its conversation has no room for.

use std::sync::Arc;

use noroshi_store::Place;
use noroshi_types::{Message, NotificationId, Topic};

use super::recovery::before;
use super::{CatchUp, Paged, Stage};
use crate::wire::dispatch::Dispatch;

/// Live messages held for one connection or one of its topics; more are read from the store.
pub(super) const HELD_MAX: usize = 64;

/// What became of a live message at a connection that catches up.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// It is none of those that wait.
    Not,
    Held,
    /// No room: if it is kept it will be read.
    Missed,
}

/// The place right before an id, in the order of commits.
pub(super) fn behind(id: NotificationId) -> NotificationId {
    noroshi_delivery::id_at(Place(Place::of(id).0 - 1))
}

impl CatchUp {
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

    /// The place right before the first of those that are held.
    pub(super) fn before_held(&self) -> Option<NotificationId> {
        self.held.iter().map(|dispatch| dispatch.message.id).min().map(behind)
    }

    /// What is left of a page has no room.
    pub(crate) fn keep_rest(&mut self, rest: Vec<Paged>) {
        self.waits_for_room |= !rest.is_empty();
        self.rest.splice(0..0, rest);
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
        self.held
            .iter()
            .chain(of_recoveries)
            .any(|dispatch| !dispatch.is_reoffered && dispatch.message.id == id)
    }

    /// Remembers that a held message goes out. False if a read brought it.
    pub(crate) fn pass(&mut self, message: &Message) -> bool {
        let Some(place) = message.topic.as_ref().filter(|_| self.stage == Stage::Done) else {
            self.after = self.after.max(Some(message.id));
            return true;
        };
        let recovery = self.recoveries.front_mut().filter(|recovery| recovery.topic == place.topic);
        recovery.is_none_or(|recovery| {
            recovery.reach(place.position) && recovery.retained_at != Some(place.position)
        })
    }
}
