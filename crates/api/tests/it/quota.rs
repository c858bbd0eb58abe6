//! Quotas as seen by providers and operators.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::service::{NOW, OPERATOR, Service, request};

const QUOTAS: &str = "/v1/apps/dev/quotas";
const BATCH: &str = "/v1/notifications/batch";
const RELAY: &str = "/v1/notifications/relay";

async fn limit(service: &Service, quotas: Value) {
    let answer = service.operate(Method::PUT, QUOTAS, OPERATOR, &quotas.to_string()).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
}

async fn quota(service: &Service, name: &str) -> Value {
    let shown = service.operate(Method::GET, QUOTAS, OPERATOR, "").await.json();
    let quotas = shown["quotas"].as_array().expect("quotas").clone();
    quotas.into_iter().find(|one| one["quota"] == name).expect("the quota")
}

fn to_topic(topic: &str) -> String {
    json!({"to": {"topic": topic}, "data": 1}).to_string()
}

/// The results of a batch: IDs or error codes.
async fn publish(service: &Service, path: &str, lines: &[String]) -> Vec<String> {
    let answers = service.post(path, &service.key, &lines.join("\n")).await.lines();
    let text = |line: &Value| {
        let text = line["id"].as_str().or_else(|| line["error"]["code"].as_str());
        text.expect("an id or a code").to_owned()
    };
    answers.iter().map(text).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_keeps_its_order_while_quotas_are_read() {
    let service = Service::start().await;
    limit(&service, json!({"topics": 1_000, "retained_bytes": 1_000_000})).await;
    service.publish(&to_topic("known")).await;
    // Every other line names a topic that must be read from the store.
    let line =
        |n: usize| to_topic(&if n.is_multiple_of(2) { format!("new-{n}") } else { "known".to_owned() });
    let lines: Vec<String> = (0..200).map(line).collect();
    let ids = publish(&service, BATCH, &lines).await;
    assert!(ids.is_sorted(), "ids are in the order of commits: {ids:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_topic_is_charged_once_however_many_publish_to_it() {
    let service = Service::start().await;
    limit(&service, json!({"topics": 1})).await;
    let lines = vec![to_topic("one"); 50];
    let answers = publish(&service, BATCH, &lines).await;
    assert!(!answers.contains(&"quota_exceeded".to_owned()), "{answers:?}");
    assert_eq!(publish(&service, BATCH, &[to_topic("two")]).await, ["quota_exceeded"]);
    assert_eq!(quota(&service, "topics").await["used"], 1);
}

#[tokio::test]
async fn a_replay_uses_no_quota() {
    let service = Service::start().await;
    service.device("d1", "u1").await;
    limit(&service, json!({"publishes_per_second": 2, "inbox_rows": 1})).await;
    let publish = async || {
        let body = r#"{"to": {"users": ["u1"]}, "data": 1}"#;
        let mut request = request(Method::POST, "/v1/notifications", &service.key, body);
        request.headers_mut().insert("idempotency-key", "k".parse().expect("a header"));
        service.send(request).await
    };
    let first = publish().await;
    for _ in 0..10 {
        let again = publish().await;
        assert_eq!((again.status, &again.text), (StatusCode::ACCEPTED, &first.text));
        assert_eq!(again.header("idempotent-replayed"), Some("true"));
    }
    assert_eq!(quota(&service, "inbox_rows").await["used"], 1);
}

#[tokio::test]
async fn forwarded_notifications_do_not_use_the_publish_rate() {
    let service = Service::start().await;
    service.device("d1", "u1").await;
    limit(&service, json!({"publishes_per_second": 1})).await;
    let notification = json!({"to": {"users": ["u1"]}, "ttl": "1h", "data": 1});
    let line = |n: usize| {
        json!({"key": format!("k{n}"), "expires_at_ms": NOW.0 + 60_000, "notification": notification})
            .to_string()
    };
    // Twice the rate, since the front's backlog adds to new lines; then nothing overtakes.
    let answers = publish(&service, RELAY, &(0..20).map(line).collect::<Vec<_>>()).await;
    let taken = answers.iter().take_while(|answer| *answer != "quota_exceeded").count();
    assert!((2..20).contains(&taken), "{answers:?}");
    assert!(answers[taken..].iter().all(|answer| answer == "quota_exceeded"), "{answers:?}");
    service.publish(r#"{"to": {"users": ["u1"]}, "data": 1}"#).await;
}

#[tokio::test]
async fn lines_of_a_front_do_not_overtake_a_rejected_line_to_the_same_topic() {
    let service = Service::start().await;
    service.publish(&to_topic("known")).await;
    limit(&service, json!({"retained_bytes": 3})).await;
    let line = |n: usize, topic: &str, data: &str, retain: bool| {
        let notification = json!({"to": {"topic": topic}, "retain": retain, "ttl": "1h", "data": data});
        json!({"key": format!("k{n}"), "expires_at_ms": NOW.0 + 60_000, "notification": notification})
            .to_string()
    };
    let lines = [
        line(0, "a", "too long", true),
        line(1, "a", "", true),
        line(2, "b", "", true),
        line(3, "a", "", false),
    ];
    let answers = service.post(RELAY, &service.key, &lines.join("\n")).await.lines();
    let fields: Vec<_> = answers.iter().map(|line| line["error"]["field"].as_str()).collect();
    let refused = Some("to.topic");
    assert_eq!(fields, [refused, refused, None, refused], "{answers:?}");
    assert!(answers[2]["id"].is_string(), "{answers:?}");
}

#[tokio::test]
async fn devices_of_a_batch_are_admitted_individually() {
    let service = Service::start().await;
    limit(&service, json!({"devices": 2, "topics": 2, "subscriptions_per_device": 2})).await;
    let line = |device: &str, topics: &[&str]| json!({"device": device, "topics": topics}).to_string();
    let lines = [
        line("d1", &["a", "b"]),
        line("d2", &["c"]),
        line("d3", &["a", "b", "c"]),
        line("d4", &["a"]),
        line("d5", &[]),
        line("d1", &["a"]),
    ];
    let answers = service.post("/v1/devices/batch", &service.key, &lines.join("\n")).await.lines();
    let over = |line: &Value| {
        line["error"]["detail"].as_str().map(|text| {
            text.split_whitespace()
                .find(|word| word.contains('_') || ["devices", "topics"].contains(word))
                .unwrap_or_default()
                .to_owned()
        })
    };
    let refused: Vec<Option<String>> = answers.iter().map(over).collect();
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(
        refused,
        [None, text("topics"), text("subscriptions_per_device"), None, text("devices"), None],
        "{answers:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_changes_of_quotas_all_apply() {
    let service = Service::start().await;
    let names = ["devices", "topics", "keys", "endpoints", "campaigns", "experiments"];
    let bodies = names.map(|name| json!({name: 7}).to_string());
    let change = async |body: &String| service.operate(Method::PATCH, QUOTAS, OPERATOR, body).await.status;
    let statuses = futures_util::future::join_all(bodies.iter().map(change)).await;
    assert_eq!(statuses, [StatusCode::OK; 6]);
    for name in names {
        assert_eq!(quota(&service, name).await["limit"], 7, "{name}");
    }
}

#[tokio::test]
async fn unreadable_quotas_can_be_replaced() {
    let service = Service::start().await;
    // As a newer version may have written them.
    let stored = Some(r#"{"not_known_yet":1}"#.to_owned());
    service.state.auth.set_quotas(service.app(), stored).await.expect("set");
    let change = |method| service.operate(method, QUOTAS, OPERATOR, r#"{"devices": 7}"#);
    change(Method::PATCH).await.problem(409, "wrong_state");
    assert_eq!(change(Method::PUT).await.status, StatusCode::OK);
    assert_eq!(change(Method::PATCH).await.status, StatusCode::OK);
    service.state.auth.set_quotas(service.app(), Some("no JSON".to_owned())).await.expect("set");
    assert_eq!(service.operate(Method::DELETE, QUOTAS, OPERATOR, "").await.status, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn errors_of_campaigns_name_the_state_before_the_quota() {
    let service = Service::start().await;
    limit(&service, json!({"campaigns": 1})).await;
    let make = async |key: &str, start: bool| {
        let body =
            json!({"audience": {"everyone": true}, "message": {"data": 1}, "start": start}).to_string();
        let mut request = request(Method::POST, "/v1/campaigns", &service.key, &body);
        request.headers_mut().insert("idempotency-key", key.parse().expect("a header"));
        service.send(request).await
    };
    let path = |answer: &Value| format!("/v1/campaigns/{}/start", answer["id"].as_str().expect("an id"));
    let running = make("k1", true).await;
    assert_eq!(running.status, StatusCode::CREATED, "{}", running.text);
    let again = make("k1", true).await;
    assert_eq!(again.json()["id"], running.json()["id"], "a replay uses no quota");
    service.post(&path(&running.json()), &service.key, "").await.problem(409, "wrong_state");
    let draft = make("k2", false).await.json();
    service.post(&path(&draft), &service.key, "").await.problem(429, "quota_exceeded");
}

#[tokio::test]
async fn errors_of_mirrored_quotas_name_the_field() {
    let service = Service::start().await;
    let body = json!({"keys": [], "quotas": {"devices": -1}}).to_string();
    let answer = service.operate(Method::PUT, "/v1/apps/mirrored", OPERATOR, &body).await;
    assert_eq!(answer.problem(400, "invalid_field")["field"], "quotas.devices");
}
