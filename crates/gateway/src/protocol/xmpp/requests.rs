//! Requests of an XMPP client that wait for an outcome.

use noroshi_protocol::xmpp::{Action, Answer, Request as Query};
use noroshi_types::rule::Action as Ruled;

use crate::session::operation::{Operation, name_bytes};

pub(crate) enum Request {
    LogIn,
    /// Carries out an action of the conversation, after topic rules have decided, or after the effects before this one.
    Act(Action),
    /// The table of accounts learns of the session, behind the actions that the client sent with its log-in.
    AttachAccount,
    /// Answers, behind the effects before this one.
    Answer {
        request: Query,
        answer: Box<Answer>,
    },
}

impl Operation for Request {
    fn action(&self) -> Ruled {
        match self {
            Request::Act(Action::Publish { .. } | Action::Create { .. }) => Ruled::Publish,
            _ => Ruled::Subscribe,
        }
    }

    fn names(&self) -> Vec<Box<str>> {
        match self {
            Request::Act(
                Action::Subscribe { topic, .. }
                | Action::Items { topic, .. }
                | Action::Publish { topic, .. }
                | Action::Create { topic, .. },
            ) => vec![topic.as_str().into()],
            _ => Vec::new(),
        }
    }

    fn held_bytes(&self) -> usize {
        match self {
            Request::Act(Action::Publish { topic, data, request }) => {
                name_bytes(topic.as_str()) + data.as_str().len() + request.held_bytes()
            }
            Request::Act(
                Action::Subscribe { topic, request, .. }
                | Action::Unsubscribe { topic, request, .. }
                | Action::Create { topic, request }
                | Action::Items { topic, request, .. },
            ) => name_bytes(topic.as_str()) + request.held_bytes(),
            _ => 0,
        }
    }
}
