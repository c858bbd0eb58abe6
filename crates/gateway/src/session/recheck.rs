//! After a change of topic rules, the subscriptions of connections are checked again, and those that lost permission
//! end.
//!
//! A shard goes around its connections, a bounded number of topics a turn. After a change, the shard visits every
//! connection once, from its present position. A change that comes meanwhile begins its own app's lap anew and delays no
//! other.
//!
//! Native clients and Socket.IO go on and are told each topic with the reason. MQTT and XMPP have no word of the server's
//! that ends a subscription and that all clients know, so their connections end as not authorized, and the log-in that
//! follows has what is left. What the new rules leave to a webhook stays until the next subscription or log-in: a change
//! of rules must not become a storm of questions.
//!
//! A session that kept too little of its token for the new rules logs in again ([`CloseReason::RulesChanged`]). Such
//! sessions end at a steady rate, the apps in turn, so that a change does not become a storm of log-ins and a large app
//! does not hold up a small one. Until then they hear what they heard, and anything they ask for ends them at once.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use noroshi_delivery::Delivery;
use noroshi_delivery::rules::{AppRules, Reason, Verdict};
use noroshi_protocol::mqtt::TopicFilter;
use noroshi_types::rule::Action;
use noroshi_types::{AppId, CloseReason, Topic};

use crate::lifecycle::admission::{Bucket, Rate};
use crate::session::gate::end_durable;
use crate::session::permission::{holder_of, knows};
use crate::shard::Shard;
use crate::shard::connection::{Phase, Protocol};

/// Topics and filters checked in one turn, and those of one more connection: at a microsecond each half a millisecond.
const TOPICS_PER_TURN: usize = 512;
/// Places looked at in one turn: most are of other apps, or empty.
const PLACES_PER_TURN: usize = 4_096;
/// Sessions of one shard that are told to log in again. Log-ins cost some tens of microseconds each.
const RETURNS: Rate = Rate { per_second: 500, burst: 50 };

/// Connections of one shard that are checked again.
pub(crate) struct Recheck {
    laps: HashMap<AppId, Lap>,
    next_place: usize,
    returning: Returning,
    returns: Bucket,
}

/// Queues of sessions that have to log in again (slot and generation), one for each app. The apps take turns.
#[derive(Default)]
struct Returning {
    sessions: HashMap<AppId, VecDeque<(u32, u64)>>,
    /// Each app that has sessions, once.
    turns: VecDeque<AppId>,
}

impl Returning {
    fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    fn push(&mut self, app: AppId, session: (u32, u64)) {
        let sessions = self.sessions.entry(app).or_default();
        if sessions.is_empty() {
            self.turns.push_back(app);
        }
        sessions.push_back(session);
    }

    fn pop(&mut self) -> Option<(u32, u64)> {
        let app = self.turns.pop_front()?;
        let sessions = self.sessions.get_mut(&app)?;
        let session = sessions.pop_front();
        match sessions.is_empty() {
            true => drop(self.sessions.remove(&app)),
            false => self.turns.push_back(app),
        }
        session
    }

    fn forget(&mut self, app: AppId) {
        self.sessions.remove(&app);
        self.turns.retain(|other| *other != app);
    }
}

/// How far around the shard is for one app.
#[derive(Debug, Clone, Copy)]
struct Lap {
    began_at: usize,
    /// The last place was passed.
    is_around: bool,
}

impl Recheck {
    fn new(now_ms: u32) -> Self {
        let returns = Bucket::full(RETURNS, now_ms);
        Self { laps: HashMap::new(), next_place: 0, returning: Returning::default(), returns }
    }

    fn begin(&mut self, app: AppId) {
        self.laps.insert(app, Lap { began_at: self.next_place, is_around: false });
    }

    /// The next place to look at. `None`: no lap is left.
    fn next_place(&mut self, places: usize) -> Option<usize> {
        if self.next_place >= places {
            self.next_place = 0;
            self.laps.retain(|_, lap| !std::mem::replace(&mut lap.is_around, true) && places > 0);
        }
        let next_place = self.next_place;
        self.laps.retain(|_, lap| !lap.is_around || next_place < lap.began_at);
        if self.laps.is_empty() {
            return None;
        }
        self.next_place += 1;
        Some(next_place)
    }

