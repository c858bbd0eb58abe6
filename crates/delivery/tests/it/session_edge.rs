//! An edge with fake sessions that records what each of them receives.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use noroshi_cluster::Keys;
use noroshi_delivery::{Edge, Fan, LocalSession, Session};
use noroshi_store::{Followed, Preferring};
use noroshi_types::{
    AppId, CloseReason, DeviceId, DeviceNum, ItemsNotice, Label, Message, NotificationId, Position, Presence,
    Target, Topic, UserId,
};

pub(crate) struct SessionEdge {
    keys: Keys,
    record: Mutex<Record>,
    /// How long messages wait on the node's shards.
    pub(crate) delay_ms: AtomicU64,
}

#[derive(Default)]
pub(crate) struct Record {
    sessions: BTreeMap<DeviceId, FakeSession>,
    pub(crate) received: Vec<(DeviceId, NotificationId)>,
    /// Messages to topics, conditions and everyone, once for the node.
    pub(crate) fanned: Vec<NotificationId>,
    pub(crate) closed: Vec<(DeviceId, CloseReason)>,
    pub(crate) reread: Vec<(DeviceId, NotificationId)>,
    pub(crate) offered: Vec<NotificationId>,
    /// Reports of items, once for the sessions of a user.
    pub(crate) items: Vec<(UserId, Arc<ItemsNotice>)>,
    /// What sessions follow, in the order of the reports.
    pub(crate) followed: Vec<(DeviceId, Followed)>,
    /// Categories whose daily caps were reached.
    pub(crate) capped: Vec<(DeviceId, Label, u32)>,
    /// How far topics were offered.
    pub(crate) reached: Vec<Position>,
}

#[derive(Clone)]
pub(crate) struct FakeSession {
    pub(crate) app: AppId,
    pub(crate) user: Option<UserId>,
    pub(crate) num: DeviceNum,
    pub(crate) generation: u64,
    pub(crate) revision: u64,
    pub(crate) presence: Presence,
    pub(crate) topics: Vec<Topic>,
}

impl SessionEdge {
    pub(crate) fn new(keys: Keys) -> Self {
        Self { keys, record: Mutex::default(), delay_ms: AtomicU64::new(0) }
    }

    pub(crate) fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().expect("no panic")
    }

    pub(crate) fn insert(&self, device: DeviceId, session: FakeSession) {
        self.record().sessions.insert(device, session);
    }

    pub(crate) fn received_by(&self, device: &DeviceId) -> Vec<NotificationId> {
        self.record().received.iter().filter(|(one, _)| one == device).map(|(_, id)| *id).collect()
    }

    pub(crate) fn topics_of(&self, device: &DeviceId) -> Vec<Topic> {
        self.record().sessions.get(device).map(|session| session.topics.clone()).unwrap_or_default()
    }
}

impl Record {
    fn receive(
        &mut self,
        id: NotificationId,
        is_recipient: impl Fn(&DeviceId, &FakeSession) -> bool,
    ) -> bool {
        let recipients: Vec<DeviceId> = self
            .sessions
            .iter()
            .filter(|(id, session)| is_recipient(id, session))
            .map(|(id, _)| id.clone())
            .collect();
        let found = !recipients.is_empty();
        self.received.extend(recipients.into_iter().map(|device| (device, id)));
        found
    }

    fn end(&mut self, device: &DeviceId, reason: CloseReason) {
        if self.sessions.remove(device).is_some() {
            self.closed.push((device.clone(), reason));
        }
    }
}

impl Edge for SessionEdge {
    fn deliver(&self, message: Arc<Message>, target: &Target) {
        self.deliver_part(message, target, &mut |_| {});
    }

    fn deliver_part(&self, message: Arc<Message>, target: &Target, missing: &mut dyn FnMut(usize)) {
        let (mut record, app) = (self.record(), message.app);
        match target {
            Target::Users(users) => {
                for (index, user) in users.iter().enumerate() {
                    let is_recipient = |_: &DeviceId, session: &FakeSession| {
                        session.app == app && session.user.as_ref() == Some(user)
                    };
                    if !record.receive(message.id, is_recipient) {
                        missing(index);
                    }
                }
            }
            Target::Devices(devices) => {
                for (index, device) in devices.iter().enumerate() {
                    if !record.receive(message.id, |id, session| session.app == app && id == device) {
                        missing(index);
                    }
                }
            }
            Target::Topic(topic) => {
                record.fanned.push(message.id);
                record.receive(message.id, |_, session| session.app == app && session.topics.contains(topic));
            }
            Target::Everyone | Target::Condition(_) => {
                record.fanned.push(message.id);
                record.receive(message.id, |_, session| session.app == app);
            }
        }
    }

