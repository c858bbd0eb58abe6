//! What the device of one connection follows: its preferences, and how often categories with daily caps interrupted it.
//!
//! Only connections of devices with preferences own a [`Following`]. The shard calls
//! [`Following::decide`] before it writes a message. A message that is written then counts ([`Following::count`]); the shard has the store
//! count it too, which other nodes and pushes share.
//!
//! Messages of topics to an idle device in its quiet hours are delivered if they are stored: a topic is acknowledged by
//! position, so a later message of an essential category would acknowledge those that wait.

use std::collections::{BTreeMap, HashSet, VecDeque};

use noroshi_delivery::preferences::LiveCount;
use noroshi_store::{Counted, DayCount, Followed};
use noroshi_types::topic::is_server_topic;
use noroshi_types::{
    Channel, Label, Message, NotificationId, Outcome, Preferences, Presence, Suppressed, Timestamp, Topic,
    When,
};

use crate::session::registry::Session;

/// Days whose counts a session keeps.
const DAYS_KEPT: u32 = 3;

/// Suppressed messages whose outcomes are remembered, so that a second offer does not report them again:
/// 512 × 16 B, twice.
const REPORTED_MAX: usize = 512;

/// The smallest unit of quiet hours and of days.
const MINUTE_MS: u64 = 60_000;

/// Whether a message may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    Passes,
    /// It waits until the device is in use ([`Session::holds_back`]).
    Waits,
    Suppressed(Outcome),
}

/// Where a message came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// The mailbox.
    Live,
    /// A read of the store.
    Store,
}

/// A change for the sessions of a device.
#[derive(Debug)]
pub(crate) enum Change {
    Followed(Followed),
    /// The daily cap of a category was reached elsewhere.
    Capped {
        category: Label,
        day: u32,
    },
}

pub(crate) struct Following {
    preferences: Preferences,
    /// The device's.
    timezone: Option<Box<str>>,
    /// Of categories with caps, by the day on which messages were accepted.
    counts: BTreeMap<(Label, u32), Day>,
    clock: Clock,
    reported: Reported,
}

/// What was accepted on one day and interrupted the device.
#[derive(Debug, Default)]
struct Day {
    ids: HashSet<[u8; 16]>,
    /// Pushes or other sessions reached the cap.
    is_full: bool,
}

/// What the device's clock shows in one minute: looked up once for all messages of the minute.
#[derive(Debug, Default)]
struct Clock {
    /// Since 1970; 0 before the first look.
    minute: u64,
    is_quiet: bool,
    day: u32,
}

/// The last suppressed messages.
#[derive(Debug, Default)]
struct Reported {
    ids: HashSet<NotificationId>,
    order: VecDeque<NotificationId>,
}

impl Following {
    /// `None` without preferences.
    pub(crate) fn new(followed: Followed) -> Option<Box<Self>> {
        let Followed { preferences, timezone, counts } = followed;
        let preferences = preferences.filter(|preferences| !preferences.is_empty())?;
        let mut following = Self {
            preferences,
            timezone: timezone.map(Into::into),
            counts: BTreeMap::new(),
            clock: Clock::default(),
            reported: Reported::default(),
        };
        following.add_counts(counts);
        Some(Box::new(following))
    }

    /// Follows `followed` from here on, with what was counted and reported so far.
    pub(crate) fn replace(present: Option<Box<Self>>, followed: Followed) -> Option<Box<Self>> {
        let mut next = Self::new(followed)?;
        if let Some(present) = present {
            let Self { counts, reported, .. } = *present;
            // A category that is full is counted by the store up to the cap, which may have changed.
            next.add_counts(counts.into_iter().map(|((category, day), Day { ids, .. })| DayCount {
                category,
                day,
                ids: ids.into_iter().collect(),
            }));
            next.reported = reported;
        }
        Some(next)
    }

    fn add_counts(&mut self, counts: impl IntoIterator<Item = DayCount>) {
        for DayCount { category, day, ids } in counts {
            let is_capped =
                self.preferences.categories.get(&category).is_some_and(|own| own.daily_max.is_some());
            if is_capped {
                self.counts.entry((category, day)).or_default().ids.extend(ids);
            }
        }
    }

    /// The cap of a category was reached elsewhere.
    pub(crate) fn cap(&mut self, category: Label, day: u32) {
        self.counts.entry((category, day)).or_default().is_full = true;
    }

