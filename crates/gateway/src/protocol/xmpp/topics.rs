//! PubSub as topics: what a client asks of them. A subscription of the connection is made here and now; what
//! is durable, and what a topic holds, is asked of the store and answered in a later turn.

use futures_util::{FutureExt, poll};
use noroshi_delivery::rules::{AppRules, Verdict};
use noroshi_delivery::{Delivery, Error};
use noroshi_protocol::xmpp::{Answer, Refusal, Request};
use noroshi_store::{Recover, Store};
use noroshi_types::rule::Action;
use noroshi_types::{
    AppId, JsonText, Message, NotificationId, Position, Push, Quota, Request as Notification, Target, Topic,
    Ttl, Urgency, When, limits,
};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use tokio::sync::oneshot::{self, error::TryRecvError};

use crate::session::permission::{holder_of, knows};
use crate::session::registry::Session;
use crate::session::topic_index::Subscription;
use crate::shard::Shard;
use crate::wire::Protocol;

/// Questions of one shard's connections that are out; more are told to come back.
pub(crate) const ASKED_MAX: usize = 256;
/// Payloads of the items in one answer: it is sent at once, and half of what is allowed to be unsent.
const ITEMS_BYTES_MAX: usize = limits::SEND_QUEUE_SOFT_BYTES / 2;
/// How far back one item is looked for.
const ITEM_OFFSETS_MAX: u64 = 1_000;

impl Shard {
    /// `rules`: by which it was allowed.
    pub(crate) fn subscribe_xmpp(
        &mut self,
        slot: u32,
        topic: Topic,
        durable: bool,
        rules: Option<Arc<AppRules>>,
        request: Request,
    ) {
        let Some(session) = self.connection(slot).and_then(|it| it.session.clone()) else { return };
        if durable {
            let delivery = self.delivery.clone();
            return self.ask(slot, request, async move {
                match subscribe_durably(&delivery, &session, &topic, rules).await {
                    Ok(None) => Answer::Done,
                    Ok(Some(refused)) => Answer::Refused(refused),
                    Err(error) => Answer::Refused(refusal(&error)),
                }
            });
        }
        let key = self.shared.registry.topic_key(session.app, &topic);
        let Some(connection) = self.connections.get(slot as usize) else { return };
        // One more than the limit: `$everyone` is not the device's choice.
        let most = self.delivery.quotas().subscriptions_max(session.app, limits::TOPICS_PER_DEVICE_MAX);
        if !self.topics.hears(key, slot) && connection.topics.len() > most {
            self.over_subscriptions(session.app, most);
            return self.answer_xmpp(slot, request, Answer::Refused(Refusal::TooManySubscriptions));
        }
        self.answer_xmpp(slot, request, Answer::Done);
        if self.is_alive(slot) {
            self.subscribe(slot, topic, key, Subscription::own, None);
            self.advance(slot);
        }
    }

    pub(crate) fn unsubscribe_xmpp(&mut self, slot: u32, topic: Topic, durable: bool, request: Request) {
        let Some(connection) = self.connection(slot) else { return };
        let Some(session) = connection.session.clone() else { return };
        if durable {
            let delivery = self.delivery.clone();
            return self.ask(slot, request, async move {
                match delivery.unsubscribe(session.app, &session.device, &topic).await {
                    Ok(true) => Answer::Done,
                    Ok(false) => Answer::Refused(Refusal::NotSubscribed),
                    Err(error) => Answer::Refused(refusal(&error)),
                }
            });
        }
        let key = self.shared.registry.topic_key(session.app, &topic);
        let is_own = self.own_xmpp_topics(slot).contains(&topic);
        if is_own {
            self.unsubscribe(slot, &[key]);
        }
        let answer = if is_own { Answer::Done } else { Answer::Refused(Refusal::NotSubscribed) };
        self.answer_xmpp(slot, request, answer);
    }

    fn own_xmpp_topics(&self, slot: u32) -> Vec<Topic> {
        let connection = self.connections.get(slot as usize);
        connection
            .map(|connection| crate::shard::backlog::own_topics(connection, &self.topics))
            .unwrap_or_default()
    }

    pub(super) fn tell_subscriptions(&mut self, slot: u32, topic: Option<Topic>, mut request: Request) {
        let Some(session) = self.connection(slot).and_then(|it| it.session.clone()) else { return };
        if topic.is_none()
            && let Some(elements) = self.node_subscriptions(slot)
        {
            request.add_subscriptions(elements);
        }
        let own = self.own_xmpp_topics(slot);
        let delivery = self.delivery.clone();
        self.ask(slot, request, async move {
            let durable = match delivery.store().device(session.app, &session.device).await {
                Ok(device) => device.map(|device| device.topics).unwrap_or_default(),
                Err(error) => return Answer::Refused(refusal(&error.into())),
            };
            let durable = durable.into_iter().map(|topic| (topic, true));
            let held = durable.chain(own.into_iter().map(|topic| (topic, false)));
            Answer::Subscriptions(
                held.filter(|(held, _)| topic.as_ref().is_none_or(|topic| topic == held)).collect(),
            )
        });
    }

