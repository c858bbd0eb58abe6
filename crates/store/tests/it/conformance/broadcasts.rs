//! Broadcast channels, and the broadcasts that wait for them.

use std::time::Duration;

use noroshi_store::{
    BROADCAST_TAKES_MAX, BroadcastsOf, Channel, Claim, DueBroadcast, Error, FinishedBroadcast, Idempotency,
    NewBroadcast, NewChannel, PushRecord, Reserved, SENDER_ENDED, Store, StoredBroadcast, TakenBroadcasts,
    Then,
};
use noroshi_types::{
    AppId, Broadcast, BroadcastState, JsonText, Label, NotificationId, Push, PushEnvironment, Request,
    StoragePolicy, Timestamp,
};

use super::fixture::*;

const LEASE: Duration = Duration::from_secs(60);
const CHANNELS_MAX: usize = 3;
const WAITING_MAX: usize = 4;

fn label(name: &str) -> Label {
    Label::parse(name).expect(name)
}

fn new_channel(app: AppId, name: &str, topic_name: Option<&str>) -> NewChannel {
    NewChannel {
        app,
        name: label(name),
        environment: PushEnvironment::Production,
        bundle: "com.example.app".to_owned(),
        policy: StoragePolicy::Latest,
        topic: topic_name.map(topic),
    }
}

async fn reserve(store: &dyn Store, new: NewChannel, by: u64, now: Timestamp) -> Result<Reserved, Error> {
    store.reserve_channel(new, Claim { until: now.saturating_add(LEASE), by }, CHANNELS_MAX, now).await
}

/// A channel that exists at Apple.
pub(crate) async fn channel(store: &dyn Store, app: AppId, name: &str, topic_name: Option<&str>) -> Channel {
    let new = new_channel(app, name, topic_name);
    assert_eq!(reserve(store, new, 7, NOW).await.expect("reserved"), Reserved::Claimed);
    store.complete_channel(app, &label(name), 7, format!("apple-{name}")).await.expect("completed")
}

pub(crate) fn broadcast(text: &str) -> Broadcast {
    let payload = JsonText::from_valid(format!("{{\"aps\":\"{text}\"}}"));
    Broadcast { payload, priority: 10, replaceable: false }
}

/// A notification to a topic and its channels.
pub(crate) fn with_broadcast(name: &str, text: &str, seconds: u64) -> Request {
    let push = Push { broadcast: Some(Box::new(broadcast(text))), ..Push::default() };
    Request { push, ttl: ttl(seconds), ..stored(to_topic(name)) }
}

fn to_channel(app: AppId, name: &str, broadcast: Broadcast) -> NewBroadcast {
    NewBroadcast { app, channel: label(name), broadcast, expires_at: at(600), idempotency: None }
}

async fn cast(store: &dyn Store, new: NewBroadcast, now: Timestamp) -> Result<StoredBroadcast, Error> {
    store.broadcast(new, WAITING_MAX, now).await.map(|(stored, _)| stored)
}

async fn take(store: &dyn Store, now: Timestamp) -> TakenBroadcasts {
    store.take_broadcasts(now, LEASE, 10).await.expect("taken")
}

fn payloads(taken: &TakenBroadcasts) -> Vec<String> {
    let text = |due: &DueBroadcast| due.payload.as_str()[8..].trim_end_matches("\"}").to_owned();
    let mut texts: Vec<String> = taken.due.iter().map(text).collect();
    texts.sort();
    texts
}

async fn finish(store: &dyn Store, due: &DueBroadcast, then: Then, now: Timestamp) {
    let reason = match then {
        Then::End(BroadcastState::Sent) => None,
        _ => Some("TooManyRequests"),
    };
    let finished = FinishedBroadcast {
        channel: due.channel,
        leased_until: due.leased_until,
        num: due.num,
        reason,
        then,
        record: None,
    };
    store.finish_broadcasts(vec![finished], now).await.expect("finished");
}

async fn sent(store: &dyn Store, due: &DueBroadcast, now: Timestamp) {
    finish(store, due, Then::End(BroadcastState::Sent), now).await;
}

