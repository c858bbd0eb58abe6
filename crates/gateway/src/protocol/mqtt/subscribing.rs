//! SUBSCRIBE and UNSUBSCRIBE: a topic's name is put into the topic index, a filter with wildcards into
//! [`crate::session::wildcard`]. Where the session outlasts its connection the store is asked first: names become durable
//! subscriptions, and all filters are kept with the device ([`super::session`]).

use std::sync::Arc;

use noroshi_delivery::rules::AppRules;
use noroshi_protocol::mqtt::{
    Config, SubscribeRefused, SubscribeRequest, Subscribed, TopicFilter, UnsubscribeRequest,
};
use noroshi_store::{Leave, Place, Share};
use noroshi_types::{AppId, CloseReason, Topic};

use super::Mqtt;
use super::work::Job;
use crate::lifecycle::phase::Phase;
use crate::session::catch_up::CatchUp;
use crate::session::topic_index::Subscription;
use crate::shard::Shard;

/// What the conformance suites expect to be refused, with the one code that all versions have (0x80).
const REFUSED_FILTER: &str = "test/nosubscribe";

impl Shard {
    /// Of what `rules` allow; the rest of the request is refused already.
    pub(crate) fn make_mqtt_subscriptions(
        &mut self,
        slot: u32,
        mut request: SubscribeRequest,
        rules: Option<Arc<AppRules>>,
    ) {
        if self.shared.config.conformance {
            request.refuse(|filter| {
                (filter.as_str() == REFUSED_FILTER).then_some(SubscribeRefused::Unavailable)
            });
        }
        let lasts = self.mqtt(slot).is_some_and(|mqtt| mqtt.expiry_s > 0);
        // What was published before is retained before.
        let has_shares = request.shares().next().is_some();
        if let Some(mqtt) = self.mqtt(slot) {
            mqtt.has_shares |= has_shares;
        }
        if !lasts && !has_shares && !self.has_work(slot) {
            return self.finish_subscribe(slot, request, lasts);
        }
        let had = Vec::new();
        if !self.queue_job(slot, Job::Subscribe { request, lasts, rules, had }) {
            self.begin_close(slot, CloseReason::RateLimited);
        }
    }

    /// SUBACK, and the connection hears what it subscribed to.
    pub(super) fn finish_subscribe(&mut self, slot: u32, request: SubscribeRequest, lasts: bool) {
        let shared = self.shared.clone();
        let Some(app) = self.app_of(slot) else { return };
        let mut made = Vec::new();
        let had_wildcards = self.mqtt(slot).is_some_and(|mqtt| mqtt.heard_by_wildcard().is_some());
        let (asked, most) = (request.count(), shared.config.mqtt.subscriptions_max);
        let limit = self.delivery.quotas().subscriptions_max(app, most);
        let config = Config { subscriptions_max: limit, ..shared.config.mqtt.clone() };
        let since = self.heard_from(slot);
        let shares: Vec<Share> = request.shares().filter_map(|(filter, _)| share(filter)).collect();
        self.answer_mqtt(slot, |conversation, out| {
            made = conversation.subscribed(&config, request, since.0, out)?;
            Ok(())
        });
        if made.len() < asked {
            self.over_subscriptions(app, limit);
        }
        self.leave_refused_shares(slot, shares);
        let kind = if lasts { Subscription::durable } else { Subscription::own };
        let mut retained: Vec<Box<str>> = Vec::new();
        let mut reads_inbox = false;
        for Subscribed { filter, is_new, wants_retained } in made {
            if let Some(topic) = filter.topic().filter(|_| !filter.has_wildcards()) {
                let key = shared.registry.topic_key(app, &topic);
                self.hear(slot, topic, key, kind, wants_retained);
                continue;
            }
            if filter.has_wildcards() {
                self.sessions.wildcards.add(app, filter.as_str(), slot);
                retained.extend(wants_retained.then(|| filter.as_str().into()));
            }
            // A share's messages come by the inbox, perhaps before this.
            reads_inbox |= is_new && (filter.matches_inbox() || filter.share().is_some());
        }
        if reads_inbox {
            self.read_anew(slot, None);
        }
        if !had_wildcards || !retained.is_empty() {
            self.hear_by_wildcard(slot, !had_wildcards, retained);
        }
        self.advance(slot);
    }

    /// Leaves those that were joined and then found no room among the connection's subscriptions.
    fn leave_refused_shares(&mut self, slot: u32, mut shares: Vec<Share>) {
        let Some(mqtt) = self.mqtt(slot).filter(|_| !shares.is_empty()) else { return };
        let held: Vec<Share> =
            mqtt.conversation.subscriptions().filter_map(|held| share(&held.filter)).collect();
        shares.retain(|share| !held.contains(share));
        let leave = Job::LeaveShares { what: Leave::Shares(shares.clone()), held: Vec::new() };
        if !shares.is_empty() && !self.queue_job(slot, leave) {
            self.begin_close(slot, CloseReason::RateLimited);
        }
    }

    /// What was accepted up to here a subscription that is made now does not bring.
    pub(super) fn heard_from(&self, slot: u32) -> Place {
        let as_of = self.connections.get(slot as usize).map(|connection| connection.as_of);
        Place::of(as_of.map_or(self.fanout.offered(), |as_of| as_of.max(self.fanout.offered())))
    }

