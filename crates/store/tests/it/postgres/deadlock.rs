//! Concurrent work on the same rows from two nodes: no deadlocks.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use noroshi_store::cells::{Assign, CellNum, MoveStep, NewMessage, Relocation};
use noroshi_store::{
    Ack, Cells as _, DeviceChange, Devices as _, Error, Maintenance as _, Notifications as _, Postgres,
    Sessions as _,
};
use noroshi_types::{AppId, NotificationId, PushService, Request, Target};

use super::server::{Database, server};
use super::{open, two};
use crate::conformance::fixture::*;
use crate::conformance::push_fixture::*;

/// A database whose server detects deadlocks soon, and two nodes on it.
async fn two_stores() -> (Database, Postgres, Postgres) {
    let database = server().database().await;
    let soon = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET deadlock_timeout = 20', current_database()); END $$";
    database.client().await.batch_execute(soon).await.expect("set");
    let (one, other) = (open(&database).await, open(&database).await);
    (database, one, other)
}

/// Closes the stores; sessions report their statistics when they end.
async fn deadlocks(database: &Database, stores: [Postgres; 2]) -> i64 {
    for store in stores {
        store.close().await;
    }
    let client = database.client().await;
    let sql = "SELECT deadlocks, numbackends FROM pg_stat_database WHERE datname = current_database()";
    for _ in 0..500 {
        let row = client.query_one(sql, &[]).await.expect("read");
        if row.get::<_, i32>(1) <= 1 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    client.query_one(sql, &[]).await.expect("read").get(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn removals_of_inbox_rows_do_not_deadlock() {
    let (database, one, other) = two_stores().await;
    let app = app(&one, "shop").await;
    let mut devices = Vec::new();
    for i in 0..60 {
        devices.push(pushable(&one, app, &format!("d{i}"), "u1", &["news"], PushService::Apns).await);
    }
    let sent: Mutex<Vec<NotificationId>> = Mutex::default();
    let over = AtomicBool::new(false);
    let last = |count: usize| -> Vec<NotificationId> {
        sent.lock().expect("free").iter().rev().take(count).copied().collect()
    };
    let sending = async {
        for n in 0..80_u64 {
            let store = if n % 2 == 0 { &one } else { &other };
            let request = Request {
                ttl: ttl(1 + n % 3),
                collapse_key: (n % 2 == 0).then(|| "k".into()),
                push: fallback(0),
                ..stored(users(&["u1"]))
            };
            let id = send_at(store, app, request, at(n)).await.message.id;
            sent.lock().expect("free").push(id);
        }
        over.store(true, Ordering::SeqCst);
    };
    let acking = async |store: &Postgres| {
        while !over.load(Ordering::SeqCst) {
            let acks = devices.iter().rev().map(|device| Ack { device: *device, ids: last(4) });
            store.ack(acks.collect(), at(1)).await.expect("acknowledged");
        }
    };
    let pruning = async {
        while !over.load(Ordering::SeqCst) {
            let now = at(sent.lock().expect("free").len() as u64);
            other.prune(now, 200).await.expect("pruned");
        }
    };
    let taking = async |store: &Postgres| {
        while !over.load(Ordering::SeqCst) {
            let now = sent.lock().expect("free").len() as u64;
            let taken = take(store, now).await;
            end_all_as_they_are(store, taken.batches).await;
        }
    };
    let cancelling = async {
        while !over.load(Ordering::SeqCst) {
            for id in last(2) {
                one.cancel(app, id, at(2)).await.expect("cancelled");
            }
            tokio::task::yield_now().await;
        }
    };
    let moving = async {
        while !over.load(Ordering::SeqCst) {
            for of in ["u2", "u1"] {
                let change = DeviceChange { user: Some(Some(user(of))), ..DeviceChange::default() };
                other.update_device(app, &device("d7"), change, NOW).await.expect("moved");
            }
        }
    };
    tokio::join!(
        sending,
        acking(&one),
        acking(&other),
        pruning,
        taking(&one),
        taking(&other),
        cancelling,
        moving
    );
    assert_eq!(deadlocks(&database, [one, other]).await, 0);
}

/// Another node may have cancelled it in the meantime.
async fn end_all_as_they_are(store: &Postgres, batches: Vec<noroshi_store::Batch>) {
    use noroshi_store::PushQueue as _;
    let finished = batches.into_iter().map(|batch| ended(batch.id)).collect();
    store.finish(finished, at(1)).await.expect("finished");
}

/// Two fronts on one database: each user has one home where the devices live, and both fronts see each other's
/// decisions.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_fronts_agree_on_residences() {
    let (database, one, other) = two_stores().await;
    let app = app(&one, "shop").await;
    let names = ["a", "b", "c"].map(str::to_owned).to_vec();
    let cells: Vec<CellNum> =
        one.enrol(names.clone()).await.expect("enrolled").iter().map(|cell| cell.num).collect();
    assert_eq!(other.enrol(names).await.expect("enrolled").len(), 3);
    let over = AtomicBool::new(false);
    let registering = async |store: &Postgres, salt: usize| {
        for round in 0..25_usize {
            let of = |i: usize| user(&format!("u{}", i % 6));
            let mut devices: Vec<_> = (0..24)
                .map(|i| Assign {
                    device: device(&format!("d{i}")),
                    user: Some(of(i)),
                    fresh: cells[(i + round + salt) % 3],
                })
                .collect();
            if salt > 0 {
                devices.reverse();
            }
            let named: Vec<_> = devices.iter().map(|one| one.device.clone()).collect();
            let answers = store.assign(app, devices, NOW).await.expect("assigned");
            let arrived = named.into_iter().zip(answers).filter_map(|(device, answer)| match answer {
                Ok(residence) => Some((device, residence.cell)),
                Err(error) => {
                    assert!(matches!(error, Error::Conflict), "{error}");
                    None
                }
            });
            store.arrived(app, arrived.collect()).await.expect("recorded");
        }
        over.store(true, Ordering::SeqCst);
    };
    let moving = async |store: &Postgres, salt: usize| {
        let mut round = salt;
        while !over.load(Ordering::SeqCst) {
            round += 1;
            let who = Relocation::User(app, user(&format!("u{}", round % 6)));
            match store.relocate(who, cells[round % 3], NOW, at(100)).await {
                Ok(_) | Err(Error::NotFound) => {}
                Err(error) => panic!("{error}"),
            }
            let some = Relocation::Some { from: cells[round % 3], limit: 2 };
            store.relocate(some, cells[(round + 1) % 3], NOW, at(100)).await.expect("moved");
            for from in &cells {
                for (step, next) in [
                    (MoveStep::Tell, MoveStep::Told),
                    (MoveStep::Arrived, MoveStep::Settled),
                    (MoveStep::Leave, MoveStep::Settled),
                ] {
                    for one in store.moves(*from, step, None, 5).await.expect("read") {
                        store.advance(app, &one.device, step, next).await.expect("advanced");
                    }
                }
            }
        }
    };
    let publishing = async |store: &Postgres, salt: u64| {
        let mut n = salt;
        while !over.load(Ordering::SeqCst) {
            n += 2;
            let everyone: Vec<String> = (0..6).map(|i| format!("u{i}")).collect();
            let everyone: Vec<&str> = everyone.iter().map(String::as_str).collect();
            store.keep(vec![message(app, n, users(&everyone), &cells)], NOW).await.expect("kept");
            store.newest().await.expect("read");
            store.prune_relayed(at(200), at(100), at(100), 50).await.expect("pruned");
        }
    };
    tokio::join!(
        registering(&one, 0),
        registering(&other, 1),
        moving(&one, 0),
        moving(&other, 3),
        publishing(&one, 0),
        publishing(&other, 1),
    );
    let client = database.client().await;
    for sql in [
        "SELECT count(*) FROM (SELECT 1 FROM cell_users WHERE until = 0 GROUP BY app, \"user\" HAVING count(*) > 1) u",
        "SELECT count(*) FROM cell_devices d WHERE step NOT IN (3, 4) AND NOT EXISTS (
             SELECT 1 FROM cell_users u WHERE u.app = d.app AND u.\"user\" = d.\"user\" AND u.cell = d.cell AND until = 0)",
        "SELECT count(*) FROM cell_devices WHERE (previous IS NULL) <> (step = 0) OR previous = cell",
        "SELECT count(*) FROM cell_parts p WHERE NOT EXISTS (SELECT 1 FROM cell_messages m WHERE m.num = p.num)",
    ] {
        assert_eq!(client.query_one(sql, &[]).await.expect("read").get::<_, i64>(0), 0, "{sql}");
    }
    drop(client);
    assert_eq!(deadlocks(&database, [one, other]).await, 0);
}

fn message(app: AppId, n: u64, target: Target, everywhere: &[CellNum]) -> NewMessage {
    NewMessage {
        id: NotificationId::from_bytes((u128::from(n) + 1).to_be_bytes()),
        app,
        target,
        to: "{}".into(),
        body: r#"{"data":1}"#.into(),
        summary: "{}".into(),
        expires_at: at(60),
        trace: None,
        idempotency: None,
        everywhere: everywhere.into(),
        full: Vec::new().into(),
    }
}

/// `newest` waits for a message whose cells were chosen before a move but which is committed later.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn newest_waits_for_concurrent_keeps() {
    let (database, one, other) = two().await;
    let app = app(&one, "shop").await;
    let enrolled = one.enrol(vec!["a".to_owned(), "b".to_owned()]).await.expect("enrolled");
    let (a, b) = (enrolled[0].num, enrolled[1].num);
    let first = Assign { device: device("d1"), user: Some(user("u1")), fresh: a };
    one.assign(app, vec![first], NOW).await.expect("assigned");
    // Messages may be read but not written.
    let mut client = database.client().await;
    let held = client.transaction().await.expect("started");
    held.batch_execute("LOCK TABLE cell_messages IN SHARE MODE").await.expect("locked");
    let keeping = tokio::spawn({
        let one = one.clone();
        async move { one.keep(vec![message(app, 1, users(&["u1"]), &[a, b])], NOW).await }
    });
    let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'cell_messages'::regclass";
    for _ in 0..1_000 {
        if held.query_one(waits, &[]).await.expect("read").get::<_, i64>(0) > 0 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    other.relocate(Relocation::User(app, user("u1")), b, NOW, at(100)).await.expect("moved");
    let asking = tokio::spawn({
        let other = other.clone();
        async move { other.newest().await }
    });
    let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'advisory'";
    for _ in 0..1_000 {
        if asking.is_finished() || held.query_one(waits, &[]).await.expect("read").get::<_, i64>(0) > 0 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    held.commit().await.expect("ended");
    let newest = asking.await.expect("it does not panic").expect("read");
    keeping.await.expect("it does not panic").expect("kept");
    assert!(other.waits_before(a, app, newest + 1).await.expect("read"), "behind {newest}");
}