async fn of_channel(store: &dyn Store, app: AppId, name: &str) -> Vec<StoredBroadcast> {
    store.broadcasts(app, BroadcastsOf::Channel(label(name)), 100).await.expect("listed")
}

async fn of_notification(store: &dyn Store, app: AppId, id: NotificationId) -> Vec<StoredBroadcast> {
    store.broadcasts(app, BroadcastsOf::Notification(id), 100).await.expect("listed")
}

fn states(stored: &[StoredBroadcast]) -> Vec<BroadcastState> {
    stored.iter().map(|one| one.state).collect()
}

pub(crate) async fn a_broadcast_has_its_attempts(store: &dyn Store) {
    let (mine, theirs) = (app(store, "mine").await, app(store, "theirs").await);
    channel(store, mine, "c", None).await;
    let stored = cast(store, to_channel(mine, "c", broadcast("1")), NOW).await.expect("accepted");
    let of = async |app| store.broadcast_attempts(app, stored.id).await.expect("read");
    let record = |text: &str, until| {
        let (keep_until, devices) = (at(until), vec![PushRecord::NO_DEVICE]);
        Some(Box::new(PushRecord { keep_until, devices, attempts: text.into() }))
    };
    let result = |due: &DueBroadcast, then, record| FinishedBroadcast {
        channel: due.channel,
        leased_until: due.leased_until,
        num: due.num,
        reason: None,
        then,
        record,
    };
    let due = take(store, NOW).await.due.remove(0);
    let failed = result(&due, Then::Again(at(5)), record("first", 100));
    store.finish_broadcasts(vec![failed.clone()], at(1)).await.expect("written");
    store.finish_broadcasts(vec![failed], at(1)).await.expect("its record is written once");
    let due = take(store, at(5)).await.due.remove(0);
    // The attempt was made, although its channel is gone.
    store.delete_channel(mine, &label("c"), at(6)).await.expect("deleted");
    let sent = result(&due, Then::End(BroadcastState::Sent), record("second", 200));
    store.finish_broadcasts(vec![sent], at(7)).await.expect("written");
    assert_eq!(of(mine).await, [b"first".to_vec(), b"second".to_vec()]);
    assert!(of(theirs).await.is_empty());
    store.prune(at(150), 100).await.expect("pruned");
    assert_eq!(of(mine).await, [b"second".to_vec()]);
    store.delete_app(mine).await.expect("deleted");
    assert!(of(mine).await.is_empty());
}

