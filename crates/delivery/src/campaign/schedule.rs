//! When a device is due: at once, or at an hour of its own clock, and never in its quiet hours.

use noroshi_types::Timestamp;
use noroshi_types::local_time::{LocalTime, QuietHours, TimeZone, next};

/// When the devices of a campaign are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// No device is due before.
    pub start: Timestamp,
    pub local_time: Option<LocalTime>,
    /// `None` also for an urgent campaign.
    pub quiet_hours: Option<QuietHours>,
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

#[cfg(test)]
mod tests {
    use noroshi_types::local_time::zone;

    use super::*;

    fn at(text: &str) -> Timestamp {
        let time: jiff::Timestamp = text.parse().expect(text);
        Timestamp(u64::try_from(time.as_millisecond()).expect("after 1970"))
    }

    fn clock(text: &str) -> LocalTime {
        LocalTime::parse(text).expect(text)
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
