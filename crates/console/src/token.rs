//! Random tokens, and tickets that the server signs instead of storing them.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use noroshi_store::TokenHash;
use noroshi_types::{PersonId, Timestamp};
use ring::rand::{SecureRandom, SystemRandom};
use ring::{digest, hmac};

const TOKEN_BYTES: usize = 32;
/// Of a session token, in base64url.
pub const SESSION_TOKEN_CHARS: usize = 43;

pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).expect("the system has randomness");
    bytes
}

/// A token of 256 bits in base64url, and what the store keeps of it.
pub(crate) fn fresh() -> (String, TokenHash) {
    let text = URL_SAFE_NO_PAD.encode(random::<TOKEN_BYTES>());
    let hash = hash(&text);
    (text, hash)
}

pub(crate) fn hash(token: &str) -> TokenHash {
    sha256(&[token.as_bytes()])
}

/// For a key of exactly this length.
pub(crate) fn hash_of(bytes: &[u8]) -> [u8; 32] {
    sha256(&[bytes])
}

fn sha256(parts: &[&[u8]]) -> TokenHash {
    let mut context = digest::Context::new(&digest::SHA256);
    parts.iter().for_each(|part| context.update(part));
    context.finish().as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// The value that requests of a session must repeat in a header. A page of another origin cannot know it, and the session
/// token cannot be computed from it.
pub fn csrf_of(session_token: &str) -> String {
    URL_SAFE_NO_PAD.encode(sha256(&[b"noroshi csrf\0", session_token.as_bytes()]))
}

/// Signs tickets: a person has proved their password, and still owes a code.
pub(crate) struct Tickets(hmac::Key);

impl Tickets {
    pub(crate) fn new(key: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, key))
    }

    /// `password` is the stored hash: the ticket ends when the password changes.
    pub(crate) fn issue(&self, person: PersonId, password: Option<&str>, expires_at: Timestamp) -> String {
        let numbers = [person.0.to_be_bytes(), expires_at.0.to_be_bytes()].concat();
        let payload = [&*numbers, &of_password(password)].concat();
        let tag = hmac::sign(&self.0, &payload);
        URL_SAFE_NO_PAD.encode([&payload, tag.as_ref()].concat())
    }

    pub(crate) fn open(&self, ticket: &str, now: Timestamp) -> Option<Ticket> {
        let bytes = URL_SAFE_NO_PAD.decode(ticket).ok()?;
        let (payload, tag) = bytes.split_first_chunk::<{ 16 + size_of::<TokenHash>() }>()?;
        hmac::verify(&self.0, payload, tag).ok()?;
        let (person, rest) = payload.split_first_chunk::<8>()?;
        let (expires_at, password) = rest.split_first_chunk::<8>()?;
        let ticket =
            Ticket { person: PersonId(u64::from_be_bytes(*person)), password: password.try_into().ok()? };
        (u64::from_be_bytes(*expires_at) > now.0).then_some(ticket)
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) person: PersonId,
    password: TokenHash,
}

impl Ticket {
    /// Whether the person still has the password that they proved.
    pub(crate) fn is_for(&self, password: Option<&str>) -> bool {
        self.password == of_password(password)
    }
}

fn of_password(hash: Option<&str>) -> TokenHash {
    sha256(&[b"noroshi password\0", hash.unwrap_or_default().as_bytes()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_random_and_has_its_length() {
        let (first, second) = (fresh(), fresh());
        assert_ne!(first, second);
        assert_eq!(first.0.len(), SESSION_TOKEN_CHARS);
        assert_eq!(hash(&first.0), first.1);
        assert_ne!(csrf_of(&first.0), csrf_of(&second.0));
    }

    #[test]
    fn a_changed_or_expired_ticket_is_refused() {
        let tickets = Tickets::new(&[7; 32]);
        let ticket = tickets.issue(PersonId(9), Some("one"), Timestamp(100));
        let opened = tickets.open(&ticket, Timestamp(99)).expect("valid");
        assert_eq!(opened.person, PersonId(9));
        assert!(opened.is_for(Some("one")) && !opened.is_for(Some("two")) && !opened.is_for(None));
        assert_eq!(tickets.open(&ticket, Timestamp(100)), None);
        assert_eq!(Tickets::new(&[8; 32]).open(&ticket, Timestamp(0)), None);
        for at in 0..ticket.len() {
            let mut bytes = ticket.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(bytes).expect("ASCII");
            assert_eq!(tickets.open(&changed, Timestamp(0)), None, "byte {at}");
        }
        assert_eq!(tickets.open("", Timestamp(0)), None);
    }
}
