//! Preferences: who has which, what they keep out of the store, and daily caps.

use noroshi_store::{Again, Counted, Error, Fallback, Followed, OwnPreferences, Preferring, Store, Work};
use noroshi_types::local_time::{LocalTime, QuietHours};
use noroshi_types::{
    Category, CategoryPreference, Channel, Condition, DeviceNum, ItemRequest, Label, Outcome, Preferences,
    Push, PushMode, PushService, QuietTime, Request, Target, Timestamp,
};

use super::expansions::{crowd, to_all};
use super::fixture::*;
use super::push_fixture::{ended, not_needed, pushable, recipients_of, take};

fn label(name: &str) -> Label {
    Label::parse(name).expect(name)
}

fn of_user(name: &str) -> Preferring {
    Preferring::User(user(name))
}

fn of_device(name: &str) -> Preferring {
    Preferring::Device(device(name))
}

fn category(name: &str) -> Option<Category> {
    Some(Category { name: label(name), is_essential: false })
}

/// Mutes a category.
fn mute(name: &str) -> Preferences {
    let muted = CategoryPreference { muted: Some(true), ..CategoryPreference::default() };
    Preferences { categories: [(label(name), muted)].into(), ..Preferences::default() }
}

async fn set(store: &dyn Store, app: noroshi_types::AppId, of: Preferring, preferences: Preferences) {
    store.set_preferences(app, &of, Some(preferences)).await.expect("set");
}

pub(crate) async fn users_and_devices_have_their_own(store: &dyn Store) {
    let (app, other) = (app(store, "a").await, super::fixture::app(store, "b").await);
    let num = join(store, app, "d1", "u1", &[]).await;
    join(store, app, "d2", "u1", &[]).await;
    join(store, other, "d1", "u1", &[]).await;
    let read = async |app, of: Preferring| store.preferences(app, &of).await.expect("read");
    assert_eq!(read(app, of_user("u1")).await, None);
    let revision = async |id: &str| log_in(store, login(app, id)).await.revision;
    let before = (revision("d1").await, revision("d2").await);

    let clock = |text| LocalTime::parse(text).expect(text);
    let hours = QuietHours::new(clock("22:00"), clock("07:00")).expect("hours");
    let quiet = Preferences {
        channels: Some([Channel::Push].into_iter().collect()),
        muted_topics: [topic("news")].into(),
        quiet_hours: Some(QuietTime { hours, timezone: Some("Asia/Tokyo".into()) }),
        ..mute("ads")
    };
    set(store, app, of_user("u1"), quiet.clone()).await;
    let after = (revision("d1").await, revision("d2").await);
    assert!(after.0 > before.0 && after.1 > before.1);
    set(store, app, of_device("d1"), mute("games")).await;
    assert!(revision("d1").await > after.0 && revision("d2").await == after.1);
    // A user without a device may have some.
    set(store, app, of_user("later"), mute("ads")).await;

    assert_eq!(read(app, of_user("u1")).await, Some(quiet.clone()));
    assert_eq!(read(app, of_device("d1")).await, Some(mute("games")));
    assert_eq!((read(app, of_device("d2")).await, read(app, of_user("u2")).await), (None, None));
    assert_eq!((read(other, of_user("u1")).await, read(other, of_device("d1")).await), (None, None));
    let unknown = store.set_preferences(app, &of_device("d9"), Some(mute("ads"))).await;
    assert!(matches!(unknown, Err(Error::NotFound)), "{unknown:?}");

    let both = OwnPreferences { user: Some(quiet), device: Some(mute("games")) };
    let call = store.first_call(app, &device("d1"), 10, NOW).await.expect("read").expect("found");
    assert_eq!(call.preferences, both);
    let merged = both.merged();
    assert_eq!(log_in(store, login(app, "d1")).await.followed.preferences, merged);
    let asked = vec![device("d1"), device("d9"), device("d2")];
    let followed = store.followed_preferences(app, asked).await.expect("read");
    assert_eq!(followed[0].preferences, merged);
    assert_eq!((&followed[1], followed.len()), (&Followed::default(), 3));
    assert!(
        followed[2].preferences.as_ref().is_some_and(|own| !own.categories.contains_key(&label("games")))
    );

    store.set_preferences(app, &of_user("u1"), None).await.expect("removed");
    assert_eq!(read(app, of_user("u1")).await, None);
    // A new device of the same name has none.
    store.delete_device(app, &device("d1"), NOW).await.expect("deleted");
    assert_ne!(join(store, app, "d1", "u1", &[]).await, num);
    assert_eq!(read(app, of_device("d1")).await, None);
}