pub(crate) async fn a_channel_is_created_bound_and_deleted(store: &dyn Store) {
    let (mine, theirs) = (app(store, "mine").await, app(store, "theirs").await);
    let made = channel(store, mine, "final", Some("game/1")).await;
    let expected = Channel {
        name: label("final"),
        environment: PushEnvironment::Production,
        bundle: "com.example.app".to_owned(),
        policy: StoragePolicy::Latest,
        apple: Some("apple-final".to_owned()),
        topic: Some(topic("game/1")),
        created_at: NOW,
        waiting: 0,
    };
    assert_eq!(made, expected);
    assert_eq!(store.channel(mine, &label("final")).await.expect("read"), Some(made.clone()));
    assert_eq!(store.channel(theirs, &label("final")).await.expect("read"), None);
    assert_eq!(store.channels(mine, None, 10).await.expect("read"), std::slice::from_ref(&made));
    assert_eq!(store.channels(mine, Some(label("final")), 10).await.expect("read"), []);
    assert_eq!(store.channels(theirs, None, 10).await.expect("read"), []);
    assert_eq!(
        store.channels_of_topic(mine, &topic("game/1")).await.expect("read"),
        std::slice::from_ref(&made)
    );
    assert_eq!(store.channels_of_topic(theirs, &topic("game/1")).await.expect("read"), []);
    let listed = vec!["apple-final".to_owned(), "other".to_owned()];
    assert_eq!(
        store.known_channels(mine, listed.clone()).await.expect("read"),
        [("apple-final".to_owned(), label("final"))]
    );
    assert_eq!(store.known_channels(theirs, listed).await.expect("read"), []);

    // A topic has one channel in an environment; another environment and another app have their own.
    let second = reserve(store, new_channel(mine, "second", Some("game/1")), 8, NOW).await;
    assert!(matches!(second, Err(Error::Exists)), "{second:?}");
    channel(store, mine, "second", None).await;
    let bound = store.bind_channel(mine, &label("second"), Some(topic("game/1"))).await;
    assert!(matches!(bound, Err(Error::Exists)), "{bound:?}");
    channel(store, theirs, "final", Some("game/1")).await;
    let free = store.bind_channel(mine, &label("final"), None).await.expect("bound");
    assert_eq!(free.topic, None);
    let bound = store.bind_channel(mine, &label("second"), Some(topic("game/1"))).await.expect("bound");
    assert_eq!(bound.topic, Some(topic("game/1")));
    let unknown = store.bind_channel(theirs, &label("second"), None).await;
    assert!(matches!(unknown, Err(Error::NotFound)), "{unknown:?}");

    let counts = store.channel_counts().await.expect("counted");
    assert_eq!((counts.channels, counts.waiting), (3, 0));
    store.delete_channel(mine, &label("second"), NOW).await.expect("deleted");
    let again = store.delete_channel(mine, &label("second"), NOW).await;
    assert!(matches!(again, Err(Error::NotFound)), "{again:?}");
    assert_eq!(store.channels_of_topic(mine, &topic("game/1")).await.expect("read"), []);
}

pub(crate) async fn a_name_is_created_once(store: &dyn Store) {
    let app = app(store, "mine").await;
    let new = || new_channel(app, "final", Some("game/1"));
    assert_eq!(reserve(store, new(), 7, NOW).await.expect("reserved"), Reserved::Claimed);
    assert_eq!(reserve(store, new(), 8, at(1)).await.expect("busy"), Reserved::Busy);
    let reserved = store.channel(app, &label("final")).await.expect("read").expect("found");
    assert_eq!(reserved.apple, None);
    let early = cast(store, to_channel(app, "final", broadcast("1")), NOW).await;
    assert!(matches!(early, Err(Error::Conflict)), "{early:?}");
    // Apple's answer is lost. After the claim another caller creates the channel, and the first one is too late.
    assert_eq!(reserve(store, new(), 8, at(61)).await.expect("reserved"), Reserved::Claimed);
    let late = store.complete_channel(app, &label("final"), 7, "lost".to_owned()).await;
    assert!(matches!(late, Err(Error::Conflict)), "{late:?}");
    store.abandon_channel(app, &label("final"), 7).await.expect("nothing");
    let made = store.complete_channel(app, &label("final"), 8, "kept".to_owned()).await.expect("completed");
    assert_eq!(made.apple.as_deref(), Some("kept"));
    assert_eq!(reserve(store, new(), 9, at(200)).await.expect("exists"), Reserved::Exists(made));
    // A claim that Apple refused frees the name.
    let other = || new_channel(app, "other", None);
    assert_eq!(reserve(store, other(), 9, NOW).await.expect("reserved"), Reserved::Claimed);
    store.abandon_channel(app, &label("other"), 9).await.expect("abandoned");
    assert_eq!(store.channel(app, &label("other")).await.expect("read"), None);
}

pub(crate) async fn an_app_has_a_bounded_number_of_channels(store: &dyn Store) {
    let app = app(store, "mine").await;
    for name in ["a", "b", "c"] {
        channel(store, app, name, None).await;
    }
    let over = reserve(store, new_channel(app, "d", None), 1, NOW).await;
    assert!(matches!(over, Err(Error::Limit(_))), "{over:?}");
    let sandbox = NewChannel { environment: PushEnvironment::Sandbox, ..new_channel(app, "d", None) };
    assert_eq!(reserve(store, sandbox, 1, NOW).await.expect("reserved"), Reserved::Claimed);
    // An existing name is found at the limit too.
    let exists = reserve(store, new_channel(app, "a", None), 1, NOW).await.expect("found");
    assert!(matches!(exists, Reserved::Exists(_)), "{exists:?}");
}

