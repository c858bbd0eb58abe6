//! What a connection confirmed while it catches up. A read that began before the confirmation was written may bring the
//! message once more.

use std::collections::HashSet;

use noroshi_types::NotificationId;

use super::CatchUp;

/// 512 × 16 B, twice: 16 KiB for a connection that catches up.
pub(super) const CONFIRMED_MIN: usize = 512;

/// The last confirmations: at least [`CONFIRMED_MIN`], at most twice as many. A confirmation is written within some
/// milliseconds, so that is far more than reads can miss.
#[derive(Default)]
pub(super) struct Confirmed {
    last: HashSet<NotificationId>,
    before: HashSet<NotificationId>,
}

impl Confirmed {
    fn add(&mut self, ids: &[NotificationId]) {
        for id in ids {
            if self.last.len() >= CONFIRMED_MIN {
                self.before = std::mem::take(&mut self.last);
            }
            self.last.insert(*id);
        }
    }

    fn has(&self, id: NotificationId) -> bool {
        self.last.contains(&id) || self.before.contains(&id)
    }
}

impl CatchUp {
    /// The client has these messages: reads that still bring them are ignored.
    pub(crate) fn confirm(&mut self, ids: &[NotificationId]) {
        self.confirmed.add(ids);
        self.rest.retain(|paged| paged.retained || !ids.contains(&paged.message.id));
    }

    /// Whether the client confirmed it recently.
    pub(crate) fn is_confirmed(&self, id: NotificationId) -> bool {
        self.confirmed.has(id)
    }
}
