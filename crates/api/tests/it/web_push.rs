//! Web Push endpoints: devices create them, senders post to them, and messages are delivered like notifications.

use axum::body::Body;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{Method, Request, StatusCode};
use noroshi_types::{Urgency, When};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};

use crate::service::{Answer, NOW, Service};

/// An endpoint of a device with its URL.
async fn endpoint(service: &Service, token: &str, body: &str) -> (Value, String) {
    let made = service.post("/v1/me/endpoints", token, body).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text);
    let path = service.path_of(&made.json());
    (made.json(), path)
}

async fn post(service: &Service, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    let mut builder = Request::post(path).header("host", "push.example.com");
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    service.send(builder.body(Body::from(body.to_vec())).expect("a request")).await
}

fn path_in(answer: &Answer, header: &str) -> String {
    let value = answer.header(header).unwrap_or_else(|| panic!("no {header}"));
    let url = value.split(['<', '>']).find(|part| part.starts_with("http")).expect("a URL");
    url.strip_prefix("http://push.example.com").expect("of this host").to_owned()
}

#[tokio::test]
async fn a_device_creates_and_deletes_endpoints() {
    let service = Service::start().await;
    let (token, other) = (service.device("d1", "u1").await, service.device("d2", "u1").await);
    let (made, path) = endpoint(&service, &token, "").await;
    let key = URL_SAFE_NO_PAD.encode([4; 65]);
    let body = json!({"label": "chat", "vapid_key": key, "idle_urgency": "high", "expires_in": "1h"});
    let (second, _) = endpoint(&service, &token, &body.to_string()).await;
    assert_eq!(second["expires_at"], "2027-01-15T09:00:00.000Z");
    assert!(path.starts_with("/push/") && path.len() == 6 + 43, "{path}");
    let listed = service.get("/v1/me/endpoints", &token).await;
    assert!(!listed.text.contains(path.trim_start_matches("/push/")), "the secret is returned once");
    let listed = listed.json();
    assert_eq!(listed["endpoints"].as_array().map(Vec::len), Some(2));
    assert_eq!(
        (&listed["endpoints"][1]["vapid_key"], &listed["endpoints"][1]["label"]),
        (&json!(key), &json!("chat"))
    );
    assert_eq!(service.get("/v1/devices/d1", &service.key).await.json()["endpoints"], 2);
    assert_eq!(service.get("/v1/me/endpoints", &other).await.json(), json!({"endpoints": []}));

    let found = service.get(&path, "").await;
    assert_eq!(found.json(), json!({"unifiedpush": {"version": 1}}));
    let id = format!("/v1/me/endpoints/{}", made["id"].as_str().expect("an id"));
    service.delete(&id, &other).await.problem(404, "not_found");
    assert_eq!(service.delete(&id, &token).await.status, StatusCode::NO_CONTENT);
    service.delete(&id, &token).await.problem(404, "not_found");
    service.delete("/v1/me/endpoints/x", &token).await.problem(404, "not_found");
    service.get(&path, "").await.problem(410, "endpoint_gone");
    post(&service, &path, &[("ttl", "1")], b"x").await.problem(410, "endpoint_gone");
    service.post("/v1/me/endpoints", "", "").await.problem(401, "unauthorized");
    service.post("/v1/me/endpoints", &token, r#"{"ttl": 1}"#).await.problem(400, "unknown_field");
}

#[tokio::test]
async fn a_provider_lists_and_revokes_the_endpoints_of_a_device() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    service.device("d2", "u1").await;
    let (made, path) = endpoint(&service, &token, r#"{"label": "chat"}"#).await;
    let list = "/v1/devices/d1/endpoints";
    let listed = service.get(list, &service.key).await;
    assert!(!listed.text.contains(path.trim_start_matches("/push/")), "the secret is not stored");
    assert_eq!(listed.json(), service.get("/v1/me/endpoints", &token).await.json());
    let id = made["id"].as_str().expect("an id");
    service.get(list, &service.other_key).await.problem(404, "not_found");
    service.get("/v1/devices/d9/endpoints", &service.key).await.problem(404, "not_found");
    service.delete(&format!("{list}/{id}"), &service.other_key).await.problem(404, "not_found");
    service.delete(&format!("/v1/devices/d2/endpoints/{id}"), &service.key).await.problem(404, "not_found");
    service.delete(&format!("{list}/x"), &service.key).await.problem(404, "not_found");
    assert_eq!(service.delete(&format!("{list}/{id}"), &service.key).await.status, StatusCode::NO_CONTENT);
    service.get(&path, "").await.problem(410, "endpoint_gone");
}

#[tokio::test]
async fn an_endpoint_ends_with_its_expiry_device_or_app() {
    let service = Service::start().await;
    let (first, second) = (service.device("d1", "u1").await, service.device("d2", "u1").await);
    let (_, brief) = endpoint(&service, &first, r#"{"expires_in": 60}"#).await;
    let (_, of_device) = endpoint(&service, &first, "").await;
    let (_, of_app) = endpoint(&service, &second, "").await;
    let ttl = [("ttl", "1")];
    assert_eq!(post(&service, &brief, &ttl, b"x").await.status, StatusCode::CREATED);
    service.clock.set(noroshi_types::Timestamp(NOW.0 + 60_000));
    post(&service, &brief, &ttl, b"x").await.problem(410, "endpoint_gone");
    assert_eq!(service.delete("/v1/devices/d1", &service.key).await.status, StatusCode::NO_CONTENT);
    post(&service, &of_device, &ttl, b"x").await.problem(410, "endpoint_gone");
    assert_eq!(post(&service, &of_app, &ttl, b"x").await.status, StatusCode::CREATED);
    service.state.auth.delete_app(service.app()).await.expect("deleted");
    post(&service, &of_app, &ttl, b"x").await.problem(410, "endpoint_gone");
    for guess in ["x", "mVcDRXjlPXnG2VjOaD4wQ9Jw1tNkYwGkX3J0nq4T2bQ", "%00"] {
        post(&service, &format!("/push/{guess}"), &ttl, b"x").await.problem(404, "not_found");
    }
}

#[tokio::test]
async fn a_message_is_passed_through_encrypted() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    let (made, path) = endpoint(&service, &token, "").await;
    let body: Vec<u8> = (0..4_096_u32).map(|byte| byte as u8).collect();
    let headers = [("ttl", "9999999"), ("urgency", "high"), ("content-encoding", "aes128gcm")];
    let answer = post(&service, &path, &headers, &body).await;
    assert_eq!((answer.status, answer.header("ttl")), (StatusCode::CREATED, Some("2419200")));
    assert!(answer.header("location").is_some() && answer.header("link").is_none());

    let messages = service.edge.messages();
    let message = messages.last().expect("delivered");
    assert_eq!((message.when, message.urgency, message.waits_for_use), (When::Stored, Urgency::High, false));
    let data: Value = serde_json::from_str(message.data.as_ref().expect("data").as_str()).expect("JSON");
    let encoded = URL_SAFE_NO_PAD.encode(&body);
    let expected = json!({"endpoint": made["id"], "content_encoding": "aes128gcm", "body": encoded});
    assert_eq!(data, json!({"web_push": expected}));
    let inbox = service.get("/v1/me/inbox", &token).await.json();
    assert_eq!((&inbox["total"], &inbox["messages"][0]["data"]), (&json!(1), &data));

    let legacy =
        [("ttl", "5"), ("content-encoding", "aesgcm"), ("encryption", "salt=s"), ("crypto-key", "dh=d")];
    assert_eq!(post(&service, &path, &legacy, b"").await.status, StatusCode::CREATED, "a body may be empty");
    let messages = service.edge.messages();
    let data = messages.last().and_then(|message| message.data.clone()).expect("data");
    assert_eq!(
        data.as_str(),
        format!(
            r#"{{"web_push":{{"endpoint":{},"content_encoding":"aesgcm","encryption":"salt=s","crypto_key":"dh=d","body":""}}}}"#,
            made["id"]
        )
    );
}

#[tokio::test]
async fn protocol_violations_are_rejected() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    let (_, path) = endpoint(&service, &token, "").await;
    let check = async |headers: &[(&str, &str)], field: &str| {
        let problem = post(&service, &path, headers, b"x").await.problem(400, "invalid_parameter");
        assert_eq!(problem["field"], field);
    };
    check(&[], "ttl").await;
    check(&[("ttl", "soon")], "ttl").await;
    check(&[("ttl", "1"), ("urgency", "now")], "urgency").await;
    check(&[("ttl", "1"), ("topic", "a b")], "topic").await;
    check(&[("ttl", "1"), ("topic", "123456789012345678901234567890123")], "topic").await;
    post(&service, &path, &[("ttl", "1")], &[0; 4_097]).await.problem(413, "body_too_large");
    let declared = [("ttl", "1"), ("content-length", "4097")];
    post(&service, &path, &declared, b"").await.problem(413, "body_too_large");
    assert_eq!(service.edge.messages().len(), 0);
    service.call(Method::PUT, &path, "", "").await.problem(405, "method_not_allowed");
    let metrics = service.operate(Method::GET, "/metrics", "", "").await.text;
    assert!(metrics.contains("noroshi_web_push_refused_total{code=\"invalid_parameter\"} 5\n"), "{metrics}");
    assert!(metrics.contains("route=\"POST /push/{token}\"") && !metrics.contains(&path), "{metrics}");
}

