//! Pushes obey the preferences of users and devices.

use std::sync::Arc;
use std::time::Duration;

use noroshi_delivery::Clock;
use noroshi_delivery::campaign::{Audience, CampaignMessage, Spec};
use noroshi_store::{Attributes, Devices, PreferenceStore, Preferring, Registration};
use noroshi_types::local_time::{LocalTime, QuietHours};
use noroshi_types::{
    Category, CategoryPreference, Channel, Label, Outcome, Preferences, Push, PushMode, QuietTime, Request,
    Target, Timestamp, Topic, Ttl, UserId, When,
};

use super::campaign::{counted, spec};
use super::{Bench, always, config, eventually, open, open_at, pushed, registration, users};
use crate::fake_outlet::FakeOutlet;

fn label(name: &str) -> Label {
    Label::parse(name).expect(name)
}

fn of_category(name: &str, request: Request) -> Request {
    Request { category: Some(Category { name: label(name), is_essential: false }), ..request }
}

fn topic(name: &str) -> Topic {
    Topic::parse(name).expect(name)
}

fn of(category: &str, preference: CategoryPreference) -> Preferences {
    Preferences { categories: [(label(category), preference)].into(), ..Preferences::default() }
}

fn muted(category: &str) -> Preferences {
    of(category, CategoryPreference { muted: Some(true), ..CategoryPreference::default() })
}

fn capped(category: &str, max: u32) -> Preferences {
    of(category, CategoryPreference { daily_max: Some(max), ..CategoryPreference::default() })
}

