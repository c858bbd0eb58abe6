//! The server side of SCRAM (RFC 5802, RFC 7677): two messages in, two out. The password is needed only if no
//! derived keys are stored; deriving them takes 4,096 rounds, about a millisecond.
//!
//! User names and passwords are compared byte by byte: tokens are ASCII, which SASLprep does not change.

use std::num::NonZeroU32;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::{digest, hmac, pbkdf2};

/// The minimum of RFC 7677 §4.
pub const ITERATIONS: u32 = 4_096;
/// The number of random bytes, encoded as base64.
pub const NONCE_BYTES: usize = 18;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hash {
    Sha1,
    Sha256,
}

impl Hash {
    fn digest(self, bytes: &[u8]) -> digest::Digest {
        let algorithm = match self {
            Hash::Sha1 => &digest::SHA1_FOR_LEGACY_USE_ONLY,
            Hash::Sha256 => &digest::SHA256,
        };
        digest::digest(algorithm, bytes)
    }

    fn hmac(self, key: &[u8], bytes: &[u8]) -> hmac::Tag {
        let algorithm = match self {
            Hash::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            Hash::Sha256 => hmac::HMAC_SHA256,
        };
        hmac::sign(&hmac::Key::new(algorithm, key), bytes)
    }

    fn output_bytes(self) -> usize {
        match self {
            Hash::Sha1 => digest::SHA1_OUTPUT_LEN,
            Hash::Sha256 => digest::SHA256_OUTPUT_LEN,
        }
    }
}

/// The keys that a server derives from a password (RFC 5802 §3).
#[derive(Clone, PartialEq, Eq)]
pub struct Keys {
    pub salt: Box<[u8]>,
    pub iterations: NonZeroU32,
    pub stored_key: Box<[u8]>,
    pub server_key: Box<[u8]>,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Keys(…)")
    }
}

impl Keys {
    pub fn derive(hash: Hash, password: &str, salt: &[u8], iterations: NonZeroU32) -> Self {
        let algorithm = match hash {
            Hash::Sha1 => pbkdf2::PBKDF2_HMAC_SHA1,
            Hash::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
        };
        let mut salted = vec![0; hash.output_bytes()];
        pbkdf2::derive(algorithm, iterations, salt, password.as_bytes(), &mut salted);
        let client_key = hash.hmac(&salted, b"Client Key");
        Self {
            salt: salt.into(),
            iterations,
            stored_key: hash.digest(client_key.as_ref()).as_ref().into(),
            server_key: hash.hmac(&salted, b"Server Key").as_ref().into(),
        }
    }
}

/// Why an exchange fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScramError {
    #[error("malformed SCRAM message: {0}")]
    Malformed(&'static str),
    #[error("the channel binding does not match the connection")]
    ChannelBinding,
    #[error("the proof is wrong")]
    Proof,
}

use ScramError::Malformed;

/// The parsed first message of the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientFirst {
    /// With `=2C` and `=3D` unescaped.
    pub user: Box<str>,
    pub authorize_as: Option<Box<str>>,
    bare: Box<str>,
    gs2: Box<str>,
    nonce: Box<str>,
}

impl ClientFirst {
    pub fn parse(text: &str) -> Result<Self, ScramError> {
        let (flag, rest) = text.split_once(',').ok_or(Malformed("the GS2 header is missing"))?;
        let (authorize_as, bare) = rest.split_once(',').ok_or(Malformed("the GS2 header is missing"))?;
        // RFC 5802 §6: whether the client supports channel binding or not, none is offered.
        if !matches!(flag, "n" | "y") {
            return Err(Malformed("the GS2 flag does not fit the mechanism"));
        }
        let authorize_as = match authorize_as {
            "" => None,
            name => {
                Some(sasl_name(name.strip_prefix("a=").ok_or(Malformed("invalid authorization identity"))?)?)
            }
        };
        let mut fields = bare.split(',');
        // RFC 5802 §5.1: `m=` requests an extension; none is supported.
        let user = fields
            .next()
            .and_then(|field| field.strip_prefix("n="))
            .ok_or(Malformed("the user name is missing"))?;
        let nonce = fields
            .next()
            .and_then(|field| field.strip_prefix("r="))
            .ok_or(Malformed("the nonce is missing"))?;
        let is_printable = |byte: u8| (0x21..=0x7E).contains(&byte) && byte != b',';
        if nonce.is_empty() || nonce.len() > 256 || !nonce.bytes().all(is_printable) {
            return Err(Malformed("invalid nonce"));
        }
        let gs2 = &text[..text.len() - bare.len()];
        Ok(Self {
            user: sasl_name(user)?,
            authorize_as,
            bare: bare.into(),
            gs2: gs2.into(),
            nonce: nonce.into(),
        })
    }
}

