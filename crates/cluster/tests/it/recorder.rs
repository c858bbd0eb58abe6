//! A receiver that records events, and waits for them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use noroshi_cluster::{Epoch, Receiver};
use parking_lot::Mutex;

/// Nothing here takes this long, however busy the machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Event {
    Message(Epoch, Bytes),
    Lost(Instant),
    Joined(Epoch),
    Left,
}

#[derive(Default)]
pub(crate) struct Recorder(Mutex<Vec<Event>>);

impl Receiver for Recorder {
    fn receive(&self, from: Epoch, message: Bytes) {
        self.0.lock().push(Event::Message(from, message));
    }

    fn lost(&self, since: Instant) {
        self.0.lock().push(Event::Lost(since));
    }

    fn joined(&self, epoch: Epoch) {
        self.0.lock().push(Event::Joined(epoch));
    }

    fn left(&self) {
        self.0.lock().push(Event::Left);
    }

    fn nodes_changed(&self) {}
}

impl Recorder {
    pub(crate) fn all(&self) -> Vec<Event> {
        self.0.lock().clone()
    }

    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }

    pub(crate) fn messages(&self) -> Vec<(Epoch, Bytes)> {
        let message = |event: Event| match event {
            Event::Message(from, message) => Some((from, message)),
            _ => None,
        };
        self.all().into_iter().filter_map(message).collect()
    }

    pub(crate) fn has_lost(&self) -> bool {
        self.all().iter().any(|event| matches!(event, Event::Lost(_)))
    }

    pub(crate) async fn joined_again(&self) -> Epoch {
        let mut found = None;
        until("joined", || {
            found = self.all().iter().rev().find_map(|event| match event {
                Event::Joined(epoch) => Some(*epoch),
                _ => None,
            });
            found.is_some()
        })
        .await;
        found.expect("waited for")
    }

    pub(crate) async fn until(self: &Arc<Self>, what: &str, mut check: impl FnMut(&[Event]) -> bool) {
        until(what, || check(&self.0.lock())).await;
    }
}

pub(crate) async fn until(what: &str, mut check: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !check() {
        assert!(Instant::now() < deadline, "never came about: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
