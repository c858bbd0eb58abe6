//! The messages that are kept for a device until it acknowledges them.

use std::collections::BTreeMap;

use noroshi_store::{Ack, Error, InboxPage, InboxPlace, InboxRange, Store, Work};
use noroshi_types::{Outcome, Request, When};

use super::fixture::*;

pub(crate) async fn stored_reaches_the_inbox_of_every_device_of_a_user(store: &dyn Store) {
    let app = app(store, "shop").await;
    for (id, of) in [("d1", "u1"), ("d2", "u1"), ("d3", "u2"), ("d4", "u3")] {
        join(store, app, id, of, &[]).await;
    }
    let accepted = send_at(store, app, stored(users(&["u2", "u1", "nobody"])), NOW).await;
    assert_eq!((accepted.targets, accepted.kept(), accepted.replayed), (Some(3), 3, false));
    let message = &accepted.message;
    let request = stored(users(&["u1"]));
    assert_eq!((message.app, message.when, message.urgency), (app, When::Stored, request.urgency));
    assert_eq!((&message.notification, &message.data), (&request.notification, &request.data));
    assert_eq!((message.sent_at, message.expires_at), (NOW, request.expires_at(NOW)));
    assert_eq!(message.topic, None);
    for (id, expected) in
        [("d1", vec![message.id]), ("d2", vec![message.id]), ("d3", vec![message.id]), ("d4", vec![])]
    {
        assert_eq!(waiting(store, app, id, NOW).await, expected, "{id}");
    }
    assert_eq!(
        log_in(store, login(app, "d1")).await.page.messages,
        std::slice::from_ref(message),
        "the message as accepted"
    );
    assert_eq!(counts(store, app, message.id).await, [(Outcome::Kept, 3), (Outcome::Unknown, 1)]);
}

pub(crate) async fn stored_to_devices_and_unknown_ones(store: &dyn Store) {
    let app = app(store, "shop").await;
    join(store, app, "d1", "u1", &[]).await;
    let d2 = join(store, app, "d2", "u1", &[]).await;
    let accepted = send_at(store, app, stored(devices(&["d9", "d2"])), NOW).await;
    assert_eq!((accepted.targets, accepted.kept()), (Some(2), 1));
    assert_eq!(outcomes_of(&accepted), [(Outcome::Unknown, vec![], 1), (Outcome::Kept, vec![d2], 1)]);
    assert_eq!(waiting(store, app, "d1", NOW).await, []);
    assert_eq!(waiting(store, app, "d2", NOW).await, [accepted.message.id]);
    assert_eq!(counts(store, app, accepted.message.id).await, [(Outcome::Kept, 1), (Outcome::Unknown, 1)]);
}

pub(crate) async fn a_live_message_is_not_stored(store: &dyn Store) {
    let app = app(store, "shop").await;
    join(store, app, "d1", "u1", &[]).await;
    for when in [When::Active, When::Connected] {
        let accepted = send_at(store, app, Request { when, ..stored(users(&["u1"])) }, NOW).await;
        assert_eq!((accepted.kept(), accepted.message.when), (0, when));
        let state = store.notification(app, accepted.message.id, NOW).await.expect("read").expect("found");
        assert_eq!(state.message, accepted.message);
    }
    let now_or_never = send_at(store, app, Request { ttl: ttl(0), ..stored(users(&["u1"])) }, NOW).await;
    assert_eq!(now_or_never.kept(), 0);
    assert_eq!(waiting(store, app, "d1", NOW).await, []);
}

pub(crate) async fn a_ttl_ends(store: &dyn Store) {
    let app = app(store, "shop").await;
    join(store, app, "d1", "u1", &[]).await;
    let short = send(store, app, Request { ttl: ttl(10), ..stored(users(&["u1"])) }).await;
    let long = send(store, app, stored(users(&["u1"]))).await;
    assert_eq!(waiting(store, app, "d1", at(9)).await, [short, long]);
    assert_eq!(waiting(store, app, "d1", at(10)).await, [long]);
    let (messages, total) = store.inbox(app, &device("d1"), 10, at(10)).await.expect("read");
    assert_eq!((ids(&messages), total), (vec![long], 1));
}

