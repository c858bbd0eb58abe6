//! Topics that a session unsubscribed from by name while its filters with wildcards still match them. Messages that
//! were sent by the name are left out of the logs that are read for the filters. Messages that the name had not brought
//! yet, and that the logs left out, are read from the logs after all.

use noroshi_store::Place;
use noroshi_types::{Message, Topic};

/// A range of places of one topic, or of all topics where there are too many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Range {
    topic: Option<Topic>,
    behind: Place,
    up_to: Place,
}

/// What names brought. At most [`Range::MAX`]; beyond that messages are sent again.
#[derive(Debug, Default)]
pub(crate) struct EndedNames(Vec<Range>);

impl Range {
    /// A client has at most 1,000 subscriptions at once.
    const MAX: usize = 1_000;

    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.topic.as_ref().map_or(0, |topic| topic.as_str().len())
    }

    fn has(&self, message: &Message) -> bool {
        let (Some(place), at) = (&message.topic, Place::of(message.id)) else { return false };
        let is_of = |topic: &Topic| *topic == place.topic;
        self.behind < at && at <= self.up_to && self.topic.as_ref().is_none_or(is_of)
    }
}

impl EndedNames {
    pub(crate) fn add(&mut self, topic: &Topic, behind: Place, up_to: Place) {
        if behind < up_to && self.0.len() < Range::MAX {
            self.0.push(Range { topic: Some(topic.clone()), behind, up_to });
        }
    }

    pub(crate) fn brought(&self, message: &Message) -> bool {
        self.0.iter().any(|one| one.has(message))
    }

    /// The names whose messages reach beyond the place behind which logs are read.
    pub(crate) fn behind(&self, since: Place) -> Vec<Range> {
        self.0.iter().filter(|one| one.up_to > since).cloned().collect()
    }

    pub(crate) fn restore(&mut self, ended: Vec<Range>) {
        self.0 = ended;
    }
}

/// What logs still have to bring. At most [`Range::MAX`]; beyond that messages are sent again.
#[derive(Debug, Default)]
pub(crate) struct Gaps(Vec<Range>);

impl Gaps {
    pub(crate) fn add(&mut self, topic: &Topic, behind: Place, up_to: Place) {
        if behind >= up_to {
            return;
        }
        let is_full = self.0.len() >= Range::MAX;
        match self.0.last_mut().filter(|last| is_full || last.topic.is_none()) {
            Some(last) => {
                last.topic = None;
                (last.behind, last.up_to) = (last.behind.min(behind), last.up_to.max(up_to));
            }
            None => self.0.push(Range { topic: Some(topic.clone()), behind, up_to }),
        }
    }

    /// Where the first one begins.
    pub(crate) fn begin(&self) -> Option<Place> {
        self.0.iter().map(|gap| gap.behind).min()
    }

    pub(crate) fn has(&self, message: &Message) -> bool {
        self.0.iter().any(|gap| gap.has(message))
    }

    /// Logs were read behind one place and up to another, or to their end.
    pub(crate) fn close(&mut self, since: Place, to: Option<Place>) {
        self.0.retain_mut(|gap| {
            let is_read_to_its_end = to.is_none_or(|to| gap.up_to <= to);
            match (gap.behind >= since, is_read_to_its_end, to) {
                (true, true, _) => return false,
                (true, false, Some(to)) => gap.behind = gap.behind.max(to),
                // It was added meanwhile.
                (false, true, _) => gap.up_to = gap.up_to.min(since),
                _ => {}
            }
            gap.behind < gap.up_to
        });
    }

    /// The client has everything of a topic up to `place`.
    pub(super) fn begin_behind(&mut self, topic: &Topic, place: Place) {
        for gap in self.0.iter_mut().filter(|gap| gap.topic.as_ref() == Some(topic)) {
            gap.behind = gap.behind.max(place);
        }
        self.0.retain(|gap| gap.behind < gap.up_to);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn held(&self) -> Vec<Range> {
        self.0.clone()
    }

    pub(crate) fn restore(&mut self, gaps: Vec<Range>) {
        self.0 = gaps;
    }
}
