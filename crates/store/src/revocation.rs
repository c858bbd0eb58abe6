//! Revoked app JWTs.
//!
//! A device token has a version; an app JWT only has its time of issue. So the store keeps when the JWTs of a device
//! and of a user were last revoked, and compares `iat` with that. The times outlive the device and are kept until the
//! app is deleted, because a JWT may be valid for years.
//!
//! `iat` counts whole seconds. A token that was issued in the second of the revocation is refused, because it may
//! have been issued just before it.

use noroshi_types::Timestamp;

/// A token with an `iat` further in the future counts as revoked: the clocks of the issuer and this node differ by at
/// most this much.
const CLOCK_SKEW_MS: u64 = 5 * 60 * 1_000;

/// When a credential was issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Issued {
    /// Not an app JWT: revoked in other ways, or not revocable.
    #[default]
    Elsewhere,
    /// An app JWT without `iat`.
    Unknown,
    At(Timestamp),
}

/// When the app JWTs of a device and of its user were revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Revocation {
    pub device: Option<Timestamp>,
    pub user: Option<Timestamp>,
}

/// The owner of revoked JWTs; the values are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    Device = 0,
    User = 1,
}

impl Revocation {
    pub fn latest(self) -> Option<Timestamp> {
        self.device.max(self.user)
    }
}

impl Issued {
    /// Whether a revocation at this time covers the credential.
    pub fn is_revoked(self, revoked_at: Option<Timestamp>, now: Timestamp) -> bool {
        let Some(revoked_at) = revoked_at else { return false };
        match self {
            Self::Elsewhere => false,
            Self::Unknown => true,
            Self::At(at) => {
                at.0 / 1_000 <= revoked_at.0 / 1_000 || at.0 > now.0.saturating_add(CLOCK_SKEW_MS)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_revoked_unless_it_was_issued_in_a_later_second() {
        let now = Timestamp(1_000_000);
        let check = |issued: Issued, revoked_at: u64, expected: bool| {
            assert_eq!(
                issued.is_revoked(Some(Timestamp(revoked_at)), now),
                expected,
                "{issued:?} {revoked_at}"
            );
            assert!(!issued.is_revoked(None, now));
        };
        check(Issued::Elsewhere, 900_000, false);
        check(Issued::Unknown, 900_000, true);
        check(Issued::At(Timestamp(899_000)), 900_000, true);
        check(Issued::At(Timestamp(900_000)), 900_999, true);
        check(Issued::At(Timestamp(900_900)), 900_100, true);
        check(Issued::At(Timestamp(901_000)), 900_999, false);
        check(Issued::At(Timestamp(1_300_000)), 900_000, false);
        check(Issued::At(Timestamp(1_300_001)), 900_000, true);
    }
}
