//! Rows that are kept until nothing needs them: those of deleted devices, and topics.

use std::time::Duration;

use noroshi_store::{Login, LoginRefused, Pruned, Recover, Store};
use noroshi_types::{
    AppId, Epoch, NotificationId, Position, Request, Target, Timestamp, Topic, TopicPosition, When, limits,
};

use super::broadcasts::channel;
use super::fixture::*;

pub(crate) const DAY: u64 = 86_400;
/// The retention of unused topics of the stores under test, in seconds.
pub(crate) const UNUSED: u64 = limits::UNUSED_TOPIC_RETENTION.as_secs();
/// How long the row of a deleted device is kept: the lifetime of its tokens, and a day.
const DELETED: u64 = limits::DEVICE_TOKEN_TTL.as_secs() + DAY;

/// Runs until nothing more is to be removed. Returns how many deleted devices and topics it removed.
pub(crate) async fn prune_all(store: &dyn Store, now: Timestamp, rows_max: usize) -> (u64, u64) {
    let (mut devices, mut topics) = (0, 0);
    for round in 0.. {
        assert!(round < 1_000, "pruning must end");
        let pruned = store.prune(now, rows_max).await.expect("pruned");
        devices += pruned.deleted_devices;
        topics += pruned.topics;
        if !pruned.more {
            break;
        }
    }
    (devices, topics)
}

async fn delete(store: &dyn Store, app: AppId, id: &str, seconds: u64) {
    store.delete_device(app, &device(id), at(seconds)).await.expect("deleted");
}

/// The token version of a new device, which is deleted at once.
async fn first_version(store: &dyn Store, app: AppId, id: &str, seconds: u64) -> u32 {
    join(store, app, id, "u1", &[]).await;
    let version = store.device(app, &device(id)).await.expect("read").expect("created").token_version;
    delete(store, app, id, seconds).await;
    version
}

pub(crate) async fn a_deleted_device_is_remembered_until_its_tokens_expire(store: &dyn Store) {
    let app = app(store, "shop").await;
    join(store, app, "d1", "u1", &[]).await;
    let with_version = |version| Login { token_version: Some(version), ..login(app, "d1") };
    log_in(store, with_version(1)).await;
    delete(store, app, "d1", 0).await;
    join(store, app, "d1", "u1", &[]).await;
    let refused = async |version| try_log_in(store, with_version(version)).await.err();
    assert_eq!(refused(1).await, Some(LoginRefused::Revoked), "of the deleted device");
    assert_eq!(refused(2).await, None);
    // While the device exists, its own version counts.
    assert_eq!(prune_all(store, at(DELETED - 1), 100).await, (0, 0));
    assert_eq!(prune_all(store, at(DELETED), 100).await, (1, 0));
    assert_eq!(refused(1).await, Some(LoginRefused::Revoked), "pruned or not");
    delete(store, app, "d1", DELETED).await;
    join(store, app, "d1", "u1", &[]).await;
    assert_eq!((refused(2).await, refused(3).await), (Some(LoginRefused::Revoked), None));

    // The time of the last deletion counts.
    delete(store, app, "d1", 2 * DELETED - 1).await;
    assert_eq!(prune_all(store, at(3 * DELETED - 2), 100).await, (0, 0));
    assert_eq!(prune_all(store, at(3 * DELETED - 1), 100).await, (1, 0));
    assert_eq!(first_version(store, app, "d1", 0).await, 1, "all of its tokens have expired");
}

pub(crate) async fn deleted_devices_are_pruned_in_bounded_steps(store: &dyn Store) {
    let app = app(store, "shop").await;
    for i in 0..10 {
        assert_eq!(first_version(store, app, &format!("d{i}"), i % 2).await, 1);
    }
    let pruned = store.prune(at(DELETED), 4).await.expect("pruned");
    assert_eq!((pruned.deleted_devices, pruned.more), (4, true));
    assert_eq!(prune_all(store, at(DELETED), 4).await, (1, 0));
    assert_eq!(prune_all(store, at(DELETED + 1), 4).await, (5, 0));
    assert_eq!(store.prune(at(DELETED + 1), 4).await.expect("pruned"), Pruned::default());
}

/// Deletes a device of a store whose tokens live for 40 days.
pub(crate) async fn before_a_lower_ttl(store: &dyn Store) -> AppId {
    let app = app(store, "shop").await;
    assert_eq!(first_version(store, app, "d1", 0).await, 1);
    app
}

pub(crate) const GREATER_TTL: Duration = Duration::from_secs(40 * DAY);
pub(crate) const LOWER_TTL: Duration = Duration::from_secs(DAY);

/// The same database, opened with a lifetime of a day.
pub(crate) async fn after_a_lower_ttl(store: &dyn Store, app: AppId) {
    assert_eq!(prune_all(store, at(41 * DAY - 1), 100).await, (0, 0), "the token of 40 days may be in use");
    assert_eq!(first_version(store, app, "d1", 1).await, 2);
    assert_eq!(prune_all(store, at(41 * DAY), 100).await, (0, 0));
    assert_eq!(prune_all(store, at(41 * DAY + 1), 100).await, (1, 0));
}