    /// Whether the next turn has something to do.
    pub(crate) fn has_work(&self) -> bool {
        !self.laps.is_empty()
    }

    /// How long the shard may sleep.
    pub(crate) fn patience_ms(&self, now_ms: u32) -> u64 {
        match self.returning.is_empty() {
            true => u64::MAX,
            false => self.returns.wait_ms(RETURNS, now_ms).max(1),
        }
    }
}

impl Shard {
    /// Looks at the next connections whose app's rules changed.
    pub(crate) fn go_on_with_recheck(&mut self) {
        let changed = self.mailbox().take_rechecks();
        if self.recheck.is_none() && changed.is_empty() {
            return;
        }
        let now_ms = self.now.ms32();
        let mut recheck = self.recheck.take().unwrap_or_else(|| Recheck::new(now_ms));
        for app in changed {
            recheck.begin(app);
            // The lap finds them again.
            recheck.returning.forget(app);
        }
        let mut topics_left = TOPICS_PER_TURN;
        for _ in 0..PLACES_PER_TURN {
            let Some(place) = recheck.next_place(self.connections.capacity()) else { break };
            let Some(connection) = self.connections.get(place) else { continue };
            let app = connection.session.as_ref().map(|session| session.app);
            let Some(app) = app.filter(|app| recheck.laps.contains_key(app)) else { continue };
            if connection.phase != Phase::Open {
                continue;
            }
            let (slot, generation, topics) = (place as u32, connection.generation, connection.topics.len());
            let cost = topics + self.mqtt_filters(slot).count();
            self.guard(Some(slot), |shard| {
                if !shard.recheck_session(slot) {
                    recheck.returning.push(app, (slot, generation));
                }
            });
            topics_left = topics_left.saturating_sub(cost.max(1));
            if topics_left == 0 {
                break;
            }
        }
        while !recheck.returning.is_empty() && recheck.returns.take(RETURNS, now_ms) {
            let Some((slot, generation)) = recheck.returning.pop() else { break };
            if self.at(slot, generation).is_some_and(|connection| connection.phase == Phase::Open) {
                self.guard(Some(slot), |shard| shard.recheck_now(slot));
            }
        }
        if !recheck.laps.is_empty() || !recheck.returning.is_empty() {
            self.recheck = Some(recheck);
        }
    }

    /// Checks what a connection was allowed by `rules`, where they are not those of its app any more.
    pub(crate) fn recheck_if_changed(&mut self, slot: u32, rules: Option<&Arc<AppRules>>) {
        let session = self.connection(slot).and_then(|connection| connection.session.as_ref());
        let Some(app) = session.map(|session| session.app) else { return };
        if !self.delivery.rules().are_current(app, rules) {
            self.recheck_now(slot);
        }
    }

    /// Checks one connection. If its session kept too little to decide, it has to log in again.
    pub(crate) fn recheck_now(&mut self, slot: u32) {
        if !self.recheck_session(slot) {
            self.begin_close(slot, CloseReason::RulesChanged);
        }
    }

