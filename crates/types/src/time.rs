//! Points in time and lifetimes. There is no clock here: callers pass the time.

use std::fmt;
use std::time::Duration;

use crate::{Invalid, limits};

/// Milliseconds since 1970-01-01T00:00:00Z; displayed as RFC 3339 in UTC with milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(pub u64);

impl Timestamp {
    pub fn saturating_add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }

    /// Parses an RFC 3339 time; `None` if it is before 1970.
    pub fn parse(text: &str) -> Option<Self> {
        let time: jiff::Timestamp = text.parse().ok()?;
        u64::try_from(time.as_millisecond()).ok().map(Self)
    }

    pub fn saturating_since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = i64::try_from(self.0)
            .ok()
            .and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok())
            .unwrap_or(jiff::Timestamp::MAX);
        write!(f, "{time:.3}")
    }
}

/// A day in UTC, as days since 1970. Shown as `2026-11-27`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct UtcDay(pub u32);

impl UtcDay {
    const MS: u64 = 86_400_000;

    pub fn of(time: Timestamp) -> Self {
        Self(u32::try_from(time.0 / Self::MS).unwrap_or(u32::MAX))
    }
}

impl fmt::Display for UtcDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let midnight = Timestamp(u64::from(self.0) * Self::MS).to_string();
        f.write_str(midnight.split('T').next().unwrap_or_default())
    }
}

/// How long a notification may be delivered: 0 (now or never) to 28 days (RFC 8030 §5.2; also FCM's maximum).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ttl(Duration);

impl Ttl {
    pub fn new(duration: Duration) -> Result<Self, Invalid> {
        match duration <= limits::TTL_MAX {
            true => Ok(Self(duration)),
            false => Err(Invalid::new("a ttl must be at most 28 days (\"28d\")")),
        }
    }

    pub fn duration(self) -> Duration {
        self.0
    }
}

impl Default for Ttl {
    fn default() -> Self {
        Self(limits::TTL_DEFAULT)
    }
}

/// Parses `"90s"`, `"250ms"`, `"10m"`, `"24h"`, `"7d"` or a plain number of seconds.
pub fn parse_duration(text: &str) -> Result<Duration, Invalid> {
    let wrong = || {
        Invalid::new(
            "a duration must be a whole number with a unit: \"250ms\", \"90s\", \"10m\", \"24h\" or \"7d\"",
        )
    };
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let unit_ms = match unit {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    number.checked_mul(unit_ms).map(Duration::from_millis).ok_or_else(wrong)
}

/// Formats a duration for [`parse_duration`], in the largest unit that is exact.
pub fn format_duration(duration: Duration) -> String {
    let ms = duration.as_millis();
    for (unit, unit_ms) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)] {
        if ms != 0 && ms.is_multiple_of(unit_ms) {
            return format!("{}{unit}", ms / unit_ms);
        }
    }
    format!("{ms}ms")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_shown_as_a_date() {
        let day = |text: &str| UtcDay::of(Timestamp::parse(text).expect("a time"));
        assert_eq!(day("2026-11-27T00:00:00Z"), day("2026-11-27T23:59:59.999Z"));
        assert_eq!(day("2026-11-28T08:59:59+09:00").to_string(), "2026-11-27");
        assert_eq!(UtcDay(0).to_string(), "1970-01-01");
        assert_eq!(UtcDay::of(Timestamp(u64::MAX)).to_string(), "9999-12-30");
    }

    #[test]
    fn durations_have_units() {
        let check =
            |text: &str, ms: u64| assert_eq!(parse_duration(text), Ok(Duration::from_millis(ms)), "{text}");
        check("250ms", 250);
        check("90s", 90_000);
        check("90", 90_000);
        check("10m", 600_000);
        check("24h", 86_400_000);
        check("7d", 604_800_000);
        for bad in ["", "s", "-1s", "1.5h", "1 h", "1y", "99999999999999999999s", "18446744073709551615d"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations_round_trip() {
        for text in ["250ms", "90s", "10m", "36h", "7d", "0ms"] {
            assert_eq!(parse_duration(text).map(format_duration), Ok(text.to_owned()));
        }
    }

    #[test]
    fn timestamps_are_rfc_3339() {
        assert_eq!(Timestamp(1_700_000_000_123).to_string(), "2023-11-14T22:13:20.123Z");
        assert_eq!(Timestamp(0).to_string(), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn ttl_has_a_maximum() {
        assert!(Ttl::new(Duration::ZERO).is_ok());
        assert!(Ttl::new(limits::TTL_MAX).is_ok());
        assert!(Ttl::new(limits::TTL_MAX + Duration::from_secs(1)).is_err());
    }
}
