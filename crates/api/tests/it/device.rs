//! Devices as providers register and manage them.

use http::{Method, StatusCode};
use noroshi_types::CloseReason;
use serde_json::json;

use crate::service::{NOW, Service, in_an_hour, jwt};

#[tokio::test]
async fn a_device_gets_an_id_a_token_and_addresses() {
    let service = Service::start().await;
    let answer = service.post("/v1/devices", &service.key, "").await;
    assert_eq!(answer.status, StatusCode::CREATED);
    let body = answer.json();
    assert_eq!(body["device"].as_str().map(str::len), Some(32));
    let connect = json!({
        "websocket": "ws://push.example.com/v1/connect",
        "sse": "http://push.example.com/v1/events",
        "socketio": "http://push.example.com",
        "mqtt": "ws://push.example.com/mqtt",
        "xmpp": "ws://push.example.com/xmpp",
    });
    assert_eq!(body["connect"], connect);
    let another = service.post("/v1/devices", &service.key, "{}").await.json();
    assert_ne!(another["device"], body["device"]);
    let me = service.get("/v1/me", body["token"].as_str().expect("a token")).await.json();
    assert_eq!((&me["device"], &me["user"], &me["inbox"]), (&body["device"], &json!(null), &json!(0)));
}

#[tokio::test]
async fn configured_addresses_take_precedence() {
    let service =
        Service::with(|state| state.config.public_url = Some("https://push.example.org/".into())).await;
    let body = service.post("/v1/devices", &service.key, "{}").await.json();
    assert_eq!(body["connect"]["websocket"], "wss://push.example.org/v1/connect");
    assert_eq!(body["connect"]["sse"], "https://push.example.org/v1/events");
}

#[tokio::test]
async fn tcp_addresses_are_returned_if_configured() {
    let service = Service::with(|state| {
        state.config.mqtt_public_url = Some("mqtts://push.example.org:443".into());
        state.config.xmpp_public_url = Some("xmpp://chat.example.org:5222".into());
    })
    .await;
    let body = service.post("/v1/devices", &service.key, "{}").await.json();
    assert_eq!(body["connect"]["mqtt_tcp"], "mqtts://push.example.org:443");
    assert_eq!(body["connect"]["xmpp_tcp"], "xmpp://chat.example.org:5222");
    assert_eq!(body["connect"]["mqtt"], "ws://push.example.com/mqtt", "next to the public address");
    let me = service.get("/v1/me", body["token"].as_str().expect("a token")).await.json();
    assert_eq!(me["connect"], body["connect"]);
}

#[tokio::test]
async fn registering_again_updates_a_device() {
    let service = Service::start().await;
    let first = r#"{"device": "d1", "user": "u1", "platform": "ios", "locale": "ja-JP", "tags": {"a": "1"},
        "topics": ["news"], "push_token": {"service": "fcm", "token": "abc"}}"#;
    assert_eq!(service.post("/v1/devices", &service.key, first).await.status, StatusCode::CREATED);
    let second = r#"{"device": "d1", "locale": "en", "tags": {"b": "2"}, "topics": ["sports"]}"#;
    assert_eq!(service.post("/v1/devices", &service.key, second).await.status, StatusCode::CREATED);
    let device = service.get("/v1/devices/d1", &service.key).await.json();
    let expected = json!({
        "device": "d1", "user": "u1", "platform": "ios", "locale": "en", "timezone": null, "app_version": null,
        "tags": {"a": "1", "b": "2"}, "topics": ["news", "sports"],
        "push_token": {"service": "fcm", "token": "abc"}, "push_suspect": null, "presence": "offline", "created_at": NOW.to_string(),
        "last_seen": null,
        "push_tokens": [{"kind": "fcm", "name": "", "service": "fcm", "environment": "production", "topic": null,
            "registered_at": NOW.to_string(), "expires_at": null, "suspect": null, "main": true}],
        "endpoints": 0,
    });
    assert_eq!(device, expected);
}

