//! Connections that fail or never open, and the end of the program: every push has one answer.

use std::time::Duration;

use noroshi_push::{Answer, Config};
use noroshi_types::{Lane, PushService};
use tokio::net::TcpListener;

use crate::answers::{reason, until};
use crate::client::{APP, Bench, Knobs, config};
use crate::scripted::Listener;
use crate::server::{Options, Server, status};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_connection_answers_its_pushes_and_others_go_elsewhere() {
    let (listener, origin) = Listener::new().await;
    let bench =
        Bench::new(Config { connections_max: 1, ..config() }, Knobs::new(PushService::Apns, origin), vec![]);
    bench.send_all(20).await;
    let mut first = listener.greet(8).await;
    let requests = first.requests(8).await;
    first.ok(requests[0].0).await;
    // The ninth push takes the place of the answered one, which shows that the answer was read.
    let ninth = first.requests(1).await;
    drop(first);
    let mut second = listener.greet(8).await;
    let rest = tokio::spawn(async move { second.answer_all().await });
    let answers = bench.answers.wait(20).await;
    let lost: Vec<u32> = requests[1..].iter().chain(&ninth).map(|(_, id)| *id).collect();
    for (index, answer) in &answers {
        match lost.contains(index) {
            true => assert!(matches!(answer, Answer::Later { reason: "connection_lost", .. }), "{answer:?}"),
            false => assert_eq!(*answer, Answer::Accepted, "{index}"),
        }
    }
    bench.services.drain(Duration::from_secs(30)).await;
    assert_eq!(rest.await.expect("the peer").len(), 11);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_service_is_reported_after_a_few_attempts() {
    let port = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("it").port();
    let knobs = Knobs::new(PushService::Apns, format!("https://127.0.0.1:{port}"));
    let bench = Bench::new(config(), knobs, vec![]);
    bench.send_all(50).await;
    let answers = bench.answers.wait(50).await;
    for answer in answers.values() {
        assert!(matches!(answer, Answer::Later { reason: "unreachable", .. }), "{answer:?}");
    }
    assert!((bench.metric("noroshi_push_connect_failures_total") - 3.0).abs() < 0.5);
    assert_eq!(bench.services.status(APP)[0].last_error.map(|(_, reason)| reason), Some("unreachable"));
}

#[tokio::test]
async fn other_tasks_run_while_a_long_queue_is_answered() {
    const PUSHES: u32 = 2_000;
    let port = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("it").port();
    let knobs = Knobs::new(PushService::Apns, format!("https://127.0.0.1:{port}"));
    let bench = Bench::new(config(), knobs, vec![]);
    // One thread: nothing connects before all pushes wait.
    bench.send_all(PUSHES).await;
    while bench.answers.count() == 0 {
        tokio::task::yield_now().await;
    }
    let first = bench.answers.count();
    assert!(first < PUSHES as usize, "the thread answered all {first} before it ran another task");
    let answers = bench.answers.wait(PUSHES as usize).await;
    assert!(answers.values().all(|answer| reason(answer) == "unreachable"), "{answers:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resets_of_accepted_connections_cause_no_storm() {
    let (listener, origin) = Listener::new().await;
    let bench = Bench::new(config(), Knobs::new(PushService::Apns, origin), vec![]);
    let accepting = tokio::spawn(async move {
        let mut accepted = 0;
        loop {
            // Sends SETTINGS, so that requests come, and resets at the first of them.
            let mut peer = listener.greet(1).await;
            accepted += 1;
            peer.request().await;
            drop(peer);
            if accepted == 3 {
                return listener;
            }
        }
    });
    bench.send_all(3).await;
    let answers = bench.answers.wait(3).await;
    assert!(answers.values().all(|answer| reason(answer) == "connection_lost"), "{answers:?}");
    assert!(
        (bench.metric("noroshi_push_connect_failures_total") - 3.0).abs() < 0.5,
        "each counts as a failure"
    );
    accepting.await.expect("the peer");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_the_guard_rejects_is_final() {
    let bench = Bench::new(config(), Knobs::new(PushService::WebPush, "https://10.0.0.1"), vec![]);
    bench.send_all(3).await;
    let answers = bench.answers.wait(3).await;
    for answer in answers.values() {
        assert_eq!(*answer, Answer::Refused { reason: "address_refused" });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_waits_for_answers_until_its_deadline() {
    let server = Server::start(Options { streams: 10, ..Options::default() }, |received| async move {
        if received.id % 2 == 1 {
            std::future::pending::<()>().await;
        }
        status(200)
    })
    .await;
    let quick =
        Config { ping_timeout: Duration::from_millis(500), ping_after: Duration::from_secs(600), ..config() };
    let knobs = Knobs::new(PushService::Apns, server.origin());
    let bench = Bench::new(quick, knobs, vec![server.ca.clone()]);
    bench.send_all(100).await;
    // Odd ones gradually fill all streams; then nothing moves.
    until("full connections", || bench.services.status(APP)[0].in_flight == 40).await;
    bench.services.drain(Duration::from_millis(300)).await;
    let answers = bench.answers.wait(100).await;
    assert!(answers.values().any(|answer| *answer == Answer::Accepted));
    assert!(
        answers.iter().filter(|(index, _)| **index % 2 == 1).all(|(_, answer)| reason(answer) == "drain")
    );
    bench.services.send(bench.push(100, Lane::Direct)).await;
    assert_eq!(reason(&bench.answers.wait(101).await[&100]), "drain");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_send_is_answered() {
    let (_listener, origin) = Listener::new().await;
    let small = Config { queue_max: 1, ..config() };
    let bench = Bench::new(small, Knobs::new(PushService::Apns, origin), vec![]);
    bench.send_all(1).await;
    let waiting = bench.services.send(bench.push(1, Lane::Direct));
    assert!(tokio::time::timeout(Duration::from_millis(50), waiting).await.is_err(), "the lane is full");
    assert_eq!(reason(&bench.answers.wait(1).await[&1]), "abandoned");
}
