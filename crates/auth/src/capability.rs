//! Addresses that are permissions: Web Push endpoints, the messages posted to them and their receipts. Whoever knows
//! one may use it (RFC 8030 §8.3), so none can be guessed.
//!
//! All are base64url with a tag by HMAC-SHA256 under a key that the nodes of a cell share. By the tag a node knows
//! without asking the store what was never given out: a flood of guesses costs no read, and of what was given out and
//! is not there any more it can say that it is gone.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use noroshi_store::EndpointHash;
use noroshi_types::{AppId, NotificationId};
use ring::digest::{SHA256, digest};
use ring::hmac;
use ring::rand::SecureRandom;

/// 192 random bits; UnifiedPush asks for 160.
const SECRET_BYTES: usize = 24;
/// Not what protects an endpoint: its secret is.
const ENDPOINT_TAG_BYTES: usize = 8;
/// What protects a message: its id is no secret.
const MESSAGE_TAG_BYTES: usize = 16;
/// App and id.
const MESSAGE_BYTES: usize = 20;

/// What an address of a message permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permit {
    /// To take the message back.
    Cancel,
    /// To be told what became of it.
    Receipt,
}

pub(crate) struct Capabilities(hmac::Key);

impl Capabilities {
    pub(crate) fn new(secret: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// A new endpoint's secret, to be shown once.
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

    /// Under which hash it is kept. None for what was never given out.
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

    /// The message that an address with this permit is of.
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
        // No purpose is the beginning of another one with this behind it.
        context.update(&[0]);
        context.update(bytes);
        context.sign()
    }

    /// Compared in constant time: what differs first is not told.
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

/// Exactly as many bytes as there is room for.
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
    fn an_endpoint_is_known_by_its_tag_alone() {
        let random = ring::rand::SystemRandom::new();
        let ours = Capabilities::new(&[7; 32]);
        let token = ours.draw_endpoint(&random).expect("randomness");
        assert_eq!(token.len(), 43);
        let hash = ours.endpoint(&token).expect("ours");
        assert_ne!(ours.endpoint(&ours.draw_endpoint(&random).expect("randomness")), Some(hash));
        assert_eq!(Capabilities::new(&[8; 32]).endpoint(&token), None, "another cell's");
        for at in [0, 20, 41] {
            assert_eq!(ours.endpoint(&changed(&token, at)), None, "changed at {at}");
        }
        for wrong in ["", "x", &token[1..], &format!("{token}A"), &format!("{}+", &token[1..])] {
            assert_eq!(ours.endpoint(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn an_address_permits_one_thing() {
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
