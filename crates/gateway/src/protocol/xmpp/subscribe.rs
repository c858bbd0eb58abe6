//! PubSub as topics: subscriptions and items. A subscription of the connection is made at once; a durable one, and the
//! items of a topic, are queries of the store, answered in a later turn.

use std::sync::Arc;

use noroshi_delivery::rules::{AppRules, Verdict, is_ruled};
use noroshi_delivery::{Delivery, Error};
use noroshi_protocol::xmpp::{Answer, Refusal, Request};
use noroshi_store::{Recover, Store};
use noroshi_types::rule::Action;
use noroshi_types::{AppId, Message, NotificationId, Position, Topic, limits};

use super::Xmpp;
use crate::protocol::context::Context;
use crate::protocol::effect::Effect;
use crate::session::registry::Session;
use crate::session::topic_rules::{TopicRules, holder_of, knows};
use crate::wire::Protocol;

/// Payloads of the items in one answer, which is sent at once: half of what may be unsent.
const ITEMS_BYTES_MAX: usize = limits::SEND_QUEUE_SOFT_BYTES / 2;
/// How many offsets back one item is looked for.
const ITEM_OFFSETS_MAX: u64 = 1_000;

impl Xmpp {
    /// `rules`: those that allowed it.
    pub(super) fn subscribe(
        &mut self,
        cx: &mut Context<'_>,
        topic: Topic,
        durable: bool,
        rules: Option<Arc<AppRules>>,
        request: Request,
    ) {
        let Some(session) = cx.session.cloned() else { return };
        if durable {
            return self.query(cx, request, |delivery| async move {
                let refused = subscribe_durably(&delivery, &session, &topic, rules).await?;
                Ok(refused.map_or(Answer::Done, Answer::Refused))
            });
        }
        let key = cx.services.registry.topic_key(session.app, &topic);
        // One more than the limit: the device does not choose `$everyone`.
        let most = cx.delivery.quotas.subscriptions_max(session.app, limits::TOPICS_PER_DEVICE_MAX);
        let is_subscribed = cx.progress.topics.is_subscribed(key, cx.facts.slot);
        if !is_subscribed && cx.progress.subscriptions.len() > most {
            cx.count_over_subscriptions(session.app, most);
            return self.answer(cx, request, Answer::Refused(Refusal::TooManySubscriptions));
        }
        self.answer(cx, request, Answer::Done);
        cx.push(Effect::SubscribeTopic { topic, durable: false, retained: None });
        cx.push(Effect::Advance);
    }

    pub(super) fn unsubscribe(
        &mut self,
        cx: &mut Context<'_>,
        topic: Topic,
        durable: bool,
        request: Request,
    ) {
        let Some(session) = cx.session.cloned() else { return };
        if durable {
            return self.query(cx, request, |delivery| async move {
                let ended = delivery.devices.unsubscribe(session.app, &session.device, &topic).await?;
                Ok(if ended { Answer::Done } else { Answer::Refused(Refusal::NotSubscribed) })
            });
        }
        if !cx.progress.own_topics().contains(&topic) {
            return self.answer(cx, request, Answer::Refused(Refusal::NotSubscribed));
        }
        cx.push(Effect::Unsubscribe(vec![topic]));
        self.answer_later(cx, request, Answer::Done);
    }

    pub(super) fn list_subscriptions(
        &mut self,
        cx: &mut Context<'_>,
        topic: Option<Topic>,
        mut request: Request,
    ) {
        let Some(session) = cx.session.cloned() else { return };
        if topic.is_none()
            && let Some(elements) = self.node_subscriptions(cx)
        {
            request.add_subscriptions(elements);
        }
        let own = cx.progress.own_topics();
        self.query(cx, request, |delivery| async move {
            let device = delivery.store().device(session.app, &session.device).await?;
            let durable = device.map(|device| device.topics).unwrap_or_default();
            let durable = durable.into_iter().map(|topic| (topic, true));
            let held = durable.chain(own.into_iter().map(|topic| (topic, false)));
            let held = held.filter(|(held, _)| topic.as_ref().is_none_or(|topic| topic == held));
            Ok(Answer::Subscriptions(held.collect()))
        });
    }

    pub(super) fn query_items(
        &mut self,
        cx: &mut Context<'_>,
        topic: Topic,
        id: Option<NotificationId>,
        max: usize,
        request: Request,
    ) {
        let Some(app) = cx.session.map(|session| session.app) else { return };
        self.query(cx, request, |delivery| async move {
            let back = if id.is_some() { ITEM_OFFSETS_MAX } else { max as u64 };
            let messages = latest(&delivery, app, topic, back, id).await?;
            let Some(id) = id else { return Ok(Answer::Items(fitting(messages, max))) };
            let found = messages.into_iter().find(|message| message.id == id);
            Ok(found.map_or(Answer::Refused(Refusal::NotFound), |message| Answer::Items(vec![message])))
        });
    }

    pub(super) fn answer_affiliation(&mut self, cx: &mut Context<'_>, topic: &Topic, request: Request) {
        let Some(session) = cx.session else { return };
        let is_filtered = cx.services.may_publish(session.app, topic);
        let affiliation = TopicRules(cx.delivery).affiliation(session, topic, is_filtered);
        self.answer(cx, request, Answer::Affiliation(affiliation));
    }
}

/// Stores a subscription that `rules` allow. Rules may change meanwhile: then they decide again, until the rules that
/// decided last are in force. A subscription that was made here ends if they deny it.
async fn subscribe_durably(
    delivery: &Delivery,
    session: &Session,
    topic: &Topic,
    mut rules: Option<Arc<AppRules>>,
) -> Result<Option<Refusal>, Error> {
    let is_new = delivery.devices.subscribe(session.app, &session.device, topic).await?;
    let refused = loop {
        if delivery.rules.are_current(session.app, rules.as_ref()) {
            return Ok(None);
        }
        rules = delivery.rules.of(session.app);
        let Some(rules) = &rules else { continue };
        // The session has to log in again to be decided about: see `recheck`.
        if !knows(session, rules.rules.needs()) {
            break Refusal::Overloaded;
        }
        let (holder, name) = (holder_of(session), topic.as_str());
        if is_ruled(name)
            && delivery.rules.ask(rules, &holder, Action::Subscribe, name, Protocol::Xmpp.as_str()).await
                != Verdict::Allowed
        {
            break Refusal::Forbidden;
        }
    };
    // An older one may be an API key's, to which rules for clients do not apply.
    if is_new {
        delivery.devices.unsubscribe(session.app, &session.device, topic).await?;
    }
    Ok(Some(refused))
}

/// The messages of a topic's last `back` offsets and its retained message, by id. If one message is `wanted`, no other
/// one of the log is held meanwhile: a thousand of them would be megabytes for each query.
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
