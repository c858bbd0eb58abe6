//! Tenants are isolated: every route with another app's credential.

use http::Method;
use noroshi_api::router::public_paths;
use noroshi_types::Timestamp;

use crate::push::WEB_PUSH;
use crate::service::{NOW, OPERATOR, Service};

/// A body that the route would accept from its own app.
fn body(method: &Method, path: &str) -> &'static str {
    match (method.as_str(), path) {
        ("POST", "/v1/notifications" | "/v1/notifications/batch") => {
            r#"{"to":{"users":["u1"]},"data":"theirs"}"#
        }
        ("POST", "/v1/presence") => r#"{"users":["u1"]}"#,
        ("POST", "/v1/devices/batch") => r#"{"device":"d1","locale":"xx"}"#,
        ("POST", "/v1/devices") => r#"{"device":"d1","locale":"xx"}"#,
        ("PATCH", "/v1/me") => r#"{"locale":"xx"}"#,
        ("PUT", "/v1/me/push-token") => r#"{"service":"fcm","token":"x"}"#,
        ("PUT", "/v1/me/presence") => r#"{"state":"idle"}"#,
        ("POST", "/v1/me/inbox/ack" | "/v1/me/opened") => r#"{"ids":[]}"#,
        ("PUT", path) if path.ends_with("/preferences") => "{}",
        ("PATCH", "/v1/me/items") => r#"{"action":"read","ids":[]}"#,
        ("PATCH", "/v1/apps/{app}") => r#"{"jwt_secret":null}"#,
        ("POST", "/v1/apps/{app}/push") => WEB_PUSH,
        ("POST", "/v1/apps/{app}/push/{id}/test") => r#"{"device":"d1"}"#,
        ("POST", "/v1/apps/{app}/push/{id}/rotate") => {
            r#"{"credential":{"subject":"mailto:theirs@example.com"},"device":"d1"}"#
        }
        ("POST", "/v1/campaigns") => {
            r#"{"audience":{"everyone":true},"message":{"data":"theirs"},"start":false}"#
        }
        ("POST", "/v1/campaigns/{id}/recipients") => r#"{"user":"u1"}"#,
        ("PATCH", "/v1/campaigns/{id}") => r#"{"revision":1,"name":"theirs"}"#,
        ("POST", "/v1/apps/{app}/keys") => r#"{"name":"k","scopes":["admin"]}"#,
        _ => "",
    }
}