/// Deletes devices, and leaves a topic that nothing needs. The engine's test removes what the last migration added.
pub(crate) async fn before_the_upgrade(store: &dyn Store) -> AppId {
    let app = app(store, "shop").await;
    join(store, app, "d0", "u1", &["news"]).await;
    delete(store, app, "d0", 0).await;
    for i in 1..10 {
        first_version(store, app, &format!("d{i}"), 0).await;
    }
    app
}

/// Rows of an older program count from the first clean-up on.
pub(crate) async fn after_the_upgrade(store: &dyn Store, app: AppId) {
    let late = 1_000 * DAY;
    assert_eq!(prune_all(store, at(late), 4).await, (0, 0));
    assert_eq!(names(store, app).await, ["news"]);
    assert_eq!(first_version(store, app, "d0", late + 1).await, 2);
    assert_eq!(prune_all(store, at(late + DELETED - 1), 4).await, (0, 1));
    assert_eq!(prune_all(store, at(late + DELETED), 4).await, (9, 0));
    assert_eq!(prune_all(store, at(late + DELETED + 1), 4).await, (1, 0));
    assert_eq!(first_version(store, app, "d0", 0).await, 1);
}

/// The topics that have rows.
pub(crate) async fn names(store: &dyn Store, app: AppId) -> Vec<String> {
    let states = store.topics(app, None, 1_000).await.expect("read");
    states.into_iter().map(|state| state.topic.to_string()).collect()
}

async fn position(store: &dyn Store, app: AppId, name: &str) -> Option<Position> {
    store.topic(app, &topic(name)).await.expect("read").position
}

fn live(name: &str) -> Request {
    Request { when: When::Active, ttl: ttl(20 * DAY), ..stored(to_topic(name)) }
}

pub(crate) async fn a_topic_that_nothing_needs_is_removed(store: &dyn Store) {
    let app = app(store, "shop").await;
    join(store, app, "d1", "u1", &["left", "subscribed"]).await;
    assert!(store.unsubscribe(app, &device("d1"), &topic("left")).await.expect("unsubscribed"));
    send(store, app, live("passing")).await;
    send(store, app, Request { ttl: ttl(20 * DAY), ..stored(to_topic("logged")) }).await;
    send(store, app, Request { retain: true, ..live("retained") }).await;
    channel(store, app, "final", Some("bound")).await;
    send(store, app, live("bound")).await;
    let all = ["bound", "left", "logged", "passing", "retained", "subscribed"];
    assert_eq!(prune_all(store, at(0), 100).await, (0, 0));
    assert_eq!(names(store, app).await, all);
    assert_eq!(prune_all(store, at(UNUSED - 1), 100).await, (0, 0));
    assert_eq!(prune_all(store, at(UNUSED), 100).await, (0, 2));
    assert_eq!(names(store, app).await, ["bound", "logged", "retained", "subscribed"]);
    // A log and a retained message end.
    assert_eq!(prune_all(store, at(20 * DAY), 100).await, (0, 0));
    assert_eq!(prune_all(store, at(20 * DAY + UNUSED), 100).await, (0, 2));
    assert_eq!(names(store, app).await, ["bound", "subscribed"]);
    assert_eq!(waiting(store, app, "d1", at(0)).await, []);
}

pub(crate) async fn the_use_of_a_marked_topic_clears_the_mark(store: &dyn Store) {
    let app = app(store, "shop").await;
    let uses = ["subscribed", "registered", "published", "bound"];
    for name in ["never", "subscribed", "registered", "published", "bound"] {
        send(store, app, live(name)).await;
    }
    join(store, app, "d1", "u1", &[]).await;
    assert_eq!(prune_all(store, at(0), 100).await, (0, 0), "they are marked");
    assert!(store.subscribe(app, &device("d1"), &topic("subscribed"), at(1)).await.expect("subscribed"));
    join(store, app, "d2", "u1", &["registered"]).await;
    for id in ["d1", "d2"] {
        for name in ["subscribed", "registered"] {
            store.unsubscribe(app, &device(id), &topic(name)).await.expect("written");
        }
    }
    send_at(store, app, live("published"), at(2)).await;
    channel(store, app, "final", Some("bound")).await;
    assert_eq!(prune_all(store, at(UNUSED), 100).await, (0, 1));
    let mut left = uses;
    left.sort_unstable();
    assert_eq!(names(store, app).await, left, "their time starts again");
    assert_eq!(prune_all(store, at(2 * UNUSED), 100).await, (0, 3));
    assert_eq!(names(store, app).await, ["bound"]);
}

