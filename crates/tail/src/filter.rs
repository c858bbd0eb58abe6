//! What a tail shows: which events of its app. Every condition must hold.
//!
//! An event that does not tell what a condition asks for does not match: a connection has no topic, and the acceptance of a
//! notification to a topic names no user.

use std::collections::HashSet;

use noroshi_events::event::Named;
use noroshi_events::{Event, Kind, Record, Subject};
use noroshi_types::{AppId, CampaignId, DeviceId, DeviceNum, NotificationId, Outcome, Topic, UserId};

use crate::kinds::Kinds;

/// Devices of a user that a tail knows: more than people have.
pub const DEVICES_MAX: usize = 1_000;
/// Devices that an event lists.
pub(crate) const LISTED_MAX: usize = 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    pub app: AppId,
    pub kinds: Kinds,
    pub user: Option<UserId>,
    pub device: Option<DeviceId>,
    pub topic: Option<Topic>,
    pub notification: Option<NotificationId>,
    pub campaign: Option<CampaignId>,
    /// Whether rejected log-ins show the network of the client's address.
    pub shows_networks: bool,
}

impl Filter {
    /// All events of an app.
    pub fn of(app: AppId) -> Self {
        Self {
            app,
            kinds: Kinds::all(),
            user: None,
            device: None,
            topic: None,
            notification: None,
            campaign: None,
            shows_networks: false,
        }
    }

    /// Whether it needs to know the [`Detail`] of notifications.
    pub(crate) fn needs_details(&self) -> bool {
        self.topic.is_some() || self.campaign.is_some()
    }

    /// Whether it asks for some devices only.
    pub(crate) fn is_of_devices(&self) -> bool {
        self.user.is_some() || self.device.is_some()
    }
}

/// What an event of a notification does not tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Detail {
    pub(crate) topic: Option<Topic>,
    pub(crate) campaign: Option<CampaignId>,
}

/// Whether a tail shows an event.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Selected {
    No,
    /// That depends on the [`Detail`] of this notification, which is not known yet.
    Unknown(NotificationId),
    /// With these devices, the first [`LISTED_MAX`], of so many.
    Yes(Vec<DeviceNum>, u64),
}

/// A filter, and the numbers of the devices that it asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Selector {
    pub(crate) filter: Filter,
    /// Empty unless [`Filter::is_of_devices`]. At most [`DEVICES_MAX`].
    pub(crate) devices: HashSet<DeviceNum>,
}

/// The kinds of a record. `Acked` records are split by notification before (`state`).
pub(crate) fn kinds_of(record: &Record) -> [Option<Kind>; 2] {
    let one = |kind| [Some(kind), None];
    match &record.event {
        Event::Accepted(_) => one(Kind::Accepted),
        Event::Routed { .. } => one(Kind::Routed),
        Event::Outcome { outcome, .. } => one(Kind::of_outcome(*outcome)),
        Event::Acked { .. } => one(Kind::Acked),
        Event::PushSent { .. } => one(Kind::PushSent),
        Event::PushAnswered { outcome, .. } => {
            let is_invalid = matches!(outcome, Outcome::PushTokenGone | Outcome::PushTokenSuspect);
            [Some(Kind::of_outcome(*outcome)), is_invalid.then_some(Kind::TokenInvalidated)]
        }
        Event::Registered(_) => one(Kind::Registered),
        Event::Connected(_) => one(Kind::Connected),
        Event::Closed { .. } => one(Kind::Closed),
        Event::Campaign { .. } => one(Kind::Campaign),
        Event::Exposed(_) => one(Kind::Exposed),
        Event::Rejected(_) => one(Kind::Rejected),
        Event::Started { .. } | Event::Lost { .. } | Event::Configured(_) | Event::Audited(_) => [None, None],
    }
}

impl Selector {
    pub(crate) fn new(filter: Filter) -> Self {
        Self { filter, devices: HashSet::new() }
    }

    /// Whether the event is shown, if it belongs to the app and its kind is wanted.
    pub(crate) fn select(&self, record: &Record, detail: Option<&Detail>) -> Selected {
        let Filter { notification, campaign, topic, .. } = &self.filter;
        let subject = subject_of(&record.event);
        if notification.is_some() && *notification != id_of(subject) {
            return Selected::No;
        }
        let Some((devices, count)) = self.devices(&record.event) else { return Selected::No };
        for answer in [
            campaign.map(|wanted| is_of_campaign(&record.event, subject, wanted, detail)),
            topic.as_ref().map(|wanted| is_of_topic(&record.event, subject, wanted, detail)),
        ] {
            match answer {
                Some(Err(unknown)) => return Selected::Unknown(unknown),
                Some(Ok(false)) => return Selected::No,
                Some(Ok(true)) | None => {}
            }
        }
        Selected::Yes(devices, count)
    }

