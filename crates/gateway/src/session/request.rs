//! Requests of a client that wait for an outcome: topic rules, the check of a token, a subscription.

use std::any::Any;

use noroshi_delivery::rules::{Reason, Verdict};
use noroshi_types::Topic;
use noroshi_types::rule::{Action, Denied};
use noroshi_types::topic::needs_rule;

use crate::session::permission::Verdicts;

/// The memory of a name in addition to its text, and of a request in addition to its names.
const NAME_BYTES: usize = 48;

/// A request of any protocol.
pub(crate) type BoxedRequest = Box<dyn ClientRequest>;

/// A request of a protocol. Its adapter receives it again with the outcome.
pub(crate) trait ClientRequest: Any + Send {
    /// What topic rules decide about.
    fn action(&self) -> Action {
        Action::Subscribe
    }

    /// The topics and filters that need a permission, in order.
    fn names(&self) -> Vec<Box<str>> {
        Vec::new()
    }

    /// Bytes sent by the client that the request holds while it waits.
    fn held_bytes(&self) -> usize {
        0
    }

    /// Whether it may name topics that only a rule opens ([`needs_rule`]).
    fn may_need_rule(&self) -> bool {
        false
    }
}

impl dyn ClientRequest {
    /// Bytes that the request holds while it waits.
    pub(crate) fn bytes(&self) -> usize {
        NAME_BYTES + self.held_bytes()
    }

    /// The verdicts of an app without rules.
    pub(crate) fn denied_without_rules(&self) -> Verdicts {
        let denied = Verdict::Denied(Reason::Rule(Denied::NoRule));
        match self.may_need_rule() {
            true => {
                let names = self.names().into_iter();
                names.filter(|name| needs_rule(name)).map(|name| (name, denied)).collect()
            }
            false => Verdicts::new(),
        }
    }
}

/// The request of a protocol that has none.
impl ClientRequest for std::convert::Infallible {}

/// Bytes that topics hold in a request.
pub(crate) fn names_bytes<'a>(topics: impl IntoIterator<Item = &'a Topic>) -> usize {
    topics.into_iter().map(|topic| name_bytes(topic.as_str())).sum()
}

pub(crate) fn name_bytes(name: &str) -> usize {
    NAME_BYTES + name.len()
}
