//! Topics and their retained messages as seen by providers.

use http::StatusCode;
use serde_json::json;

use crate::service::Service;

#[tokio::test]
async fn a_topic_has_a_position_and_subscribers() {
    let service = Service::start().await;
    let unused = service.get("/v1/topics/news", &service.key).await.json();
    let zeros = json!({"topic": "news", "subscribers": 0, "connected": 3, "epoch": null, "offset": 0, "log": 0, "retained": false});
    assert_eq!(unused, zeros);
    let token = service.device("d1", "u1").await;
    service.put("/v1/me/topics/news", &token, "").await;
    service.publish(r#"{"to": {"topic": "news"}, "data": 1}"#).await;
    service.publish(r#"{"to": {"topic": "news"}, "data": 2, "when": "active"}"#).await;
    let used = service.get("/v1/topics/news", &service.key).await.json();
    assert_eq!((&used["subscribers"], &used["offset"], &used["log"]), (&json!(1), &json!(2), &json!(1)));
    assert_eq!(used["epoch"].as_str().map(str::len), Some(8));
    service.get("/v1/topics/%24everyone", &service.key).await.problem(400, "invalid_parameter");
}

#[tokio::test]
async fn a_retained_message_is_shown_and_deleted() {
    let service = Service::start().await;
    service.get("/v1/topics/news%2Fjp/retained", &service.key).await.problem(404, "not_found");
    let id = service.publish(r#"{"to": {"topic": "news/jp"}, "data": {"a": 1}, "retain": true}"#).await;
    let retained = service.get("/v1/topics/news%2Fjp/retained", &service.key).await.json();
    assert_eq!(
        (&retained["t"], &retained["id"], &retained["topic"]),
        (&json!("msg"), &json!(id), &json!("news/jp"))
    );
    assert_eq!(service.get("/v1/topics/news%2Fjp", &service.key).await.json()["retained"], true);
    let deleted = service.delete("/v1/topics/news%2Fjp/retained", &service.key).await;
    assert_eq!(deleted.status, StatusCode::NO_CONTENT);
    service.delete("/v1/topics/news%2Fjp/retained", &service.key).await.problem(404, "not_found");
}

#[tokio::test]
async fn topics_are_listed_in_pages() {
    let service = Service::start().await;
    for topic in ["b", "a", "c/d"] {
        service.publish(&format!("{{\"to\": {{\"topic\": \"{topic}\"}}, \"data\": 1}}")).await;
    }
    let first = service.get("/v1/topics?limit=2", &service.key).await.json();
    assert_eq!((&first["topics"][0]["topic"], &first["topics"][1]["topic"]), (&json!("a"), &json!("b")));
    assert_eq!(first["next"], "b");
    let second = service.get("/v1/topics?limit=2&after=b", &service.key).await.json();
    assert_eq!((&second["topics"][0]["topic"], &second["next"]), (&json!("c/d"), &json!(null)));
    service.get("/v1/topics?limit=0", &service.key).await.problem(400, "invalid_parameter");
    service.get("/v1/topics?after=a%2B", &service.key).await.problem(400, "invalid_parameter");
}