#[tokio::test]
async fn another_apps_credential_grants_no_access() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    service.edge.connect(service.app(), "d1", "u1");
    service.put("/v1/me/topics/t1", &token, "").await;
    let id = service.publish(r#"{"to": {"users": ["u1"]}, "data": "SECRET"}"#).await;
    service.publish(r#"{"to": {"topic": "t1"}, "data": "SECRET", "retain": true}"#).await;
    let before = service.get("/v1/me", &token).await.json();
    let topic_before = service.get("/v1/topics/t1", &service.key).await.json();
    let state_before = service.get(&format!("/v1/notifications/{id}"), &service.key).await.json();

    let credential = service.post("/v1/apps/dev/push", &service.key, WEB_PUSH).await.json();
    let credential = credential["id"].as_str().expect("an id");
    let draft = r#"{"audience": {"upload": true}, "message": {"data": "SECRET"}}"#;
    let campaign = service.post("/v1/campaigns", &service.key, draft).await.json();
    let campaign_path = format!("/v1/campaigns/{}", campaign["id"].as_str().expect("an id"));
    let campaign = service.get(&campaign_path, &service.key).await.json();

    let mut open = Vec::new();
    for (method, route) in public_paths() {
        let path = route
            .replace("/v1/campaigns/{id}", &campaign_path)
            .replace("push/{id}", &format!("push/{credential}"))
            .replace("{id}", &id)
            .replace("{device}", "d1")
            .replace("{topic}", "t1")
            .replace("{app}", "dev")
            .replace("{key}", "1");
        let answer = service.call(method.clone(), &path, &service.other_key, body(&method, route)).await;
        assert!(
            !answer.text.contains("SECRET") && !answer.text.contains(&id),
            "{method} {path}: {}",
            answer.text
        );
        if answer.status.is_success() {
            open.push(format!("{method} {route}"));
        }
        let anonymous = service.call(method.clone(), &path, "", body(&method, route)).await;
        let public = matches!(route, "/" | "/docs" | "/openapi.json" | "/v1/connect" | "/v1/events");
        // There the URL grants access.
        let refused = if route.starts_with("/push/") { 404 } else { 401 };
        assert!(public || anonymous.status == refused, "{method} {path}: {}", anonymous.text);
        let operator = service.call(method.clone(), &path, OPERATOR, body(&method, route)).await;
        assert!(public || operator.status == refused, "{method} {path}: {}", operator.text);
    }
    // Successful responses are about the other app's own, empty data.
    let own = [
        "POST /v1/notifications",
        "GET /v1/notifications",
        "POST /v1/notifications/batch",
        "POST /v1/campaigns",
        "GET /v1/campaigns",
        "GET /v1/activities",
        "POST /v1/presence",
        "GET /v1/topics",
        "GET /v1/topics/{topic}",
        "POST /v1/devices",
        "GET /v1/devices",
        "POST /v1/devices/batch",
        "GET /v1/devices/{device}",
        "DELETE /v1/devices/{device}",
        // Another app has its own users.
        "POST /v1/users/{user}/revoke",
        "GET /v1/users/{user}/items",
        "DELETE /v1/users/{user}/items",
        "GET /v1/users/{user}/items/counts",
        "GET /v1/users/{user}/preferences",
        "PUT /v1/users/{user}/preferences",
        "DELETE /v1/users/{user}/preferences",
        "GET /v1/push/invalidations",
        "GET /v1/push/channels",
        "GET /openapi.json",
        "GET /docs",
    ];
    assert_eq!(open, own);

    assert_eq!(
        service.get("/v1/me", &token).await.json(),
        before,
        "the device, its inbox and topics are untouched"
    );
    assert_eq!(service.get("/v1/topics/t1", &service.key).await.json(), topic_before);
    assert_eq!(service.get(&format!("/v1/notifications/{id}"), &service.key).await.json(), state_before);
    assert_eq!(service.get(&campaign_path, &service.key).await.json(), campaign);
    let credentials = service.get("/v1/apps/dev/push", &service.key).await.json();
    assert_eq!(credentials["credentials"].as_array().map(Vec::len), Some(1));
    let keys = service.get("/v1/apps/dev/keys", &service.key).await.json();
    assert_eq!(keys["keys"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn an_expired_key_opens_no_route() {
    let service = Service::start().await;
    let body_of_key = r#"{"name": "k", "scopes": ["publish", "devices", "read", "admin"],
        "expires_at": "2027-01-15T09:00:00Z"}"#;
    let made = service.post("/v1/apps/dev/keys", &service.key, body_of_key).await.json();
    let key = made["key"].as_str().expect("the key");
    let call = async |method: &Method, route: &str| {
        let path = route
            .replace("{device}", "d1")
            .replace("{user}", "u1")
            .replace("{topic}", "t1")
            .replace("{app}", "dev")
            .replace("{key}", "99")
            .replace("{kind}", "controls")
            .replace("{name}", "n")
            .replace("{id}", "99");
        service.call(method.clone(), &path, key, body(method, route)).await
    };
    let routes: Vec<(Method, &str)> = public_paths()
        .into_iter()
        .filter(|(_, route)| {
            !matches!(*route, "/" | "/docs" | "/openapi.json" | "/v1/connect" | "/v1/events")
        })
        .filter(|(_, route)| !route.starts_with("/push/"))
        .collect();
    let mut opened = Vec::new();
    for (method, route) in &routes {
        if call(method, route).await.status != 401 {
            opened.push((method.clone(), *route));
        }
    }
    assert!(opened.len() > 60, "the routes that take a key: {}", opened.len());
    // A connection whose earlier requests succeeded gets no access either.
    service.clock.set(Timestamp(NOW.0 + 3_600_000));
    for (method, route) in routes {
        let answer = call(&method, route).await;
        let problem = answer.problem(401, "unauthorized");
        let detail = problem["detail"].as_str().expect("a detail");
        if opened.contains(&(method.clone(), route)) {
            assert_eq!(
                detail, "the API key expired at 2027-01-15T09:00:00.000Z; create a new one",
                "{route}"
            );
        }
    }
    let keys = service.get("/v1/apps/dev/keys", &service.key).await.json();
    let listed = keys["keys"].as_array().into_iter().flatten().any(|one| one["id"] == made["id"]);
    assert!(listed, "an expired key stays in the list: {keys}");
    let path = format!("/v1/apps/dev/keys/{}", made["id"].as_str().expect("an id"));
    assert_eq!(service.delete(&path, &service.key).await.status, 204);
}

#[tokio::test]
async fn lists_and_counts_contain_only_the_own_app() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    service.put("/v1/me/topics/t1", &token, "").await;
    service.edge.connect(service.app(), "d1", "u1");
    let theirs = |path: &'static str| service.get(path, &service.other_key);
    assert_eq!(theirs("/v1/devices").await.json()["devices"], serde_json::json!([]));
    service.publish(r#"{"to": {"topic": "t1"}, "when": "connected", "data": 1}"#).await;
    for filter in ["", "?user=u1", "?device=d1", "?topic=t1"] {
        let path = format!("/v1/notifications{filter}");
        let listed = service.get(&path, &service.other_key).await.json();
        assert_eq!(listed["notifications"], serde_json::json!([]), "{path}");
    }
    assert_eq!(theirs("/v1/devices?token=none").await.json()["devices"], serde_json::json!([]));
    service.state.delivery.clone().run(std::future::ready(())).await;
    for filter in ["seen_after=2020-01-01T00:00:00Z", "seen=never", "seen_after=2020-01-01T00:00:00Z&user=u1"]
    {
        let path = format!("/v1/devices?{filter}");
        let listed = service.get(&path, &service.other_key).await.json();
        assert_eq!(listed["devices"], serde_json::json!([]), "{path}");
    }
    assert_eq!(theirs("/v1/topics").await.json()["topics"], serde_json::json!([]));
    assert_eq!(theirs("/v1/topics/t1").await.json()["subscribers"], 0);
    let presence = service.post("/v1/presence", &service.other_key, r#"{"users": ["u1"]}"#).await.json();
    assert_eq!(presence["users"]["u1"]["presence"], "offline");
    let id = service
        .post("/v1/notifications", &service.other_key, r#"{"to": {"users": ["u1"]}, "data": 1}"#)
        .await
        .json()["id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let state = service.get(&format!("/v1/notifications/{id}"), &service.other_key).await.json();
    assert_eq!(state["counts"], serde_json::json!({"unknown": 1}), "another app's user is unknown");
    assert_eq!(service.get("/v1/me", &token).await.json()["inbox"], 0);
}