#[tokio::test]
async fn urgency_and_ttl_decide_the_policy() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    let (_, path) = endpoint(&service, &token, "").await;
    let (_, choosy) = endpoint(&service, &token, r#"{"idle_urgency": "high"}"#).await;
    let (_, all) = endpoint(&service, &token, r#"{"idle_urgency": "very-low"}"#).await;
    let check = async |path: &str, ttl: &str, urgency: &str, expected: (When, bool)| {
        let headers = [("ttl", ttl), ("urgency", urgency)];
        assert_eq!(post(&service, path, &headers, b"x").await.status, StatusCode::CREATED);
        let messages = service.edge.messages();
        let message = messages.last().expect("delivered");
        assert_eq!((message.when, message.waits_for_use), expected, "ttl {ttl}, {urgency}");
    };
    check(&path, "60", "normal", (When::Stored, false)).await;
    check(&path, "60", "low", (When::Stored, true)).await;
    check(&path, "0", "normal", (When::Connected, false)).await;
    check(&path, "0", "very-low", (When::Active, true)).await;
    check(&choosy, "60", "normal", (When::Stored, true)).await;
    check(&choosy, "60", "high", (When::Stored, false)).await;
    check(&all, "60", "very-low", (When::Stored, false)).await;
    let total = service.get("/v1/me/inbox", &token).await.json()["total"].clone();
    assert_eq!(total, 5, "with a TTL of 0 nothing is kept");
}

#[tokio::test]
async fn a_topic_replaces_within_its_endpoint() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    let ((first, path), (_, other)) =
        (endpoint(&service, &token, "").await, endpoint(&service, &token, "").await);
    let topic = "t".repeat(32);
    let headers = [("ttl", "60"), ("topic", &*topic), ("prefer", "respond-async")];
    let replaced = post(&service, &path, &headers, b"1").await;
    post(&service, &other, &headers, b"2").await;
    post(&service, &path, &[("ttl", "60")], b"3").await;
    post(&service, &path, &headers, b"4").await;
    let inbox = service.get("/v1/me/inbox", &token).await.json();
    let bodies: Vec<_> =
        (0..3).map(|i| inbox["messages"][i]["data"]["web_push"]["body"].as_str().expect("a body")).collect();
    assert_eq!(bodies, ["2", "3", "4"].map(|body| URL_SAFE_NO_PAD.encode(body)));
    assert_eq!(inbox["messages"][2]["data"]["web_push"]["endpoint"], first["id"]);
    assert_eq!(service.get(&path_in(&replaced, "link"), "").await.status, StatusCode::GONE);
}

