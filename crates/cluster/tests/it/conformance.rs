//! One suite for all implementations: the promises of the traits.

use bytes::Bytes;
use noroshi_cluster::bus::MESSAGE_BYTES_MAX;
use noroshi_cluster::{Epoch, Error, Holder, Kept, NodeInfo, SessionKey, Taken};

use crate::engine::{Engine, TestNode, info, session};
use crate::recorder::{Event, until};

macro_rules! suite {
    ($($name:ident),* $(,)?) => {
        mod in_process {
            $(#[tokio::test]
            async fn $name() {
                super::$name(&super::Engine::in_process()).await;
            })*
        }

        mod standalone {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(&super::Engine::standalone()).await;
            })*
        }

        mod direct {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name(&super::Engine::direct()).await;
            })*
        }

        /// One cluster for all tests, because setting it up takes seconds. Each test has its own keys.
        mod redis_cluster {
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn everything() {
                let cluster = super::Engine::cluster();
                $({
                    println!(stringify!($name));
                    super::$name(&cluster.with_prefix(stringify!($name))).await;
                })*
            }
        }
    };
}

suite!(
    nodes_are_listed_with_their_info,
    the_greater_generation_wins,
    a_repeated_take_changes_nothing,
    users_are_found_on_all_nodes_of_their_devices,
    a_look_up_of_many_keys_answers_in_order,
    kept_sessions_never_displace_greater_ones,
    forgetting_is_exact,
    absent_sessions_are_removed,
    calls_without_the_lease_are_rejected,
    entries_of_dead_nodes_are_not_answered,
    messages_arrive_in_order,
    large_messages_arrive_whole,
    messages_to_dead_nodes_are_not_an_error,
);

async fn nodes_are_listed_with_their_info(engine: &Engine) {
    let (a, b) = (engine.node("a").await, engine.node("b").await);
    a.knows(2).await;
    b.knows(2).await;
    let nodes = a.cluster.members.nodes();
    assert_eq!([nodes[0].info.name.as_str(), nodes[1].info.name.as_str()], ["a", "b"]);
    assert_eq!([nodes[0].epoch, nodes[1].epoch], [a.epoch(), b.epoch()]);
    assert_eq!([nodes[0].is_self, nodes[1].is_self], [true, false]);
    assert!(a.epoch() != b.epoch() && a.epoch() != Epoch(0));

    b.cluster.members.set_info(NodeInfo { sessions: 7, ..info("b") });
    until("b's sessions", || a.cluster.members.nodes()[1].info.sessions == 7).await;
    b.stop().await;
    a.knows(1).await;
}

async fn the_greater_generation_wins(engine: &Engine) {
    let (a, b) = (engine.node("a").await, engine.node("b").await);
    assert_eq!(a.take("d", None, 5).await, Taken::Now { previous: None });
    assert_eq!(b.take("d", None, 4).await, Taken::Behind { generation: 5 });
    assert_eq!(b.take("d", None, 5).await, Taken::Behind { generation: 5 });
    let held = |node: &TestNode, generation| Some(Holder { epoch: node.epoch(), generation });
    // Beyond the precision of a double.
    let large = (1 << 62) + 1;
    assert_eq!(b.take("d", None, large).await, Taken::Now { previous: held(&a, 5) });
    assert_eq!(a.take("d", None, large - 1).await, Taken::Behind { generation: large });
    assert_eq!(a.take("d", None, large + 1).await, Taken::Now { previous: held(&b, large) });
    assert_eq!(a.take("d", None, large + 2).await, Taken::Now { previous: held(&a, large + 1) });
    assert_eq!(b.locate(b.device("d")).await, [a.epoch()]);
}

async fn a_repeated_take_changes_nothing(engine: &Engine) {
    let a = engine.node("a").await;
    assert_eq!(a.take("d", Some("u"), 5).await, Taken::Now { previous: None });
    assert_eq!(a.take("d", Some("u"), 5).await, Taken::Now { previous: None });
    // In order within a call.
    let takes = [7, 6, 8].map(|generation| session(&a.cluster.keys, "e", Some("u"), generation));
    let taken = a.cluster.directory.take(a.epoch(), takes.to_vec()).await.expect("take");
    let previous = Some(Holder { epoch: a.epoch(), generation: 7 });
    let wanted = [Taken::Now { previous: None }, Taken::Behind { generation: 7 }, Taken::Now { previous }];
    assert_eq!(taken, wanted);
    assert_eq!(a.locate(a.user("u")).await, [a.epoch()]);
}

