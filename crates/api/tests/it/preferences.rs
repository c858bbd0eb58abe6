//! Preferences of users and devices: each route and its errors, the first call, essential categories, explanations.

use http::{Method, StatusCode};
use noroshi_types::Scope;
use serde_json::{Value, json};

use crate::push::WEB_PUSH;
use crate::service::{OPERATOR, Service, in_an_hour, jwt};

fn all() -> Value {
    json!({
        "channels": ["live", "inbox"],
        "muted_topics": ["news", "sports/live"],
        "categories": {
            "news": {"channels": ["inbox"], "daily_max": 3},
            "promo": {"muted": true},
        },
        "quiet_hours": {"from": "22:00", "to": "07:30", "timezone": "Asia/Tokyo"},
    })
}

/// A device without a user.
async fn anonymous(service: &Service, device: &str) -> String {
    let body = json!({"device": device}).to_string();
    let made = service.post("/v1/devices", &service.key, &body).await.json();
    made["token"].as_str().expect("a token").to_owned()
}

#[tokio::test]
async fn preferences_are_replaced_shown_and_deleted() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    let places = [
        ("/v1/me/preferences", &token, "/v1/devices/d1/preferences", &service.key),
        ("/v1/me/user/preferences", &token, "/v1/users/u1/preferences", &service.key),
        ("/v1/devices/d1/preferences", &service.key, "/v1/me/preferences", &token),
        ("/v1/users/u1/preferences", &service.key, "/v1/me/user/preferences", &token),
    ];
    for (path, bearer, other, other_bearer) in places {
        let both = async || {
            let (one, other) = (service.get(path, bearer).await, service.get(other, other_bearer).await);
            assert_eq!((one.status, &one.json()), (StatusCode::OK, &other.json()), "{path}");
            one.json()
        };
        assert_eq!(both().await, json!({}), "{path}");
        let set = service.put(path, bearer, &all().to_string()).await;
        assert_eq!((set.status, set.json()), (StatusCode::OK, all()), "{path}");
        assert_eq!(both().await, all());
        let next = json!({"categories": {"a": {"muted": false, "daily_max": 0}}, "channels": []});
        assert_eq!(service.put(path, bearer, &next.to_string()).await.json(), next);
        assert_eq!(both().await, next, "a change replaces everything");
        assert_eq!(service.put(path, bearer, "{}").await.json(), json!({}));
        assert_eq!(both().await, json!({}));
        service.put(path, bearer, &all().to_string()).await;
        for _ in 0..2 {
            assert_eq!(service.delete(path, bearer).await.status, StatusCode::NO_CONTENT, "{path}");
        }
        assert_eq!(both().await, json!({}));
    }
    let normal = r#"{"channels": ["push", "live", "push"], "muted_topics": ["b", "a", "b"],
                     "quiet_hours": {"from": "22:00", "to": "07:00", "timezone": "asia/tokyo"}}"#;
    let stored = json!({"channels": ["live", "push"], "muted_topics": ["a", "b"],
        "quiet_hours": {"from": "22:00", "to": "07:00", "timezone": "Asia/Tokyo"}});
    assert_eq!(service.put("/v1/me/preferences", &token, normal).await.json(), stored);
}

