//! Notifications to conditions that select more devices than one commit writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use noroshi_store::{Accept, Accepted, Error, Gate, Idempotency, Registration, Store};
use noroshi_types::{AppId, Condition, DeviceNum, Outcome, Request, Target};
use tokio::sync::oneshot;

use super::fixture::{
    NOW, ack, app, at, counts, device, devices, ids, join, log_in, login, send, send_at, stored, to_topic,
    topics, ttl, waiting,
};

/// More than the commit that accepts writes, and more than one slice.
const CROWD: usize = 2_600;

fn name(index: usize) -> String {
    format!("d{index}")
}

/// Devices that subscribe to `all`, those with even names also to `even`.
pub(crate) async fn crowd(store: &dyn Store, app: AppId, count: usize) -> Vec<DeviceNum> {
    let mut nums = Vec::new();
    for first in (0..count).step_by(1_000) {
        let registrations = (first..count.min(first + 1_000)).map(|index| Registration {
            device: Some(device(&name(index))),
            topics: topics(if index % 2 == 0 { &["all", "even"] } else { &["all"] }),
            ..Registration::default()
        });
        let answers = store.register(app, registrations.collect(), NOW).await.expect("registered");
        nums.extend(answers.into_iter().map(|answer| answer.expect("within the limits").num));
    }
    nums
}

pub(crate) fn to_all() -> Request {
    when("'all' in topics")
}

fn when(condition: &str) -> Request {
    stored(Target::Condition(Condition::parse(condition).expect(condition)))
}

/// Submits without waiting.
pub(crate) fn submit(store: &dyn Store, accept: Accept) -> oneshot::Receiver<Result<Accepted, Error>> {
    let (answer, answered) = oneshot::channel();
    store.accept(accept, Box::new(move |result| drop(answer.send(result))));
    answered
}

pub(crate) fn plain(app: AppId, request: Request) -> Accept {
    Accept { app, request: request.into(), now: NOW, idempotency: None, campaign: None, gate: None }
}

pub(crate) async fn prune_all(store: &dyn Store, seconds: u64) -> Vec<(AppId, Outcome, u64)> {
    let mut removed = Vec::new();
    loop {
        let pruned = store.prune(at(seconds), 1_000).await.expect("pruned");
        removed.extend(pruned.departed.parts.iter().map(|part| (part.app, part.outcome, part.count)));
        if !pruned.more {
            return removed;
        }
    }
}

pub(crate) async fn every_selected_device_gets_it_once(store: &dyn Store) {
    let app = app(store, "shop").await;
    let nums = crowd(store, app, CROWD).await;
    let other = join(store, app, "other", "u1", &["b"]).await;
    let check = async |condition: &str, selected: &dyn Fn(usize) -> bool, others: u64| {
        let accepted = send_at(store, app, when(condition), NOW).await;
        let id = accepted.message.id;
        let mut expected: Vec<_> =
            (0..CROWD).filter(|index| selected(*index)).map(|index| nums[index]).collect();
        expected.sort_unstable();
        let kept = expected.len() as u64 + others;
        assert_eq!((accepted.targets, accepted.kept(), accepted.parts.len()), (None, kept, 1), "{condition}");
        let named = &accepted.parts[0].devices;
        assert!(named.iter().filter(|num| **num != other).eq(&expected), "{condition}");
        assert_eq!(counts(store, app, id).await, [(Outcome::Kept, kept)]);
        for index in [0, 1, CROWD / 2, CROWD / 2 + 1, CROWD - 2, CROWD - 1] {
            let inbox = waiting(store, app, &name(index), NOW).await;
            let is_there = inbox.iter().filter(|one| **one == id).count();
            assert_eq!(is_there, usize::from(selected(index)), "{condition} on {index}");
        }
        id
    };
    let id = check("'all' in topics", &|_| true, 0).await;
    assert_eq!(ack(store, nums[7], &[id]).await, 1);
    assert_eq!(ack(store, nums[7], &[id]).await, 0);
    assert_eq!(waiting(store, app, &name(7), NOW).await, []);
    check("'even' in topics", &|index| index % 2 == 0, 0).await;
    check("'all' in topics && !('even' in topics)", &|index| index % 2 == 1, 0).await;
    check("!('even' in topics)", &|index| index % 2 == 1, 1).await;
    let cancelled = store.cancel(app, id, NOW).await.expect("cancelled");
    assert_eq!(cancelled.removed, CROWD as u64 - 1);
    assert_eq!(prune_all(store, 1).await, [], "nothing is left to do");
}