#[tokio::test]
async fn a_receipt_reports_the_outcome_of_a_message() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    let (_, path) = endpoint(&service, &token, "").await;
    let wanted = [("ttl", "60"), ("prefer", "respond-async")];
    let answer = post(&service, &path, &wanted, b"1").await;
    assert_eq!((answer.status, answer.header("ttl")), (StatusCode::ACCEPTED, Some("60")));
    assert_eq!(answer.header("preference-applied"), Some("respond-async"));
    assert!(
        answer.header("link").is_some_and(|link| link.ends_with(">; rel=\"urn:ietf:params:push:receipt\""))
    );
    let receipt = path_in(&answer, "link");
    let pending = service.get(&receipt, "").await;
    assert_eq!((pending.status, pending.header("retry-after")), (StatusCode::ACCEPTED, Some("1")));

    // A waiting sender gets the acknowledgement when it arrives.
    let id = service.get("/v1/me/inbox", &token).await.json()["messages"][0]["id"].clone();
    let waits = Request::get(&receipt).header("prefer", "wait=30").body(Body::empty()).expect("a request");
    let (waited, acked) = tokio::join!(service.send(waits), async {
        tokio::time::sleep(std::time::Duration::from_millis(150)).await;
        service.post("/v1/me/inbox/ack", &token, &json!({"ids": [id]}).to_string()).await.json()
    });
    assert_eq!((waited.status, &acked["acked"]), (StatusCode::NO_CONTENT, &json!(1)));
    assert_eq!(service.get(&receipt, "").await.status, StatusCode::NO_CONTENT);

    let late = post(&service, &path, &wanted, b"2").await;
    service.clock.set(noroshi_types::Timestamp(NOW.0 + 60_000));
    assert_eq!(service.get(&path_in(&late, "link"), "").await.status, StatusCode::GONE);
    service
        .get(&path_in(&late, "location").replace("message", "receipt"), "")
        .await
        .problem(404, "not_found");
}