    /// Whether a message may be written now.
    pub(crate) fn decide(&mut self, message: &Message, presence: Presence, now: Timestamp) -> Decision {
        let topic = message.topic.as_ref().map(|place| &place.topic);
        if topic.is_some_and(is_internal) {
            return Decision::Passes;
        }
        // Everyone is no topic that a device subscribes to.
        let topic = topic.filter(|topic| !topic.is_everyone());
        match self.preferences.suppresses(Channel::Live, message.category.as_ref(), topic) {
            Some(Suppressed::Muted) => return Decision::Suppressed(Outcome::Muted),
            Some(Suppressed::ChannelOff) => return Decision::Suppressed(Outcome::ChannelOff),
            None => {}
        }
        if presence != Presence::Active && self.is_quiet(message, now) {
            match (message.when, &message.topic) {
                (When::Stored, None) => return Decision::Waits,
                (When::Stored, Some(_)) => {}
                (When::Active | When::Connected, _) => return Decision::Suppressed(Outcome::Quiet),
            }
        }
        match self.is_capped(message, now) {
            true => Decision::Suppressed(Outcome::Capped),
            false => Decision::Passes,
        }
    }

    fn is_quiet(&mut self, message: &Message, now: Timestamp) -> bool {
        let is_essential = message.category.as_ref().is_some_and(|category| category.is_essential);
        self.preferences.quiet_hours.is_some() && !is_essential && self.clock(now).is_quiet
    }

    /// Whether the cap of the message's category is reached, without this message, on the day of its acceptance.
    fn is_capped(&mut self, message: &Message, now: Timestamp) -> bool {
        let Some((max, category)) = self.cap_of(message) else { return false };
        let day = self.day_of(message, now);
        let Some(day) = self.counts.get(&(category, day)) else { return max == 0 };
        let is_reached = day.is_full || day.ids.len() >= max as usize;
        is_reached && !day.ids.contains(message.id.as_bytes())
    }

    /// A message that waits over midnight, or is sent again on a later day, does not use the room of that day.
    fn day_of(&mut self, message: &Message, now: Timestamp) -> u32 {
        let clock = self.clock(now);
        match message.sent_at.0 / MINUTE_MS == clock.minute {
            true => clock.day,
            false => self.preferences.day(message.sent_at, self.timezone.as_deref()),
        }
    }

    /// A message is written: counts it. Returns what the store has to count, if it was not counted before.
    pub(crate) fn count(
        &mut self,
        message: &Message,
        session: &Session,
        now: Timestamp,
    ) -> Option<LiveCount> {
        let (max, category) = self.cap_of(message)?;
        let (day, today) = (self.day_of(message, now), self.clock(now).day);
        if !self.counts.contains_key(&(category.clone(), day)) {
            // The store knows former days for longer.
            self.counts.retain(|(_, former), _| *former + DAYS_KEPT > today);
        }
        let counted = self.counts.entry((category.clone(), day)).or_default();
        let id = *message.id.as_bytes();
        let is_new = counted.ids.insert(id);
        let counted = Counted { device: session.num, category, day, id, max };
        is_new.then(|| LiveCount { app: session.app, device: session.device.clone(), counted })
    }

    fn cap_of(&self, message: &Message) -> Option<(u32, Label)> {
        let category = message.category.as_ref()?;
        let max = self.preferences.daily_max(Some(category))?;
        Some((max, category.name.clone()))
    }

    fn clock(&mut self, now: Timestamp) -> &Clock {
        let minute = now.0 / MINUTE_MS;
        if self.clock.minute != minute {
            let timezone = self.timezone.as_deref();
            let is_quiet = self.preferences.quiet_until(None, now, timezone).is_some();
            self.clock = Clock { minute, is_quiet, day: self.preferences.day(now, timezone) };
        }
        &self.clock
    }

    /// Whether the outcome of a suppressed message is recorded. What a log-in reads is not: every log-in would record it
    /// again, and the preferences at that time explain it.
    pub(crate) fn report(&mut self, message: &Message, outcome: Outcome, source: Source) -> bool {
        let is_for_inbox = message.when == When::Stored && message.topic.is_none();
        if source == Source::Store || outcome == Outcome::Muted && is_for_inbox {
            return false; // the acceptance recorded that it is muted
        }
        let Reported { ids, order } = &mut self.reported;
        let is_new = ids.insert(message.id);
        if is_new {
            order.push_back(message.id);
        }
        if order.len() > REPORTED_MAX
            && let Some(oldest) = order.pop_front()
        {
            ids.remove(&oldest);
        }
        is_new
    }
}

