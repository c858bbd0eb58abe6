//! Topics that a session stopped hearing by their names while filters with wildcards go on matching them. What it was
//! sent by the name is left out of the logs that are read for the filters.

use noroshi_store::Place;
use noroshi_types::{Message, Topic};

/// Of a topic the name brought everything behind one place and up to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ended {
    topic: Topic,
    behind: Place,
    up_to: Place,
}

/// At most [`Ended::MAX`]; beyond them messages come again.
#[derive(Debug, Default)]
pub(crate) struct EndedNames(Vec<Ended>);

impl Ended {
    /// A client has at most 1,000 subscriptions at once.
    const MAX: usize = 1_000;

    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.topic.as_str().len()
    }
}

impl EndedNames {
    pub(crate) fn add(&mut self, topic: &Topic, behind: Place, up_to: Place) {
        if behind < up_to && self.0.len() < Ended::MAX {
            self.0.push(Ended { topic: topic.clone(), behind, up_to });
        }
    }

    pub(crate) fn brought(&self, message: &Message) -> bool {
        let (Some(place), at) = (&message.topic, Place::of(message.id)) else { return false };
        let brings = |one: &Ended| one.behind < at && at <= one.up_to && one.topic == place.topic;
        self.0.iter().any(brings)
    }

    /// Those that reach further than the place from which logs are read on.
    pub(crate) fn behind(&self, since: Place) -> Vec<Ended> {
        self.0.iter().filter(|one| one.up_to > since).cloned().collect()
    }

    pub(crate) fn restore(&mut self, ended: Vec<Ended>) {
        self.0 = ended;
    }
}
