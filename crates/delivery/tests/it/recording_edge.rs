//! An edge without connections that records the calls, in order.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use noroshi_delivery::{Edge, Fan, LocalSession, Session};
use noroshi_types::{
    AppId, CloseReason, DeviceId, Message, NotificationId, Position, Presence, Target, Topic, UserId,
};

#[derive(Default)]
pub(crate) struct RecordingEdge(Mutex<Record>);

#[derive(Default)]
struct Record {
    messages: Vec<Arc<Message>>,
    closed: Vec<DeviceId>,
    full: bool,
    breaks: bool,
    rereads: usize,
    sessions: Vec<LocalSession>,
}

impl RecordingEdge {
    pub(crate) fn delivered(&self) -> Vec<NotificationId> {
        self.0.lock().expect("no panic").messages.iter().map(|message| message.id).collect()
    }

    pub(crate) fn offsets(&self) -> Vec<u64> {
        let record = self.0.lock().expect("no panic");
        record.messages.iter().filter_map(|message| Some(message.topic.as_ref()?.position.offset)).collect()
    }

    pub(crate) fn closed(&self) -> Vec<DeviceId> {
        self.0.lock().expect("no panic").closed.clone()
    }

    pub(crate) fn connect(&self, session: LocalSession) {
        self.0.lock().expect("no panic").sessions.push(session);
    }

    /// The next delivery panics.
    pub(crate) fn break_next(&self) {
        self.0.lock().expect("no panic").breaks = true;
    }

    /// How many times all sessions were asked to read from the store.
    pub(crate) fn rereads(&self) -> usize {
        self.0.lock().expect("no panic").rereads
    }

    pub(crate) fn set_room(&self, room: bool) {
        self.0.lock().expect("no panic").full = !room;
    }
}

impl Edge for RecordingEdge {
    fn deliver(&self, message: Arc<Message>, _: &Target) {
        let breaks = std::mem::take(&mut self.0.lock().expect("no panic").breaks);
        assert!(!breaks, "the edge is broken");
        self.0.lock().expect("no panic").messages.push(message);
    }

    fn deliver_part(&self, message: Arc<Message>, target: &Target, _: &mut dyn FnMut(usize)) {
        self.deliver(message, target);
    }

    fn offer(&self, _: Arc<Message>, _: &Topic) {}

    fn offered(&self, _: AppId, _: &Topic, _: Position) {}

    fn has_room(&self, _: Fan, _: usize, _: Duration) -> bool {
        !self.0.lock().expect("no panic").full
    }

    fn delay(&self, _: Fan, _: usize) -> Option<Duration> {
        Some(Duration::ZERO)
    }

    fn sessions(&self, _: AppId, users: &[UserId]) -> Vec<Vec<Session>> {
        vec![Vec::new(); users.len()]
    }

    fn session(&self, _: AppId, _: &DeviceId) -> Option<Session> {
        None
    }

    fn generation(&self, _: AppId, _: &DeviceId) -> u64 {
        0
    }

    fn set_presence(&self, _: AppId, _: &DeviceId, _: Presence) -> bool {
        false
    }

    fn subscribe(&self, _: AppId, _: &DeviceId, _: &[Topic]) {}

    fn unsubscribe(&self, _: AppId, _: &DeviceId, _: &Topic) {}

    fn close(&self, _: AppId, device: &DeviceId, _: CloseReason) {
        self.0.lock().expect("no panic").closed.push(device.clone());
    }

    fn replaced(&self, _: AppId, _: &DeviceId, _: u64) {}

    fn close_app(&self, _: AppId, _: CloseReason) {}

    fn topic_sessions(&self, _: AppId, _: &Topic) -> u64 {
        0
    }

    fn sessions_page(&self, page: usize) -> Vec<LocalSession> {
        if page == 1 { self.0.lock().expect("no panic").sessions.clone() } else { Vec::new() }
    }

    fn reread_all(&self) {
        self.0.lock().expect("no panic").rereads += 1;
    }

    fn reread(&self, _: &[LocalSession], _: NotificationId) {}
}
