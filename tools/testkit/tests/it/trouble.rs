//! Failures on command: scripts, latency, GOAWAY, refused streams, resets, the connection limit.

use std::time::{Duration, Instant};

use noroshi_testkit::behaviour::Change;
use noroshi_testkit::{Fakes, Service};

use crate::apns::{headers, registered};
use crate::client::{Answer, Client, Headers};

const BODY: &str = r#"{"aps":{"alert":"a"}}"#;

struct Scene {
    fakes: Fakes,
    path: String,
    headers: Headers,
    token: String,
}

impl Scene {
    fn new(change: &str) -> Self {
        let fakes = Fakes::start().unwrap();
        let token = registered(&fakes);
        let change = change.replace("TOKEN", &token);
        fakes.behave(serde_json::from_str(&change).unwrap()).unwrap();
        Self { path: format!("/3/device/{token}"), headers: headers(&fakes), token, fakes }
    }

    async fn client(&self) -> Client {
        Client::connect(&self.fakes, Service::Apns).await
    }

    async fn push(&self, client: &mut Client) -> hyper::Result<Answer> {
        client.send("POST", &self.path, &self.headers, BODY).await
    }

    /// Sends this many at a time after the first was authorised.
    async fn burst(&self, client: &mut Client, count: usize) -> Vec<hyper::Result<Answer>> {
        let pushes: Vec<_> =
            (0..count).map(|_| tokio::spawn(client.send("POST", &self.path, &self.headers, BODY))).collect();
        let mut answers = Vec::new();
        for push in pushes {
            answers.push(push.await.unwrap());
        }
        answers
    }
}

#[tokio::test]
async fn scripted_answers_use_the_services_format() {
    let scene = Scene::new(
        r#"{"service":"apns","next":[{"status":429,"retry_after_s":7},{"status":503},{"status":403,"reason":"ExpiredProviderToken"}],
            "tokens":{}}"#,
    );
    let mut client = scene.client().await;
    let answer = scene.push(&mut client).await.unwrap();
    assert_eq!((answer.status, answer.reason(), answer.header("retry-after")), (429, "TooManyRequests", "7"));
    assert_eq!(scene.push(&mut client).await.unwrap().reason(), "ServiceUnavailable");
    assert_eq!(scene.push(&mut client).await.unwrap().reason(), "ExpiredProviderToken");
    assert_eq!(scene.push(&mut client).await.unwrap().status, 200);
    let scene = Scene::new(r#"{"service":"apns","tokens":{"TOKEN":{"status":410,"timestamp":5}}}"#);
    let mut client = scene.client().await;
    for _ in 0..2 {
        let answer = scene.push(&mut client).await.unwrap();
        assert_eq!((answer.reason(), &answer.body["timestamp"]), ("Unregistered", &5.into()));
    }
    assert_eq!(scene.fakes.counts(Service::Apns).refused["Unregistered"], 2);
}

