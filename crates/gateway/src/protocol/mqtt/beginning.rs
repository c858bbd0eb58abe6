//! From a log-in to a session, and what a session leaves when its connection ends.
//!
//! A session is gone on with where the client asks for that (§3.1.2.4) and this node or the store knows it. A
//! device has durable subscriptions that were not made over MQTT too: those are part of every session.

use std::sync::Arc;
use std::time::Duration;

use noroshi_auth::{Identity, Refused};
use noroshi_delivery::Delivery;
use noroshi_delivery::rules::Verdict;
use noroshi_protocol::mqtt::{
    LogIn, LogInRefused, LoggedIn, OfferedWill, Qos, SubscribeOptions, Subscription as Held, TopicFilter,
    Will,
};
use noroshi_store::{Leave, Share};
use noroshi_types::rule::Action;
use noroshi_types::{AppId, CloseReason, DeviceId, Topic};

use super::kept::Kept;
use super::last_words::Turn;
use super::publishing::data_bytes_max;
use super::session::{Due, Left, Progress, owed};
use super::subscribing::share;
use super::work::{self, Job};
use super::{Mqtt, origin};
use crate::protocol::conversation::Talk;
use crate::session::login::Begun;
use crate::session::operation::Published;
use crate::session::registry::{Holder, Session};
use crate::session::verification::{LogInRequest, close_reason};
use crate::shard::Shard;
use crate::shard::shared::Shared;
use crate::wire::Protocol;

/// Why a client is not let in.
enum NotIn {
    For(CloseReason),
    Refused(LogInRefused),
}

impl Shard {
    pub(super) fn log_in_mqtt(&mut self, slot: u32, log_in: &LogIn<'_>) {
        if let Some(reason) = self.turns_away(slot) {
            return self.begin_close(slot, reason);
        }
        if let Some(mqtt) = self.mqtt(slot) {
            (mqtt.clean_start, mqtt.expiry_s) = (log_in.clean_start, log_in.session_expiry_s);
        }
        let will = log_in.will.clone();
        let Some(token) = log_in.token else {
            let identity = self.anonymous(log_in).map_err(|why| {
                self.tell_refused(slot, &why);
                NotIn::For(CloseReason::Unauthorized)
            });
            return self.let_in_mqtt(slot, identity, None, will);
        };
        let request = LogInRequest::Mqtt { device: log_in.device.map(Into::into), will };
        self.identify(slot, Some(token), log_in.app, request);
    }

    pub(crate) fn identified_mqtt(
        &mut self,
        slot: u32,
        answer: Result<Identity, Refused>,
        device: Option<&str>,
        will: Option<OfferedWill>,
    ) {
        let identity = answer.map_err(|refused| NotIn::For(close_reason(&refused)));
        self.let_in_mqtt(slot, identity, device, will);
    }

    /// `device`: what the client says to be besides its token.
    fn let_in_mqtt(
        &mut self,
        slot: u32,
        identity: Result<Identity, NotIn>,
        device: Option<&str>,
        will: Option<OfferedWill>,
    ) {
        match identity.and_then(|identity| self.check_mqtt(slot, identity, device, will)) {
            Ok(identity) => self.start_log_in(slot, identity, Vec::new(), None),
            Err(NotIn::For(reason)) => self.begin_close(slot, reason),
            Err(NotIn::Refused(refused)) => {
                self.tell_refused(slot, &refused.text());
                let Some(mqtt) = self.mqtt(slot) else { return };
                let mut out = Vec::new();
                mqtt.conversation.refuse_log_in(refused, &mut out);
                self.send_mqtt(slot, out);
                self.begin_close(slot, CloseReason::Unauthorized);
            }
        }
    }

    fn check_mqtt(
        &mut self,
        slot: u32,
        identity: Identity,
        device: Option<&str>,
        will: Option<OfferedWill>,
    ) -> Result<Identity, NotIn> {
        if device.is_some_and(|device| device != identity.device.as_str()) {
            return Err(NotIn::Refused(LogInRefused::OtherDevice));
        }
        match will.and_then(|will| self.refuse_will(slot, identity.app, &will)) {
            Some(refused) => Err(NotIn::Refused(refused)),
            None => Ok(identity),
        }
    }

