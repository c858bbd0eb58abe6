//! Acknowledgements that share a commit: their rows in traces, and the answers to their callers.

use std::time::Duration;

use noroshi_types::{DeviceNum, Outcome, Timestamp};

use super::outcome::Part;
use crate::Acked;
use crate::ids::{Ids, Num};

/// A notification that was outstanding on a device, and when it was acknowledged.
pub(crate) type Acknowledged = (Num, Timestamp, DeviceNum);

/// Acknowledgements of a commit that are further apart than this have parts of their own: callers set the times.
const SHARED_TIME: Duration = Duration::from_secs(1);

/// The acknowledgements of a notification by any number of devices in a commit become one part, with the time of the
/// latest.
pub(crate) fn parts(mut acknowledged: Vec<Acknowledged>) -> Vec<Part> {
    acknowledged.sort_unstable();
    let shared = |one: &Acknowledged, next: &Acknowledged| {
        one.0 == next.0 && next.1.saturating_since(one.1) <= SHARED_TIME
    };
    let parts = acknowledged.chunk_by(shared).filter_map(|part| {
        let &(num, at, _) = part.last()?;
        let mut devices: Vec<DeviceNum> = part.iter().map(|(_, _, device)| *device).collect();
        devices.sort_unstable();
        Some(Part::of(num, Outcome::Acked, at, devices))
    });
    parts.collect()
}

/// The answer to a call: a number for each device that acknowledged it.
pub(crate) fn answer(ids: &Ids, mut nums: Vec<Num>) -> Vec<Acked> {
    nums.sort_unstable();
    let of_one = nums.chunk_by(|one, next| one == next);
    of_one.map(|nums| Acked { id: ids.id(nums[0]), count: nums.len() as u64 }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(acknowledged: &[(Num, u64, u64)], parts_expected: &[(Num, u64, &[u64])]) {
        let all = acknowledged.iter().map(|&(num, at, device)| (num, Timestamp(at), DeviceNum(device)));
        let found = parts(all.collect());
        let found: Vec<_> = found
            .iter()
            .map(|part| (part.num, part.at.0, part.devices.iter().map(|device| device.0).collect::<Vec<_>>()))
            .collect();
        let expected: Vec<_> =
            parts_expected.iter().map(|&(num, at, devices)| (num, at, devices.to_vec())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn devices_share_a_part_with_the_time_of_the_latest() {
        check(&[(7, 30, 1), (8, 20, 3), (7, 20, 3), (7, 20, 2)], &[(7, 30, &[1, 2, 3]), (8, 20, &[3])]);
    }

    #[test]
    fn acknowledgements_far_apart_keep_their_times() {
        check(&[(7, 5_000, 1), (7, 10, 2), (7, 20, 9)], &[(7, 20, &[2, 9]), (7, 5_000, &[1])]);
    }
}
