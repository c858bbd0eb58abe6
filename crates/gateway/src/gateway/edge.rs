//! What `delivery` calls: finds the sessions of a message and queues it for their shards, one item each. Nothing here
//! waits: it runs on the store's writer and on the API's threads.
//!
//! Invariant: a kept message is stamped before sessions are looked for ([`crate::session::stamp`]).

use std::sync::Arc;
use std::time::Duration;

use noroshi_delivery::{Edge, Fan, LocalSession};
use noroshi_store::{Followed, OutcomePart, Preferring};
use noroshi_types::{
    AppId, CloseReason, DeviceId, ItemsNotice, Label, Message, NotificationId, Outcome, Position, Presence,
    Target, Topic, UserId, When,
};

use crate::fanout::mail::{Audience, Mail, Undelivered};
use crate::gateway::Gateway;
use crate::protocol::{mqtt, xmpp};
use crate::session::following::Change;
use crate::session::registry::{Address, Key, Registry, Session};
use crate::shard::mailbox::Mailbox;
use crate::wire::dispatch::Dispatch;

impl Edge for Gateway {
    fn deliver(&self, message: Arc<Message>, target: &Target) {
        let (app, id, kept) = (message.app, message.id, message.when == When::Stored);
        let mut offline = 0;
        self.deliver_part(message, target, &mut |_| offline += 1);
        if offline > 0
            && !kept
            && let Some(delivery) = self.delivery.upgrade()
        {
            let at = delivery.clock().now();
            delivery.context.outcomes.record(vec![OutcomePart {
                app,
                id,
                outcome: Outcome::Offline,
                at,
                devices: Vec::new(),
                count: offline,
            }]);
        }
    }

    fn deliver_part(&self, message: Arc<Message>, target: &Target, missing: &mut dyn FnMut(usize)) {
        let (app, registry) = (message.app, &self.shared.registry);
        match target {
            Target::Users(users) => {
                let keys: Vec<_> = users.iter().map(|user| registry.user_key(app, user)).collect();
                let sessions = |key, each: &mut dyn FnMut(&Session)| {
                    registry.each_of_user(key, each);
                };
                self.deliver_named(message, &keys, sessions, missing);
            }
            Target::Devices(devices) => {
                let keys: Vec<_> = devices.iter().map(|device| registry.device_key(app, device)).collect();
                let sessions = |key, each: &mut dyn FnMut(&Session)| {
                    registry.device(key).iter().for_each(|session| each(session));
                };
                self.deliver_named(message, &keys, sessions, missing);
            }
            Target::Topic(topic) => self.deliver_topic(message, registry.topic_key(app, topic), false),
            Target::Everyone => {
                let key = registry.topic_key(app, &Topic::everyone());
                self.deliver_topic(message, key, false);
            }
            Target::Condition(condition) => {
                self.stamp(&message, &[registry.conditions_key(app)]);
                let key = |topic: &Topic| registry.topic_key(app, topic);
                let topics =
                    condition.topics().into_iter().map(|topic| (topic.clone(), key(topic))).collect();
                let everyone = key(&Topic::everyone());
                let audience = Arc::new(Audience { condition: condition.clone(), topics, everyone });
                let dispatch = Dispatch::new(message);
                let keys = audience.topics.iter().map(|(_, key)| *key);
                let deliveries = match audience.condition.matches_none() {
                    true => self.deliveries([audience.everyone]),
                    false => self.deliveries(keys),
                };
                self.send_all(|| Mail::Condition {
                    dispatch: dispatch.clone(),
                    audience: audience.clone(),
                    deliveries,
                });
            }
        }
    }

    fn offer(&self, message: Arc<Message>, topic: &Topic) {
        let key = self.shared.registry.topic_key(message.app, topic);
        self.deliver_topic(message, key, true);
    }

    fn offered(&self, app: AppId, topic: &Topic, position: Position) {
        let key = self.shared.registry.topic_key(app, topic);
        for mailbox in &self.shared.mailboxes {
            mailbox.request(Mail::Offered { key, position });
        }
    }

    fn has_room(&self, fan: Fan, more: usize, delay_max: Duration) -> bool {
        // Recipients are spread evenly.
        let more = more.div_ceil(self.shared.mailboxes.len());
        self.shared.mailboxes.iter().all(|mailbox| mailbox.has_room(fan, more, delay_max))
    }

    fn delay(&self, fan: Fan, more: usize) -> Option<Duration> {
        let more = more.div_ceil(self.shared.mailboxes.len());
        let delays = self.shared.mailboxes.iter().map(|mailbox| mailbox.delay(fan, more));
        delays.collect::<Option<Vec<_>>>()?.into_iter().max()
    }

    fn sessions(&self, app: AppId, users: &[UserId]) -> Vec<Vec<noroshi_delivery::Session>> {
        let registry = &self.shared.registry;
        let sessions = |user: &UserId| {
            let mut sessions = Vec::new();
            registry.each_of_user(registry.user_key(app, user), |session| sessions.push(described(session)));
            sessions
        };
        users.iter().map(sessions).collect()
    }

