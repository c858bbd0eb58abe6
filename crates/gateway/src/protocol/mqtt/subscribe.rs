//! SUBSCRIBE and UNSUBSCRIBE. A topic's name goes into the topic index, a filter with wildcards into
//! [`crate::session::wildcard`]. If the session outlasts its connection, the store is asked first: names become durable
//! subscriptions, and all filters are stored with the device ([`super::session`]).

use std::sync::Arc;

use noroshi_delivery::rules::AppRules;
use noroshi_protocol::mqtt::{
    Config, SubscribeRefused, SubscribeRequest, Subscribed, TopicFilter, UnsubscribeRequest,
};
use noroshi_store::{Leave, Place, Share};
use noroshi_types::{CloseReason, Topic};

use super::task::{Task, share};
use super::{Mqtt, Request};
use crate::protocol::adapter::Adapter as _;
use crate::protocol::context::Context;
use crate::protocol::effect::Effect;

/// The filter that the conformance suites expect to be refused, with the one code that all versions have (0x80).
const REFUSED_FILTER: &str = "test/nosubscribe";

impl Mqtt {
    /// Subscribes to the filters that `rules` allow; the rest of the request is refused already.
    pub(super) fn subscribe(
        &mut self,
        cx: &mut Context<'_>,
        mut request: SubscribeRequest,
        rules: Option<Arc<AppRules>>,
    ) {
        if cx.config().conformance {
            request.refuse(|filter| {
                (filter.as_str() == REFUSED_FILTER).then_some(SubscribeRefused::Unavailable)
            });
        }
        let lasts = self.expiry_s > 0;
        let has_shares = request.shares().next().is_some();
        self.has_shares |= has_shares;
        // What was published before is retained before.
        if !lasts && !has_shares && self.queue.is_none() {
            return self.finish_subscribe(cx, request, lasts);
        }
        self.enqueue_or_close(cx, Task::Subscribe { request, lasts, rules, had: Vec::new() });
    }

    /// Sends SUBACK and starts to deliver messages of the new subscriptions.
    pub(super) fn finish_subscribe(&mut self, cx: &mut Context<'_>, request: SubscribeRequest, lasts: bool) {
        let Some(app) = cx.session.map(|session| session.app) else { return };
        let mqtt = &cx.services.config.mqtt;
        let mut made = Vec::new();
        let had_wildcards = self.wildcards_since().is_some();
        let (asked, most) = (request.count(), mqtt.subscriptions_max);
        let limit = cx.delivery.quotas.subscriptions_max(app, most);
        let config = Config { subscriptions_max: limit, ..mqtt.clone() };
        let since = cx.progress.offered();
        let shares: Vec<Share> = request.shares().filter_map(|(filter, _)| share(filter)).collect();
        self.answer(cx, |conversation, out| {
            made = conversation.subscribed(&config, request, since.0, out)?;
            Ok(())
        });
        if made.len() < asked {
            cx.count_over_subscriptions(app, limit);
        }
        self.leave_refused_shares(cx, shares);
        let mut retained: Vec<Box<str>> = Vec::new();
        let mut reads_inbox = false;
        for Subscribed { filter, is_new, wants_retained } in made {
            if let Some(topic) = filter.topic().filter(|_| !filter.has_wildcards()) {
                cx.push(Effect::SubscribeTopic { topic, durable: lasts, retained: Some(wants_retained) });
                continue;
            }
            if filter.has_wildcards() {
                cx.push(Effect::AddFilter(filter.as_str().into()));
                retained.extend(wants_retained.then(|| filter.as_str().into()));
            }
            // The messages of a share arrive through the inbox, perhaps before this subscription.
            reads_inbox |= is_new && (filter.matches_inbox() || filter.share().is_some());
        }
        if reads_inbox {
            cx.push(Effect::Reread(None));
        }
        if !had_wildcards || !retained.is_empty() {
            cx.continue_with(Request::ServeWildcards { is_first: !had_wildcards, retained });
        }
        cx.push(Effect::Advance);
    }