pub(crate) async fn broadcasts_of_a_channel_are_sent_in_order(store: &dyn Store) {
    let app = app(store, "mine").await;
    channel(store, app, "one", None).await;
    channel(store, app, "two", None).await;
    for text in ["1", "2"] {
        let stored = cast(store, to_channel(app, "one", broadcast(text)), NOW).await.expect("accepted");
        assert_eq!((stored.state, stored.attempts, stored.ended_at), (BroadcastState::Waiting, 0, None));
        assert_eq!(store.stored_broadcast(app, stored.id).await.expect("read"), Some(stored));
    }
    cast(store, to_channel(app, "two", broadcast("3")), at(1)).await.expect("accepted");
    let counts = store.channel_counts().await.expect("counted");
    assert_eq!((counts.channels, counts.waiting), (2, 2));

    // One of each channel at a time.
    let taken = take(store, at(2)).await;
    assert_eq!(payloads(&taken), ["1", "3"]);
    assert_eq!(taken.next_due, Some(at(62)));
    let first = taken.due.iter().find(|due| due.payload.as_str().contains('1')).expect("the first");
    assert_eq!(
        (first.app, first.apple.as_str(), first.bundle.as_str(), first.priority, first.policy),
        (app, "apple-one", "com.example.app", 10, StoragePolicy::Latest)
    );
    assert!(take(store, at(3)).await.due.is_empty());
    for due in &taken.due {
        sent(store, due, at(4)).await;
    }
    let next = take(store, at(5)).await;
    assert_eq!(payloads(&next), ["2"]);
    sent(store, &next.due[0], at(6)).await;
    let last = take(store, at(7)).await;
    assert!(last.due.is_empty() && last.next_due.is_none(), "{last:?}");
    let listed = of_channel(store, app, "one").await;
    assert_eq!(states(&listed), [BroadcastState::Sent; 2]);
    assert_eq!((listed[0].ended_at, listed[1].ended_at), (Some(at(6)), Some(at(4))));
    assert_eq!(store.channel_counts().await.expect("counted").waiting, 0);
}

pub(crate) async fn a_failed_broadcast_is_tried_again(store: &dyn Store) {
    let app = app(store, "mine").await;
    channel(store, app, "one", None).await;
    for text in ["1", "2"] {
        cast(store, to_channel(app, "one", broadcast(text)), NOW).await.expect("accepted");
    }
    let taken = take(store, at(1)).await;
    finish(store, &taken.due[0], Then::Again(at(10)), at(2)).await;
    // The next one waits for its turn.
    let idle = take(store, at(9)).await;
    assert!(idle.due.is_empty() && idle.next_due == Some(at(10)), "{idle:?}");
    let again = take(store, at(10)).await;
    assert_eq!((payloads(&again), again.due[0].attempt), (vec!["1".to_owned()], 1));
    assert_eq!(again.due[0].id, taken.due[0].id);
    let waiting = store.stored_broadcast(app, again.due[0].id).await.expect("read").expect("found");
    assert_eq!((waiting.attempts, waiting.reason.as_deref()), (1, Some("TooManyRequests")));
    // Apple refuses it, and the next one follows.
    finish(store, &again.due[0], Then::End(BroadcastState::Refused), at(11)).await;
    assert_eq!(payloads(&take(store, at(12)).await), ["2"]);
    let listed = of_channel(store, app, "one").await;
    assert_eq!(states(&listed), [BroadcastState::Waiting, BroadcastState::Refused]);
    assert_eq!((listed[1].attempts, listed[1].ended_at), (2, Some(at(11))));
}

