//! Requests of a front to a cell: mirrored apps, and notifications with one key per line.

use http::{Method, StatusCode};
use serde_json::json;

use crate::service::{JWT_SECRET, NOW, OPERATOR, Service};

const RELAY: &str = "/v1/notifications/relay";

fn line(key: &str, expires_at_ms: u64, data: u32) -> String {
    let notification = json!({"to": {"users": ["u1"]}, "ttl": "1h", "data": data});
    json!({"key": key, "expires_at_ms": expires_at_ms, "notification": notification}).to_string()
}

#[tokio::test]
async fn a_line_is_accepted_once_in_any_batch() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    let end = NOW.0 + 60_000;
    let first = format!("{}\n{}\n", line("f1", end, 1), line("f2", end, 2));
    let first = service.post(RELAY, &service.key, &first).await;
    assert_eq!(first.status, StatusCode::OK, "{}", first.text);
    let again = format!("{}\n{}\n{}", line("f2", end, 2), line("f3", end, 3), line("f1", end, 9));
    let again = service.post(RELAY, &service.key, &again).await.lines();
    assert_eq!(again[0], first.lines()[1], "the position of a line does not matter");
    assert!(again[1]["id"].is_string());
    assert_eq!(again[2]["error"]["code"], "idempotency_conflict");
    let inbox = service.get("/v1/me/inbox", &token).await.json();
    assert_eq!(inbox["total"], 3);
    let id = first.lines()[0]["id"].as_str().expect("an id").to_owned();
    let state = service.get(&format!("/v1/notifications/{id}"), &service.key).await.json();
    assert_eq!(state["expires_at"], noroshi_types::Timestamp(end).to_string());
    // Keys of lines are separate from those of requests: the same text in a header is a different key.
    let request = r#"{"to": {"users": ["u1"]}, "data": 4}"#;
    let mut other = crate::service::request(Method::POST, "/v1/notifications", &service.key, request);
    other.headers_mut().insert("idempotency-key", "f1".parse().expect("a header"));
    assert_eq!(service.send(other).await.status, StatusCode::ACCEPTED);
}

/// A front of another version, or one before an older node of this cell, resends without a trace.
#[tokio::test]
async fn the_trace_does_not_affect_idempotency() {
    let service = Service::start().await;
    service.device("d1", "u1").await;
    let end = NOW.0 + 60_000;
    let line = |trace: &str, data: u32| {
        format!(
            r#"{{"key":"f1","expires_at_ms":{end},{trace}"notification":{{"to":{{"users":["u1"]}},"data":{data}}}}}"#
        )
    };
    let traced = r#""traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01","#;
    let lines = [line(traced, 1), line("", 1), line(traced, 1), line(traced, 2)].join("\n");
    let answers = service.post(RELAY, &service.key, &lines).await.lines();
    assert!(answers[0]["id"].is_string(), "{answers:?}");
    assert_eq!((&answers[1], &answers[2]), (&answers[0], &answers[0]));
    assert_eq!(answers[3]["error"]["code"], "idempotency_conflict");
}

#[tokio::test]
async fn an_invalid_line_does_not_block_others() {
    let service = Service::start().await;
    let lines = format!("{{\"key\": \"a\"}}\n{}", line("b", NOW.0 + 1_000, 1));
    let answers = service.post(RELAY, &service.key, &lines).await.lines();
    assert_eq!(answers[0]["error"]["code"], "invalid_field");
    assert!(answers[1]["id"].is_string(), "{answers:?}");
    service.post(RELAY, &service.key, "").await.problem(400, "invalid_json");
    service.post(RELAY, "", &lines).await.problem(401, "unauthorized");
}

const HASH_A: &str = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"; // SHA-256 of "a"
const HASH_B: &str = "3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d"; // of "b"

#[tokio::test]
async fn an_app_is_mirrored() {
    let service = Service::start().await;
    let put = async |app: &str, body: serde_json::Value| {
        service.operate(Method::PUT, &format!("/v1/apps/{app}"), OPERATOR, &body.to_string()).await
    };
    let key = |name: &str, hash: &str, scopes: &[&str]| json!({"name": name, "hash": hash, "scopes": scopes});
    let works = async |secret: &str| service.get("/v1/topics", secret).await.status == StatusCode::OK;

    let wanted = json!({"jwt_secret": JWT_SECRET, "keys": [key("one", HASH_A, &["read"]), key("two", HASH_B, &["read"])]});
    let made = put("fresh", wanted.clone()).await;
    assert_eq!(made.status, StatusCode::OK, "{}", made.text);
    assert_eq!((&made.json()["name"], &made.json()["jwt_secret_set"]), (&json!("fresh"), &json!(true)));
    assert!(works("a").await && works("b").await);
    let keys = async || service.operate(Method::GET, "/v1/apps/fresh/keys", OPERATOR, "").await.json();
    let before = keys().await;
    assert_eq!(put("fresh", wanted).await.status, StatusCode::OK);
    assert_eq!(keys().await, before, "repeating it changes nothing");

    // One key is removed, the other gets more scopes, the secret is removed.
    let wanted = json!({"keys": [key("one", HASH_A, &["read", "publish"])]});
    assert_eq!(put("fresh", wanted).await.json()["jwt_secret_set"], false);
    assert!(works("a").await && !works("b").await);
    assert_eq!(keys().await["keys"][0]["scopes"], json!(["publish", "read"]));

    // Locally created keys are removed too: the app is owned by the front.
    assert!(works(&service.other_key).await);
    assert_eq!(put("other", json!({"keys": []})).await.status, StatusCode::OK);
    assert!(!works(&service.other_key).await);
    put("dev", json!({"keys": [key("one", HASH_A, &["read"])]})).await.problem(409, "already_exists");
}

#[tokio::test]
async fn mirroring_is_strict_and_only_for_operators() {
    let service = Service::start().await;
    let put = async |app: &str, body: &str| {
        service.operate(Method::PUT, &format!("/v1/apps/{app}"), OPERATOR, body).await
    };
    put("Not%20a%20name", r#"{"keys": []}"#).await.problem(400, "invalid_parameter");
    put("x", "{}").await.problem(400, "invalid_field");
    put("x", r#"{"keys": [{"name": "k", "hash": "zz", "scopes": []}]}"#).await.problem(400, "invalid_field");
    put("x", r#"{"keys": [], "jwt_secret": "short"}"#).await.problem(400, "invalid_field");
    put("x", r#"{"keys": [], "name": "y"}"#).await.problem(400, "unknown_field");
    service
        .operate(Method::PUT, "/v1/apps/x", &service.key, r#"{"keys": []}"#)
        .await
        .problem(401, "unauthorized");
    service.put("/v1/apps/dev", &service.key, r#"{"keys": []}"#).await.problem(405, "method_not_allowed");
}
