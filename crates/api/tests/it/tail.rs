//! Live tails through the API: who may open one, what it shows, and when it ends.

use std::time::Duration;

use axum::body::Body;
use http::{Method, Request, Response, header};
use http_body_util::BodyExt;
use noroshi_api::router::CONSOLE_API;
use noroshi_types::{AppId, Role};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::console::{Browser, person};
use crate::service::Service;

const PATIENCE: Duration = Duration::from_secs(60);

async fn open_in(service: &Service, browser: &Browser, app: &str, query: &str) -> Response<Body> {
    let request = Request::get(format!("{CONSOLE_API}/v1/tail{query}"))
        .header(header::COOKIE, format!("noroshi_session={}", browser.cookie))
        .header("noroshi-app", app)
        .body(Body::empty())
        .expect("a request");
    service.console.clone().oneshot(request).await.expect("a response")
}

async fn open(service: &Service, browser: &Browser, query: &str) -> Response<Body> {
    open_in(service, browser, "dev", query).await
}

/// The data of the next event. `None`: the stream ended.
async fn next(stream: &mut Response<Body>) -> Option<Value> {
    let frame = tokio::time::timeout(PATIENCE, stream.frame()).await.expect("in time")?.expect("a frame");
    let bytes = frame.into_data().expect("data");
    let text = std::str::from_utf8(&bytes).expect("text");
    Some(serde_json::from_str(text.strip_prefix("event: tail\ndata: ").expect("an event")).expect("JSON"))
}

/// Reads until an event of the kind comes, and returns all.
async fn until(stream: &mut Response<Body>, kind: &str) -> Vec<Value> {
    let mut seen: Vec<Value> = Vec::new();
    while !seen.iter().any(|event| event["event"] == kind) {
        let text = next(stream).await.expect("open");
        seen.extend(text["events"].as_array().expect("a list").iter().cloned());
    }
    seen
}

async fn viewer(service: &Service, email: &str) -> Browser {
    person(service, email, vec![(Some(service.app()), Role::Viewer)]).await
}