/// RFC 5802 §5.1.
fn sasl_name(text: &str) -> Result<Box<str>, ScramError> {
    let mut parts = text.split('=');
    let mut name = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (c, rest) = match (part.strip_prefix("2C"), part.strip_prefix("3D")) {
            (Some(rest), _) => (',', rest),
            (_, Some(rest)) => ('=', rest),
            _ => return Err(Malformed("invalid '=' escape")),
        };
        name.push(c);
        name.push_str(rest);
    }
    if name.is_empty() { Err(Malformed("the name is empty")) } else { Ok(name.into()) }
}

/// The state between the server's first message and the client's final one.
pub struct Exchange {
    hash: Hash,
    keys: Keys,
    /// The GS2 header, which `c=` must repeat.
    gs2: Box<str>,
    nonce: Box<str>,
    /// `client-first-message-bare,server-first-message`
    auth_message: Box<str>,
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Exchange(…)")
    }
}

impl Exchange {
    /// Starts an exchange. Returns it with the server's first message.
    pub fn begin(hash: Hash, first: &ClientFirst, keys: Keys, random: [u8; NONCE_BYTES]) -> (Self, String) {
        let nonce = format!("{}{}", first.nonce, STANDARD.encode(random));
        let server_first = format!("r={nonce},s={},i={}", STANDARD.encode(&keys.salt), keys.iterations);
        let exchange = Self {
            hash,
            keys,
            gs2: first.gs2.clone(),
            nonce: nonce.into(),
            auth_message: format!("{},{server_first}", first.bare).into(),
        };
        (exchange, server_first)
    }

    /// Verifies the client's final message. Returns the server's, which proves that the server knows the
    /// keys.
    pub fn finish(self, text: &str) -> Result<String, ScramError> {
        let (without_proof, proof) = text.rsplit_once(",p=").ok_or(Malformed("the proof is missing"))?;
        let mut fields = without_proof.split(',');
        let binding = fields
            .next()
            .and_then(|field| field.strip_prefix("c="))
            .ok_or(Malformed("the channel binding is missing"))?;
        let nonce = fields
            .next()
            .and_then(|field| field.strip_prefix("r="))
            .ok_or(Malformed("the nonce is missing"))?;
        let binding = STANDARD.decode(binding).map_err(|_| Malformed("the channel binding is not base64"))?;
        if binding != self.gs2.as_bytes() {
            return Err(ScramError::ChannelBinding);
        }
        if nonce != &*self.nonce {
            return Err(Malformed("the nonce belongs to another exchange"));
        }
        let mut client_key = STANDARD.decode(proof).map_err(|_| Malformed("the proof is not base64"))?;
        let auth_message = format!("{},{without_proof}", self.auth_message);
        let signature = self.hash.hmac(&self.keys.stored_key, auth_message.as_bytes());
        if client_key.len() != signature.as_ref().len() {
            return Err(ScramError::Proof);
        }
        for (byte, mask) in client_key.iter_mut().zip(signature.as_ref()) {
            *byte ^= mask;
        }
        if !constant_time_eq(self.hash.digest(&client_key).as_ref(), &self.keys.stored_key) {
            return Err(ScramError::Proof);
        }
        let signature = self.hash.hmac(&self.keys.server_key, auth_message.as_bytes());
        Ok(format!("v={}", STANDARD.encode(signature)))
    }
}

