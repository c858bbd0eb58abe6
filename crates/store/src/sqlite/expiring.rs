//! How far the inbox rows of an expired notification are removed.
//!
//! The place is in memory only: after a restart the list of devices is read from its start, where rows are gone already.

use crate::ids::Num;

/// The notification whose inbox rows are being removed, and the place in the list of its devices up to which they were.
#[derive(Debug, Default)]
pub(crate) struct Expiring(Option<(Num, u64)>);

impl Expiring {
    /// The place from which to continue with a notification.
    pub(super) fn place_of(&self, num: Num) -> Option<u64> {
        self.0.filter(|(known, _)| *known == num).map(|(_, place)| place)
    }

    /// `None`: all rows are removed.
    pub(super) fn set(&mut self, num: Num, place: Option<u64>) {
        self.0 = place.map(|place| (num, place));
    }

    pub(super) fn clear(&mut self) {
        self.0 = None;
    }
}