pub(crate) async fn a_lease_of_a_broadcast_ends(store: &dyn Store) {
    let app = app(store, "mine").await;
    channel(store, app, "one", None).await;
    for text in ["1", "2"] {
        cast(store, to_channel(app, "one", broadcast(text)), NOW).await.expect("accepted");
    }
    let lost = take(store, at(1)).await;
    assert!(take(store, at(60)).await.due.is_empty());
    let again = take(store, at(61)).await;
    assert_eq!((payloads(&again), again.due[0].id), (vec!["1".to_owned()], lost.due[0].id));
    // The first sender lived on: its result counts, once, and does not end the lease of the second.
    sent(store, &lost.due[0], at(62)).await;
    assert!(take(store, at(63)).await.due.is_empty());
    finish(store, &again.due[0], Then::End(BroadcastState::Refused), at(64)).await;
    assert_eq!(payloads(&take(store, at(65)).await), ["2"]);
    assert_eq!(states(&of_channel(store, app, "one").await), [BroadcastState::Waiting, BroadcastState::Sent]);
}

pub(crate) async fn a_broadcast_that_crashes_its_senders_is_set_aside(store: &dyn Store) {
    let app = app(store, "mine").await;
    channel(store, app, "one", None).await;
    for text in ["1", "2"] {
        let new = NewBroadcast { expires_at: at(100_000), ..to_channel(app, "one", broadcast(text)) };
        cast(store, new, NOW).await.expect("accepted");
    }
    let mut now = 1;
    for _ in 0..BROADCAST_TAKES_MAX {
        assert_eq!(payloads(&take(store, at(now)).await), ["1"]);
        now += 61;
    }
    let taken = take(store, at(now)).await;
    assert_eq!((payloads(&taken), taken.set_aside), (vec!["2".to_owned()], 1));
    let listed = of_channel(store, app, "one").await;
    assert_eq!((listed[1].state, listed[1].reason.as_deref()), (BroadcastState::Refused, Some(SENDER_ENDED)));
}

pub(crate) async fn an_expired_broadcast_is_not_sent(store: &dyn Store) {
    let app = app(store, "mine").await;
    channel(store, app, "one", None).await;
    let until =
        |seconds, text| NewBroadcast { expires_at: at(seconds), ..to_channel(app, "one", broadcast(text)) };
    cast(store, until(5, "1"), NOW).await.expect("accepted");
    cast(store, until(0, "now or never"), NOW).await.expect("accepted");
    let taken = take(store, at(5)).await;
    assert_eq!((payloads(&taken), taken.expired), (vec!["now or never".to_owned()], 1));
    finish(store, &taken.due[0], Then::Again(at(6)), at(5)).await;
    let over = take(store, at(6)).await;
    assert!(over.due.is_empty() && over.expired == 1 && over.next_due.is_none(), "{over:?}");
    assert_eq!(states(&of_channel(store, app, "one").await), [BroadcastState::Expired; 2]);
}

pub(crate) async fn a_newer_broadcast_replaces_one_that_waits(store: &dyn Store) {
    let app = app(store, "mine").await;
    channel(store, app, "one", None).await;
    let replaceable = |text| Broadcast { replaceable: true, ..broadcast(text) };
    cast(store, to_channel(app, "one", replaceable("1")), NOW).await.expect("accepted");
    let first = take(store, at(1)).await;
    // One that is being sent is not replaced.
    for new in [replaceable("2"), broadcast("3"), replaceable("4")] {
        cast(store, to_channel(app, "one", new), at(2)).await.expect("accepted");
    }
    sent(store, &first.due[0], at(3)).await;
    let second = take(store, at(4)).await;
    assert_eq!((payloads(&second), second.replaced), (vec!["3".to_owned()], 1));
    sent(store, &second.due[0], at(5)).await;
    assert_eq!(payloads(&take(store, at(6)).await), ["4"]);
    use BroadcastState::{Replaced, Sent, Waiting};
    assert_eq!(states(&of_channel(store, app, "one").await), [Waiting, Sent, Replaced, Sent]);
}

