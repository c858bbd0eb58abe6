//! The header `Retry-After` (RFC 9110 §10.2.3): seconds or a date.

use std::time::{Duration, SystemTime};

/// A longer wait is not from the service.
const MAX: Duration = Duration::from_secs(3_600);

pub(crate) fn parse(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds).min(MAX));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(now).unwrap_or_default().min(MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_dates() {
        let now = httpdate::parse_http_date("Thu, 01 Jan 2026 00:00:00 GMT").expect("a date");
        let check = |value, seconds: Option<u64>| {
            assert_eq!(parse(value, now), seconds.map(Duration::from_secs), "{value}")
        };
        check("3", Some(3));
        check(" 0 ", Some(0));
        check("86400", Some(3_600));
        check("Thu, 01 Jan 2026 00:00:20 GMT", Some(20));
        check("Wed, 31 Dec 2025 23:59:00 GMT", Some(0));
        check("Fri, 02 Jan 2026 00:00:00 GMT", Some(3_600));
        check("soon", None);
        check("-1", None);
        check("", None);
    }
}