#[tokio::test]
async fn a_sender_cancels_its_message() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    let (_, path) = endpoint(&service, &token, "").await;
    let answer = post(&service, &path, &[("ttl", "60"), ("prefer", "respond-async")], b"1").await;
    let message = path_in(&answer, "location");
    service.get(&message, "").await.problem(405, "method_not_allowed");
    service
        .delete(&path_in(&answer, "link").replace("receipt", "message"), "")
        .await
        .problem(404, "not_found");
    assert_eq!(service.delete(&message, "").await.status, StatusCode::NO_CONTENT);
    assert_eq!(service.get("/v1/me/inbox", &token).await.json()["total"], 0);
    assert_eq!(service.get(&path_in(&answer, "link"), "").await.status, StatusCode::GONE);
    // A provider's notification has no such URL, whatever its ID.
    service
        .delete("/push/message/AAAAAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB", "")
        .await
        .problem(404, "not_found");
}

fn signed(pair: &EcdsaKeyPair, claims: &Value) -> String {
    let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let token =
        format!("{}.{}", encode(br#"{"typ":"JWT","alg":"ES256"}"#), encode(claims.to_string().as_bytes()));
    let signature = pair.sign(&SystemRandom::new(), token.as_bytes()).expect("signed");
    let key = encode(pair.public_key().as_ref());
    format!("vapid t={token}.{}, k={key}", encode(signature.as_ref()))
}

fn key_pair() -> EcdsaKeyPair {
    let (random, algorithm) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
    let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
    EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).expect("its own")
}

#[tokio::test]
async fn a_bound_endpoint_requires_its_senders_signature() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    let (pair, other) = (key_pair(), key_pair());
    let body = json!({"vapid_key": URL_SAFE_NO_PAD.encode(pair.public_key().as_ref())}).to_string();
    let (_, path) = endpoint(&service, &token, &body).await;
    let (_, unbound) = endpoint(&service, &token, "").await;
    let exp = NOW.0 / 1_000 + 3_600;
    let right = json!({"aud": "http://push.example.com", "exp": exp, "sub": "mailto:a@example.com"});
    let send = async |path: &str, authorization: &str| {
        post(&service, path, &[("ttl", "1"), ("authorization", authorization)], b"x").await
    };
    assert_eq!(send(&path, &signed(&pair, &right)).await.status, StatusCode::CREATED);
    let missing = post(&service, &path, &[("ttl", "1")], b"x").await;
    missing.problem(401, "unauthorized");
    assert_eq!(missing.header("www-authenticate"), Some("vapid"));
    send(&path, &format!("Bearer {}", service.key)).await.problem(401, "unauthorized");
    send(&path, &signed(&other, &right)).await.problem(403, "forbidden");
    for wrong in [
        json!({"aud": "https://push.example.com", "exp": exp}),
        json!({"aud": "http://push.example.com", "exp": NOW.0 / 1_000 - 3_600}),
        json!({"aud": "http://push.example.com", "exp": exp + 86_400}),
    ] {
        let refused = send(&path, &signed(&pair, &wrong)).await;
        refused.problem(403, "forbidden");
    }
    for anything in [signed(&other, &right), "vapid t=x".to_owned()] {
        assert_eq!(
            send(&unbound, &anything).await.status,
            StatusCode::CREATED,
            "an unbound endpoint checks no signature"
        );
    }
}

#[tokio::test]
async fn a_flood_is_rate_limited_and_affects_no_other_app() {
    let service = Service::with(|state| state.config.web_push.endpoint_per_minute = 3).await;
    let token = service.device("d1", "u1").await;
    let ((_, path), (_, other)) =
        (endpoint(&service, &token, "").await, endpoint(&service, &token, "").await);
    let ttl = [("ttl", "1")];
    for _ in 0..3 {
        assert_eq!(post(&service, &path, &ttl, b"x").await.status, StatusCode::CREATED);
    }
    let refused = post(&service, &path, &ttl, b"x").await;
    refused.problem(429, "too_many_requests");
    assert_eq!(refused.header("retry-after"), Some("20"));
    assert_eq!(post(&service, &other, &ttl, b"x").await.status, StatusCode::CREATED);
    service.clock.set(noroshi_types::Timestamp(NOW.0 + 20_000));
    assert_eq!(post(&service, &path, &ttl, b"x").await.status, StatusCode::CREATED);
}

#[tokio::test]
async fn messages_that_cannot_be_stored_get_retry_after() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    let (_, path) = endpoint(&service, &token, "").await;
    service.edge.full.store(true, std::sync::atomic::Ordering::SeqCst);
    let refused = post(&service, &path, &[("ttl", "1")], b"x").await;
    refused.problem(503, "overloaded");
    assert_eq!(refused.header("retry-after"), Some("1"));
}
