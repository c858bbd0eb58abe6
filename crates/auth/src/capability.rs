//! Capability URLs: Web Push endpoints, the messages posted to them, and their receipts. Anyone who knows one may use
//! it (RFC 8030 §8.3), so none can be guessed.
//!
//! All are base64url with an HMAC-SHA256 tag under a key that the nodes of a cell share. The tag shows, without the
//! store, which tokens were never issued: a flood of guesses costs no read, and a deleted capability can be answered
//! "gone".

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use noroshi_store::EndpointHash;
use noroshi_types::{AppId, NotificationId};
use ring::digest::{SHA256, digest};
use ring::hmac;
use ring::rand::SecureRandom;

/// 192 random bits; UnifiedPush requires 160.
const SECRET_BYTES: usize = 24;
/// The tag does not protect an endpoint; its secret does.
const ENDPOINT_TAG_BYTES: usize = 8;
/// The tag protects a message, whose id is not secret.
const MESSAGE_TAG_BYTES: usize = 16;
/// App and id.
const MESSAGE_BYTES: usize = 20;

/// The action that a message's URL permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permit {
    /// Delete the message.
    Cancel,
    /// Read its receipt.
    Receipt,
}

pub(crate) struct Capabilities(hmac::Key);

impl Capabilities {
    pub(crate) fn new(secret: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// A new endpoint's secret, which is shown once.
    pub(crate) fn draw_endpoint(
        &self,
        random: &dyn SecureRandom,
    ) -> Result<String, ring::error::Unspecified> {
        let mut bytes = [0; SECRET_BYTES + ENDPOINT_TAG_BYTES];
        random.fill(&mut bytes[..SECRET_BYTES])?;
        let tag = self.tag(b"endpoint", &bytes[..SECRET_BYTES]);
        bytes[SECRET_BYTES..].copy_from_slice(&tag.as_ref()[..ENDPOINT_TAG_BYTES]);
        Ok(URL_SAFE_NO_PAD.encode(bytes))
    }

    /// The hash that identifies it in the store. None if it was never issued.
    pub(crate) fn endpoint(&self, token: &str) -> Option<EndpointHash> {
        let mut bytes = [0; SECRET_BYTES + ENDPOINT_TAG_BYTES];
        read(token, &mut bytes)?;
        let (secret, tag) = bytes.split_at(SECRET_BYTES);
        self.verify(b"endpoint", secret, tag)?;
        digest(&SHA256, secret).as_ref().try_into().ok().map(EndpointHash)
    }

    pub(crate) fn message(&self, permit: Permit, app: AppId, id: NotificationId) -> String {
        let mut bytes = [0; MESSAGE_BYTES + MESSAGE_TAG_BYTES];
        bytes[..4].copy_from_slice(&app.0.to_be_bytes());
        bytes[4..MESSAGE_BYTES].copy_from_slice(id.as_bytes());
        let tag = self.tag(permit.purpose(), &bytes[..MESSAGE_BYTES]);
        bytes[MESSAGE_BYTES..].copy_from_slice(&tag.as_ref()[..MESSAGE_TAG_BYTES]);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The message of a URL with this permit.
    pub(crate) fn message_of(&self, permit: Permit, token: &str) -> Option<(AppId, NotificationId)> {
        let mut bytes = [0; MESSAGE_BYTES + MESSAGE_TAG_BYTES];
        read(token, &mut bytes)?;
        let (named, tag) = bytes.split_at(MESSAGE_BYTES);
        self.verify(permit.purpose(), named, tag)?;
        let (app, id) = named.split_first_chunk::<4>()?;
        Some((AppId(u32::from_be_bytes(*app)), NotificationId::from_bytes(id.try_into().ok()?)))
    }

    fn tag(&self, purpose: &[u8], bytes: &[u8]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(purpose);
        // No purpose is a prefix of another.
        context.update(&[0]);
        context.update(bytes);
        context.sign()
    }

    /// Constant-time comparison, so that timing reveals nothing.
    fn verify(&self, purpose: &[u8], bytes: &[u8], tag: &[u8]) -> Option<()> {
        let expected = self.tag(purpose, bytes);
        let pairs = expected.as_ref().iter().zip(tag);
        (pairs.fold(0, |differs, (a, b)| differs | (a ^ b)) == 0).then_some(())
    }
}

impl Permit {
    fn purpose(self) -> &'static [u8] {
        match self {
            Permit::Cancel => b"message",
            Permit::Receipt => b"receipt",
        }
    }
}

/// Decodes to exactly N bytes.
fn read(token: &str, bytes: &mut [u8]) -> Option<()> {
    // Three bytes are four characters.
    if token.len() != (bytes.len() * 4).div_ceil(3) {
        return None;
    }
    let count = URL_SAFE_NO_PAD.decode_slice(token, bytes).ok()?;
    (count == bytes.len()).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(token: &str, at: usize) -> String {
        let mut bytes = token.as_bytes().to_vec();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        String::from_utf8(bytes).expect("ASCII")
    }

    #[test]
    fn an_endpoint_is_recognized_by_its_tag() {
        let random = ring::rand::SystemRandom::new();
        let ours = Capabilities::new(&[7; 32]);
        let token = ours.draw_endpoint(&random).expect("randomness");
        assert_eq!(token.len(), 43);
        let hash = ours.endpoint(&token).expect("ours");
        assert_ne!(ours.endpoint(&ours.draw_endpoint(&random).expect("randomness")), Some(hash));
        assert_eq!(Capabilities::new(&[8; 32]).endpoint(&token), None, "of another cell");
        for at in [0, 20, 41] {
            assert_eq!(ours.endpoint(&changed(&token, at)), None, "changed at {at}");
        }
        for wrong in ["", "x", &token[1..], &format!("{token}A"), &format!("{}+", &token[1..])] {
            assert_eq!(ours.endpoint(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_url_permits_one_action() {
        let (ours, id) = (Capabilities::new(&[7; 32]), NotificationId::from_bytes([9; 16]));
        for (permit, other) in [(Permit::Cancel, Permit::Receipt), (Permit::Receipt, Permit::Cancel)] {
            let token = ours.message(permit, AppId(3), id);
            assert_eq!(ours.message_of(permit, &token), Some((AppId(3), id)));
            assert_eq!(ours.message_of(other, &token), None);
            assert_eq!(ours.endpoint(&token), None);
            for at in [0, 5, 30, 47] {
                assert_eq!(ours.message_of(permit, &changed(&token, at)), None, "changed at {at}");
            }
        }
    }
}