#[tokio::test]
async fn every_role_sees_the_events_of_its_app_and_of_no_other() {
    let service = Service::start().await;
    let other: AppId = service.state.auth.app("other").expect("an app").id;
    service.device("d1", "u1").await;
    for role in Role::ALL {
        let browser =
            person(&service, &format!("{}@example.com", role.as_str()), vec![(Some(service.app()), role)])
                .await;
        let mut stream = open(&service, &browser, "").await;
        assert_eq!(
            (stream.status().as_u16(), &stream.headers()[header::CONTENT_TYPE]),
            (200, &"text/event-stream".parse().expect("a value"))
        );
        let of_other = open_in(&service, &browser, "other", "").await;
        assert_eq!(of_other.status(), 404, "{}", role.as_str());
        service
            .post("/v1/notifications", &service.other_key, r#"{"to": {"users": ["u1"]}, "data": 1}"#)
            .await;
        let id = service.publish(r#"{"to": {"users": ["u1"]}, "data": 1}"#).await;
        let seen = until(&mut stream, "kept").await;
        assert!(seen.iter().all(|event| event["id"] == id), "{seen:?}");
        let kept = seen.iter().find(|event| event["event"] == "kept").expect("one");
        assert_eq!(kept["devices"], json!([{"id": "d1", "user": "u1"}]));
        assert!(seen.iter().all(|event| event.get("node").is_none()));
    }
    // Without a role there.
    let stranger = person(&service, "stranger@example.com", vec![(Some(other), Role::Owner)]).await;
    assert_eq!(open(&service, &stranger, "").await.status(), 404);
    let mut nobody = Request::get(format!("{CONSOLE_API}/v1/tail")).body(Body::empty()).expect("a request");
    nobody.headers_mut().insert("noroshi-app", "dev".parse().expect("a value"));
    assert_eq!(service.console.clone().oneshot(nobody).await.expect("a response").status(), 401);
    // Who may read all apps sees the node.
    let owner = person(&service, "all@example.com", vec![(None, Role::Viewer)]).await;
    let mut stream = open(&service, &owner, "").await;
    service.publish(r#"{"to": {"users": ["u1"]}, "data": 1}"#).await;
    assert_eq!(until(&mut stream, "accepted").await[0]["node"], "node");
}

#[tokio::test]
async fn the_server_filters_and_refuses_wrong_filters() {
    let service = Service::start().await;
    let browser = viewer(&service, "ann@example.com").await;
    let mut of_user = open(&service, &browser, "?user=u2&kinds=accepted,kept").await;
    let mut on_topic = open(&service, &browser, "?topic=news").await;
    service.device("d1", "u1").await;
    service.device("d2", "u2").await;
    service.publish(r#"{"to": {"users": ["u1"]}, "data": 1}"#).await;
    service.publish(r#"{"to": {"topic": "sport"}, "data": 1}"#).await;
    let to_topic = service.publish(r#"{"to": {"topic": "news"}, "data": 1}"#).await;
    let to_user = service.publish(r#"{"to": {"users": ["u2"]}, "data": 1}"#).await;
    let seen = until(&mut of_user, "kept").await;
    assert_eq!(seen.len(), 2);
    assert!(seen.iter().all(|event| event["id"] == to_user), "{seen:?}");
    let seen = until(&mut on_topic, "accepted").await;
    assert!(seen.iter().all(|event| event["id"] == to_topic), "{seen:?}");
    for (query, field) in [
        ("?kinds=audit", "kinds"),
        ("?kinds=", "kinds"),
        ("?notification=1", "notification"),
        ("?campaign=x", "campaign"),
        ("?topic=news/%23", "topic"),
        ("?user=", "user"),
    ] {
        let problem = browser.call(&service, Method::GET, &format!("/v1/tail{query}"), "").await;
        problem.problem(400, "invalid_parameter");
        assert_eq!(problem.json()["field"], field, "{query}");
    }
    browser.call(&service, Method::GET, "/v1/tail?app=other", "").await.problem(400, "invalid_parameter");
}

#[tokio::test]
async fn a_tail_ends_with_the_session_the_role_and_the_node() {
    let service = Service::start().await;
    let app: Option<AppId> = Some(service.app());
    let ann = viewer(&service, "ann@example.com").await;
    let bob = viewer(&service, "bob@example.com").await;
    let cid = viewer(&service, "cid@example.com").await;
    let dan = person(&service, "dan@example.com", vec![(app, Role::Viewer), (None, Role::Viewer)]).await;
    let mut streams = Vec::new();
    for browser in [&ann, &bob, &cid, &dan] {
        let mut stream = open(&service, browser, "").await;
        assert!(next(&mut stream).await.is_some());
        streams.push(stream);
    }
    let [of_ann, of_bob, of_cid, of_dan] = &mut streams[..] else { unreachable!("four") };
    assert_eq!(ann.call(&service, Method::DELETE, "/v1/session", "").await.status, 204);
    service.store.set_role(bob.id, app, None).await.expect("removed");
    // Dan still has a role in the app, and must not see names of nodes any more.
    service.store.set_role(dan.id, None, None).await.expect("removed");
    for ended in [of_ann, of_bob, of_dan] {
        while next(ended).await.is_some() {}
    }
    assert!(next(of_cid).await.is_some(), "the others stay open");
    service.state.tails.set_closed(true);
    while next(of_cid).await.is_some() {}
    let refused = cid.call(&service, Method::GET, "/v1/tail", "").await;
    refused.problem(503, "unavailable");
}

#[tokio::test]
async fn a_person_has_few_tails() {
    let service = Service::start().await;
    let ann = viewer(&service, "ann@example.com").await;
    let mut streams = Vec::new();
    for _ in 0..noroshi_tail::tails::TAILS_OF_PERSON_MAX {
        let stream = open(&service, &ann, "").await;
        assert_eq!(stream.status(), 200);
        streams.push(stream);
    }
    let refused = ann.call(&service, Method::GET, "/v1/tail", "").await;
    refused.problem(409, "limit_exceeded");
    assert!(refused.json()["detail"].as_str().is_some_and(|detail| detail.contains('4')));
    let bob = viewer(&service, "bob@example.com").await;
    assert_eq!(open(&service, &bob, "").await.status(), 200);
    streams.pop();
    assert_eq!(open(&service, &ann, "").await.status(), 200);
}