pub(crate) async fn a_device_without_preferences_follows_none(store: &dyn Store) {
    let app = app(store, "a").await;
    pushable(store, app, "d1", "u1", &[], PushService::Apns).await;
    assert_eq!(log_in(store, login(app, "d1")).await.followed, Followed::default());
    let request = Request {
        push: Push { mode: PushMode::Always, ..Push::default() },
        category: category("ads"),
        ..stored(users(&["u1"]))
    };
    let accepted = send_at(store, app, request, NOW).await;
    assert_eq!(accepted.message.category, category("ads"));
    let batch = take(store, 0).await.batches.remove(0);
    assert_eq!(recipients_of(store, &batch).await[0].preferences, None);
    set(store, app, of_device("d1"), mute("games")).await;
    assert_eq!(recipients_of(store, &batch).await[0].preferences, Some(mute("games")));
}

pub(crate) async fn a_category_is_read_back(store: &dyn Store) {
    let app = app(store, "a").await;
    join(store, app, "d1", "u1", &["news"]).await;
    let essential = Some(Category { name: label("alarm"), is_essential: true });
    let cases = [
        (Request { category: category("ads"), ..stored(users(&["u1"])) }, None),
        (Request { category: essential.clone(), ..stored(to_topic("news")) }, Some(topic("news"))),
        (stored(users(&["u1"])), None),
    ];
    for (request, of_topic) in cases {
        let expected = request.category.clone();
        let id = send(store, app, request).await;
        let state = store.notification(app, id, NOW).await.expect("read").expect("found");
        assert_eq!(state.message.category, expected);
        let page = log_in(store, login(app, "d1")).await.page;
        let message = page.messages.iter().find(|message| message.id == id).expect("in the backlog");
        assert_eq!(message.category, expected);
        let content = store.push_content(app, id).await.expect("read").expect("found");
        assert_eq!((content.category, content.topic), (expected, of_topic));
    }
}

pub(crate) async fn devices_that_mute_a_category_are_left_out(store: &dyn Store) {
    let app = app(store, "a").await;
    let nums = join_many(store, app, &["u1", "u2", "u3"]).await;
    set(store, app, of_user("u1"), mute("ads")).await;
    set(store, app, of_device("u2"), mute("ads")).await;
    let request = |category: Option<Category>| Request {
        category,
        push: Push { mode: PushMode::Always, ..Push::default() },
        ..stored(users(&["u1", "u2", "u3", "u4"]))
    };
    let accepted = send_at(store, app, request(category("ads")), NOW).await;
    let expected = [
        (Outcome::Unknown, vec![], 1),
        (Outcome::Kept, vec![nums[2]], 1),
        (Outcome::Muted, vec![nums[0], nums[1]], 2),
        (Outcome::NoPushToken, vec![nums[2]], 1),
    ];
    let sorted = |mut outcomes: Vec<(Outcome, Vec<DeviceNum>, u64)>| {
        outcomes.sort();
        outcomes
    };
    assert_eq!(sorted(outcomes_of(&accepted)), sorted(expected.to_vec()));
    let id = accepted.message.id;
    assert!(counts(store, app, id).await.contains(&(Outcome::Muted, 2)));
    assert!(waiting(store, app, "u1", NOW).await.is_empty());
    assert_eq!(waiting(store, app, "u3", NOW).await, [id]);
    let trace = store.trace(app, id, &device("u1")).await.expect("read").expect("found");
    assert_eq!(trace.steps.iter().map(|step| step.outcome).collect::<Vec<_>>(), [Outcome::Muted]);

    let essential = Category { name: label("ads"), is_essential: true };
    for (others, kept) in [(category("games"), 3), (None, 3), (Some(essential), 3)] {
        let accepted = send_at(store, app, request(others), NOW).await;
        assert_eq!(accepted.kept(), kept);
    }
    // A condition with few devices.
    let condition = Condition::parse("!('x' in topics)").expect("a condition");
    let request = Request { category: category("ads"), ..stored(Target::Condition(condition)) };
    let accepted = send_at(store, app, request, NOW).await;
    assert_eq!(
        sorted(outcomes_of(&accepted)),
        sorted(vec![(Outcome::Kept, vec![nums[2]], 1), (Outcome::Muted, vec![nums[0], nums[1]], 2)])
    );
}

