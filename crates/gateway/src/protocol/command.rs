//! Commands that native and Socket.IO clients have in common, as requests that wait for an outcome.

use noroshi_delivery::rules::Reason;
use noroshi_types::{Since, Topic};

use super::context::Context;
use super::effect::Effect;
use crate::session::permission::Decided;
use crate::session::request::{BoxedRequest, ClientRequest, names_bytes};

/// `L`: what a log-in needs besides its token. `R`: how the client learns the outcome.
pub(crate) enum Request<L, R> {
    LogIn(L),
    Subscribe {
        topics: Vec<Topic>,
        since: Vec<(Topic, Since)>,
        reply: R,
    },
    /// `denied`: what topic rules denied of the subscription.
    Subscribed {
        reply: R,
        denied: Vec<(Topic, Reason)>,
    },
    Unsubscribe {
        topics: Vec<Topic>,
    },
    RenewToken {
        reply: R,
    },
}

impl<L: Send + 'static, R: Send + 'static> Request<L, R> {
    /// Topic rules have decided: carries out the allowed part.
    pub(crate) fn perform(self, cx: &mut Context<'_>, decided: &Decided) {
        match self {
            Self::Subscribe { topics, since, reply } => {
                let (topics, denied) = decided.split(topics);
                let request: BoxedRequest = Box::new(Self::Subscribed { reply, denied });
                cx.push(Effect::Subscribe { topics, since, request: Some(request) });
            }
            Self::Unsubscribe { topics } => cx.push(Effect::Unsubscribe(topics)),
            Self::LogIn(_) | Self::Subscribed { .. } | Self::RenewToken { .. } => {}
        }
    }
}

impl<L: Send + 'static, R: Send + 'static> ClientRequest for Request<L, R> {
    fn names(&self) -> Vec<Box<str>> {
        match self {
            Self::Subscribe { topics, .. } => topics.iter().map(|topic| topic.as_str().into()).collect(),
            _ => Vec::new(),
        }
    }

    fn held_bytes(&self) -> usize {
        match self {
            Self::Subscribe { topics, since, .. } => {
                names_bytes(topics) + names_bytes(since.iter().map(|(topic, _)| topic))
            }
            Self::Unsubscribe { topics } => names_bytes(topics),
            Self::LogIn(_) | Self::Subscribed { .. } | Self::RenewToken { .. } => 0,
        }
    }
}
