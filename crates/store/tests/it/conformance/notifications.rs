//! Accepting, repeating and cancelling notifications, and their outcomes.

use std::sync::{Arc, Mutex};

use noroshi_store::{Accept, Accepted, Error, OutcomePart, State, Store, TraceStep};
use noroshi_types::{Condition, DeviceNum, NotificationId, Outcome, Request, Target, TraceContext, When};
use tokio::sync::mpsc;

use super::fixture::*;

pub(crate) async fn ids_are_in_commit_order(store: &dyn Store) {
    let app = app(store, "shop").await;
    join(store, app, "d1", "u1", &["news"]).await;
    // The callers' clocks differ, and one goes back.
    let mut last = None;
    for seconds in [5, 5, 3, 900, 0] {
        let id = send_at(store, app, stored(users(&["u1"])), at(seconds)).await.message.id;
        assert!(last < Some(id), "{last:?} before {id}");
        last = Some(id);
    }
    assert_eq!(waiting(store, app, "d1", NOW).await.len(), INBOX_ROWS as usize);
}

pub(crate) async fn answers_come_in_order(store: &dyn Store) {
    let app = app(store, "shop").await;
    join(store, app, "d1", "u1", &["news"]).await;
    let answered: Arc<Mutex<Vec<(NotificationId, u64)>>> = Arc::default();
    let (guard, mut all) = mpsc::channel::<()>(1);
    let submit = || {
        for _ in 0..25 {
            let request = Accept {
                app,
                request: stored(to_topic("news")).into(),
                now: NOW,
                idempotency: None,
                campaign: None,
                gate: None,
            };
            let (answered, guard) = (Arc::clone(&answered), guard.clone());
            let done = move |result: Result<Accepted, Error>| {
                let message = result.expect("accepted").message;
                let offset = message.topic.as_ref().expect("a place in its topic").position.offset;
                answered.lock().expect("not poisoned").push((message.id, offset));
                drop(guard);
            };
            store.accept(request, Box::new(done));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(submit);
        }
    });
    drop(guard);
    assert_eq!(all.recv().await, None, "all senders are dropped, so all requests are answered");
    let answered = answered.lock().expect("not poisoned").clone();
    assert_eq!(answered.len(), 100);
    assert!(answered.is_sorted(), "ids and answers are in the order of the commits");
    assert!(answered.iter().map(|(_, offset)| *offset).eq(1..=100));
}

pub(crate) async fn noted_notifications_get_an_id_at_once(store: &dyn Store) {
    let app = app(store, "shop").await;
    join(store, app, "d1", "u1", &[]).await;
    let before = send(store, app, stored(users(&["u1"]))).await;
    let request = Request { when: When::Active, ..stored(users(&["u1", "u2"])) };
    let noted = store.note(Accept {
        app,
        request: request.into(),
        now: NOW,
        idempotency: None,
        campaign: None,
        gate: None,
    });
    assert_eq!((noted.targets, noted.kept(), noted.replayed), (Some(2), 0, false));
    assert!(before < noted.message.id);
    written_behind(store, app, noted.message.id, None).await;
    let state = store.notification(app, noted.message.id, NOW).await.expect("read").expect("found");
    assert_eq!((state.message, state.state, state.counts), (noted.message, State::Done, vec![]));
}

pub(crate) async fn a_repeated_key_returns_the_first_answer(store: &dyn Store) {
    let (app, other) = (app(store, "shop").await, app(store, "other").await);
    join(store, app, "d1", "u1", &["news"]).await;
    for (key, request) in [
        ("stored", stored(users(&["u1"]))),
        ("topic", stored(to_topic("news"))),
        ("live", Request { when: When::Active, ..stored(users(&["u1"])) }),
    ] {
        let first = send_once(store, app, request.clone(), key, 1, NOW).await.expect("accepted");
        assert!(!first.replayed);
        let again = send_once(store, app, request.clone(), key, 1, at(86_399)).await.expect("repeated");
        assert!(again.replayed);
        assert_eq!((&again.message, again.targets), (&first.message, first.targets));
        let elsewhere = send_once(store, other, request.clone(), key, 1, NOW).await.expect("accepted");
        assert!(!elsewhere.replayed, "a key belongs to one app");
        let next_day = send_once(store, app, request, key, 2, at(86_400)).await.expect("accepted");
        assert!(!next_day.replayed, "a key is kept for a day");
    }
    let inbox = store.inbox(app, &device("d1"), 10, NOW).await.expect("read");
    assert_eq!(inbox.1, 2, "the first request and that of the next day");
}