pub(crate) async fn a_newer_message_replaces_older_ones_of_its_collapse_key(store: &dyn Store) {
    let app = app(store, "shop").await;
    let d1 = join(store, app, "d1", "u1", &[]).await;
    join(store, app, "d2", "u2", &[]).await;
    let score = |names: &[&str]| Request { collapse_key: Some("score".into()), ..stored(users(names)) };
    let first = send(store, app, score(&["u1", "u2"])).await;
    let other = Request { collapse_key: Some("chat".into()), ..stored(users(&["u1"])) };
    let other = send(store, app, other).await;
    let plain = send(store, app, stored(users(&["u1"]))).await;
    let second = send_at(store, app, score(&["u1"]), NOW).await;
    assert_eq!(outcomes_of(&second), [(Outcome::Kept, vec![d1], 1)]);
    assert_eq!(
        second.departed.parts,
        [removed_part(app, Work::Notification(first), Outcome::Collapsed, NOW, &[d1])]
    );
    let trace = store.trace(app, first, &device("d1")).await.expect("read").expect("found");
    assert_eq!(trace.steps.last().map(|step| step.outcome), Some(Outcome::Collapsed));
    let second = second.message.id;
    assert_eq!(waiting(store, app, "d1", NOW).await, [other, plain, second]);
    assert_eq!(waiting(store, app, "d2", NOW).await, [first], "another device's is its own");
    assert_eq!(counts(store, app, first).await, [(Outcome::Kept, 2), (Outcome::Collapsed, 1)]);
    // Acknowledged messages are not replaced.
    ack(store, d1, &[second]).await;
    send(store, app, score(&["u1"])).await;
    assert_eq!(counts(store, app, second).await, [(Outcome::Kept, 1), (Outcome::Acked, 1)]);
}

pub(crate) async fn a_full_inbox_evicts_the_oldest(store: &dyn Store) {
    let app = app(store, "shop").await;
    let d1 = join(store, app, "d1", "u1", &[]).await;
    let mut sent = Vec::new();
    for _ in 0..INBOX_ROWS + 2 {
        sent.push(send(store, app, stored(users(&["u1"]))).await);
    }
    assert_eq!(waiting(store, app, "d1", NOW).await, sent[2..], "the newest are kept");
    assert_eq!(counts(store, app, sent[0]).await, [(Outcome::Kept, 1), (Outcome::Evicted, 1)]);
    assert_eq!(counts(store, app, sent[2]).await, [(Outcome::Kept, 1)]);
    // Acknowledged messages leave room.
    assert_eq!(ack(store, d1, &sent[2..4]).await, 2);
    for _ in 0..2 {
        sent.push(send(store, app, stored(users(&["u1"]))).await);
    }
    assert_eq!(waiting(store, app, "d1", NOW).await, sent[4..]);
    let over = send_at(store, app, stored(users(&["u1"])), NOW).await;
    let evicted = removed_part(app, Work::Notification(sent[4]), Outcome::Evicted, NOW, &[d1]);
    assert_eq!(outcomes_of(&over), [(Outcome::Kept, vec![d1], 1)]);
    assert_eq!((over.departed.parts, over.departed.beyond), (vec![evicted], BTreeMap::new()));
    let trace = store.trace(app, sent[4], &device("d1")).await.expect("read").expect("found");
    assert_eq!(trace.steps.last().map(|step| step.outcome), Some(Outcome::Evicted));
    sent.push(over.message.id);
    assert_eq!(waiting(store, app, "d1", NOW).await, sent[5..]);
}

/// For a store that keeps 32 rows of an inbox, and up to 2 more.
pub(crate) async fn the_oldest_rows_are_evicted_together(store: &dyn Store) {
    let app = app(store, "shop").await;
    let d1 = join(store, app, "d1", "u1", &[]).await;
    let mut sent = Vec::new();
    for _ in 0..34 {
        sent.push(send(store, app, stored(users(&["u1"]))).await);
    }
    assert_eq!(waiting(store, app, "d1", NOW).await, sent);
    for first in [3, 6] {
        let over = send_at(store, app, stored(users(&["u1"])), NOW).await;
        sent.push(over.message.id);
        assert_eq!(waiting(store, app, "d1", NOW).await, sent[first..]);
        assert_eq!(over.departed.count(Outcome::Evicted), 3);
        for id in &sent[first - 3..first] {
            assert_eq!(counts(store, app, *id).await, [(Outcome::Kept, 1), (Outcome::Evicted, 1)]);
        }
        for _ in 0..2 {
            sent.push(send(store, app, stored(users(&["u1"]))).await);
        }
        assert_eq!(waiting(store, app, "d1", NOW).await, sent[first..], "nobody leaves before");
    }
    // Acknowledged messages leave room, so nothing is evicted.
    assert_eq!(ack(store, d1, &sent[20..30]).await, 10);
    for _ in 0..10 {
        sent.push(send(store, app, stored(users(&["u1"]))).await);
    }
    let kept = [&sent[6..20], &sent[30..]].concat();
    assert_eq!(waiting(store, app, "d1", NOW).await, kept);
}

