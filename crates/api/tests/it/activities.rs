//! Live Activities: what providers and devices may do, and what they see.

use http::{Method, StatusCode};
use noroshi_types::Scope;
use serde_json::{Value, json};

use crate::service::{Service, request};

const PATH: &str = "/v1/activities";

fn new(id: &str) -> Value {
    json!({
        "to": {"users": ["u1"]}, "id": id, "attributes_type": "Match", "attributes": {"home": "A"},
        "content_state": {"score": "0:0"}, "alert": {"title": "Kick-off"},
    })
}

async fn started(service: &Service, body: &Value) -> Value {
    let answer = service.post(PATH, &service.key, &body.to_string()).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text);
    answer.json()
}

async fn patch(service: &Service, id: &str, body: Value) -> crate::service::Answer {
    service.call(Method::PATCH, &format!("{PATH}/{id}"), &service.key, &body.to_string()).await
}

async fn end(service: &Service, id: &str, body: &str) -> crate::service::Answer {
    service.call(Method::DELETE, &format!("{PATH}/{id}"), &service.key, body).await
}

/// The data of the live messages so far.
fn live(service: &Service) -> Vec<Value> {
    let data = |message: &noroshi_types::Message| message.data.as_ref().map(|data| data.as_str().to_owned());
    let messages = service.edge.messages();
    let data = messages.iter().filter_map(|message| data(message));
    data.map(|data| serde_json::from_str(&data).expect("JSON")).collect()
}

