//! The first call of an app: its content, its sources, and how soon changes are visible.

use http::{Method, StatusCode, header};
use noroshi_types::{Timestamp, limits};
use serde_json::{Value, json};

use crate::service::{Answer, NOW, Service, answer, in_an_hour, jwt, request};

impl Service {
    /// Reads of the store so far: each is one round trip.
    fn reads(&self) -> u64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.state.registry).expect("metrics");
        let line = text.lines().find(|line| line.starts_with("noroshi_store_read_seconds_count"));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).expect("a count of reads")
    }

    /// A first call, and the number of store reads it caused.
    async fn first(&self, token: &str) -> (Value, u64) {
        let before = self.reads();
        let answer = self.get("/v1/me", token).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
        (answer.json(), self.reads() - before)
    }

    async fn first_if(&self, token: &str, tag: &str) -> Answer {
        let mut request = request(Method::GET, "/v1/me", token, "");
        request.headers_mut().insert(header::IF_NONE_MATCH, tag.parse().expect("a tag"));
        answer(self.public.clone(), request).await
    }

    async fn put_experiment(&self, name: &str, body: &Value) {
        let path = format!("/v1/apps/dev/experiments/{name}");
        let made = self.put(&path, &self.key, &body.to_string()).await;
        assert_eq!(made.status, StatusCode::OK, "{}", made.text);
    }

    fn after(&self, seconds: u64) {
        self.clock.set(Timestamp(NOW.0 + seconds * 1_000));
    }
}

fn time(seconds: u64) -> String {
    Timestamp(NOW.0 + seconds * 1_000).to_string()
}