#[tokio::test]
async fn invalid_preferences_name_the_field() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    let bad = [
        (r#"{"channels": ["smoke"]}"#, "invalid_field", "channels[0]"),
        (r#"{"muted_topics": ["$everyone"]}"#, "invalid_field", "muted_topics[0]"),
        (r#"{"categories": {"a": {"daily_max": 1001}}}"#, "invalid_field", "categories.a.daily_max"),
        (r#"{"categories": {"a": {"mute": true}}}"#, "unknown_field", "categories.a.mute"),
        (r#"{"quiet_hours": {"from": "22:00", "to": "22:00"}}"#, "invalid_field", "quiet_hours.to"),
        (
            r#"{"quiet_hours": {"from": "22:00", "to": "07:00", "timezone": "Asia/Edo"}}"#,
            "invalid_field",
            "quiet_hours.timezone",
        ),
    ];
    for (path, bearer) in [
        ("/v1/me/preferences", &token),
        ("/v1/me/user/preferences", &token),
        ("/v1/users/u1/preferences", &service.key),
        ("/v1/devices/d1/preferences", &service.key),
    ] {
        service.put(path, bearer, &all().to_string()).await;
        for (body, code, field) in bad {
            assert_eq!(service.put(path, bearer, body).await.problem(400, code)["field"], field, "{path}");
        }
        service.put(path, bearer, "").await.problem(400, "invalid_json");
        assert_eq!(service.get(path, bearer).await.json(), all(), "{path}");
    }
    for path in ["/v1/users/%00/preferences", "/v1/devices/%00/preferences"] {
        for method in [Method::GET, Method::PUT, Method::DELETE] {
            let answer = service.call(method.clone(), path, &service.key, "{}").await;
            assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{method} {path}: {}", answer.text);
        }
    }
}

#[tokio::test]
async fn an_unknown_user_has_preferences_and_an_unknown_device_has_none() {
    let service = Service::start().await;
    let path = "/v1/users/later/preferences";
    assert_eq!(service.get(path, &service.key).await.json(), json!({}));
    service.put(path, &service.key, &all().to_string()).await;
    let token = service.device("d1", "later").await;
    assert_eq!(service.get("/v1/me/user/preferences", &token).await.json(), all());
    for method in [Method::GET, Method::PUT, Method::DELETE] {
        let answer = service.call(method, "/v1/devices/nobody/preferences", &service.key, "{}").await;
        assert_eq!(answer.problem(404, "not_found")["detail"], "no such device");
    }
}

#[tokio::test]
async fn a_device_without_a_user_has_only_its_own() {
    let service = Service::start().await;
    let token = anonymous(&service, "d1").await;
    service.put("/v1/me/preferences", &token, &all().to_string()).await;
    for method in [Method::GET, Method::PUT, Method::DELETE] {
        let answer = service.call(method, "/v1/me/user/preferences", &token, "{}").await;
        let detail = "the device has no user; register it with one";
        assert_eq!(answer.problem(404, "not_found")["detail"], detail);
    }
    let me = service.get("/v1/me", &token).await.json();
    assert_eq!(me["preferences"], json!({"user": null, "device": all()}));
}

#[tokio::test]
async fn the_first_call_shows_a_change_at_once() {
    let service = Service::start().await;
    let (one, other) = (service.device("d1", "u1").await, service.device("d2", "u1").await);
    let stranger = service.device("d3", "u2").await;
    let shown = async |token: &str| service.get("/v1/me", token).await.json()["preferences"].clone();
    let none = json!({"user": null, "device": null});
    for token in [&one, &other, &stranger] {
        assert_eq!(shown(token).await, none);
    }
    let of_user = json!({"categories": {"promo": {"muted": true}}});
    service.put("/v1/me/user/preferences", &one, &of_user.to_string()).await;
    assert_eq!(shown(&one).await, json!({"user": of_user, "device": null}));
    assert_eq!(shown(&other).await, json!({"user": of_user, "device": null}));
    service.put("/v1/me/preferences", &other, &all().to_string()).await;
    assert_eq!(shown(&other).await, json!({"user": of_user, "device": all()}));
    assert_eq!(shown(&one).await["device"], Value::Null);
    service.delete("/v1/devices/d2/preferences", &service.key).await;
    assert_eq!(shown(&other).await["device"], Value::Null);
    service.put("/v1/users/u1/preferences", &service.key, "{}").await;
    assert_eq!((shown(&one).await, shown(&other).await), (none.clone(), none.clone()));
    assert_eq!(shown(&stranger).await, none);
    // The answer of a change has them too.
    service.put("/v1/me/preferences", &one, r#"{"channels": ["push"]}"#).await;
    let changed = service.call(Method::PATCH, "/v1/me", &one, r#"{"locale": "ja"}"#).await.json();
    assert_eq!(changed["preferences"]["device"], json!({"channels": ["push"]}));
}

#[tokio::test]
async fn each_credential_has_its_own_preferences_only() {
    let service = Service::start().await;
    let mine = service.device("d1", "u1").await;
    service.put("/v1/me/preferences", &mine, &all().to_string()).await;
    service.put("/v1/me/user/preferences", &mine, &all().to_string()).await;
    let methods = [Method::GET, Method::PUT, Method::DELETE];
    for method in &methods {
        for path in ["/v1/me/preferences", "/v1/me/user/preferences"] {
            for bearer in [&*service.key, OPERATOR, "wrong", ""] {
                service.call(method.clone(), path, bearer, "{}").await.problem(401, "unauthorized");
            }
        }
        for path in ["/v1/users/u1/preferences", "/v1/devices/d1/preferences"] {
            for bearer in [&*mine, OPERATOR, "wrong", ""] {
                service.call(method.clone(), path, bearer, "{}").await.problem(401, "unauthorized");
            }
            let enough = if *method == Method::GET { Scope::Read } else { Scope::Devices };
            let others =
                [Scope::Publish, Scope::Devices, Scope::Read].into_iter().filter(|scope| *scope != enough);
            let key = service.key_with(&others.collect::<Vec<_>>()).await;
            service.call(method.clone(), path, &key, "{}").await.problem(403, "forbidden");
        }
        // Another app has its own users and devices.
        let user = service.call(method.clone(), "/v1/users/u1/preferences", &service.other_key, "{}").await;
        assert!(user.status.is_success() && !user.text.contains("promo"), "{}", user.text);
        let device =
            service.call(method.clone(), "/v1/devices/d1/preferences", &service.other_key, "{}").await;
        device.problem(404, "not_found");
    }
    assert_eq!(service.get("/v1/users/u1/preferences", &service.key).await.json(), all());
    assert_eq!(service.get("/v1/devices/d1/preferences", &service.key).await.json(), all());
    let claims = json!({"sub": "u1", "device": "d9", "exp": in_an_hour()});
    assert_eq!(service.get("/v1/me/user/preferences", &jwt(&claims)).await.json(), all());
}

#[tokio::test]
async fn a_revoked_or_deleted_device_changes_nothing() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    service.put("/v1/me/user/preferences", &token, &all().to_string()).await;
    service.post("/v1/devices/d1/revoke", &service.key, "").await;
    let refused = async |token: &str| {
        for path in ["/v1/me/preferences", "/v1/me/user/preferences"] {
            for method in [Method::GET, Method::PUT, Method::DELETE] {
                service.call(method, path, token, "{}").await.problem(401, "unauthorized");
            }
        }
    };
    refused(&token).await;
    assert_eq!(service.get("/v1/users/u1/preferences", &service.key).await.json(), all());
    let token = service.device("d1", "u1").await;
    service.put("/v1/me/preferences", &token, &all().to_string()).await;
    service.delete("/v1/devices/d1", &service.key).await;
    refused(&token).await;
    // A new device of this id begins without, and the user's stay.
    let again = service.device("d1", "u1").await;
    assert_eq!(service.get("/v1/me/preferences", &again).await.json(), json!({}));
    assert_eq!(service.get("/v1/me/user/preferences", &again).await.json(), all());
}

#[tokio::test]
async fn essential_categories_are_set_by_operator_and_admin() {
    let service = Service::start().await;
    let app = service.get("/v1/apps/dev", &service.key).await.json();
    assert_eq!(app["essential_categories"], json!([]));
    let patch = async |body: &str| service.call(Method::PATCH, "/v1/apps/dev", &service.key, body).await;
    let set = patch(r#"{"essential_categories": ["alarm", "security", "alarm"]}"#).await;
    assert_eq!(set.json()["essential_categories"], json!(["alarm", "security"]));
    let same = patch(r#"{"essential_categories": null, "client_publish": []}"#).await.json();
    assert_eq!(same["essential_categories"], json!(["alarm", "security"]), "null changes nothing");
    for (body, field) in [
        (r#"{"essential_categories": ["A B"]}"#, "essential_categories[0]"),
        (r#"{"essential_categories": "alarm"}"#, "essential_categories"),
    ] {
        assert_eq!(patch(body).await.problem(400, "invalid_field")["field"], field);
    }
    let many: Vec<String> = (0..101).map(|number| format!("c{number}")).collect();
    let many = patch(&json!({"essential_categories": many}).to_string()).await;
    assert_eq!(many.problem(400, "invalid_field")["field"], "essential_categories");
    let devices = service.key_with(&[Scope::Devices, Scope::Publish, Scope::Read]).await;
    let refused =
        service.call(Method::PATCH, "/v1/apps/dev", &devices, r#"{"essential_categories": []}"#).await;
    refused.problem(403, "forbidden");

    let operate = async |method, path: &str, body: &str| {
        service.operate(method, path, OPERATOR, body).await.json()["essential_categories"].clone()
    };
    let new = r#"{"name": "shop", "essential_categories": ["alarm"]}"#;
    assert_eq!(operate(Method::POST, "/v1/apps", new).await, json!(["alarm"]));
    let none = r#"{"essential_categories": []}"#;
    assert_eq!(operate(Method::PATCH, "/v1/apps/shop", none).await, json!([]));
    let mirrored = r#"{"essential_categories": ["alarm"], "keys": []}"#;
    assert_eq!(operate(Method::PUT, "/v1/apps/shop", mirrored).await, json!(["alarm"]));
    assert_eq!(
        operate(Method::PUT, "/v1/apps/shop", r#"{"keys": []}"#).await,
        json!([]),
        "as an older front"
    );
}

#[tokio::test]
async fn a_notification_shows_its_category() {
    let service = Service::start().await;
    service.device("d1", "u1").await;
    let patch = r#"{"essential_categories": ["alarm"]}"#;
    service.call(Method::PATCH, "/v1/apps/dev", &service.key, patch).await;
    let shown = async |rest: Value| {
        let mut body = json!({"to": {"users": ["u1"]}, "data": 1});
        body.as_object_mut().expect("an object").extend(rest.as_object().expect("an object").clone());
        let id = service.publish(&body.to_string()).await;
        let state = service.get(&format!("/v1/notifications/{id}"), &service.key).await.json();
        (state["category"].clone(), state.get("essential").cloned())
    };
    assert_eq!(shown(json!({})).await, (Value::Null, None));
    assert_eq!(shown(json!({"category": "promo"})).await, (json!("promo"), None));
    assert_eq!(shown(json!({"category": "alarm"})).await, (json!("alarm"), Some(json!(true))));
    assert_eq!(shown(json!({"item": {"category": "orders"}})).await.0, "orders");
    let both = shown(json!({"category": "promo", "item": {"category": "promo"}})).await;
    assert_eq!(both.0, "promo");
    let bad = r#"{"to": {"users": ["u1"]}, "data": 1, "category": "A B"}"#;
    let bad = service.post("/v1/notifications", &service.key, bad).await;
    assert_eq!(bad.problem(400, "invalid_field")["field"], "category");
    let lines = "{\"to\":{\"users\":[\"u1\"]},\"data\":1,\"category\":\"promo\"}\n{\"to\":{\"users\":[\"u1\"]},\"data\":1,\"category\":\"\"}\n";
    let lines = service.post("/v1/notifications/batch", &service.key, lines).await.lines();
    assert_eq!((lines[0]["id"].is_string(), &lines[1]["error"]["field"]), (true, &json!("category")));

    let campaign = |category: &str| json!({"audience": {"everyone": true}, "start": false, "message": {"data": 1, "category": category}});
    let made = service.post("/v1/campaigns", &service.key, &campaign("promo").to_string()).await.json();
    assert_eq!(made["message"]["category"], "promo");
    let path = format!("/v1/campaigns/{}", made["id"].as_str().expect("an id"));
    assert_eq!(service.get(&path, &service.key).await.json()["message"]["category"], "promo");
    let bad = service.post("/v1/campaigns", &service.key, &campaign("A B").to_string()).await;
    assert_eq!(bad.problem(400, "invalid_field")["field"], "message.category");
}

#[tokio::test]
async fn a_suppressed_push_is_explained() {
    let service = Service::running().await;
    service.post("/v1/apps/dev/push", &service.key, WEB_PUSH).await;
    let patch = r#"{"essential_categories": ["alarm"]}"#;
    service.call(Method::PATCH, "/v1/apps/dev", &service.key, patch).await;
    let token = crate::push::web_push_device(&service, "d1", "u1").await;
    let preferences = json!({
        "muted_topics": ["noise"],
        "categories": {
            "promo": {"muted": true}, "alarm": {"muted": true},
            "digest": {"channels": ["inbox"]}, "chat": {"daily_max": 1},
        },
    });
    service.put("/v1/me/preferences", &token, &preferences.to_string()).await;
    service.put("/v1/me/topics/noise", &token, "").await;
    let sent = async |to: Value, category: Option<&str>| {
        // What is stored is left out for devices that mute its category.
        let body = json!({"to": to, "when": "active", "category": category, "notification": {"title": "t"}, "push": {"mode": "always"}});
        let id = service.publish(&body.to_string()).await;
        let path = format!("/v1/notifications/{id}/devices/d1");
        let is_settled = |trace: &Value| {
            let steps = trace["steps"].as_array().into_iter().flatten();
            steps.clone().any(|step| step["outcome"].as_str().is_some_and(|name| name.starts_with("push")))
        };
        let trace = service.until(&path, is_settled).await;
        (trace["reason"].clone(), trace["summary"].as_str().expect("a summary").to_owned())
    };
    let user = || json!({"users": ["u1"]});
    let (reason, summary) = sent(user(), Some("promo")).await;
    assert_eq!(reason, "push_muted");
    assert!(summary.ends_with("It was not pushed: the preferences mute its topic or category."), "{summary}");
    assert_eq!(sent(json!({"topic": "noise"}), None).await.0, "push_muted");
    let (reason, summary) = sent(user(), Some("digest")).await;
    assert_eq!(reason, "push_channel_off");
    assert!(summary.ends_with("It was not pushed: the preferences do not allow pushes."), "{summary}");
    assert_eq!(sent(user(), Some("alarm")).await.0, Value::Null, "essential");
    assert_eq!(sent(user(), None).await.0, Value::Null);
    assert_eq!(sent(user(), Some("chat")).await.0, Value::Null);
    let (reason, summary) = sent(user(), Some("chat")).await;
    assert_eq!(reason, "push_capped");
    assert!(summary.contains("as many notifications of the category on that day"), "{summary}");
    assert_eq!(service.push.tokens().len(), 3);
}
