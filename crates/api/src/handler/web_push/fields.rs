//! The headers of a Web Push request (RFC 8030 §5), parsed as strictly as the RFC requires. Pure.

use std::time::Duration;

use http::{HeaderMap, HeaderName, header};
use noroshi_types::{Ttl, Urgency, limits};

use crate::error::Problem;

const TTL: &str = "ttl";
const URGENCY: &str = "urgency";
const TOPIC: &str = "topic";
const PREFER: &str = "prefer";
const ENCRYPTION: &str = "encryption";
const CRYPTO_KEY: &str = "crypto-key";

/// Real values have at most 200 bytes: a few keys and parameters.
const CARRIED_BYTES_MAX: usize = 1_024;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fields {
    /// Limited to the maximum of this service.
    pub(super) ttl: Ttl,
    pub(super) urgency: Urgency,
    pub(super) topic: Option<String>,
    /// The sender asks for a receipt (RFC 8030 §5.1).
    pub(super) receipt: bool,
    pub(super) content_encoding: Option<String>,
    /// For `aesgcm`, the encryption before RFC 8188.
    pub(super) encryption: Option<String>,
    pub(super) crypto_key: Option<String>,
}

impl Fields {
    pub(super) fn read(headers: &HeaderMap) -> Result<Self, Problem> {
        Ok(Self {
            ttl: ttl(one(headers, TTL)?)?,
            urgency: urgency(one(headers, URGENCY)?)?,
            topic: one(headers, TOPIC)?.map(topic).transpose()?,
            receipt: prefers(headers, "respond-async").is_some(),
            content_encoding: carried(headers, header::CONTENT_ENCODING.as_str())?,
            encryption: carried(headers, ENCRYPTION)?,
            crypto_key: carried(headers, CRYPTO_KEY)?,
        })
    }
}

/// The value of a header that may appear once.
pub(super) fn one<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Problem> {
    let mut values = headers.get_all(name).iter();
    let Some(first) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Problem::parameter(name, format!("the header {name} must appear at most once")));
    }
    let text = first.to_str().map_err(|_| Problem::parameter(name, "must be visible ASCII"))?;
    Ok(Some(text.trim()))
}

/// The value of a preference (RFC 7240 §2); empty if it has none.
pub(super) fn prefers<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let values = headers.get_all(HeaderName::from_static(PREFER)).iter();
    let mut preferences = values.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    preferences.find_map(|preference| {
        let preference = preference.split(';').next().unwrap_or_default();
        let (token, value) = preference.split_once('=').unwrap_or((preference, ""));
        token.trim().eq_ignore_ascii_case(name).then(|| value.trim().trim_matches('"'))
    })
}

/// RFC 8030 §5.2: required, in digits. Reduced to the maximum of this service.
fn ttl(value: Option<&str>) -> Result<Ttl, Problem> {
    let rule = "the header TTL is missing: seconds to store the message, 0 to deliver it now or never (RFC 8030 §5.2)";
    let text = value.ok_or_else(|| Problem::parameter(TTL, rule))?;
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Problem::parameter(TTL, "must be a number of seconds, in digits"));
    }
    // Only a number with too many digits fails to parse, which exceeds the limit as well.
    let seconds = text.parse().unwrap_or(u64::MAX).min(limits::TTL_MAX.as_secs());
    Ttl::new(Duration::from_secs(seconds)).map_err(|invalid| Problem::from(invalid).at(TTL))
}

/// RFC 8030 §5.3: one of four values.
fn urgency(value: Option<&str>) -> Result<Urgency, Problem> {
    let Some(text) = value else { return Ok(Urgency::Normal) };
    let found = Urgency::ALL.into_iter().find(|urgency| urgency.as_str().eq_ignore_ascii_case(text));
    found.ok_or_else(|| Problem::parameter(URGENCY, "must be one of very-low, low, normal, high"))
}

/// RFC 8030 §5.4.
fn topic(text: &str) -> Result<String, Problem> {
    let base64url = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    match (1..=limits::WEB_PUSH_TOPIC_BYTES_MAX).contains(&text.len()) && text.bytes().all(base64url) {
        true => Ok(text.to_owned()),
        false => Err(Problem::parameter(TOPIC, "must be 1 to 32 characters of A-Z, a-z, 0-9, - and _")),
    }
}

/// A value that the device needs to decrypt the body. Passed through.
fn carried(headers: &HeaderMap, name: &str) -> Result<Option<String>, Problem> {
    let Some(text) = one(headers, name)?.filter(|text| !text.is_empty()) else { return Ok(None) };
    match text.len() <= CARRIED_BYTES_MAX {
        true => Ok(Some(text.to_owned())),
        false => Err(Problem::parameter(name, format!("must be at most {CARRIED_BYTES_MAX} bytes long"))),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn valid_headers_are_parsed() {
        let seconds = |text| {
            let fields = Fields::read(&headers(&[("ttl", text)])).expect(text);
            fields.ttl.duration().as_secs()
        };
        assert_eq!((seconds("0"), seconds("00060"), seconds("2419200")), (0, 60, 2_419_200));
        assert_eq!((seconds("2419201"), seconds("99999999999999999999999")), (2_419_200, 2_419_200));
        let full = headers(&[
            ("ttl", "60"),
            ("urgency", "very-low"),
            ("topic", "upd_-9"),
            ("prefer", "wait=5, Respond-Async; x=y"),
            ("content-encoding", "aesgcm"),
            ("encryption", "salt=abc"),
            ("crypto-key", "dh=def"),
        ]);
        let fields = Fields::read(&full).expect("right");
        assert_eq!(
            (fields.urgency, fields.topic.as_deref(), fields.receipt),
            (Urgency::VeryLow, Some("upd_-9"), true)
        );
        assert_eq!(fields.content_encoding.as_deref(), Some("aesgcm"));
        assert_eq!(
            (fields.encryption.as_deref(), fields.crypto_key.as_deref()),
            (Some("salt=abc"), Some("dh=def"))
        );
        assert_eq!(prefers(&full, "wait"), Some("5"));
        let plain = Fields::read(&headers(&[("ttl", "60")])).expect("right");
        assert_eq!((plain.urgency, plain.topic, plain.receipt), (Urgency::Normal, None, false));
    }

    #[test]
    fn errors_name_the_field() {
        let check = |pairs: &[(&'static str, &'static str)], field: &str| {
            let problem = Fields::read(&headers(pairs)).expect_err(field);
            assert_eq!(problem.field_path(), Some(field), "{pairs:?}");
        };
        check(&[], "ttl");
        for ttl in ["", "-1", "+1", "1.5", "1 2", "soon"] {
            check(&[("ttl", ttl)], "ttl");
        }
        check(&[("ttl", "1"), ("ttl", "2")], "ttl");
        check(&[("ttl", "1"), ("urgency", "asap")], "urgency");
        check(&[("ttl", "1"), ("urgency", "high, low")], "urgency");
        for topic in ["", "a b", "ü", "a/b", "123456789012345678901234567890123"] {
            if let Ok(value) = HeaderValue::from_str(topic) {
                let mut all = headers(&[("ttl", "1")]);
                all.insert("topic", value);
                assert!(Fields::read(&all).is_err(), "{topic}");
            }
        }
        let mut long = headers(&[("ttl", "1")]);
        long.insert("encryption", HeaderValue::from_str(&"x".repeat(1_025)).expect("ASCII"));
        assert!(Fields::read(&long).is_err());
    }
}