pub(crate) async fn a_channel_has_a_bounded_number_of_broadcasts(store: &dyn Store) {
    let app = app(store, "mine").await;
    channel(store, app, "one", None).await;
    for _ in 0..WAITING_MAX {
        cast(store, to_channel(app, "one", broadcast("1")), NOW).await.expect("accepted");
    }
    let over = cast(store, to_channel(app, "one", broadcast("1")), NOW).await;
    assert!(matches!(over, Err(Error::Limit(_))), "{over:?}");
    let found = store.channel(app, &label("one")).await.expect("read").expect("found");
    assert_eq!(found.waiting, WAITING_MAX as u64);
    let unknown = cast(store, to_channel(app, "two", broadcast("1")), NOW).await;
    assert!(matches!(unknown, Err(Error::NotFound)), "{unknown:?}");
}

pub(crate) async fn a_repeated_key_broadcasts_once(store: &dyn Store) {
    let app = app(store, "mine").await;
    channel(store, app, "one", None).await;
    let keyed = |text, body| NewBroadcast {
        idempotency: Some(Idempotency { key: "k".into(), body_hash: [body; 32] }),
        ..to_channel(app, "one", broadcast(text))
    };
    let (first, replayed) = store.broadcast(keyed("1", 1), WAITING_MAX, NOW).await.expect("accepted");
    assert!(!replayed);
    let again = store.broadcast(keyed("1", 1), WAITING_MAX, at(1)).await.expect("repeated");
    assert_eq!(again, (first.clone(), true));
    let other = store.broadcast(keyed("2", 2), WAITING_MAX, at(1)).await;
    assert!(matches!(other, Err(Error::IdempotencyConflict)), "{other:?}");
    let later = store.broadcast(keyed("2", 2), WAITING_MAX, at(90_000)).await.expect("accepted");
    assert!(later.0.id != first.id && !later.1);
}

pub(crate) async fn a_notification_reaches_the_channels_of_its_topic(store: &dyn Store) {
    let (mine, theirs) = (app(store, "mine").await, app(store, "theirs").await);
    channel(store, mine, "one", Some("game/1")).await;
    channel(store, theirs, "one", Some("game/1")).await;
    let sandbox = NewChannel {
        environment: PushEnvironment::Sandbox,
        policy: StoragePolicy::Nothing,
        ..new_channel(mine, "test", Some("game/1"))
    };
    reserve(store, sandbox, 3, NOW).await.expect("reserved");
    // A channel that is not complete gets nothing.
    let early = send(store, mine, with_broadcast("game/1", "0", 60)).await;
    assert_eq!(of_notification(store, mine, early).await.len(), 1);
    store.complete_channel(mine, &label("test"), 3, "apple-test".to_owned()).await.expect("completed");
    let id = send(store, mine, with_broadcast("game/1", "1", 60)).await;
    let stored = of_notification(store, mine, id).await;
    assert_eq!(stored.len(), 2);
    assert!(stored[0].id != stored[1].id);
    for one in &stored {
        assert_eq!((one.notification, one.expires_at, one.priority), (Some(id), at(60), 10));
    }
    assert_eq!(of_notification(store, theirs, id).await, []);
    // Nothing without the field, or to another topic.
    for request in [stored_to("game/1"), with_broadcast("game/2", "x", 60)] {
        let id = send(store, mine, request).await;
        assert_eq!(of_notification(store, mine, id).await, []);
    }
    let taken = take(store, at(1)).await;
    assert_eq!(payloads(&taken), ["0", "1"]);
    for due in &taken.due {
        sent(store, due, at(2)).await;
    }
    assert_eq!(payloads(&take(store, at(3)).await), ["1"]);
    // A repeated request is not broadcast again.
    let once = || with_broadcast("game/1", "2", 60);
    let first = send_once(store, mine, once(), "k", 1, at(4)).await.expect("accepted");
    let again = send_once(store, mine, once(), "k", 1, at(5)).await.expect("repeated");
    assert_eq!((first.message.id, again.replayed), (again.message.id, true));
    assert_eq!(of_notification(store, mine, first.message.id).await.len(), 2);
}

fn stored_to(name: &str) -> Request {
    stored(to_topic(name))
}

