//! The cost of reads of one device and of outcomes, in round trips on the wire.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use noroshi_store::{
    Devices as _, Notifications as _, OutcomePart, Postgres, PostgresOptions, Sessions as _,
};
use noroshi_types::Outcome;
use prometheus_client::registry::Registry;

use super::options;
use super::server::{Database, server};
use crate::conformance::fixture::*;

/// A proxy between clients and the server. A round trip is a message of a client after it received something.
struct CountingProxy {
    folder: tempfile::TempDir,
    trips: Arc<AtomicU64>,
}

impl CountingProxy {
    fn start(real: &Path) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let listener = UnixListener::bind(folder.path().join(".s.PGSQL.5432")).expect("a socket");
        let trips = Arc::new(AtomicU64::new(0));
        let (count, real) = (trips.clone(), real.join(".s.PGSQL.5432"));
        // Ends with the test process.
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = UnixStream::connect(&real).expect("the server is there");
                let request_pending = Arc::new(AtomicU64::new(1));
                let both = |stream: &UnixStream| stream.try_clone().expect("a handle");
                let (pending, count) = (request_pending.clone(), count.clone());
                let (from, to) = (both(&client), both(&server));
                std::thread::spawn(move || {
                    forward(from, to, || {
                        count.fetch_add(pending.swap(0, Ordering::SeqCst), Ordering::SeqCst);
                    })
                });
                std::thread::spawn(move || {
                    forward(server, client, || request_pending.store(1, Ordering::SeqCst))
                });
            }
        });
        Self { folder, trips }
    }

    fn trips(&self) -> u64 {
        self.trips.load(Ordering::SeqCst)
    }
}

fn forward(mut from: UnixStream, mut to: UnixStream, on: impl Fn()) {
    let mut chunk = [0; 16 << 10];
    while let Ok(len @ 1..) = from.read(&mut chunk) {
        on();
        if to.write_all(&chunk[..len]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

/// A store with one connection, which goes through the proxy.
async fn opened_through_proxy(database: &Database) -> (CountingProxy, Postgres) {
    let proxy = CountingProxy::start(database.folder());
    let url = database.url_through(proxy.folder.path());
    let options = PostgresOptions { connections: 1, url, ..options(database) };
    let store = Postgres::open(options, &mut Registry::default()).await.expect("opened");
    (proxy, store)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_call_and_a_device_are_one_round_trip_each() {
    let database = server().database().await;
    let (proxy, store) = opened_through_proxy(&database).await;
    let app = app(&store, "shop").await;
    join(&store, app, "d1", "u1", &["a", "b", "c"]).await;
    for _ in 0..5 {
        send(&store, app, stored(users(&["u1"]))).await;
    }
    let (mut cheapest, mut cheapest_device) = (u64::MAX, u64::MAX);
    // The first call prepares its statement; others may coincide with background work.
    for _ in 0..20 {
        let before = proxy.trips();
        let call = store.first_call(app, &device("d1"), 10, NOW).await.expect("read").expect("present");
        assert_eq!((call.unread, call.newest.len(), call.device.topics.len()), (5, 5, 3));
        cheapest = cheapest.min(proxy.trips() - before);
        let before = proxy.trips();
        let device = store.device(app, &device("d1")).await.expect("read").expect("present");
        assert_eq!(device.topics, topics(&["a", "b", "c"]));
        cheapest_device = cheapest_device.min(proxy.trips() - before);
    }
    assert_eq!((cheapest, cheapest_device), (1, 1));
    let before = proxy.trips();
    store.inbox(app, &device("d1"), 10, NOW).await.expect("read");
    assert!(proxy.trips() - before > 1, "more statements need more round trips");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outcomes_of_a_second_are_written_together() {
    // Three statements of which the first group prepares each, and the commit.
    const TRIPS_OF_A_GROUP: u64 = 10;
    let database = server().database().await;
    let (proxy, store) = opened_through_proxy(&database).await;
    let app = app(&store, "shop").await;
    let joined = join(&store, app, "d1", "u1", &[]).await;
    let id = send(&store, app, stored(users(&["u1"]))).await;
    let part = |outcome, at| OutcomePart { app, id, outcome, at, devices: vec![joined], count: 1 };
    let (before, began) = (proxy.trips(), Instant::now());
    for second in 0..60 {
        // Too far apart for one row.
        store.record(vec![part(Outcome::Written, at(second))]);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (trips, groups) = (proxy.trips() - before, began.elapsed().as_secs() + 2);
    assert!(trips <= groups * TRIPS_OF_A_GROUP, "{trips} round trips");
    store.record(vec![part(Outcome::Slow, at(60))]);
    written_behind(&store, app, id, Some(Outcome::Slow)).await;
    let counts = counts(&store, app, id).await;
    assert!(counts.contains(&(Outcome::Written, 60)), "{counts:?}");
}