    /// Leaves shares that were joined and then found no room among the connection's subscriptions.
    fn leave_refused_shares(&mut self, cx: &mut Context<'_>, mut shares: Vec<Share>) {
        if shares.is_empty() {
            return;
        }
        let held: Vec<Share> =
            self.conversation.subscriptions().filter_map(|held| share(&held.filter)).collect();
        shares.retain(|share| !held.contains(share));
        if !shares.is_empty() {
            let what = Leave::Shares(shares);
            self.enqueue_or_close(cx, Task::LeaveShares { what, held: Vec::new() });
        }
    }

    /// From now on filters with wildcards deliver each new message once. Retained messages from before are read first.
    pub(super) fn serve_wildcards(&mut self, cx: &mut Context<'_>, is_first: bool, retained: Vec<Box<str>>) {
        let offered = cx.progress.offered();
        if is_first {
            if let Some(catch_up) = cx.progress.catch_up.as_mut() {
                catch_up.read_log_from(offered);
            }
            self.since = self.since.max(offered);
        }
        if retained.is_empty() {
            return;
        }
        let filters = retained.clone();
        if !self.enqueue(cx, Task::Retained { filters: retained, up_to: cx.progress.offered }) {
            return cx.close(CloseReason::RateLimited);
        }
        let before_marked = noroshi_delivery::id_at(cx.progress.before_marked(offered));
        let own_topics = cx.progress.own_topics();
        cx.progress.catch_up().await_retained(filters, own_topics, before_marked);
    }

    pub(super) fn unsubscribe(&mut self, cx: &mut Context<'_>, request: UnsubscribeRequest) {
        let lasts = self.expiry_s > 0;
        let has_shares = request.filters().any(|filter| filter.share().is_some());
        if !lasts && !has_shares && self.queue.is_none() {
            let ending = self.names_ended_by(&request);
            end_names(cx, names_of(&request), &ending);
            return self.finish_unsubscribe(cx, request);
        }
        self.enqueue_or_close(cx, Task::Unsubscribe { request, lasts, held: Vec::new() });
    }

    /// Sends UNSUBACK; [`end_names`] has ended the names.
    pub(super) fn finish_unsubscribe(&mut self, cx: &mut Context<'_>, request: UnsubscribeRequest) {
        if let Some(app) = cx.session.map(|session| session.app) {
            let wild = request.filters().filter(|filter| filter.has_wildcards());
            cx.effects.extend(wild.map(|filter| Effect::RemoveFilter(app, filter.as_str().into())));
        }
        self.answer(cx, |conversation, out| conversation.unsubscribed(request, out));
    }

    /// If the next job is UNSUBSCRIBE, its names end before the store is asked: pages that are read meanwhile may or
    /// may not have them. Returns whether it is.
    pub(super) fn end_names_of_next(&mut self, cx: &mut Context<'_>) -> bool {
        let next = self.queue.as_ref().and_then(|queue| queue.front());
        let Some(Task::Unsubscribe { request, .. }) = next else { return false };
        let (topics, ending) = (names_of(request), self.names_ended_by(request));
        end_names(cx, topics, &ending);
        true
    }

    /// Names that UNSUBSCRIBE ends while filters with wildcards match them, and the places behind which they were
    /// delivered.
    fn names_ended_by(&self, request: &UnsubscribeRequest) -> Vec<(Topic, Place)> {
        if self.wildcards_since().is_none() {
            return Vec::new();
        }
        let held = self.conversation.subscriptions().filter(|held| !held.filter.has_wildcards());
        let ending = held.filter(|held| request.filters().any(|filter| *filter == held.filter));
        ending.filter_map(|held| Some((held.filter.topic()?, Place(held.since)))).collect()
    }
}

/// Stops delivering topics by their names. `ending`: those that filters with wildcards still match, and the places
/// behind which they were delivered.
fn end_names(cx: &mut Context<'_>, topics: Vec<Topic>, ending: &[(Topic, Place)]) {
    for (topic, behind) in ending {
        cx.progress.end_name(topic, *behind);
    }
    cx.push(Effect::Unsubscribe(topics));
}

fn names_of(request: &UnsubscribeRequest) -> Vec<Topic> {
    request.filters().filter_map(TopicFilter::topic).collect()
}
