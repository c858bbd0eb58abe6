//! What a session had in flight when it resumed. It is read by id and sent before everything else; pages, logs and held
//! messages leave it out. And what the client acknowledged meanwhile: a read that began before the acknowledgement was
//! written may bring the message once more.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use noroshi_protocol::mqtt::UnacknowledgedMessage;
use noroshi_store::Place;
use noroshi_types::{Message, NotificationId, Topic};

use super::{Brought, CatchUp, Paged};

/// What a session had in flight.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outstanding {
    Wanted(Vec<UnacknowledgedMessage>),
    /// Queued or in progress.
    Reading(Vec<UnacknowledgedMessage>),
    /// These were found.
    Read(HashSet<UnacknowledgedMessage>),
}

impl Default for Outstanding {
    fn default() -> Self {
        Self::Read(HashSet::new())
    }
}

/// Up to where names brought the messages in flight.
#[derive(Default)]
pub(super) struct SentByName {
    to: HashMap<Topic, Place>,
    /// Names that ended before that was known, and the places behind which they were received.
    ended: Vec<(Topic, Place)>,
}

impl SentByName {
    pub(super) fn to(&self, topic: &Topic) -> Place {
        self.to.get(topic).copied().unwrap_or(Place(0))
    }

    pub(super) fn end(&mut self, topic: &Topic, behind: Place) {
        self.ended.push((topic.clone(), behind));
    }
}

/// 512 × 16 B, twice: 16 KiB for a connection that catches up.
pub(super) const ACKNOWLEDGED_MIN: usize = 512;

/// The last acknowledgements: at least [`ACKNOWLEDGED_MIN`], at most twice as many. An acknowledgement is written within some
/// milliseconds, so that is far more than reads can miss.
#[derive(Default)]
pub(super) struct Acknowledged {
    last: HashSet<NotificationId>,
    before: HashSet<NotificationId>,
}

impl Acknowledged {
    fn add(&mut self, ids: &[NotificationId]) {
        for id in ids {
            if self.last.len() >= ACKNOWLEDGED_MIN {
                self.before = std::mem::take(&mut self.last);
            }
            self.last.insert(*id);
        }
    }

    fn has(&self, id: NotificationId) -> bool {
        self.last.contains(&id) || self.before.contains(&id)
    }
}

impl CatchUp {
    /// The client has these messages: reads that still bring them are ignored.
    pub(crate) fn acknowledge(&mut self, ids: &[NotificationId]) {
        self.acknowledged.add(ids);
        self.rest.retain(|paged| paged.retained || !ids.contains(&paged.message.id));
    }

    /// Whether the client acknowledged it recently.
    pub(crate) fn is_acknowledged(&self, id: NotificationId) -> bool {
        self.acknowledged.has(id)
    }

    /// Sends the session's in-flight messages before everything else.
    pub(crate) fn send_again(&mut self, owed: Vec<UnacknowledgedMessage>) {
        if !owed.is_empty() {
            self.outstanding = Outstanding::Wanted(owed);
        }
    }

    /// Whether that is not read yet: until then nothing is written.
    pub(crate) fn awaits_again(&self) -> bool {
        !matches!(self.outstanding, Outstanding::Read(_))
    }

    /// Whether a message was in flight when the session resumed: it is or was sent again.
    pub(crate) fn is_sent_again(&self, id: NotificationId) -> bool {
        matches!(&self.outstanding, Outstanding::Read(found) if found.contains(&UnacknowledgedMessage { id, retained: false }))
    }

    /// A page waits for the messages in flight.
    pub(crate) fn defer(&mut self, page: Vec<Paged>) {
        self.rest.extend(page);
    }

    /// The messages in flight that still exist. Returns which they are.
    pub(crate) fn take_again(&mut self, messages: &[Arc<Message>]) -> HashSet<UnacknowledgedMessage> {
        let Outstanding::Reading(owed) = &self.outstanding else { return HashSet::new() };
        let by_id: HashMap<NotificationId, &Arc<Message>> =
            messages.iter().map(|message| (message.id, message)).collect();
        let find = |owed: &UnacknowledgedMessage| {
            let message = Arc::clone(by_id.get(&owed.id)?);
            Some(Paged { message, retained: owed.retained, by: Brought::ById })
        };
        let again: Vec<Paged> = owed.iter().filter_map(find).collect();
        let found: HashSet<UnacknowledgedMessage> = again.iter().map(Paged::owed).collect();
        self.rest.retain(|paged| !found.contains(&paged.owed()));
        self.note_sent_by_name(&again);
        self.rest.splice(0..0, again);
        self.outstanding = Outstanding::Read(found.clone());
        found
    }

    /// A name brings its topic's messages in order, so those before a message in flight were sent too.
    fn note_sent_by_name(&mut self, again: &[Paged]) {
        for Paged { message, .. } in again.iter().filter(|paged| !paged.retained) {
            let Some(place) = &message.topic else { continue };
            let to = self.sent_by_name.to.entry(place.topic.clone()).or_insert(Place(0));
            *to = Place::of(message.id).max(*to);
        }
        for (topic, behind) in std::mem::take(&mut self.sent_by_name.ended) {
            let to = self.sent_by_name.to(&topic);
            self.ended.add(&topic, behind, to);
            self.gaps.begin_behind(&topic, to);
        }
    }

    /// Messages that the client still has to get, that no log would bring again, and that the connection did not send.
    pub(crate) fn unsent(&self) -> Vec<UnacknowledgedMessage> {
        let rest = self.rest.iter().filter(|paged| paged.retained || paged.by == Brought::ById);
        let rest = rest.map(Paged::owed);
        match &self.outstanding {
            Outstanding::Wanted(owed) | Outstanding::Reading(owed) => {
                owed.iter().copied().chain(rest).collect()
            }
            Outstanding::Read(_) => rest.collect(),
        }
    }
}