pub(crate) async fn a_large_condition_leaves_them_out_too(store: &dyn Store) {
    const CROWD: usize = 1_200;
    let app = app(store, "a").await;
    let nums = crowd(store, app, CROWD).await;
    for index in [0, 600, CROWD - 1] {
        set(store, app, of_device(&format!("d{index}")), mute("ads")).await;
    }
    let accepted = send_at(store, app, Request { category: category("ads"), ..to_all() }, NOW).await;
    let muted = accepted.parts.iter().find(|part| part.outcome == Outcome::Muted).expect("muted");
    assert_eq!((accepted.kept(), muted.count), (CROWD as u64 - 3, 3));
    assert_eq!(muted.devices, [nums[0], nums[600], nums[CROWD - 1]]);
    assert!(counts(store, app, accepted.message.id).await.contains(&(Outcome::Muted, 3)));
    assert!(waiting(store, app, "d600", NOW).await.is_empty());
    assert_eq!(waiting(store, app, "d601", NOW).await, [accepted.message.id]);
}

pub(crate) async fn users_who_refuse_items_get_none(store: &dyn Store) {
    let app = app(store, "a").await;
    join_many(store, app, &["u1", "u2", "u3", "u4"]).await;
    let only_live =
        Preferences { channels: Some([Channel::Live].into_iter().collect()), ..Preferences::default() };
    set(store, app, of_user("u1"), only_live.clone()).await;
    set(store, app, of_user("u2"), mute("ads")).await;
    // Items belong to users: a device has no say.
    set(store, app, of_device("u3"), only_live).await;
    let request = |target, category: Option<Category>| {
        let name = category.as_ref().map(|category| category.name.clone());
        let item = ItemRequest { category: name, ..ItemRequest::default() };
        Request { item: Some(item), category, ..stored(target) }
    };
    let all = ["u1", "u2", "u3", "u4"];
    let essential = Some(Category { name: label("ads"), is_essential: true });
    for (of, expected) in [
        (category("ads"), &["u3", "u4"][..]),
        (category("news"), &["u2", "u3", "u4"]),
        (None, &["u2", "u3", "u4"]),
        (essential, &all),
    ] {
        for target in [users(&all), devices(&all)] {
            let accepted = send_at(store, app, request(target, of.clone()), NOW).await;
            let expected: Vec<_> = expected.iter().map(|name| user(name)).collect();
            assert_eq!(accepted.item_users, expected, "{of:?}");
        }
    }
}