pub(crate) async fn cancelling_a_notification_cancels_its_broadcasts(store: &dyn Store) {
    let app = app(store, "mine").await;
    channel(store, app, "one", Some("game/1")).await;
    let first = send(store, app, with_broadcast("game/1", "1", 60)).await;
    let second = send(store, app, with_broadcast("game/1", "2", 60)).await;
    let taken = take(store, at(1)).await;
    store.cancel(app, first, at(2)).await.expect("cancelled");
    store.cancel(app, second, at(2)).await.expect("cancelled");
    // The first one is being sent.
    assert_eq!(states(&of_notification(store, app, first).await), [BroadcastState::Waiting]);
    assert_eq!(states(&of_notification(store, app, second).await), [BroadcastState::Cancelled]);
    sent(store, &taken.due[0], at(3)).await;
    assert!(take(store, at(4)).await.due.is_empty());
}

pub(crate) async fn a_deleted_channel_sends_nothing(store: &dyn Store) {
    let mine = app(store, "mine").await;
    channel(store, mine, "one", Some("game/1")).await;
    let id = send(store, mine, with_broadcast("game/1", "1", 60)).await;
    let taken = take(store, NOW).await;
    store.delete_channel(mine, &label("one"), at(1)).await.expect("deleted");
    let stored = of_notification(store, mine, id).await;
    assert_eq!((stored[0].state, stored[0].channel.as_str()), (BroadcastState::Cancelled, "one"));
    sent(store, &taken.due[0], at(2)).await;
    assert!(take(store, at(90)).await.due.is_empty());
    // The name and the topic are free.
    channel(store, mine, "one", Some("game/1")).await;
    assert_eq!(of_channel(store, mine, "one").await, []);
    send(store, mine, with_broadcast("game/1", "2", 60)).await;
    store.delete_app(mine).await.expect("deleted");
    let other = app(store, "other").await;
    assert!(take(store, at(1)).await.due.is_empty());
    assert_eq!(store.channel_counts().await.expect("counted").channels, 0);
    assert_eq!(of_notification(store, other, id).await, []);
}

pub(crate) async fn broadcasts_are_forgotten_after_the_retention(store: &dyn Store) {
    let app = app(store, "mine").await;
    channel(store, app, "one", None).await;
    for text in ["1", "2"] {
        let new = NewBroadcast { expires_at: at(30 * 86_400), ..to_channel(app, "one", broadcast(text)) };
        cast(store, new, NOW).await.expect("accepted");
    }
    sent(store, &take(store, at(1)).await.due[0], at(2)).await;
    store.prune(at(3_600), 100).await.expect("pruned");
    assert_eq!(of_channel(store, app, "one").await.len(), 2);
    while store.prune(at(30 * 86_400), 100).await.expect("pruned").more {}
    // One that waits is kept, however old it is.
    assert_eq!(states(&of_channel(store, app, "one").await), [BroadcastState::Waiting]);
}

/// Senders and publishers at the same time: everything is sent once, and nothing is left behind.
pub(crate) async fn concurrent_senders_leave_nothing_behind(store: &dyn Store) {
    let app = app(store, "mine").await;
    for name in ["one", "two"] {
        channel(store, app, name, Some(name)).await;
    }
    let publish = async |name: &'static str| {
        for text in 0..20 {
            send(store, app, with_broadcast(name, &text.to_string(), 3_600)).await;
        }
    };
    let sender = async || {
        let mut count = 0;
        let mut idle = 0;
        while idle < 50 {
            let taken = take(store, NOW).await;
            idle = if taken.due.is_empty() { idle + 1 } else { 0 };
            for due in &taken.due {
                sent(store, due, NOW).await;
                count += 1;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        count
    };
    let (.., a, b) = tokio::join!(publish("one"), publish("two"), sender(), sender());
    let rest = sender().await;
    assert_eq!(a + b + rest, 40);
    for name in ["one", "two"] {
        let listed = of_channel(store, app, name).await;
        assert_eq!(states(&listed), [BroadcastState::Sent; 20]);
        assert!(listed.iter().all(|one| one.attempts == 1), "{listed:?}");
    }
}