    /// What is published from now on comes by itself, and once; what is retained from before is read first.
    pub(super) fn hear_by_wildcard(&mut self, slot: u32, is_first: bool, retained: Vec<Box<str>>) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        let offered = connection.offered_to(self.fanout.offered());
        if is_first {
            if let Some(catch_up) = &mut connection.catch_up {
                catch_up.read_log_from(Place::of(offered));
            }
            if let Some(mqtt) = self.mqtt(slot) {
                mqtt.since = mqtt.since.max(Place::of(offered));
            }
        }
        if retained.is_empty() {
            return;
        }
        let filters = retained.clone();
        if !self.queue_job(slot, Job::Retained { filters: retained, up_to: offered }) {
            return self.begin_close(slot, CloseReason::RateLimited);
        }
        let before_marked = noroshi_delivery::id_at(self.before_marked(slot, Place::of(offered)));
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        let own_topics = self.sessions.topics.own(&connection.topics);
        let catch_up = connection.catch_up.get_or_insert_with(|| Box::new(CatchUp::live()));
        catch_up.await_retained(filters, own_topics, before_marked);
    }

    pub(crate) fn end_mqtt_subscriptions(&mut self, slot: u32, request: UnsubscribeRequest) {
        let lasts = self.mqtt(slot).is_some_and(|mqtt| mqtt.expiry_s > 0);
        let has_shares = request.filters().any(|filter| filter.share().is_some());
        if !lasts && !has_shares && !self.has_work(slot) {
            let ending = self.mqtt(slot).map(|mqtt| mqtt.names_ended_by(&request)).unwrap_or_default();
            self.end_names(slot, &names_of(&request), &ending);
            return self.finish_unsubscribe(slot, request);
        }
        let held = Vec::new();
        if !self.queue_job(slot, Job::Unsubscribe { request, lasts, held }) {
            self.begin_close(slot, CloseReason::RateLimited);
        }
    }

    /// UNSUBACK, and the rest of the request where [`Shard::end_names`] did its part.
    pub(super) fn finish_unsubscribe(&mut self, slot: u32, request: UnsubscribeRequest) {
        let Some(app) = self.app_of(slot) else { return };
        for filter in request.filters().filter(|filter| filter.has_wildcards()) {
            self.sessions.wildcards.remove(app, filter.as_str(), slot);
        }
        self.answer_mqtt(slot, |conversation, out| conversation.unsubscribed(request, out));
    }

    /// Hears topics no more by their names. `ending`: those that filters with wildcards go on matching, and behind which
    /// places they were heard.
    fn end_names(&mut self, slot: u32, topics: &[Topic], ending: &[(Topic, Place)]) {
        let Some(app) = self.app_of(slot) else { return };
        for (topic, behind) in ending {
            self.end_name(slot, topic, *behind);
        }
        let keys: Vec<_> = topics.iter().map(|topic| self.shared.registry.topic_key(app, topic)).collect();
        self.unsubscribe(slot, &keys);
    }

    /// If the job that is next is UNSUBSCRIBE, its names end before the store is asked: pages that are read while it is
    /// out may have them or not.
    pub(super) fn end_names_next(&mut self, slot: u32, generation: u64) {
        if self.at(slot, generation).is_none_or(|connection| connection.phase != Phase::Open) {
            return;
        }
        let Some(mqtt) = self.mqtt(slot) else { return };
        let Some(Job::Unsubscribe { request, .. }) = mqtt.queue.as_ref().and_then(|queue| queue.front())
        else {
            return;
        };
        let (topics, ending) = (names_of(request), mqtt.names_ended_by(request));
        self.end_names(slot, &topics, &ending);
    }

    /// Where the first message stands that filters with wildcards are still to bring of topics whose names ended.
    pub(super) fn left_out_behind(&mut self, slot: u32) -> Option<Place> {
        self.connection(slot)?.catch_up.as_mut()?.gaps().begin()
    }

    fn app_of(&mut self, slot: u32) -> Option<AppId> {
        Some(self.connection(slot)?.session.as_ref()?.app)
    }
}

impl Mqtt {
    /// Names that UNSUBSCRIBE ends while filters with wildcards match them, and behind which places they were heard.
    fn names_ended_by(&self, request: &UnsubscribeRequest) -> Vec<(Topic, Place)> {
        if self.heard_by_wildcard().is_none() {
            return Vec::new();
        }
        let held = self.conversation.subscriptions().filter(|held| !held.filter.has_wildcards());
        let ending = held.filter(|held| request.filters().any(|filter| *filter == held.filter));
        ending.filter_map(|held| Some((held.filter.topic()?, Place(held.since)))).collect()
    }
}

fn names_of(request: &UnsubscribeRequest) -> Vec<Topic> {
    request.filters().filter_map(TopicFilter::topic).collect()
}

/// What a shared subscription shares.
pub(super) fn share(filter: &TopicFilter) -> Option<Share> {
    let (name, filter) = filter.share()?;
    Some(Share { name: name.into(), filter: filter.into() })
}