pub(crate) async fn a_full_inbox_evicts_for_a_large_condition(store: &dyn Store) {
    let app = app(store, "shop").await;
    crowd(store, app, CROWD).await;
    let mut before = Vec::new();
    for _ in 0..super::INBOX_ROWS {
        before.push(send(store, app, stored(devices(&["d3", "d2000"]))).await);
    }
    let accepted = send_at(store, app, to_all(), NOW).await;
    assert_eq!(accepted.departed.count(Outcome::Evicted), 2);
    for name in ["d3", "d2000"] {
        let mut expected = before[1..].to_vec();
        expected.push(accepted.message.id);
        assert_eq!(waiting(store, app, name, NOW).await, expected);
    }
}

pub(crate) async fn later_messages_of_the_app_keep_their_order(store: &dyn Store) {
    let (app, other) = (app(store, "shop").await, app(store, "other").await);
    crowd(store, app, CROWD).await;
    join(store, other, "d1", "u1", &[]).await;
    let large = submit(store, plain(app, to_all()));
    let to_one = submit(store, plain(app, stored(devices(&["d2599"]))));
    let elsewhere = submit(store, plain(other, stored(devices(&["d1"]))));
    let to_the_topic = submit(store, plain(app, stored(to_topic("all"))));
    let again = submit(store, plain(app, to_all()));
    let last = submit(store, plain(app, stored(devices(&["d2599"]))));
    let mut expected = Vec::new();
    for answer in [large, to_one, to_the_topic, again, last] {
        expected.push(answer.await.expect("answered").expect("accepted").message.id);
    }
    assert!(expected.is_sorted());
    assert_eq!(waiting(store, app, "d2599", NOW).await, expected);
    let elsewhere = elsewhere.await.expect("answered").expect("accepted").message.id;
    assert_eq!(waiting(store, other, "d1", NOW).await, [elsewhere]);
}

pub(crate) async fn a_repeated_key_waits_for_the_large_condition(store: &dyn Store) {
    let app = app(store, "shop").await;
    crowd(store, app, CROWD).await;
    let idempotency = Some(Idempotency { key: "k".into(), body_hash: [1; 32] });
    let accept = Accept { idempotency, ..plain(app, to_all()) };
    let (first, second) = (submit(store, accept.clone()), submit(store, accept.clone()));
    let first = first.await.expect("answered").expect("accepted");
    let second = second.await.expect("answered").expect("accepted");
    assert!(!first.replayed && second.replayed);
    assert_eq!(first.message.id, second.message.id);
    assert_eq!(waiting(store, app, "d0", NOW).await, [first.message.id]);
    let conflicting = Idempotency { key: "k".into(), body_hash: [2; 32] };
    let conflict = submit(store, Accept { idempotency: Some(conflicting), ..accept });
    assert!(matches!(conflict.await.expect("answered"), Err(Error::IdempotencyConflict)));
}