pub(crate) async fn a_removed_topic_starts_again(store: &dyn Store) {
    let app = app(store, "shop").await;
    let first = send(store, app, live("news")).await;
    send(store, app, Request { ttl: ttl(10), ..stored(to_topic("news")) }).await;
    let last = position(store, app, "news").await.expect("published");
    assert_eq!(prune_all(store, at(10), 100).await, (0, 0));
    assert_eq!(prune_all(store, at(10 + UNUSED), 100).await, (0, 1));

    // A client returns with a position, with none, and as one that knows the topic as unused.
    let zero = Position { epoch: Epoch(0), offset: 0 };
    let recover = async |since| {
        let asked = Recover { app, topic: topic("news"), since, retained: true, now: at(10 + UNUSED) };
        let page = store.recover(asked).await.expect("read");
        (ids(&page.messages), page.heads[0].position, page.heads[0].complete)
    };
    assert_eq!(recover(Some(last)).await, (vec![], zero, false), "its log no longer exists");
    assert_eq!(recover(None).await, (vec![], zero, true));
    assert_eq!(recover(Some(zero)).await, (vec![], zero, true));

    // What refers to the topic is read without it.
    let state = store.notification(app, first, at(UNUSED)).await.expect("read").expect("traced");
    let place = TopicPosition { topic: topic("news"), position: Position { epoch: Epoch(0), offset: 1 } };
    assert_eq!(state.message.topic, Some(place));
    assert_eq!(state.request.target_text.as_deref(), Some("news"));
    join(store, app, "d1", "u1", &[]).await;
    assert!(store.trace(app, first, &device("d1")).await.expect("read").is_some());
    store.cancel(app, first, at(UNUSED)).await.expect("nothing to remove");

    assert!(store.subscribe(app, &device("d1"), &topic("news"), at(UNUSED)).await.expect("subscribed"));
    let again = send_at(store, app, stored(to_topic("news")), at(10 + UNUSED)).await.message;
    let anew = again.topic.clone().expect("a place").position;
    assert!(anew.epoch != last.epoch && anew.offset == 1, "{anew:?} after {last:?}");
    assert_eq!(waiting(store, app, "d1", at(10 + UNUSED)).await, [again.id]);
    assert_eq!(recover(Some(last)).await, (vec![again.id], anew, false));
    assert_eq!(recover(Some(zero)).await, (vec![again.id], anew, true));
    let state = store.notification(app, first, at(UNUSED)).await.expect("read").expect("traced");
    assert_eq!(state.message.topic.as_ref().map(|place| place.position.epoch), Some(Epoch(0)));
}

pub(crate) async fn everyones_topic_is_never_removed(store: &dyn Store) {
    let app = app(store, "shop").await;
    let everyone = || Request { when: When::Active, ..stored(Target::Everyone) };
    send(store, app, everyone()).await;
    let state = async || store.topic(app, &Topic::everyone()).await.expect("read").position;
    let before = state().await.expect("published");
    for days in 0..5 {
        assert_eq!(prune_all(store, at(days * UNUSED), 100).await, (0, 0));
    }
    assert_eq!(state().await, Some(before));
    join(store, app, "d1", "u1", &[]).await;
    let sent: NotificationId = send(store, app, stored(Target::Everyone)).await;
    assert_eq!(waiting(store, app, "d1", NOW).await, [sent]);
}

pub(crate) async fn many_topics_are_removed_in_bounded_steps(store: &dyn Store) {
    let app = app(store, "shop").await;
    let names: Vec<String> = (0..500).map(|i| format!("t{i:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    join(store, app, "d1", "u1", &names).await;
    join(store, app, "d2", "u1", &["t007"]).await;
    delete(store, app, "d1", 0).await;
    // Each call looks at 50 topics at least, until the round ends; the next one starts an hour later.
    for _ in 0..12 {
        store.prune(at(0), 100).await.expect("pruned");
    }
    let (mut removed, mut rounds) = (0, 0);
    loop {
        let pruned = store.prune(at(UNUSED), 1_000).await.expect("pruned");
        assert!(pruned.topics <= 200, "{}", pruned.topics);
        (removed, rounds) = (removed + pruned.topics, rounds + 1);
        if !pruned.more {
            break;
        }
        assert!(rounds < 20, "pruning must end");
    }
    assert_eq!((removed, self::names(store, app).await), (499, vec!["t007".to_owned()]));
    assert!(rounds >= 3);
    assert_eq!(store.prune(at(UNUSED), 1_000).await.expect("pruned"), Pruned::default());
}

pub(crate) async fn a_round_begins_an_hour_after_the_last(store: &dyn Store) {
    let app = app(store, "shop").await;
    assert_eq!(prune_all(store, at(0), 100).await, (0, 0));
    send(store, app, live("news")).await;
    assert_eq!(prune_all(store, at(3_599), 100).await, (0, 0), "not marked yet");
    assert_eq!(prune_all(store, at(3_600), 100).await, (0, 0), "marked");
    assert_eq!(prune_all(store, at(3_599 + UNUSED), 100).await, (0, 0));
    assert_eq!(prune_all(store, at(3_600 + UNUSED), 100).await, (0, 1));

    // A clock was wrong.
    send(store, app, live("sport")).await;
    assert_eq!(prune_all(store, at(1_000 * DAY), 100).await, (0, 0), "marked");
    assert_eq!(prune_all(store, at(8 * DAY), 100).await, (0, 0), "marked again");
    assert_eq!(prune_all(store, at(8 * DAY + UNUSED), 100).await, (0, 1));
}