#[tokio::test]
async fn an_activity_is_started_updated_and_ended() {
    let service = Service::start().await;
    service.device("d1", "u1").await;
    let made = started(&service, &new("m1")).await;
    assert_eq!((&made["id"], &made["state"], &made["version"]), (&json!("m1"), &json!("active"), &json!(1)));
    assert_eq!(made["change"]["priority"], 10);
    assert!(made["change"]["notification"].is_string());
    assert_eq!(made["target"], json!({"kind": "users", "named": 1}));
    let updated =
        patch(&service, "m1", json!({"content_state": {"score": "1:0"}, "relevance": 2})).await.json();
    assert_eq!((&updated["version"], &updated["change"]["priority"]), (&json!(2), &json!(5)));
    let goal = json!({"content_state": {"score": "2:0"}, "urgency": "high", "alert": {"title": "Goal"}});
    let updated = patch(&service, "m1", goal).await.json();
    assert_eq!((&updated["change"]["priority"], &updated["high_priority_left"]), (&json!(10), &json!(9)));
    assert_eq!((&updated["attributes"]["home"], &updated["relevance"]), (&json!("A"), &json!(2)));

    let ended = end(&service, "m1", r#"{"content_state": {"score": "2:1"}}"#).await.json();
    assert_eq!((&ended["state"], &ended["version"]), (&json!("ended"), &json!(4)));
    end(&service, "m1", "").await.problem(409, "wrong_state");
    patch(&service, "m1", json!({"relevance": 1})).await.problem(409, "wrong_state");
    end(&service, "m2", "").await.problem(404, "not_found");
    patch(&service, "m2", json!({"relevance": 1})).await.problem(404, "not_found");

    // The same for connected devices, as messages of which the newest counts.
    let messages = service.edge.messages();
    assert_eq!(messages.len(), 4);
    let live = live(&service);
    let events: Vec<&Value> = live.iter().map(|data| &data["activity"]["event"]).collect();
    assert_eq!(events, ["start", "update", "update", "end"]);
    assert_eq!(live[0]["activity"]["attributes"], json!({"home": "A", "noroshiActivity": "m1"}));
    assert_eq!(live[3]["activity"]["content_state"], json!({"score": "2:1"}));
    let titles: Vec<Option<&str>> =
        messages.iter().map(|message| message.notification.as_ref().map(|text| text.as_str())).collect();
    assert_eq!(titles, [Some(r#"{"title":"Kick-off"}"#), None, Some(r#"{"title":"Goal"}"#), None]);
}

#[tokio::test]
async fn activities_are_listed_and_shown_with_their_progress() {
    let service = Service::running().await;
    service.device("d1", "u1").await;
    let made = started(&service, &json!({
        "to": {"topic": "t"}, "attributes_type": "A", "content_state": {}, "alert": {"title": "t"}, "when": "stored",
    })).await;
    let drawn = made["id"].as_str().expect("an id").to_owned();
    started(&service, &new("m1")).await;
    let page = service.get(&format!("{PATH}?limit=1"), &service.key).await.json();
    assert_eq!(
        (&page["activities"][0]["id"], page["activities"].as_array().map(Vec::len)),
        (&json!("m1"), Some(1))
    );
    let next = page["next"].as_str().expect("a position");
    let page = service.get(&format!("{PATH}?limit=9&after={next}"), &service.key).await.json();
    assert_eq!((&page["activities"][0]["id"], &page["next"]), (&json!(drawn), &Value::Null));
    service.get(&format!("{PATH}?after=x"), &service.key).await.problem(400, "invalid_parameter");
    let shown =
        service.until(&format!("{PATH}/m1"), |activity| activity["progress"]["collected"] == true).await;
    assert_eq!(shown["devices"], 1);
    let traced = service.get(&format!("{PATH}/m1/devices/d1"), &service.key).await.json();
    assert_eq!((&traced["state"], &traced["waiting"]), (&json!("live_only"), &json!(false)), "{traced}");
    assert_eq!((&traced["targeted_by"], &traced["cause"]), (&json!("user"), &json!("no_token")), "{traced}");
    service.device("d2", "u2").await;
    let traced = service.get(&format!("{PATH}/m1/devices/d2"), &service.key).await.json();
    assert_eq!(traced["state"], "not_invited");
    assert_eq!((&traced["targeted_by"], &traced["cause"]), (&json!("none"), &json!("not_targeted")));
    assert_eq!(traced["targeting"], "The request did not name the device's user \"u2\".");
    service.get(&format!("{PATH}/m1/devices/d3"), &service.key).await.problem(404, "not_found");
    service.get(&format!("{PATH}/m2/devices/d1"), &service.key).await.problem(404, "not_found");
}

#[tokio::test]
async fn a_repeated_start_returns_the_first_activity() {
    let service = Service::start().await;
    let send = async |key: &str, body: &Value| {
        let mut request = request(Method::POST, PATH, &service.key, &body.to_string());
        request.headers_mut().insert("idempotency-key", key.parse().expect("a value"));
        service.send(request).await
    };
    let mut without_id = new("m1");
    without_id.as_object_mut().expect("an object").remove("id");
    let first = send("k", &without_id).await;
    let again = send("k", &without_id).await;
    assert_eq!((first.status, again.status), (StatusCode::CREATED, StatusCode::CREATED));
    assert_eq!(first.json()["id"], again.json()["id"]);
    assert_eq!(
        (first.header("idempotent-replayed"), again.header("idempotent-replayed")),
        (None, Some("true"))
    );
    send("k", &new("m1")).await.problem(409, "idempotency_conflict");
    started(&service, &new("m1")).await;
    let problem =
        service.post(PATH, &service.key, &new("m1").to_string()).await.problem(409, "already_exists");
    assert_eq!(problem["field"], "id");
}

#[tokio::test]
async fn nobody_else_sees_or_changes_an_activity() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    started(&service, &new("m1")).await;
    let reader = service.key_with(&[Scope::Read]).await;
    let publisher = service.key_with(&[Scope::Publish]).await;
    let (one, of_device) = (format!("{PATH}/m1"), format!("{PATH}/m1/devices/d1"));
    let update = r#"{"relevance": 1}"#;
    let writes = [
        (Method::POST, PATH, new("m2").to_string()),
        (Method::PATCH, &one, update.to_owned()),
        (Method::DELETE, &one, String::new()),
    ];
    for (method, path, body) in &writes {
        // A stranger, a device, and keys without the scope.
        for bearer in ["", "wrong", &token] {
            service.call(method.clone(), path, bearer, body).await.problem(401, "unauthorized");
        }
        service.call(method.clone(), path, &reader, body).await.problem(403, "forbidden");
    }
    for path in [PATH, &one, &of_device] {
        for bearer in ["", "wrong", &token] {
            service.get(path, bearer).await.problem(401, "unauthorized");
        }
        service.get(path, &publisher).await.problem(403, "forbidden");
    }
    // Another tenant.
    for (method, path, body) in &writes[1..] {
        service.call(method.clone(), path, &service.other_key, body).await.problem(404, "not_found");
    }
    service.get(&one, &service.other_key).await.problem(404, "not_found");
    service.get(&of_device, &service.other_key).await.problem(404, "not_found");
    assert_eq!(service.get(PATH, &service.other_key).await.json()["activities"], json!([]));
    // The ids of two tenants are independent.
    let other = service.post(PATH, &service.other_key, &new("m1").to_string()).await;
    assert_eq!(other.status, StatusCode::CREATED, "{}", other.text);
    // A key that was revoked.
    let keys = service.get("/v1/apps/dev/keys", &service.key).await.json();
    let is_publisher = |key: &&Value| key["scopes"] == json!(["publish"]);
    let id = keys["keys"].as_array().expect("a list").iter().find(is_publisher).expect("a key")["id"].clone();
    let id = id.as_str().map_or_else(|| id.to_string(), str::to_owned);
    let revoked = service.delete(&format!("/v1/apps/dev/keys/{id}"), &service.key).await;
    assert_eq!(revoked.status, StatusCode::NO_CONTENT, "{}", revoked.text);
    for (method, path, body) in &writes {
        service.call(method.clone(), path, &publisher, body).await.problem(401, "unauthorized");
    }
    let shown = service.get(&one, &service.key).await.json();
    assert_eq!((&shown["version"], &shown["state"]), (&json!(1), &json!("active")));
}

#[tokio::test]
async fn a_device_joins_only_with_a_token_of_its_own() {
    let service = Service::running().await;
    let mine = service.device("d1", "u1").await;
    let other = service.device("d2", "u2").await;
    let foreign = {
        let body = json!({"device": "f1", "user": "u1"});
        let made = service.post("/v1/devices", &service.other_key, &body.to_string()).await.json();
        made["token"].as_str().expect("a token").to_owned()
    };
    started(&service, &new("m1")).await;
    service.until(&format!("{PATH}/m1"), |activity| activity["progress"]["collected"] == true).await;
    let token_path = "/v1/me/push-tokens/live-activity/m1";
    let token = r#"{"token": "00aa11"}"#;
    service.put(token_path, "wrong", token).await.problem(401, "unauthorized");
    service.put(token_path, &service.key, token).await.problem(401, "unauthorized");
    // Registered, but not invited: it gets nothing of the activity.
    for bearer in [&other, &foreign] {
        assert_eq!(service.put(token_path, bearer, token).await.status, StatusCode::NO_CONTENT);
    }
    let state = async |device: &str| {
        service.get(&format!("{PATH}/m1/devices/{device}"), &service.key).await.json()["state"].clone()
    };
    assert_eq!(state("d2").await, "not_invited");
    assert_eq!(service.put(token_path, &mine, token).await.status, StatusCode::NO_CONTENT);
    assert_eq!(state("d1").await, "joined");
    let shown = service.get(&format!("{PATH}/m1"), &service.key).await.json();
    assert_eq!(shown["devices"], 1);
    // Anyone of the app may join this one, also by a registration.
    let mut open = new("open");
    open["join"] = json!("anyone");
    started(&service, &open).await;
    let registered =
        json!({"device": "d3", "push_tokens": [{"kind": "live-activity", "name": "open", "token": "00"}]});
    service.post("/v1/devices", &service.key, &registered.to_string()).await;
    assert_eq!(
        service.put("/v1/me/push-tokens/live-activity/open", &foreign, token).await.status,
        StatusCode::NO_CONTENT
    );
    let shown = service.until(&format!("{PATH}/open"), |activity| activity["devices"] == 2).await;
    assert_eq!(shown["join"], "anyone");
    let traced = service.get(&format!("{PATH}/open/devices/d3"), &service.key).await.json();
    assert_eq!(traced["state"], "joined");
}

#[tokio::test]
async fn errors_name_the_field() {
    let service = Service::start().await;
    let refused = async |field: &str, value: Value| {
        let mut body = new("m9");
        body[field] = value;
        service.post(PATH, &service.key, &body.to_string()).await
    };
    for (field, value, code, status, at) in [
        ("to", json!({}), "invalid_field", 400, "to"),
        ("ttl", json!("13h"), "invalid_field", 400, "ttl"),
        ("content_state", json!([1]), "invalid_field", 400, "content_state"),
        ("alert", json!({"body": "b"}), "invalid_field", 400, "alert.title"),
        ("attributes_type", json!("a b"), "invalid_field", 400, "attributes_type"),
        ("shape", json!(1), "unknown_field", 400, "shape"),
        ("content_state", json!({"a": "x".repeat(4_200)}), "data_too_large", 413, "content_state"),
    ] {
        let problem = refused(field, value).await.problem(status, code);
        assert_eq!(problem["field"], at, "{problem}");
    }
    // Each part fits, but not all together into a push.
    let mut large = new("m9");
    large["content_state"] = json!({"a": "x".repeat(2_100)});
    large["attributes"] = json!({"a": "x".repeat(2_100)});
    service.post(PATH, &service.key, &large.to_string()).await.problem(413, "push_payload_too_large");
    started(&service, &new("m1")).await;
    let update = json!({"content_state": {"a": "x".repeat(4_050)}});
    patch(&service, "m1", update).await.problem(413, "push_payload_too_large");
    patch(&service, "m1", json!({})).await.problem(400, "invalid_field");
    patch(&service, "a%20b", json!({"relevance": 1})).await.problem(400, "invalid_parameter");
    let problem = end(&service, "m1", r#"{"dismissal_date": "2030-01-01T00:00:00Z"}"#).await;
    assert_eq!(problem.problem(400, "invalid_field")["field"], "dismissal_date");
    let shown = service.get(&format!("{PATH}/m1"), &service.key).await.json();
    assert_eq!(shown["version"], 1, "nothing was changed");
}

#[tokio::test]
async fn beyond_the_budget_an_update_has_priority_five() {
    let service = Service::start().await;
    started(&service, &new("m1")).await;
    let mut priorities = Vec::new();
    for number in 0..12 {
        let update = json!({"content_state": {"n": number}, "urgency": "high"});
        priorities.push(patch(&service, "m1", update).await.json()["change"]["priority"].as_u64());
    }
    assert_eq!(priorities.iter().filter(|priority| **priority == Some(10)).count(), 10);
    assert_eq!(priorities[10..], [Some(5), Some(5)]);
    let shown = service.get(&format!("{PATH}/m1"), &service.key).await.json();
    assert_eq!(shown["high_priority_left"], 0);
}
