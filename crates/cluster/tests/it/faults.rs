//! Faults of one Redis server, and of a node's connection to it.

use std::time::{Duration, Instant};

use bytes::Bytes;
use noroshi_cluster::redis::Config;
use noroshi_cluster::{Epoch, Error, Kept, Taken};

use crate::engine::{TTL, TestNode, config, redis_node, session};
use crate::recorder::{Event, until};
use crate::server::{RedisCluster, Server};

async fn node_on(server: &Server, name: &str) -> TestNode {
    let node = redis_node(config(&server.url()), name);
    node.events.joined_again().await;
    node
}

/// Registers sessions again, as a gateway does.
async fn keep(node: &TestNode, device: &str, generation: u64) -> Kept {
    let takes = vec![session(&node.cluster.keys, device, Some("u"), generation)];
    node.cluster.directory.keep(node.epoch(), takes).await.expect("keep")[0]
}

fn text(message: &'static str) -> Bytes {
    Bytes::from_static(message.as_bytes())
}

async fn send(from: &TestNode, to: &TestNode, message: &'static str) {
    from.cluster.bus.send(vec![(to.epoch(), text(message))]).await.expect("send");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_starts_without_redis_and_joins_when_it_comes() {
    let mut server = Server::start();
    server.kill();
    let node = redis_node(config(&server.url()), "a");
    let key = node.device("d");
    assert!(matches!(node.cluster.directory.locate(vec![key]).await, Err(Error::Unavailable(_))));
    assert_eq!(node.cluster.members.epoch(), None);
    server.start_again();
    node.events.joined_again().await;
    assert_eq!(node.take("d", None, 1).await, Taken::Now { previous: None });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_that_kept_everything_keeps_epochs() {
    let mut server = Server::persistent();
    let (a, b) = (node_on(&server, "a").await, node_on(&server, "b").await);
    a.take("d", Some("u"), 1).await;
    let epoch = a.epoch();
    a.events.clear();
    server.kill();
    server.start_again();
    // Redis may have lost data, so sessions are registered again under the present epoch.
    assert_eq!(a.events.joined_again().await, epoch);
    a.events.until("a loss", |events| events.iter().any(|event| matches!(event, Event::Lost(_)))).await;
    assert_eq!(a.locate(a.device("d")).await, [epoch]);
    until("b receives from a", || b.cluster.members.epoch().is_some() && b.events.has_lost()).await;
    send(&a, &b, "again").await;
    b.events.until("the message", |events| events.contains(&Event::Message(epoch, text("again")))).await;
    assert!(!a.events.all().contains(&Event::Left));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wiped_redis_is_filled_again() {
    let server = Server::start();
    let (a, b) = (node_on(&server, "a").await, node_on(&server, "b").await);
    a.take("d", Some("u"), 1).await;
    let before = a.epoch();
    a.events.clear();
    b.events.clear();
    server.ask(&["FLUSHALL"]);
    let epoch = a.events.joined_again().await;
    assert_ne!(epoch, before, "the lease was lost with everything else");
    assert_eq!(a.events.all()[0], Event::Left);
    b.events.joined_again().await;
    assert_eq!(a.locate(a.device("d")).await, []);
    assert_eq!(keep(&a, "d", 1).await, Kept::Mine);
    b.knows(2).await;
    assert_eq!(b.locate(b.device("d")).await, [epoch]);
    assert_eq!(b.locate(b.user("u")).await, [epoch]);
    send(&b, &a, "hello").await;
    a.events.until("the message", |events| events.contains(&Event::Message(b.epoch(), text("hello")))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_without_persistence_is_a_wipe() {
    let mut server = Server::start();
    let a = node_on(&server, "a").await;
    a.take("d", Some("u"), 1).await;
    let before = a.epoch();
    server.kill();
    server.start_again();
    until("a new epoch", || a.cluster.members.epoch().is_some_and(|epoch| epoch != before)).await;
    assert_eq!(keep(&a, "d", 1).await, Kept::Mine);
    assert_eq!(a.locate(a.user("u")).await, [a.epoch()]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_hangs_is_noticed_and_then_costs_nothing() {
    let server = Server::start();
    let a = node_on(&server, "a").await;
    a.take("d", None, 1).await;
    let before = a.epoch();
    server.pause();
    let key = a.device("d");
    let started = Instant::now();
    let answer = a.cluster.directory.locate(vec![key]).await;
    assert!(matches!(answer, Err(Error::Unavailable(_))), "{answer:?}");
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    // The breaker is open: a thousand calls do not wait for a timeout each.
    let started = Instant::now();
    for _ in 0..1_000 {
        assert!(a.cluster.directory.locate(vec![key]).await.is_err());
    }
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    // Longer than the lease: it expires by the node's own clock, without an answer.
    a.events.until("left", |events| events.contains(&Event::Left)).await;
    assert_eq!(a.cluster.members.epoch(), None);
    let takes = vec![session(&a.cluster.keys, "d", None, 2)];
    assert_eq!(a.cluster.directory.take(before, takes).await, Err(Error::Lost));
    assert_eq!(a.cluster.bus.send(vec![(before, text("x"))]).await, Err(Error::Lost));
    a.events.clear();
    server.go_on();
    assert_ne!(a.events.joined_again().await, before);
    assert_eq!(keep(&a, "d", 1).await, Kept::Mine);
    assert_eq!(a.locate(key).await, [a.epoch()]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn setting_the_servers_clock_strands_no_node() {
    let server = Server::start();
    let a = node_on(&server, "a").await;
    a.take("d", Some("u"), 1).await;
    let before = a.epoch();
    // Set back by an hour: leases, including that of a dead node, end in an hour.
    server.ask(&["ZADD", "noroshi:{nodes}:leases", "9000000000000", "00000000000000ff"]);
    a.knows(2).await;
    a.knows(1).await;
    assert_eq!(a.cluster.members.epoch(), Some(before));
    // Set forward: all leases expire at once.
    let lease = before.to_string();
    server.ask(&["ZADD", "noroshi:{nodes}:leases", "1", &lease]);
    until("a new lease", || a.cluster.members.epoch().is_some_and(|epoch| epoch != before)).await;
    assert_eq!(keep(&a, "d", 1).await, Kept::Mine);
    assert_eq!(a.locate(a.user("u")).await, [a.epoch()]);
}

/// A node whose thread is paused for longer than its lease behaves like a stopped process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resumed_process_accepts_nothing_for_its_old_epoch() {
    let server = Server::start();
    let a = node_on(&server, "a").await;
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (freeze, frozen) = tokio::sync::oneshot::channel::<()>();
    let url = server.url();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        runtime.block_on(async move {
            let b = redis_node(config(&url), "b");
            let epoch = b.events.joined_again().await;
            let _ = b.take("d", Some("u"), 1).await;
            tell.send((epoch, b.events.clone(), b.cluster.clone())).expect("the test listens");
            frozen.await.expect("the test freezes it");
            std::thread::sleep(TTL * 2);
            stopped.await.expect("the test ends it");
        });
    });
    let (old, events, b) = tokio::task::spawn_blocking(move || told.recv().expect("b")).await.expect("task");
    a.knows(2).await;
    freeze.send(()).expect("b waits for it");
    tokio::time::sleep(Duration::from_millis(100)).await;
    // Its lease is still valid, so it is still sent to: the message waits in its socket.
    a.cluster.bus.send(vec![(old, text("stale"))]).await.expect("send");
    a.knows(1).await;
    assert_eq!(
        a.take("d", Some("u"), 2).await,
        Taken::Now { previous: Some(noroshi_cluster::Holder { epoch: old, generation: 1 }) }
    );
    events.until("left", |events| events.contains(&Event::Left)).await;
    until("b is back", || b.members.epoch().is_some_and(|epoch| epoch != old)).await;
    assert!(events.messages().is_empty(), "{:?}", events.messages());
    // Registering its sessions again does not replace the newer session.
    let epoch = b.members.epoch().expect("a lease");
    let kept = b.directory.keep(epoch, vec![session(&b.keys, "d", Some("u"), 1)]).await.expect("keep");
    assert_eq!(kept, [Kept::Superseded]);
    assert_eq!(a.locate(a.user("u")).await, [a.epoch()]);
    stop.send(()).expect("b waits for it");
    tokio::task::spawn_blocking(move || thread.join().expect("b")).await.expect("task");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_subscription_is_reported_and_restored() {
    let server = Server::start();
    let (a, b) = (node_on(&server, "a").await, node_on(&server, "b").await);
    send(&a, &b, "1").await;
    b.events.until("the first", |events| events.contains(&Event::Message(a.epoch(), text("1")))).await;
    let first = Instant::now();
    server.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    send(&a, &b, "2").await;
    b.events.until("the loss", |events| events.iter().any(|event| matches!(event, Event::Lost(_)))).await;
    let since = b.events.all().into_iter().find_map(|event| match event {
        Event::Lost(since) => Some(since),
        _ => None,
    });
    assert!(since.expect("lost") <= first, "what came after the first may be lost");
    until("subscribed again", || server.ask_text(&["CLIENT", "LIST", "TYPE", "pubsub"]).lines().count() >= 2)
        .await;
    send(&a, &b, "3").await;
    b.events.until("the third", |events| events.contains(&Event::Message(a.epoch(), text("3")))).await;
    assert!(!b.events.all().contains(&Event::Left), "the lease stands");
}

/// Frames that Redis accepted and the receiver never got, on a working connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gap_and_a_lost_tail_are_detected() {
    let server = Server::start();
    let (a, b) = (node_on(&server, "a").await, node_on(&server, "b").await);
    let channel = format!("noroshi:bus:{}", b.epoch());
    // Forged frames in the name of a: number 3, then a heartbeat with 9.
    let publish = |kind: u8, number: u64| {
        let mut frame = vec![1, kind];
        frame.extend_from_slice(&a.epoch().0.to_be_bytes());
        frame.extend_from_slice(&number.to_be_bytes());
        let client = ::redis::Client::open(server.url()).expect("client");
        let mut connection = client.get_connection().expect("connection");
        let events: i64 =
            ::redis::cmd("PUBLISH").arg(&channel).arg(frame).query(&mut connection).expect("publish");
        assert_eq!(events, 1);
    };
    send(&a, &b, "1").await;
    publish(1, 3);
    b.events.until("the gap", |events| events.iter().any(|event| matches!(event, Event::Lost(_)))).await;
    b.events.clear();
    publish(3, 9);
    b.events.until("the tail", |events| events.iter().any(|event| matches!(event, Event::Lost(_)))).await;
    until("counted", || b.metric("bus_gaps_total") == 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_heartbeat_reveals_a_lost_tail() {
    let server = Server::start();
    let (a, b) = (node_on(&server, "a").await, node_on(&server, "b").await);
    // The receiver is unreachable for one message: no node may publish to its channel.
    let user = ["ACL", "SETUSER", "default", "resetchannels"];
    server.ask(&user);
    let refused = a.cluster.bus.send(vec![(b.epoch(), text("1"))]).await;
    assert!(matches!(refused, Err(Error::Refused(_))), "{refused:?}");
    server.ask(&["ACL", "SETUSER", "default", "allchannels"]);
    b.events.until("the loss", |events| events.iter().any(|event| matches!(event, Event::Lost(_)))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lookup_is_one_command_and_missing_scripts_are_loaded() {
    let server = Server::start();
    let a = node_on(&server, "a").await;
    a.take("d", Some("u"), 1).await;
    let commands = |kind: &str| a.metric(&format!("commands_total{{kind=\"{kind}\"}}"));
    let before = commands("locate");
    let keys = (0..300).map(|i| a.user(&format!("u{i}"))).collect();
    a.cluster.directory.locate(keys).await.expect("locate");
    assert_eq!(commands("locate") - before, 1);
    server.ask(&["SCRIPT", "FLUSH"]);
    assert!(matches!(a.take("d", Some("u"), 2).await, Taken::Now { previous: Some(_) }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_shard_affects_only_its_own_data() {
    let mut cluster = RedisCluster::start();
    let node = |name: &str| redis_node(config(&cluster.url()), name);
    let (a, b) = (node("a"), node("b"));
    a.events.joined_again().await;
    b.events.joined_again().await;
    a.knows(2).await;
    let names: Vec<String> = (0..60).map(|i| format!("d{i}")).collect();
    for name in &names {
        assert_eq!(a.take(name, None, 1).await, Taken::Now { previous: None });
    }
    // The shard with the leases stays up.
    let leases: i64 =
        ::redis::from_redis_value(cluster.servers[0].ask(&["CLUSTER", "KEYSLOT", "noroshi:{nodes}:leases"]))
            .expect("slot");
    let down = usize::from(leases < 16_384 / 3);
    cluster.servers[down].kill();
    let keys: Vec<_> = names.iter().map(|name| a.device(name)).collect();
    let mut found = Vec::new();
    until("the breaker", || a.metric("servers_up") == 2).await;
    for _ in 0..3 {
        found = a.cluster.directory.locate(keys.clone()).await.expect("locate");
    }
    let known = found.iter().filter(|epochs| epochs.as_slice() == [a.epoch()]).count();
    let everyone = found.iter().filter(|epochs| epochs.len() == 2).count();
    assert_eq!(known + everyone, names.len());
    assert!(known > 0 && everyone > 0, "{known} {everyone}");
    let takes = names.iter().map(|name| session(&a.cluster.keys, name, None, 2)).collect();
    let taken = a.cluster.directory.take(a.epoch(), takes).await.expect("take");
    assert_eq!(taken.iter().filter(|taken| **taken == Taken::Unknown).count(), everyone);
    // Users are on other shards than their devices: a session that is not found by its user is registered again later.
    let with_user = |generation| {
        let with_user = |name| session(&a.cluster.keys, name, Some(name), generation);
        names.iter().map(String::as_str).map(with_user).collect::<Vec<_>>()
    };
    let taken = a.cluster.directory.take(a.epoch(), with_user(3)).await.expect("take");
    let partly = taken.iter().filter(|taken| matches!(taken, Taken::Partly { previous: Some(_) })).count();
    let whole = taken.iter().filter(|taken| matches!(taken, Taken::Now { previous: Some(_) })).count();
    assert!(partly > 0 && partly + whole == known, "{partly} {whole}");
    let kept = a.cluster.directory.keep(a.epoch(), with_user(3)).await;
    assert!(matches!(kept, Err(Error::Unavailable(_))), "{kept:?}");
    an_unreachable_receiver_delays_no_other(&a).await;
    a.events.clear();
    cluster.servers[down].start_again();
    cluster.settle();
    // It came back empty: all sessions are registered again.
    assert_eq!(a.events.joined_again().await, a.epoch());
    until("all shards", || a.metric("servers_up") == 3).await;
    for name in &names {
        assert_eq!(keep(&a, name, 3).await, Kept::Mine);
        assert_eq!(b.locate(b.device(name)).await, [a.epoch()]);
    }
}

/// Channels are spread over all shards: some receivers listen on the one that is down.
async fn an_unreachable_receiver_delays_no_other(a: &TestNode) {
    let receivers: Vec<Epoch> = (1..=60).map(Epoch).collect();
    let messages: Vec<_> = receivers.iter().map(|to| (*to, text("hello"))).collect();
    let Err(Error::Partly(away)) = a.cluster.bus.send(messages).await else { panic!("a part is away") };
    assert!(!away.is_empty() && away.len() < receivers.len(), "{}", away.len());
    let reached = receivers.into_iter().find(|one| !away.contains(one)).expect("one");
    a.cluster.bus.send(vec![(reached, text("hello"))]).await.expect("sent");
    assert_eq!(a.cluster.bus.send(vec![(away[0], text("hello"))]).await, Err(Error::Partly(vec![away[0]])));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_moving_slot_is_redirected() {
    let cluster = RedisCluster::start();
    let node = |name: &str| redis_node(Config { buckets: 1, ..config(&cluster.url()) }, name);
    let (a, b) = (node("a"), node("b"));
    a.events.joined_again().await;
    b.events.joined_again().await;
    b.knows(2).await;
    until("all servers", || [&a, &b].iter().all(|node| node.metric("servers_up") == 3)).await;
    assert_eq!(a.take("stays", None, 1).await, Taken::Now { previous: None });
    let (from, bucket) = directory_bucket(&cluster);
    let (to, slot) = ((from + 1) % 3, slot_of(&cluster, &bucket));
    let id = |at: usize| cluster.servers[at].ask_text(&["CLUSTER", "MYID"]);
    cluster.servers[to].ask(&["SCRIPT", "FLUSH"]);
    cluster.servers[to].ask(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(from)]);
    cluster.servers[from].ask(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(to)]);
    let (a, b) = (&a, &b);
    let check = async |name: &str| {
        assert_eq!(a.take(name, None, 1).await, Taken::Now { previous: None }, "{name}");
        assert_eq!(b.locate(b.device(name)).await, [a.epoch()], "{name}");
        let previous = Some(noroshi_cluster::Holder { epoch: a.epoch(), generation: 1 });
        assert_eq!(b.take(name, None, 2).await, Taken::Now { previous }, "{name}");
    };
    check("before").await;
    // The bucket moves as a whole; the old server still owns the slot and redirects.
    let port = cluster.servers[to].port.to_string();
    cluster.servers[from].ask(&["MIGRATE", "127.0.0.1", &port, &bucket, "0", "5000"]);
    check("after").await;
    assert_eq!(b.locate(b.device("stays")).await, [a.epoch()]);
    assert_eq!(b.locate(b.device("before")).await, [b.epoch()]);
    let keys = |at: usize| -> i64 {
        let count = cluster.servers[at].ask(&["CLUSTER", "COUNTKEYSINSLOT", &slot]);
        ::redis::from_redis_value(count).expect("count")
    };
    assert_eq!((keys(from), keys(to)), (0, 1), "it is where the slot moves to");
}

/// A message to a channel on a dead server reaches no node, while leases on other servers are renewed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_leaves_a_channel_on_a_dead_server() {
    let mut cluster = RedisCluster::start();
    // Slots are assigned in order.
    let server_of = |cluster: &RedisCluster, key: &str| -> usize {
        let slot: usize = slot_of(cluster, key).parse().expect("a number");
        slot * 3 / 16_384
    };
    let listens_at =
        |cluster: &RedisCluster, epoch: Epoch| server_of(cluster, &format!("noroshi:bus:{epoch}"));
    let leases = server_of(&cluster, "noroshi:{nodes}:leases");
    let down = (leases + 1) % 3;
    let (mut there, mut elsewhere) = (None, None);
    for number in 0..100 {
        let node = redis_node(config(&cluster.url()), &format!("n{number}"));
        let epoch = node.events.joined_again().await;
        let place = if listens_at(&cluster, epoch) == down { &mut there } else { &mut elsewhere };
        place.get_or_insert(node);
        if there.is_some() && elsewhere.is_some() {
            break;
        }
    }
    let (a, b) = (there.expect("one of a hundred"), elsewhere.expect("one of a hundred"));
    b.knows(2).await;
    let (left, stayed) = (a.epoch(), b.epoch());
    a.events.clear();
    cluster.servers[down].kill();
    let epoch = a.events.joined_again().await;
    assert_ne!(epoch, left);
    assert_ne!(listens_at(&cluster, epoch), down);
    until("b knows its new lease", || b.cluster.members.nodes().iter().any(|node| node.epoch == epoch)).await;
    send(&b, &a, "hello").await;
    let message = Event::Message(stayed, text("hello"));
    a.events.until("the message", |events| events.contains(&message)).await;
    assert_eq!(b.epoch(), stayed, "a node that receives stays");
}

/// The server that keeps the only bucket, and its key.
fn directory_bucket(cluster: &RedisCluster) -> (usize, String) {
    let key = |server: &Server| {
        let keys: Vec<String> =
            ::redis::from_redis_value(server.ask(&["KEYS", "noroshi:{??}:d"])).expect("keys");
        keys.into_iter().next()
    };
    let found = cluster.servers.iter().enumerate().find_map(|(at, server)| Some((at, key(server)?)));
    found.expect("an entry")
}

fn slot_of(cluster: &RedisCluster, key: &str) -> String {
    let slot: i64 =
        ::redis::from_redis_value(cluster.servers[0].ask(&["CLUSTER", "KEYSLOT", key])).expect("slot");
    slot.to_string()
}
