//! Attempts at pushes in the API's form.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use noroshi_delivery::push::record::{self, RecordedAttempt};
use noroshi_types::DeviceNum;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

#[derive(Serialize)]
pub(crate) struct AttemptBody {
    sent_at: String,
    took_ms: f64,
    url: String,
    headers: BTreeMap<String, String>,
    body: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<ResponseBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Serialize)]
struct ResponseBody {
    status: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<Box<RawValue>>,
}

#[derive(Serialize)]
struct Encoded {
    base64: String,
}

/// The attempts at a device, oldest first. A row that this version cannot read is left out.
pub(crate) fn attempts(rows: &[Vec<u8>], device: DeviceNum) -> Vec<AttemptBody> {
    let mut attempts = Vec::new();
    for row in rows {
        match record::decode(row, device) {
            Ok(recorded) => attempts.extend(recorded),
            Err(error) => tracing::warn!(error, "a record of pushes cannot be read"),
        }
    }
    attempts.sort_by_key(|attempt| attempt.sent_at);
    attempts.into_iter().map(AttemptBody::from).collect()
}

impl From<RecordedAttempt> for AttemptBody {
    fn from(attempt: RecordedAttempt) -> Self {
        let RecordedAttempt { sent_at, took, url, headers, body, response, reason } = attempt;
        let response = response
            .map(|(status, body)| ResponseBody { status, body: (!body.is_empty()).then(|| content(body)) });
        let took_ms = took.as_micros() as f64 / 1_000.0;
        Self { sent_at: sent_at.to_string(), took_ms, url, headers, body: content(body), response, reason }
    }
}

/// JSON as it is, other text as a string, and anything else in base64.
fn content(bytes: Vec<u8>) -> Box<RawValue> {
    let plain = |text: &String| to_raw_value(text).unwrap_or_else(|_| RawValue::NULL.to_owned());
    match String::from_utf8(bytes) {
        Ok(text) => RawValue::from_string(text.clone()).unwrap_or_else(|_| plain(&text)),
        Err(error) => {
            let encoded = Encoded { base64: STANDARD.encode(error.as_bytes()) };
            to_raw_value(&encoded).unwrap_or_else(|_| RawValue::NULL.to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], expected: &str) {
        assert_eq!(content(bytes.to_vec()).get(), expected);
    }

    #[test]
    fn content_is_shown_as_what_it_is() {
        check(br#"{"b":1, "a":2}"#, r#"{"b":1, "a":2}"#);
        check(b"Gone", r#""Gone""#);
        check(b"", r#""""#);
        check(b"\xff\x00", r#"{"base64":"/wA="}"#);
    }
}
