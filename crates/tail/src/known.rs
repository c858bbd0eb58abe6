//! What is known about the devices and notifications that events name: from other events, or from the store. Kept only
//! while a tail is open.
//!
//! A device may name a notification of another app in an acknowledgement. For the app of the device, that notification has
//! no topic and no campaign.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use noroshi_events::event::Accepted;
use noroshi_events::{Event, Subject};
use noroshi_store::{Found, LookupKeys};
use noroshi_types::{AppId, DeviceId, DeviceNum, NotificationId, UserId};

use crate::filter::{Detail, subject_of};

/// Each half of a map of recent things. A notification is about 100 bytes, a device 200: 2 × 16,384 × 300 bytes are 10 MB.
const RECENT: usize = 16_384;

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

struct Notification {
    app: AppId,
    detail: Detail,
}

/// Of a notification of another app.
static NOTHING: Detail = Detail { topic: None, campaign: None };

#[derive(Default)]
pub(crate) struct Known {
    notifications: Recent<NotificationId, Notification>,
    /// `None`: the store has no such device.
    devices: Recent<DeviceNum, Option<Arc<Name>>>,
}

impl Known {
    pub(crate) fn accept(&mut self, accepted: &Accepted) {
        let detail = Detail { topic: accepted.topic.clone(), campaign: accepted.campaign };
        self.notifications.insert(accepted.id, Notification { app: accepted.app, detail });
    }

    pub(crate) fn name(&mut self, device: DeviceNum, app: AppId, id: &DeviceId, user: Option<&UserId>) {
        let known = self.device(device);
        let is_same = |name: &Arc<Name>| name.app == app && name.id == *id && name.user.as_ref() == user;
        if !known.is_some_and(is_same) {
            let name = Name { app, id: id.clone(), user: user.cloned() };
            self.devices.insert(device, Some(Arc::new(name)));
        }
    }

    /// What a read of the store found. `asked`: what it looked for.
    pub(crate) fn found(&mut self, asked: &LookupKeys, found: Found) {
        for known in found.notifications {
            let detail = Detail { topic: known.topic, campaign: known.campaign };
            self.notifications.insert(known.id, Notification { app: known.app, detail });
        }
        for known in found.devices {
            self.name(known.num, known.app, &known.id, known.user.as_ref());
        }
        // A number is never given out again. A notification may be written later than its events.
        for device in &asked.devices {
            if !self.has_looked_for(*device) {
                self.devices.insert(*device, None);
            }
        }
    }

    pub(crate) fn device(&self, device: DeviceNum) -> Option<&Arc<Name>> {
        self.devices.get(&device).and_then(Option::as_ref)
    }

    /// The name of the device is known, or the store has no such device.
    pub(crate) fn has_looked_for(&self, device: DeviceNum) -> bool {
        self.devices.get(&device).is_some()
    }

    /// Of the event's notification, for the event's app. `None`: unknown.
    pub(crate) fn detail(&self, app: AppId, event: &Event) -> Option<&Detail> {
        match subject_of(event)? {
            Subject::Notification(id) => {
                let known = self.notifications.get(&id)?;
                Some(if known.app == app { &known.detail } else { &NOTHING })
            }
            Subject::Campaign(_) | Subject::Several => None,
        }
    }

    /// Another node may have given a device to another user: the names of the devices are asked again after two calls.
    pub(crate) fn age(&mut self) {
        self.devices.age();
    }
}

#[cfg(test)]
mod tests {
    use noroshi_store::FoundDevice;

    use super::*;

    #[test]
    fn a_device_that_does_not_exist_is_looked_for_once() {
        let mut known = Known::default();
        let asked = LookupKeys { devices: [1, 2].map(DeviceNum).to_vec(), notifications: Vec::new() };
        let id = DeviceId::parse("d").expect("an id");
        let device = FoundDevice { num: DeviceNum(1), app: AppId(1), id: id.clone(), user: None };
        known.found(&asked, Found { devices: vec![device], ..Found::default() });
        assert_eq!(known.device(DeviceNum(1)).map(|name| &name.id), Some(&id));
        assert!(known.device(DeviceNum(2)).is_none() && known.has_looked_for(DeviceNum(2)));
        assert!(!known.has_looked_for(DeviceNum(3)));
        known.age();
        known.age();
        assert!(!known.has_looked_for(DeviceNum(1)), "it may have another user now");
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
