//! When a device is due: at once, or at an hour of its own clock, and never in its quiet hours.
//!
//! Pure: the time is an argument, and time zones are built in (`jiff`). A device without a zone, or with an unknown
//! one, uses UTC. A local time that a clock change skips moves as much later as the clocks were put forward. Of a local
//! time that occurs twice, the first one that is still ahead counts (RFC 5545 §3.3.5; between the two, the second).

use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use noroshi_types::{Invalid, Timestamp};

/// Hours and minutes of a local clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LocalTime(Time);

/// From `from` to `to`, without `to`. Spans midnight if `to` is the earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuietHours {
    pub from: LocalTime,
    pub to: LocalTime,
}

/// When the devices of a campaign are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// No device is due before.
    pub start: Timestamp,
    pub local_time: Option<LocalTime>,
    /// `None` also for an urgent campaign.
    pub quiet_hours: Option<QuietHours>,
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
            true => Err(Invalid::new("quiet hours end at another time than they begin")),
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

impl Schedule {
    /// When a device of this zone is due. The same at every call, so a walk can be repeated.
    pub fn due_at(&self, zone: &TimeZone) -> Timestamp {
        let due = self.local_time.map_or(self.start, |time| next(self.start, time, zone));
        self.quiet_hours.and_then(|quiet| quiet.until(due, zone)).unwrap_or(due)
    }

    /// Whether the result depends on the zone of a device.
    pub fn is_local(&self) -> bool {
        self.local_time.is_some() || self.quiet_hours.is_some()
    }
}

/// The zone that a device names.
pub fn zone(name: Option<&str>) -> TimeZone {
    name.and_then(|name| TimeZone::get(name).ok()).unwrap_or(TimeZone::UTC)
}

/// The first moment at or after `start` at which clocks of the zone show `time`.
fn next(start: Timestamp, time: LocalTime, zone: &TimeZone) -> Timestamp {
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
    fn the_hour_follows_the_devices_clock() {
        let check = |start: &str, time: &str, name: Option<&str>, expected: &str| {
            let schedule = Schedule { start: at(start), local_time: Some(clock(time)), quiet_hours: None };
            assert_eq!(schedule.due_at(&zone(name)), at(expected), "{start} {time} {name:?}");
        };
        check("2026-11-22T00:00:00Z", "09:00", Some("Asia/Tokyo"), "2026-11-22T00:00:00Z");
        check("2026-11-22T00:00:01Z", "09:00", Some("Asia/Tokyo"), "2026-11-23T00:00:00Z");
        check("2026-11-22T00:00:00Z", "09:00", Some("America/New_York"), "2026-11-22T14:00:00Z");
        check("2026-11-22T00:00:00Z", "09:00", None, "2026-11-22T09:00:00Z");
        check("2026-11-22T00:00:00Z", "09:00", Some("Mars/Olympus"), "2026-11-22T09:00:00Z");
        // Clocks were put forward at 02:00: 02:30 does not exist and becomes 03:30.
        check("2026-03-08T05:00:00Z", "02:30", Some("America/New_York"), "2026-03-08T07:30:00Z");
        // Clocks were put back at 02:00: 01:30 occurs twice, and the first one counts.
        check("2026-11-01T04:30:00Z", "01:30", Some("America/New_York"), "2026-11-01T05:30:00Z");
        check("2026-11-01T05:45:00Z", "01:30", Some("America/New_York"), "2026-11-01T06:30:00Z");
        check("2026-11-01T06:45:00Z", "01:30", Some("America/New_York"), "2026-11-02T06:30:00Z");
        // Samoa went from the 29th to the 31st.
        check("2011-12-30T05:00:00Z", "09:00", Some("Pacific/Apia"), "2011-12-30T19:00:00Z");
        // Half hours exist.
        check("2026-11-22T00:00:00Z", "09:00", Some("Asia/Kolkata"), "2026-11-22T03:30:00Z");
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

    #[test]
    fn a_device_due_in_quiet_hours_waits_for_their_end() {
        let quiet_hours = QuietHours::new(clock("22:00"), clock("07:00")).ok();
        let schedule = Schedule { start: at("2026-11-22T00:00:00Z"), local_time: None, quiet_hours };
        assert_eq!(schedule.due_at(&zone(Some("Asia/Tokyo"))), schedule.start);
        assert_eq!(schedule.due_at(&zone(Some("UTC"))), at("2026-11-22T07:00:00Z"));
        assert_eq!(
            quiet_hours.and_then(|quiet| quiet.until(at("2026-11-22T23:00:00Z"), &zone(None))),
            Some(at("2026-11-23T07:00:00Z"))
        );
        let early = Schedule { local_time: Some(clock("06:00")), ..schedule };
        assert_eq!(early.due_at(&zone(None)), at("2026-11-22T07:00:00Z"));
    }
}
