//! Pruning, isolation of tenants, health checks, places and closing.

use std::collections::BTreeMap;
use std::time::Duration;

use noroshi_store::{
    Ack, Backlog, DeviceChange, DeviceFilter, Error, LoginRefused, Pruned, Recover, Registration, State,
    Store, Work,
};
use noroshi_types::{Condition, Outcome, Position, Request, Target, Timestamp, When};

use super::fixture::*;

/// The trace retention of the stores under test.
pub(crate) const RETENTION_SECONDS: u64 = 100;

async fn prune(store: &dyn Store, seconds: u64) -> Pruned {
    store.prune(at(seconds), 1_000).await.expect("pruned")
}

pub(crate) async fn prune_expires_inboxes(store: &dyn Store) {
    let app = app(store, "shop").await;
    let d1 = join(store, app, "d1", "u1", &[]).await;
    let d2 = join(store, app, "d2", "u2", &[]).await;
    let short = send(store, app, Request { ttl: ttl(10), ..stored(users(&["u1", "u2"])) }).await;
    let long = send(store, app, stored(users(&["u1"]))).await;
    ack(store, d1, &[short]).await;
    assert_eq!(prune(store, 9).await, Pruned::default());
    let pruned = prune(store, 10).await;
    assert_eq!((pruned.inbox, pruned.more), (1, false));
    let expired = removed_part(app, Work::Notification(short), Outcome::Expired, at(10), &[d2]);
    assert_eq!((pruned.departed.parts, pruned.departed.beyond), (vec![expired], BTreeMap::new()));
    assert_eq!(prune(store, 10).await, Pruned::default(), "once");
    assert_eq!(
        counts(store, app, short).await,
        [(Outcome::Kept, 2), (Outcome::Acked, 1), (Outcome::Expired, 1)]
    );
    let state = store.notification(app, short, at(10)).await.expect("read").expect("still traced").state;
    assert_eq!(state, State::Expired);
    let trace = store.trace(app, short, &device("d2")).await.expect("read").expect("found");
    assert_eq!(trace.steps.last().map(|step| (step.at, step.outcome)), Some((at(10), Outcome::Expired)));
    assert!(!trace.in_inbox);
    assert_eq!(waiting(store, app, "d1", at(10)).await, [long]);
}

/// More devices than one commit of a removal looks at.
const AUDIENCE: u64 = 4_500;

pub(crate) async fn large_audiences_are_removed_in_slices(store: &dyn Store) {
    let app = app(store, "shop").await;
    let all = topics(&["all"]);
    let batch = (0..AUDIENCE).map(|index| Registration {
        device: Some(device(&format!("d{index}"))),
        topics: all.clone(),
        ..Registration::default()
    });
    let registered = store.register(app, batch.collect(), NOW).await.expect("registered");
    let first = registered.first().expect("one").as_ref().expect("registered").num;
    let condition = || Target::Condition(Condition::parse("'all' in topics").expect("a condition"));
    let cancelled = send(store, app, stored(condition())).await;
    assert_eq!(ack(store, first, &[cancelled]).await, 1);
    let result = store.cancel(app, cancelled, NOW).await.expect("cancelled");
    assert_eq!((result.removed, result.departed.count(Outcome::Cancelled)), (AUDIENCE - 1, AUDIENCE - 1));
    let expected = [(Outcome::Kept, AUDIENCE), (Outcome::Acked, 1), (Outcome::Cancelled, AUDIENCE - 1)];
    assert_eq!(counts(store, app, cancelled).await, expected);
    let expired = send(store, app, Request { ttl: ttl(10), ..stored(condition()) }).await;
    let mut removed = 0;
    for round in 0.. {
        assert!(round < 200, "pruning must end");
        let pruned = store.prune(at(10), 1_000).await.expect("pruned");
        assert!(pruned.inbox <= 1_000);
        removed += pruned.inbox;
        if !pruned.more {
            break;
        }
    }
    assert_eq!(removed, AUDIENCE);
    assert_eq!(counts(store, app, expired).await, [(Outcome::Kept, AUDIENCE), (Outcome::Expired, AUDIENCE)]);
    assert_eq!(store.inbox(app, &device("d7"), 10, NOW).await.expect("read").1, 0);
}

pub(crate) async fn prune_trims_logs(store: &dyn Store) {
    let app = app(store, "shop").await;
    send(store, app, Request { ttl: ttl(10), ..stored(to_topic("news")) }).await;
    let long = send(store, app, stored(to_topic("news"))).await;
    assert_eq!(prune(store, 10).await, Pruned { topic_log: 1, ..Pruned::default() });
    assert_eq!(store.topic(app, &topic("news")).await.expect("read").log_rows, 1);
    assert_eq!(
        store.notification(app, long, at(10)).await.expect("read").expect("found").state,
        State::Pending
    );
}

