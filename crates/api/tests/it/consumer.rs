//! `/v1/me` as used by devices.

use http::{Method, Request, StatusCode};
use serde_json::json;

use crate::service::{Service, in_an_hour, jwt};

#[tokio::test]
async fn a_device_changes_only_the_given_fields() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    let change = r#"{"locale": "ja", "timezone": "Asia/Tokyo", "tags": {"a": "1", "b": "2"}, "user": "u1"}"#;
    let me = service.call(Method::PATCH, "/v1/me", &token, change).await;
    assert_eq!((me.status, &me.json()["locale"]), (StatusCode::OK, &json!("ja")));
    let me = service
        .call(Method::PATCH, "/v1/me", &token, r#"{"locale": null, "tags": {"a": null}}"#)
        .await
        .json();
    assert_eq!(
        (&me["locale"], &me["timezone"], &me["tags"]),
        (&json!(null), &json!("Asia/Tokyo"), &json!({"b": "2"}))
    );
    for user in [r#"{"user": "u2"}"#, r#"{"user": null}"#] {
        let refused = service.call(Method::PATCH, "/v1/me", &token, user).await.problem(403, "forbidden");
        assert_eq!(refused["field"], "user");
    }
    assert_eq!(service.get("/v1/me", &token).await.json()["user"], "u1");
}

#[tokio::test]
async fn topics_of_any_name_are_subscribed_and_unsubscribed() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    for _ in 0..2 {
        let put = service.put("/v1/me/topics/news%2F%E6%97%A5%E6%9C%AC", &token, "").await;
        assert_eq!(put.status, StatusCode::NO_CONTENT);
    }
    assert_eq!(service.get("/v1/me", &token).await.json()["topics"], json!(["news/日本"]));
    let topic = service.get("/v1/topics/news%2F%E6%97%A5%E6%9C%AC", &service.key).await.json();
    assert_eq!((&topic["topic"], &topic["subscribers"]), (&json!("news/日本"), &json!(1)));
    for _ in 0..2 {
        let deleted = service.delete("/v1/me/topics/news%2F%E6%97%A5%E6%9C%AC", &token).await;
        assert_eq!(deleted.status, StatusCode::NO_CONTENT);
    }
    assert_eq!(service.get("/v1/me", &token).await.json()["topics"], json!([]));
    for bad in ["%24everyone", "a%2B", "%00", &"t".repeat(256)] {
        service.put(&format!("/v1/me/topics/{bad}"), &token, "").await.problem(400, "invalid_parameter");
    }
    service.put("/v1/me/topics/%FF", &token, "").await.problem(400, "invalid_parameter");
}

#[tokio::test]
async fn a_device_has_a_bounded_number_of_topics() {
    let service = Service::start().await;
    let topics: Vec<String> = (0..1_000).map(|i| format!("t{i}")).collect();
    let body = json!({"device": "d1", "topics": topics}).to_string();
    let token = service.post("/v1/devices", &service.key, &body).await.json()["token"]
        .as_str()
        .expect("a token")
        .to_owned();
    assert_eq!(service.put("/v1/me/topics/t5", &token, "").await.status, StatusCode::NO_CONTENT);
    service.put("/v1/me/topics/one-more", &token, "").await.problem(409, "limit_exceeded");
}

#[tokio::test]
async fn the_inbox_is_listed_and_acknowledged() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    let mut ids = Vec::new();
    for i in 0..3 {
        ids.push(service.publish(&format!("{{\"to\": {{\"users\": [\"u1\"]}}, \"data\": {i}}}")).await);
    }
    let page = service.get("/v1/me/inbox?limit=2", &token).await.json();
    assert_eq!((&page["total"], page["messages"].as_array().map(Vec::len)), (&json!(3), Some(2)));
    assert_eq!((&page["messages"][0]["id"], &page["messages"][0]["ack"]), (&json!(ids[0]), &json!(true)));
    assert_eq!(service.get("/v1/me", &token).await.json()["inbox"], 3);

    let body = json!({"ids": [ids[0], ids[0], ids[2], "01890a5d-ac96-774b-bcce-b302099a8057"]}).to_string();
    assert_eq!(service.post("/v1/me/inbox/ack", &token, &body).await.json(), json!({"acked": 2}));
    assert_eq!(service.post("/v1/me/inbox/ack", &token, &body).await.json(), json!({"acked": 0}));
    assert_eq!(service.get("/v1/me/inbox", &token).await.json()["messages"][0]["id"], json!(ids[1]));

    let bad =
        service.post("/v1/me/inbox/ack", &token, r#"{"ids": ["x"]}"#).await.problem(400, "invalid_field");
    assert_eq!(bad["field"], "ids[0]");
    let many = |count: usize| json!({"ids": vec![&ids[0]; count]}).to_string();
    assert_eq!(service.post("/v1/me/inbox/ack", &token, &many(1_000)).await.status, StatusCode::OK);
    service.post("/v1/me/inbox/ack", &token, &many(1_001)).await.problem(400, "invalid_field");
    for bad in ["limit=0", "limit=1001", "limit=-1", "size=1"] {
        service.get(&format!("/v1/me/inbox?{bad}"), &token).await.problem(400, "invalid_parameter");
    }
}

