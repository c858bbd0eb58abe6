//! Retries, errors, headers, timeouts and pages.

use std::error::Error as _;
use std::time::{Duration, SystemTime};

use super::stub::{Answer, Stub};
use crate::client::Client;
use crate::error::{Error, Refused};
use crate::types::{Code, Notification, NotificationsQuery, Shown, To, TopicsQuery};

const NOTIFICATION: &str = r#"{"id": "n1"}"#;

fn hello() -> Notification {
    Notification::new(To::Users(vec!["u1".to_owned()])).notification(Shown::new().title("Hello"))
}

fn answers(statuses: &[u16]) -> Vec<Answer> {
    let answer = |status: &u16| match status {
        0 => Answer::Break,
        200 => Answer::ok(NOTIFICATION),
        status => Answer::problem(*status, ""),
    };
    statuses.iter().map(answer).collect()
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    Publish,
    Get,
    Start,
}

#[tokio::test]
async fn requests_are_repeated_if_that_helps_and_does_no_harm() {
    use What::{Get, Publish, Start};
    let cases: &[(What, &[u16], usize)] = &[
        (Publish, &[200], 1),
        (Publish, &[503, 200], 2),
        (Publish, &[0, 408, 425, 200], 4),
        (Publish, &[429, 500, 502, 200], 4),
        (Publish, &[504, 504, 504, 504, 504], 4),
        (Publish, &[400], 1),
        (Publish, &[401], 1),
        (Publish, &[409], 1),
        (Publish, &[501], 1),
        (Publish, &[507], 1),
        (Get, &[0, 500, 200], 3),
        // Without a key: only if the service has not processed it.
        (Start, &[503, 425, 429, 200], 4),
        (Start, &[500, 200], 1),
        (Start, &[408, 200], 1),
        (Start, &[0, 200], 1),
    ];
    for (what, statuses, attempts) in cases {
        let stub = Stub::start(answers(statuses)).await;
        let client = stub.client();
        let result = match what {
            Publish => client.publish(&hello()).await.map(drop),
            Get => client.notification("n1").await.map(drop),
            Start => client.start_campaign("c1").await.map(drop),
        };
        let seen = stub.seen();
        assert_eq!(seen.len(), *attempts, "{what:?} {statuses:?}: {result:?}");
        assert_eq!(result.is_ok(), statuses[attempts - 1] == 200, "{what:?} {statuses:?}: {result:?}");
        let keys: Vec<_> = seen.iter().map(|one| one.header("idempotency-key")).collect();
        assert!(keys.iter().all(|key| key.is_some() == (*what == Publish) && *key == keys[0]), "{keys:?}");
    }
}

