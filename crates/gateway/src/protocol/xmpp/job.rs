//! What an XMPP client asks of the store. Queries have no order among each other.

use std::any::Any;
use std::sync::Arc;

use noroshi_delivery::{Delivery, Error};
use noroshi_protocol::xmpp::{
    Answer, ArchivePage, ArchivePlace, ArchiveQuery, Archived, Refusal, Request as Query,
};
use noroshi_store::{Error as StoreError, InboxPage, InboxPlace, InboxRange, LoggedIn, Login, LoginRefused};
use noroshi_types::{NotificationId, Quota};
use tokio::sync::oneshot::Receiver;
use tokio::sync::oneshot::error::TryRecvError;

use super::Xmpp;
use crate::protocol::context::Context;
use crate::protocol::jobs::{Completed, Outside};

/// Whose device it is, if the credential is valid.
pub(super) type Checked = Result<Result<LoggedIn, LoginRefused>, StoreError>;

pub(crate) enum Done {
    Answered { request: Query, answer: Answer },
    Checked(Checked),
}

impl Completed for Done {
    fn settle(self: Box<Self>, outside: &mut Outside<'_>) -> Option<Box<dyn Any>> {
        let (jobs, (slot, _)) = (&mut outside.jobs, outside.at);
        jobs.queries -= 1;
        let is_closed = |last: &mut Receiver<()>| last.try_recv() == Err(TryRecvError::Closed);
        if matches!(*self, Done::Answered { .. }) && jobs.publishing.get_mut(&slot).is_some_and(is_closed) {
            jobs.publishing.remove(&slot);
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
    pub(super) fn query<F>(
        &mut self,
        cx: &mut Context<'_>,
        request: Query,
        work: impl FnOnce(Arc<Delivery>) -> F,
    ) where
        F: Future<Output = Result<Answer, Error>> + Send + 'static,
    {
        if !cx.jobs.begin_query() {
            return self.answer(cx, request, Answer::Refused(Refusal::Overloaded));
        }
        cx.run(work(cx.delivery.clone()), |result| {
            let answer = match result {
                Some(Ok(answer)) => answer,
                Some(Err(error)) => Answer::Refused(refusal(&error)),
                None => Answer::Refused(Refusal::Internal),
            };
            Done::Answered { request, answer }
        });
    }

    /// A device's archive is its inbox (XEP-0313): the messages that it has not acknowledged. Reading acknowledges nothing.
    pub(super) fn query_archive(&mut self, cx: &mut Context<'_>, query: ArchiveQuery, request: Query) {
        if self.conversation.account().is_some() {
            return self.query_account_archive(cx, &query, request);
        }
        let (Some(session), services) = (cx.session.cloned(), cx.services.clone()) else { return };
        let domain = &services.config.xmpp.protocol.domain;
        let Some(place) = place(&query.place) else {
            return self.answer(cx, request, Answer::Refused(Refusal::NotFound));
        };
        // Only the server sends messages to a device.
        if !query.is_with(domain) {
            let page = ArchivePage::new(&query, Vec::new(), 0, 0);
            return self.answer(cx, request, Answer::Archive(page));
        }
        let range = InboxRange {
            app: session.app,
            device: session.device.clone(),
            since: query.since,
            until: query.until,
            place,
            limit: query.max,
            now: cx.now.wall,
        };
        self.query(cx, request, |delivery| async move {
            let Some(page) = delivery.store().inbox_range(range).await? else {
                return Ok(Answer::Refused(Refusal::NotFound));
            };
            let InboxPage { messages, index, total } = page;
            let config = &services.config.xmpp.protocol;
            let messages = messages.iter().map(|message| Archived::new(config, message)).collect();
            Ok(Answer::Archive(ArchivePage::new(&query, messages, index, total)))
        });
    }
}

/// Where a page begins; none if no notification has such an id.
fn place(asked: &ArchivePlace) -> Option<InboxPlace> {
    let id = |id: &str| NotificationId::parse(id).ok();
    Some(match asked {
        ArchivePlace::First => InboxPlace::First,
        ArchivePlace::Last => InboxPlace::Last,
        ArchivePlace::After(after) => InboxPlace::After(id(after)?),
        ArchivePlace::Before(before) => InboxPlace::Before(id(before)?),
    })
}

fn refusal(error: &Error) -> Refusal {
    match error {
        Error::Overloaded | Error::NoRoom { .. } | Error::Store(StoreError::Overloaded) => {
            Refusal::Overloaded
        }
        Error::OverQuota(over) if over.quota == Quota::SubscriptionsPerDevice => {
            Refusal::TooManySubscriptions
        }
        Error::OverQuota(_) => Refusal::Overloaded,
        Error::Store(StoreError::Limit(_)) => Refusal::TooManySubscriptions,
        Error::Store(StoreError::NotFound) => Refusal::NotFound,
        error => {
            tracing::warn!(%error, "a client's request failed");
            Refusal::Internal
        }
    }
}