#[tokio::test]
async fn a_device_that_moves_to_another_user_is_disconnected() {
    let service = Service::start().await;
    service.device("d1", "u1").await;
    service.edge.connect(service.app(), "d1", "u1");
    service.post("/v1/devices", &service.key, r#"{"device": "d1", "user": "u1"}"#).await;
    assert_eq!(service.edge.closed(), [], "the same user stays");
    service.post("/v1/devices/batch", &service.key, r#"{"device": "d1", "user": "u2"}"#).await;
    assert_eq!(service.edge.closed(), [("d1".to_owned(), CloseReason::Drain)]);
}

#[tokio::test]
async fn an_open_connection_subscribes_to_the_topics_of_a_registration() {
    let service = Service::start().await;
    let body = r#"{"device": "d1", "user": "u1", "topics": ["news"]}"#;
    assert_eq!(service.post("/v1/devices", &service.key, body).await.status, StatusCode::CREATED);
    let line = r#"{"device": "d1", "topics": ["news", "sports"]}"#;
    assert_eq!(service.post("/v1/devices/batch", &service.key, line).await.status, StatusCode::OK);
    let token = jwt(&json!({"sub": "u1", "device": "d1", "exp": in_an_hour(), "topics": ["jazz"]}));
    assert_eq!(
        service.get("/v1/me?app=dev", &token).await.json()["topics"],
        json!(["jazz", "news", "sports"])
    );
    let expected = ["d1 news", "d1 news", "d1 sports", "d1 jazz"];
    assert_eq!(service.edge.subscribed(), expected);
}

#[tokio::test]
async fn a_device_registers_itself_with_its_apps_jwt() {
    let service = Service::start().await;
    let token = jwt(&json!({"sub": "u1", "device": "d1", "exp": in_an_hour()}));
    let answer = service.post("/v1/devices?app=dev", &token, r#"{"platform": "web", "user": "u1"}"#).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text);
    let body = answer.json();
    assert_eq!(body["device"], "d1");
    let device_token = body["token"].as_str().expect("a token");
    assert_eq!(service.get("/v1/me", device_token).await.json()["platform"], "web");
    assert_eq!(service.post("/v1/devices?app=dev", &token, "{}").await.status, StatusCode::CREATED);
    let other_user = service.post("/v1/devices?app=dev", &token, r#"{"user": "u2"}"#).await;
    assert_eq!(other_user.problem(403, "forbidden")["field"], "user");
    let other_device = service.post("/v1/devices?app=dev", &token, r#"{"device": "d2"}"#).await;
    assert_eq!(other_device.problem(403, "forbidden")["field"], "device");
}

#[tokio::test]
async fn a_device_renews_its_own_token() {
    let service = Service::start().await;
    let old = service.device("d1", "u1").await;
    let day = std::time::Duration::from_secs(86_400);
    service.clock.set(NOW.saturating_add(29 * day));
    let answer = service.post("/v1/devices", &old, r#"{"app_version": "2"}"#).await;
    assert_eq!(answer.status, StatusCode::CREATED);
    let fresh = answer.json()["token"].as_str().expect("a token").to_owned();
    service.clock.set(NOW.saturating_add(31 * day));
    service.get("/v1/me", &old).await.problem(401, "unauthorized");
    assert_eq!(service.get("/v1/me", &fresh).await.json()["app_version"], "2");
}

#[tokio::test]
async fn devices_are_listed_in_pages() {
    let service = Service::start().await;
    for i in 0..5 {
        service.device(&format!("d{i}"), if i < 3 { "u1" } else { "u2" }).await;
    }
    let mut seen = Vec::new();
    let mut path = "/v1/devices?limit=2".to_owned();
    loop {
        let page = service.get(&path, &service.key).await.json();
        seen.extend(
            page["devices"].as_array().expect("devices").iter().map(|device| device["device"].clone()),
        );
        match page["next"].as_str() {
            Some(next) => path = format!("/v1/devices?limit=2&after={next}"),
            None => break,
        }
    }
    assert_eq!(seen, ["d0", "d1", "d2", "d3", "d4"]);
    let of_user = service.get("/v1/devices?user=u2", &service.key).await.json();
    assert_eq!(of_user["devices"].as_array().map(Vec::len), Some(2));
    for bad in ["limit=0", "limit=1001", "limit=x", "after=xyz", "user=", "unknown=1"] {
        service.get(&format!("/v1/devices?{bad}"), &service.key).await.problem(400, "invalid_parameter");
    }
}

#[tokio::test]
async fn revoking_and_deleting_invalidate_tokens_and_close_connections() {
    let service = Service::start().await;
    let old = service.device("d1", "u1").await;
    let answer = service.post("/v1/devices/d1/revoke", &service.key, "").await;
    assert_eq!((answer.status, &answer.json()["device"]), (StatusCode::OK, &json!("d1")));
    service.get("/v1/me", &old).await.problem(401, "unauthorized");
    let again = service.post("/v1/devices", &service.key, r#"{"device": "d1"}"#).await.json();
    let fresh = again["token"].as_str().expect("a token");
    assert_eq!(service.get("/v1/me", fresh).await.status, StatusCode::OK);

    assert_eq!(service.delete("/v1/devices/d1", &service.key).await.status, StatusCode::NO_CONTENT);
    service.get("/v1/me", fresh).await.problem(401, "unauthorized");
    service.delete("/v1/devices/d1", &service.key).await.problem(404, "not_found");
    service.post("/v1/devices/d1/revoke", &service.key, "").await.problem(404, "not_found");
    service.get("/v1/devices/d1", &service.key).await.problem(404, "not_found");
    assert_eq!(service.edge.closed().iter().filter(|(_, reason)| *reason == CloseReason::Revoked).count(), 2);
    // A device of the same name is a new one: old tokens stay invalid.
    service.device("d1", "u1").await;
    service.get("/v1/me", fresh).await.problem(401, "unauthorized");
    let bad = service.call(Method::GET, &format!("/v1/devices/{}", "d".repeat(129)), &service.key, "").await;
    assert_eq!(bad.problem(400, "invalid_parameter")["field"], "device");
}