#[tokio::test]
async fn answers_have_the_requested_latency() {
    let scene = Scene::new(r#"{"latency":{"fixed_ms":150}}"#);
    let mut client = scene.client().await;
    let start = Instant::now();
    scene.push(&mut client).await.unwrap();
    assert!(start.elapsed() >= Duration::from_millis(150));
    let start = Instant::now();
    assert!(scene.burst(&mut client, 20).await.iter().all(Result::is_ok));
    assert!(start.elapsed() < Duration::from_secs(20 * 150 / 1_000), "they wait together");
    scene
        .fakes
        .behave(serde_json::from_str(r#"{"reset":true,"late":{"share":1,"ms":200}}"#).unwrap())
        .unwrap();
    let start = Instant::now();
    scene.push(&mut client).await.unwrap();
    assert!(start.elapsed() >= Duration::from_millis(200));
    assert!(noroshi_testkit::is_late(&scene.token, 1.0));
}

#[tokio::test]
async fn one_stream_until_the_first_authorisation_then_the_announced_limit() {
    let scene = Scene::new(r#"{"streams_max":50,"latency":{"fixed_ms":50}}"#);
    let mut client = scene.client().await;
    // hyper obeys the announced limit: first one at a time, then all together.
    assert!(scene.burst(&mut client, 1).await.iter().all(Result::is_ok));
    assert!(scene.burst(&mut client, 200).await.iter().all(Result::is_ok));
    let connections = scene.fakes.counts(Service::Apns).connections;
    assert!((2..=50).contains(&connections.streams_max), "{connections:?}");
    assert_eq!(connections.streams_refused, 0);
}

#[tokio::test]
async fn refused_and_reset_streams_differ() {
    let scene = Scene::new(r#"{"service":"apns","next":[{"do":"refuse"},{"do":"reset"}]}"#);
    let mut client = scene.client().await;
    for reason in [h2::Reason::REFUSED_STREAM, h2::Reason::INTERNAL_ERROR] {
        let error = scene.push(&mut client).await.unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().downcast_ref::<h2::Error>().unwrap();
        assert_eq!(cause.reason(), Some(reason));
    }
    assert_eq!(scene.push(&mut client).await.unwrap().status, 200);
    let counts = scene.fakes.counts(Service::Apns);
    assert_eq!(
        (counts.requests, counts.connections.streams_refused),
        (2, 1),
        "what is refused is not processed"
    );
}

#[tokio::test]
async fn go_away_answers_only_earlier_requests() {
    let scene =
        Scene::new(r#"{"service":"apns","latency":{"fixed_ms":100},"next":[{"after":6,"do":"go_away"}]}"#);
    let mut client = scene.client().await;
    scene.push(&mut client).await.unwrap();
    let answers = scene.burst(&mut client, 20).await;
    let answered = answers.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!(answered, 5, "{answers:?}");
    let counts = scene.fakes.counts(Service::Apns);
    assert_eq!(counts.accepted, 6, "{counts:?}");
    let mut client = scene.client().await;
    assert_eq!(scene.push(&mut client).await.unwrap().status, 200);
    // At once, for every connection.
    scene.fakes.behave(Change { go_away: true, ..Change::default() }).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while scene.push(&mut client).await.is_ok() {
        assert!(Instant::now() < deadline);
    }
}

#[tokio::test]
async fn a_reset_connection_fails_all_its_requests() {
    let scene = Scene::new(r#"{"service":"apns","next":[{"after":1,"do":"disconnect"}]}"#);
    let mut client = scene.client().await;
    scene.push(&mut client).await.unwrap();
    assert!(scene.push(&mut client).await.is_err());
    assert_eq!(scene.fakes.counts(Service::Apns).accepted, 2, "it was processed");
    let mut client = scene.client().await;
    scene.push(&mut client).await.unwrap();
    scene.fakes.behave(Change { disconnect: true, ..Change::default() }).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while scene.push(&mut client).await.is_ok() {
        assert!(Instant::now() < deadline);
    }
}

#[tokio::test]
async fn a_silent_push_is_processed_without_an_answer() {
    let scene = Scene::new(r#"{"service":"apns","next":[{"do":"silence"}]}"#);
    let mut client = scene.client().await;
    let silent = tokio::time::timeout(Duration::from_millis(300), scene.push(&mut client)).await;
    assert!(silent.is_err());
    assert_eq!(scene.fakes.counts(Service::Apns).accepted, 1);
}

#[tokio::test]
async fn too_many_connections_are_reset() {
    let scene = Scene::new(r#"{"connections_max":2}"#);
    let mut clients = Vec::new();
    for _ in 0..2 {
        let mut client = scene.client().await;
        scene.push(&mut client).await.unwrap();
        clients.push(client);
    }
    assert!(Client::try_connect(&scene.fakes, Service::Apns, None).await.is_err());
    let connections = scene.fakes.counts(Service::Apns).connections;
    assert_eq!((connections.open, connections.open_max, connections.reset), (2, 2, 1));
    clients.pop();
    let deadline = Instant::now() + Duration::from_secs(20);
    while Client::try_connect(&scene.fakes, Service::Apns, None).await.is_err() {
        assert!(Instant::now() < deadline, "a place is free again");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn handshakes_can_be_slowed_down() {
    let scene = Scene::new(r#"{"handshake_ms":200}"#);
    let start = Instant::now();
    scene.client().await;
    assert!(start.elapsed() >= Duration::from_millis(200));
}