async fn users_are_found_on_all_nodes_of_their_devices(engine: &Engine) {
    let (a, b) = (engine.node("a").await, engine.node("b").await);
    a.take("1", Some("u"), 1).await;
    a.take("2", Some("u"), 1).await;
    b.take("3", Some("u"), 1).await;
    let mut both = [a.epoch(), b.epoch()];
    both.sort();
    assert_eq!(a.locate(a.user("u")).await, both);
    assert_eq!(a.locate(a.device("3")).await, [b.epoch()]);
    // A device that moves takes its user's entry along.
    a.take("3", Some("u"), 2).await;
    assert_eq!(b.locate(b.user("u")).await, [a.epoch()]);
    // A device with another user is found there; the node removes the old entry.
    b.take("3", Some("v"), 3).await;
    assert_eq!(b.locate(b.user("v")).await, [b.epoch()]);
    assert_eq!(b.locate(b.user("u")).await, [a.epoch()]);
}

async fn a_look_up_of_many_keys_answers_in_order(engine: &Engine) {
    let a = engine.node("a").await;
    let keys = &a.cluster.keys;
    let name = |i: usize| format!("d{i}");
    let takes: Vec<_> =
        (0..600).map(|i| session(keys, &name(i), Some(&format!("u{}", i % 100)), 1)).collect();
    let taken = a.cluster.directory.take(a.epoch(), takes).await.expect("take");
    assert!(taken.iter().all(|taken| *taken == Taken::Now { previous: None }));
    let wanted: Vec<SessionKey> = (0..2_500).map(|i| a.device(&name(i % 1_200))).collect();
    let found = a.cluster.directory.locate(wanted).await.expect("locate");
    for (i, epochs) in found.iter().enumerate() {
        let held = i % 1_200 < 600;
        assert_eq!(epochs.as_slice(), if held { vec![a.epoch()] } else { vec![] }, "{i}");
    }
    assert!(a.cluster.directory.locate(vec![]).await.expect("nothing").is_empty());
}

async fn kept_sessions_never_displace_greater_ones(engine: &Engine) {
    let (a, b) = (engine.node("a").await, engine.node("b").await);
    let keep = async |node: &TestNode, device: &str, generation| {
        let takes = vec![session(&node.cluster.keys, device, Some("u"), generation)];
        node.cluster.directory.keep(node.epoch(), takes).await.expect("keep")[0]
    };
    assert_eq!(keep(&a, "d", 5).await, Kept::Mine);
    assert_eq!(keep(&a, "d", 5).await, Kept::Mine);
    assert_eq!(a.locate(a.user("u")).await, [a.epoch()]);
    assert_eq!(keep(&b, "d", 4).await, Kept::Superseded);
    assert_eq!(a.locate(a.user("u")).await, [a.epoch()]);
    // The same session under a new epoch of its node has the same generation.
    assert_eq!(keep(&b, "d", 5).await, Kept::Mine);
    assert_eq!(a.locate(a.device("d")).await, [b.epoch()]);
    assert_eq!(a.locate(a.user("u")).await, [b.epoch()]);
    assert_eq!(keep(&a, "d", 6).await, Kept::Mine);
    assert_eq!(keep(&b, "d", 5).await, Kept::Superseded);
}

async fn forgetting_is_exact(engine: &Engine) {
    let (a, b) = (engine.node("a").await, engine.node("b").await);
    a.take("d", Some("u"), 5).await;
    a.take("e", Some("u"), 5).await;
    let forget = async |node: &TestNode, generation| {
        let takes = vec![session(&node.cluster.keys, "d", Some("u"), generation)];
        node.cluster.directory.forget(node.epoch(), takes).await.expect("forget");
    };
    forget(&a, 4).await;
    forget(&a, 6).await;
    forget(&b, 5).await;
    assert_eq!(a.locate(a.device("d")).await, [a.epoch()]);
    forget(&a, 5).await;
    assert_eq!(a.locate(a.device("d")).await, []);
    assert_eq!(a.locate(a.user("u")).await, [a.epoch()], "the other device");
    assert_eq!(a.locate(a.device("e")).await, [a.epoch()]);
    // A forgotten device can be taken by any generation.
    assert_eq!(b.take("d", None, 1).await, Taken::Now { previous: None });
}

async fn absent_sessions_are_removed(engine: &Engine) {
    let (a, b) = (engine.node("a").await, engine.node("b").await);
    a.take("1", Some("u"), 10).await;
    a.take("2", Some("u"), 20).await;
    b.take("3", Some("u"), 10).await;
    let absent = async |node: &TestNode, before| {
        let keys = vec![node.user("u"), node.device("1"), node.device("2"), node.device("3")];
        node.cluster.directory.absent(node.epoch(), keys, before).await.expect("absent");
    };
    absent(&a, 10).await;
    assert_eq!(a.locate(a.device("1")).await, [a.epoch()], "not below 10");
    absent(&a, 20).await;
    assert_eq!(a.locate(a.device("1")).await, []);
    assert_eq!(a.locate(a.device("2")).await, [a.epoch()]);
    assert_eq!(a.locate(a.device("3")).await, [b.epoch()], "not a's to remove");
    assert_eq!(a.locate(a.user("u")).await.len(), 2);
    absent(&a, 21).await;
    absent(&b, u64::MAX).await;
    assert_eq!(a.locate(a.user("u")).await, []);
}

