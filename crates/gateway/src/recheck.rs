//! After a change of topic rules: what connections hear is checked again, some of them a turn, and subscriptions that
//! lost permission end.
//!
//! Native clients and Socket.IO go on and are told each topic with the reason. MQTT and XMPP have no word of the
//! server's that ends a subscription and that all clients know, so there the connection ends as not authorized, and the
//! log-in that follows has what is left. A session that kept too little of its token for the new rules logs in again.
//! What the new rules leave to a webhook stays until the next subscription or log-in: a change of rules must not become
//! a storm of questions.

use std::collections::HashSet;

use noroshi_delivery::rules::Verdict;
use noroshi_delivery::{Delivery, rules::Reason};
use noroshi_types::rule::Action;
use noroshi_types::{AppId, CloseReason, Topic};

use crate::connection::{Phase, Protocol};
use crate::permission::{end_durable, holder_of, knows};
use crate::shard::Shard;

/// Connections looked at in one turn: at a microsecond a topic some milliseconds at most.
const PER_TURN: usize = 128;

/// Connections of one shard that are checked again.
#[derive(Default)]
pub(crate) struct Recheck {
    apps: HashSet<AppId>,
    next_slot: usize,
}

impl Shard {
    /// Looks at the next connections whose app's rules changed.
    pub(crate) fn go_on_with_recheck(&mut self) {
        let changed = self.mailbox().take_rechecks();
        if !changed.is_empty() {
            // Those that were looked at have to be looked at by these rules too.
            let recheck = self.recheck.get_or_insert_default();
            recheck.apps.extend(changed);
            recheck.next_slot = 0;
        }
        let Some(recheck) = self.recheck.as_mut() else { return };
        let (begin, slots_end) = (recheck.next_slot, self.connections.capacity());
        let end = slots_end.min(begin + PER_TURN);
        recheck.next_slot = end;
        let apps = match end == slots_end {
            true => self.recheck.take().map(|recheck| recheck.apps).unwrap_or_default(),
            false => recheck.apps.clone(),
        };
        for slot in begin..end {
            let Some(connection) = self.connections.get(slot) else { continue };
            let is_concerned = connection.session.as_ref().is_some_and(|it| apps.contains(&it.app));
            if is_concerned && connection.phase == Phase::Open {
                let slot = slot as u32;
                self.guard(Some(slot), |shard| shard.recheck_session(slot));
            }
        }
    }

    fn recheck_session(&mut self, slot: u32) {
        let Some(connection) = self.connections.get(slot as usize) else { return };
        let Some(session) = connection.session.clone() else { return };
        let Some(rules) = self.delivery.rules().of(session.app) else { return };
        if !knows(&session, rules.rules.needs()) {
            return self.begin_close(slot, CloseReason::Drain);
        }
        let holder = holder_of(&session);
        let mut ended: Vec<(Topic, Reason)> = Vec::new();
        let mut durable = Vec::new();
        for subscription in &connection.topics {
            let Some(topic) = self.topics.entry(subscription.index()).map(|entry| &entry.topic) else {
                continue;
            };
            if !Delivery::is_ruled(topic.as_str()) {
                continue;
            }
            let verdict = match subscription.is_own() {
                true => self.delivery.check_topic(&rules, &holder, Action::Subscribe, topic.as_str()),
                false => self.delivery.check_durable(&rules, &holder, topic),
            };
            if let Verdict::Denied(reason) = verdict {
                durable.extend((!subscription.is_own()).then(|| topic.clone()));
                ended.push((topic.clone(), reason));
            }
        }
        let protocol = connection.protocol;
        let has_lost_filter = self.mqtt_filters(slot).iter().any(|filter| {
            Delivery::is_ruled(filter)
                && filter.contains(['+', '#'])
                && matches!(
                    self.delivery.check_topic(&rules, &holder, Action::Subscribe, filter),
                    Verdict::Denied(_)
                )
        });
        if ended.is_empty() && !has_lost_filter {
            return;
        }
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
    }
}