#[tokio::test]
async fn without_a_connection_every_request_is_repeated() {
    let client = Client::new("http://127.0.0.1:1", "key").expect("a client");
    match client.start_campaign("c1").await {
        Err(Error::NoAnswer(failed)) => assert_eq!((failed.attempts, failed.is_timeout), (4, false)),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_service_says_how_long_to_wait() {
    let date = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(20));
    let date: &'static str = format!("retry-after: {date}\r\n").leak();
    for (header, least, most) in
        [("retry-after: 3\r\n", 3_000, 3_000), ("retry-after: 0\r\n", 100, 100), (date, 18_000, 20_000)]
    {
        let stub = Stub::start([Answer::problem(503, header), Answer::ok(NOTIFICATION)]).await;
        let client = stub.client();
        client.notification("n1").await.expect("a success");
        let waits: Vec<u128> = client.inner.clock.waits().iter().map(Duration::as_millis).collect();
        assert!(waits.len() == 1 && (least..=most).contains(&waits[0]), "{header}: {waits:?}");
    }
}

#[tokio::test]
async fn the_deadline_ends_retries() {
    let stub = Stub::start([Answer::problem(503, "retry-after: 31\r\n")]).await;
    let error = stub.client().notification("n1").await.expect_err("a failure");
    let refused = error.refused().expect("an answer");
    assert_eq!((refused.retry_after, refused.attempts), (Some(Duration::from_secs(31)), 1));
    assert_eq!(stub.seen().len(), 1);
}

#[tokio::test]
async fn errors_are_typed() {
    let stub = Stub::start([Answer::problem(400, "")]).await;
    let error = stub.client().publish(&hello()).await.expect_err("a failure");
    let expected = Refused {
        status: 400,
        code: Code::Overloaded,
        title: Some("Title".to_owned()),
        detail: Some("Detail".to_owned()),
        field: Some("to".to_owned()),
        request_id: Some("r1".to_owned()),
        retry_after: None,
        method: http::Method::POST,
        path: "/v1/notifications".to_owned(),
        attempts: 1,
    };
    assert_eq!(error.refused(), Some(&expected));
    assert_eq!(error.to_string(), "POST /v1/notifications: 400 overloaded: Detail (field to) (request r1)");

    let proxy = Stub::start([Answer::Status(403, "", "<html>".to_owned())]).await;
    let error = proxy.client().notification("n1").await.expect_err("a failure");
    assert_eq!((error.code(), error.status()), (Some(&Code::from("http_403")), Some(403)));
}

#[tokio::test]
async fn an_answer_that_is_cut_off_is_no_answer() {
    let stub = Stub::start([Answer::ok(r#"{"id": "n"#), Answer::ok(NOTIFICATION)]).await;
    assert!(matches!(
        stub.builder().attempts(1).build().expect("a client").publish(&hello()).await,
        Err(Error::NoAnswer(_))
    ));
    // With the same key, it is safe to repeat.
    let stub = Stub::start([Answer::ok(r#"{"id": "n"#), Answer::ok(NOTIFICATION)]).await;
    assert_eq!(stub.client().publish(&hello()).await.expect("a receipt").id, "n1");
}

#[tokio::test]
async fn attempts_have_a_timeout() {
    let stub = Stub::start([Answer::Hang]).await;
    let client = stub.builder().timeout(Duration::from_millis(30)).attempts(2).build().expect("a client");
    match client.notification("n1").await {
        Err(Error::NoAnswer(failed)) => assert!(failed.attempts == 2 && failed.is_timeout, "{failed:?}"),
        other => panic!("{other:?}"),
    }
    let client = stub.builder().deadline(Duration::from_millis(30)).build().expect("a client");
    match client.notification("n1").await {
        Err(error @ Error::NoAnswer(_)) => assert!(error.source().is_some(), "{error}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn requests_have_headers() {
    let stub = Stub::start([Answer::ok(NOTIFICATION)]).await;
    let client = stub.builder().traceparent(|| Some("00-span".to_owned())).build().expect("a client");
    client.publish(&hello()).idempotency_key("order-7").await.expect("a receipt");
    client.publish(&hello()).traceparent("00-other").await.expect("a receipt");
    client.notification("a/b ü").idempotency_key("ignored").await.expect("a state");
    let seen = stub.seen();
    let check = |n: usize, name, value| assert_eq!(seen[n].header(name), value, "{name}");
    check(0, "authorization", Some("Bearer key"));
    check(0, "idempotency-key", Some("order-7"));
    check(0, "traceparent", Some("00-span"));
    check(0, "content-type", Some("application/json"));
    check(0, "user-agent", Some(concat!("noroshi-rust/", env!("CARGO_PKG_VERSION"))));
    check(1, "traceparent", Some("00-other"));
    check(2, "idempotency-key", None);
    assert_eq!(seen[0].body, r#"{"to":{"users":["u1"]},"notification":{"title":"Hello"}}"#);
    assert_eq!(seen[2].line, "GET /v1/notifications/a%2Fb%20%C3%BC HTTP/1.1");
}

#[tokio::test]
async fn what_cannot_be_sent_is_reported() {
    let stub = Stub::start([Answer::ok(NOTIFICATION)]).await;
    let client = stub.client();
    for wrong in ["", ".", ".."] {
        assert!(matches!(client.device(wrong).await, Err(Error::Invalid(_))), "{wrong:?}");
    }
    assert!(matches!(client.publish(&hello()).idempotency_key("schlüssel\n").await, Err(Error::Invalid(_))));
    assert!(stub.seen().is_empty());
    assert!(Client::new("push.example.com", "key").is_err());
    assert!(Client::new("https://push.example.com", "").is_err());
    assert!(!format!("{client:?}").contains("Bearer"));
}

#[tokio::test]
async fn pages_follow_each_other() {
    let page = |ids: &[&str], next: &str| {
        let topics: Vec<String> = ids.iter().map(|id| format!(r#"{{"topic": "{id}"}}"#)).collect();
        Answer::ok(format!(r#"{{"topics": [{}], "next": {next}}}"#, topics.join(",")))
    };
    let answers = [page(&["a", "b"], r#""2""#), page(&[], r#""3""#), page(&["c"], "null")];
    let stub = Stub::start(answers.clone()).await;
    let topics = stub.client().topics(TopicsQuery::new().limit(2u64)).collect().await.expect("topics");
    let names: Vec<&str> = topics.iter().map(|topic| topic.topic.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    let lines: Vec<String> = stub.seen().into_iter().map(|seen| seen.line).collect();
    let line = |query: &str| format!("GET /v1/topics?{query} HTTP/1.1");
    assert_eq!(lines, [line("limit=2"), line("after=2&limit=2"), line("after=3&limit=2")]);

    // An error ends the stream.
    let stub = Stub::start([answers[0].clone(), Answer::problem(404, "")]).await;
    let mut topics = stub.client().topics(TopicsQuery::new());
    assert!(topics.next().await.is_some_and(|topic| topic.is_ok()));
    assert!(topics.next().await.is_some_and(|topic| topic.is_ok()));
    assert!(topics.next().await.is_some_and(|topic| topic.is_err()));
    assert!(topics.next().await.is_none());
    assert_eq!(stub.seen().len(), 2);
}

#[tokio::test]
async fn queries_have_times() {
    let stub = Stub::start([Answer::ok(r#"{"notifications": [], "next": null}"#)]).await;
    let since = SystemTime::UNIX_EPOCH + Duration::from_millis(1_500);
    let query = NotificationsQuery::new().since(since).user("u 1");
    stub.client().list_notifications(&query).await.expect("a page");
    assert_eq!(
        stub.seen()[0].line,
        "GET /v1/notifications?since=1970-01-01T00%3A00%3A01.500Z&user=u%201 HTTP/1.1"
    );
}
