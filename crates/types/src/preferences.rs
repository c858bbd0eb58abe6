//! What a user or a device wants to be notified of, and how.
//!
//! A device follows its own preferences and those of its user ([`Preferences::merged`]). Essential categories override
//! both. Pure: the time is an argument.

use std::collections::{BTreeMap, BTreeSet};

use crate::local_time::{self, QuietHours};
use crate::{Label, Timestamp, Topic};

/// The category of a notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Category {
    pub name: Label,
    /// Its app lists it among its essential categories: no preference suppresses it.
    pub is_essential: bool,
}

impl Category {
    /// For messages that are no notifications: no preference concerns them. `name`: the category of what they are made
    /// of.
    pub fn exempt(name: Option<Label>) -> Self {
        Self { name: name.unwrap_or_else(|| Label::of("noroshi")), is_essential: true }
    }
}

crate::names! {
    /// How a notification reaches people.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Channel {
        /// Over the device's connection.
        Live = 1 => "live",
        /// Through a push service.
        Push = 2 => "push",
        /// As an item of the user's notification centre.
        Inbox = 4 => "inbox",
    }
}

/// A set of channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Channels(u8);

impl Channels {
    pub const ALL: Self = Self(Channel::Live as u8 | Channel::Push as u8 | Channel::Inbox as u8);

    pub fn has(self, channel: Channel) -> bool {
        self.0 & channel as u8 != 0
    }

    pub fn iter(self) -> impl Iterator<Item = Channel> {
        Channel::ALL.into_iter().filter(move |channel| self.has(*channel))
    }
}

impl FromIterator<Channel> for Channels {
    fn from_iter<I: IntoIterator<Item = Channel>>(channels: I) -> Self {
        Self(channels.into_iter().fold(0, |bits, channel| bits | channel as u8))
    }
}

/// The preferences of a user or a device. `None` and absent entries: no preference.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preferences {
    /// The channels for everything that its category does not decide.
    pub channels: Option<Channels>,
    /// Their messages reach no channel.
    pub muted_topics: BTreeSet<Topic>,
    pub categories: BTreeMap<Label, CategoryPreference>,
    pub quiet_hours: Option<QuietTime>,
}

/// The preferences for one category.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CategoryPreference {
    /// Its messages reach no channel.
    pub muted: Option<bool>,
    /// Instead of [`Preferences::channels`].
    pub channels: Option<Channels>,
    /// How many of its notifications may interrupt a device on one day of its local calendar, live and by push.
    pub daily_max: Option<u32>,
}

/// Quiet hours, and whose clock they follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuietTime {
    pub hours: QuietHours,
    /// An IANA name; `None`: the device's time zone.
    pub timezone: Option<Box<str>>,
}

/// Why a notification does not use a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suppressed {
    /// Its topic or category is muted.
    Muted,
    /// The channel is not allowed.
    ChannelOff,
}

impl Preferences {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The preferences that a device follows. Its own ones come first, field by field and category by category; muted
    /// topics are those of both.
    #[must_use]
    pub fn merged(user: Option<Self>, device: Option<Self>) -> Option<Self> {
        let (mut merged, device) = match (user, device) {
            (Some(user), Some(device)) => (user, device),
            (one, other) => return one.or(other),
        };
        merged.channels = device.channels.or(merged.channels);
        merged.quiet_hours = device.quiet_hours.or(merged.quiet_hours);
        merged.muted_topics.extend(device.muted_topics);
        for (category, own) in device.categories {
            let entry = merged.categories.entry(category).or_default();
            entry.muted = own.muted.or(entry.muted);
            entry.channels = own.channels.or(entry.channels);
            entry.daily_max = own.daily_max.or(entry.daily_max);
        }
        Some(merged)
    }

    /// Why a notification may not use the channel; `None`: it may.
    pub fn suppresses(
        &self,
        channel: Channel,
        category: Option<&Category>,
        topic: Option<&Topic>,
    ) -> Option<Suppressed> {
        if category.is_some_and(|category| category.is_essential) {
            return None;
        }
        let own = self.of_category(category);
        let is_muted = own.and_then(|own| own.muted).unwrap_or(false)
            || topic.is_some_and(|topic| self.muted_topics.contains(topic));
        if is_muted {
            return Some(Suppressed::Muted);
        }
        let channels = own.and_then(|own| own.channels).or(self.channels);
        match channels.is_none_or(|channels| channels.has(channel)) {
            true => None,
            false => Some(Suppressed::ChannelOff),
        }
    }

    /// How many notifications of the category may interrupt a device on one day; `None`: any number.
    pub fn daily_max(&self, category: Option<&Category>) -> Option<u32> {
        self.of_category(category.filter(|category| !category.is_essential))?.daily_max
    }

    /// Whether any category has a daily cap.
    pub fn has_caps(&self) -> bool {
        self.categories.values().any(|own| own.daily_max.is_some())
    }

    /// The end of the quiet hours that contain `now`. `None`: there are none, or the category is essential. `timezone` is
    /// the device's.
    pub fn quiet_until(
        &self,
        category: Option<&Category>,
        now: Timestamp,
        timezone: Option<&str>,
    ) -> Option<Timestamp> {
        if category.is_some_and(|category| category.is_essential) {
            return None;
        }
        let quiet = self.quiet_hours.as_ref()?;
        quiet.hours.until(now, &local_time::zone(quiet.timezone.as_deref().or(timezone)))
    }