    fn offer(&self, message: Arc<Message>, _: &Topic) {
        self.record().offered.push(message.id);
    }

    fn offered(&self, _: AppId, _: &Topic, position: Position) {
        self.record().reached.push(position);
    }

    fn has_room(&self, _: Fan, _: usize, _: Duration) -> bool {
        true
    }

    fn delay(&self, _: Fan, _: usize) -> Option<Duration> {
        Some(Duration::from_millis(self.delay_ms.load(Ordering::Relaxed)))
    }

    fn sessions(&self, app: AppId, users: &[UserId]) -> Vec<Vec<Session>> {
        let record = self.record();
        let of = |user: &UserId| {
            let sessions = record
                .sessions
                .iter()
                .filter(|(_, session)| session.app == app && session.user.as_ref() == Some(user));
            sessions.map(|(id, session)| Session { device: id.clone(), presence: session.presence }).collect()
        };
        users.iter().map(of).collect()
    }

    fn session(&self, _: AppId, device: &DeviceId) -> Option<Session> {
        let record = self.record();
        let session = record.sessions.get(device)?;
        Some(Session { device: device.clone(), presence: session.presence })
    }

    fn generation(&self, _: AppId, device: &DeviceId) -> u64 {
        self.record().sessions.get(device).map_or(0, |session| session.generation)
    }

    fn set_presence(&self, _: AppId, device: &DeviceId, presence: Presence) -> bool {
        self.record().sessions.get_mut(device).map(|session| session.presence = presence).is_some()
    }

    fn subscribe(&self, _: AppId, device: &DeviceId, topics: &[Topic]) {
        if let Some(session) = self.record().sessions.get_mut(device) {
            session.topics.extend_from_slice(topics);
        }
    }

    fn unsubscribe(&self, _: AppId, device: &DeviceId, topic: &Topic) {
        if let Some(session) = self.record().sessions.get_mut(device) {
            session.topics.retain(|one| one != topic);
        }
    }

    fn close(&self, _: AppId, device: &DeviceId, reason: CloseReason) {
        self.record().end(device, reason);
    }

    fn replaced(&self, _: AppId, device: &DeviceId, below: u64) {
        let mut record = self.record();
        if record.sessions.get(device).is_some_and(|session| session.generation < below) {
            record.end(device, CloseReason::Replaced);
        }
    }

    fn close_app(&self, app: AppId, reason: CloseReason) {
        let mut record = self.record();
        let of_app = record.sessions.iter().filter(|(_, session)| session.app == app);
        let devices: Vec<DeviceId> = of_app.map(|(id, _)| id.clone()).collect();
        devices.iter().for_each(|device| record.end(device, reason));
    }

    fn items(&self, _: AppId, user: &UserId, notice: &Arc<ItemsNotice>) {
        self.record().items.push((user.clone(), notice.clone()));
    }

    fn preferences_changed(&self, app: AppId, of: &Preferring) -> Vec<DeviceId> {
        let record = self.record();
        let is_concerned = |id: &DeviceId, session: &FakeSession| match of {
            Preferring::User(user) => session.user.as_ref() == Some(user),
            Preferring::Device(device) => id == device,
        };
        let sessions = record.sessions.iter();
        let concerned = sessions.filter(|(id, session)| session.app == app && is_concerned(id, session));
        concerned.map(|(id, _)| id.clone()).collect()
    }

    fn follow(&self, _: AppId, device: &DeviceId, followed: Followed) {
        self.record().followed.push((device.clone(), followed));
    }

    fn capped(&self, _: AppId, device: &DeviceId, category: &Label, day: u32) {
        self.record().capped.push((device.clone(), category.clone(), day));
    }

    fn topic_sessions(&self, app: AppId, topic: &Topic) -> u64 {
        let record = self.record();
        record
            .sessions
            .values()
            .filter(|session| session.app == app && session.topics.contains(topic))
            .count() as u64
    }

    fn sessions_page(&self, page: usize) -> Vec<LocalSession> {
        if page > 0 {
            return Vec::new();
        }
        let record = self.record();
        let session = |(device, session): (&DeviceId, &FakeSession)| LocalSession {
            app: session.app,
            device: device.clone(),
            num: session.num,
            device_key: self.keys.device(session.app, device),
            user_key: session.user.as_ref().map(|user| self.keys.user(session.app, user)),
            generation: session.generation,
            revision: Some(session.revision),
        };
        record.sessions.iter().map(session).collect()
    }

    fn reread_all(&self) {}

    fn reread(&self, sessions: &[LocalSession], since: NotificationId) {
        let mut record = self.record();
        for LocalSession { device, generation, .. } in sessions {
            if record.sessions.get(device).is_some_and(|session| session.generation == *generation) {
                record.reread.push((device.clone(), since));
            }
        }
    }
}
