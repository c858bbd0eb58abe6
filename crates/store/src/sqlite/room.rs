//! How many more rows each inbox can take, so that delivering a notification does not count every inbox.
//!
//! A device keeps its newest `Options::inbox_rows` rows, and up to [`noroshi_types::limits::inbox_slack`] more.

use std::collections::HashMap;

use noroshi_types::DeviceNum;

/// Devices remembered: 16 bytes each, 4 MiB.
const DEVICES: usize = 1 << 18;

/// Rows that each device can take before its inbox is counted again. A lower bound: rows that leave, and operations that
/// are rolled back, only add room.
#[derive(Default)]
pub(crate) struct Room(HashMap<DeviceNum, u32>);

impl Room {
    /// Takes one row's room; false if the inbox must be counted.
    pub(super) fn take(&mut self, device: DeviceNum) -> bool {
        match self.0.get_mut(&device) {
            Some(left) if *left > 0 => {
                *left -= 1;
                true
            }
            _ => false,
        }
    }

    /// After a rollback brought back rows that had been removed.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn set(&mut self, device: DeviceNum, left: u32) {
        if self.0.len() >= DEVICES {
            self.0.clear();
        }
        self.0.insert(device, left);
    }
}
