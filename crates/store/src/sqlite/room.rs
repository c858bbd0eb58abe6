//! How many more rows each inbox can take, so that delivering a notification does not count every inbox.
//!
//! A device keeps its newest `Options::inbox_rows` rows, and up to [`noroshi_types::limits::inbox_slack`] more.

use std::collections::HashMap;

use noroshi_types::DeviceNum;

/// Devices remembered: 16 bytes each, 4 MiB.
const DEVICES: usize = 1 << 18;

/// Rows that each device can take before its inbox is counted again. A lower bound: rows that leave, and operations that
/// are rolled back, only add room. Every device with staged rows is in it.
#[derive(Default)]
pub(crate) struct Room(HashMap<DeviceNum, u32>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    Yes,
    /// There may be no room left.
    Full,
    /// The inbox was not counted, so it has no staged rows either.
    Unknown,
}

impl Room {
    /// Takes one row's room, unless the inbox must be counted.
    pub(super) fn take(&mut self, device: DeviceNum) -> Taken {
        match self.0.get_mut(&device) {
            Some(0) => Taken::Full,
            Some(left) => {
                *left -= 1;
                Taken::Yes
            }
            None => Taken::Unknown,
        }
    }

    /// After a rollback brought back rows that had been removed.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn set(&mut self, device: DeviceNum, left: u32) {
        self.0.insert(device, left);
    }

    /// Forgets all devices if there are too many. Only while no rows are staged.
    pub(super) fn trim(&mut self) {
        if self.0.len() > DEVICES {
            self.0 = HashMap::new();
        }
    }
}
