//! Outcomes of notifications: each call counts it in the metrics and emits it to the event log, so that the two
//! never disagree.
//!
//! The callers record the same outcomes for the trace of a device, in the store. Outcomes of a deleted device, or of
//! one that changed its user, are only in the trace.
//!
//! Nothing here waits. While nothing reads events, emitting costs one look at a cell and one relaxed load.

use std::sync::{Arc, OnceLock};

use noroshi_events::event::{Accepted, Audited, Configured, Named, Registered, Routed};
use noroshi_events::{Event, Events, Subject};
use noroshi_store::{
    Ack, Acked, AuditedBy, CampaignState, Device, OutcomePart, PushPart, RemovedMessages, RemovedPart, Store,
    Work,
};
use noroshi_telemetry::{Labels, Registry};
use noroshi_types::trace::TraceId;
use noroshi_types::{
    AppId, CampaignId, DeviceNum, NotificationId, Outcome, PushMode, PushService, Request, Target, Timestamp,
};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use crate::clock::Clock;

/// Used while no event log is attached.
static OFF: Events = Events::off();

#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    /// By target and `when`.
    accepted: Family<Labels<2>, Counter>,
    outcomes: Family<Labels<1>, Counter>,
    /// The counters of `outcomes` in the order of [`Outcome::ALL`]: a fan-out looks up no map.
    by_outcome: Vec<Counter>,
}

impl Default for Metrics {
    fn default() -> Self {
        let outcomes = Family::<Labels<1>, Counter>::default();
        let counter = |outcome: &Outcome| outcomes.get_or_create_owned(&[("outcome", outcome.as_str())]);
        let by_outcome = Outcome::ALL.iter().map(counter).collect();
        Self { accepted: Family::default(), outcomes, by_outcome }
    }
}

impl Metrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register("notifications_accepted", "Notifications accepted", self.accepted.clone());
        registry.register("outcomes", "Devices, by the outcome of a notification", self.outcomes.clone());
    }

    fn count_accepted(&self, request: &Request) {
        let labels = [("target", target_name(&request.target)), ("when", request.when.as_str())];
        self.accepted.get_or_create(&labels).inc();
    }

    fn count(&self, parts: &[OutcomePart]) {
        for part in parts {
            self.outcome(part.outcome).inc_by(part.count);
        }
    }

    fn outcome(&self, outcome: Outcome) -> &Counter {
        // Codes run from 1 without a gap, in the order of ALL.
        &self.by_outcome[outcome as usize - 1]
    }
}

/// The subject that events of this push work name.
pub(crate) fn subject(work: Work) -> Subject {
    match work {
        Work::Notification(id) => Subject::Notification(id),
        Work::Campaign(id) => Subject::Campaign(id),
    }
}

/// Counts outcomes and emits them to the event log.
pub struct Outcomes {
    store: Arc<dyn Store>,
    clock: Clock,
    metrics: Metrics,
    /// Set once, before anything runs, where there is an event log.
    events: OnceLock<Events>,
}

impl Outcomes {
    pub(crate) fn new(store: Arc<dyn Store>, clock: Clock, metrics: Metrics) -> Self {
        Self { store, clock, metrics, events: OnceLock::new() }
    }

    /// Attaches the event log. A second call is ignored.
    pub fn attach_events(&self, events: Events) {
        let _ = self.events.set(events);
    }

    /// Drops every event while no log is attached.
    pub fn events(&self) -> &Events {
        self.events.get().unwrap_or(&OFF)
    }

    /// A change of the configuration; the event never holds a secret.
    pub fn configured(
        &self,
        app: Option<AppId>,
        (what, change): (&'static str, &'static str),
        name: Option<&str>,
    ) {
        let name = || name.map(Box::from);
        let event = || Event::Configured(Box::new(Configured { app, what, change, name: name() }));
        self.events().emit(self.clock.now(), event);
    }

    /// An entry of the audit log, which never holds a secret.
    pub fn audited(&self, entry: &noroshi_store::Audited) {
        let event = || {
            let (by, who) = match &entry.by {
                AuditedBy::Person { email, .. } => ("person", Some(email.as_str())),
                AuditedBy::Key(name) => ("key", Some(name.as_str())),
                AuditedBy::OperatorToken => ("operator", None),
                AuditedBy::Node => ("node", None),
            };
            Event::Audited(Box::new(Audited {
                app: entry.app,
                by,
                who: who.map(Box::from),
                action: entry.action.as_str().into(),
                target: entry.target.as_str().into(),
                before: entry.before.as_deref().map(Box::from),
                after: entry.after.as_deref().map(Box::from),
                address: entry.address.as_str().into(),
                request: entry.request.as_str().into(),
            }))
        };
        self.events().emit(self.clock.now(), event);
    }

