//! What becomes of notifications, told once: each call here counts it in the metrics and tells it to the event log, so that
//! the two never disagree. What the store records for the trace of a device is written by the same callers.
//!
//! Nothing here waits: without an event log telling is one look at a cell.

use noroshi_events::event::{Accepted, Configured, Registered, Routed};
use noroshi_events::{Event, Events, Subject};
use noroshi_store::{Ack, Acked, CampaignState, Departed, DepartedPart, Device, OutcomePart, PushPart, Work};
use noroshi_types::trace::TraceId;
use noroshi_types::{
    AppId, CampaignId, DeviceNum, NotificationId, Outcome, PushMode, PushService, Request, Timestamp,
};

use crate::delivery::Delivery;
use crate::metrics::target_name;

/// Without a log.
static OFF: Events = Events::off();

/// What push work is about.
pub(crate) fn subject(work: Work) -> Subject {
    match work {
        Work::Notification(id) => Subject::Notification(id),
        Work::Campaign(id) => Subject::Campaign(id),
    }
}

impl Delivery {
    /// Connects the event log. A second call is ignored.
    pub fn attach_events(&self, events: Events) {
        let _ = self.events.set(events);
    }

    /// Where events are told; nothing is behind it where there is no log.
    pub fn events(&self) -> &Events {
        self.events.get().unwrap_or(&OFF)
    }

    /// Someone configured something; never told with a secret.
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

    /// A device was made, or registered again.
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

    pub(crate) fn became_parts(&self, parts: &[OutcomePart]) {
        self.metrics.count_outcomes(parts);
        if !self.events().is_on() {
            return;
        }
        for OutcomePart { id, outcome, at, devices, count } in parts {
            self.tell_outcome(Subject::Notification(*id), *outcome, *at, (devices, *count));
        }
    }

    fn tell_outcome(
        &self,
        of: Subject,
        outcome: Outcome,
        at: Timestamp,
        (devices, count): (&[DeviceNum], u64),
    ) {
        self.events().emit(at, || Event::Outcome { of, outcome, devices: devices.into(), count });
    }

    /// What left inboxes and the push queue.
    pub(crate) fn became_departed(&self, departed: &Departed) {
        for DepartedPart { of, outcome, at, devices, count } in &departed.parts {
            self.metrics.outcome(*outcome).inc_by(*count);
            self.tell_outcome(subject(*of), *outcome, *at, (devices, *count));
        }
        for (outcome, count) in &departed.beyond {
            self.metrics.outcome(*outcome).inc_by(*count);
            self.tell_outcome(Subject::Several, *outcome, self.clock.now(), (&[], *count));
        }
    }

    /// What became of recipients of push work; `service` where one was asked.
    pub(crate) fn became_pushed(
        &self,
        of: Subject,
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
            Some(service) => Event::PushAnswered { of, service, outcome, reason, devices: devices(), trace },
            None => Event::Outcome { of, outcome, devices: devices(), count },
        };
        if count > 0 {
            self.events().emit(self.clock.now(), event);
        }
    }

    pub(crate) fn push_sent(
        &self,
        of: Subject,
        service: PushService,
        devices: impl Iterator<Item = DeviceNum>,
        trace: Option<TraceId>,
    ) {
        let event = || Event::PushSent { of, service, devices: devices.collect(), trace };
        self.events().emit(self.clock.now(), event);
    }

    /// What the store knew of the confirmations is counted; told is who confirmed that.
    pub(crate) fn became_acked(&self, acks: &[Ack], acked: &[Acked]) {
        let count = acked.iter().map(|acked| acked.count).sum();
        self.metrics.outcome(Outcome::Acked).inc_by(count);
        if !self.events().is_on() || count == 0 {
            return;
        }
        let known: std::collections::HashSet<NotificationId> =
            acked.iter().filter(|acked| acked.count > 0).map(|acked| acked.id).collect();
        let each = acks.iter().flat_map(|ack| ack.ids.iter().map(|id| (*id, ack.device)));
        let mut told: Vec<_> = each.filter(|(id, _)| known.contains(id)).collect();
        told.sort_unstable();
        self.events().emit(self.clock.now(), || Event::Acked(told.into()));
    }

    /// A device's user opened these for the first time.
    pub(crate) fn became_opened(&self, device: DeviceNum, opened: &[NotificationId], at: Timestamp) {
        self.metrics.outcome(Outcome::Opened).inc_by(opened.len() as u64);
        for id in opened {
            let event = || Event::Outcome {
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
                when: request.when.as_str(),
                push: push_name(request.push.mode),
                urgency: request.urgency.as_str(),
                kept: accepted.kept(),
                trace: request.trace.map(|context| context.trace),
            }))
        };
        // Not with the time of the request: first it was accepted.
        let now = self.clock.now();
        self.events().emit(now, event);
        self.metrics.count_outcomes(&accepted.parts);
        for OutcomePart { outcome, devices, count, .. } in &accepted.parts {
            self.tell_outcome(Subject::Notification(id), *outcome, now, (devices, *count));
        }
        self.became_departed(&accepted.departed);
    }

    pub(crate) fn routed(&self, id: NotificationId, to: Routed) {
        self.events().emit(self.clock.now(), || Event::Routed { id, to });
    }

    /// Campaigns of which the last batch is gone: whoever takes it away tells that.
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

pub(crate) fn push_name(mode: PushMode) -> &'static str {
    match mode {
        PushMode::Never => "never",
        PushMode::Always => "always",
        PushMode::Fallback => "fallback",
    }
}