    /// The day on which a notification counts for a daily cap. `timezone` is the device's.
    pub fn day(&self, now: Timestamp, timezone: Option<&str>) -> u32 {
        let named = self.quiet_hours.as_ref().and_then(|quiet| quiet.timezone.as_deref());
        local_time::day(now, &local_time::zone(named.or(timezone)))
    }

    fn of_category(&self, category: Option<&Category>) -> Option<&CategoryPreference> {
        self.categories.get(&category?.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local_time::LocalTime;

    fn label(name: &str) -> Label {
        Label::parse(name).expect(name)
    }

    fn category(name: &str) -> Category {
        Category { name: label(name), is_essential: false }
    }

    fn quiet(from: &str, to: &str, timezone: Option<&str>) -> Option<QuietTime> {
        let clock = |text| LocalTime::parse(text).expect(text);
        let hours = QuietHours::new(clock(from), clock(to)).expect("hours");
        Some(QuietTime { hours, timezone: timezone.map(Into::into) })
    }

    fn topic(name: &str) -> Topic {
        Topic::parse(name).expect(name)
    }

    #[test]
    fn a_category_decides_before_the_channels_of_all() {
        let only = |channel: Channel| Some([channel].into_iter().collect::<Channels>());
        let chat = CategoryPreference { channels: only(Channel::Live), ..CategoryPreference::default() };
        let ads = CategoryPreference { muted: Some(true), ..CategoryPreference::default() };
        let preferences = Preferences {
            channels: only(Channel::Inbox),
            muted_topics: [topic("noise")].into(),
            categories: [(label("chat"), chat), (label("ads"), ads)].into(),
            quiet_hours: None,
        };
        let check = |name: Option<&str>, channel: Channel, expected: Option<Suppressed>| {
            let category = name.map(category);
            assert_eq!(preferences.suppresses(channel, category.as_ref(), None), expected, "{name:?}");
        };
        check(None, Channel::Live, Some(Suppressed::ChannelOff));
        check(None, Channel::Inbox, None);
        check(Some("news"), Channel::Push, Some(Suppressed::ChannelOff));
        check(Some("chat"), Channel::Live, None);
        check(Some("chat"), Channel::Inbox, Some(Suppressed::ChannelOff));
        check(Some("ads"), Channel::Inbox, Some(Suppressed::Muted));
        let noise = topic("noise");
        let muted = preferences.suppresses(Channel::Live, Some(&category("chat")), Some(&noise));
        assert_eq!(muted, Some(Suppressed::Muted));
    }

    #[test]
    fn an_essential_category_overrides_everything() {
        let own = CategoryPreference { muted: Some(true), channels: None, daily_max: Some(0) };
        let preferences = Preferences {
            channels: Some([].into_iter().collect()),
            muted_topics: [topic("noise")].into(),
            categories: [(label("alarm"), own)].into(),
            quiet_hours: quiet("00:00", "23:59", None),
        };
        let (alarm, noise) = (Category { is_essential: true, ..category("alarm") }, topic("noise"));
        for channel in Channel::ALL {
            assert_eq!(preferences.suppresses(channel, Some(&alarm), Some(&noise)), None);
        }
        assert_eq!(preferences.daily_max(Some(&alarm)), None);
        assert_eq!(preferences.quiet_until(Some(&alarm), Timestamp(0), None), None);
        assert_eq!(preferences.daily_max(Some(&category("alarm"))), Some(0));
        assert!(preferences.quiet_until(None, Timestamp(0), None).is_some());
    }

    #[test]
    fn a_device_overrides_its_user_field_by_field() {
        let own = |muted, daily_max| CategoryPreference { muted, channels: None, daily_max };
        let user = Preferences {
            channels: Some([Channel::Push].into_iter().collect()),
            muted_topics: [topic("a")].into(),
            categories: [(label("ads"), own(Some(true), Some(3))), (label("chat"), own(None, Some(5)))]
                .into(),
            quiet_hours: quiet("22:00", "07:00", None),
        };
        let device = Preferences {
            channels: None,
            muted_topics: [topic("b")].into(),
            categories: [(label("ads"), own(Some(false), None))].into(),
            quiet_hours: quiet("12:00", "13:00", Some("Asia/Tokyo")),
        };
        let merged = Preferences::merged(Some(user.clone()), Some(device.clone())).expect("some");
        assert_eq!(merged.channels, user.channels);
        assert_eq!(merged.muted_topics, [topic("a"), topic("b")].into());
        assert_eq!(merged.categories[&label("ads")], own(Some(false), Some(3)));
        assert_eq!(merged.categories[&label("chat")], own(None, Some(5)));
        assert_eq!(merged.quiet_hours, device.quiet_hours);
        assert_eq!(Preferences::merged(Some(user.clone()), None), Some(user));
        assert_eq!(Preferences::merged(None, None), None);
    }

    #[test]
    fn quiet_hours_follow_the_clock_that_they_name() {
        // 14:00 UTC is 23:00 in Tokyo.
        let now = Timestamp(14 * 3_600_000);
        let until = |preferences: &Preferences, zone| preferences.quiet_until(None, now, zone);
        let own = Preferences { quiet_hours: quiet("22:00", "07:00", None), ..Preferences::default() };
        assert_eq!(until(&own, Some("Asia/Tokyo")), Some(Timestamp(22 * 3_600_000)));
        assert_eq!(until(&own, None), None);
        let fixed = quiet("22:00", "07:00", Some("Asia/Tokyo"));
        let fixed = Preferences { quiet_hours: fixed, ..Preferences::default() };
        assert_eq!(until(&fixed, Some("UTC")), Some(Timestamp(22 * 3_600_000)));
    }
}