#[tokio::test]
async fn one_response_contains_everything() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    let experiment = json!({"variants": [{"name": "green", "weight": 1, "data": {"x": 1}}]});
    service.put_experiment("button", &experiment).await;
    let notice = json!({"starts_at": time(60), "ends_at": time(120), "notification": {"title": "Soon"},
        "locales": {"ja": {"notification": {"title": "まもなく"}}}});
    let path = "/v1/apps/dev/notices/payments";
    assert_eq!(service.put(path, &service.key, &notice.to_string()).await.status, StatusCode::OK);
    let mut ids: Vec<String> = Vec::new();
    for number in 0..12 {
        ids.push(service.publish(&format!(r#"{{"to": {{"users": ["u1"]}}, "data": {number}}}"#)).await);
    }
    let (me, _) = service.first(&token).await;
    assert_eq!(
        (&me["device"], &me["user"], &me["presence"]),
        (&json!("d1"), &json!("u1"), &json!("offline"))
    );
    assert_eq!((&me["inbox"], &me["topics"], &me["tags"]), (&json!(12), &json!([]), &json!({})));
    let newest: Vec<&str> =
        me["messages"].as_array().expect("messages").iter().filter_map(|one| one["id"].as_str()).collect();
    let expected: Vec<&str> =
        ids.iter().rev().take(limits::FIRST_CALL_MESSAGES).map(String::as_str).collect();
    assert_eq!(newest, expected);
    assert_eq!(me["experiments"], json!({"button": {"variant": "green", "data": {"x": 1}}}));
    assert_eq!(me["maintenance"][0]["state"], "announced");
    assert_eq!(me["maintenance"][0]["notification"]["title"], "Soon");
    assert_eq!(me["connect"]["websocket"], "ws://push.example.com/v1/connect");
    service.call(Method::PATCH, "/v1/me", &token, r#"{"locale": "ja-JP"}"#).await;
    assert_eq!(service.first(&token).await.0["maintenance"][0]["notification"]["title"], "まもなく");
}

#[tokio::test]
async fn a_cold_call_reads_once_and_a_warm_call_never() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    for number in 0..40 {
        let body = json!({"variants": [{"name": "a", "weight": 1}, {"name": "b", "weight": 1}]});
        service.put_experiment(&format!("e{number}"), &body).await;
    }
    let (cold, reads) = service.first(&token).await;
    assert_eq!((reads, cold["experiments"].as_object().map(serde_json::Map::len)), (1, Some(40)));
    assert_eq!(service.first(&token).await, (cold.clone(), 0));
    // Until it expires.
    service.after(limits::FIRST_CALL_TTL.as_secs() - 1);
    assert_eq!(service.first(&token).await.1, 0);
    service.after(limits::FIRST_CALL_TTL.as_secs());
    assert_eq!(service.first(&token).await, (cold, 1));
    // Experiments come from memory in any case.
    service.put_experiment("e0", &json!({"variants": [{"name": "c", "weight": 1}]})).await;
    let (changed, reads) = service.first(&token).await;
    assert_eq!((&changed["experiments"]["e0"]["variant"], reads), (&json!("c"), 0));
}

#[tokio::test]
async fn changes_on_this_node_are_visible_at_once() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    let mut last = service.first(&token).await.0;
    let mut changed = async |what: &str| {
        let (now, reads) = service.first(&token).await;
        assert!(now != last && reads == 1, "{what}: {reads} {now}");
        assert_eq!(service.first(&token).await.1, 0, "{what}: warm again");
        last = now.clone();
        now
    };
    let id = service.publish(r#"{"to": {"users": ["u1"]}, "data": 1}"#).await;
    assert_eq!(changed("published to the user").await["inbox"], 1);
    service.publish(r#"{"to": {"devices": ["d1"]}, "data": 2}"#).await;
    assert_eq!(changed("published to the device").await["inbox"], 2);
    service.post("/v1/me/inbox/ack", &token, &format!(r#"{{"ids": ["{id}"]}}"#)).await;
    assert_eq!(changed("acknowledged").await["inbox"], 1);
    service.put("/v1/me/topics/news", &token, "").await;
    assert_eq!(changed("subscribed").await["topics"], json!(["news"]));
    let id = service.publish(r#"{"to": {"condition": "'news' in topics"}, "data": 3}"#).await;
    assert_eq!(changed("published to a condition").await["inbox"], 2);
    service.delete(&format!("/v1/notifications/{id}"), &service.key).await;
    assert_eq!(changed("cancelled").await["inbox"], 1);
    service.delete("/v1/me/topics/news", &token).await;
    assert_eq!(changed("unsubscribed").await["topics"], json!([]));
    service.put("/v1/me/push-token", &token, r#"{"service": "fcm", "token": "t"}"#).await;
    assert_eq!(changed("push token").await["push_token"]["service"], "fcm");
    service.post("/v1/devices", &service.key, r#"{"device": "d1", "tags": {"a": "b"}}"#).await;
    assert_eq!(changed("registered again").await["tags"], json!({"a": "b"}));
    // Changes for others cause no read.
    service.publish(r#"{"to": {"users": ["u2"]}, "data": 1}"#).await;
    service.publish(r#"{"to": {"topic": "news"}, "data": 1}"#).await;
    assert_eq!(service.first(&token).await.1, 0);
    service.post("/v1/devices/d1/revoke", &service.key, "").await;
    service.get("/v1/me", &token).await.problem(401, "unauthorized");
    service.get("/v1/me", &token).await.problem(401, "unauthorized");
}

#[tokio::test]
async fn expired_messages_are_not_counted() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    service.publish(r#"{"to": {"users": ["u1"]}, "data": 1, "ttl": "5s"}"#).await;
    service.publish(r#"{"to": {"users": ["u1"]}, "data": 2, "ttl": "1h"}"#).await;
    assert_eq!(service.first(&token).await.0["inbox"], 2);
    service.after(4);
    assert_eq!(service.first(&token).await.1, 0);
    service.after(5);
    let (me, reads) = service.first(&token).await;
    assert_eq!((&me["inbox"], me["messages"].as_array().map(Vec::len), reads), (&json!(1), Some(1), 1));
}

#[tokio::test]
async fn a_matching_etag_gets_304() {
    let service = Service::start().await;
    let token = service.device("d1", "u1").await;
    let first = service.get("/v1/me", &token).await;
    let tag = first.header("etag").expect("a tag").to_owned();
    assert_eq!(first.header("cache-control"), Some("private, no-cache"));
    assert_eq!(first.header("vary"), Some("authorization"));
    let reads = service.reads();
    let same = service.first_if(&token, &tag).await;
    assert_eq!((same.status, same.text.as_str()), (StatusCode::NOT_MODIFIED, ""));
    assert_eq!((same.header("etag"), service.reads()), (Some(&*tag), reads));
    assert_eq!(service.first_if(&token, "\"other\"").await.status, StatusCode::OK);
    service.publish(r#"{"to": {"users": ["u1"]}, "data": 1}"#).await;
    let changed = service.first_if(&token, &tag).await;
    assert!(changed.status == StatusCode::OK && changed.header("etag") != Some(&tag));
    // A day later nothing has changed: the store is read, the client gets nothing new.
    let tag = changed.header("etag").expect("a tag").to_owned();
    service.after(86_400);
    assert_eq!(service.first_if(&token, &tag).await.status, StatusCode::NOT_MODIFIED);
    // A different address changes the response.
    let mut elsewhere = request(Method::GET, "/v1/me", &token, "");
    elsewhere.headers_mut().insert(header::HOST, "other.example".parse().expect("a host"));
    let elsewhere = answer(service.public.clone(), elsewhere).await.json();
    assert_eq!(elsewhere["connect"]["sse"], "http://other.example/v1/events");
}

/// An operator's change changes the response, also for a client with a response from before the restart.
#[tokio::test]
async fn different_tcp_addresses_change_the_response() {
    let tag = async |url: Option<&str>| {
        let service = Service::with(|state| state.config.mqtt_public_url = url.map(Into::into)).await;
        let token = service.device("d1", "u1").await;
        service.get("/v1/me", &token).await.header("etag").expect("a tag").to_owned()
    };
    let (without, with) = (tag(None).await, tag(Some("mqtts://push.example.com:443")).await);
    assert_eq!(tag(None).await, without);
    assert_ne!(with, without);
    assert_ne!(tag(Some("mqtts://push.example.com:444")).await, with);
}

#[tokio::test]
async fn an_app_jwt_creates_its_device_with_its_first_call() {
    let service = Service::start().await;
    let claims =
        |user: &str| json!({"sub": user, "device": "d9", "iss": "dev", "exp": in_an_hour(), "topics": ["t"]});
    let path = "/v1/me?app=dev";
    let made = service.get(path, &jwt(&claims("u1"))).await.json();
    assert_eq!(
        (&made["device"], &made["user"], &made["topics"]),
        (&json!("d9"), &json!("u1"), &json!(["t"]))
    );
    let reads = service.reads();
    assert_eq!(service.get(path, &jwt(&claims("u1"))).await.json(), made);
    assert_eq!(service.reads(), reads, "warm");
    // It moves to another user: data of the first one is not shown.
    let moved = service.get(path, &jwt(&claims("u2"))).await.json();
    assert_eq!(moved["user"], "u2");
}