pub(crate) async fn a_cap_counts_each_notification_once(store: &dyn Store) {
    let app = app(store, "a").await;
    let nums = join_many(store, app, &["u1", "u2"]).await;
    let one = |device: usize, name: &str, day: u32, id: u8| Counted {
        device: nums[device],
        category: label(name),
        day,
        id: [id; 16],
        max: 2,
    };
    let count = async |counted: Vec<Counted>| store.count_for_caps(counted).await.expect("counted");
    let first = vec![one(0, "ads", 5, 1), one(1, "ads", 5, 1), one(0, "ads", 5, 1), one(0, "news", 5, 1)];
    assert_eq!(count(first).await, [true; 4]);
    assert_eq!(
        count(vec![one(0, "ads", 5, 2), one(0, "ads", 5, 3), one(1, "ads", 5, 3)]).await,
        [true, false, true]
    );
    // Again: those that were counted stay so, and the others do not get in.
    assert_eq!(
        count(vec![one(0, "ads", 5, 3), one(0, "ads", 5, 2), one(0, "ads", 5, 1)]).await,
        [false, true, true]
    );
    // Each day has room of its own, by the day of acceptance.
    assert_eq!(
        count(vec![one(0, "ads", 6, 3), one(0, "ads", 5, 4), one(0, "ads", 5, 5)]).await,
        [true, false, false]
    );
    let closed = Counted { max: 0, ..one(0, "games", 6, 1) };
    assert_eq!(count(vec![closed]).await, [false]);
    let two = tokio::join!(count(vec![one(1, "b", 6, 1), one(1, "b", 6, 2)]), count(vec![one(1, "b", 6, 3)]));
    assert_eq!(two.0.iter().chain(&two.1).filter(|fits| **fits).count(), 2);

    store.delete_device(app, &device("u1"), NOW).await.expect("deleted");
    assert_eq!(count(vec![one(0, "ads", 6, 1)]).await, [false], "the device is gone");
    assert!(count(Vec::new()).await.is_empty());
}

pub(crate) async fn counts_end_with_their_day(store: &dyn Store) {
    let app = app(store, "a").await;
    let num = join(store, app, "d1", "u1", &[]).await;
    let day = u32::try_from(NOW.0 / 86_400_000).expect("a day");
    let one = |id: u8| Counted { device: num, category: label("ads"), day, id: [id; 16], max: 1 };
    let count = async |id| store.count_for_caps(vec![one(id)]).await.expect("counted")[0];
    assert!(count(1).await);
    let later = |days: u64| Timestamp(NOW.0 + days * 86_400_000);
    store.prune(later(1), 1_000).await.expect("pruned");
    assert!(!count(2).await, "the day may not be over everywhere");
    store.prune(later(4), 1_000).await.expect("pruned");
    assert!(count(2).await, "its counts are forgotten");
}

/// After quiet hours a push is sent only to devices that still need it.
pub(crate) async fn a_delayed_fallback_is_decided_again(store: &dyn Store) {
    let app = app(store, "a").await;
    let first = pushable(store, app, "d1", "u1", &[], PushService::Apns).await;
    let second = pushable(store, app, "d2", "u2", &[], PushService::Apns).await;
    let push = Push { mode: PushMode::Fallback, ..Push::default() };
    let id = send(store, app, Request { push, ..stored(users(&["u1", "u2"])) }).await;
    let batch = take(store, 1).await.batches.remove(0);
    assert_eq!((batch.work, &batch.recipients[..]), (Work::Notification(id), &[first, second][..]));
    let content = store.push_content(app, id).await.expect("read").expect("found");
    assert_eq!(content.fallback, Fallback::Inbox);
    let delayed = Again {
        due_at: at(60),
        attempt: 0,
        variant: None,
        fallback: content.fallback,
        recipients: batch.recipients.clone(),
    };
    let finished = noroshi_store::Finished { again: vec![delayed], ..ended(batch.id) };
    store.finish(vec![finished], at(2)).await.expect("finished");
    assert_eq!(ack(store, first, &[id]).await, 1);
    assert!(take(store, 2).await.batches.is_empty(), "not due");
    let taken = take(store, 61).await;
    assert_eq!((&taken.batches[0].recipients[..], not_needed(&taken)), (&[second][..], 1));
}