/// The service's own topics carry control messages.
fn is_internal(topic: &Topic) -> bool {
    is_server_topic(topic.as_str()) && !topic.is_everyone()
}

#[cfg(test)]
mod tests {
    use noroshi_types::local_time::{LocalTime, QuietHours};
    use noroshi_types::{
        AppId, Category, CategoryPreference, DeviceId, DeviceNum, Epoch, Position, QuietTime, TopicPosition,
        Urgency,
    };

    use super::*;
    use crate::session::registry::{Address, Registry, Versions};

    const NOON: Timestamp = Timestamp(12 * 3_600_000);
    const DAY_MS: u64 = 86_400_000;

    fn label(name: &str) -> Label {
        Label::parse(name).expect(name)
    }

    fn message(id: u8, when: When, category: Option<&str>, topic: Option<&str>) -> Message {
        let position = Position { epoch: Epoch(1), offset: 1 };
        let category = category.map(|name| Category { name: label(name), is_essential: name == "alarm" });
        Message {
            id: NotificationId::from_bytes([id; 16]),
            app: AppId(1),
            when,
            urgency: Urgency::Normal,
            topic: topic.map(|name| TopicPosition { topic: Topic::from_trusted(name), position }),
            notification: None,
            data: None,
            sent_at: Timestamp(0),
            expires_at: Timestamp(u64::MAX),
            push_waits: false,
            waits_for_use: false,
            category,
        }
    }

    fn session() -> Session {
        let (device, address) =
            (DeviceId::parse("d").expect("an id"), Address { shard: 0, slot: 0, generation: 1 });
        Session::new(&Registry::new(None), AppId(1), device, None, DeviceNum(7), address, Versions::default())
    }

    fn following(preferences: Preferences, counts: Vec<DayCount>) -> Box<Following> {
        let followed = Followed { preferences: Some(preferences), timezone: None, counts };
        Following::new(followed).expect("preferences")
    }

    fn capped(max: u32) -> Preferences {
        let own = CategoryPreference { daily_max: Some(max), ..CategoryPreference::default() };
        Preferences { categories: [(label("ads"), own)].into(), ..Preferences::default() }
    }

    #[test]
    fn without_preferences_there_is_nothing_to_follow() {
        assert!(Following::new(Followed::default()).is_none());
        let empty = Followed { preferences: Some(Preferences::default()), ..Followed::default() };
        assert!(Following::new(empty).is_none());
    }

    #[test]
    fn quiet_hours_concern_idle_devices() {
        let clock = |text| LocalTime::parse(text).expect(text);
        let hours = QuietHours::new(clock("11:00"), clock("13:00")).expect("hours");
        let quiet_hours = Some(QuietTime { hours, timezone: None });
        let mut quiet = following(Preferences { quiet_hours, ..Preferences::default() }, Vec::new());
        let mut check = |message: Message, presence, now, expected| {
            assert_eq!(quiet.decide(&message, presence, now), expected, "{message:?}");
        };
        let suppressed = Decision::Suppressed(Outcome::Quiet);
        let plain = |when| message(1, when, None, None);
        check(plain(When::Connected), Presence::Idle, NOON, suppressed);
        check(plain(When::Connected), Presence::Active, NOON, Decision::Passes);
        check(plain(When::Stored), Presence::Idle, NOON, Decision::Waits);
        check(plain(When::Stored), Presence::Idle, Timestamp(13 * 3_600_000), Decision::Passes);
        check(message(1, When::Stored, None, Some("news")), Presence::Idle, NOON, Decision::Passes);
        check(message(1, When::Connected, None, Some("news")), Presence::Idle, NOON, suppressed);
        check(message(1, When::Stored, Some("alarm"), None), Presence::Idle, NOON, Decision::Passes);
    }