/// Compares in constant time.
fn constant_time_eq(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len() && left.iter().zip(right).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const PENCIL_SHA1: (&str, &str) = ("QSXCR+Q6sek8bf92", "3rfcNHYJY1ZVvWVs7j");
    const PENCIL_SHA256: (&str, &str) = ("W22ZaJ0SNY7soEsUEjb6gQ==", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0");

    /// The RFC's examples have a server nonce that is not base64, so the exchange is constructed manually.
    fn exchange(hash: Hash, first: &ClientFirst, (salt, nonce): (&str, &str)) -> (Exchange, String) {
        let salt = STANDARD.decode(salt).unwrap();
        let keys = Keys::derive(hash, "pencil", &salt, NonZeroU32::new(4_096).unwrap());
        let (mut exchange, first_message) = Exchange::begin(hash, first, keys, [0; NONCE_BYTES]);
        let ours = STANDARD.encode([0; NONCE_BYTES]);
        let server_first = first_message.replace(&ours, nonce);
        exchange.nonce = exchange.nonce.replace(&ours, nonce).into();
        exchange.auth_message = exchange.auth_message.replace(&ours, nonce).into();
        (exchange, server_first)
    }

    #[test]
    fn rfc_5802_section_5() {
        let first = ClientFirst::parse("n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL").unwrap();
        let (exchange, server_first) = exchange(Hash::Sha1, &first, PENCIL_SHA1);
        assert_eq!(server_first, "r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096");
        let last = "c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=";
        assert_eq!(exchange.finish(last).unwrap(), "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=");
    }

    #[test]
    fn rfc_7677_section_3() {
        let first = ClientFirst::parse("n,,n=user,r=rOprNGfwEbeRWgbNEkqO").unwrap();
        let (exchange, server_first) = exchange(Hash::Sha256, &first, PENCIL_SHA256);
        let nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        assert_eq!(server_first, format!("r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"));
        let last = format!("c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=");
        assert_eq!(exchange.finish(&last).unwrap(), "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
    }

    #[test]
    fn wrong_proof_binding_and_nonce_are_distinguished() {
        let first = ClientFirst::parse("n,,n=user,r=rOprNGfwEbeRWgbNEkqO").unwrap();
        let nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        let check = |last: &str, expected: ScramError| {
            let (exchange, _) = exchange(Hash::Sha256, &first, PENCIL_SHA256);
            assert_eq!(exchange.finish(last), Err(expected), "{last}");
        };
        check(&format!("c=biws,r={nonce},p={}", STANDARD.encode([0; 32])), ScramError::Proof);
        check(&format!("c=biws,r={nonce},p="), ScramError::Proof);
        check(&format!("c=eSws,r={nonce},p={proof}"), ScramError::ChannelBinding);
        check(&format!("c=biws,r={nonce}x,p={proof}"), Malformed("the nonce belongs to another exchange"));
        check(&format!("c=biws,r={nonce}"), Malformed("the proof is missing"));
        check("", Malformed("the proof is missing"));
    }

    #[test]
    fn first_message_is_parsed_strictly() {
        let parse = |text: &str| ClientFirst::parse(text);
        let first = parse("n,a=other,n=a=2Cb=3Dc,r=x,ext=1").unwrap();
        assert_eq!((&*first.user, first.authorize_as.as_deref()), ("a,b=c", Some("other")));
        for bad in [
            "",
            "n",
            "n,",
            "n,,",
            "n,,n=u",
            "n,,n=,r=x",
            "n,,n=u,r=",
            "n,,m=ext,n=u,r=x",
            "n,,n=u=,r=x",
            "n,,n=u=2D,r=x",
            "n,b=c,n=u,r=x",
            "x,,n=u,r=x",
            "p=tls-unique,,n=u,r=x",
            "n,,n=u,r=a b",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
