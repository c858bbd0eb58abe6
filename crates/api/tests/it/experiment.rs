//! Experiments and maintenance notices of an app: definition, end, and delivery to devices.

use http::{Method, StatusCode};
use noroshi_types::{Scope, Timestamp};
use serde_json::{Value, json};

use crate::service::{NOW, OPERATOR, Service};

const PATH: &str = "/v1/apps/dev/experiments/button";

fn half() -> Value {
    json!({"variants": [{"name": "control", "weight": 1}, {"name": "green", "weight": 1}]})
}

fn time(seconds: u64) -> String {
    Timestamp(NOW.0 + seconds * 1_000).to_string()
}

impl Service {
    async fn variant(&self, token: &str) -> Value {
        self.get("/v1/me", token).await.json()["experiments"]["button"]["variant"].clone()
    }
}

#[tokio::test]
async fn an_experiment_is_created_changed_killed_and_archived() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    assert_eq!(service.variant(&token).await, Value::Null);
    let made = service.put(PATH, &service.key, &half().to_string()).await.json();
    assert_eq!((&made["state"], &made["created_at"]), (&json!("running"), &json!(NOW.to_string())));
    let variant = service.variant(&token).await;
    assert!(variant == "control" || variant == "green", "{variant}");
    let told = service.get(&format!("{PATH}/devices/d1"), &service.key).await.json();
    assert_eq!((&told["variant"], &told["running"]), (&variant, &json!(true)));
    // Assigned by override.
    let other = if variant == "green" { "control" } else { "green" };
    let mut named = half();
    named["overrides"] = json!({"users": {"u1": other}});
    service.put(PATH, &service.key, &named.to_string()).await;
    assert_eq!(service.variant(&token).await, other);
    let killed = service.call(Method::PATCH, PATH, &service.key, r#"{"killed": true}"#).await.json();
    assert_eq!((&killed["state"], &killed["overrides"]["users"]["u1"]), (&json!("killed"), &json!(other)));
    assert_eq!(service.variant(&token).await, Value::Null);
    service.operate(Method::PATCH, PATH, OPERATOR, r#"{"killed": false}"#).await;
    assert_eq!(service.variant(&token).await, other);
    assert_eq!(service.delete(PATH, &service.key).await.status, StatusCode::NO_CONTENT);
    assert_eq!(service.variant(&token).await, Value::Null);
    service.delete(PATH, &service.key).await.problem(404, "not_found");
    service.call(Method::PATCH, PATH, &service.key, r#"{"killed": false}"#).await.problem(409, "wrong_state");
    assert_eq!(service.get(PATH, &service.key).await.json()["state"], "archived");
    let live = service.get("/v1/apps/dev/experiments", &service.key).await.json();
    assert_eq!(live, json!({"experiments": [], "next": null}));
    let archived = service.get("/v1/apps/dev/experiments?archived=true&limit=1", &service.key).await.json();
    assert_eq!(archived["experiments"][0]["name"], "button");
    let next = archived["next"].as_str().expect("there may be more");
    let path = format!("/v1/apps/dev/experiments?archived=true&after={next}");
    assert_eq!(service.get(&path, &service.key).await.json()["experiments"], json!([]));
}

#[tokio::test]
async fn an_experiment_has_an_audience_and_a_time() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    let mut body = half();
    body["audience"] = json!({"condition": "'beta' in topics", "devices": {"platforms": ["ios"]}});
    body["starts_at"] = json!(time(10));
    body["ends_at"] = json!(time(20));
    let made = service.put(PATH, &service.key, &body.to_string()).await.json();
    assert_eq!((&made["state"], &made["audience"]), (&json!("scheduled"), &body["audience"]));
    service.call(Method::PATCH, "/v1/me", &token, r#"{"platform": "ios"}"#).await;
    service.clock.set(Timestamp(NOW.0 + 10_000));
    assert_eq!(service.variant(&token).await, Value::Null, "not in the topic");
    service.put("/v1/me/topics/beta", &token, "").await;
    assert!(service.variant(&token).await.is_string());
    service.call(Method::PATCH, "/v1/me", &token, r#"{"platform": "web"}"#).await;
    assert_eq!(service.variant(&token).await, Value::Null);
    service.call(Method::PATCH, "/v1/me", &token, r#"{"platform": "ios"}"#).await;
    service.clock.set(Timestamp(NOW.0 + 19_999));
    assert!(service.variant(&token).await.is_string());
    service.clock.set(Timestamp(NOW.0 + 20_000));
    assert_eq!(service.variant(&token).await, Value::Null);
    assert_eq!(service.get(PATH, &service.key).await.json()["state"], "ended");
}

#[tokio::test]
async fn ended_experiments_are_archived_automatically() {
    let service = Service::running().await;
    let mut body = half();
    body["ends_at"] = json!(time(5));
    service.put(PATH, &service.key, &body.to_string()).await;
    service.clock.set(Timestamp(NOW.0 + 5_000));
    let state = |answer: &Value| answer["state"] == "archived";
    // The next reload checks; any change triggers one.
    service.put("/v1/apps/dev/experiments/other", &service.key, &half().to_string()).await;
    service.until(PATH, state).await;
}

#[tokio::test]
async fn exposures_are_recorded_for_the_devices_experiments_only() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    service.put(PATH, &service.key, &half().to_string()).await;
    let variant = service.variant(&token).await;
    let body = r#"{"experiments": ["button", "unknown", "button"]}"#;
    let exposed = service.post("/v1/me/exposures", &token, body).await;
    assert_eq!(exposed.json(), json!({"exposed": {"button": variant}}), "{}", exposed.text);
    service.post("/v1/me/exposures", &service.key, body).await.problem(401, "unauthorized");
}

#[tokio::test]
async fn unauthorized_and_invalid_changes_are_rejected() {
    let service = Service::start().await;
    let put = async |path: &str, key: &str, body: &Value| service.put(path, key, &body.to_string()).await;
    let publisher = service.key_with(&[Scope::Publish, Scope::Read, Scope::Devices]).await;
    put(PATH, &publisher, &half()).await.problem(403, "forbidden");
    put(PATH, &service.other_key, &half()).await.problem(404, "not_found");
    put("/v1/apps/dev/experiments/A", &service.key, &half()).await.problem(400, "invalid_parameter");
    put(PATH, &service.key, &json!({"variants": []})).await.problem(400, "invalid_field");
    let mut past = half();
    past["ends_at"] = json!(NOW.to_string());
    assert_eq!(put(PATH, &service.key, &past).await.problem(400, "invalid_field")["field"], "ends_at");
    service.get(PATH, &service.key).await.problem(404, "not_found");
    service.get(&format!("{PATH}/devices/d1"), &service.key).await.problem(404, "not_found");
    service
        .get("/v1/apps/dev/experiments?archived=true&after=x", &service.key)
        .await
        .problem(400, "invalid_parameter");
    let notice = json!({"starts_at": time(1), "ends_at": time(2), "data": "x".repeat(2_048)});
    put("/v1/apps/dev/notices/n", &service.key, &notice).await.problem(413, "data_too_large");
    let past = json!({"starts_at": time(0), "ends_at": NOW.to_string(), "data": 1});
    put("/v1/apps/dev/notices/n", &service.key, &past).await.problem(400, "invalid_field");
    // No caller may publish to the service's own topic, but any device may subscribe to it.
    let publish = json!({"to": {"topic": "$maintenance"}, "data": 1});
    service.post("/v1/notifications", &service.key, &publish.to_string()).await.problem(400, "invalid_field");
    let token = service.device("d1", "u1").await;
    let subscribed = service.put("/v1/me/topics/$maintenance", &token, "").await;
    assert_eq!(subscribed.status, StatusCode::NO_CONTENT, "{}", subscribed.text);
    assert_eq!(service.get("/v1/me", &token).await.json()["topics"], json!(["$maintenance"]));
}

#[tokio::test]
async fn a_notice_is_shown_at_its_time_and_published_to_its_topic() {
    let service = Service::running().await;
    let token = service.device("d1", "u1").await;
    let notice = json!({"announced_at": time(10), "starts_at": time(20), "ends_at": time(30), "data": [1]});
    let path = "/v1/apps/dev/notices/payments";
    let made = service.put(path, &service.key, &notice.to_string()).await.json();
    assert_eq!(made["state"], "scheduled");
    let state = async || service.get("/v1/me", &token).await.json()["maintenance"][0]["state"].clone();
    let app = service.app();
    // Delivered to a subscribing device at its login.
    let told = async |expected: Value| {
        let topic = noroshi_types::Topic::maintenance();
        for _ in 0..3_000 {
            let store = service.state.delivery.store();
            let retained = store.retained(app, &topic, service.clock.now()).await.expect("read");
            let told = retained.and_then(|message| message.data.clone()).map_or(Value::Null, |data| {
                let data: Value = serde_json::from_str(data.as_str()).expect("JSON");
                data["notices"].as_array().expect("notices").iter().map(|one| one["state"].clone()).collect()
            });
            if told == expected {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("{expected} was not told");
    };
    assert_eq!(state().await, Value::Null);
    for (at, expected) in [(10, "announced"), (20, "active")] {
        service.clock.set(Timestamp(NOW.0 + at * 1_000));
        assert_eq!(state().await, expected);
        told(json!([expected])).await;
    }
    service.clock.set(Timestamp(NOW.0 + 30_000));
    assert_eq!(state().await, Value::Null);
    told(json!([])).await;
    service.until("/v1/apps/dev/notices?archived=true", |body| body["notices"][0]["state"] == "over").await;
    // Withdrawn before its time.
    let again = json!({"starts_at": time(40), "ends_at": time(99), "data": 1});
    service.put(path, &service.key, &again.to_string()).await;
    told(json!(["announced"])).await;
    assert_eq!(service.delete(path, &service.key).await.status, StatusCode::NO_CONTENT);
    service.delete(path, &service.key).await.problem(404, "not_found");
    assert_eq!(state().await, Value::Null);
    told(json!([])).await;
    assert_eq!(service.get("/v1/apps/dev/notices", &service.key).await.json()["notices"], json!([]));
}
