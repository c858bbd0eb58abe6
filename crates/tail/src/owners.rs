//! To which app a notification, a device or a campaign belongs, as far as events told or the store was asked. Kept only
//! while a tail is open.
//!
//! Acknowledgements and openings come from devices, which may name any notification: such an event never assigns its
//! notification to the app of its device.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use noroshi_events::{Event, Subject};
use noroshi_store::{Found, Owned};
use noroshi_types::{AppId, CampaignId, DeviceId, DeviceNum, NotificationId, Outcome, UserId};

use crate::filter::{Detail, subject_of};

/// Each half of a map of recent things. A notification is about 100 bytes, a device 200: 2 × 16,384 × 300 bytes are 10 MB.
const RECENT: usize = 16_384;
/// Devices of an event that are asked for its app: one usually suffices.
const ASKED_DEVICES: usize = 2;

/// The newest entries: at least [`RECENT`], at most twice as many.
struct Recent<K, V> {
    new: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K: Hash + Eq, V> Recent<K, V> {
    fn get(&self, key: &K) -> Option<&V> {
        self.new.get(key).or_else(|| self.old.get(key))
    }

    fn insert(&mut self, key: K, value: V) {
        if self.new.len() >= RECENT {
            self.age();
        }
        self.new.insert(key, value);
    }

    /// Forgets entries from before the last call.
    fn age(&mut self) {
        self.old = std::mem::take(&mut self.new);
    }
}

impl<K, V> Default for Recent<K, V> {
    fn default() -> Self {
        Self { new: HashMap::new(), old: HashMap::new() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) app: AppId,
    pub(crate) id: DeviceId,
    pub(crate) user: Option<UserId>,
}

#[derive(Debug, Clone)]
struct Notification {
    app: AppId,
    /// `None`: only its app is known.
    detail: Option<Detail>,
}

/// Whether the name of a device is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Known<'a> {
    Named(&'a Arc<Name>),
    /// The store has no such device.
    Absent,
    Unknown,
}

impl<'a> Known<'a> {
    pub(crate) fn name(self) -> Option<&'a Arc<Name>> {
        match self {
            Self::Named(name) => Some(name),
            Self::Absent | Self::Unknown => None,
        }
    }
}

/// To which app an event belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    App(AppId),
    Unknown,
    /// That cannot be found out.
    Unassignable,
    /// It belongs to no app.
    NoApp,
}

#[derive(Default)]
pub(crate) struct Owners {
    notifications: Recent<NotificationId, Notification>,
    /// `None`: the store has no such device.
    devices: Recent<DeviceNum, Option<Arc<Name>>>,
    campaigns: Recent<CampaignId, AppId>,
}

impl Owners {
    /// Remembers what the event tells.
    pub(crate) fn learn(&mut self, event: &Event) {
        match event {
            Event::Accepted(accepted) => {
                let detail = Detail { topic: accepted.topic.clone(), campaign: accepted.campaign };
                let known = Notification { app: accepted.app, detail: Some(detail) };
                self.notifications.insert(accepted.id, known);
                if let Some(campaign) = accepted.campaign {
                    self.campaigns.insert(campaign, accepted.app);
                }
            }
            Event::Registered(it) => self.name(it.device, it.app, &it.device_id, it.user.as_ref()),
            Event::Connected(it) => self.name(it.device, it.app, &it.device_id, it.user.as_ref()),
            Event::Campaign { app, campaign, .. } => self.campaigns.insert(*campaign, *app),
            _ => {}
        }
    }

    pub(crate) fn name(&mut self, device: DeviceNum, app: AppId, id: &DeviceId, user: Option<&UserId>) {
        let known = self.devices.get(&device).and_then(Option::as_ref);
        let is_same = |name: &Arc<Name>| name.app == app && name.id == *id && name.user.as_ref() == user;
        if !known.is_some_and(is_same) {
            let name = Name { app, id: id.clone(), user: user.cloned() };
            self.devices.insert(device, Some(Arc::new(name)));
        }
    }

