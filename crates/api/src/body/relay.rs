//! A line of `POST /v1/notifications/relay`: a notification that a front accepted, with its key, the time at which it expires,
//! and its trace.

use noroshi_types::{Request, Timestamp, TraceContext, Ttl, limits};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Limits, notification};
use crate::error::Problem;
use crate::json::{self, Line, Text};

/// A notification that a front accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relayed {
    /// Idempotency key of this line.
    pub key: Box<str>,
    /// Its ttl and `push.after` are shortened to the remaining time.
    pub request: Request,
    /// The line without its trace, if it has one. Both forms are the same request.
    pub untraced: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RelayBody<'a> {
    key: Text<Line<{ limits::IDEMPOTENCY_KEY_BYTES_MAX }>>,
    expires_at_ms: u64,
    /// Written by a front, not by a provider's library. Unlike the header, an invalid value is an error.
    traceparent: Option<Text<TraceContext>>,
    #[serde(borrow)]
    notification: &'a RawValue,
}

/// Parses one line. An expired notification gets a ttl of 0: it is delivered at once or never.
pub fn relayed(bytes: &[u8], limits: &Limits, now: Timestamp) -> Result<Relayed, Problem> {
    let body: RelayBody<'_> = json::parse(bytes)?;
    let mut request = notification(body.notification.get().as_bytes(), limits, now)?;
    // A slow clock must not extend the ttl.
    let left = Timestamp(body.expires_at_ms).saturating_since(now).min(request.ttl.duration());
    request.ttl = Ttl::new(left).map_err(|invalid| Problem::field("expires_at_ms", invalid.0))?;
    request.push.after = request.push.after.min(left);
    request.trace = body.traceparent.map(|Text(trace)| trace);
    let Text(Line(key)) = body.key;
    let untraced = request.trace.map(|_| {
        let (quoted, notification) = (serde_json::Value::from(&*key), body.notification);
        let expires_at = body.expires_at_ms;
        format!("{{\"key\":{quoted},\"expires_at_ms\":{expires_at},\"notification\":{notification}}}")
    });
    Ok(Relayed { key: key.into(), request, untraced })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;
    use std::time::Duration;

    fn read(line: &str) -> Result<Relayed, Problem> {
        relayed(line.as_bytes(), &Limits::default(), Timestamp(1_000_000))
    }

    #[test]
    fn the_ttl_is_the_remaining_time() {
        let check = |expires_at_ms: u64, ttl: &str, left: u64| {
            let line = format!(
                r#"{{"key": "f1", "expires_at_ms": {expires_at_ms}, "notification":
                    {{"to": {{"topic": "t"}}, "data": 1, "ttl": "{ttl}", "push": {{"mode": "fallback", "after": "9s"}}}}}}"#
            );
            let found = read(&line).expect(&line);
            assert_eq!(&*found.key, "f1");
            assert_eq!(found.request.ttl.duration(), Duration::from_millis(left), "{line}");
            assert_eq!(found.request.push.after, Duration::from_millis(left.min(9_000)), "{line}");
        };
        check(1_060_000, "100s", 60_000);
        check(1_004_000, "100s", 4_000);
        check(9_000_000, "100s", 100_000);
        check(1_000_000, "100s", 0);
        check(5, "100s", 0);
    }

    #[test]
    fn a_line_may_have_a_trace() {
        let line = |traceparent: &str| {
            format!(
                r#"{{"key": "f1", "expires_at_ms": 1060000{traceparent},
                    "notification": {{"to": {{"topic": "t"}}, "data": 1}}}}"#
            )
        };
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let found = read(&line(&format!(r#", "traceparent": "{text}""#))).expect("a line");
        assert_eq!(found.request.trace.expect("a trace").to_string(), text);
        assert_eq!(read(&line("")).expect("a line").request.trace, None);
        let upper = text.to_uppercase();
        for wrong in
            ["", "x", upper.as_str(), &text.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32))]
        {
            let problem = read(&line(&format!(r#", "traceparent": "{wrong}""#))).expect_err(wrong);
            assert_eq!((problem.code(), problem.field_path()), (Code::InvalidField, Some("traceparent")));
        }
    }

    #[test]
    fn a_line_is_parsed_strictly() {
        let check = |line: &str, code: Code| assert_eq!(read(line).expect_err(line).code(), code, "{line}");
        check(
            r#"{"expires_at_ms": 1, "notification": {"to": {"topic": "t"}, "data": 1}}"#,
            Code::InvalidField,
        );
        check(r#"{"key": "", "expires_at_ms": 1, "notification": {}}"#, Code::InvalidField);
        check(r#"{"key": "a", "expires_at_ms": -1, "notification": {}}"#, Code::InvalidField);
        check(
            r#"{"key": "a", "expires_at_ms": 1, "notification": {"to": {"topic": "t"}}}"#,
            Code::InvalidField,
        );
        check(r#"{"key": "a", "expires_at_ms": 1, "notification": {}, "more": 1}"#, Code::UnknownField);
    }
}
