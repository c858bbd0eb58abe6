//! What outlives an MQTT connection: the session's subscriptions, kept in the store with the device, and what
//! is in flight, a will that is not due and when the session ends, kept in this node's memory.
//!
//! A disconnect writes nothing to the store: a node that is killed forgets what was in flight, so that those
//! messages come again with new packet ids and the same notification ids, and wills that were not due. It does not
//! forget subscriptions, nor anything that is stored.
//!
//! Invariant: what is left is bounded in number; without room a session goes on from the store alone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use noroshi_protocol::mqtt::{Answer, Saved, SubscribeOptions, Subscription, TopicFilter, Will};
use noroshi_store::Place;
use noroshi_types::{Timestamp, Topic};
use parking_lot::Mutex;

use crate::registry::{Key, Session};

/// Sessions without a connection that are remembered: at some 300 bytes each, 20 MiB.
const LEFT_MAX: usize = 1 << 16;
const VERSION: u8 = 2;

/// A session as the store keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    /// What was accepted up to here was heard, for filters with wildcards.
    pub(crate) since: Place,
    /// How long it outlives its connection.
    pub(crate) expiry_s: u32,
    pub(crate) subscriptions: Vec<Subscription>,
}

impl Kept {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.since.0.to_be_bytes());
        out.extend_from_slice(&self.expiry_s.to_be_bytes());
        for Subscription { filter, options, id } in &self.subscriptions {
            let text = filter.as_str().as_bytes();
            // A filter has at most 255 bytes.
            out.push(u8::try_from(text.len()).unwrap_or(u8::MAX));
            out.extend_from_slice(&text[..text.len().min(usize::from(u8::MAX))]);
            out.push(options.as_u8());
            out.extend_from_slice(&id.to_be_bytes());
        }
        out
    }

    /// `None` if another program wrote it.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes.strip_prefix(&[VERSION])?;
        let since = Place(i64::from_be_bytes(take(&mut rest)?));
        let expiry_s = u32::from_be_bytes(take(&mut rest)?);
        let mut subscriptions = Vec::new();
        while let Some((len, after)) = rest.split_first() {
            let (text, after) = after.split_at_checked(usize::from(*len))?;
            let (options, mut after) = after.split_first()?;
            subscriptions.push(Subscription {
                filter: TopicFilter::parse(std::str::from_utf8(text).ok()?).ok()?,
                options: SubscribeOptions::from_u8(*options)?,
                id: u32::from_be_bytes(take(&mut after)?),
            });
            rest = after;
        }
        Some(Self { since, expiry_s, subscriptions })
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*bytes)
}

/// What a connection left.
pub(crate) struct Left {
    pub(crate) session: Arc<Session>,
    pub(crate) saved: Option<Box<Saved>>,
    pub(crate) will: Option<Box<Will>>,
    pub(crate) will_at: Timestamp,
    pub(crate) ends_at: Timestamp,
    /// Durable subscriptions that end with it.
    topics: Vec<Topic>,
}

impl Left {
    pub(crate) fn new(
        session: Arc<Session>,
        saved: Option<Box<Saved>>,
        will: Option<Box<Will>>,
        now: Timestamp,
        expiry_s: u32,
        topics: Vec<Topic>,
    ) -> Self {
        let after = |seconds: u32| now.saturating_add(Duration::from_secs(seconds.into()));
        let will_at = will.as_ref().map_or(Timestamp(u64::MAX), |will| after(will.delay_s.min(expiry_s)));
        Self { session, saved, will, will_at, ends_at: after(expiry_s), topics }
    }

    pub(crate) fn take_will(&mut self) -> Option<Box<Will>> {
        self.will_at = Timestamp(u64::MAX);
        self.will.take()
    }

    fn due(&self) -> Timestamp {
        self.will_at.min(self.ends_at)
    }
}

/// What time brought to a session without a connection.
pub(crate) enum Due {
    Will(Arc<Session>, Box<Will>),
    /// Its durable subscriptions are to be forgotten.
    Ended(Arc<Session>, Vec<Topic>),
}

/// Of all shards: a device may come back on any. Locked for some instructions at the beginning and the end
/// of a connection, and each second; nothing else is locked under it.
pub(crate) struct Lefts(Mutex<Inner>);

