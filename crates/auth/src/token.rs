//! Device tokens: `nd1.` payload `.` HMAC-SHA256, both base64url.
//!
//! The payload is the app, the device's token version, the expiry and the device id; a node verifies it locally.
//! Incrementing the device's version revokes all earlier tokens.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use noroshi_types::{AppId, DeviceId, Timestamp};
use ring::hmac;

use crate::identity::Identity;
use crate::refused::Refused;

pub(crate) const PREFIX: &str = "nd1.";

/// App (4), version (4), expiry in ms (8).
const FIXED_BYTES: usize = 16;

/// Longer tokens are not ours.
const TOKEN_BYTES_MAX: usize = 512;

/// Holds the key that all nodes of a cluster share.
pub(crate) struct Signer(hmac::Key);

impl Signer {
    pub(crate) fn new(secret: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    pub(crate) fn issue(&self, app: AppId, device: &DeviceId, version: u32, expires_at: Timestamp) -> String {
        let mut payload = Vec::with_capacity(FIXED_BYTES + device.as_str().len());
        payload.extend_from_slice(&app.0.to_be_bytes());
        payload.extend_from_slice(&version.to_be_bytes());
        payload.extend_from_slice(&expires_at.0.to_be_bytes());
        payload.extend_from_slice(device.as_str().as_bytes());
        let tag = hmac::sign(&self.0, &payload);
        format!("{PREFIX}{}.{}", URL_SAFE_NO_PAD.encode(&payload), URL_SAFE_NO_PAD.encode(tag.as_ref()))
    }

    pub(crate) fn verify(&self, token: &str, now: Timestamp) -> Result<Identity, Refused> {
        const MALFORMED: Refused = Refused::Malformed("not a device token");
        if token.len() > TOKEN_BYTES_MAX {
            return Err(MALFORMED);
        }
        let (payload, tag) =
            token.strip_prefix(PREFIX).and_then(|rest| rest.split_once('.')).ok_or(MALFORMED)?;
        let payload = URL_SAFE_NO_PAD.decode(payload).map_err(|_| MALFORMED)?;
        let tag = URL_SAFE_NO_PAD.decode(tag).map_err(|_| MALFORMED)?;
        hmac::verify(&self.0, &payload, &tag).map_err(|_| Refused::Signature)?;
        let (app, rest) = payload.split_first_chunk::<4>().ok_or(MALFORMED)?;
        let (version, rest) = rest.split_first_chunk::<4>().ok_or(MALFORMED)?;
        let (expires_at, device) = rest.split_first_chunk::<8>().ok_or(MALFORMED)?;
        let expires_at = Timestamp(u64::from_be_bytes(*expires_at));
        if expires_at <= now {
            return Err(Refused::Expired);
        }
        let device =
            std::str::from_utf8(device).ok().and_then(|id| DeviceId::parse(id).ok()).ok_or(MALFORMED)?;
        let token_version = Some(u32::from_be_bytes(*version));
        let anonymous = Identity::anonymous(AppId(u32::from_be_bytes(*app)), device);
        Ok(Identity { create: false, token_version, expires_at, ..anonymous })
    }
}

/// The app and the device in an unverified device token, for a caller that only needs to know which cell to query. The
/// app is a number of the issuer. None unless it has the form of a device token.
pub fn unverified_device(token: &str) -> Option<(AppId, DeviceId)> {
    let (payload, _) = token.strip_prefix(PREFIX)?.split_once('.')?;
    if token.len() > TOKEN_BYTES_MAX {
        return None;
    }
    let payload = URL_SAFE_NO_PAD.decode(payload).ok()?;
    let app = AppId(u32::from_be_bytes(*payload.first_chunk::<4>()?));
    let device = DeviceId::parse(std::str::from_utf8(payload.get(FIXED_BYTES..)?).ok()?).ok()?;
    Some((app, device))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issued() -> (Signer, String) {
        let signer = Signer::new(&[7; 32]);
        let device = DeviceId::parse("d-1").expect("id");
        let token = signer.issue(AppId(3), &device, 2, Timestamp(1_000));
        (signer, token)
    }

    #[test]
    fn a_token_identifies_its_device() {
        let (signer, token) = issued();
        let identity = signer.verify(&token, Timestamp(999)).expect("valid");
        assert_eq!((identity.app, identity.device.as_str()), (AppId(3), "d-1"));
        assert_eq!((identity.token_version, identity.create), (Some(2), false));
        assert_eq!(unverified_device(&token), Some((AppId(3), identity.device)));
        assert_eq!(unverified_device("nd1.AAAA.x"), None);
    }

    #[test]
    fn a_token_ends() {
        let (signer, token) = issued();
        assert_eq!(signer.verify(&token, Timestamp(1_000)), Err(Refused::Expired));
    }

    #[test]
    fn every_changed_byte_is_detected() {
        let (signer, token) = issued();
        for at in PREFIX.len()..token.len() {
            let mut bytes = token.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(bytes).expect("ASCII");
            assert!(signer.verify(&changed, Timestamp(0)).is_err(), "byte {at}");
        }
        assert_eq!(Signer::new(&[8; 32]).verify(&token, Timestamp(0)), Err(Refused::Signature));
    }
}
