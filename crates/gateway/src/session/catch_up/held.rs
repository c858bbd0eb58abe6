//! Live messages that wait while a connection catches up, or until its conversation has room.

use std::sync::Arc;

use noroshi_types::{Message, NotificationId, Topic};

use super::recovery::before;
use super::{CatchUp, Paged, Stage};
use crate::session::catch_up::behind;
use crate::wire::dispatch::Dispatch;

/// Live messages held for one connection or one of its topics; more are read from the store.
pub(super) const HELD_MAX: usize = 64;

/// What became of a live message at a connection that catches up.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// It does not have to wait.
    Not,
    Held,
    /// No room: if it is kept, it will be read.
    Missed,
}

impl CatchUp {
    /// Holds a live message for which there is no room, and those behind it. If they become too many, they are read
    /// instead.
    pub(crate) fn park(&mut self, dispatch: &Arc<Dispatch>, own_topics: Vec<Topic>) {
        self.waits_for_room = true;
        let after = behind(dispatch.message.id);
        self.held.push_back(dispatch.clone());
        self.leave_live(Stage::Read, after, own_topics);
    }

    /// A message that was to be released has no room.
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

    /// The place before the first held message.
    pub(super) fn before_held(&self) -> Option<NotificationId> {
        self.held.iter().map(|dispatch| dispatch.message.id).min().map(behind)
    }

    /// The rest of a page has no room.
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
        // While held messages are released, none may follow a missed one, which is read first.
        if held.len() < HELD_MAX && !(*missed && releasing) {
            held.push_back(dispatch.clone());
            return Hold::Held;
        }
        *missed = true;
        self.was_live = false;
        Hold::Missed
    }

    /// Whether a message is held here. A page that brings a held message must write it, since it is not released
    /// afterwards. A message that is offered again is released nevertheless.
    pub(crate) fn holds(&self, id: NotificationId) -> bool {
        let of_recoveries = self.recoveries.iter().flat_map(|recovery| &recovery.held);
        self.held
            .iter()
            .chain(of_recoveries)
            .any(|dispatch| !dispatch.is_reoffered && dispatch.message.id == id)
    }

    /// Records that a held message is released. False if a read brought it.
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
