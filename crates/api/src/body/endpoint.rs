//! `POST /v1/me/endpoints`: a new Web Push endpoint of a device.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use noroshi_store::VapidKey;
use noroshi_types::{Invalid, Urgency, limits};
use serde::Deserialize;

use crate::error::Problem;
use crate::json::{self, FromText, Line, Span, Text};

/// A year: longer than any subscription is useful.
const LIFETIME_MAX: Duration = Duration::from_secs(366 * 86_400);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointRequest {
    pub vapid_key: Option<VapidKey>,
    pub label: Option<String>,
    pub idle_urgency: Urgency,
    pub expires_in: Option<Duration>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    vapid_key: Option<Text<Key>>,
    label: Option<Text<Line<{ limits::ENDPOINT_LABEL_BYTES_MAX }>>>,
    idle_urgency: Option<Text<Urgency>>,
    expires_in: Option<Span>,
}

/// Parses a new endpoint.
pub fn endpoint(bytes: &[u8]) -> Result<EndpointRequest, Problem> {
    let body: Body = json::parse(bytes)?;
    let expires_in = body.expires_in.map(|span| span.0);
    if expires_in.is_some_and(|span| span.is_zero() || span > LIFETIME_MAX) {
        return Err(Problem::field("expires_in", "must be 1 s to 366 days, or absent"));
    }
    Ok(EndpointRequest {
        vapid_key: body.vapid_key.map(|key| key.0.0),
        label: body.label.map(|label| label.0.0),
        idle_urgency: body.idle_urgency.map_or(Urgency::Normal, |urgency| urgency.0),
        expires_in,
    })
}

struct Key(VapidKey);

impl FromText for Key {
    const WHAT: &'static str = "a public key (a string)";
    fn from_text(text: &str) -> Result<Self, Invalid> {
        let rule = "must be a VAPID public key: an uncompressed P-256 point of 65 bytes, the first of which is 4, in base64url";
        let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok();
        let key = bytes.and_then(|bytes| VapidKey::try_from(bytes).ok());
        key.filter(|key| key[0] == 4).map(Key).ok_or_else(|| Invalid::new(rule))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_optional_and_checked() {
        let check = |body: &str, field: &str| {
            let problem = endpoint(body.as_bytes()).expect_err(body);
            assert_eq!(problem.field_path(), Some(field), "{body}: {}", problem.detail());
        };
        let plain = endpoint(b"{}").expect("nothing is needed");
        assert_eq!((plain.vapid_key, plain.label, plain.expires_in), (None, None, None));
        assert_eq!(plain.idle_urgency, Urgency::Normal);
        let key = URL_SAFE_NO_PAD.encode([4; 65]);
        let body =
            format!(r#"{{"vapid_key":"{key}","label":"chat","idle_urgency":"very-low","expires_in":"30d"}}"#);
        let full = endpoint(body.as_bytes()).expect("right");
        assert_eq!((full.vapid_key, full.label.as_deref()), (Some([4; 65]), Some("chat")));
        assert_eq!(full.expires_in, Some(Duration::from_secs(30 * 86_400)));
        check(&format!(r#"{{"vapid_key":"{}"}}"#, URL_SAFE_NO_PAD.encode([2; 65])), "vapid_key");
        check(&format!(r#"{{"vapid_key":"{}"}}"#, URL_SAFE_NO_PAD.encode([4; 64])), "vapid_key");
        check(r#"{"vapid_key":"***"}"#, "vapid_key");
        check(r#"{"label":""}"#, "label");
        check(&format!(r#"{{"label":"{}"}}"#, "x".repeat(256)), "label");
        check(r#"{"idle_urgency":"urgent"}"#, "idle_urgency");
        check(r#"{"expires_in":0}"#, "expires_in");
        check(r#"{"expires_in":"367d"}"#, "expires_in");
        check(r#"{"url":"x"}"#, "url");
    }
}