pub(crate) async fn many_inboxes_keep_their_newest_rows(store: &dyn Store) {
    let app = app(store, "shop").await;
    let names: Vec<String> = (0..300).map(|number| format!("u{number}")).collect();
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    let found = join_many(store, app, &all).await;
    let mut sent = Vec::new();
    for _ in 0..INBOX_ROWS + 2 {
        sent.push(send(store, app, stored(users(&all))).await);
    }
    for name in ["u0", "u7", "u299"] {
        assert_eq!(waiting(store, app, name, NOW).await, sent[2..], "{name}");
    }
    assert_eq!(counts(store, app, sent[1]).await, [(Outcome::Kept, 300), (Outcome::Evicted, 300)]);
    // One inbox has room, another one is filled in between.
    assert_eq!(ack(store, found[7], &sent).await, u64::from(INBOX_ROWS));
    let single = send(store, app, stored(users(&["u299"]))).await;
    let last = send(store, app, stored(users(&all))).await;
    assert_eq!(waiting(store, app, "u0", NOW).await, [&sent[3..], &[last]].concat());
    assert_eq!(waiting(store, app, "u7", NOW).await, [last]);
    assert_eq!(waiting(store, app, "u299", NOW).await, [&sent[4..], &[single, last]].concat());
}

pub(crate) async fn an_ack_removes_once(store: &dyn Store) {
    let app = app(store, "shop").await;
    let d1 = join(store, app, "d1", "u1", &[]).await;
    let d2 = join(store, app, "d2", "u1", &[]).await;
    let first = send(store, app, stored(users(&["u1"]))).await;
    let second = send(store, app, stored(users(&["u1"]))).await;
    let mine = send(store, app, stored(devices(&["d2"]))).await;
    assert_eq!(
        ack(store, d1, &[first, mine, first]).await,
        1,
        "ids of another device and repeated ids do not count"
    );
    assert_eq!(ack(store, d1, &[first]).await, 0);
    assert_eq!(waiting(store, app, "d1", NOW).await, [second]);
    assert_eq!(waiting(store, app, "d2", NOW).await, [first, second, mine]);
    // A batch of several devices.
    let acks = vec![Ack { device: d2, ids: vec![second, mine] }, Ack { device: d1, ids: vec![second] }];
    let acked = store.ack(acks, at(2)).await.expect("acknowledged");
    assert_eq!(acked.iter().map(|acked| acked.count).sum::<u64>(), 3);
    assert_eq!(waiting(store, app, "d2", NOW).await, [first]);
    assert_eq!(counts(store, app, second).await, [(Outcome::Kept, 2), (Outcome::Acked, 2)]);
    assert_eq!(counts(store, app, first).await, [(Outcome::Kept, 2), (Outcome::Acked, 1)]);
    let made_up = noroshi_types::NotificationId::from_bytes([7; 16]);
    assert_eq!(ack(store, d1, &[made_up]).await, 0);
}

pub(crate) async fn concurrent_acknowledgements_count_once(store: &dyn Store) {
    let app = app(store, "shop").await;
    let d1 = join(store, app, "d1", "u1", &["news"]).await;
    let d2 = join(store, app, "d2", "u1", &[]).await;
    let first = send(store, app, stored(users(&["u1"]))).await;
    let second = send(store, app, stored(users(&["u1"]))).await;
    let news = send(store, app, stored(to_topic("news"))).await;
    let calls = [
        (d1, vec![first, news]),
        (d2, vec![second, first]),
        (d1, vec![news, second, first]),
        (d2, vec![second]),
        (d2, vec![]),
    ];
    let calls = calls.iter().map(|(device, ids)| ack(store, *device, ids));
    let counted = futures_util::future::join_all(calls).await;
    assert_eq!(counted.iter().sum::<u64>(), 5, "{counted:?}");
    for id in [first, second] {
        assert_eq!(counts(store, app, id).await, [(Outcome::Kept, 2), (Outcome::Acked, 2)]);
        for name in ["d1", "d2"] {
            let trace = store.trace(app, id, &device(name)).await.expect("read").expect("found");
            let steps = trace.steps.iter().map(|step| (step.at, step.outcome));
            assert!(steps.eq([(NOW, Outcome::Kept), (at(1), Outcome::Acked)]), "{trace:?}");
        }
    }
    assert_eq!(counts(store, app, news).await, [(Outcome::Acked, 1)]);
    for name in ["d1", "d2"] {
        assert_eq!(waiting(store, app, name, NOW).await, []);
    }
}

