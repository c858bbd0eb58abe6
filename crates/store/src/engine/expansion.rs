//! Accepting a `stored` notification to a large condition takes several commits, so that other writes run in between.
//!
//! The notification's number is drawn first. Slices then write its inbox rows in the order of the devices. Nothing
//! reads an inbox row without its notification, so the rows stay hidden until the last commit writes the
//! notification: then all devices have it at once, and the request is answered. A device belongs to the recipients if
//! it matches when the slice with its place is written.
//!
//! - Later notifications of the same app wait, because ids must be in the order in which devices see them.
//! - An expansion that does not end (a crash, a full disk) was never accepted. The clean-up removes its rows.
//! - Older rows with the same collapse key are removed after the last commit, by the clean-up: an expansion that does
//!   not end must not have removed anything.

use std::time::Duration;

use noroshi_types::{AppId, DeviceNum, NotificationId, Outcome, Timestamp};

use crate::ids::Num;
use crate::{OutcomePart, REMOVED_DEVICES_MAX};

/// Devices of a condition that the accepting commit writes itself: 20 µs each. More take slices.
pub(crate) const AT_ONCE: usize = 1_000;
/// Devices of one slice at most.
pub(crate) const SLICE_DEVICES: usize = 2_000;
/// For how long one commit writes or removes rows.
pub(crate) const SLICE: Duration = Duration::from_millis(20);
/// Expansions that one call of the clean-up looks at. The rest is next.
pub(crate) const SETTLED_MAX: i64 = 16;

/// What a row of `expansions` stands for. Values are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    /// Inbox rows are being written; after a crash they are removed.
    Writing = 0,
    /// The notification was accepted. Older rows with its collapse key are being removed.
    Collapsing = 1,
}

impl State {
    pub(crate) fn from_code(code: u8) -> Self {
        match code {
            1 => Self::Collapsing,
            _ => Self::Writing,
        }
    }
}

/// Devices with the same outcome, as the answer names them.
#[derive(Debug, Clone, Default)]
pub(crate) struct SlicedDevices {
    pub count: u64,
    /// The first of them: at most [`REMOVED_DEVICES_MAX`], in order.
    named: Vec<DeviceNum>,
}

impl SlicedDevices {
    /// Adds the devices of the next slice.
    pub(crate) fn add(&mut self, devices: &[DeviceNum]) {
        self.count += devices.len() as u64;
        let room = REMOVED_DEVICES_MAX - self.named.len();
        self.named.extend(devices.iter().take(room));
    }

    /// With the devices of the last slice.
    pub(crate) fn with(&self, devices: &[DeviceNum]) -> Self {
        let mut all = Self { count: self.count, named: self.named.clone() };
        all.add(devices);
        all
    }

    pub(crate) fn part(
        self,
        (app, id): (AppId, NotificationId),
        outcome: Outcome,
        at: Timestamp,
    ) -> Option<OutcomePart> {
        let Self { count, named: devices } = self;
        (count > 0).then_some(OutcomePart { app, id, outcome, at, devices, count })
    }
}

/// A row of `expansions`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    pub num: Num,
    pub app: AppId,
    pub state: State,
    /// The part of its outcomes up to which older rows were removed.
    pub place: i64,
}

/// How many items one of several commits gets, so that it takes [`SLICE`] on an engine that cannot look at the clock
/// in between.
#[derive(Debug)]
pub(crate) struct SliceSize(usize);

impl SliceSize {
    pub(crate) fn new(first: usize) -> Self {
        Self(first)
    }

    pub(crate) fn size(&self) -> usize {
        self.0
    }

    /// `items` took this long. The next slice is at most twice as large, and at least an eighth.
    pub(crate) fn took(&mut self, items: usize, time: Duration) {
        let share = (SLICE.as_secs_f64() / time.as_secs_f64().max(1e-6)).clamp(0.125, 2.0);
        self.0 = ((items as f64 * share) as usize).clamp(SLICE_ITEMS.0, SLICE_ITEMS.1);
    }
}

/// Bounds of [`SliceSize`]: with fewer, most of the time is spent on round trips.
const SLICE_ITEMS: (usize, usize) = (50, SLICE_DEVICES);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_follow_the_time_that_the_last_one_took() {
        let mut slices = SliceSize::new(200);
        let mut check = |items, milliseconds, expected| {
            slices.took(items, Duration::from_millis(milliseconds));
            assert_eq!(slices.size(), expected, "after {items} in {milliseconds} ms");
        };
        check(200, 40, 100);
        check(100, 1, 200);
        check(200, 4_000, 50);
        check(2_000, 5, 2_000);
        check(1_000, 0, 2_000);
    }
}