    pub(crate) fn tell_items(
        &mut self,
        slot: u32,
        topic: Topic,
        id: Option<NotificationId>,
        max: usize,
        request: Request,
    ) {
        let Some(app) = self.connection(slot).and_then(|it| it.session.as_ref()).map(|it| it.app) else {
            return;
        };
        let delivery = self.delivery.clone();
        self.ask(slot, request, async move {
            let back = if id.is_some() { ITEM_OFFSETS_MAX } else { max as u64 };
            match latest(&delivery, app, topic, back, id).await {
                Err(error) => Answer::Refused(refusal(&error.into())),
                Ok(messages) => match id {
                    None => Answer::Items(fitting(messages, max)),
                    Some(id) => match messages.into_iter().find(|message| message.id == id) {
                        Some(message) => Answer::Items(vec![message]),
                        None => Answer::Refused(Refusal::NotFound),
                    },
                },
            }
        });
    }

    /// Clients publish only where their app allows it. What they do is kept, and the node's last item. What one client
    /// publishes is published in its order.
    /// `allowed`: topic rules, or the app's filters, let the client publish it.
    pub(crate) fn publish_xmpp(
        &mut self,
        slot: u32,
        topic: Topic,
        data: JsonText,
        request: Request,
        allowed: bool,
    ) {
        let Some(app) = self.connection(slot).and_then(|it| it.session.as_ref()).map(|it| it.app) else {
            return;
        };
        if !allowed {
            return self.answer_xmpp(slot, request, Answer::Refused(Refusal::Forbidden));
        }
        if data.as_str().len() > self.shared.config.publish_bytes_max {
            return self.answer_xmpp(slot, request, Answer::Refused(Refusal::TooBig));
        }
        let notification = Notification {
            target: Target::Topic(topic),
            when: When::Stored,
            ttl: Ttl::new(limits::TTL_MAX).unwrap_or_default(),
            urgency: Urgency::Normal,
            waits_for_use: false,
            collapse_key: None,
            retain: true,
            notification: None,
            data: Some(data),
            push: Push::default(),
            trace: None,
        };
        if self.asked == ASKED_MAX {
            return self.answer_xmpp(slot, request, Answer::Refused(Refusal::Overloaded));
        }
        let (done, last) = oneshot::channel();
        let before = self.publishing.insert(slot, last);
        let delivery = self.delivery.clone();
        self.ask(slot, request, async move {
            // Dropped in any case, also by a panic.
            let done: oneshot::Sender<()> = done;
            if let Some(before) = before {
                // It ends by the drop.
                let _ = before.await;
            }
            let result = match delivery.begin_publish_as_root(app, notification).await {
                Ok(begun) => {
                    let mut finish = pin!(delivery.finish_publish(begun));
                    // From the first poll on it has its place in the order: the next one need not wait for its commit.
                    let first = poll!(finish.as_mut());
                    drop(done);
                    match first {
                        Poll::Ready(result) => result,
                        Poll::Pending => finish.await,
                    }
                }
                Err(error) => Err(error),
            };
            match result {
                Ok(receipt) => Answer::Published(receipt.id),
                Err(error) => Answer::Refused(refusal(&error)),
            }
        });
    }

    /// A topic begins with its first message: to make one is to be allowed to, while there is nothing of it.
    pub(crate) fn create_xmpp(&mut self, slot: u32, topic: Topic, request: Request, allowed: bool) {
        let Some(app) = self.connection(slot).and_then(|it| it.session.as_ref()).map(|it| it.app) else {
            return;
        };
        if !allowed {
            return self.answer_xmpp(slot, request, Answer::Refused(Refusal::Forbidden));
        }
        let delivery = self.delivery.clone();
        self.ask(slot, request, async move {
            let now = delivery.clock().now();
            let asked = Recover { app, topic, since: None, retained: true, now };
            match delivery.store().recover(asked).await {
                Ok(found) => {
                    let has_log = found.heads.iter().any(|head| head.position.offset > 0);
                    let is_new = !has_log && found.retained.is_empty();
                    if is_new { Answer::Done } else { Answer::Refused(Refusal::Conflict) }
                }
                Err(error) => Answer::Refused(refusal(&error.into())),
            }
        });
    }

    pub(super) fn tell_affiliation(&mut self, slot: u32, topic: &Topic, request: Request) {
        if let Some(affiliation) = self.affiliation(slot, topic) {
            self.answer_xmpp(slot, request, Answer::Affiliation(affiliation));
        }
    }