    /// What a read of the store found. `asked`: what it looked for.
    pub(crate) fn found(&mut self, asked: &Owned, found: Found) {
        for known in found.notifications {
            let detail = Some(Detail { topic: known.topic, campaign: known.campaign });
            self.notifications.insert(known.id, Notification { app: known.app, detail });
        }
        for known in found.devices {
            self.name(known.num, known.app, &known.id, known.user.as_ref());
        }
        for (campaign, app) in found.campaigns {
            self.campaigns.insert(campaign, app);
        }
        // A number is never given out again. A notification may be written later than its events.
        for device in &asked.devices {
            if self.devices.get(device).is_none() {
                self.devices.insert(*device, None);
            }
        }
    }

    pub(crate) fn device(&self, device: DeviceNum) -> Known<'_> {
        match self.devices.get(&device) {
            Some(Some(name)) => Known::Named(name),
            Some(None) => Known::Absent,
            None => Known::Unknown,
        }
    }

    pub(crate) fn detail(&self, event: &Event) -> Option<&Detail> {
        match subject_of(event)? {
            Subject::Notification(id) => self.notifications.get(&id)?.detail.as_ref(),
            Subject::Campaign(_) | Subject::Several => None,
        }
    }

    /// Learns the notification's app from its devices where that is safe.
    pub(crate) fn owner(&mut self, event: &Event) -> Owner {
        let known = |app: Option<AppId>| app.map_or(Owner::Unknown, Owner::App);
        match event {
            Event::Accepted(it) => return Owner::App(it.app),
            Event::Registered(it) => return Owner::App(it.app),
            Event::Connected(it) => return Owner::App(it.app),
            Event::Exposed(it) => return Owner::App(it.app),
            Event::Campaign { app, .. } => return Owner::App(*app),
            Event::Rejected(it) => return it.app.map_or(Owner::NoApp, Owner::App),
            Event::Closed { device, .. } => {
                return match self.device(*device) {
                    Known::Absent => Owner::Unassignable,
                    Known::Named(name) => Owner::App(name.app),
                    Known::Unknown => Owner::Unknown,
                };
            }
            _ => {}
        }
        match subject_of(event) {
            Some(Subject::Notification(id)) => {
                if let Some(known) = self.notifications.get(&id) {
                    return Owner::App(known.app);
                }
                let app = self.app_of_devices(event);
                if let Some(app) = app {
                    self.notifications.insert(id, Notification { app, detail: None });
                }
                known(app)
            }
            Some(Subject::Campaign(campaign)) => {
                known(self.campaigns.get(&campaign).copied().or_else(|| self.app_of_devices(event)))
            }
            Some(Subject::Several) => match (deciding(event), self.app_of_devices(event)) {
                (_, Some(app)) => Owner::App(app),
                (Some(devices), None)
                    if devices.iter().take(ASKED_DEVICES).any(|it| self.device(*it) == Known::Unknown) =>
                {
                    Owner::Unknown
                }
                (_, None) => Owner::Unassignable,
            },
            None => Owner::NoApp,
        }
    }

    /// Another node may have given a device to another user: the names of the devices are asked again after two calls.
    pub(crate) fn age(&mut self) {
        self.devices.age();
    }

    fn app_of_devices(&self, event: &Event) -> Option<AppId> {
        let devices = deciding(event)?;
        devices.iter().take(ASKED_DEVICES).find_map(|device| Some(self.device(*device).name()?.app))
    }

    /// Adds what the store must be asked: for the app of the event, or for its notification's detail if the app is known.
    pub(crate) fn ask(&self, event: &Event, asked: &mut Owned) {
        if let Event::Closed { device, .. } = event {
            return asked.devices.push(*device);
        }
        let unknown = |device: &&DeviceNum| self.devices.get(device).is_none();
        let is_assigned = match subject_of(event) {
            Some(Subject::Notification(id)) => self.notifications.get(&id).is_some(),
            Some(Subject::Campaign(campaign)) => self.campaigns.get(&campaign).is_some(),
            Some(Subject::Several) | None => false,
        };
        let devices: Vec<DeviceNum> = match deciding(event).filter(|_| !is_assigned) {
            Some(devices) => devices.iter().take(ASKED_DEVICES).filter(unknown).copied().collect(),
            None => Vec::new(),
        };
        match subject_of(event) {
            _ if !devices.is_empty() => asked.devices.extend(devices),
            Some(Subject::Notification(id)) => asked.notifications.push(id),
            Some(Subject::Campaign(campaign)) => asked.campaigns.push(campaign),
            Some(Subject::Several) | None => {}
        }
    }
}