pub(crate) async fn an_inbox_lists_the_oldest_first(store: &dyn Store) {
    let app = app(store, "shop").await;
    join(store, app, "d1", "u1", &[]).await;
    let mut sent = Vec::new();
    for _ in 0..4 {
        sent.push(send(store, app, stored(users(&["u1"]))).await);
    }
    let (messages, total) = store.inbox(app, &device("d1"), 3, NOW).await.expect("read");
    assert_eq!((ids(&messages), total), (sent[..3].to_vec(), 4));
    let (messages, total) = store.inbox(app, &device("d1"), 0, NOW).await.expect("read");
    assert_eq!((ids(&messages), total), (Vec::new(), 4));
}

pub(crate) async fn an_inbox_is_read_in_ranges(store: &dyn Store) {
    let app = app(store, "shop").await;
    let d1 = join(store, app, "d1", "u1", &[]).await;
    join(store, app, "d2", "u1", &[]).await;
    let mut sent = Vec::new();
    // The clock stands still between some messages and advances between others.
    for seconds in [0, 10, 10, 20, 30] {
        let request = Request { ttl: ttl(100), ..stored(users(&["u1"])) };
        sent.push(send_at(store, app, request, at(seconds)).await.message.id);
    }
    let asked = |place: InboxPlace, limit: usize| InboxRange {
        app,
        device: device("d1"),
        since: None,
        until: None,
        place,
        limit,
        now: at(30),
    };
    let read = async |asked: InboxRange| {
        let page = store.inbox_range(asked).await.expect("read");
        page.map(|InboxPage { messages, index, total }| (ids(&messages), index, total))
    };
    let part = |range: std::ops::Range<usize>, index, total| Some((sent[range].to_vec(), index, total));
    assert_eq!(read(asked(InboxPlace::First, 2)).await, part(0..2, 0, 5));
    assert_eq!(read(asked(InboxPlace::Last, 2)).await, part(3..5, 3, 5));
    assert_eq!(read(asked(InboxPlace::After(sent[1]), 2)).await, part(2..4, 2, 5));
    assert_eq!(read(asked(InboxPlace::Before(sent[3]), 2)).await, part(1..3, 1, 5));
    assert_eq!(read(asked(InboxPlace::After(sent[4]), 2)).await, part(5..5, 0, 5));
    assert_eq!(read(asked(InboxPlace::Before(sent[0]), 2)).await, part(0..0, 0, 5));
    assert_eq!(read(asked(InboxPlace::First, 0)).await, part(0..0, 0, 5), "the total count");
    let of_time = |since: Option<u64>, until: Option<u64>, place| {
        let (since, until) = (since.map(at), until.map(at));
        InboxRange { since, until, ..asked(place, 2) }
    };
    assert_eq!(read(of_time(Some(10), None, InboxPlace::First)).await, part(1..3, 0, 4));
    assert_eq!(read(of_time(Some(10), Some(20), InboxPlace::Last)).await, part(2..4, 1, 3));
    assert_eq!(read(of_time(None, Some(9), InboxPlace::Last)).await, part(0..1, 0, 1));
    assert_eq!(read(of_time(Some(10), Some(20), InboxPlace::After(sent[0]))).await, part(1..3, 0, 3));
    assert_eq!(read(of_time(Some(21), Some(29), InboxPlace::First)).await, part(0..0, 0, 0));
    // A range cannot start at a message that is not in this inbox.
    ack(store, d1, &[sent[2]]).await;
    assert_eq!(read(asked(InboxPlace::After(sent[2]), 2)).await, None);
    let made_up = noroshi_types::NotificationId::from_bytes([7; 16]);
    assert_eq!(read(asked(InboxPlace::Before(made_up), 2)).await, None);
    assert_eq!(read(asked(InboxPlace::After(sent[1]), 9)).await, part(3..5, 2, 4));
    let of_other = InboxRange { device: device("d2"), ..asked(InboxPlace::After(sent[2]), 9) };
    assert_eq!(read(of_other).await, part(3..5, 3, 5));
    // Expired messages are gone, and a range cannot start at them.
    let later = InboxRange { now: at(110), ..asked(InboxPlace::First, 9) };
    assert_eq!(read(later).await, part(3..5, 0, 2));
    let later = InboxRange { now: at(110), ..asked(InboxPlace::After(sent[1]), 9) };
    assert_eq!(read(later).await, None);
    let theirs = super::fixture::app(store, "other").await;
    let strange = InboxRange { app: theirs, ..asked(InboxPlace::First, 9) };
    assert!(matches!(store.inbox_range(strange).await, Err(Error::NotFound)));
}
