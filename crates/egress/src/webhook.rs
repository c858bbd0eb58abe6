//! Signatures of outgoing requests by Standard Webhooks (<https://www.standardwebhooks.com>, version 1), so that its
//! libraries can verify them. The event log, topic rules and push providers sign with it.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

const SECRET_PREFIX: &str = "whsec_";

/// The rule for a secret, for errors.
pub const SECRET_RULE: &str = "must be \"whsec_\" and 24 to 64 bytes in base64, such as the output of `echo whsec_$(openssl rand -base64 32)`";

/// Reads a secret. The error is the rule that it breaks.
pub fn secret(text: &str) -> Result<Vec<u8>, &'static str> {
    let bytes = text.strip_prefix(SECRET_PREFIX).and_then(|text| BASE64_STANDARD.decode(text).ok());
    bytes.filter(|bytes| (24..=64).contains(&bytes.len())).ok_or(SECRET_RULE)
}

/// The text that [`secret`] reads.
pub fn secret_text(secret: &[u8]) -> String {
    format!("{SECRET_PREFIX}{}", BASE64_STANDARD.encode(secret))
}

/// The value of `webhook-signature` for a body. While a secret is being replaced, a request has one signature for each,
/// separated by a space.
pub fn signature(key: &ring::hmac::Key, id: &str, timestamp: u64, body: &[u8]) -> String {
    let mut context = ring::hmac::Context::with_key(key);
    // "{webhook-id}.{webhook-timestamp}.{body}"
    context.update(format!("{id}.{timestamp}.").as_bytes());
    context.update(body);
    format!("v1,{}", BASE64_STANDARD.encode(context.sign()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification (section "Verifying webhook authenticity" of its libraries' tests).
    #[test]
    fn the_signature_follows_standard_webhooks() {
        let secret = secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("a secret");
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &secret);
        let body = br#"{"test": 2432232314}"#;
        assert_eq!(
            signature(&key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body),
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
        );
    }

    #[test]
    fn a_secret_has_a_prefix_and_24_to_64_bytes() {
        for bytes in [24, 64] {
            let text = secret_text(&vec![7; bytes]);
            assert_eq!(secret(&text), Ok(vec![7; bytes]));
        }
        let without_prefix = BASE64_STANDARD.encode([7; 32]);
        for text in ["", "whsec_", "whsec_!", &without_prefix, &secret_text(&[7; 23]), &secret_text(&[7; 65])]
        {
            assert_eq!(secret(text), Err(SECRET_RULE), "{text}");
        }
    }
}
