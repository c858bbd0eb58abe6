//! Notifications that left inboxes or the push queue as a side effect of a call: evicted, replaced, expired, not
//! needed or cancelled. One call may affect any number of notifications, so its answer is bounded: it names so many
//! parts with their devices, and counts the rest.

use std::collections::BTreeMap;

use noroshi_types::{AppId, DeviceNum, Outcome, Timestamp};

use crate::Work;

/// Limits of one answer: parts (88 KiB) and their devices (512 KiB). The rest is only counted.
pub const REMOVED_PARTS_MAX: usize = 1_024;
pub const REMOVED_DEVICES_MAX: usize = 65_536;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RemovedMessages {
    /// At most [`REMOVED_PARTS_MAX`], with [`REMOVED_DEVICES_MAX`] devices in all.
    pub parts: Vec<RemovedPart>,
    /// How many devices further parts had, and parts of work that was deleted in the meantime. At most one entry for
    /// each row that the call removed.
    pub beyond: BTreeMap<(AppId, Outcome), u64>,
    /// Devices named in all parts.
    devices_count: usize,
}

/// `count` devices that one notification left at the same time with the same outcome. `devices` is sorted and may be
/// shorter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovedPart {
    pub app: AppId,
    pub of: Work,
    pub outcome: Outcome,
    pub at: Timestamp,
    pub devices: Vec<DeviceNum>,
    pub count: u64,
}

impl RemovedMessages {
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.beyond.is_empty()
    }

    /// Devices with this outcome.
    pub fn count(&self, outcome: Outcome) -> u64 {
        let parts = self.parts.iter().map(|part| (part.outcome, part.count));
        let all = parts.chain(self.beyond.iter().map(|((_, outcome), count)| (*outcome, *count)));
        all.filter(|(other, _)| *other == outcome).map(|(_, count)| count).sum()
    }

    /// `devices` must be sorted. An empty list adds nothing. `of` is `None` for work that was deleted.
    pub(crate) fn add(
        &mut self,
        app: AppId,
        of: Option<Work>,
        outcome: Outcome,
        at: Timestamp,
        devices: &[DeviceNum],
    ) {
        self.put((app, of, outcome, at), devices, devices.len() as u64);
    }

    /// Adds the result of another part of the same call.
    pub(crate) fn append(&mut self, other: Self) {
        for RemovedPart { app, of, outcome, at, devices, count } in other.parts {
            self.put((app, Some(of), outcome, at), &devices, count);
        }
        for (of, count) in other.beyond {
            *self.beyond.entry(of).or_default() += count;
        }
    }

    fn put(
        &mut self,
        (app, of, outcome, at): (AppId, Option<Work>, Outcome, Timestamp),
        devices: &[DeviceNum],
        count: u64,
    ) {
        if count == 0 {
            return;
        }
        let Some(of) = of.filter(|_| self.parts.len() < REMOVED_PARTS_MAX) else {
            *self.beyond.entry((app, outcome)).or_default() += count;
            return;
        };
        let named = devices.len().min(REMOVED_DEVICES_MAX - self.devices_count);
        self.devices_count += named;
        self.parts.push(RemovedPart { app, of, outcome, at, devices: devices[..named].to_vec(), count });
    }
}

#[cfg(test)]
mod tests {
    use noroshi_types::NotificationId;

    use super::*;

    const OF: Option<Work> = Some(Work::Notification(NotificationId::from_bytes([1; 16])));
    const AT: Timestamp = Timestamp(1);
    const APP: AppId = AppId(1);
    const OTHER: AppId = AppId(2);

    fn devices(count: usize) -> Vec<DeviceNum> {
        (1..=count as u64).map(DeviceNum).collect()
    }

    /// How many devices each part counts and names.
    fn named(departed: &RemovedMessages) -> Vec<(usize, usize)> {
        departed.parts.iter().map(|part| (part.count as usize, part.devices.len())).collect()
    }

    #[test]
    fn removals_are_named_up_to_the_limit_and_counted_beyond() {
        let mut departed = RemovedMessages::default();
        departed.add(APP, OF, Outcome::Evicted, AT, &devices(REMOVED_DEVICES_MAX - 1));
        departed.add(APP, OF, Outcome::Collapsed, AT, &devices(3));
        departed.add(APP, OF, Outcome::Evicted, AT, &devices(2));
        departed.add(APP, OF, Outcome::Evicted, AT, &[]);
        let all = REMOVED_DEVICES_MAX - 1;
        assert_eq!(named(&departed), [(all, all), (3, 1), (2, 0)]);
        for _ in 3..REMOVED_PARTS_MAX {
            departed.add(APP, OF, Outcome::Expired, AT, &devices(1));
        }
        assert!(departed.beyond.is_empty());
        for outcome in [Outcome::Evicted, Outcome::Collapsed, Outcome::Evicted] {
            departed.add(APP, OF, outcome, AT, &devices(2));
            departed.add(OTHER, OF, outcome, AT, &devices(1));
        }
        assert_eq!(departed.parts.len(), REMOVED_PARTS_MAX);
        let beyond = [
            ((APP, Outcome::Collapsed), 2),
            ((APP, Outcome::Evicted), 4),
            ((OTHER, Outcome::Collapsed), 1),
            ((OTHER, Outcome::Evicted), 2),
        ];
        assert_eq!(departed.beyond, beyond.into());
        assert_eq!(departed.count(Outcome::Evicted), all as u64 + 8);
    }

    #[test]
    fn parts_of_one_call_share_its_limits() {
        let mut call = RemovedMessages::default();
        call.add(APP, OF, Outcome::PushExpired, AT, &devices(REMOVED_DEVICES_MAX - 1));
        let mut round = RemovedMessages::default();
        round.add(APP, OF, Outcome::Cancelled, AT, &devices(3));
        round.add(OTHER, None, Outcome::Cancelled, AT, &devices(4));
        call.append(round.clone());
        let all = REMOVED_DEVICES_MAX - 1;
        assert_eq!(named(&call), [(all, all), (3, 1)]);
        assert_eq!(call.beyond, [((OTHER, Outcome::Cancelled), 4)].into(), "of the deleted message");
        for _ in 2..=REMOVED_PARTS_MAX {
            call.append(round.clone());
        }
        assert_eq!(call.parts.len(), REMOVED_PARTS_MAX);
        assert_eq!(call.count(Outcome::Cancelled), REMOVED_PARTS_MAX as u64 * 7);
    }
}
