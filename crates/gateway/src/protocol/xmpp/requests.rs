//! Requests of an XMPP client that wait for an outcome.

use std::any::Any;

use noroshi_protocol::xmpp::{Action, Answer, Refusal, Request as Query};
use noroshi_types::rule::Action as Ruled;
use noroshi_types::{JsonText, NotificationId, Topic};

use super::Xmpp;
use crate::protocol::context::Context;
use crate::protocol::effect::Reply;
use crate::session::operation::{Operation, name_bytes};

pub(crate) enum Request {
    LogIn,
    Subscribe {
        topic: Topic,
        durable: bool,
        request: Query,
    },
    Unsubscribe {
        topic: Topic,
        durable: bool,
        request: Query,
    },
    Items {
        topic: Topic,
        id: Option<NotificationId>,
        max: usize,
        request: Query,
    },
    Publish {
        topic: Topic,
        data: JsonText,
        request: Query,
    },
    Create {
        topic: Topic,
        request: Query,
    },
    /// Carries out an action of the conversation, after the effects before this one.
    Act(Box<Action>),
    /// The table of accounts learns of the session, behind the actions that the client sent with its log-in.
    AttachAccount,
    /// Answers, behind the effects before this one.
    Answer {
        request: Query,
        answer: Box<Answer>,
    },
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

    fn action(&self) -> Ruled {
        match self {
            Request::Publish { .. } | Request::Create { .. } => Ruled::Publish,
            _ => Ruled::Subscribe,
        }
    }

    fn names(&self) -> Vec<Box<str>> {
        match self {
            Request::Subscribe { topic, .. }
            | Request::Items { topic, .. }
            | Request::Publish { topic, .. }
            | Request::Create { topic, .. } => vec![topic.as_str().into()],
            _ => Vec::new(),
        }
    }

    fn held_bytes(&self) -> usize {
        match self {
            Request::Publish { topic, data, request } => {
                name_bytes(topic.as_str()) + data.as_str().len() + request.held_bytes()
            }
            Request::Subscribe { topic, request, .. }
            | Request::Unsubscribe { topic, request, .. }
            | Request::Create { topic, request }
            | Request::Items { topic, request, .. } => name_bytes(topic.as_str()) + request.held_bytes(),
            Request::LogIn | Request::Act(_) | Request::AttachAccount | Request::Answer { .. } => 0,
        }
    }
}

impl Xmpp {
    pub(super) fn handle_outcome(&mut self, cx: &mut Context<'_>, request: Request, reply: Reply) {
        match (request, reply) {
            (Request::LogIn, Reply::Verified(answer)) => self.verified(cx, answer),
            (Request::Act(action), Reply::Continue) => self.act(cx, *action),
            (Request::AttachAccount, Reply::Continue) => self.attach_account(cx),
            (Request::Answer { request, answer }, Reply::Continue) => self.answer(cx, request, *answer),
            (Request::Unsubscribe { topic, durable, request }, Reply::Decided(_)) => {
                self.unsubscribe(cx, topic, durable, request);
            }
            (Request::Publish { topic, data, request }, Reply::Decided(decided)) => {
                let allowed = cx.publishes(&topic, &decided);
                self.publish(cx, topic, data, request, allowed);
            }
            (Request::Create { topic, request }, Reply::Decided(decided)) => {
                let allowed = cx.publishes(&topic, &decided);
                self.create(cx, topic, request, allowed);
            }
            (
                Request::Subscribe { topic, request, .. } | Request::Items { topic, request, .. },
                Reply::Decided(decided),
            ) if decided.denies(topic.as_str()) => {
                self.answer(cx, request, Answer::Refused(Refusal::Forbidden));
            }
            (Request::Subscribe { topic, durable, request }, Reply::Decided(decided)) => {
                self.subscribe(cx, topic, durable, decided.rules, request);
            }
            (Request::Items { topic, id, max, request }, Reply::Decided(_)) => {
                self.query_items(cx, topic, id, max, request);
            }
            _ => {}
        }
    }
}