pub(crate) async fn another_body_conflicts(store: &dyn Store) {
    let app = app(store, "shop").await;
    join(store, app, "d1", "u1", &[]).await;
    let first =
        send_once(store, app, stored(users(&["u1"])), "k", 1, NOW).await.expect("accepted").message.id;
    let other = send_once(store, app, stored(users(&["u1"])), "k", 2, NOW).await;
    assert!(matches!(other, Err(Error::IdempotencyConflict)), "{other:?}");
    assert_eq!(waiting(store, app, "d1", NOW).await, [first], "a call that fails has changed nothing");
}

async fn state(store: &dyn Store, app: noroshi_types::AppId, id: NotificationId, seconds: u64) -> State {
    store.notification(app, id, at(seconds)).await.expect("read").expect("found").state
}

pub(crate) async fn a_state_counts_outcomes(store: &dyn Store) {
    let app = app(store, "shop").await;
    let d1 = join(store, app, "d1", "u1", &[]).await;
    let d2 = join(store, app, "d2", "u2", &[]).await;
    let request = Request {
        ttl: ttl(60),
        collapse_key: Some("k".into()),
        ..stored(Target::Users(vec![user("u1"), user("u2"), user("u9")]))
    };
    let id = send(store, app, request).await;
    let part = |outcome, devices: &[DeviceNum], count| OutcomePart {
        app,
        id,
        outcome,
        at: at(1),
        devices: devices.to_vec(),
        count,
    };
    store.record(vec![
        part(Outcome::Written, &[d1], 1),
        part(Outcome::Written, &[d2], 1),
        part(Outcome::Slow, &[], 3),
    ]);
    let unknown = NotificationId::from_bytes([9; 16]);
    store.record(vec![OutcomePart { app, id: unknown, ..part(Outcome::Written, &[d1], 1) }]);
    assert_eq!(ack(store, d1, &[id]).await, 1);
    written_behind(store, app, id, Some(Outcome::Slow)).await;
    let found = store.notification(app, id, at(1)).await.expect("read").expect("found");
    assert_eq!(
        found.counts,
        [
            (Outcome::Kept, 2),
            (Outcome::Written, 2),
            (Outcome::Acked, 1),
            (Outcome::Slow, 3),
            (Outcome::Unknown, 1)
        ]
    );
    let summary = &found.request;
    assert_eq!((summary.target, &summary.target_text, summary.targets), ("users", &None, Some(3)));
    assert_eq!((summary.collapse_key.as_deref(), summary.retain), (Some("k"), false));
    assert_eq!(found.state, State::Pending, "one device has not acknowledged");
    assert_eq!(state(store, app, id, 60).await, State::Expired);
    ack(store, d2, &[id]).await;
    assert_eq!(state(store, app, id, 59).await, State::Done);
    assert_eq!(state(store, app, id, 61).await, State::Done, "all devices had acknowledged");

    let on_topic = send(store, app, Request { retain: true, ttl: ttl(60), ..stored(to_topic("news")) }).await;
    assert_eq!(state(store, app, on_topic, 59).await, State::Pending);
    assert_eq!(state(store, app, on_topic, 60).await, State::Expired);
    let live = send(store, app, Request { when: When::Active, ..stored(Target::Everyone) }).await;
    let found = store.notification(app, live, NOW).await.expect("read").expect("found");
    assert_eq!((found.state, found.request.target, found.request.targets), (State::Done, "everyone", None));
    let found = store.notification(app, on_topic, NOW).await.expect("read").expect("found").request;
    assert_eq!((found.target, found.target_text.as_deref(), found.retain), ("topic", Some("news"), true));
    assert!(store.notification(app, unknown, NOW).await.expect("read").is_none());
}