impl Bench {
    async fn prefer(&self, user: &str, preferences: Preferences) {
        let of = Preferring::User(UserId::parse(user).expect(user));
        self.store.set_preferences(self.app, &of, Some(preferences)).await.expect("set");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn muted_topics_and_categories_and_closed_channels_get_no_push() {
    let folder = tempfile::tempdir().expect("a folder");
    let bench = open(folder.path(), config()).await;
    bench.devices(&["a", "b", "c", "d"]).await;
    let no_push = [Channel::Live, Channel::Inbox].into_iter().collect();
    bench.prefer("a", muted("ads")).await;
    bench.prefer("b", Preferences { channels: Some(no_push), ..Preferences::default() }).await;
    bench.prefer("c", Preferences { muted_topics: [topic("all")].into(), ..Preferences::default() }).await;
    // To a topic: the push is decided for each subscriber.
    let to_topic = pushed(Target::Topic(topic("all")), When::Stored, PushMode::Always, Duration::ZERO);
    let id = bench.publish(of_category("ads", to_topic.clone())).await;
    for (outcome, count) in [(Outcome::PushMuted, 2), (Outcome::PushChannelOff, 1), (Outcome::Pushed, 1)] {
        bench.until(id, outcome, count).await;
    }
    assert_eq!(bench.outlet.tokens(), ["t-d"]);
    // By name, of no category: only the closed channel counts.
    let id = bench.publish(always(&["a", "b", "c", "d"])).await;
    bench.until(id, Outcome::Pushed, 3).await;
    bench.until(id, Outcome::PushChannelOff, 1).await;
    // An essential category reaches everyone.
    bench.delivery.context.set_essential_categories([(bench.app, vec![label("ads")])]);
    let before = bench.outlet.count();
    let id = bench.publish(of_category("ads", to_topic)).await;
    bench.until(id, Outcome::Pushed, 4).await;
    assert_eq!(bench.outlet.count() - before, 4);
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daily_cap_counts_pushes_of_its_category() {
    let folder = tempfile::tempdir().expect("a folder");
    let (outlet, clock) = (Arc::new(FakeOutlet::default()), Clock::fixed(Timestamp(1_700_000_000_000)));
    let bench = open_at(folder.path(), outlet.clone(), config(), clock.clone()).await;
    bench.devices(&["a", "b"]).await;
    bench.prefer("a", capped("ads", 2)).await;
    let ads = || of_category("ads", always(&["a", "b"]));
    for (pushes, capped) in [(2, 0), (2, 0), (1, 1)] {
        let id = bench.publish(ads()).await;
        bench.until(id, Outcome::Pushed, pushes).await;
        bench.until(id, Outcome::PushCapped, capped).await;
    }
    let id = bench.publish(always(&["a"])).await;
    bench.until(id, Outcome::Pushed, 1).await;
    // The next day.
    clock.set(clock.now().saturating_add(Duration::from_secs(86_400)));
    let id = bench.publish(ads()).await;
    bench.until(id, Outcome::Pushed, 2).await;
    assert_eq!(bench.count(id, Outcome::PushCapped).await, 0);
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_counts_for_the_cap_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let bench = open(folder.path(), config()).await;
    bench.devices(&["a"]).await;
    bench.prefer("a", capped("ads", 1)).await;
    let later = noroshi_push::Answer::Later { reason: "UNAVAILABLE", after: Duration::ZERO };
    bench.outlet.script("t-a", [later.clone(), later]);
    let id = bench.publish(of_category("ads", always(&["a"]))).await;
    bench.until(id, Outcome::Pushed, 1).await;
    let id = bench.publish(of_category("ads", always(&["a"]))).await;
    bench.until(id, Outcome::PushCapped, 1).await;
    assert_eq!(bench.outlet.count(), 3);
    bench.stop().await;
}

/// From 22:00 to 07:00.
fn quiet() -> Preferences {
    let clock = |text| LocalTime::parse(text).expect(text);
    let hours = QuietHours::new(clock("22:00"), clock("07:00")).expect("hours");
    Preferences { quiet_hours: Some(QuietTime { hours, timezone: None }), ..Preferences::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pushes_wait_for_the_end_of_quiet_hours() {
    let folder = tempfile::tempdir().expect("a folder");
    // 23:30 UTC, which is 08:30 in Tokyo.
    let midnight = 1_700_000_000_000 / 86_400_000 * 86_400_000;
    let (outlet, clock) =
        (Arc::new(FakeOutlet::default()), Clock::fixed(Timestamp(midnight + 23 * 3_600_000 + 1_800_000)));
    let bench = open_at(folder.path(), outlet.clone(), config(), clock.clone()).await;
    let devices = bench.devices(&["a", "b", "c"]).await;
    let tokyo = Attributes { timezone: Some("Asia/Tokyo".to_owned()), ..Attributes::default() };
    let moved = Registration { attributes: tokyo, ..registration("c", &[]) };
    bench.store.register(bench.app, vec![moved], clock.now()).await.expect("registered");
    for user in ["a", "b", "c"] {
        bench.prefer(user, quiet()).await;
    }
    let fallback = pushed(users(&["a", "b", "c"]), When::Stored, PushMode::Fallback, Duration::ZERO);
    let waits = bench.publish(fallback.clone()).await;
    bench.until(waits, Outcome::Pushed, 1).await;
    let hour = Ttl::new(Duration::from_secs(3_600)).expect("a ttl");
    let too_short = bench.publish(Request { ttl: hour, ..fallback }).await;
    bench.until(too_short, Outcome::PushExpired, 2).await;
    bench.until(too_short, Outcome::Pushed, 1).await;
    assert_eq!(outlet.tokens(), ["t-c", "t-c"]);
    // One device acknowledges in the night: it needs no push in the morning.
    assert_eq!(bench.delivery.acks.ack_now(bench.app, devices[0].1, vec![waits]).await.expect("written"), 1);
    clock.set(Timestamp(midnight + (24 + 7) * 3_600_000));
    // Any publish makes the sender look at the queue.
    bench.publish(of_category("x", always(&["c"]))).await;
    bench.until(waits, Outcome::Pushed, 2).await;
    bench.until(waits, Outcome::PushNotNeeded, 1).await;
    assert!(outlet.tokens().contains(&"t-b".to_owned()) && !outlet.tokens().contains(&"t-a".to_owned()));
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn campaigns_obey_preferences() {
    let folder = tempfile::tempdir().expect("a folder");
    let bench = open(folder.path(), config()).await;
    bench.devices(&["a", "b", "c"]).await;
    bench.prefer("a", muted("ads")).await;
    bench.prefer("b", capped("ads", 1)).await;
    let ads = |when| {
        let spec = spec(Audience::Everyone);
        let message = CampaignMessage {
            category: Some(label("ads")),
            when,
            push: Push { mode: PushMode::Always, ..Default::default() },
            ..spec.message.clone()
        };
        Spec { message, ..spec }
    };
    let first = bench.create(ads(None)).await;
    let ended = bench.ended(first).await;
    assert_eq!(
        (ended.done, counted(&ended, Outcome::Pushed), counted(&ended, Outcome::PushMuted)),
        (3, 2, 1)
    );
    let second = bench.create(ads(None)).await;
    let ended = bench.ended(second).await;
    assert_eq!(
        (ended.done, counted(&ended, Outcome::Pushed), counted(&ended, Outcome::PushCapped)),
        (3, 1, 1)
    );
    // Published as notifications: the device that mutes the category is left out, and counts as done.
    let stored = bench.create(ads(Some(When::Stored))).await;
    let ended = bench.ended(stored).await;
    assert_eq!((ended.done, counted(&ended, Outcome::Kept), counted(&ended, Outcome::Muted)), (3, 2, 1));
    eventually("pushes", || bench.outlet.count() == 4).await;
    bench.stop().await;
}
