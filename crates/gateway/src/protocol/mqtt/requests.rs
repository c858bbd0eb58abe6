//! Requests of an MQTT client that wait for an outcome.

use noroshi_protocol::mqtt::{Answer, OfferedWill, SubscribeRequest, UnsubscribeRequest};
use noroshi_types::rule::Action;

use super::task::Published;
use crate::session::operation::{Operation, name_bytes};

pub(crate) enum Request {
    /// `device`: the device id that the client states in addition to its token.
    LogIn {
        device: Option<Box<str>>,
        will: Option<OfferedWill>,
    },
    Publish {
        published: Box<Published>,
        answer: Option<Answer>,
    },
    Subscribe(SubscribeRequest),
    Unsubscribe(UnsubscribeRequest),
    RenewToken {
        answer: Option<Answer>,
    },
    /// Starts to serve filters with wildcards, behind the effects before this one.
    ServeWildcards {
        is_first: bool,
        retained: Vec<Box<str>>,
    },
    /// Runs the next job, behind the effects before this one.
    RunJob,
}

impl Operation for Request {
    fn action(&self) -> Action {
        match self {
            Request::Publish { .. } => Action::Publish,
            _ => Action::Subscribe,
        }
    }

    fn names(&self) -> Vec<Box<str>> {
        match self {
            Request::Publish { published, .. } => vec![published.topic.as_str().into()],
            Request::Subscribe(request) => {
                request.subscriptions(0).map(|one| one.filter.plain().into()).collect()
            }
            _ => Vec::new(),
        }
    }

    fn held_bytes(&self) -> usize {
        match self {
            Request::Publish { published, .. } => {
                name_bytes(published.topic.as_str()) + published.data.as_str().len()
            }
            Request::Subscribe(request) => {
                request.subscriptions(0).map(|one| name_bytes(one.filter.as_str())).sum()
            }
            Request::Unsubscribe(request) => {
                request.filters().map(|filter| name_bytes(filter.as_str())).sum()
            }
            _ => 0,
        }
    }

    /// Other protocols cannot name such topics.
    fn may_need_rule(&self) -> bool {
        matches!(self, Request::Subscribe(_))
    }
}