    #[test]
    fn internal_topics_are_not_concerned() {
        let muted = Preferences {
            channels: Some([].into_iter().collect()),
            muted_topics: [Topic::from_trusted("news")].into(),
            ..Preferences::default()
        };
        let mut muted = following(muted, Vec::new());
        let mut of =
            |topic| muted.decide(&message(1, When::Stored, None, Some(topic)), Presence::Active, NOON);
        assert_eq!(of("$maintenance"), Decision::Passes);
        assert_eq!(of("$everyone"), Decision::Suppressed(Outcome::ChannelOff));
        assert_eq!(of("news"), Decision::Suppressed(Outcome::Muted));
    }

    #[test]
    fn a_cap_counts_each_message_on_the_day_of_its_acceptance() {
        let session = session();
        let ads = |id, sent_at| Message { sent_at, ..message(id, When::Stored, Some("ads"), None) };
        let counts = vec![DayCount { category: label("ads"), day: 0, ids: vec![[1; 16]] }];
        let mut following = following(capped(2), counts);
        let full = Decision::Suppressed(Outcome::Capped);
        let decide = |following: &mut Following, message: Message, now| {
            following.decide(&message, Presence::Active, now)
        };
        assert!(following.count(&ads(1, NOON), &session, NOON).is_none(), "a push of it counted");
        let counted = following.count(&ads(2, NOON), &session, NOON).expect("the first time").counted;
        assert_eq!((counted.device, counted.day, counted.max), (session.num, 0, 2));
        assert_eq!(decide(&mut following, ads(2, NOON), NOON), Decision::Passes, "it was counted");
        assert_eq!(decide(&mut following, ads(3, NOON), NOON), full);
        let other = message(3, When::Stored, Some("news"), None);
        assert_eq!(following.decide(&other, Presence::Active, NOON), Decision::Passes);
        // The next day: what was capped stays so, what was counted is sent again, and new ones have room.
        let tomorrow = Timestamp(NOON.0 + DAY_MS);
        assert_eq!(decide(&mut following, ads(3, NOON), tomorrow), full);
        assert_eq!(decide(&mut following, ads(2, NOON), tomorrow), Decision::Passes);
        assert!(following.count(&ads(2, NOON), &session, tomorrow).is_none());
        assert_eq!(decide(&mut following, ads(4, tomorrow), tomorrow), Decision::Passes);
        following.cap(label("ads"), 1);
        assert_eq!(decide(&mut following, ads(4, tomorrow), tomorrow), full, "pushes reached the cap");
        let later = Timestamp(tomorrow.0 + 5 * DAY_MS);
        following.count(&ads(5, later), &session, later).expect("counted");
        assert_eq!(following.counts.len(), 1, "former days are forgotten");
    }

    #[test]
    fn a_change_keeps_what_was_counted_and_reported() {
        let (session, ads) = (session(), message(1, When::Stored, Some("ads"), None));
        let mut before = following(capped(2), Vec::new());
        before.count(&ads, &session, NOON).expect("counted");
        let report = |following: &mut Following| following.report(&ads, Outcome::Capped, Source::Live);
        assert!(report(&mut before) && !report(&mut before));
        let follow = |max| Followed { preferences: Some(capped(max)), ..Followed::default() };
        let mut after = Following::replace(Some(before), follow(1)).expect("preferences");
        let other = message(2, When::Stored, Some("ads"), None);
        assert_eq!(after.decide(&other, Presence::Active, NOON), Decision::Suppressed(Outcome::Capped));
        assert_eq!(after.decide(&ads, Presence::Active, NOON), Decision::Passes);
        assert!(!report(&mut after));
        assert!(Following::replace(Some(after), Followed::default()).is_none());
        let mut none = Following::new(follow(0)).expect("preferences");
        assert_eq!(none.decide(&ads, Presence::Active, NOON), Decision::Suppressed(Outcome::Capped));
    }

    #[test]
    fn the_oldest_reports_are_forgotten() {
        let mut following = following(capped(0), Vec::new());
        let mut report = |number: usize| {
            let id = NotificationId::from_bytes((number as u128).to_be_bytes());
            let message = Message { id, ..message(0, When::Stored, None, None) };
            assert!(!following.report(&message, Outcome::Muted, Source::Live), "the acceptance recorded it");
            assert!(!following.report(&message, Outcome::Capped, Source::Store), "each log-in reads it");
            following.report(&message, Outcome::Capped, Source::Live)
        };
        assert!((0..=REPORTED_MAX).all(&mut report));
        assert!(!report(REPORTED_MAX) && report(0));
    }
}
