//! Sessions without a connection. The store has a session's subscriptions with the device; this node's memory has what
//! is in flight, a will that is not due, and when the session ends.
//!
//! The position of a durable subscription says which messages of a topic are not acknowledged. Filters with wildcards have
//! no position: the session has the ids of messages that they matched and the client has not acknowledged, and messages
//! behind a place in the order of commits were not sent. A session with such filters writes this when its connection
//! ends; others write nothing. So a node that is killed forgets wills that were not due and what was in flight: those
//! messages come again with new packet ids and the same notification ids. It forgets no subscription and no stored
//! message.
//!
//! Invariants: a [`Lot`] bounds the parked sessions; an evicted one continues from the store only. Only the holder that
//! left a session continues it: a device that was revoked, deleted and made again, or given to another user since then
//! gets a new session.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use noroshi_protocol::mqtt::{Answer, Saved, UnacknowledgedMessage, Will};
use noroshi_store::Place;
use noroshi_types::{AppId, Timestamp, Topic};
use parking_lot::Mutex;

use super::final_write::{FinalWrite, FinalWrites};
use super::stored::{OWED_MAX, StoredSession};
use crate::session::catch_up::Range;
use crate::session::parking::{Capacity, Lot};
use crate::session::registry::{Key, Session};

/// How far a session's messages were sent.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// See [`StoredSession::since`].
    pub(crate) since: Place,
    /// Messages at or before `since` that were not sent; at most [`OWED_MAX`].
    pub(crate) unsent: Vec<UnacknowledgedMessage>,
    /// Names that delivered some of the messages behind `since`.
    pub(crate) ended: Vec<Range>,
    /// Messages before `since` that are owed, by topics.
    pub(crate) gaps: Vec<Range>,
    /// Topics and filters whose retained messages were not read yet.
    pub(crate) retained_due: Vec<Box<str>>,
}

/// What a connection left.
pub(crate) struct ParkedSession {
    pub(crate) session: Arc<Session>,
    pub(crate) saved: Option<Box<Saved>>,
    pub(crate) progress: Progress,
    pub(crate) will: Option<Box<Will>>,
    pub(crate) will_at: Timestamp,
    pub(crate) ends_at: Timestamp,
    /// Durable subscriptions that end with it.
    topics: Vec<Topic>,
}

impl ParkedSession {
    pub(crate) fn new(
        session: Arc<Session>,
        (saved, progress): (Option<Box<Saved>>, Progress),
        will: Option<Box<Will>>,
        now: Timestamp,
        expiry_s: u32,
        topics: Vec<Topic>,
    ) -> Self {
        let after = |seconds: u32| now.saturating_add(Duration::from_secs(seconds.into()));
        let will_at = will.as_ref().map_or(Timestamp(u64::MAX), |will| after(will.delay_s.min(expiry_s)));
        let mut progress = progress;
        progress.unsent.truncate(OWED_MAX);
        Self { session, saved, progress, will, will_at, ends_at: after(expiry_s), topics }
    }

    /// Unacknowledged messages of the session, in addition to those behind [`Progress::since`].
    pub(crate) fn owed(&self) -> Vec<UnacknowledgedMessage> {
        let in_flight = self.saved.iter().flat_map(|saved| saved.in_flight());
        owed(in_flight, &self.progress.unsent)
    }

    pub(crate) fn take_will(&mut self) -> Option<Box<Will>> {
        self.will_at = Timestamp(u64::MAX);
        self.will.take()
    }

    fn due(&self) -> Timestamp {
        self.will_at.min(self.ends_at)
    }

    fn bytes(&self) -> usize {
        let will = self.will.as_ref().map_or(0, |will| size_of::<Will>() + will.held_bytes());
        let topics = self.topics.iter().map(|topic| size_of::<Topic>() + topic.as_str().len()).sum::<usize>();
        let saved = self.saved.as_ref().map_or(0, |saved| saved.held_bytes());
        let ranges: usize = self.progress.ended.iter().chain(&self.progress.gaps).map(Range::bytes).sum();
        let due: usize = self.progress.retained_due.iter().map(|due| size_of::<Box<str>>() + due.len()).sum();
        let unsent = self.progress.unsent.capacity() * size_of::<UnacknowledgedMessage>() + ranges + due;
        size_of::<Self>()
            + size_of::<Session>()
            + self.session.device.as_str().len()
            + will
            + topics
            + saved
            + unsent
    }
}

/// Messages that were sent, then those that were not; each once.
pub(crate) fn owed(
    in_flight: impl Iterator<Item = UnacknowledgedMessage>,
    unsent: &[UnacknowledgedMessage],
) -> Vec<UnacknowledgedMessage> {
    let mut owed: Vec<UnacknowledgedMessage> = in_flight.collect();
    let sent: HashSet<UnacknowledgedMessage> = owed.iter().copied().collect();
    owed.extend(unsent.iter().filter(|one| !sent.contains(one)));
    owed.truncate(OWED_MAX);
    owed
}

/// What is due for a session without a connection.
pub(crate) enum Due {
    Will(Arc<Session>, Box<Will>),
    /// Its durable subscriptions end.
    Ended(Arc<Session>, Vec<Topic>, FinalWrite),
}

/// Shared by all shards: a device may reconnect on any shard. Locked for some instructions at the beginning and the end
/// of a connection, and each second; nothing else is locked under it.
pub(crate) struct ParkedSessions(Mutex<Inner>, Arc<FinalWrites>);

/// Invariant: a session without a connection that is not in the lot left before this process began, or it has ended, or
/// the lot evicted it.
struct Inner {
    lot: Lot<ParkedSession>,
    /// When this process began.
    began: Timestamp,
    /// By app: when the last of its evicted sessions ends. At most one entry an app; an app's deletion removes it.
    evicted_until: HashMap<AppId, Timestamp>,
}