pub(crate) async fn prune_is_bounded(store: &dyn Store) {
    let app = app(store, "shop").await;
    let mut nums = Vec::new();
    for i in 0..6 {
        nums.push(join(store, app, &format!("d{i}"), "u1", &[]).await);
    }
    let mut sent = Vec::new();
    for _ in 0..2 {
        sent.push(send(store, app, Request { ttl: ttl(10), ..stored(users(&["u1"])) }).await);
    }
    // Acknowledged out of order, in two parts, including the first and the last.
    for num in [nums[5], nums[0], nums[2]] {
        assert_eq!(ack(store, num, &sent[..1]).await, 1);
    }
    let (mut removed, mut rounds) = (0, 0);
    loop {
        let pruned = store.prune(at(10), 4).await.expect("pruned");
        assert!(pruned.inbox <= 4);
        assert_eq!(pruned.departed.parts.iter().map(|part| part.count).sum::<u64>(), pruned.inbox);
        removed += pruned.inbox;
        rounds += 1;
        if !pruned.more {
            break;
        }
        assert!(rounds < 20, "pruning must end");
    }
    assert_eq!(removed, 9);
    assert!(rounds >= 3);
    assert_eq!(
        counts(store, app, sent[0]).await,
        [(Outcome::Kept, 6), (Outcome::Acked, 3), (Outcome::Expired, 3)]
    );
    assert_eq!(counts(store, app, sent[1]).await, [(Outcome::Kept, 6), (Outcome::Expired, 6)]);
}

pub(crate) async fn prune_forgets_after_retention(store: &dyn Store) {
    let app = app(store, "shop").await;
    join(store, app, "d1", "u1", &[]).await;
    let live = Request { when: When::Active, ttl: ttl(10), ..stored(users(&["u1"])) };
    let short = send(store, app, live.clone()).await;
    let long = send(store, app, Request { ttl: ttl(500), ..stored(users(&["u1"])) }).await;
    let keyed = send_once(store, app, live.clone(), "k", 1, NOW).await.expect("accepted").message.id;
    let d1 = log_in(store, login(app, "d1")).await.num;
    assert_eq!(store.open(d1, vec![short], NOW).await.expect("written"), [short]);
    let known = async |id, seconds| store.notification(app, id, at(seconds)).await.expect("read").is_some();
    assert_eq!(prune(store, RETENTION_SECONDS - 1).await, Pruned::default());
    assert!(known(short, 0).await);
    assert_eq!(prune(store, RETENTION_SECONDS).await, Pruned { notifications: 1, ..Pruned::default() });
    assert!(!known(short, 0).await && known(long, 0).await && known(keyed, 0).await);
    assert_eq!(store.open(d1, vec![short, long], NOW).await.expect("written"), [long]);
    let pruned = prune(store, 500).await;
    assert_eq!((pruned.inbox, pruned.notifications, pruned.more), (1, 1, false));
    assert!(!known(long, 0).await);
    assert_eq!(ack(store, log_in(store, login(app, "d1")).await.num, &[long]).await, 0);
    // A key and its answer are remembered for a day.
    let again = send_once(store, app, live, "k", 1, at(86_399)).await.expect("repeated");
    assert_eq!((again.message.id, again.replayed), (keyed, true));
    assert_eq!(prune(store, 86_400).await, Pruned { notifications: 1, idempotency: 1, ..Pruned::default() });
}