    /// A device was created, or registered again.
    pub fn registered(&self, device: &Device) {
        let event = || {
            Event::Registered(Box::new(Registered {
                app: device.app,
                device: device.num,
                device_id: device.id.clone(),
                user: device.user.clone(),
                service: device.push_token.as_ref().map(|token| token.service),
            }))
        };
        self.events().emit(self.clock.now(), event);
    }

    /// Outcomes that shards report: counted, emitted, and recorded for the trace.
    pub fn record(&self, parts: Vec<OutcomePart>) {
        self.metrics.count(&parts);
        if self.events().is_on() {
            for OutcomePart { app, id, outcome, at, devices, count } in &parts {
                self.emit((*app, Subject::Notification(*id)), *outcome, *at, (devices, *count));
            }
        }
        self.store.record(parts);
    }

    fn emit(
        &self,
        (app, of): (AppId, Subject),
        outcome: Outcome,
        at: Timestamp,
        (devices, count): (&[DeviceNum], u64),
    ) {
        self.events().emit(at, || Event::Outcome { app, of, outcome, devices: devices.into(), count });
    }

    /// Messages that left inboxes and the push queue.
    pub(crate) fn departed(&self, departed: &RemovedMessages) {
        for RemovedPart { app, of, outcome, at, devices, count } in &departed.parts {
            self.metrics.outcome(*outcome).inc_by(*count);
            self.emit((*app, subject(*of)), *outcome, *at, (devices, *count));
        }
        for ((app, outcome), count) in &departed.beyond {
            self.metrics.outcome(*outcome).inc_by(*count);
            self.emit((*app, Subject::Several), *outcome, self.clock.now(), (&[], *count));
        }
    }

    /// Outcomes of push work. `service` is the push service that answered, if one did.
    pub(crate) fn pushed(
        &self,
        (app, of): (AppId, Subject),
        service: Option<PushService>,
        part: &PushPart,
        trace: Option<TraceId>,
    ) {
        let count = part.devices.len() as u64;
        self.metrics.outcome(part.outcome).inc_by(count);
        let (outcome, reason) = (part.outcome, part.reason);
        let devices = || part.devices.as_slice().into();
        let answered = matches!(
            outcome,
            Outcome::Pushed | Outcome::PushRefused | Outcome::PushTokenGone | Outcome::PushTokenSuspect
        );
        let event = || match service.filter(|_| answered) {
            Some(service) => {
                let (devices, trace) = (devices(), trace.into());
                Event::PushAnswered { app, of, service, outcome, reason, devices, trace }
            }
            None => Event::Outcome { app, of, outcome, devices: devices(), count },
        };
        if count > 0 {
            self.events().emit(self.clock.now(), event);
        }
    }

    /// Pushes of a Live Activity that a push service accepted. They are only counted: an activity has too many of them
    /// for the event log.
    pub(crate) fn activity_pushed(&self, count: u64) {
        self.metrics.outcome(Outcome::Pushed).inc_by(count);
    }

    pub(crate) fn push_sent(
        &self,
        (app, of): (AppId, Subject),
        service: PushService,
        devices: impl Iterator<Item = DeviceNum>,
        trace: Option<TraceId>,
    ) {
        let event = || Event::PushSent { app, of, service, devices: devices.collect(), trace: trace.into() };
        self.events().emit(self.clock.now(), event);
    }

    /// Counts the acknowledgements of notifications that the store knew, and emits who acknowledged them: an event for each
    /// app of these devices.
    pub(crate) fn acked(&self, acks: &[(AppId, Ack)], acked: &[Acked]) {
        let count = acked.iter().map(|acked| acked.count).sum();
        self.metrics.outcome(Outcome::Acked).inc_by(count);
        if !self.events().is_on() || count == 0 {
            return;
        }
        let known: std::collections::HashSet<NotificationId> =
            acked.iter().filter(|acked| acked.count > 0).map(|acked| acked.id).collect();
        let each = acks.iter().flat_map(|(app, ack)| ack.ids.iter().map(|id| (*app, *id, ack.device)));
        let mut acknowledged: Vec<_> = each.filter(|(_, id, _)| known.contains(id)).collect();
        acknowledged.sort_unstable();
        let now = self.clock.now();
        for of_app in acknowledged.chunk_by(|a, b| a.0 == b.0) {
            let acked = || of_app.iter().map(|(_, id, device)| (*id, *device)).collect();
            self.events().emit(now, || Event::Acked { app: of_app[0].0, acked: acked() });
        }
    }

