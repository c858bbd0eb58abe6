//! Notifications that were emitted with an ack id and not acknowledged yet. Ids are consecutive, so the
//! position in the queue determines the id. At most [`UNACKED_MAX`] are kept; the oldest are evicted. Evicted
//! notifications stay in the inbox and can be acknowledged by notification id.

use std::collections::{HashSet, VecDeque};

use noroshi_types::{NotificationId, limits};

/// A whole inbox: 18 KiB for a client that acknowledges nothing.
pub(super) const UNACKED_MAX: usize = (limits::INBOX_ROWS + limits::inbox_slack(limits::INBOX_ROWS)) as usize;

#[derive(Debug)]
pub(super) struct Window {
    /// The ack id of the first entry.
    first: u32,
    ids: VecDeque<Option<NotificationId>>,
}

impl Window {
    /// `first` is the ack id of the next notification.
    pub(super) fn new(first: u32) -> Self {
        Self { first, ids: VecDeque::new() }
    }

    /// Records a notification that is emitted with the next ack id.
    pub(super) fn push(&mut self, id: NotificationId) {
        if self.ids.len() == UNACKED_MAX {
            self.ids.pop_front();
            self.first = self.first.wrapping_add(1);
            self.skip();
        }
        self.ids.push_back(Some(id));
    }

    /// Removes and returns the notification with this ack id.
    pub(super) fn take(&mut self, ack_id: u64) -> Option<NotificationId> {
        let place = u32::try_from(ack_id).ok()?.wrapping_sub(self.first);
        let id = self.ids.get_mut(place as usize)?.take();
        self.skip();
        id
    }

    /// Removes notifications that were acknowledged by id.
    pub(super) fn forget(&mut self, acknowledged: &[NotificationId]) {
        let acknowledged: HashSet<_> = acknowledged.iter().collect();
        for id in &mut self.ids {
            if id.is_some_and(|id| acknowledged.contains(&id)) {
                *id = None;
            }
        }
        self.skip();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    pub(super) fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.ids.capacity() * size_of::<Option<NotificationId>>()
    }

    /// Removes acknowledged entries from the front.
    fn skip(&mut self) {
        while let Some(None) = self.ids.front() {
            self.ids.pop_front();
            self.first = self.first.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u16) -> NotificationId {
        let mut bytes = [0; 16];
        bytes[..2].copy_from_slice(&n.to_be_bytes());
        NotificationId::from_bytes(bytes)
    }

    #[test]
    fn every_id_is_acknowledged_once_in_any_order() {
        let mut window = Window::new(u32::MAX);
        (0..4).for_each(|n| window.push(id(n)));
        let ack = |n: u32| u64::from(u32::MAX.wrapping_add(n));
        assert_eq!(window.take(ack(2)), Some(id(2)));
        assert_eq!(window.take(ack(2)), None);
        assert_eq!(window.take(ack(0)), Some(id(0)));
        assert_eq!(window.take(ack(0)), None);
        assert_eq!(window.take(ack(4)), None);
        assert_eq!(window.take(1 << 40), None);
        assert_eq!(window.take(ack(1)), Some(id(1)));
        assert!(!window.is_empty());
        assert_eq!(window.take(ack(3)), Some(id(3)));
        assert!(window.is_empty());
        window.push(id(9));
        assert_eq!(window.take(ack(4)), Some(id(9)));
    }

    #[test]
    fn oldest_entries_are_evicted() {
        let mut window = Window::new(0);
        let count = UNACKED_MAX as u16 + 3;
        (0..count).for_each(|n| window.push(id(n)));
        assert!(window.held_bytes() <= 2 * 17 * UNACKED_MAX);
        assert_eq!(window.take(2), None);
        assert_eq!(window.take(3), Some(id(3)));
        assert_eq!(window.take(u64::from(count) - 1), Some(id(count - 1)));
    }

    #[test]
    fn entries_acknowledged_by_id_are_removed() {
        let mut window = Window::new(5);
        (0..3).for_each(|n| window.push(id(n)));
        window.forget(&[id(0), id(2), id(7)]);
        assert_eq!(window.take(5), None);
        assert_eq!(window.take(6), Some(id(1)));
        assert!(window.is_empty());
    }
}