async fn calls_without_the_lease_are_rejected(engine: &Engine) {
    let a = engine.node("a").await;
    let directory = &a.cluster.directory;
    let other = Epoch(a.epoch().0 ^ 1);
    let takes = || vec![session(&a.cluster.keys, "d", None, 1)];
    assert_eq!(directory.take(other, takes()).await, Err(Error::Lost));
    assert_eq!(directory.keep(other, takes()).await, Err(Error::Lost));
    assert_eq!(directory.forget(other, takes()).await, Err(Error::Lost));
    assert_eq!(directory.absent(other, vec![a.device("d")], 1).await, Err(Error::Lost));
    assert_eq!(a.locate(a.device("d")).await, []);
}

async fn entries_of_dead_nodes_are_not_answered(engine: &Engine) {
    let (a, b) = (engine.node("a").await, engine.node("b").await);
    a.take("1", Some("u"), 1).await;
    b.take("2", Some("u"), 1).await;
    a.knows(2).await;
    b.kill();
    a.knows(1).await;
    // A node that joins later finds entries of nodes that it never saw in a list.
    let c = engine.node("c").await;
    for node in [&a, &c] {
        assert_eq!(node.locate(node.device("2")).await, []);
        assert_eq!(node.locate(node.user("u")).await, [a.epoch()]);
    }
    // A dead node's session yields to a greater generation only.
    assert_eq!(a.take("2", Some("u"), 1).await, Taken::Behind { generation: 1 });
}

async fn messages_arrive_in_order(engine: &Engine) {
    let nodes = [engine.node("a").await, engine.node("b").await, engine.node("c").await];
    let to = nodes[2].epoch();
    let sent = 300;
    let send = async |node: &TestNode| {
        for i in (0..sent).step_by(3) {
            let message = |n: i32| (to, Bytes::from((i + n).to_string()));
            node.cluster.bus.send(vec![message(0), message(1), message(2)]).await.expect("send");
        }
    };
    // One node sends to itself.
    tokio::join!(send(&nodes[0]), send(&nodes[1]), send(&nodes[2]));
    nodes[2].events.until("all messages", |events| events.len() == 3 * sent as usize + 1).await;
    for node in &nodes {
        let from = nodes[2].events.messages().into_iter().filter(|(from, _)| *from == node.epoch());
        let numbers: Vec<i32> = from
            .map(|(_, message)| std::str::from_utf8(&message).expect("text").parse().expect("number"))
            .collect();
        assert_eq!(numbers, (0..sent).collect::<Vec<_>>());
    }
    assert!(nodes[0].events.messages().is_empty() && !nodes[2].events.has_lost());
}

async fn large_messages_arrive_whole(engine: &Engine) {
    let (a, b) = (engine.node("a").await, engine.node("b").await);
    let large = Bytes::from((0..5_000_000).map(|i: u32| (i % 251) as u8).collect::<Vec<_>>());
    let small = Bytes::from_static(b"small");
    let sends = vec![(b.epoch(), small.clone()), (b.epoch(), large.clone()), (b.epoch(), small.clone())];
    a.cluster.bus.send(sends).await.expect("send");
    b.events.until("three messages", |events| events.len() >= 4).await;
    let events: Vec<Bytes> = b.events.messages().into_iter().map(|(_, message)| message).collect();
    assert!(events == [small.clone(), large, small]);

    let beyond = Bytes::from(vec![0; MESSAGE_BYTES_MAX + 1]);
    let refused = a.cluster.bus.send(vec![(b.epoch(), beyond)]).await;
    assert!(matches!(refused, Err(Error::TooLarge { .. })), "{refused:?}");
}

async fn messages_to_dead_nodes_are_not_an_error(engine: &Engine) {
    let (a, b) = (engine.node("a").await, engine.node("b").await);
    let nobody = Epoch(a.epoch().0 ^ b.epoch().0 ^ 0x5555);
    let message = Bytes::from_static(b"m");
    let sends = vec![(nobody, message.clone()), (b.epoch(), message.clone())];
    a.cluster.bus.send(sends).await.expect("send");
    b.events
        .until("the message", |events| events.contains(&Event::Message(a.epoch(), message.clone())))
        .await;
}
