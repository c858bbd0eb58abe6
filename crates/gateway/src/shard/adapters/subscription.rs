//! Subscriptions that clients make for as long as their connection lasts.

use std::collections::HashMap;

use noroshi_types::{AppId, CloseReason, Quota, Since, Topic, limits};

use crate::session::topic_index::Subscription;
use crate::shard::Shard;

impl Shard {
    /// Subscribes to topics that topic rules allow. An error has a stable code and a text for people.
    pub(crate) fn subscribe_all(
        &mut self,
        slot: u32,
        topics: Vec<Topic>,
        since: Vec<(Topic, Since)>,
    ) -> Result<(), (&'static str, String)> {
        let registry = &self.shared.registry;
        let Some(app) = self.app_of(slot) else { return Ok(()) };
        let keys: Vec<_> = topics.iter().map(|topic| registry.topic_key(app, topic)).collect();
        let new = keys.iter().filter(|key| !self.sessions.topics.is_subscribed(**key, slot)).count();
        let most = self.delivery.quotas.subscriptions_max(app, limits::TOPICS_PER_DEVICE_MAX);
        // One more than the limit: the device does not choose `$everyone`.
        let held = self.connections[slot as usize].attachment.topics.len();
        if new > 0 && held + new > most + 1 {
            if let Some(over) = self.over_subscriptions(app, most) {
                return Err((CloseReason::QuotaExceeded.as_str(), over.to_string()));
            }
            let text = format!("a device may subscribe to at most {} topics", limits::TOPICS_PER_DEVICE_MAX);
            return Err(("too_many_topics", text));
        }
        let mut since: HashMap<Topic, Since> = since.into_iter().collect();
        for (topic, key) in topics.into_iter().zip(keys) {
            let since = since.remove(&topic);
            self.subscribe(slot, topic, key, Subscription::own, since, None);
        }
        self.advance(slot);
        Ok(())
    }

    /// Subscribes to one topic. `retained`: also read its retained message, for a topic that is subscribed already too.
    pub(super) fn subscribe_topic(&mut self, slot: u32, topic: Topic, durable: bool, retained: Option<bool>) {
        let Some(app) = self.app_of(slot) else { return };
        let key = self.shared.registry.topic_key(app, &topic);
        let kind = if durable { Subscription::durable } else { Subscription::own };
        self.subscribe(slot, topic, key, kind, None, retained);
    }

    /// Counts a subscription that only the app's quota refuses.
    pub(crate) fn over_subscriptions(&self, app: AppId, most: usize) -> Option<noroshi_delivery::OverQuota> {
        let is_quota = most < limits::TOPICS_PER_DEVICE_MAX;
        is_quota.then(|| self.delivery.quotas.refused(app, Quota::SubscriptionsPerDevice)).flatten()
    }

    pub(crate) fn unsubscribe_all(&mut self, slot: u32, topics: &[Topic]) {
        let Some(app) = self.app_of(slot) else { return };
        let key = |topic| self.shared.registry.topic_key(app, topic);
        let keys: Vec<_> = topics.iter().map(key).collect();
        self.unsubscribe(slot, &keys);
    }
}
