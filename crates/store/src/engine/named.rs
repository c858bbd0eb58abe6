//! Fingerprints of the users or devices that a request names, kept with the notification: a later question whether it
//! named one is answered without a row for each.
//!
//! A fingerprint has 40 bits of a hash: of a request that names 10,000, one stranger in 10^8 seems to be named. They are
//! sorted and kept as differences, which takes 6 bytes for one name and about 4 for each of 10,000.

use noroshi_types::Target;
use noroshi_types::hash::{BEGIN, fnv, mix};

use super::device_list;

const BITS: u32 = 40;
/// The usual size of a name among many.
const BYTES: usize = 5;

fn fingerprint(name: &str) -> u64 {
    mix(fnv(BEGIN, name.as_bytes())) >> (u64::BITS - BITS)
}

/// `None` for a target that names neither users nor devices.
pub(crate) fn fingerprints(target: &Target) -> Option<Vec<u8>> {
    let mut found: Vec<u64> = match target {
        Target::Users(users) => users.iter().map(|user| fingerprint(user.as_str())).collect(),
        Target::Devices(devices) => devices.iter().map(|device| fingerprint(device.as_str())).collect(),
        Target::Topic(_) | Target::Condition(_) | Target::Everyone => return None,
    };
    found.sort_unstable();
    let bytes = found.len() * BYTES + 1;
    Some(device_list::encode_numbers(found.into_iter(), bytes))
}

/// Whether the request named this user or device.
pub(crate) fn contains(fingerprints: &[u8], name: &str) -> bool {
    let wanted = fingerprint(name);
    device_list::decode_numbers(fingerprints)
        .take_while(|found| *found <= wanted)
        .any(|found| found == wanted)
}

#[cfg(test)]
mod tests {
    use noroshi_types::{DeviceId, Topic, UserId};

    use super::*;

    fn users(count: usize) -> Target {
        let user = |i| UserId::parse(&format!("user-{i}")).expect("a user");
        Target::Users((0..count).map(user).collect())
    }

    #[test]
    fn names_are_found_again_and_strangers_are_not() {
        let found = fingerprints(&users(10_000)).expect("they are named");
        assert!((0..10_000).all(|i| contains(&found, &format!("user-{i}"))));
        assert!(!(10_000..20_000).any(|i| contains(&found, &format!("user-{i}"))));
        let device = Target::Devices(vec![DeviceId::parse("d1").expect("a device")]);
        let found = fingerprints(&device).expect("it is named");
        assert!(contains(&found, "d1") && !contains(&found, "d2") && !contains(&[], "d1"));
        assert_eq!(fingerprints(&Target::Everyone), None);
        assert_eq!(fingerprints(&Target::Topic(Topic::parse("news").expect("a topic"))), None);
    }

    #[test]
    fn a_name_takes_few_bytes() {
        let bytes = |count| fingerprints(&users(count)).map_or(0, |found| found.len());
        assert!(
            bytes(1) <= 6 && bytes(500) <= 500 * 5 && bytes(10_000) <= 10_000 * 4 + 1_000,
            "{}",
            bytes(10_000)
        );
    }

    #[test]
    fn fingerprints_stay_the_same() {
        // They are stored: another hash would make every stored one useless.
        assert_eq!(fingerprint("u1"), mix(fnv(BEGIN, b"u1")) >> 24);
    }
}
