//! Authorizations are fetched once and renewed once, and a rejected credential stops everything except probes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use noroshi_push::backoff::Backoff;
use noroshi_push::{Answer, Condition, Config};
use noroshi_types::{AppId, Lane, PushService};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::answers::{reason, until};
use crate::client::{APP, Bench, Knobs, config, credential};
use crate::server::{Options, Server, accept_all, status};

/// Answers every request with `answer`. Returns its URL and the number of requests.
async fn token_endpoint(answer: &'static str) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/token", listener.local_addr().expect("an address"));
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            let mut request = Vec::new();
            while !request.ends_with(b"grant_type=test")
                && socket.read_buf(&mut request).await.unwrap_or(0) > 0
            {}
            let _ = socket.write_all(answer.as_bytes()).await;
        }
    });
    (url, asked)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_fetched_once_for_all_waiting_pushes() {
    let (url, asked) = token_endpoint("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await;
    let server = Server::start(Options { streams: 10, ..Options::default() }, accept_all).await;
    let mut knobs = Knobs::new(PushService::Fcm, server.origin());
    knobs.token_url = Some(url);
    knobs.generation = 0.into();
    let bench = Bench::new(config(), knobs, vec![server.ca.clone()]);
    bench.send_all(500).await;
    bench.answers.all_accepted(500).await;
    assert_eq!(asked.load(Ordering::SeqCst), 1);
    assert!(server.log.received.lock().iter().all(|received| received.authorization == "token 1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejected_assertion_opens_the_breaker_and_answers_all_pushes() {
    let (url, _) = token_endpoint("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n").await;
    let server = Server::start(Options::default(), accept_all).await;
    let mut knobs = Knobs::new(PushService::Fcm, server.origin());
    knobs.token_url = Some(url);
    knobs.generation = 0.into();
    let bench = Bench::new(config(), knobs, vec![server.ca.clone()]);
    bench.send_all(20).await;
    let answers = bench.answers.wait(20).await;
    assert!(answers.values().all(|answer| reason(answer) == "no_token"), "{answers:?}");
    assert!(server.log.ids().is_empty());
    assert!((bench.metric("noroshi_push_breaker_open") - 1.0).abs() < 0.5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_authorization_is_renewed_once_and_rejected_pushes_are_resent() {
    let server = Server::start(Options { streams: 30, ..Options::default() }, |received| async move {
        status(if received.authorization == "token 1" { 401 } else { 200 })
    })
    .await;
    let mut knobs = Knobs::new(PushService::Apns, server.origin());
    knobs.renewals = 1.into();
    let bench = Bench::new(config(), knobs, vec![server.ca.clone()]);
    bench.send_all(300).await;
    bench.answers.all_accepted(300).await;
    assert_eq!(bench.client.generation.load(Ordering::SeqCst), 2);
    let good =
        server.log.received.lock().iter().filter(|received| received.authorization == "token 2").count();
    assert_eq!(good, 300, "each is taken once");
    assert!(bench.metric("noroshi_push_breaker_open").abs() < 0.5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wedged_connection_is_closed() {
    let server = Server::start(Options::default(), |received| async move {
        status(if received.authorization == "token 1" { 406 } else { 200 })
    })
    .await;
    let mut knobs = Knobs::new(PushService::Apns, server.origin());
    knobs.renewals = 1.into();
    knobs.one_until_authorised = true;
    let bench = Bench::new(config(), knobs, vec![server.ca.clone()]);
    bench.send_all(20).await;
    bench.answers.all_accepted(20).await;
    let good =
        server.log.received.lock().iter().filter(|received| received.authorization == "token 2").count();
    assert_eq!(good, 20, "each is taken once");
    until("the wedged one to close", || {
        server.log.connections_open.load(Ordering::SeqCst) < server.log.connections.load(Ordering::SeqCst)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_breaker_opens_probes_and_closes() {
    let mended = Arc::new(AtomicBool::new(false));
    let good = mended.clone();
    let server = Server::start(Options::default(), move |_| {
        let good = good.load(Ordering::SeqCst);
        async move { status(if good { 200 } else { 403 }) }
    })
    .await;
    let knobs = Knobs::new(PushService::Apns, server.origin());
    let second = Backoff { first: Duration::from_secs(2), max: Duration::from_secs(2) };
    let bench = Bench::new(Config { probes: second, ..config() }, knobs, vec![server.ca.clone()]);
    bench.send_all(1).await;
    let answers = bench.answers.wait(1).await;
    assert!(matches!(answers[&0], Answer::Later { reason: "broken", .. }), "{answers:?}");
    assert!((bench.metric("noroshi_push_breaker_open") - 1.0).abs() < 0.5);
    let condition = || bench.services.status(APP)[0].breaker;
    assert!(matches!(condition(), Condition::Open { reason: "broken", .. }), "{:?}", condition());
    until("the wait before the probe", || condition() == Condition::HalfOpen { reason: "broken" }).await;
    mended.store(true, Ordering::SeqCst);
    // Meanwhile pushes are answered without being sent, until one succeeds and closes the breaker.
    let mut sent = 1;
    until("a push to be accepted", || {
        let push = bench.push(sent, Lane::Direct);
        sent += 1;
        let services = bench.services.clone();
        tokio::spawn(async move { services.send(push).await });
        bench.metric("noroshi_push_breaker_open").abs() < 0.5
    })
    .await;
    let answers = bench.answers.wait(sent as usize).await;
    let accepted = answers.values().filter(|answer| **answer == Answer::Accepted).count();
    assert!(accepted >= 1 && accepted + 1 == server.log.ids().len(), "{accepted}");
    assert!(answers.values().all(|answer| ["broken", "accepted"].contains(&reason(answer))));
    assert_eq!(condition(), Condition::Closed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_overload_pauses_everything_for_retry_after() {
    let server = Server::start(Options::default(), |_| async {
        let mut response = status(503);
        response.headers_mut().insert("retry-after", http::HeaderValue::from_static("600"));
        response
    })
    .await;
    let knobs = Knobs::new(PushService::Fcm, server.origin());
    let bench = Bench::new(config(), knobs, vec![server.ca.clone()]);
    bench.send_all(1).await;
    bench.answers.wait(1).await;
    for index in 1..100 {
        bench.services.send(bench.push(index, Lane::Direct)).await;
    }
    let answers = bench.answers.wait(100).await;
    assert_eq!(server.log.ids().len(), 1);
    let (reason, left) = bench.services.status(APP)[0].paused.expect("a pause");
    assert!(reason == "overloaded" && left > Duration::from_secs(500), "{reason} {left:?}");
    for answer in answers.values() {
        let Answer::Later { reason: "overloaded", after } = answer else { panic!("{answer:?}") };
        assert!(*after > Duration::from_secs(300), "{after:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replaced_credentials_close_their_connections() {
    let server = Server::start(Options::default(), accept_all).await;
    let knobs = Knobs::new(PushService::Apns, server.origin());
    let bench = Bench::new(config(), knobs, vec![server.ca.clone()]);
    bench.send_all(1).await;
    bench.answers.wait(1).await;
    bench.services.set_credentials(APP, vec![credential(bench.client.clone())]);
    bench.services.send(bench.push(1, Lane::Direct)).await;
    bench.answers.wait(2).await;
    assert_eq!(server.log.connections.load(Ordering::SeqCst), 1, "the same client keeps its connection");
    bench.services.set_credentials(APP, vec![]);
    bench.services.send(bench.push(2, Lane::Direct)).await;
    assert_eq!(bench.answers.wait(3).await[&2], Answer::Unconfigured);
    until("the connection to close", || server.log.connections_open.load(Ordering::SeqCst) == 0).await;
    let next = |generation: u32| {
        let knobs = Knobs::new(PushService::Apns, server.origin());
        knobs.generation.store(generation, Ordering::SeqCst);
        vec![credential(Arc::new(knobs))]
    };
    for generation in 2..4 {
        bench.services.set_credentials(APP, next(generation));
        bench.services.send(bench.push(generation + 2, Lane::Direct)).await;
        bench.answers.wait(generation as usize + 2).await;
    }
    until("the first of two to close", || server.log.connections_open.load(Ordering::SeqCst) == 1).await;
    assert_eq!(server.log.received.lock().last().expect("a push").authorization, "token 3");
    let mut foreign = bench.push(3, Lane::Direct);
    foreign.app = AppId(8);
    bench.services.send(foreign).await;
    assert_eq!(bench.answers.wait(6).await[&3], Answer::Unconfigured);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_credential_is_tried_beside_the_one_in_use() {
    let server = Server::start(Options::default(), |received| async move {
        status(if received.authorization == "token 2" { 403 } else { 200 })
    })
    .await;
    let knobs = |generation: u32| {
        let knobs = Knobs::new(PushService::Apns, server.origin());
        knobs.generation.store(generation, Ordering::SeqCst);
        Arc::new(knobs)
    };
    let bench = Bench::new(config(), Knobs::new(PushService::Apns, server.origin()), vec![server.ca.clone()]);
    bench.send_all(1).await;
    bench.answers.wait(1).await;
    for (index, generation) in [(1, 2), (2, 3)] {
        bench.services.send_with(credential(knobs(generation)), bench.push(index, Lane::Extra)).await;
    }
    let answers = bench.answers.wait(3).await;
    assert!(matches!(answers[&1], Answer::Later { reason: "broken", .. }), "{answers:?}");
    assert_eq!(answers[&2], Answer::Accepted);
    assert_eq!(bench.metric("noroshi_push_breaker_open").round() as i64, 0, "a test raises no alarm");
    bench.services.send(bench.push(3, Lane::Direct)).await;
    assert_eq!(bench.answers.wait(4).await[&3], Answer::Accepted, "the credential in use works as before");
    assert_eq!(bench.services.status(APP)[0].breaker, Condition::Closed);
    until("the connections of the tests to close", || {
        server.log.connections_open.load(Ordering::SeqCst) == 1
    })
    .await;
    assert_eq!(server.log.received.lock().last().expect("a push").authorization, "token 1");
    bench.services.drain(Duration::from_secs(30)).await;
    bench.services.send_with(credential(knobs(3)), bench.push(4, Lane::Extra)).await;
    assert!(matches!(bench.answers.wait(5).await[&4], Answer::Later { reason: "drain", .. }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_alarm_of_a_replaced_or_removed_credential_ends() {
    let server = Server::start(Options::default(), |received| async move {
        status(if received.authorization == "token 3" { 200 } else { 403 })
    })
    .await;
    let knobs = |generation: u32| {
        let knobs = Knobs::new(PushService::Apns, server.origin());
        knobs.generation.store(generation, Ordering::SeqCst);
        knobs
    };
    let bench = Bench::new(config(), knobs(1), vec![server.ca.clone()]);
    let alarm = || bench.metric("noroshi_push_breaker_open").round() as i64;
    bench.send_all(1).await;
    bench.answers.wait(1).await;
    assert_eq!(alarm(), 1);
    // Replaced by one that is rejected too: one alarm, not two.
    bench.services.set_credentials(APP, vec![credential(Arc::new(knobs(2)))]);
    assert_eq!(alarm(), 0, "nothing is known about the new one");
    bench.services.send(bench.push(1, Lane::Direct)).await;
    bench.answers.wait(2).await;
    assert_eq!(alarm(), 1);
    bench.services.set_credentials(APP, vec![]);
    assert_eq!(alarm(), 0, "removed");
    bench.services.set_credentials(APP, vec![credential(Arc::new(knobs(3)))]);
    bench.services.send(bench.push(2, Lane::Direct)).await;
    assert_eq!(bench.answers.wait(3).await[&2], Answer::Accepted);
    assert_eq!((alarm(), bench.services.status(APP)[0].breaker), (0, Condition::Closed));
    until("the other connections to close", || server.log.connections_open.load(Ordering::SeqCst) == 1).await;
}
