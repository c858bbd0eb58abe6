//! An edge whose connections are seats: who sits there hears what is delivered, and it is remembered.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use noroshi_cluster::Keys;
use noroshi_delivery::{Edge, LocalSession, Session};
use noroshi_types::{
    AppId, CloseReason, DeviceId, DeviceNum, Message, NotificationId, Position, Presence, Target, Topic,
    UserId,
};

pub(crate) struct SeatedEdge {
    keys: Keys,
    record: Mutex<Record>,
}

#[derive(Default)]
pub(crate) struct Record {
    seats: BTreeMap<DeviceId, Seat>,
    pub(crate) heard: Vec<(DeviceId, NotificationId)>,
    /// Of topics and the like, once for the node.
    pub(crate) fanned: Vec<NotificationId>,
    pub(crate) closed: Vec<(DeviceId, CloseReason)>,
    pub(crate) reread: Vec<(DeviceId, NotificationId)>,
    pub(crate) offered: Vec<NotificationId>,
    /// How far topics were offered.
    pub(crate) reached: Vec<Position>,
}

#[derive(Clone)]
pub(crate) struct Seat {
    pub(crate) app: AppId,
    pub(crate) user: Option<UserId>,
    pub(crate) num: DeviceNum,
    pub(crate) generation: u64,
    pub(crate) revision: u64,
    pub(crate) presence: Presence,
    pub(crate) topics: Vec<Topic>,
}

impl SeatedEdge {
    pub(crate) fn new(keys: Keys) -> Self {
        Self { keys, record: Mutex::default() }
    }

    pub(crate) fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().expect("no panic")
    }

    pub(crate) fn seat(&self, device: DeviceId, seat: Seat) {
        self.record().seats.insert(device, seat);
    }

    pub(crate) fn heard_by(&self, device: &DeviceId) -> Vec<NotificationId> {
        self.record().heard.iter().filter(|(one, _)| one == device).map(|(_, id)| *id).collect()
    }

    pub(crate) fn topics_of(&self, device: &DeviceId) -> Vec<Topic> {
        self.record().seats.get(device).map(|seat| seat.topics.clone()).unwrap_or_default()
    }
}

impl Record {
    fn hear(&mut self, id: NotificationId, is_meant: impl Fn(&DeviceId, &Seat) -> bool) -> bool {
        let meant: Vec<DeviceId> =
            self.seats.iter().filter(|(id, seat)| is_meant(id, seat)).map(|(id, _)| id.clone()).collect();
        let found = !meant.is_empty();
        self.heard.extend(meant.into_iter().map(|device| (device, id)));
        found
    }

    fn end(&mut self, device: &DeviceId, reason: CloseReason) {
        if self.seats.remove(device).is_some() {
            self.closed.push((device.clone(), reason));
        }
    }
}

impl Edge for SeatedEdge {
    fn deliver(&self, message: Arc<Message>, target: &Target) {
        self.deliver_part(message, target, &mut |_| {});
    }

    fn deliver_part(&self, message: Arc<Message>, target: &Target, missing: &mut dyn FnMut(usize)) {
        let (mut record, app) = (self.record(), message.app);
        match target {
            Target::Users(users) => {
                for (index, user) in users.iter().enumerate() {
                    let is_meant =
                        |_: &DeviceId, seat: &Seat| seat.app == app && seat.user.as_ref() == Some(user);
                    if !record.hear(message.id, is_meant) {
                        missing(index);
                    }
                }
            }
            Target::Devices(devices) => {
                for (index, device) in devices.iter().enumerate() {
                    if !record.hear(message.id, |id, seat| seat.app == app && id == device) {
                        missing(index);
                    }
                }
            }
            Target::Topic(topic) => {
                record.fanned.push(message.id);
                record.hear(message.id, |_, seat| seat.app == app && seat.topics.contains(topic));
            }
            Target::Everyone | Target::Condition(_) => {
                record.fanned.push(message.id);
                record.hear(message.id, |_, seat| seat.app == app);
            }
        }
    }

    fn offer(&self, message: Arc<Message>, _: &Topic) {
        self.record().offered.push(message.id);
    }

    fn offered(&self, _: AppId, _: &Topic, position: Position) {
        self.record().reached.push(position);
    }

    fn has_room(&self, _: &Target) -> bool {
        true
    }

    fn sessions(&self, app: AppId, users: &[UserId]) -> Vec<Vec<Session>> {
        let record = self.record();
        let of = |user: &UserId| {
            let seats =
                record.seats.iter().filter(|(_, seat)| seat.app == app && seat.user.as_ref() == Some(user));
            seats.map(|(id, seat)| Session { device: id.clone(), presence: seat.presence }).collect()
        };
        users.iter().map(of).collect()
    }

    fn session(&self, _: AppId, device: &DeviceId) -> Option<Session> {
        let record = self.record();
        let seat = record.seats.get(device)?;
        Some(Session { device: device.clone(), presence: seat.presence })
    }

    fn generation(&self, _: AppId, device: &DeviceId) -> u64 {
        self.record().seats.get(device).map_or(0, |seat| seat.generation)
    }

    fn set_presence(&self, _: AppId, device: &DeviceId, presence: Presence) -> bool {
        self.record().seats.get_mut(device).map(|seat| seat.presence = presence).is_some()
    }

    fn subscribe(&self, _: AppId, device: &DeviceId, topics: &[Topic]) {
        if let Some(seat) = self.record().seats.get_mut(device) {
            seat.topics.extend_from_slice(topics);
        }
    }

    fn unsubscribe(&self, _: AppId, device: &DeviceId, topic: &Topic) {
        if let Some(seat) = self.record().seats.get_mut(device) {
            seat.topics.retain(|one| one != topic);
        }
    }

    fn close(&self, _: AppId, device: &DeviceId, reason: CloseReason) {
        self.record().end(device, reason);
    }

    fn replaced(&self, _: AppId, device: &DeviceId, below: u64) {
        let mut record = self.record();
        if record.seats.get(device).is_some_and(|seat| seat.generation < below) {
            record.end(device, CloseReason::Replaced);
        }
    }

    fn close_app(&self, app: AppId, reason: CloseReason) {
        let mut record = self.record();
        let of_app = record.seats.iter().filter(|(_, seat)| seat.app == app);
        let devices: Vec<DeviceId> = of_app.map(|(id, _)| id.clone()).collect();
        devices.iter().for_each(|device| record.end(device, reason));
    }

    fn topic_sessions(&self, app: AppId, topic: &Topic) -> u64 {
        let record = self.record();
        record.seats.values().filter(|seat| seat.app == app && seat.topics.contains(topic)).count() as u64
    }

    fn sessions_page(&self, page: usize) -> Vec<LocalSession> {
        if page > 0 {
            return Vec::new();
        }
        let record = self.record();
        let session = |(device, seat): (&DeviceId, &Seat)| LocalSession {
            app: seat.app,
            device: device.clone(),
            num: seat.num,
            device_key: self.keys.device(seat.app, device),
            user_key: seat.user.as_ref().map(|user| self.keys.user(seat.app, user)),
            generation: seat.generation,
            revision: Some(seat.revision),
        };
        record.seats.iter().map(session).collect()
    }

    fn reread_all(&self) {}

    fn reread(&self, sessions: &[LocalSession], since: NotificationId) {
        let mut record = self.record();
        for LocalSession { device, generation, .. } in sessions {
            if record.seats.get(device).is_some_and(|seat| seat.generation == *generation) {
                record.reread.push((device.clone(), since));
            }
        }
    }
}
