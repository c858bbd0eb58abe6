//! Hours of a local clock: a time of day, and quiet hours.
//!
//! Pure: the time is an argument, and time zones are built in (`jiff`). Without a zone, or with an unknown one, the clock
//! shows UTC. A local time that a clock change skips moves as much later as the clocks were put forward. Of a local time
//! that occurs twice, the first one that is still ahead counts (RFC 5545 §3.3.5; between the two, the second).

use jiff::civil::{DateTime, Time};
pub use jiff::tz::TimeZone;

use crate::{Invalid, Timestamp};

/// Hours and minutes of a local clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LocalTime(Time);

/// From `from` to `to`, without `to`. Spans midnight if `to` is the earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuietHours {
    pub from: LocalTime,
    pub to: LocalTime,
}

impl LocalTime {
    /// Parses `"09:00"`.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let wrong = || Invalid::new("a local time is hours and minutes, such as \"09:00\" or \"22:30\"");
        let (hour, minute) = text.split_once(':').ok_or_else(wrong)?;
        let number = |text: &str| match text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit()) {
            true => text.parse::<i8>().map_err(|_| wrong()),
            false => Err(wrong()),
        };
        Time::new(number(hour)?, number(minute)?, 0, 0).map(Self).map_err(|_| wrong())
    }
}

impl std::fmt::Display for LocalTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:02}:{:02}", self.0.hour(), self.0.minute())
    }
}

impl QuietHours {
    pub fn new(from: LocalTime, to: LocalTime) -> Result<Self, Invalid> {
        match from == to {
            true => Err(Invalid::new("quiet hours must not end at the time at which they begin")),
            false => Ok(Self { from, to }),
        }
    }

    fn hold(self, time: Time) -> bool {
        let (from, to) = (self.from.0, self.to.0);
        match from < to {
            true => (from..to).contains(&time),
            false => time >= from || time < to,
        }
    }

    /// The end of the quiet hours that contain `now`, if they do.
    pub fn until(self, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let local = local(now, zone);
        self.hold(local.time()).then(|| next(now, self.to, zone))
    }
}

/// The zone of this name.
pub fn zone(name: Option<&str>) -> TimeZone {
    name.and_then(|name| TimeZone::get(name).ok()).unwrap_or(TimeZone::UTC)
}

/// The first moment at or after `start` at which clocks of the zone show `time`.
pub fn next(start: Timestamp, time: LocalTime, zone: &TimeZone) -> Timestamp {
    let mut date = local(start, zone).date();
    // Today, tomorrow, and one more in case a day is skipped (Samoa had no 30 December 2011).
    for _ in 0..3 {
        let moments = zone.to_ambiguous_timestamp(date.to_datetime(time.0));
        for moment in [moments.compatible(), moments.later()] {
            let moment = moment.ok().and_then(|moment| u64::try_from(moment.as_millisecond()).ok());
            if let Some(moment) = moment.map(Timestamp).filter(|moment| *moment >= start) {
                return moment;
            }
        }
        date = date.tomorrow().unwrap_or(date);
    }
    // Reached only at the end of the calendar.
    start
}

/// The day of the zone's calendar, since 1 January 1970; 0 for days before it.
pub fn day(now: Timestamp, zone: &TimeZone) -> u32 {
    let since = local(now, zone).date().since(jiff::civil::date(1970, 1, 1));
    since.ok().and_then(|since| u32::try_from(since.get_days()).ok()).unwrap_or(0)
}

fn local(now: Timestamp, zone: &TimeZone) -> DateTime {
    let now = i64::try_from(now.0).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    zone.to_datetime(now.unwrap_or(jiff::Timestamp::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        let time: jiff::Timestamp = text.parse().expect(text);
        Timestamp(u64::try_from(time.as_millisecond()).expect("after 1970"))
    }

    fn clock(text: &str) -> LocalTime {
        LocalTime::parse(text).expect(text)
    }

    #[test]
    fn a_local_time_is_hours_and_minutes() {
        assert_eq!(clock("09:05").to_string(), "09:05");
        for bad in ["", "9:00", "24:00", "12:60", "12", "12:0", "12:00:00", "+1:00", "ab:cd"] {
            assert!(LocalTime::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_day_begins_at_local_midnight() {
        let day_of = |text: &str, name: &str| day(at(text), &zone(Some(name)));
        assert_eq!(day(Timestamp(0), &zone(None)), 0);
        assert_eq!(day_of("1970-01-01T14:59:59Z", "Asia/Tokyo"), 0);
        assert_eq!(day_of("1970-01-01T15:00:00Z", "Asia/Tokyo"), 1);
        assert_eq!(day_of("2026-11-27T00:00:00Z", "UTC"), 20_784);
    }

    #[test]
    fn quiet_hours_end_by_the_local_clock() {
        let check = |from: &str, to: &str, now: &str, name: &str, expected: Option<&str>| {
            let quiet = QuietHours::new(clock(from), clock(to)).expect("hours");
            assert_eq!(quiet.until(at(now), &zone(Some(name))), expected.map(at), "{from}-{to} {now} {name}");
        };
        check("22:00", "07:00", "2026-11-22T14:00:00Z", "Asia/Tokyo", Some("2026-11-22T22:00:00Z"));
        check("22:00", "07:00", "2026-11-22T12:59:59Z", "Asia/Tokyo", None);
        check("22:00", "07:00", "2026-11-22T13:00:00Z", "Asia/Tokyo", Some("2026-11-22T22:00:00Z"));
        check("22:00", "07:00", "2026-11-21T22:00:00Z", "Asia/Tokyo", None);
        check("12:00", "14:00", "2026-11-22T12:30:00Z", "UTC", Some("2026-11-22T14:00:00Z"));
        check("12:00", "14:00", "2026-11-22T14:00:00Z", "UTC", None);
        // A clock change skips the end: an hour later on the clock, at once in time.
        check("22:00", "02:30", "2026-03-08T06:00:00Z", "America/New_York", Some("2026-03-08T07:30:00Z"));
        // The end occurs twice: in the second of these hours it is still ahead, not only tomorrow.
        check("22:00", "01:30", "2026-11-01T05:10:00Z", "America/New_York", Some("2026-11-01T05:30:00Z"));
        check("22:00", "01:30", "2026-11-01T06:10:00Z", "America/New_York", Some("2026-11-01T06:30:00Z"));
        assert!(QuietHours::new(clock("07:00"), clock("07:00")).is_err());
    }
}
