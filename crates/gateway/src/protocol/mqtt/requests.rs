//! Requests of an MQTT client that wait for an outcome.

use std::any::Any;

use noroshi_auth::Refused;
use noroshi_protocol::mqtt::{
    Answer, Conversation, OfferedWill, PublishRefused, SubscribeRefused, SubscribeRequest, UnsubscribeRequest,
};
use noroshi_types::rule::Action;

use super::Mqtt;
use super::task::Published;
use crate::protocol::context::Context;
use crate::protocol::effect::Reply;
use crate::session::operation::{Operation, name_bytes};
use crate::session::renewal::NotRenewed;

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

impl From<Request> for Box<dyn Operation> {
    fn from(request: Request) -> Self {
        Box::new(request)
    }
}

impl Operation for Request {
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }

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

impl Mqtt {
    pub(super) fn handle_outcome(&mut self, cx: &mut Context<'_>, request: Request, reply: Reply) {
        match (request, reply) {
            (Request::LogIn { device, will }, Reply::Verified(answer)) => {
                self.let_in(cx, answer, device.as_deref(), will);
            }
            (Request::Publish { published, answer }, Reply::Decided(decided)) => {
                let allowed = cx.publishes(&published.topic, &decided);
                self.publish_decided(cx, *published, answer, allowed);
            }
            (Request::Subscribe(mut request), Reply::Decided(decided)) => {
                let denied = decided.denied();
                request.refuse(|filter| {
                    denied.contains_key(filter.plain()).then_some(SubscribeRefused::NotAllowed)
                });
                drop(denied);
                self.subscribe(cx, request, decided.rules);
            }
            (Request::Unsubscribe(request), Reply::Decided(_)) => self.unsubscribe(cx, request),
            (Request::RenewToken { answer: Some(answer) }, Reply::Renewed(renewed)) => {
                let renewed = renewed.map_err(not_renewed);
                let published = |conversation: &mut Conversation, out: &mut Vec<u8>| {
                    conversation.published(answer, renewed, out)
                };
                self.answer(cx, published);
            }
            (Request::ServeWildcards { is_first, retained }, Reply::Continue) => {
                self.serve_wildcards(cx, is_first, retained);
            }
            (Request::RunJob, Reply::Continue) => drop(self.run_job(cx)),
            _ => {}
        }
    }
}

fn not_renewed(why: NotRenewed) -> PublishRefused {
    match why {
        NotRenewed::Expired => PublishRefused::TokenExpired,
        NotRenewed::Refused(Refused::TooManyFailures { .. } | Refused::Busy) => PublishRefused::OverQuota,
        NotRenewed::Refused(_) | NotRenewed::OtherDevice | NotRenewed::Revoked | NotRenewed::OtherUser => {
            PublishRefused::BadToken
        }
    }
}
