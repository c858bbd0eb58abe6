//! Requests of a native client that wait for an outcome.

use std::any::Any;

use noroshi_delivery::rules::Reason;
use noroshi_types::{Position, Topic};

use crate::session::operation::{Operation, names_bytes};

pub(crate) enum Request {
    LogIn,
    Subscribe {
        topics: Vec<Topic>,
        since: Vec<(Topic, Position)>,
    },
    /// `denied`: what topic rules denied of the subscription.
    Subscribed {
        denied: Vec<(Topic, Reason)>,
    },
    Unsubscribe {
        topics: Vec<Topic>,
    },
    RenewToken,
}

impl From<Request> for Box<dyn Operation> {
    fn from(request: Request) -> Self {
        Box::new(request)
    }
}

impl Operation for Request {
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }

    fn names(&self) -> Vec<Box<str>> {
        match self {
            Request::Subscribe { topics, .. } => topics.iter().map(|topic| topic.as_str().into()).collect(),
            _ => Vec::new(),
        }
    }

    fn held_bytes(&self) -> usize {
        match self {
            Request::Subscribe { topics, since } => {
                names_bytes(topics) + names_bytes(since.iter().map(|(topic, _)| topic))
            }
            Request::Unsubscribe { topics } => names_bytes(topics),
            Request::LogIn | Request::Subscribed { .. } | Request::RenewToken => 0,
        }
    }
}
