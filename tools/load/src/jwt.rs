//! Signs device credentials like an app's login service: JWTs with HS256 (RFC 7515, RFC 7519). The service
//! creates a device at its first log-in.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use serde::{Deserialize, Serialize};

/// Longer than any measurement.
const LIFETIME_SECONDS: u64 = 24 * 3_600;

#[derive(Serialize)]
struct Claims<'a> {
    sub: &'a str,
    device: &'a str,
    aud: &'a str,
    exp: u64,
}

/// Signs tokens for one app.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Signer {
    secret: String,
    app: String,
}

impl Signer {
    pub(crate) fn new(secret: &str, app: &str) -> Self {
        Self { secret: secret.to_owned(), app: app.to_owned() }
    }

    /// A token for a device and a user with the same name.
    pub(crate) fn token(&self, name: &str, now_unix_seconds: u64) -> String {
        let exp = now_unix_seconds + LIFETIME_SECONDS;
        let claims = Claims { sub: name, device: name, aud: &self.app, exp };
        let claims = serde_json::to_string(&claims).expect("four plain fields are JSON");
        sign(self.secret.as_bytes(), r#"{"alg":"HS256","typ":"JWT"}"#, &claims)
    }
}

/// RFC 7515 §3.1: the compact form.
fn sign(secret: &[u8], header: &str, claims: &str) -> String {
    let mut token = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), token.as_bytes());
    token.push('.');
    URL_SAFE_NO_PAD.encode_string(signature, &mut token);
    token
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_the_vector_of_rfc_7515() {
        // RFC 7515 §A.1: the key is given in base64url, header and claims with their line breaks.
        let key = URL_SAFE_NO_PAD
            .decode("AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow")
            .unwrap();
        let token = sign(
            &key,
            "{\"typ\":\"JWT\",\r\n \"alg\":\"HS256\"}",
            "{\"iss\":\"joe\",\r\n \"exp\":1300819380,\r\n \"http://example.com/is_root\":true}",
        );
        assert_eq!(
            token,
            "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.\
             eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.\
             dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
        );
    }

    #[test]
    fn token_names_user_device_app_and_expiry() {
        let token = Signer::new("s", "dev").token("bench-7", 1_000);
        let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
        let claims: serde_json::Value = serde_json::from_slice(&claims).unwrap();
        assert_eq!(claims["sub"], "bench-7");
        assert_eq!(claims["device"], "bench-7");
        assert_eq!(claims["aud"], "dev");
        assert_eq!(claims["exp"], 1_000 + LIFETIME_SECONDS);
    }
}
