//! Every code of the table is reachable with its status and text.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use axum::body::Body;
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use noroshi_api::Code;
use noroshi_types::Scope;
use serde_json::json;

use crate::push::WEB_PUSH;
use crate::service::{Answer, OPERATOR, Service, request};

const NOTIFICATION: &str = r#"{"to": {"topic": "t"}, "data": 1}"#;

#[tokio::test]
async fn every_code_is_reachable() {
    let service = Service::without_push(|state| state.config.limits.body_bytes = 300_000).await;
    let mut met: BTreeSet<String> = BTreeSet::new();
    let mut meet = |answer: Answer, status: u16, code: &str| {
        answer.problem(status, code);
        assert!(met.insert(code.to_owned()), "{code} twice");
    };
    let publish = async |body: &str| service.post("/v1/notifications", &service.key, body).await;

    meet(publish("{").await, 400, "invalid_json");
    meet(publish(r#"{"to": 1}"#).await, 400, "invalid_field");
    meet(publish(r#"{"too": 1}"#).await, 400, "unknown_field");
    meet(service.get("/v1/devices?limit=x", &service.key).await, 400, "invalid_parameter");
    let users: Vec<String> = (0..10_001).map(|i| format!("u{i}")).collect();
    meet(publish(&json!({"to": {"users": users}, "data": 1}).to_string()).await, 400, "too_many_targets");
    meet(service.get("/v1/topics", "").await, 401, "unauthorized");
    let reader = service.key_with(&[Scope::Read]).await;
    meet(service.post("/v1/notifications", &reader, NOTIFICATION).await, 403, "forbidden");
    meet(service.get("/nowhere", &service.key).await, 404, "not_found");
    meet(service.call(Method::PATCH, "/v1/notifications", &service.key, "").await, 405, "method_not_allowed");
    meet(
        publish(&json!({"to": {"topic": "t"}, "data": "x".repeat(5_000)}).to_string()).await,
        413,
        "data_too_large",
    );
    meet(publish(&" ".repeat(300_001)).await, 413, "body_too_large");
    let lines = "{}\n".repeat(10_001);
    meet(service.post("/v1/notifications/batch", &service.key, &lines).await, 413, "too_many_lines");
    let mut text = request(Method::POST, "/v1/notifications", &service.key, "hello");
    text.headers_mut().insert("content-type", "text/plain".parse().expect("a header"));
    meet(service.send(text).await, 415, "unsupported_media_type");
    for (coding, status, code) in [("br", 415, "unsupported_encoding"), ("gzip", 400, "corrupt_encoding")] {
        let mut encoded = request(Method::POST, "/v1/notifications", &service.key, "hello");
        encoded.headers_mut().insert("content-encoding", coding.parse().expect("a header"));
        meet(service.send(encoded).await, status, code);
    }
    let token = service.device("d1", "u1").await;
    meet(service.put("/v1/me/presence", &token, r#"{"state": "idle"}"#).await, 409, "not_connected");
    meet(
        service.operate(Method::POST, "/v1/apps", OPERATOR, r#"{"name": "dev"}"#).await,
        409,
        "already_exists",
    );
    let set = |body| service.operate(Method::PUT, "/v1/apps/dev/quotas", OPERATOR, body);
    assert_eq!(set(r#"{"devices": 1}"#).await.status, StatusCode::OK);
    let over = service.post("/v1/devices", &service.key, "").await;
    assert_eq!(over.header("retry-after"), Some("2"));
    meet(over, 429, "quota_exceeded");
    assert_eq!(set("{}").await.status, StatusCode::OK);
    let endpoint = service.post("/v1/me/endpoints", &token, "").await.json();
    let path = service.path_of(&endpoint);
    loop {
        let post = Request::post(&path).header("ttl", "0").body(Body::empty()).expect("a request");
        let answer = service.send(post).await;
        if answer.status != StatusCode::CREATED {
            meet(answer, 429, "too_many_requests");
            break;
        }
    }
    let id = endpoint["id"].as_str().expect("an id");
    service.delete(&format!("/v1/me/endpoints/{id}"), &token).await;
    meet(service.get(&path, "").await, 410, "endpoint_gone");
    for body in [NOTIFICATION, r#"{"to": {"topic": "t"}, "data": 2}"#] {
        let mut keyed = request(Method::POST, "/v1/notifications", &service.key, body);
        keyed.headers_mut().insert("idempotency-key", "k".parse().expect("a header"));
        let answer = service.send(keyed).await;
        if answer.status != StatusCode::ACCEPTED {
            meet(answer, 409, "idempotency_conflict");
        }
    }
    let topics: Vec<String> = (0..1_000).map(|i| format!("t{i}")).collect();
    service.post("/v1/devices", &service.key, &json!({"device": "d1", "topics": topics}).to_string()).await;
    meet(service.put("/v1/me/topics/more", &token, "").await, 409, "limit_exceeded");

    let large = json!({"to": {"topic": "t"}, "notification": {"title": "x".repeat(2_500)},
        "data": "y".repeat(2_500), "push": {"mode": "always"}});
    meet(publish(&large.to_string()).await, 413, "push_payload_too_large");
    meet(service.post("/v1/apps/dev/push", &service.key, WEB_PUSH).await, 409, "push_key_missing");
    let campaign = r#"{"audience": {"everyone": true}, "message": {"data": 1}, "start": false}"#;
    let campaign = service.post("/v1/campaigns", &service.key, campaign).await.json();
    let pause = format!("/v1/campaigns/{}/pause", campaign["id"].as_str().expect("an id"));
    meet(service.post(&pause, &service.key, "").await, 409, "wrong_state");

    let heap = service.operate(Method::GET, "/debug/pprof/heap", OPERATOR, "").await;
    match noroshi_profiling::HEAP {
        true => assert_eq!(heap.status, StatusCode::OK),
        false => meet(heap, 501, "not_built"),
    }

    service.edge.full.store(true, Ordering::SeqCst);
    let overloaded = publish(NOTIFICATION).await;
    assert_eq!(overloaded.header("retry-after"), Some("1"));
    meet(overloaded, 503, "overloaded");
    service.edge.broken.store(true, Ordering::SeqCst);
    let panicked = service.post("/v1/presence", &service.key, r#"{"users": ["u1"]}"#).await;
    assert!(!panicked.text.contains("broken"), "internal errors are not public: {}", panicked.text);
    meet(panicked, 500, "internal");
    service.state.delivery.store().close().await;
    meet(service.get("/v1/topics", &service.key).await, 503, "unavailable");

    if noroshi_profiling::HEAP {
        met.insert("not_built".to_owned());
    }
    // People of the console: see `console`.
    met.extend(["csrf", "confirm_log_in"].map(str::to_owned));
    // Rotations of push credentials: see `push`.
    met.insert("credential_test_failed".to_owned());
    // Drafts of campaigns: see `draft`.
    let drafts = ["revision_conflict", "campaign_incomplete", "approval_required", "own_approval"];
    met.extend(drafts.map(str::to_owned));
    // A full disk and an incomplete body have their own tests: one in `error`, one below.
    met.extend(["disk_full".to_owned(), "body_timeout".to_owned()]);
    // A node without a role, and a front: see `connection` and the tests of `cells`.
    met.extend(["misdirected", "not_at_a_front", "cell_unavailable"].map(str::to_owned));
    // A failing host of Apple: see `e2e/tests/broadcast.test.mjs`.
    met.extend(["push_service_rejected", "push_service_failed"].map(str::to_owned));
    let all: BTreeSet<String> = Code::ALL.iter().map(|code| code.as_str().to_owned()).collect();
    assert_eq!(met, all);
}

#[tokio::test]
async fn the_node_survives_a_panic() {
    let service = Service::start().await;
    service.edge.broken.store(true, Ordering::SeqCst);
    service.post("/v1/presence", &service.key, r#"{"users": ["u1"]}"#).await.problem(500, "internal");
    service.edge.broken.store(false, Ordering::SeqCst);
    assert_eq!(
        service.post("/v1/presence", &service.key, r#"{"users": ["u1"]}"#).await.status,
        StatusCode::OK
    );
    let metrics = service.operate(Method::GET, "/metrics", "", "").await.text;
    assert!(metrics.contains("noroshi_http_panics_total 1\n"), "{metrics}");
    assert!(
        metrics.contains("noroshi_http_requests_in_flight 0\n")
            || metrics.contains("noroshi_http_requests_in_flight 1\n")
    );
}

#[tokio::test]
async fn an_oversized_body_is_rejected_before_and_while_reading() {
    let service = Service::with(|state| state.config.limits.body_bytes = 1_000).await;
    let padded = |bytes: usize| format!("{NOTIFICATION}{}", " ".repeat(bytes - NOTIFICATION.len()));
    let exact = service.post("/v1/notifications", &service.key, &padded(1_000)).await;
    assert_eq!(exact.status, StatusCode::ACCEPTED);
    let mut declared = request(Method::POST, "/v1/notifications", &service.key, NOTIFICATION);
    declared.headers_mut().insert("content-length", "1001".parse().expect("a header"));
    let refused = service.send(declared).await.problem(413, "body_too_large");
    assert!(
        refused["detail"].as_str().is_some_and(|detail| detail.contains("1000")),
        "it names the limit: {refused}"
    );
    let pieces = futures_util::stream::iter(
        (0..11).map(|_| Ok::<_, std::io::Error>(Bytes::from_static(&[b' '; 100]))),
    );
    let streamed = Request::post("/v1/notifications")
        .header("authorization", format!("Bearer {}", service.key))
        .body(Body::from_stream(pieces))
        .expect("a request");
    service.send(streamed).await.problem(413, "body_too_large");
    let metrics = service.operate(Method::GET, "/metrics", "", "").await.text;
    assert!(metrics.contains("noroshi_http_bodies_refused_total{code=\"body_too_large\"} 2\n"), "{metrics}");
}

#[tokio::test]
async fn no_body_is_read_without_a_credential() {
    let service = Service::start().await;
    let endless = futures_util::stream::pending::<Result<Bytes, std::io::Error>>();
    let request = Request::post("/v1/notifications").body(Body::from_stream(endless)).expect("a request");
    service.send(request).await.problem(401, "unauthorized");
}

#[tokio::test]
async fn excess_requests_are_shed() {
    let service = Service::with(|state| state.config.bodies_bytes_max = 10).await;
    let answer = service.post("/v1/notifications", &service.key, NOTIFICATION).await;
    answer.problem(503, "overloaded");
    let service = Service::with(|state| state.config.requests_max = 0).await;
    service.get("/v1/topics", &service.key).await.problem(503, "overloaded");
    assert_eq!(
        service.operate(Method::GET, "/healthz", "", "").await.status,
        StatusCode::OK,
        "probes are not shed"
    );
}

#[tokio::test]
async fn content_types_of_json_are_accepted() {
    let service = Service::start().await;
    let send = async |path: &str, content_type: &str| {
        let mut request = request(Method::POST, path, &service.key, NOTIFICATION);
        request.headers_mut().insert("content-type", content_type.parse().expect("a header"));
        service.send(request).await.status.as_u16()
    };
    for (content_type, status) in [
        ("application/json", 202),
        ("application/json; charset=utf-8", 202),
        ("APPLICATION/JSON", 202),
        ("application/x-www-form-urlencoded", 202),
        ("text/plain", 415),
    ] {
        assert_eq!(send("/v1/notifications", content_type).await, status, "{content_type}");
    }
    for (content_type, status) in
        [("application/x-ndjson", 200), ("application/jsonl", 200), ("application/json", 415)]
    {
        assert_eq!(send("/v1/notifications/batch", content_type).await, status, "{content_type}");
    }
}

#[tokio::test]
async fn a_valid_request_id_is_kept() {
    let service = Service::start().await;
    let send = async |id: Option<&str>| {
        let mut request = request(Method::GET, "/nowhere", "letmein", "");
        if let Some(id) = id {
            request.headers_mut().insert("x-request-id", id.parse().expect("a header"));
        }
        service.send(request).await.header("x-request-id").expect("an id").to_owned()
    };
    assert_eq!(send(Some("req-1_a.b")).await, "req-1_a.b");
    for bad in [None, Some("two words"), Some("a\"b"), Some("letmein"), Some("nk_x"), Some(&*"x".repeat(65))]
    {
        assert_eq!(send(bad).await.len(), 32, "{bad:?}");
    }
}

#[tokio::test]
async fn the_methods_of_a_path_are_listed() {
    let service = Service::start().await;
    let answer = service.call(Method::PUT, "/v1/me", "", "").await;
    answer.problem(405, "method_not_allowed");
    let allow = answer.header("allow").expect("Allow");
    assert!(["GET", "PATCH", "DELETE"].iter().all(|method| allow.contains(method)), "{allow}");
}