    fn session(&self, app: AppId, device: &DeviceId) -> Option<noroshi_delivery::Session> {
        let registry = &self.shared.registry;
        registry.device(registry.device_key(app, device)).map(|session| described(&session))
    }

    fn generation(&self, app: AppId, device: &DeviceId) -> u64 {
        let registry = &self.shared.registry;
        registry.device(registry.device_key(app, device)).map_or(0, |session| session.address.generation)
    }

    fn set_presence(&self, app: AppId, device: &DeviceId, presence: Presence) -> bool {
        let registry = &self.shared.registry;
        let Some(session) = registry.device(registry.device_key(app, device)) else { return false };
        if session.set_presence(presence) {
            let mailbox = self.shared.mailbox_of(session.address);
            mailbox.request(Mail::Reread { to: vec![session.address], since: None });
        }
        true
    }

    fn subscribe(&self, app: AppId, device: &DeviceId, topics: &[Topic]) {
        let registry = &self.shared.registry;
        let topics = topics.iter().map(|topic| (topic.clone(), registry.topic_key(app, topic))).collect();
        self.change(app, device, |to| Mail::Subscribe { to, topics });
    }

    fn unsubscribe(&self, app: AppId, device: &DeviceId, topic: &Topic) {
        let key = self.shared.registry.topic_key(app, topic);
        self.change(app, device, |to| Mail::Unsubscribe { to, key });
    }

    fn close(&self, app: AppId, device: &DeviceId, reason: CloseReason) {
        let registry = &self.shared.registry;
        let device_key = registry.device_key(app, device);
        self.stamp_change(device_key);
        if reason == CloseReason::Revoked {
            // No client may resume the sessions of this device, with this or with another credential.
            self.shared.services.of::<xmpp::Service>().forget(device_key);
            let left = self.shared.services.of::<mqtt::Service>().sessions.take(device_key);
            self.shared
                .metrics
                .mqtt_wills_withheld
                .inc_by(left.is_some_and(|left| left.will.is_some()).into());
        }
        if let Some(session) = registry.detach_if(device_key, |_| true) {
            self.shared.mailbox_of(session.address).close(session.address, reason);
        }
    }

    fn replaced(&self, app: AppId, device: &DeviceId, below: u64) {
        let registry = &self.shared.registry;
        let is_older = |session: &Session| session.address.generation < below;
        if let Some(session) = registry.detach_if(registry.device_key(app, device), is_older) {
            let mailbox = self.shared.mailbox_of(session.address);
            mailbox.close(session.address, CloseReason::Replaced);
        }
    }

    fn close_app(&self, app: AppId, reason: CloseReason) {
        for device in self.shared.registry.devices_of(app) {
            self.close(app, &device, reason);
        }
        self.shared.services.of::<xmpp::Service>().forget_app(app);
        self.shared.services.of::<mqtt::Service>().sessions.forget_app(app);
    }

    fn rules_changed(&self, apps: &[AppId]) {
        for mailbox in &self.shared.mailboxes {
            mailbox.recheck(apps);
        }
    }

    fn items(&self, app: AppId, user: &UserId, notice: &Arc<ItemsNotice>) {
        let registry = &self.shared.registry;
        let mut to: Vec<Vec<Address>> = vec![Vec::new(); self.shared.mailboxes.len()];
        registry.each_of_user(registry.user_key(app, user), |session| {
            to[usize::from(session.address.shard)].push(session.address);
        });
        for (shard, to) in to.into_iter().enumerate().filter(|(_, to)| !to.is_empty()) {
            let dropped = to.len() as u64;
            if !self.shared.mailboxes[shard].notify(Mail::Items { to, notice: notice.clone() }) {
                self.shared.metrics.item_reports_undelivered.inc_by(dropped);
            }
        }
    }

    fn preferences_changed(&self, app: AppId, of: &Preferring) -> Vec<DeviceId> {
        let registry = &self.shared.registry;
        let mut devices = Vec::new();
        match of {
            Preferring::User(user) => {
                let key = registry.user_key(app, user);
                self.stamp_change(key);
                registry.each_of_user(key, |session| devices.push(session.device.clone()));
            }
            Preferring::Device(device) => {
                let key = registry.device_key(app, device);
                self.stamp_change(key);
                devices.extend(registry.device(key).map(|session| session.device.clone()));
            }
        }
        devices
    }

    fn follow(&self, app: AppId, device: &DeviceId, followed: Followed) {
        let registry = &self.shared.registry;
        if let Some(session) = registry.device(registry.device_key(app, device)) {
            let (to, change) = (session.address, Box::new(Change::Followed(followed)));
            self.shared.mailbox_of(to).request(Mail::Follow { to, change });
        }
    }

