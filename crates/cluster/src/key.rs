//! Keys of the directory: a keyed hash of 16 bytes for a device or a user. All keys have one length, ids are not
//! visible in the engine, and a collision cannot be constructed without the cluster's secret. All nodes of a cluster
//! have the same secret.

use std::hash::Hasher as _;

use noroshi_types::{AppId, DeviceId, UserId};
use siphasher::sip128::{Hasher128, SipHasher24};

/// The hash of (kind, app, id), made by [`Keys`]; the highest bit is the kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionKey(pub u128);

const OF_USER: u128 = 1 << 127;

impl SessionKey {
    pub(crate) fn is_of_user(self) -> bool {
        self.0 & OF_USER != 0
    }
}

/// Makes keys.
#[derive(Clone)]
pub struct Keys {
    hasher: SipHasher24,
}

impl Keys {
    pub fn new(secret: &[u8; 16]) -> Self {
        Self { hasher: SipHasher24::new_with_key(secret) }
    }

    pub fn device(&self, app: AppId, device: &DeviceId) -> SessionKey {
        SessionKey(self.hash(b'd', app, device.as_str()) & !OF_USER)
    }

    pub fn user(&self, app: AppId, user: &UserId) -> SessionKey {
        SessionKey(self.hash(b'u', app, user.as_str()) | OF_USER)
    }

    /// Kind and app have a fixed length, so different inputs have different bytes.
    fn hash(&self, kind: u8, app: AppId, id: &str) -> u128 {
        let mut hasher = self.hasher;
        hasher.write(&[kind]);
        hasher.write(&app.0.to_le_bytes());
        hasher.write(id.as_bytes());
        hasher.finish128().as_u128()
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(id: &str) -> DeviceId {
        DeviceId::parse(id).expect("device id")
    }

    #[test]
    fn keys_differ_by_kind_app_id_and_secret() {
        let keys = Keys::new(&[7; 16]);
        let key = keys.device(AppId(1), &device("a"));
        assert_eq!(key, Keys::new(&[7; 16]).device(AppId(1), &device("a")), "the same on every node");
        assert_ne!(key, keys.device(AppId(2), &device("a")));
        assert_ne!(key, keys.device(AppId(1), &device("b")));
        let user = keys.user(AppId(1), &UserId::parse("a").expect("user id"));
        assert_ne!(key, user);
        assert_eq!((key.is_of_user(), user.is_of_user()), (false, true));
        assert_ne!(key, Keys::new(&[8; 16]).device(AppId(1), &device("a")));
    }

    #[test]
    fn keys_are_stable_across_versions() {
        let key = Keys::new(&[0; 16]).device(AppId(1), &device("a"));
        assert_eq!(format!("{:032x}", key.0), "11ced563e176089611e96e637f85d4d3");
    }
}
