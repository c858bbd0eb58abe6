//! What an XMPP client asks of the store. Queries have no order among each other.

use std::any::Any;

use noroshi_protocol::xmpp::{Answer, Refusal, Request as Query};
use noroshi_store::{Error as StoreError, LoggedIn, Login, LoginRefused};
use tokio::sync::oneshot::Receiver;
use tokio::sync::oneshot::error::TryRecvError;

use super::Xmpp;
use crate::protocol::context::Context;
use crate::protocol::requests::{Completed, Outside};

/// Whose device it is, if the credential is valid.
pub(super) type Checked = Result<Result<LoggedIn, LoginRefused>, StoreError>;

pub(crate) enum Done {
    Answered { request: Query, answer: Answer },
    Checked(Checked),
}

impl Completed for Done {
    fn settle(self: Box<Self>, outside: &mut Outside<'_>) -> Option<Box<dyn Any>> {
        let (requests, (slot, _)) = (&mut outside.requests, outside.at);
        requests.queries -= 1;
        let is_closed = |last: &mut Receiver<()>| last.try_recv() == Err(TryRecvError::Closed);
        if matches!(*self, Done::Answered { .. }) && requests.publishing.get_mut(&slot).is_some_and(is_closed)
        {
            requests.publishing.remove(&slot);
        }
        outside.is_connected.then_some(self as Box<dyn Any>)
    }
}

/// Checks a credential, within the place of a query. The outcome is [`Done::Checked`].
pub(super) fn check(cx: &Context<'_>, login: Login) {
    let delivery = cx.delivery.clone();
    let check = async move { delivery.store().log_in(vec![login]).await };
    cx.run(check, |answers| {
        let answers = answers.unwrap_or(Err(StoreError::Overloaded));
        Done::Checked(answers.and_then(|mut answers| answers.pop().ok_or(StoreError::NotFound)))
    });
}

impl Xmpp {
    /// Answers a request in a later turn.
    pub(super) fn query(
        &mut self,
        cx: &mut Context<'_>,
        request: Query,
        work: impl Future<Output = Answer> + Send + 'static,
    ) {
        if !cx.requests.begin_query() {
            return self.answer(cx, request, Answer::Refused(Refusal::Overloaded));
        }
        cx.run(work, |answer| {
            let answer = answer.unwrap_or(Answer::Refused(Refusal::Internal));
            Done::Answered { request, answer }
        });
    }

    pub(super) fn answer(&mut self, cx: &mut Context<'_>, request: Query, answer: Answer) {
        self.speak(cx, |conversation, pcx, out| conversation.answer(pcx, request, answer, out));
    }

    /// Answers a request behind the effects before this one.
    pub(super) fn answer_later(&mut self, cx: &mut Context<'_>, request: Query, answer: Answer) {
        cx.continue_with(super::Request::Answer { request, answer: Box::new(answer) });
    }
}
