//! IANA time zones, checked against the built-in tz database. Otherwise an unknown name would fail only when a campaign
//! reaches the device.

use std::sync::OnceLock;

use jiff::tz::TimeZoneDatabase;
use noroshi_types::{Invalid, limits};

use crate::json::FromText;

/// The name as in the database: `asia/tokyo` becomes `Asia/Tokyo`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct TimeZone(pub(crate) String);

impl FromText for TimeZone {
    const WHAT: &'static str = "a time zone (a string)";
    fn from_text(text: &str) -> Result<Self, Invalid> {
        static DATABASE: OnceLock<TimeZoneDatabase> = OnceLock::new();
        let unknown = || Invalid::new("unknown time zone; must be an IANA name such as \"Asia/Tokyo\"");
        if text.len() > limits::ATTRIBUTE_BYTES_MAX {
            return Err(unknown());
        }
        let zone = DATABASE.get_or_init(TimeZoneDatabase::bundled).get(text).map_err(|_| unknown())?;
        zone.iana_name().map(|name| Self(name.to_owned())).ok_or_else(unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_zone_must_exist() {
        let check = |text: &str, expected: Option<&str>| {
            let name = TimeZone::from_text(text).ok().map(|zone| zone.0);
            assert_eq!(name.as_deref(), expected, "{text}");
        };
        for name in ["UTC", "Asia/Tokyo", "America/Argentina/Buenos_Aires", "Etc/GMT+9", "US/Pacific"] {
            check(name, Some(name));
        }
        check("asia/tokyo", Some("Asia/Tokyo"));
        for wrong in ["", "Asia/Edo", "Asia//Tokyo", "../etc/passwd", "JST-9", "Etc/Unknown", &"A".repeat(65)]
        {
            check(wrong, None);
        }
    }
}