struct Inner {
    by_device: HashMap<Key, Left>,
    by_due: BTreeSet<(Timestamp, Key)>,
    /// Whoever left since then is here or back.
    complete_since: Option<Timestamp>,
}

impl Lefts {
    pub(crate) fn new(now: Timestamp) -> Self {
        let (by_device, by_due) = (HashMap::new(), BTreeSet::new());
        Self(Mutex::new(Inner { by_device, by_due, complete_since: Some(now) }))
    }

    /// Whether a session that is not here has ended, where no other node could have had it. A connection that this
    /// node did not see ended at the latest when it began.
    pub(crate) fn has_ended(&self, kept: &Kept, now: Timestamp) -> bool {
        let begun = self.0.lock().complete_since;
        let ends_at = |begun: Timestamp| begun.saturating_add(Duration::from_secs(kept.expiry_s.into()));
        begun.is_some_and(|begun| ends_at(begun) <= now)
    }

    /// False if there is no room.
    pub(crate) fn put(&self, left: Left) -> bool {
        let mut inner = self.0.lock();
        let key = left.session.device_key;
        if inner.by_device.len() >= LEFT_MAX && !inner.by_device.contains_key(&key) {
            inner.complete_since = None;
            return false;
        }
        let due = left.due();
        if let Some(old) = inner.by_device.insert(key, left) {
            let old_due = old.due();
            inner.by_due.remove(&(old_due, key));
        }
        inner.by_due.insert((due, key));
        true
    }

    pub(crate) fn take(&self, device_key: Key) -> Option<Left> {
        let mut inner = self.0.lock();
        let left = inner.by_device.remove(&device_key)?;
        inner.by_due.remove(&(left.due(), device_key));
        Some(left)
    }

    /// What a connection published that is gone was accepted.
    pub(crate) fn published(&self, session: &Session, answer: Answer) {
        let mut inner = self.0.lock();
        let left = inner.by_device.get_mut(&session.device_key);
        let left = left.filter(|left| left.session.address == session.address);
        if let Some(saved) = left.and_then(|left| left.saved.as_mut()) {
            saved.published(answer);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().by_device.is_empty()
    }

    /// Takes out what is due, at most some hundreds at once.
    pub(crate) fn take_due(&self, now: Timestamp) -> Vec<Due> {
        let mut inner = self.0.lock();
        let mut due = Vec::new();
        while due.len() < 256
            && let Some((at, key)) = inner.by_due.first().copied()
            && at <= now
        {
            inner.by_due.pop_first();
            let Some(mut left) = inner.by_device.remove(&key) else { continue };
            if left.will_at <= now
                && let Some(will) = left.take_will()
            {
                due.push(Due::Will(left.session.clone(), will));
            }
            if left.ends_at <= now {
                due.push(Due::Ended(left.session, left.topics));
            } else {
                inner.by_due.insert((left.due(), key));
                inner.by_device.insert(key, left);
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use noroshi_protocol::mqtt::Qos;

    use super::*;

    #[test]
    fn a_session_of_an_earlier_process_ends_by_when_this_one_began() {
        let lefts = Lefts::new(Timestamp(1_000));
        let kept = Kept { since: Place(1), expiry_s: 60, subscriptions: Vec::new() };
        assert!(!lefts.has_ended(&kept, Timestamp(60_999)) && lefts.has_ended(&kept, Timestamp(61_000)));
        lefts.0.lock().complete_since = None;
        assert!(!lefts.has_ended(&kept, Timestamp(61_000)), "some had no room");
    }

    #[test]
    fn what_is_kept_comes_back() {
        let held = |filter: &str, id| Subscription {
            filter: TopicFilter::parse(filter).expect("a filter"),
            options: SubscribeOptions::new(Qos::ExactlyOnce),
            id,
        };
        let kept = Kept {
            since: Place(77),
            expiry_s: 60,
            subscriptions: vec![held("a/+", 0), held("$noroshi/inbox", 9)],
        };
        let bytes = kept.encode();
        assert_eq!(Kept::parse(&bytes), Some(kept));
        for cut in (0..bytes.len()).filter(|cut| *cut != 13 && *cut != 22) {
            assert_eq!(Kept::parse(&bytes[..cut]), None, "{cut}");
        }
        assert_eq!(Kept::parse(&[9]), None, "another program's");
    }
}