    fn capped(&self, app: AppId, device: &DeviceId, category: &Label, day: u32) {
        let registry = &self.shared.registry;
        if let Some(session) = registry.device(registry.device_key(app, device)) {
            let change = Box::new(Change::Capped { category: category.clone(), day });
            let to = session.address;
            self.shared.mailbox_of(to).notify(Mail::Follow { to, change });
        }
    }

    fn topic_sessions(&self, app: AppId, topic: &Topic) -> u64 {
        self.shared.registry.topic_sessions(self.shared.registry.topic_key(app, topic))
    }

    fn sessions_page(&self, page: usize) -> Vec<LocalSession> {
        self.shared.registry.page(page)
    }

    fn reread_all(&self) {
        self.shared.mailboxes.iter().for_each(Mailbox::lose);
    }

    fn reread(&self, sessions: &[LocalSession], since: NotificationId) {
        let mut to: Vec<Vec<Address>> = vec![Vec::new(); self.shared.mailboxes.len()];
        for session in sessions {
            let present = self.shared.registry.device(session.device_key.0.max(1));
            if let Some(present) = present.filter(|one| one.address.generation == session.generation) {
                to[usize::from(present.address.shard)].push(present.address);
            }
        }
        for (shard, to) in to.into_iter().enumerate().filter(|(_, to)| !to.is_empty()) {
            self.shared.mailboxes[shard].request(Mail::Reread { to, since: Some(since) });
        }
    }
}

impl Gateway {
    fn send(&self, shard: usize, mail: Mail) {
        match self.shared.mailboxes[shard].deliver(mail) {
            Ok(()) => {}
            Err(Undelivered::Full) => drop(self.shared.metrics.mailbox_full.inc()),
            Err(Undelivered::Gone) => drop(self.shared.metrics.mailbox_gone.inc()),
        }
    }

    pub(crate) fn send_all(&self, mail: impl Fn() -> Mail) {
        for shard in 0..self.shared.mailboxes.len() {
            self.send(shard, mail());
        }
    }

    /// Stamps the keys of a kept message, before sessions are looked for.
    fn stamp(&self, message: &Message, keys: &[Key]) {
        if message.when == When::Stored {
            let moment = self.shared.stamps.next();
            for key in keys {
                self.shared.stamps.stamp(*key, moment);
            }
        }
    }

    /// To the sessions of named users or devices.
    fn deliver_named(
        &self,
        message: Arc<Message>,
        keys: &[Key],
        sessions: impl Fn(Key, &mut dyn FnMut(&Session)),
        missing: &mut dyn FnMut(usize),
    ) {
        self.stamp(&message, keys);
        let mut to: Vec<Vec<Address>> = vec![Vec::new(); self.shared.mailboxes.len()];
        let is_one_gone = self.shared.mailboxes.iter().any(Mailbox::is_gone);
        for (index, key) in keys.iter().enumerate() {
            let mut reached = false;
            sessions(*key, &mut |session| {
                let shard = usize::from(session.address.shard);
                // The connections of a shard that is gone are closed, or as good as closed.
                if !(is_one_gone && self.shared.mailboxes[shard].is_gone()) {
                    to[shard].push(session.address);
                    reached = true;
                }
            });
            if !reached {
                missing(index);
            }
        }
        let dispatch = Dispatch::new(message);
        for (shard, to) in to.into_iter().enumerate().filter(|(_, to)| !to.is_empty()) {
            self.send(shard, Mail::Direct { dispatch: dispatch.clone(), to });
        }
    }

    /// Stamps a change of a device or of a user that a log-in in progress may not have read.
    fn stamp_change(&self, key: Key) {
        self.shared.stamps.stamp_now(Registry::change_key(key));
    }

    fn deliver_topic(&self, message: Arc<Message>, key: Key, again: bool) {
        self.stamp(&message, &[key]);
        let dispatch = Dispatch::offered(message, again);
        let deliveries = self.deliveries([key]);
        self.send_all(|| Mail::Topic { dispatch: dispatch.clone(), key, deliveries });
    }

    /// The recipients of some topics for each shard: they are spread evenly.
    fn deliveries(&self, keys: impl IntoIterator<Item = Key>) -> usize {
        let sessions: u64 = keys.into_iter().map(|key| self.shared.registry.topic_sessions(key)).sum();
        usize::try_from(sessions).unwrap_or(usize::MAX).div_ceil(self.shared.mailboxes.len())
    }

    /// Notifies a device's session of a change, and a log-in of the device that is in progress.
    fn change(&self, app: AppId, device: &DeviceId, mail: impl FnOnce(Address) -> Mail) {
        let device_key = self.shared.registry.device_key(app, device);
        self.stamp_change(device_key);
        if let Some(session) = self.shared.registry.device(device_key) {
            self.shared.mailbox_of(session.address).request(mail(session.address));
        }
    }
}

fn described(session: &Session) -> noroshi_delivery::Session {
    noroshi_delivery::Session { device: session.device.clone(), presence: session.presence() }
}