pub(crate) async fn a_trace_has_the_steps_of_one_device(store: &dyn Store) {
    let app = app(store, "shop").await;
    let d1 = join(store, app, "d1", "u1", &["news"]).await;
    let d2 = join(store, app, "d2", "u2", &[]).await;
    let id = send(store, app, stored(users(&["u1", "u2"]))).await;
    let part = |outcome, seconds, devices: &[DeviceNum]| OutcomePart {
        app,
        id,
        outcome,
        at: at(seconds),
        devices: devices.to_vec(),
        count: devices.len() as u64,
    };
    store.record(vec![part(Outcome::Written, 1, &[d2, d1]), part(Outcome::Slow, 0, &[d2])]);
    ack(store, d1, &[id]).await;
    written_behind(store, app, id, Some(Outcome::Slow)).await;
    let trace = async |id, name: &str| store.trace(app, id, &device(name)).await.expect("read");
    let step = |seconds, outcome| TraceStep { at: at(seconds), outcome, reason: None };
    let first = trace(id, "d1").await.expect("found");
    assert_eq!(first.steps, [step(0, Outcome::Kept), step(1, Outcome::Written), step(1, Outcome::Acked)]);
    assert_eq!((first.in_inbox, first.subscribed), (false, false));
    let second = trace(id, "d2").await.expect("found");
    assert_eq!(second.steps, [step(0, Outcome::Kept), step(0, Outcome::Slow), step(1, Outcome::Written)]);
    assert_eq!((second.in_inbox, second.subscribed), (true, false));

    let on_topic = send(store, app, stored(to_topic("news"))).await;
    assert!(trace(on_topic, "d1").await.expect("found").subscribed);
    assert!(!trace(on_topic, "d2").await.expect("found").subscribed);
    let to_all = send(store, app, stored(Target::Everyone)).await;
    assert!(trace(to_all, "d2").await.expect("found").subscribed);
    assert!(trace(id, "d9").await.is_none());
    assert!(trace(NotificationId::from_bytes([9; 16]), "d1").await.is_none());
}

pub(crate) async fn an_opening_counts_once(store: &dyn Store) {
    let (app, other) = (app(store, "shop").await, app(store, "other").await);
    let d1 = join(store, app, "d1", "u1", &["news"]).await;
    let d2 = join(store, app, "d2", "u1", &[]).await;
    let theirs = join(store, other, "d1", "u1", &[]).await;
    let id = send(store, app, stored(users(&["u1"]))).await;
    let on_topic = send(store, app, stored(to_topic("news"))).await;
    let made_up = NotificationId::from_bytes([9; 16]);
    let open = async |num, ids: &[NotificationId], seconds| {
        store.open(num, ids.to_vec(), at(seconds)).await.expect("written")
    };
    assert_eq!(open(d1, &[on_topic, made_up, id, id], 3).await, [on_topic, id]);
    assert_eq!(open(d1, &[id, on_topic], 4).await, []);
    assert_eq!(open(d2, &[id], 5).await, [id]);
    assert_eq!(open(theirs, &[id], 5).await, [], "a notification of another app");
    assert_eq!(open(DeviceNum(999), &[id], 5).await, [], "an unknown device");
    let counts = async |id| store.notification(app, id, NOW).await.expect("read").expect("found").counts;
    assert_eq!(counts(id).await, [(Outcome::Kept, 2), (Outcome::Opened, 2)]);
    assert_eq!(counts(on_topic).await, [(Outcome::Opened, 1)]);
    let trace = store.trace(app, id, &device("d1")).await.expect("read").expect("found");
    let step = |seconds, outcome| TraceStep { at: at(seconds), outcome, reason: None };
    assert_eq!(trace.steps, [step(0, Outcome::Kept), step(3, Outcome::Opened)]);
    assert!(trace.in_inbox, "opening acknowledges nothing");
    // As long as the notification exists.
    store.cancel(app, id, at(6)).await.expect("cancelled");
    store.delete_device(app, &device("d2"), at(7)).await.expect("deleted");
    assert_eq!(counts(id).await, [(Outcome::Kept, 2), (Outcome::Cancelled, 2), (Outcome::Opened, 2)]);
}

