//! What a session leaves when its connection ends.

use std::time::Duration;

use noroshi_protocol::mqtt::{Subscription as Held, TopicFilter};
use noroshi_store::Leave;
use noroshi_types::{CloseReason, Topic};

use super::session::{ParkedSession, Progress, owed};
use super::stored::StoredSession;
use super::task::Task;
use super::will::{self, When};
use super::{Mqtt, service};
use crate::protocol::context::Context;
use crate::protocol::effect::Effect;
use crate::wire::Protocol;

impl Mqtt {
    /// The connection has ended: parks the session, or ends it.
    pub(super) fn leave(mut self, cx: &mut Context<'_>) {
        let now = cx.now.wall;
        let since = cx.progress.sent_by_wildcard(self.since);
        let reason = cx.facts.close_reason;
        let catch_up = cx.progress.catch_up.as_mut().map(|catch_up| {
            let (unsent, ended) = (catch_up.unsent(), catch_up.ended().behind(since));
            (unsent, ended, (catch_up.gaps().begin(), catch_up.gaps().held()), catch_up.retained_due())
        });
        let (unsent, ended, (gap, gaps), due) = catch_up.unwrap_or_default();
        let Some(session) = cx.session.cloned() else { return };
        let wild: Vec<TopicFilter> = self.wildcard_filters();
        let remove = |filter: &TopicFilter| Effect::RemoveFilter(session.app, filter.as_str().into());
        cx.effects.extend(wild.iter().map(remove));
        let held = if self.has_shares { self.conversation.sent_exactly_once() } else { Vec::new() };
        let queue = self.queue.take().map(|queue| *queue);
        let is_busy = queue.as_ref().is_some_and(|queue| queue.is_busy());
        let lasted = self.expiry_s > 0;
        let subscriptions = self.subscriptions(&due);
        let parting = self.conversation.part();
        // The node asked the client to reconnect, so it will return.
        let comes_back = matches!(reason, Some(CloseReason::Drain | CloseReason::RulesChanged));
        let will = parting.will.filter(|_| !comes_back);
        let own = subscriptions.iter().filter(|held: &&Held| held.is_of_client);
        let topics: Vec<Topic> = own.filter_map(|held| held.filter.topic()).collect();
        // Topic rules took a subscription away: the session ends, so that the client subscribes again and learns of it.
        let goes_on = reason != Some(CloseReason::Unauthorized);
        let expiry_s = if goes_on { parting.session_expiry_s } else { 0 };
        let in_flight = parting.saved.iter().flat_map(|saved| saved.in_flight());
        let owed = owed(in_flight, &unsent);
        let sessions = &service(cx.services).sessions;
        let announce = |ends| {
            let (key, generation) = (session.device_key, session.address.generation);
            sessions.final_writes().announce(key, generation, ends)
        };
        // The one write at an end: neither filters with wildcards nor retained messages have a position.
        let last = match expiry_s {
            0 if lasted => Some(Task::Forget { topics: topics.clone(), write: Some(announce(true)) }),
            0 => None,
            // The running job may still write the session; this write replaces it.
            _ if wild.is_empty() && due.is_empty() && !is_busy && !owed.iter().any(|owed| owed.retained) => {
                None
            }
            _ => {
                // The store has no room for gaps: a node that does not remember them reads everything behind the first.
                let since = gap.map_or(since, |gap| gap.min(since));
                let session = Box::new(StoredSession { since, expiry_s, owed, subscriptions });
                Some(Task::Store { session, write: announce(false) })
            }
        };
        // No client resumes the session of a revoked or deleted device, and the store has already ended its part of it.
        // So the session is not stored.
        let revoked = reason == Some(CloseReason::Revoked);
        let present = cx.services.registry.device(session.device_key);
        let moved = present.is_some_and(|present| present.holder() != session.holder());
        let what = match expiry_s {
            seconds if seconds > 0 && !revoked && !moved => {
                Leave::Connection { ends_at: now.saturating_add(Duration::from_secs(seconds.into())) }
            }
            _ => Leave::Session,
        };
        let leave = self.has_shares.then_some(Task::LeaveShares { what, held });
        let last = last.filter(|_| !revoked && !moved);
        super::job::leave(cx, &session, queue, expiry_s > 0, leave.into_iter().chain(last));
        if revoked {
            return will::count_withheld(cx.services, will.is_some());
        }
        if expiry_s == 0 {
            if let Some(will) = will {
                will::publish(cx.services, cx.delivery, &session, *will, When::Now);
            }
            return;
        }
        let state = (parting.saved, Progress { since, unsent, ended, gaps, retained_due: due });
        park(cx, ParkedSession::new(session, state, will, now, expiry_s, topics));
    }
}

fn park(cx: &Context<'_>, mut parked: ParkedSession) {
    let (services, delivery) = (cx.services, cx.delivery);
    if parked.will_at <= cx.now.wall
        && let Some(will) = parked.take_will()
    {
        will::publish(services, delivery, &parked.session, *will, When::Now);
    }
    let evicted = service(services).sessions.put(parked);
    services.metrics.count_evicted(Protocol::Mqtt, evicted.len());
    for mut parked in evicted {
        // The will would be lost, so it is published before its delay has passed.
        if let Some(will) = parked.take_will() {
            will::publish(services, delivery, &parked.session, *will, When::Late);
        }
    }
    // The shard that handles parked sessions may sleep.
    cx.peers.network.wake_first_shard();
}