#[tokio::test]
async fn an_opened_message_is_counted_once() {
    let service = Service::start().await;
    let (token, other) = (service.device("d1", "u1").await, service.device("d2", "u1").await);
    let id = service.publish(r#"{"to": {"users": ["u1"]}, "data": 1}"#).await;
    let body = json!({"ids": [id, id, "01890a5d-ac96-774b-bcce-b302099a8057"]}).to_string();
    assert_eq!(service.post("/v1/me/opened", &token, &body).await.json(), json!({"opened": 1}));
    assert_eq!(service.post("/v1/me/opened", &token, &body).await.json(), json!({"opened": 0}));
    assert_eq!(service.post("/v1/me/opened", &other, &body).await.json(), json!({"opened": 1}));
    // Acknowledges nothing.
    assert_eq!(service.get("/v1/me/inbox", &token).await.json()["total"], 1);
    let path = format!("/v1/notifications/{id}");
    let counts = service.get(&path, &service.key).await.json()["counts"].clone();
    assert_eq!(counts, json!({"kept": 2, "opened": 2}));
    let trace = service.get(&format!("{path}/devices/d1"), &service.key).await.json();
    assert_eq!(trace["steps"][1]["outcome"], "opened");
    assert_eq!(trace["summary"], "Its user opened it on the device.");

    let bad = service.post("/v1/me/opened", &token, r#"{"ids": ["x"]}"#).await.problem(400, "invalid_field");
    assert_eq!(bad["field"], "ids[0]");
    let many = |count: usize| json!({"ids": vec![&id; count]}).to_string();
    assert_eq!(service.post("/v1/me/opened", &token, &many(1_000)).await.status, StatusCode::OK);
    service.post("/v1/me/opened", &token, &many(1_001)).await.problem(400, "invalid_field");
    service.post("/v1/me/opened", "wrong", &body).await.problem(401, "unauthorized");
}

#[tokio::test]
async fn presence_requires_an_open_connection() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    service.put("/v1/me/presence", &token, r#"{"state": "idle"}"#).await.problem(409, "not_connected");
    service.edge.connect(service.app(), "d1", "u1");
    let answer = service.put("/v1/me/presence", &token, r#"{"state": "idle"}"#).await;
    assert_eq!(answer.json(), json!({"presence": "idle"}));
    assert_eq!(service.get("/v1/me", &token).await.json()["presence"], "idle");
    service.put("/v1/me/presence", &token, r#"{"state": "offline"}"#).await.problem(400, "invalid_field");
}

#[tokio::test]
async fn a_push_token_is_stored_and_cleared() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    let apns = r#"{"service": "apns", "token": "00ff", "environment": "sandbox"}"#;
    assert_eq!(service.put("/v1/me/push-token", &token, apns).await.status, StatusCode::NO_CONTENT);
    let kept = service.get("/v1/me", &token).await.json();
    assert_eq!(kept["push_token"], json!({"service": "apns", "token": "00ff", "environment": "sandbox"}));
    service.put("/v1/me/push-token", &token, r#"{"service": "apns"}"#).await.problem(400, "invalid_field");
    let cleared = service.call(Method::PATCH, "/v1/me", &token, r#"{"push_token": null}"#).await.json();
    assert_eq!(cleared["push_token"], json!(null));
}

#[tokio::test]
async fn a_device_that_deletes_itself_loses_tokens_and_connection() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    assert_eq!(service.delete("/v1/me", &token).await.status, StatusCode::NO_CONTENT);
    service.get("/v1/me", &token).await.problem(401, "unauthorized");
    assert_eq!(service.edge.closed().len(), 1);
}

#[tokio::test]
async fn a_jwt_creates_its_device_on_first_use_and_moves_it_to_its_user() {
    let service = Service::start().await;
    let claims = json!({"sub": "u1", "device": "d9", "exp": in_an_hour(), "topics": ["news"]});
    let me = service.get("/v1/me?app=dev", &jwt(&claims)).await.json();
    assert_eq!((&me["device"], &me["user"], &me["topics"]), (&json!("d9"), &json!("u1"), &json!(["news"])));
    service.edge.connect(service.app(), "d9", "u1");
    let moved = jwt(&json!({"sub": "u2", "device": "d9", "exp": in_an_hour()}));
    assert_eq!(service.get("/v1/me?app=dev", &moved).await.json()["user"], "u2");
    assert_eq!(service.edge.closed().len(), 1, "the first user's connection ends");
    let inbox = service.get("/v1/me/inbox?app=dev&limit=5", &moved).await;
    assert_eq!(inbox.status, StatusCode::OK, "{}", inbox.text);
}

#[tokio::test]
async fn bad_credentials_are_401_with_a_challenge() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    let missing = service.get("/v1/me", "").await;
    missing.problem(401, "unauthorized");
    assert_eq!(missing.header("www-authenticate"), Some("Bearer realm=\"noroshi\""));
    let expired = jwt(&json!({"sub": "u1", "device": "d1", "exp": 1_000}));
    let forged = format!("{}x", &token[..token.len() - 1]);
    for bad in ["nonsense", "nd1.x", "a.b.c", &expired, &forged, &service.key] {
        let answer = service.get("/v1/me", bad).await;
        answer.problem(401, "unauthorized");
        assert_eq!(
            answer.header("www-authenticate"),
            Some("Bearer realm=\"noroshi\", error=\"invalid_token\"")
        );
        assert!(!answer.text.contains(bad), "a credential is never repeated");
    }
    let basic = Request::get("/v1/me")
        .header("authorization", "Basic eDp5")
        .body(String::new().into())
        .expect("a request");
    service.send(basic).await.problem(401, "unauthorized");
    let other_scheme = format!("bearer {token}");
    let lower = Request::get("/v1/me")
        .header("authorization", other_scheme)
        .body(String::new().into())
        .expect("a request");
    assert_eq!(service.send(lower).await.status, StatusCode::OK, "the scheme's case does not matter");
}