    /// A will is a publication that waits: it keeps to the same limits.
    fn refuse_will(&mut self, slot: u32, app: AppId, will: &OfferedWill) -> Option<LogInRefused> {
        // Where the app has rules for publishing they alone decide, when the will is published.
        if !self.rules().has_publish_rules(app) && !self.may_publish(app, &will.topic) {
            return Some(LogInRefused::Will);
        }
        let limit = self.shared.config.publish_bytes_max;
        let fits = will.payload_bytes <= limit
            && will.payload_bytes + will.properties_bytes <= data_bytes_max(limit)
            && self.mqtt(slot)?.conversation.will_data_bytes() <= data_bytes_max(limit);
        (!fits).then_some(LogInRefused::WillTooBig)
    }

    /// Without a token a client is the device that its identifier names, which is made on first use; or why it is not
    /// let in.
    fn anonymous(&self, log_in: &LogIn<'_>) -> Result<Identity, &'static str> {
        let config = &self.shared.config;
        let name = config.anonymous_app.as_deref().filter(|_| config.mqtt.anonymous);
        let app = name.and_then(|name| self.shared.auth.app_id(name)).ok_or("no token was given")?;
        let id = match log_in.client_id {
            "" => format!("anonymous-{:016x}", self.shared.next_number()),
            id => id.to_owned(),
        };
        let device = DeviceId::parse(&id)
            .map_err(|_| "no token was given, and the client identifier is no device's")?;
        Ok(Identity::anonymous(app, device))
    }

    /// The filters of the session that a client asks to go on with, without those that name a topic.
    pub(crate) fn kept_filters(&self, slot: u32, kept: Option<&[u8]>) -> Vec<TopicFilter> {
        let talk = self.connections.get(slot as usize).and_then(|connection| connection.talk.as_deref());
        let goes_on = matches!(talk, Some(Talk::Mqtt(mqtt)) if !mqtt.clean_start);
        match kept.filter(|_| goes_on).and_then(Kept::parse) {
            Some((kept, false)) => {
                let filters = kept.subscriptions.into_iter().map(|held| held.filter);
                filters.filter(|filter| filter.topic().is_none()).collect()
            }
            _ => Vec::new(),
        }
    }

    /// CONNACK, and from here on the keep alive counts.
    pub(crate) fn begin_mqtt(&mut self, slot: u32, begun: &Begun) -> Vec<u8> {
        let (shared, now) = (self.shared.clone(), self.now.wall);
        let session = &begun.session;
        // What another holder of the device left ends here, its will unpublished.
        let left = shared.lefts.take(session.device_key);
        let (left, other) = match left {
            Some(left) if left.session.holder() == session.holder() => (Some(left), None),
            left => (None, left),
        };
        self.withhold(other.is_some_and(|other| other.will.is_some()));
        let (kept, has_ended) = begun.kept.as_deref().and_then(Kept::parse).unzip();
        let has_ended = has_ended.unwrap_or(false);
        // A subscription that topic rules deny now was granted by SUBACK. The session begins anew, so that the client
        // subscribes again and is told.
        let keeps_all = kept.as_ref().is_none_or(|kept: &Kept| {
            let mut own = kept.subscriptions.iter().filter(|held| held.is_of_client);
            own.all(|held| self.rules().may_keep_filter(session, &begun.permitted, held.filter.plain()))
        });
        let Some(mqtt) = self.mqtt(slot) else { return Vec::new() };
        // What this node remembers knows when it ends.
        let goes_on = |kept: &Kept| {
            let lasts = shared.registry.is_shared() || !shared.lefts.has_ended(session.app, kept, now);
            lasts && !shared.lefts.last_words().tells_an_end(session.device_key)
        };
        let known = !has_ended
            && match &left {
                Some(left) => left.ends_at > now,
                None => kept.as_ref().is_some_and(goes_on),
            };
        let present = known && keeps_all && !mqtt.clean_start;
        mqtt.resumed = present;
        mqtt.since = begun.as_of;
        let (mut subscriptions, mut forget, mut owed) = (Vec::new(), Vec::new(), Vec::new());
        let (mut ended, mut gaps) = (Vec::new(), Vec::new());
        match kept {
            Some(kept) if present => {
                (subscriptions, mqtt.since, owed) = (kept.subscriptions, kept.since, kept.owed);
            }
            Some(kept) => {
                let own = kept.subscriptions.iter().filter(|held| held.is_of_client);
                forget = own.filter_map(|held| held.filter.topic()).collect();
            }
            None => {}
        }
        // What this node remembers is newer: the store may not have been told yet.
        if let Some(left) = left.as_ref().filter(|_| present) {
            (mqtt.since, owed) = (left.progress.since, left.owed());
            (ended, gaps) = (left.progress.ended.clone(), left.progress.gaps.clone());
        }
        let due = match left.as_ref().filter(|_| present) {
            Some(left) => left.progress.retained_due.clone(),
            None => subscriptions.iter().filter(|held| held.retained_due).map(retained_by).collect(),
        };
        let (saved, will) = left.map_or((None, None), |left| (left.saved, left.will));
        for topic in begun.topics.iter().filter(|topic| !forget.contains(topic)) {
            add_durable(&mut subscriptions, topic);
        }
        let filters = subscriptions.iter().map(|held| &held.filter);
        let wild: Vec<TopicFilter> = filters.filter(|filter| filter.has_wildcards()).cloned().collect();
        let logged_in = LoggedIn {
            device: session.device.as_str(),
            origin: origin(session),
            session_present: present,
            subscriptions,
            saved: saved.filter(|_| present),
        };
        let shares = shares_of(&logged_in.subscriptions);
        mqtt.has_shares = !shares.is_empty();
        let mut out = Vec::new();
        let early = mqtt.conversation.logged_in(&shared.config.mqtt, logged_in, &mut out);
        let since = mqtt.since;
        self.send_mqtt(slot, out);
        for filter in &wild {
            self.sessions.wildcards.add(session.app, filter.as_str(), slot);
        }
        if let Some(catch_up) = self.connection(slot).and_then(|connection| connection.catch_up.as_mut()) {
            if !wild.is_empty() {
                catch_up.read_log(since, begun.as_of);
                catch_up.ended().restore(ended);
                catch_up.gaps().restore(gaps);
            }
            catch_up.send_again(owed);
        }
        // A session that is not gone on with has ended (§3.1.3.2.2).
        if let Some(will) = will.filter(|_| !present) {
            self.publish_will(session, *will, When::Now);
        }
        if begun.kept.is_some() && !present {
            let key = |topic| shared.registry.topic_key(session.app, topic);
            let keys: Vec<_> = forget.iter().map(key).collect();
            self.unsubscribe(slot, &keys);
            self.queue_job(slot, Job::Forget { topics: forget, turn: None });
        }
        if !shares.is_empty() {
            self.queue_job(slot, Job::Join { shares });
        }
        self.hear_by_wildcard(slot, false, due);
        self.await_mqtt(slot);
        early
    }

    /// What the session leaves behind.
    pub(crate) fn part_mqtt(&mut self, slot: u32, mut mqtt: Mqtt) {
        let now = self.now.wall;
        let since = self.sent_by_wildcard(slot, mqtt.since);
        let Some(connection) = self.connection(slot) else { return };
        let reason = connection.close_reason;
        let catch_up = connection.catch_up.as_mut();
        let catch_up = catch_up.map(|catch_up| {
            let (unsent, ended) = (catch_up.unsent(), catch_up.ended().behind(since));
            (unsent, ended, (catch_up.gaps().begin(), catch_up.gaps().held()), catch_up.retained_due())
        });
        let (unsent, ended, (gap, gaps), due) = catch_up.unwrap_or_default();
        let Some(session) = connection.session.clone() else { return };
        let filters = mqtt.conversation.subscriptions().map(|held| &held.filter);
        let wild: Vec<TopicFilter> = filters.filter(|filter| filter.has_wildcards()).cloned().collect();
        for filter in &wild {
            self.sessions.wildcards.remove(session.app, filter.as_str(), slot);
        }
        let held = if mqtt.has_shares { mqtt.conversation.sent_exactly_once() } else { Vec::new() };
        let queue = mqtt.queue.take().map(|queue| *queue);
        let is_busy = queue.as_ref().is_some_and(|queue| queue.is_busy());
        let lasted = mqtt.expiry_s > 0;
        let subscriptions = mqtt.subscriptions(&due);
        let parting = mqtt.conversation.part();
        // The node told it to connect again: it is not gone.
        let comes_back = matches!(reason, Some(CloseReason::Drain | CloseReason::RulesChanged));
        let will = parting.will.filter(|_| !comes_back);
        let own = subscriptions.iter().filter(|held| held.is_of_client);
        let topics: Vec<Topic> = own.filter_map(|held| held.filter.topic()).collect();
        // Topic rules took a subscription away: the session ends, so that the client subscribes again and is told.
        let goes_on = reason != Some(CloseReason::Unauthorized);
        let expiry_s = if goes_on { parting.session_expiry_s } else { 0 };
        let in_flight = parting.saved.iter().flat_map(|saved| saved.in_flight());
        let owed = owed(in_flight, &unsent);
        let announce = |ends| {
            let (key, generation) = (session.device_key, session.address.generation);
            self.shared.lefts.last_words().announce(key, generation, ends)
        };
        // The one thing that is written at an end: neither filters with wildcards nor what topics retain have a position.
        let last = match expiry_s {
            0 if lasted => Some(Job::Forget { topics: topics.clone(), turn: Some(announce(true)) }),
            0 => None,
            // The running job may still write the session; this write replaces it.
            _ if wild.is_empty() && due.is_empty() && !is_busy && !owed.iter().any(|owed| owed.retained) => {
                None
            }
            _ => {
                // The store has no room for gaps: a node that does not remember them reads everything behind the first.
                let since = gap.map_or(since, |gap| gap.min(since));
                let kept = Box::new(Kept { since, expiry_s, owed, subscriptions });
                Some(Job::Keep { kept, turn: announce(false) })
            }
        };
        // Nobody comes back for the session of a device that is revoked or deleted, and the store has ended what it
        // keeps of it: nothing is written over that.
        let revoked = reason == Some(CloseReason::Revoked);
        let present = self.shared.registry.device(session.device_key);
        let moved = present.is_some_and(|present| present.holder() != session.holder());
        let what = match expiry_s {
            seconds if seconds > 0 && !revoked && !moved => {
                Leave::Connection { ends_at: now.saturating_add(Duration::from_secs(seconds.into())) }
            }
            _ => Leave::Session,
        };
        let leave = mqtt.has_shares.then_some(Job::LeaveShares { what, held });
        let last = last.filter(|_| !revoked && !moved);
        self.leave_work(slot, &session, queue, expiry_s > 0, leave.into_iter().chain(last));
        if revoked {
            return self.withhold(will.is_some());
        }
        if expiry_s == 0 {
            if let Some(will) = will {
                self.publish_will(&session, *will, When::Now);
            }
            return;
        }
        let state = (parting.saved, Progress { since, unsent, ended, gaps, retained_due: due });
        let mut left = Left::new(session, state, will, now, expiry_s, topics);
        if left.will_at <= now
            && let Some(will) = left.take_will()
        {
            self.publish_will(&left.session, *will, When::Now);
        }
        let evicted = self.shared.lefts.put(left);
        self.shared.metrics.count_evicted(Protocol::Mqtt, evicted.len());
        for mut left in evicted {
            // The will would be lost: it is published before its delay is over.
            if let Some(will) = left.take_will() {
                self.publish_will(&left.session, *will, When::Late);
            }
        }
        // The shard that looks after it may sleep.
        self.shared.mailboxes[0].wake();
    }

    /// Wills that are due, and sessions that ended.
    pub(crate) fn handle_lefts(&mut self) {
        for due in self.shared.lefts.take_due(self.now.wall) {
            match due {
                Due::Will(session, will) => self.publish_will(&session, *will, When::Late),
                Due::Ended(session, topics, turn) => self.forget_session(session, topics, turn),
            }
        }
    }

    fn forget_session(&self, session: Arc<Session>, topics: Vec<Topic>, turn: Turn) {
        let (delivery, shared) = (self.delivery.clone(), self.shared.clone());
        let present = self.shared.registry.device(session.device_key);
        // Where the device is back, the session is its present connection's.
        if present.is_none_or(|present| present.address == session.address) {
            self.delivery.work(async move {
                if still_holds(&delivery, &shared, &session).await && !is_elsewhere(&delivery, &session).await
                {
                    work::forget(&delivery, &session, &topics, None).await;
                }
                drop(turn);
            });
        }
    }

    /// Publishes a will if its device is still who left it, and may publish there. After a delay it may be connected
    /// to another node by now, which then has the session: a will is not for that ([MQTT-3.1.3-9]).
    fn publish_will(&self, session: &Arc<Session>, will: Will, when: When) {
        let is_filtered = self.may_publish(session.app, &will.topic);
        let (verdict, ask) = self.rules().may_leave_will(session, &will.topic, is_filtered);
        if matches!(verdict, Verdict::Denied(_)) {
            return self.withhold(true);
        }
        let name = will.topic.clone();
        let (request, clears) = Published {
            topic: will.topic,
            data: will.data,
            qos: will.qos,
            retain: will.retain,
            has_payload: will.has_payload,
            expiry_s: will.expiry_s,
        }
        .request();
        let (delivery, shared, session) = (self.delivery.clone(), self.shared.clone(), session.clone());
        self.delivery.work(async move {
            let is_back = when == When::Late && is_elsewhere(&delivery, &session).await;
            let mut is_withheld = is_back || !still_holds(&delivery, &shared, &session).await;
            if let Some((rules, holder)) = ask.filter(|_| !is_withheld && verdict == Verdict::Ask) {
                let asked = delivery.ask_topic(&rules, &holder, Action::Publish, name.as_str(), "mqtt").await;
                is_withheld = asked != Verdict::Allowed;
            }
            if is_withheld {
                shared.metrics.mqtt_wills_withheld.inc();
                return;
            }
            if let Err(refused) = work::publish(&delivery, &session, request, clears).await {
                tracing::debug!(?refused, "a will was not published");
            }
        });
    }

    fn withhold(&self, has_will: bool) {
        self.shared.metrics.mqtt_wills_withheld.inc_by(has_will.into());
    }
}

fn retained_by(held: &Held) -> Box<str> {
    held.filter.as_str().into()
}

/// What a session shares, with what was granted.
fn shares_of(subscriptions: &[Held]) -> Vec<(Share, u8)> {
    let share = |held: &Held| Some((share(&held.filter)?, held.options.qos() as u8));
    subscriptions.iter().filter_map(share).collect()
}

/// When a will is published: as its connection ends, or later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    Now,
    Late,
}