pub(crate) async fn a_gate_decides_on_a_large_condition(store: &dyn Store) {
    let app = app(store, "shop").await;
    crowd(store, app, CROWD).await;
    let asked = Arc::new(AtomicU64::new(0));
    let gate = |passes: bool| {
        let asked = Arc::clone(&asked);
        Some(Gate::new(move |rows| {
            asked.store(rows, Ordering::SeqCst);
            passes
        }))
    };
    let refused = submit(store, Accept { gate: gate(false), ..plain(app, to_all()) });
    assert!(matches!(refused.await.expect("answered"), Err(Error::Refused)));
    assert_eq!(asked.swap(0, Ordering::SeqCst), CROWD as u64);
    assert_eq!(waiting(store, app, "d0", NOW).await, []);
    let accepted = submit(store, Accept { gate: gate(true), ..plain(app, to_all()) });
    let accepted = accepted.await.expect("answered").expect("accepted");
    assert_eq!((accepted.kept(), asked.load(Ordering::SeqCst)), (CROWD as u64, CROWD as u64));
    let waits = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&waits);
    let gate = Gate::default().with_waits(move || {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    let accepted = submit(store, Accept { gate: Some(gate), ..plain(app, to_all()) });
    assert!(accepted.await.expect("answered").is_ok());
    assert!(waits.load(Ordering::SeqCst) > 0);
}

pub(crate) async fn devices_change_while_rows_are_written(store: &dyn Store) {
    let app = app(store, "shop").await;
    let nums = crowd(store, app, CROWD).await;
    let answer = submit(store, plain(app, to_all()));
    // In the order in which slices reach them, and against it.
    for index in [1, CROWD - 2, 3, CROWD - 4, 5] {
        store.delete_device(app, &device(&name(index)), NOW).await.expect("deleted");
        store.unsubscribe(app, &device(&name(index + 1)), &topics(&["all"])[0]).await.expect("changed");
        // A log-in during the expansion sees no part of it, or all of it. (Two reads may see different ones.)
        let read = store.log_in(vec![login(app, "d0")]).await.expect("read").remove(0).expect("logged in");
        assert!(read.page.messages.len() <= 1);
    }
    let accepted = answer.await.expect("answered").expect("accepted");
    let changed =
        |index: usize| [1, 3, 5, CROWD - 2, CROWD - 4].iter().any(|at| index == *at || index == at + 1);
    for index in (0..CROWD).filter(|index| !changed(*index)).step_by(97) {
        assert_eq!(waiting(store, app, &name(index), NOW).await, [accepted.message.id], "{index}");
    }
    // A device that was named has the row, unless it is gone.
    let named = &accepted.parts[0].devices;
    for index in [2, 4, 6, CROWD - 1, CROWD - 3] {
        let has = !waiting(store, app, &name(index), NOW).await.is_empty();
        assert_eq!(has, named.contains(&nums[index]), "{index}");
    }
    assert!(accepted.kept() >= CROWD as u64 - 10);
    let cancelled = store.cancel(app, accepted.message.id, NOW).await.expect("cancelled");
    assert!(cancelled.removed <= accepted.kept());
}

pub(crate) async fn a_large_condition_replaces_its_collapse_key_later(store: &dyn Store) {
    let (_, app) = (app(store, "other").await, app(store, "shop").await);
    crowd(store, app, CROWD).await;
    let keyed = |request: Request| Request { collapse_key: Some("score".into()), ..request };
    let other_key = Request { collapse_key: Some("news".into()), ..stored(devices(&["d9"])) };
    let other_key = send(store, app, other_key).await;
    let first = send(store, app, keyed(to_all())).await;
    let second = send(store, app, keyed(to_all())).await;
    let newest = send(store, app, keyed(stored(devices(&["d9"])))).await;
    assert_eq!(waiting(store, app, "d9", NOW).await, [other_key, newest]);
    let removed = prune_all(store, 1).await;
    assert!(
        removed.iter().all(|(of, outcome, _)| (*of, *outcome) == (app, Outcome::Collapsed)),
        "{removed:?}"
    );
    assert_eq!(removed.iter().map(|(.., count)| count).sum::<u64>(), CROWD as u64 - 1);
    assert_eq!(waiting(store, app, "d8", NOW).await, [second]);
    assert_eq!(waiting(store, app, "d2599", NOW).await, [second]);
    assert_eq!(waiting(store, app, "d9", NOW).await, [other_key, newest]);
    let kept = (Outcome::Kept, CROWD as u64);
    assert_eq!(counts(store, app, first).await, [kept, (Outcome::Collapsed, CROWD as u64)]);
    assert_eq!(prune_all(store, 1).await, []);
}

pub(crate) async fn a_large_condition_expires(store: &dyn Store) {
    let app = app(store, "shop").await;
    crowd(store, app, CROWD).await;
    let accepted = send_at(store, app, Request { ttl: ttl(10), ..to_all() }, NOW).await;
    assert_eq!(accepted.kept(), CROWD as u64);
    let removed = prune_all(store, 11).await;
    assert_eq!(removed.iter().map(|(.., count)| count).sum::<u64>(), CROWD as u64);
    assert_eq!(waiting(store, app, "d0", NOW).await, []);
}

pub(crate) async fn an_app_is_deleted_while_rows_are_written(store: &dyn Store) {
    let (app, other) = (app(store, "shop").await, app(store, "other").await);
    crowd(store, app, CROWD * 3).await;
    crowd(store, other, 1).await;
    // Often after the first slice.
    let (begins, begun) = tokio::sync::watch::channel(());
    let gate = Gate::default().with_waits(move || begins.send_replace(()));
    let answer = submit(store, Accept { gate: Some(gate), ..plain(app, to_all()) });
    begun.clone().changed().await.expect("it begins");
    store.check().await.expect("other writes run in between");
    let waiting_behind = submit(store, plain(app, stored(devices(&["d0"]))));
    store.delete_app(app).await.expect("deleted");
    let answer = answer.await.expect("answered");
    assert!(matches!(answer, Ok(_) | Err(Error::NotFound)), "{answer:?}");
    assert!(waiting_behind.await.expect("answered").is_ok());
    prune_all(store, 1).await;
    assert_eq!(store.devices(app, noroshi_store::DeviceFilter::default()).await.expect("read").len(), 0);
    // The store works on.
    let id = send(store, other, stored(devices(&["d0"]))).await;
    let page = log_in(store, login(other, "d0")).await.page;
    assert_eq!(ids(&page.messages), [id]);
}
