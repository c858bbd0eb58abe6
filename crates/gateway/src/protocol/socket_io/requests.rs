//! Requests of a Socket.IO client that wait for an outcome, and the answers.

use std::any::Any;

use noroshi_delivery::rules::Reason;
use noroshi_protocol::socket_io::{LogIn, Reply as Callback};
use noroshi_types::{Position, Topic};

use super::SocketIo;
use crate::protocol::adapter::Adapter as _;
use crate::protocol::context::Context;
use crate::protocol::effect::{Effect, Reply, TopicNotice};
use crate::session::operation::{Operation, names_bytes};

/// Code of an error about a topic that rules deny.
const FORBIDDEN: &str = "topic_forbidden";

pub(crate) enum Request {
    LogIn(Box<LogIn>),
    Subscribe {
        topics: Vec<Topic>,
        since: Vec<(Topic, Position)>,
        reply: Callback,
    },
    /// `denied`: what topic rules denied of the subscription.
    Subscribed {
        reply: Callback,
        denied: Vec<(Topic, Reason)>,
    },
    Unsubscribe {
        topics: Vec<Topic>,
    },
    RenewToken {
        reply: Callback,
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

    fn names(&self) -> Vec<Box<str>> {
        match self {
            Request::Subscribe { topics, .. } => topics.iter().map(|topic| topic.as_str().into()).collect(),
            _ => Vec::new(),
        }
    }

    fn held_bytes(&self) -> usize {
        match self {
            Request::Subscribe { topics, since, .. } => {
                names_bytes(topics) + names_bytes(since.iter().map(|(topic, _)| topic))
            }
            Request::Unsubscribe { topics } => names_bytes(topics),
            Request::LogIn(_) | Request::Subscribed { .. } | Request::RenewToken { .. } => 0,
        }
    }
}

impl SocketIo {
    pub(super) fn answer(&mut self, cx: &mut Context<'_>, request: Request, reply: Reply) {
        match (request, reply) {
            (Request::LogIn(login), Reply::Verified(answer)) => self.let_in(cx, *login, answer),
            (Request::Subscribe { topics, since, reply }, Reply::Decided(decided)) => {
                let (topics, denied) = decided.split(topics);
                let request = Some(Request::Subscribed { reply, denied }.into());
                cx.push(Effect::Subscribe { topics, since, request });
            }
            (Request::Subscribed { reply, denied }, Reply::Subscribed(mut result)) => {
                for (topic, reason) in &denied {
                    let (code, text) = (reason.code(), reason.text());
                    self.handle_topic_notice(cx, &TopicNotice { code: FORBIDDEN, topic, reason: code, text });
                    result = result.and(Err((FORBIDDEN, format!("{topic}: {text}"))));
                }
                self.call_back(cx, reply, result);
            }
            (Request::Unsubscribe { topics }, Reply::Decided(_)) => cx.push(Effect::Unsubscribe(topics)),
            (Request::RenewToken { reply }, Reply::Renewed(renewed)) => {
                self.call_back(cx, reply, renewed.map_err(|why| (why.code(), why.to_string())));
            }
            _ => {}
        }
    }

    fn call_back(
        &mut self,
        cx: &mut Context<'_>,
        reply: Callback,
        result: Result<(), (&'static str, String)>,
    ) {
        let result = result.as_ref().copied().map_err(|(code, text)| (*code, text.as_str()));
        if let Some(packet) = reply.answer(result) {
            self.send(cx, packet);
        }
    }
}
