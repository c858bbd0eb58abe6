//! Priorities, and independence of answers.

use std::sync::Arc;
use std::time::Duration;

use noroshi_push::{Answer, Config};
use noroshi_types::{Lane, PushService};
use tokio::sync::Semaphore;

use crate::answers::{reason, until};
use crate::client::{Bench, Knobs, config};
use crate::server::{Options, Server, accept_all, status};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn higher_lanes_overtake() {
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
    let bench = Bench::new(Config { connections_max: 1, ..config() }, knobs, vec![server.ca.clone()]);
    bench.send_all(1).await;
    until("the first request", || server.log.ids() == [0]).await;
    let lanes = [Lane::Campaign, Lane::Campaign, Lane::Direct, Lane::Campaign, Lane::Extra, Lane::Direct];
    for (lane, index) in lanes.into_iter().zip(1..) {
        bench.services.send(bench.push(index, lane)).await;
    }
    gate.add_permits(10);
    bench.answers.all_accepted(7).await;
    assert_eq!(server.log.ids(), [0, 5, 3, 6, 1, 2, 4]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_answers_delay_no_other_push() {
    let gate = Arc::new(Semaphore::new(0));
    let held = gate.clone();
    let server = Server::start(Options { streams: 50, ..Options::default() }, move |received| {
        let held = held.clone();
        async move {
            if received.id % 100 == 7 {
                held.acquire().await.expect("open").forget();
            }
            status(200)
        }
    })
    .await;
    let knobs = Knobs::new(PushService::Apns, server.origin());
    let bench = Bench::new(config(), knobs, vec![server.ca.clone()]);
    bench.send_all(1_000).await;
    let answers = bench.answers.wait(990).await;
    assert!(answers.keys().all(|index| index % 100 != 7), "the late ones are not there yet");
    gate.add_permits(10);
    bench.answers.all_accepted(1_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_without_an_answer_times_out_alone() {
    let server = Server::start(Options::default(), |received| async move {
        if received.id == 3 {
            std::future::pending::<()>().await;
        }
        status(200)
    })
    .await;
    let knobs = Knobs::new(PushService::Apns, server.origin());
    let hasty = Config { request_timeout: Duration::from_millis(300), ..config() };
    let bench = Bench::new(hasty, knobs, vec![server.ca.clone()]);
    // One at a time, so that a slow machine makes none of the others late.
    for index in 0..3 {
        bench.services.send(bench.push(index, Lane::Direct)).await;
    }
    bench.answers.wait(3).await;
    bench.services.send(bench.push(3, Lane::Direct)).await;
    let answers = bench.answers.wait(4).await;
    assert_eq!(reason(&answers[&3]), "timeout");
    assert!(matches!(answers[&3], Answer::Later { .. }));
    bench.services.send(bench.push(4, Lane::Direct)).await;
    bench.answers.wait(5).await;
    assert_eq!(server.log.connections.load(std::sync::atomic::Ordering::SeqCst), 1, "the connection goes on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_web_push_service_may_use_http_1_1() {
    let server = Server::start(Options { http1: true, ..Options::default() }, accept_all).await;
    let knobs = Knobs::new(PushService::WebPush, server.origin());
    let bench = Bench::new(config(), knobs, vec![server.ca.clone()]);
    bench.send_all(300).await;
    bench.answers.all_accepted(300).await;
    assert_eq!(server.log.ids().len(), 300);
    let connections = server.log.connections.load(std::sync::atomic::Ordering::SeqCst);
    assert!((1..=4).contains(&connections), "{connections} connections");
}
