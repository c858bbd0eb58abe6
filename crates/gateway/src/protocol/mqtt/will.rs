//! Wills: published when a connection ends without DISCONNECT, at once or after a delay (§3.1.2.5).

use std::sync::Arc;

use noroshi_delivery::Delivery;
use noroshi_delivery::rules::Verdict;
use noroshi_protocol::mqtt::Will;
use noroshi_types::rule::Action;
use noroshi_types::{Timestamp, Topic};

use super::final_write::FinalWrite;
use super::session::Due;
use super::task::{self, Published};
use crate::protocol::services::Services;
use crate::session::registry::{Holder, Registry, Session};
use crate::session::topic_rules::TopicRules;

/// When a will is published: as its connection ends, or later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    Now,
    Late,
}

impl super::Service {
    /// Publishes wills that are due, and ends expired sessions.
    pub(crate) fn handle_due(&self, services: &Arc<Services>, delivery: &Arc<Delivery>, now: Timestamp) {
        for due in self.sessions.take_due(now) {
            match due {
                Due::Will(session, will) => publish(services, delivery, &session, *will, When::Late),
                Due::Ended(session, topics, write) => {
                    forget_session(services, delivery, session, topics, write);
                }
            }
        }
    }
}

fn forget_session(
    services: &Arc<Services>,
    delivery: &Arc<Delivery>,
    session: Arc<Session>,
    topics: Vec<Topic>,
    write: FinalWrite,
) {
    let (services, of_job) = (services.clone(), delivery.clone());
    let present = services.registry.device(session.device_key);
    // If the device is back, the session belongs to its present connection.
    if present.is_none_or(|present| present.address == session.address) {
        delivery.work(async move {
            if still_holds(&of_job, &services.registry, &session).await
                && !is_elsewhere(&of_job, &session).await
            {
                task::forget(&of_job, &session, &topics, None).await;
            }
            drop(write);
        });
    }
}

/// Publishes a will if its device still has the same holder and may publish to the topic. After a delay the device may
/// be connected to another node, which has the session then: the will is dropped ([MQTT-3.1.3-9]).
pub(super) fn publish(
    services: &Arc<Services>,
    delivery: &Arc<Delivery>,
    session: &Arc<Session>,
    will: Will,
    when: When,
) {
    let is_filtered = services.may_publish(session.app, &will.topic);
    let (verdict, ask) = TopicRules(delivery).may_leave_will(session, &will.topic, is_filtered);
    if matches!(verdict, Verdict::Denied(_)) {
        return count_withheld(services, true);
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
    let (of_job, services, session) = (delivery.clone(), services.clone(), session.clone());
    delivery.work(async move {
        let is_back = when == When::Late && is_elsewhere(&of_job, &session).await;
        let mut is_withheld = is_back || !still_holds(&of_job, &services.registry, &session).await;
        if let Some((rules, holder)) = ask.filter(|_| !is_withheld && verdict == Verdict::Ask) {
            let asked = of_job.rules.ask(&rules, &holder, Action::Publish, name.as_str(), "mqtt").await;
            is_withheld = asked != Verdict::Allowed;
        }
        if is_withheld {
            return count_withheld(&services, true);
        }
        if let Err(refused) = task::publish(&of_job, session.app, request, clears).await {
            tracing::debug!(?refused, "a will was not published");
        }
    });
}

pub(super) fn count_withheld(services: &Services, has_will: bool) {
    services.metrics.mqtt_wills_withheld.inc_by(has_will.into());
}

/// Whether the device exists, has the same user, and none of its tokens was revoked since the session began. An error
/// of the store counts as no.
async fn still_holds(delivery: &Delivery, registry: &Registry, session: &Session) -> bool {
    let device = match delivery.store().device(session.app, &session.device).await {
        Ok(device) => device,
        Err(error) => {
            tracing::warn!(%error, "dropping what a session left: could not read its device");
            return false;
        }
    };
    device.is_some_and(|device| {
        let user_key = device.user.map_or(0, |user| registry.user_key(session.app, &user));
        session.holder() == Holder { num: device.num, user_key, token_version: device.token_version }
    })
}

async fn is_elsewhere(delivery: &Delivery, session: &Session) -> bool {
    delivery.sessions.elsewhere(session.app, &session.device).await.is_some()
}