    /// The user of an app's device opened these for the first time.
    pub(crate) fn opened(&self, app: AppId, device: DeviceNum, opened: &[NotificationId], at: Timestamp) {
        self.metrics.outcome(Outcome::Opened).inc_by(opened.len() as u64);
        for id in opened {
            let event = || Event::Outcome {
                app,
                of: Subject::Notification(*id),
                outcome: Outcome::Opened,
                devices: Box::new([device]),
                count: 1,
            };
            self.events().emit(at, event);
        }
    }

    /// A notification was accepted.
    pub(crate) fn accepted(
        &self,
        request: &Request,
        (app, campaign): (AppId, Option<CampaignId>),
        accepted: &noroshi_store::Accepted,
    ) {
        let id = accepted.message.id;
        self.metrics.count_accepted(request);
        let event = || {
            Event::Accepted(Box::new(Accepted {
                app,
                id,
                campaign,
                target: target_name(&request.target),
                targets: accepted.targets,
                topic: match &request.target {
                    Target::Topic(topic) => Some(topic.clone()),
                    _ => None,
                },
                named: named(&request.target, self.events().recipients_wanted()),
                when: request.when.as_str(),
                push: push_name(request.push.mode),
                urgency: request.urgency.as_str(),
                kept: accepted.kept(),
                trace: request.trace.map(|context| context.trace),
            }))
        };
        // One time for all events, so that the acceptance sorts first.
        let now = self.clock.now();
        self.events().emit(now, event);
        self.metrics.count(&accepted.parts);
        for OutcomePart { outcome, devices, count, .. } in &accepted.parts {
            self.emit((app, Subject::Notification(id)), *outcome, now, (devices, *count));
        }
        self.departed(&accepted.departed);
    }

    pub(crate) fn routed(&self, app: AppId, id: NotificationId, to: Routed) {
        self.events().emit(self.clock.now(), || Event::Routed { app, id, to });
    }

    /// Campaigns whose last batch is finished. The caller that removed the batch reports it.
    pub(crate) fn campaigns_done(&self, done: &[(AppId, CampaignId)]) {
        for (app, campaign) in done {
            tracing::info!(%campaign, "a campaign is done");
            self.campaign_changed(*app, *campaign, CampaignState::Done.as_str());
        }
    }

    pub(crate) fn campaign_changed(&self, app: AppId, campaign: CampaignId, step: &'static str) {
        self.events().emit(self.clock.now(), || Event::Campaign { app, campaign, step });
    }
}

pub(crate) fn target_name(target: &Target) -> &'static str {
    match target {
        Target::Users(_) => "users",
        Target::Devices(_) => "devices",
        Target::Topic(_) => "topic",
        Target::Condition(_) => "condition",
        Target::Everyone => "everyone",
    }
}

/// The first `max` recipients that a request names.
fn named(target: &Target, max: usize) -> Option<Named> {
    match target {
        _ if max == 0 => None,
        Target::Users(users) => Some(Named::Users(users.iter().take(max).cloned().collect())),
        Target::Devices(devices) => Some(Named::Devices(devices.iter().take(max).cloned().collect())),
        Target::Topic(_) | Target::Condition(_) | Target::Everyone => None,
    }
}

pub(crate) fn push_name(mode: PushMode) -> &'static str {
    match mode {
        PushMode::Never => "never",
        PushMode::Always => "always",
        PushMode::Fallback => "fallback",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_has_its_own_counter() {
        let metrics = Metrics::default();
        for outcome in Outcome::ALL {
            metrics.outcome(outcome).inc_by(outcome as u64);
        }
        for outcome in Outcome::ALL {
            let labels = [("outcome", outcome.as_str())];
            assert_eq!(metrics.outcomes.get_or_create(&labels).get(), outcome as u64);
        }
    }
}