    /// Answered in a later turn.
    pub(super) fn ask(
        &mut self,
        slot: u32,
        request: Request,
        work: impl Future<Output = Answer> + Send + 'static,
    ) {
        let Some(generation) = self.connection(slot).map(|connection| connection.generation) else { return };
        if self.asked == ASKED_MAX {
            return self.answer_xmpp(slot, request, Answer::Refused(Refusal::Overloaded));
        }
        self.asked += 1;
        let (shared, index, to) = (self.shared.clone(), usize::from(self.index), (slot, generation));
        self.delivery.work(async move {
            let answer = AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| {
                shared.metrics.panics.inc();
                Answer::Refused(Refusal::Internal)
            });
            shared.mailboxes[index].reply(crate::shard::mailbox::Reply::Xmpp { to, request, answer });
        });
    }

    pub(crate) fn handle_xmpp_answer(
        &mut self,
        (slot, generation): (u32, u64),
        request: Request,
        answer: Answer,
    ) {
        self.asked -= 1;
        if self.publishing.get_mut(&slot).is_some_and(|last| last.try_recv() == Err(TryRecvError::Closed)) {
            self.publishing.remove(&slot);
        }
        if self.at(slot, generation).is_some() {
            self.guard(Some(slot), |shard| shard.answer_xmpp(slot, request, answer));
        }
    }

    pub(crate) fn answer_xmpp(&mut self, slot: u32, request: Request, answer: Answer) {
        self.converse(slot, |conversation, cx, out| conversation.answer(cx, request, answer, out));
    }
}

/// Keeps a subscription that `rules` allow. Rules may change while it is stored: then they decide again, until those that
/// decided last are those in force, and a subscription that was made here ends if they deny it.
async fn subscribe_durably(
    delivery: &Delivery,
    session: &Session,
    topic: &Topic,
    mut rules: Option<Arc<AppRules>>,
) -> Result<Option<Refusal>, Error> {
    let is_new = delivery.subscribe(session.app, &session.device, topic).await?;
    let refused = loop {
        if delivery.rules().are_current(session.app, rules.as_ref()) {
            return Ok(None);
        }
        rules = delivery.rules().of(session.app);
        let Some(rules) = &rules else { continue };
        // The session has to log in again to be decided about: see `recheck`.
        if !knows(session, rules.rules.needs()) {
            break Refusal::Overloaded;
        }
        let (holder, name) = (holder_of(session), topic.as_str());
        if Delivery::is_ruled(name)
            && delivery.ask_topic(rules, &holder, Action::Subscribe, name, Protocol::Xmpp.as_str()).await
                != Verdict::Allowed
        {
            break Refusal::Forbidden;
        }
    };
    // Another one may be an API key's, which rules for clients leave alone.
    if is_new {
        delivery.unsubscribe(session.app, &session.device, topic).await?;
    }
    Ok(Some(refused))
}

/// What a topic kept of its last `back` offsets, and what it retains, by id. Where one message is `wanted`, no other one
/// of the log is held meanwhile: a thousand of them would be megabytes for each question.
async fn latest(
    delivery: &Delivery,
    app: AppId,
    topic: Topic,
    back: u64,
    wanted: Option<NotificationId>,
) -> Result<Vec<Arc<Message>>, noroshi_store::Error> {
    let store: &Arc<dyn Store> = delivery.store();
    let now = delivery.clock().now();
    let ask = |since: Option<Position>| Recover {
        app,
        topic: topic.clone(),
        since,
        retained: since.is_none(),
        now,
    };
    let present = store.recover(ask(None)).await?;
    let mut messages = present.retained;
    let head = present.heads.first().map(|head| head.position).filter(|head| head.offset > 0);
    let mut since = head.map(|head| Position { offset: head.offset.saturating_sub(back), ..head });
    while let Some(from) = since {
        let page = store.recover(ask(Some(from))).await?;
        let last = page.messages.last().and_then(|message| message.topic.as_ref()).map(|it| it.position);
        since = last.filter(|_| page.more);
        let read = page.messages.into_iter();
        messages.extend(read.filter(|message| wanted.is_none_or(|wanted| message.id == wanted)));
    }
    messages.sort_by_key(|message| message.id);
    messages.dedup_by_key(|message| message.id);
    Ok(messages)
}

/// The last of them, as many as one answer may hold.
fn fitting(mut messages: Vec<Arc<Message>>, max: usize) -> Vec<Arc<Message>> {
    let mut bytes = 0;
    let fits = messages.iter().rev().take(max).take_while(|message| {
        let parts = [&message.notification, &message.data];
        bytes += parts.into_iter().flatten().map(|part| part.as_str().len()).sum::<usize>();
        bytes <= ITEMS_BYTES_MAX
    });
    let count = fits.count();
    messages.split_off(messages.len() - count)
}

pub(super) fn refusal(error: &Error) -> Refusal {
    match error {
        Error::Overloaded | Error::Store(noroshi_store::Error::Overloaded) => Refusal::Overloaded,
        Error::OverQuota(over) if over.quota == Quota::SubscriptionsPerDevice => {
            Refusal::TooManySubscriptions
        }
        Error::OverQuota(_) => Refusal::Overloaded,
        Error::Store(noroshi_store::Error::Limit(_)) => Refusal::TooManySubscriptions,
        Error::Store(noroshi_store::Error::NotFound) => Refusal::NotFound,
        error => {
            tracing::warn!(%error, "what a client asked for failed");
            Refusal::Internal
        }
    }
}