    /// False if the session kept too little to decide.
    fn recheck_session(&mut self, slot: u32) -> bool {
        let Some(connection) = self.connections.get(slot as usize) else { return true };
        let Some(session) = connection.session.clone() else { return true };
        let Some(rules) = self.delivery.rules().of(session.app) else { return true };
        if !knows(&session, rules.rules.needs()) {
            return false;
        }
        let holder = holder_of(&session);
        let check = |name: &str| match Delivery::is_ruled(name) {
            true => self.delivery.check_topic(&rules, &holder, Action::Subscribe, name),
            false => Verdict::Allowed,
        };
        let mut ended: Vec<(Topic, Reason)> = Vec::new();
        let mut durable = Vec::new();
        // An API key may have made other durable subscriptions.
        let of_client: HashSet<&str> = self.mqtt_filters(slot).map(|filter| filter.as_str()).collect();
        for subscription in &connection.topics {
            let Some(topic) = self.topics.entry(subscription.index()).map(|entry| &entry.topic) else {
                continue;
            };
            let verdict = match subscription.is_own() || of_client.contains(topic.as_str()) {
                true => check(topic.as_str()),
                false if !Delivery::is_ruled(topic.as_str()) => Verdict::Allowed,
                false => self.delivery.check_durable(&rules, &holder, topic),
            };
            if let Verdict::Denied(reason) = verdict {
                durable.extend((!subscription.is_own()).then(|| topic.clone()));
                ended.push((topic.clone(), reason));
            }
        }
        let is_lost = |filter: &TopicFilter| matches!(check(filter.plain()), Verdict::Denied(_));
        let has_lost_filter =
            self.mqtt_filters(slot).any(|filter| filter.topic().is_none() && is_lost(filter));
        if ended.is_empty() && !has_lost_filter {
            return true;
        }
        let protocol = connection.protocol;
        let keys: Vec<_> =
            ended.iter().map(|(topic, _)| self.shared.registry.topic_key(session.app, topic)).collect();
        self.unsubscribe(slot, &keys);
        if !durable.is_empty() {
            let delivery = self.delivery.clone();
            self.delivery.work(async move {
                end_durable(&delivery, &holder, &durable).await;
            });
        }
        match protocol {
            Protocol::Native | Protocol::SocketIo => {
                for (topic, reason) in ended {
                    self.tell_topic(slot, "topic_revoked", &topic, reason.code(), reason.text());
                }
            }
            Protocol::Mqtt | Protocol::Xmpp => self.begin_close(slot, CloseReason::Unauthorized),
            Protocol::Http | Protocol::Echo => {}
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The places up to the end of all laps, or `most` of them.
    fn places(recheck: &mut Recheck, places: usize, most: usize) -> Vec<usize> {
        std::iter::from_fn(|| recheck.next_place(places)).take(most).collect()
    }

    #[test]
    fn a_lap_passes_each_place_once() {
        let mut recheck = Recheck::new(0);
        recheck.begin(AppId(1));
        assert_eq!(places(&mut recheck, 4, 9), [0, 1, 2, 3]);
        assert!(!recheck.has_work());
        recheck.begin(AppId(1));
        assert_eq!(places(&mut recheck, 0, 9), [0; 0]);
    }

    #[test]
    fn an_app_that_changes_again_and_again_delays_no_other_and_reaches_the_last_place() {
        let mut recheck = Recheck::new(0);
        recheck.begin(AppId(1));
        let mut passed = Vec::new();
        while recheck.laps.contains_key(&AppId(1)) {
            recheck.begin(AppId(2));
            passed.extend(places(&mut recheck, 5, 1));
            assert!(passed.len() <= 6, "{passed:?}");
        }
        assert_eq!(passed[..5], [0, 1, 2, 3, 4]);
        let rest = places(&mut recheck, 5, 9);
        assert!(rest.len() >= 4 && !recheck.has_work(), "{rest:?}");
    }

    #[test]
    fn apps_take_turns_to_log_in_again() {
        let mut returning = Returning::default();
        for slot in 0..4 {
            returning.push(AppId(1), (slot, 7));
        }
        returning.push(AppId(2), (10, 7));
        returning.push(AppId(3), (20, 7));
        returning.forget(AppId(3));
        let slots: Vec<u32> = std::iter::from_fn(|| returning.pop()).map(|(slot, _)| slot).collect();
        assert_eq!(slots, [0, 10, 1, 2, 3]);
        assert!(returning.is_empty() && returning.sessions.is_empty());
    }

    #[test]
    fn a_lap_goes_around_from_where_it_began_while_places_come_and_go() {
        let mut recheck = Recheck::new(0);
        recheck.begin(AppId(1));
        assert_eq!(places(&mut recheck, 4, 3), [0, 1, 2]);
        recheck.begin(AppId(2));
        assert_eq!(places(&mut recheck, 6, 9), [3, 4, 5, 0, 1, 2]);
        recheck.begin(AppId(1));
        assert_eq!(places(&mut recheck, 1, 9), [0]);
    }
}
