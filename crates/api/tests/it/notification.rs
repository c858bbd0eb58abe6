//! Publishing, state, trace, cancelling, presence.

use http::{Method, StatusCode};
use noroshi_types::Scope;
use serde_json::json;

use crate::service::{NOW, Service, request};

#[tokio::test]
async fn a_notification_is_accepted_stored_and_delivered() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    let body =
        r#"{"to": {"users": ["u1", "u2"]}, "notification": {"title": "T"}, "data": {"n":  1}, "ttl": "1h"}"#;
    let answer = service.post("/v1/notifications", &service.key, body).await;
    assert_eq!(answer.status, StatusCode::ACCEPTED);
    assert_eq!(answer.json()["targets"], 2);
    let id = answer.json()["id"].as_str().expect("an id").to_owned();
    let delivered: Vec<String> =
        service.edge.messages().iter().map(|message| message.id.to_string()).collect();
    assert_eq!(delivered, [id.as_str()]);

    let state = service.get(&format!("/v1/notifications/{id}"), &service.key).await.json();
    assert_eq!(state["state"], "pending");
    assert_eq!(state["when"], "stored");
    assert_eq!(state["target"], json!({"kind": "users"}));
    assert_eq!(state["targets"], 2);
    assert_eq!(state["counts"]["kept"], 1);
    assert_eq!(state["counts"]["unknown"], 1);
    assert_eq!(state["sent_at"], NOW.to_string());

    let inbox = service.get("/v1/me/inbox", &token).await;
    assert!(inbox.text.contains(r#""data":{"n":  1}"#), "passed through unchanged: {}", inbox.text);
    assert_eq!(inbox.json()["messages"][0]["id"], id.as_str());
}

#[tokio::test]
async fn a_trace_has_a_summary() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    service.device("d2", "u2").await;
    let id = service.publish(r#"{"to": {"users": ["u1"]}, "data": 1}"#).await;
    let path = |device: &str| format!("/v1/notifications/{id}/devices/{device}");

    let trace = service.get(&path("d1"), &service.key).await.json();
    assert_eq!((&trace["in_inbox"], &trace["connected"]), (&json!(true), &json!(false)));
    assert_eq!(trace["steps"][0]["outcome"], "kept");
    assert_eq!(trace["summary"], "It is in the device's inbox until the device connects.");

    let not_meant = service.get(&path("d2"), &service.key).await.json();
    assert_eq!(
        (&not_meant["targeted_by"], &not_meant["reason"]),
        (&json!("none"), &json!("not_targeted")),
        "{not_meant}"
    );
    service.get(&path("nobody"), &service.key).await.problem(404, "not_found");

    let acked = service.post("/v1/me/inbox/ack", &token, &format!("{{\"ids\": [\"{id}\"]}}")).await;
    assert_eq!(acked.json(), json!({"acked": 1}));
    let trace = service.get(&path("d1"), &service.key).await.json();
    assert_eq!(
        (&trace["in_inbox"], &trace["summary"]),
        (&json!(false), &json!("The device acknowledged it."))
    );
}

#[tokio::test]
async fn a_trace_tells_an_absent_device_from_a_stranger() {
    let service = Service::start().await;
    service.device("d1", "u1").await;
    service.device("d2", "u2").await;
    let live = r#"{"to": {"users": ["u1"]}, "data": 1, "when": "connected"}"#;
    let id = service.publish(live).await;
    let trace = async |id: &str, device: &str| {
        service.get(&format!("/v1/notifications/{id}/devices/{device}"), &service.key).await.json()
    };
    let absent = wait_for_trace(&service, &format!("/v1/notifications/{id}/devices/d1")).await;
    let (by, reason) = (&absent["targeted_by"], &absent["reason"]);
    assert_eq!((by, reason), (&json!("user"), &json!("offline")), "{absent}");
    assert_eq!(absent["targeting"], "The request named the device's user \"u1\".");
    let stranger = trace(&id, "d2").await;
    let (by, reason) = (&stranger["targeted_by"], &stranger["reason"]);
    assert_eq!((by, reason), (&json!("none"), &json!("not_targeted")), "{stranger}");
    assert!(absent["push_due_at"].is_null() && absent["push_taken_at"].is_null());

    let fallback = r#"{"to": {"devices": ["d1"]}, "data": 1, "push": {"mode": "fallback", "after": "10m"}}"#;
    let token = r#"{"device": "d1", "push_token": {"service": "fcm", "token": "t1"}}"#;
    let updated = service.post("/v1/devices", &service.key, token).await;
    assert_eq!(updated.status, StatusCode::CREATED, "{}", updated.text);
    let id = service.publish(fallback).await;
    let waits = trace(&id, "d1").await;
    let due = noroshi_types::Timestamp(NOW.0 + 600_000).to_string();
    assert_eq!((&waits["targeted_by"], &waits["push_due_at"]), (&json!("device"), &json!(due)), "{waits}");
    assert!(
        waits["summary"]
            .as_str()
            .is_some_and(|summary| summary.ends_with(&format!("A push is due at {due}.")))
    );
}

/// The trace of a notification that is written in the background.
async fn wait_for_trace(service: &Service, path: &str) -> serde_json::Value {
    for _ in 0..1_000 {
        let answer = service.get(path, &service.key).await;
        if answer.status == StatusCode::OK {
            return answer.json();
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("{path} was not written");
}

#[tokio::test]
async fn cancelling_removes_it_from_the_inbox() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    let id = service.publish(r#"{"to": {"users": ["u1"]}, "data": 1}"#).await;
    let path = format!("/v1/notifications/{id}");
    let answer = service.delete(&path, &service.key).await;
    assert_eq!((answer.status, answer.json()), (StatusCode::OK, json!({"id": id, "removed": 1})));
    assert_eq!(service.get("/v1/me/inbox", &token).await.json()["total"], 0);
    assert_eq!(service.get(&path, &service.key).await.json()["state"], "cancelled");
    service
        .delete("/v1/notifications/01890a5d-ac96-774b-bcce-b302099a8057", &service.key)
        .await
        .problem(404, "not_found");
    service.delete("/v1/notifications/n1", &service.key).await.problem(400, "invalid_parameter");
}

#[tokio::test]
async fn every_kind_of_target_is_accepted_and_shown() {
    let service = Service::start().await;
    for (to, target, targets) in [
        (r#"{"devices": ["d1"]}"#, json!({"kind": "devices"}), json!(1)),
        (r#"{"topic": "news"}"#, json!({"kind": "topic", "topic": "news"}), json!(null)),
        (
            r#"{"condition": "'a' in topics"}"#,
            json!({"kind": "condition", "condition": "'a' in topics"}),
            json!(null),
        ),
        (r#"{"everyone": true}"#, json!({"kind": "everyone"}), json!(null)),
    ] {
        for when in ["active", "connected", "stored"] {
            let id = service.publish(&format!("{{\"to\": {to}, \"when\": \"{when}\", \"data\": 1}}")).await;
            // Messages for connected devices only are written asynchronously: they may take a moment to appear.
            let mut answer = service.get(&format!("/v1/notifications/{id}"), &service.key).await;
            for _ in 0..500 {
                if answer.status == StatusCode::OK {
                    break;
                }
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                answer = service.get(&format!("/v1/notifications/{id}"), &service.key).await;
            }
            let state = answer.json();
            assert_eq!(
                (&state["target"], &state["targets"], &state["when"]),
                (&target, &targets, &json!(when))
            );
        }
    }
}

#[tokio::test]
async fn an_idempotency_key_returns_the_first_response() {
    let service = Service::start().await;
    let publish = async |key: &str, body: &str| {
        let mut request = request(Method::POST, "/v1/notifications", &service.key, body);
        request.headers_mut().insert("idempotency-key", key.parse().expect("a header"));
        service.send(request).await
    };
    let body = r#"{"to": {"topic": "t"}, "data": 1}"#;
    let first = publish("k1", body).await;
    let second = publish("k1", body).await;
    assert_eq!((second.status, second.json()), (StatusCode::ACCEPTED, first.json()));
    assert_eq!(
        (first.header("idempotent-replayed"), second.header("idempotent-replayed")),
        (None, Some("true"))
    );
    assert_eq!(service.edge.messages().len(), 1, "delivered once");
    publish("k1", r#"{"to": {"topic": "t"}, "data": 2}"#).await.problem(409, "idempotency_conflict");
    assert_ne!(publish("k2", body).await.json(), first.json());
    assert_eq!(publish(&"k".repeat(255), body).await.status, StatusCode::ACCEPTED);
    publish(&"k".repeat(256), body).await.problem(400, "invalid_parameter");
    publish("two words", body).await.problem(400, "invalid_parameter");
}

#[tokio::test]
async fn presence_is_returned_per_user() {
    let service = Service::start().await;
    service.edge.connect(service.app(), "d1", "u1");
    let answer = service.post("/v1/presence", &service.key, r#"{"users": ["u1", "u2"]}"#).await;
    let expected = json!({"users": {
        "u1": {"presence": "active", "devices": [{"device": "d1", "presence": "active"}]},
        "u2": {"presence": "offline", "devices": []},
    }});
    assert_eq!(answer.json(), expected);
    let users =
        |count: usize| json!({"users": (0..count).map(|i| format!("u{i}")).collect::<Vec<_>>()}).to_string();
    assert_eq!(service.post("/v1/presence", &service.key, &users(1_000)).await.status, StatusCode::OK);
    let over = service.post("/v1/presence", &service.key, &users(1_001)).await.problem(400, "invalid_field");
    assert_eq!(over["field"], "users");
}

#[tokio::test]
async fn a_scope_grants_only_its_paths() {
    let service = Service::start().await;
    let body = r#"{"to": {"topic": "t"}, "data": 1}"#;
    let reader = service.key_with(&[Scope::Read]).await;
    let refused = service.post("/v1/notifications", &reader, body).await.problem(403, "forbidden");
    assert!(refused["detail"].as_str().is_some_and(|detail| detail.contains("\"publish\"")), "{refused}");
    assert_eq!(service.get("/v1/topics", &reader).await.status, StatusCode::OK);
    let publisher = service.key_with(&[Scope::Publish]).await;
    assert_eq!(service.post("/v1/notifications", &publisher, body).await.status, StatusCode::ACCEPTED);
    for (path, scope) in [("/v1/topics", "read"), ("/v1/devices", "read"), ("/v1/apps/dev", "admin")] {
        let refused = service.get(path, &publisher).await.problem(403, "forbidden");
        assert!(refused["detail"].as_str().is_some_and(|detail| detail.contains(scope)), "{refused}");
    }
    service.post("/v1/devices", &publisher, "{}").await.problem(403, "forbidden");
}