/// Whether the device is there, has the same user, and no token of its was revoked since the session began. An error of
/// the store counts as no.
async fn still_holds(delivery: &Delivery, shared: &Shared, session: &Session) -> bool {
    let device = match delivery.store().device(session.app, &session.device).await {
        Ok(device) => device,
        Err(error) => {
            tracing::warn!(%error, "what a session left is dropped: its device could not be looked at");
            return false;
        }
    };
    device.is_some_and(|device| {
        let user_key = device.user.map_or(0, |user| shared.registry.user_key(session.app, &user));
        session.holder() == Holder { num: device.num, user_key, token_version: device.token_version }
    })
}

async fn is_elsewhere(delivery: &Delivery, session: &Session) -> bool {
    delivery.session_elsewhere(session.app, &session.device).await.is_some()
}

/// A durable subscription that was not made over MQTT, if MQTT can say its name.
fn add_durable(subscriptions: &mut Vec<Held>, topic: &Topic) {
    if let Ok(filter) = TopicFilter::parse(topic.as_str())
        && !filter.has_wildcards()
        && subscriptions.iter().all(|held| held.filter != filter)
    {
        let options = SubscribeOptions::new(Qos::AtLeastOnce);
        subscriptions.push(Held {
            filter,
            options,
            id: 0,
            is_of_client: false,
            since: 0,
            retained_due: false,
        });
    }
}