pub(crate) async fn cancel_removes_unacknowledged_rows(store: &dyn Store) {
    let app = app(store, "shop").await;
    let d1 = join(store, app, "d1", "u1", &["news"]).await;
    join(store, app, "d2", "u2", &[]).await;
    let direct = send(store, app, stored(users(&["u1", "u2"]))).await;
    ack(store, d1, &[direct]).await;
    assert_eq!(store.cancel(app, direct, at(2)).await.expect("cancelled").removed, 1);
    assert_eq!(waiting(store, app, "d2", NOW).await, []);
    assert_eq!(
        counts(store, app, direct).await,
        [(Outcome::Kept, 2), (Outcome::Acked, 1), (Outcome::Cancelled, 1)]
    );
    assert_eq!(state(store, app, direct, 2).await, State::Cancelled);
    assert_eq!(store.cancel(app, direct, at(3)).await.expect("repeated").removed, 0);

    let on_topic = send(store, app, Request { retain: true, ..stored(to_topic("news")) }).await;
    store.cancel(app, on_topic, NOW).await.expect("cancelled");
    let page = log_in(store, login(app, "d1")).await.page;
    assert!(page.messages.is_empty() && page.retained.is_empty(), "{page:?}");
    assert_eq!(state(store, app, on_topic, 0).await, State::Cancelled);

    let acknowledged = send(store, app, stored(devices(&["d1"]))).await;
    ack(store, d1, &[acknowledged]).await;
    assert_eq!(store.cancel(app, acknowledged, NOW).await.expect("too late").removed, 0);
    assert_eq!(state(store, app, acknowledged, 0).await, State::Done, "nothing remained to cancel");
    let made_up = store.cancel(app, NotificationId::from_bytes([9; 16]), NOW).await;
    assert!(matches!(made_up, Err(Error::NotFound)), "{made_up:?}");
}

pub(crate) async fn conditions_select_devices(store: &dyn Store) {
    let (app, other) = (app(store, "shop").await, app(store, "other").await);
    join(store, app, "both", "u1", &["a", "b"]).await;
    join(store, app, "only-a", "u2", &["a"]).await;
    join(store, app, "only-b", "u3", &["b"]).await;
    join(store, app, "none", "u4", &[]).await;
    join(store, other, "foreign", "u1", &["a", "b"]).await;
    let check = async |text: &str, expected: &[&str]| {
        let condition = Condition::parse(text).expect(text);
        let accepted = send_at(store, app, stored(Target::Condition(condition)), NOW).await;
        assert_eq!((accepted.targets, accepted.kept()), (None, expected.len() as u64), "{text}");
        assert_eq!(accepted.message.topic, None);
        for id in ["both", "only-a", "only-b", "none"] {
            let kept = waiting(store, app, id, NOW).await.contains(&accepted.message.id);
            assert_eq!(kept, expected.contains(&id), "{text} on {id}");
        }
        assert_eq!(waiting(store, other, "foreign", NOW).await, []);
        let summary =
            store.notification(app, accepted.message.id, NOW).await.expect("read").expect("found").request;
        assert_eq!((summary.target, summary.target_text.as_deref()), ("condition", Some(text)));
    };
    check("'a' in topics", &["both", "only-a"]).await;
    check("'a' in topics && 'b' in topics", &["both"]).await;
    check("'a' in topics && !('b' in topics)", &["only-a"]).await;
    check("'a' in topics || 'b' in topics", &["both", "only-a", "only-b"]).await;
    check("!('a' in topics)", &["only-b", "none"]).await;
    check("!('a' in topics) && !('b' in topics)", &["none"]).await;
    check("'nobody' in topics", &[]).await;
    check("!('nobody' in topics)", &["both", "only-a", "only-b", "none"]).await;
}

/// The trace context, for each way to accept a notification and for its pushes.
pub(crate) async fn a_trace_context_is_kept(store: &dyn Store) {
    let app = app(store, "shop").await;
    join(store, app, "d1", "u1", &["news"]).await;
    for sampled in [true, false] {
        let text = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0{}", u8::from(sampled));
        let trace = TraceContext::parse(text.as_bytes());
        assert!(trace.is_some());
        for request in [stored(users(&["u1"])), stored(to_topic("news"))] {
            let id = send(store, app, Request { trace, ..request }).await;
            let state = store.notification(app, id, NOW).await.expect("read").expect("found");
            assert_eq!(state.request.trace, trace);
            assert_eq!(store.trace(app, id, &device("d1")).await.expect("read").expect("found").trace, trace);
            assert_eq!(store.push_content(app, id).await.expect("read").expect("found").trace, trace);
        }
        let request = Request { trace, when: When::Active, ..stored(users(&["u1"])) }.into();
        let noted =
            store.note(Accept { app, request, now: NOW, idempotency: None, campaign: None, gate: None });
        written_behind(store, app, noted.message.id, None).await;
        let state = store.notification(app, noted.message.id, NOW).await.expect("read").expect("found");
        assert_eq!(state.request.trace, trace);
    }
    let without = send(store, app, stored(users(&["u1"]))).await;
    assert_eq!(store.push_content(app, without).await.expect("read").expect("found").trace, None);
}
