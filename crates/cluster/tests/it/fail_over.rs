//! Sentinel: the master dies, a replica takes over, and nodes follow.

use noroshi_cluster::{Kept, Taken};

use crate::engine::{config, redis_node, session};
use crate::recorder::until;
use crate::server::Server;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_follow_a_fail_over() {
    let mut master = Server::start();
    let port = master.port.to_string();
    let replica = Server::with(&["--replicaof", "127.0.0.1", &port, "--repl-diskless-sync-delay", "0"]);
    let linked = || replica.ask_text(&["INFO", "replication"]).contains("master_link_status:up");
    until("the replica", linked).await;
    let sentinel = Server::sentinel(&master);
    let knows = || sentinel.ask_text(&["INFO", "sentinel"]).contains("slaves=1");
    until("the sentinel knows the replica", knows).await;

    let url = format!("redis-sentinel://127.0.0.1:{}/main", sentinel.port);
    let (a, b) = (redis_node(config(&url), "a"), redis_node(config(&url), "b"));
    a.events.joined_again().await;
    b.events.joined_again().await;
    assert_eq!(a.take("d", Some("u"), 1).await, Taken::Now { previous: None });
    a.events.clear();
    b.events.clear();
    master.kill();
    // The promoted replica may lack the last writes: sessions are registered again, whatever happened to the lease.
    a.events.joined_again().await;
    b.events.joined_again().await;
    until("leases", || a.cluster.members.epoch().is_some() && b.cluster.members.epoch().is_some()).await;
    let keep = vec![session(&a.cluster.keys, "d", Some("u"), 1)];
    let kept = a.cluster.directory.keep(a.epoch(), keep).await.expect("keep");
    assert_eq!(kept, [Kept::Mine]);
    b.knows(2).await;
    assert_eq!(b.locate(b.user("u")).await, [a.epoch()]);
    // Messages before the new subscription are lost, and reported.
    until("the loss", || a.events.has_lost()).await;
    b.cluster.bus.send(vec![(a.epoch(), "hello".into())]).await.expect("send");
    until("the message", || !a.events.messages().is_empty()).await;
    // The old master returns as a replica, and no node uses it.
    master.start_again();
    assert!(replica.ask_text(&["INFO", "replication"]).contains("role:master"));
    assert_eq!(b.locate(b.user("u")).await, [a.epoch()]);
}
