//! Attempts are reported as they were sent, with the response, before the push is answered.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use noroshi_push::{Answer, Config, Record};
use noroshi_types::{Lane, PushService};

use crate::client::{Bench, Knobs, config};
use crate::scripted::Listener;
use crate::server::{Options, Server, status};

fn with_body(code: u16, body: &'static str) -> http::Response<Full<Bytes>> {
    status(code).map(|_| Full::new(Bytes::from_static(body.as_bytes())))
}

async fn both_versions(http1: bool) {
    let server = Server::start(Options { http1, ..Options::default() }, |received| async move {
        match received.id {
            0 => with_body(200, "fine"),
            _ => with_body(410, "gone for good"),
        }
    })
    .await;
    let bench =
        Bench::new(config(), Knobs::new(PushService::WebPush, server.origin()), vec![server.ca.clone()]);
    bench.send_all(2).await;
    bench.answers.wait(2).await;
    let [accepted] = &bench.answers.attempts(0)[..] else { panic!("one attempt") };
    assert_eq!(*accepted.origin, *server.origin());
    assert_eq!(accepted.path, "/push/0");
    assert!(accepted.headers.is_empty(), "the authorization is not reported: {:?}", accepted.headers);
    assert_eq!(accepted.body, bench.push(0, Lane::Direct).id.to_string().as_bytes());
    let response = accepted.response.as_ref().expect("a response");
    assert_eq!((response.status, &response.body[..], accepted.reason), (200, &b"fine"[..], None));
    let [refused] = &bench.answers.attempts(1)[..] else { panic!("one attempt") };
    let response = refused.response.as_ref().expect("a response");
    assert_eq!(
        (response.status, &response.body[..], refused.reason),
        (410, &b"gone for good"[..], Some("other"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_has_its_request_and_its_response() {
    both_versions(false).await;
    both_versions(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_that_is_sent_again_has_several_attempts() {
    let server = Server::start(Options::default(), |received| async move {
        status(if received.authorization == "token 1" { 401 } else { 200 })
    })
    .await;
    let mut knobs = Knobs::new(PushService::Apns, server.origin());
    knobs.renewals = 1.into();
    let bench = Bench::new(config(), knobs, vec![server.ca.clone()]);
    bench.send_all(1).await;
    bench.answers.all_accepted(1).await;
    let attempts = bench.answers.attempts(0);
    let found: Vec<_> = attempts
        .iter()
        .map(|attempt| (attempt.response.as_ref().map(|response| response.status), attempt.reason))
        .collect();
    assert_eq!(found, [(Some(401), Some("unauthorized")), (Some(200), None)]);
    assert!(attempts[0].sent_at <= attempts[1].sent_at);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_attempts_that_are_wanted_are_reported() {
    let server =
        Server::start(
            Options::default(),
            |received| async move { status(200 + 10 * (received.id % 2) as u16) },
        )
        .await;
    let bench = Bench::new(config(), Knobs::new(PushService::Apns, server.origin()), vec![server.ca.clone()]);
    for (index, record) in (0..).zip([
        Record::All,
        Record::All,
        Record::Failures,
        Record::Failures,
        Record::Nothing,
        Record::Nothing,
    ]) {
        let mut push = bench.push(index, Lane::Direct);
        push.record = record;
        bench.services.send(push).await;
    }
    bench.answers.wait(6).await;
    let counts: Vec<_> = (0..6).map(|index| bench.answers.attempts(index).len()).collect();
    assert_eq!(counts, [1, 1, 0, 1, 0, 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_without_a_response_has_a_reason() {
    let (listener, origin) = Listener::new().await;
    let bench =
        Bench::new(Config { connections_max: 1, ..config() }, Knobs::new(PushService::Apns, origin), vec![]);
    bench.send_all(1).await;
    let mut peer = listener.greet(8).await;
    peer.request().await;
    drop(peer);
    bench.answers.wait(1).await;
    let [lost] = &bench.answers.attempts(0)[..] else { panic!("one attempt") };
    assert_eq!((&lost.response, lost.reason), (&None, Some("connection_lost")));

    let asked = AtomicUsize::new(0);
    let server = Server::start(Options::default(), move |_| {
        let first = asked.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            if first {
                std::future::pending::<()>().await;
            }
            status(200)
        }
    })
    .await;
    let hasty = Config { request_timeout: Duration::from_millis(200), ..config() };
    let bench = Bench::new(hasty, Knobs::new(PushService::Apns, server.origin()), vec![server.ca.clone()]);
    bench.send_all(1).await;
    let answers = bench.answers.wait(1).await;
    assert!(matches!(answers[&0], Answer::Later { reason: "timeout", .. }), "{answers:?}");
    let [late] = &bench.answers.attempts(0)[..] else { panic!("one attempt") };
    assert_eq!((&late.response, late.reason), (&None, Some("timeout")));
    assert!(late.took >= Duration::from_millis(200), "{:?}", late.took);
}