impl ParkedSessions {
    pub(crate) fn new(now: Timestamp, capacity: Capacity) -> Self {
        let (lot, evicted_until) = (Lot::new(capacity), HashMap::new());
        Self(Mutex::new(Inner { lot, began: now, evicted_until }), Arc::default())
    }

    /// Whether a session of the app that is not parked here has ended, if no other node could have had it. A connection
    /// of an earlier process ended at the latest when this one began.
    pub(crate) fn has_ended(&self, app: AppId, stored: &StoredSession, now: Timestamp) -> bool {
        let inner = self.0.lock();
        let ends_at = inner.began.saturating_add(Duration::from_secs(stored.expiry_s.into()));
        let was_evicted = inner.evicted_until.get(&app).is_some_and(|until| *until > now);
        ends_at <= now && !was_evicted
    }

    pub(crate) fn final_writes(&self) -> &Arc<FinalWrites> {
        &self.1
    }

    /// Returns the sessions that were evicted for it: perhaps `parked` itself.
    pub(crate) fn put(&self, parked: ParkedSession) -> Vec<ParkedSession> {
        let mut inner = self.0.lock();
        let evicted = inner.put(parked);
        for parked in &evicted {
            let until = inner.evicted_until.entry(parked.session.app).or_insert(parked.ends_at);
            *until = parked.ends_at.max(*until);
        }
        evicted
    }

    pub(crate) fn take(&self, device_key: Key) -> Option<ParkedSession> {
        self.0.lock().lot.remove(device_key)
    }

    /// An app was deleted.
    pub(crate) fn forget_app(&self, app: AppId) {
        let mut inner = self.0.lock();
        inner.lot.remove_app(app);
        inner.evicted_until.remove(&app);
    }

    /// A message of a connection that has ended was accepted.
    pub(crate) fn published(&self, session: &Session, answer: Answer) {
        let mut inner = self.0.lock();
        let parked = inner.lot.get_mut(session.device_key);
        let parked = parked.filter(|parked| parked.session.address == session.address);
        if let Some(saved) = parked.and_then(|parked| parked.saved.as_mut()) {
            saved.published(answer);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().lot.len() == 0
    }

    /// How many sessions are parked, and their bytes.
    pub(crate) fn held(&self) -> (usize, usize) {
        let inner = self.0.lock();
        (inner.lot.len(), inner.lot.bytes())
    }

    /// Takes out what is due, at most 256 at once.
    pub(crate) fn take_due(&self, now: Timestamp) -> Vec<Due> {
        let mut inner = self.0.lock();
        let mut due = Vec::new();
        while due.len() < 256
            && let Some((_, mut parked)) = inner.lot.take_due(now)
        {
            if parked.will_at <= now
                && let Some(will) = parked.take_will()
            {
                due.push(Due::Will(parked.session.clone(), will));
            }
            if parked.ends_at <= now {
                let (key, generation) = (parked.session.device_key, parked.session.address.generation);
                let write = self.1.announce(key, generation, true);
                due.push(Due::Ended(parked.session, parked.topics, write));
            } else {
                // It is smaller than before, so there is room.
                inner.put(parked);
            }
        }
        due
    }
}

impl Inner {
    fn put(&mut self, parked: ParkedSession) -> Vec<ParkedSession> {
        let (key, app, due, bytes) =
            (parked.session.device_key, parked.session.app, parked.due(), parked.bytes());
        self.lot.insert(key, app, due, bytes, parked)
    }
}

#[cfg(test)]
mod tests {
    use noroshi_types::{DeviceId, DeviceNum};

    use super::*;
    use crate::session::registry::{Address, Registry, Versions};

    fn session(device: &str, app: AppId) -> Arc<Session> {
        let device = DeviceId::parse(device).expect("an id");
        let address = Address { shard: 0, slot: 0, generation: 1 };
        let registry = Registry::new(None);
        Arc::new(Session::new(&registry, app, device, None, DeviceNum(1), address, Versions::default()))
    }

    #[test]
    fn a_session_of_an_earlier_process_ends_by_when_this_one_began() {
        let capacity = Capacity { entries_max: 9, bytes_max: usize::MAX };
        let sessions = ParkedSessions::new(Timestamp(1_000), capacity);
        let stored = StoredSession { since: Place(1), expiry_s: 60, ..StoredSession::default() };
        let has_ended = |now| sessions.has_ended(AppId(1), &stored, Timestamp(now));
        assert!(!has_ended(60_999) && has_ended(61_000));
    }

    #[test]
    fn an_eviction_holds_back_the_expiry_of_its_apps_sessions_only() {
        const NOW: Timestamp = Timestamp(1_000);
        let sessions = ParkedSessions::new(Timestamp(0), Capacity { entries_max: 1, bytes_max: usize::MAX });
        let stored = StoredSession { since: Place(1), expiry_s: 1, ..StoredSession::default() };
        let put = |device, expiry_s| {
            let session = session(device, AppId(1));
            let nothing = (None, Progress::default());
            sessions.put(ParkedSession::new(session, nothing, None, NOW, expiry_s, Vec::new())).len()
        };
        let has_ended = |app, now| sessions.has_ended(AppId(app), &stored, Timestamp(now));
        assert_eq!([put("a", 60), put("b", 9), put("c", 9)], [0, 1, 1]);
        assert!(has_ended(2, 1_000), "no session of this app was evicted");
        assert!(!has_ended(1, 60_999), "one that was evicted may last until 61 s");
        assert!(has_ended(1, 61_000));
        sessions.forget_app(AppId(1));
        assert!(sessions.0.lock().evicted_until.is_empty());
    }
}