/// The devices whose app is that of the event.
fn deciding(event: &Event) -> Option<&[DeviceNum]> {
    match event {
        Event::Outcome { outcome: Outcome::Acked | Outcome::Opened, .. } => None,
        Event::Outcome { devices, .. }
        | Event::PushSent { devices, .. }
        | Event::PushAnswered { devices, .. } => Some(devices),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const APP: AppId = AppId(1);
    const OTHER: AppId = AppId(2);

    fn id() -> NotificationId {
        NotificationId::from_bytes([7; 16])
    }

    fn outcome(outcome: Outcome, device: u64) -> Event {
        let devices = Box::new([DeviceNum(device)]);
        Event::Outcome { of: Subject::Notification(id()), outcome, devices, count: 1 }
    }

    fn device(owners: &mut Owners, device: u64, app: AppId) {
        owners.name(DeviceNum(device), app, &DeviceId::parse("d").expect("an id"), None);
    }

    #[test]
    fn a_device_that_acknowledges_a_notification_of_another_app_does_not_take_it() {
        let mut owners = Owners::default();
        device(&mut owners, 1, APP);
        device(&mut owners, 2, OTHER);
        for kind in [Outcome::Acked, Outcome::Opened] {
            assert_eq!(owners.owner(&outcome(kind, 2)), Owner::Unknown);
        }
        assert_eq!(owners.owner(&outcome(Outcome::Written, 1)), Owner::App(APP));
        for kind in [Outcome::Acked, Outcome::Opened] {
            assert_eq!(owners.owner(&outcome(kind, 2)), Owner::App(APP));
        }
    }

    #[test]
    fn the_store_is_asked_for_what_decides() {
        let mut owners = Owners::default();
        let mut asked = Owned::default();
        owners.ask(&outcome(Outcome::Written, 1), &mut asked);
        owners.ask(&outcome(Outcome::Acked, 1), &mut asked);
        assert_eq!((asked.devices.clone(), asked.notifications.len()), (vec![DeviceNum(1)], 1));
        // A device that does not exist is not asked again; then the notification decides.
        owners.found(&asked, Found::default());
        assert_eq!(owners.device(DeviceNum(1)), Known::Absent);
        let mut asked = Owned::default();
        owners.ask(&outcome(Outcome::Written, 1), &mut asked);
        assert_eq!((asked.devices.len(), asked.notifications), (0, vec![id()]));
        // The app is known, and the notification's topic is not.
        device(&mut owners, 2, APP);
        assert_eq!(owners.owner(&outcome(Outcome::Written, 2)), Owner::App(APP));
        let mut asked = Owned::default();
        owners.ask(&outcome(Outcome::Written, 3), &mut asked);
        assert_eq!((asked.devices.len(), asked.notifications), (0, vec![id()]));
    }

    #[test]
    fn maps_are_bounded() {
        let mut recent = Recent::default();
        for key in 0..RECENT * 5 {
            recent.insert(key, ());
        }
        assert!(recent.new.len() + recent.old.len() <= 2 * RECENT);
        assert!((RECENT * 4..RECENT * 5).all(|key| recent.get(&key).is_some()));
    }
}
