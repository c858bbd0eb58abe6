//! Limits on streams, connections, queues, quotas and origins hold, and no queued push is lost.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use noroshi_push::exchange::{DeviceLimit, Quota};
use noroshi_push::{Answer, Config};
use noroshi_types::{Lane, PushService};
use tokio::sync::Semaphore;

use crate::answers::{reason, until};
use crate::client::{APP, Bench, Knobs, config};
use crate::server::{Options, Server, accept_all, status};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_push_is_answered_once_within_the_limits() {
    let options = Options { streams: 20, ..Options::default() };
    let server = Server::start(options, |_| async {
        tokio::time::sleep(Duration::from_millis(3)).await;
        status(200)
    })
    .await;
    let knobs = Knobs::new(PushService::Apns, server.origin());
    let bench = Bench::new(config(), knobs, vec![server.ca.clone()]);
    bench.send_all(3_000).await;
    bench.answers.all_accepted(3_000).await;
    assert!(server.log.times_received().values().all(|times| *times == 1), "a push was heard twice");
    assert_eq!(server.log.ids().len(), 3_000);
    assert!(server.log.streams_max.load(Ordering::SeqCst) <= 20);
    let connections = server.log.connections.load(Ordering::SeqCst);
    assert!((2..=4).contains(&connections), "{connections} connections");
    let status = &bench.services.status(APP)[0];
    until("counts of nothing", || {
        let status = &bench.services.status(APP)[0];
        (status.in_flight, status.queued) == (0, 0)
    })
    .await;
    assert_eq!(status.connections, connections);
    assert!((bench.metric("noroshi_push_sent_total") - 3_000.0).abs() < 0.5);
    assert!(bench.metric("noroshi_push_in_flight").abs() < 0.5);
    assert!(bench.metric("noroshi_push_queued").abs() < 0.5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resets_of_further_connections_cause_no_storm() {
    let options = Options { streams: 5, connections: 2, ..Options::default() };
    let server = Server::start(options, |_| async {
        tokio::time::sleep(Duration::from_millis(2)).await;
        status(200)
    })
    .await;
    let knobs = Knobs::new(PushService::Apns, server.origin());
    let bench = Bench::new(config(), knobs, vec![server.ca.clone()]);
    bench.send_all(2_000).await;
    bench.answers.all_accepted(2_000).await;
    assert_eq!(server.log.ids().len(), 2_000);
    assert_eq!(server.log.connections.load(Ordering::SeqCst), 3, "one was refused, and no more were tried");
    assert!((bench.metric("noroshi_push_connect_failures_total") - 1.0).abs() < 0.5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_carries_one_stream_until_an_answer_is_authorized() {
    let server = Server::start(Options::default(), |_| async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        status(200)
    })
    .await;
    let mut knobs = Knobs::new(PushService::Apns, server.origin());
    knobs.one_until_authorised = true;
    let bench = Bench::new(config(), knobs, vec![server.ca.clone()]);
    bench.send_all(1).await;
    until("the first request", || !server.log.ids().is_empty()).await;
    // These arrive while the first has no answer.
    for index in 1..50 {
        bench.services.send(bench.push(index, Lane::Direct)).await;
    }
    bench.answers.all_accepted(50).await;
    let received = server.log.received.lock();
    let second: Vec<_> = received.iter().filter(|received| received.before == 1).collect();
    assert!(!second.is_empty() && second.iter().all(|received| received.unanswered == 0), "{second:?}");
    assert!(received.iter().any(|received| received.unanswered > 0), "and then as many as the peer allows");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn send_waits_while_the_lane_is_full() {
    let gate = Arc::new(Semaphore::new(0));
    let held = gate.clone();
    let server = Server::start(Options { streams: 1, ..Options::default() }, move |_| {
        let held = held.clone();
        async move {
            held.acquire().await.expect("open").forget();
            status(200)
        }
    })
    .await;
    let knobs = Knobs::new(PushService::Apns, server.origin());
    let small = Config { queue_max: 10, connections_max: 1, ..config() };
    let bench = Arc::new(Bench::new(small, knobs, vec![server.ca.clone()]));
    let sender = tokio::spawn({
        let bench = bench.clone();
        async move { bench.send_all(40).await }
    });
    until("a full lane", || bench.services.busy(Lane::Direct) == [(APP, PushService::Apns)]).await;
    assert!(bench.services.busy(Lane::Extra).is_empty());
    assert!(!sender.is_finished(), "40 pushes in a queue of 10");
    assert!(bench.services.status(APP)[0].queued <= 10);
    gate.add_permits(40);
    sender.await.expect("sent");
    bench.answers.all_accepted(40).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_is_obeyed() {
    let server = Server::start(Options::default(), accept_all).await;
    let mut knobs = Knobs::new(PushService::Fcm, server.origin());
    knobs.quota = Quota { per_second: Some(100.0), burst: 10.0, ..Quota::UNLIMITED };
    let bench = Bench::new(config(), knobs, vec![server.ca.clone()]);
    let start = Instant::now();
    bench.send_all(60).await;
    bench.answers.all_accepted(60).await;
    // 10 at once and 50 at 100 per second: never faster, on any machine.
    assert!(start.elapsed() >= Duration::from_millis(490), "{:?}", start.elapsed());
    assert!(bench.metric("noroshi_push_quota_waits_total") >= 1.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_quota_delays_only_that_device() {
    const LIMITS: &[DeviceLimit] = &[DeviceLimit { pushes: 4, window: Duration::from_secs(3_600) }];
    let server = Server::start(Options::default(), accept_all).await;
    let mut knobs = Knobs::new(PushService::Fcm, server.origin());
    knobs.quota = Quota { per_device: LIMITS, ..Quota::UNLIMITED };
    let bench = Bench::new(config(), knobs, vec![server.ca.clone()]);
    for index in 0..4 {
        bench.services.send(bench.push_to(index, Lane::Direct, "\"busy\"")).await;
    }
    bench.services.send(bench.push_to(4, Lane::Direct, "\"calm\"")).await;
    let answers = bench.answers.wait(5).await;
    let reasons: Vec<_> = answers.values().map(reason).collect();
    assert_eq!(reasons, ["accepted", "accepted", "device_quota", "device_quota", "accepted"]);
    assert!((bench.metric("noroshi_push_device_quota_waits_total") - 2.0).abs() < 0.5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_number_of_origins_is_bounded_and_unused_ones_are_evicted() {
    let gate = Arc::new(Semaphore::new(0));
    let mut servers = Vec::new();
    for _ in 0..3 {
        let held = gate.clone();
        let say = move |received: crate::server::Received| {
            let held = held.clone();
            async move {
                // Holds back the first push of each origin.
                if received.before == 0 {
                    held.acquire().await.expect("open").forget();
                }
                status(200)
            }
        };
        servers.push(Server::start(Options::default(), say).await);
    }
    let ca = servers.iter().map(|server| server.ca.clone()).collect();
    let two = Config { pools_max: 2, ..config() };
    let bench = Bench::new(two, Knobs::new(PushService::WebPush, ""), ca);
    for (server, index) in servers.iter().zip(0..) {
        let token = format!("\"{}\"", server.origin());
        bench.services.send(bench.push_to(index, Lane::Direct, &token)).await;
    }
    let answers = bench.answers.wait(1).await;
    assert_eq!(reason(&answers[&2]), "too_many_origins");
    gate.add_permits(3);
    bench.answers.wait(3).await;
    until("idle pools", || bench.services.status(APP)[0].in_flight == 0).await;
    let token = format!("\"{}\"", servers[2].origin());
    bench.services.send(bench.push_to(3, Lane::Direct, &token)).await;
    assert_eq!(bench.answers.wait(4).await[&3], Answer::Accepted);
    until("the unused one to close", || {
        servers.iter().filter(|server| server.log.connections_open.load(Ordering::SeqCst) > 0).count() == 2
    })
    .await;
}