    /// The devices of the event that are wanted. `None`: none is.
    fn devices(&self, event: &Event) -> Option<(Vec<DeviceNum>, u64)> {
        let listed = |devices: &[DeviceNum], count: u64| match self.filter.is_of_devices() {
            false => Some((devices.iter().take(LISTED_MAX).copied().collect(), count)),
            true => {
                let (mut wanted, mut count) = (Vec::new(), 0);
                for device in devices.iter().filter(|device| self.devices.contains(device)) {
                    count += 1;
                    if wanted.len() < LISTED_MAX {
                        wanted.push(*device);
                    }
                }
                (count > 0).then_some((wanted, count))
            }
        };
        match event {
            Event::Outcome { devices, count, .. } => listed(devices, *count),
            Event::PushSent { devices, .. } | Event::PushAnswered { devices, .. } => {
                listed(devices, devices.len() as u64)
            }
            Event::Closed { device, .. } => listed(std::slice::from_ref(device), 1),
            Event::Registered(it) => self.is_named(&it.device_id, it.user.as_ref()),
            Event::Connected(it) => self.is_named(&it.device_id, it.user.as_ref()),
            Event::Exposed(it) => self.is_named(&it.device_id, it.user.as_ref()),
            Event::Rejected(it) => match (&it.device_id, self.filter.is_of_devices()) {
                (_, false) => Some((Vec::new(), 0)),
                (Some(device), true) => self.is_named(device, it.user.as_ref()),
                (None, true) => None,
            },
            Event::Accepted(accepted) => {
                let is_wanted = match (&accepted.named, &self.filter) {
                    (_, filter) if !filter.is_of_devices() => true,
                    (Some(Named::Users(users)), Filter { user: Some(user), device: None, .. }) => {
                        users.contains(user)
                    }
                    (Some(Named::Devices(devices)), Filter { device: Some(device), user: None, .. }) => {
                        devices.contains(device)
                    }
                    _ => false,
                };
                is_wanted.then_some((Vec::new(), 0))
            }
            _ if self.filter.is_of_devices() => None,
            _ => Some((Vec::new(), 0)),
        }
    }

    fn is_named(&self, device: &DeviceId, user: Option<&UserId>) -> Option<(Vec<DeviceNum>, u64)> {
        let is_device = self.filter.device.as_ref().is_none_or(|wanted| wanted == device);
        let is_user = self.filter.user.as_ref().is_none_or(|wanted| Some(wanted) == user);
        (is_device && is_user).then_some((Vec::new(), 0))
    }

    /// Whether it asks for a device with this id and user. `None`: it asks for no devices in particular.
    pub(crate) fn wants(&self, id: &DeviceId, user: Option<&UserId>) -> Option<bool> {
        self.filter.is_of_devices().then(|| self.is_named(id, user).is_some())
    }
}

pub(crate) fn subject_of(event: &Event) -> Option<Subject> {
    match event {
        Event::Accepted(accepted) => Some(Subject::Notification(accepted.id)),
        Event::Routed { id, .. } => Some(Subject::Notification(*id)),
        Event::Outcome { of, .. } | Event::PushSent { of, .. } | Event::PushAnswered { of, .. } => Some(*of),
        _ => None,
    }
}

fn id_of(subject: Option<Subject>) -> Option<NotificationId> {
    match subject {
        Some(Subject::Notification(id)) => Some(id),
        _ => None,
    }
}

/// The notification whose [`Detail`] is not known.
type Unknown = NotificationId;

fn is_of_campaign(
    event: &Event,
    subject: Option<Subject>,
    wanted: CampaignId,
    detail: Option<&Detail>,
) -> Result<bool, Unknown> {
    match (event, subject) {
        (Event::Accepted(accepted), _) => Ok(accepted.campaign == Some(wanted)),
        (Event::Campaign { campaign, .. }, _) => Ok(*campaign == wanted),
        (_, Some(Subject::Campaign(campaign))) => Ok(campaign == wanted),
        (_, Some(Subject::Notification(id))) => Ok(detail.ok_or(id)?.campaign == Some(wanted)),
        _ => Ok(false),
    }
}

fn is_of_topic(
    event: &Event,
    subject: Option<Subject>,
    wanted: &Topic,
    detail: Option<&Detail>,
) -> Result<bool, Unknown> {
    match (event, subject) {
        (Event::Accepted(accepted), _) => Ok(accepted.topic.as_ref() == Some(wanted)),
        (_, Some(Subject::Notification(id))) => Ok(detail.ok_or(id)?.topic.as_ref() == Some(wanted)),
        _ => Ok(false),
    }
}

#[cfg(test)]
mod tests;