pub(crate) async fn tenants_are_isolated(store: &dyn Store) {
    let (mine, theirs) = (app(store, "mine").await, app(store, "theirs").await);
    let num = join(store, mine, "d1", "u1", &["news"]).await;
    let direct = send(store, mine, stored(users(&["u1"]))).await;
    let retained = send(store, mine, Request { retain: true, ..stored(to_topic("news")) }).await;
    let d1 = device("d1");
    let news = topic("news");

    assert_eq!(store.device(theirs, &d1).await.expect("read"), None);
    assert!(
        store
            .devices(theirs, DeviceFilter { limit: 9, ..DeviceFilter::default() })
            .await
            .expect("read")
            .is_empty()
    );
    let change = DeviceChange { user: Some(None), ..DeviceChange::default() };
    assert!(matches!(store.update_device(theirs, &d1, change, NOW).await, Err(Error::NotFound)));
    assert!(matches!(store.delete_device(theirs, &d1, NOW).await, Err(Error::NotFound)));
    assert!(matches!(store.revoke_tokens(theirs, &d1, NOW).await, Err(Error::NotFound)));
    assert!(matches!(store.subscribe(theirs, &d1, &news, NOW).await, Err(Error::NotFound)));
    assert!(matches!(store.unsubscribe(theirs, &d1, &news).await, Err(Error::NotFound)));
    assert!(matches!(store.inbox(theirs, &d1, 9, NOW).await, Err(Error::NotFound)));
    assert_eq!(try_log_in(store, login(theirs, "d1")).await.err(), Some(LoginRefused::Revoked));
    let asked = Backlog {
        app: theirs,
        device: num,
        after: None,
        session_topics: vec![news.clone()],
        session_since: None,
        now: NOW,
    };
    assert!(store.backlog(asked).await.expect("read").messages.is_empty());
    for target in [users(&["u1"]), devices(&["d1"])] {
        assert_eq!(send_at(store, theirs, stored(target), NOW).await.kept(), 0);
    }
    for id in [direct, retained] {
        assert!(store.notification(theirs, id, NOW).await.expect("read").is_none());
        assert!(store.trace(theirs, id, &d1).await.expect("read").is_none());
        assert!(matches!(store.cancel(theirs, id, NOW).await, Err(Error::NotFound)));
    }
    assert_eq!(store.topic(theirs, &news).await.expect("read").position, None);
    assert!(store.topics(theirs, None, 9).await.expect("read").is_empty());
    assert!(store.retained(theirs, &news, NOW).await.expect("read").is_none());
    assert!(!store.delete_retained(theirs, &news).await.expect("none"));
    let head = store.topic(mine, &news).await.expect("read").position.expect("published");
    let since = Some(Position { offset: 0, ..head });
    let asked = Recover { app: theirs, topic: news, since, retained: true, now: NOW };
    let page = store.recover(asked).await.expect("read");
    assert!(page.messages.is_empty() && page.retained.is_empty() && !page.heads[0].complete);
    assert_eq!(waiting(store, mine, "d1", NOW).await, [direct, retained], "all of it is still there");
}

pub(crate) async fn a_check_writes_and_reads(store: &dyn Store) {
    store.check().await.expect("working");
    store.check().await.expect("and again");
}

pub(crate) async fn a_closed_store_rejects_calls(store: &dyn Store) {
    let app = app(store, "shop").await;
    let num = join(store, app, "d1", "u1", &[]).await;
    store.check().await.expect("working");
    tokio::join!(store.close(), store.close());
    assert!(matches!(store.check().await, Err(Error::Closed)));
    assert!(matches!(store.apps().await, Err(Error::Closed)));
    assert!(matches!(store.ack(vec![Ack { device: num, ids: vec![] }], NOW).await, Err(Error::Closed)));
    let request = noroshi_store::Accept {
        app,
        request: stored(users(&["u1"])).into(),
        now: NOW,
        idempotency: None,
        campaign: None,
        gate: None,
    };
    assert!(matches!(accept(store, request.clone()).await, Err(Error::Closed)));
    // Background writes are dropped silently.
    assert_eq!(store.note(request).kept(), 0);
    store.record(vec![]);
    store.close().await;
}

pub(crate) async fn places_follow_commits(store: &dyn Store) {
    let app = app(store, "shop").await;
    join(store, app, "d1", "u1", &["news"]).await;
    let mut last = store.place().await.expect("read");
    for target in [users(&["u1"]), to_topic("news")] {
        send_at(store, app, stored(target), Timestamp(7)).await;
        let place = store.place().await.expect("read");
        assert!(place > last, "{place:?} after {last:?}");
        assert_eq!(store.place().await.expect("read"), place, "no message was accepted");
        assert_eq!(log_in(store, login(app, "d1")).await.as_of, place);
        last = place;
    }
    // Acknowledging a removed notification still moves the position.
    prune(store, 80_000_000).await;
    assert_eq!(store.place().await.expect("read"), last);
}

pub(crate) async fn a_task_is_led(store: &dyn Store) {
    let lease = Duration::from_secs(60);
    for _ in 0..2 {
        assert!(store.lead("prune", 1, lease).await.expect("queried"));
    }
    assert!(store.lead("collect", 2, lease).await.expect("queried"), "each task for itself");
    store.release_lead("prune", 1).await.expect("recorded");
    assert!(store.lead("prune", 2, lease).await.expect("queried"));
}
