//! Batches: one result per line, in order, each independent.

use http::{Method, StatusCode};
use serde_json::Value;

use crate::service::{Service, request};

#[tokio::test]
async fn lines_are_accepted_and_answered_in_order() {
    let service = Service::start().await;
    let line = |i: usize| match i % 100 {
        7 => "{\"to\":{\"topic\":\"t\"}}\n".to_owned(),
        8 => "not JSON\n".to_owned(),
        _ => format!("{{\"to\":{{\"topic\":\"t\"}},\"data\":{i}}}\n"),
    };
    let body: String = (0..1_000).map(line).collect();
    let answer = service.post("/v1/notifications/batch", &service.key, &body).await;
    assert_eq!(
        (answer.status, answer.header("content-type")),
        (StatusCode::OK, Some("application/x-ndjson"))
    );
    let lines = answer.lines();
    assert_eq!(lines.len(), 1_000);
    for (i, line) in lines.iter().enumerate() {
        match i % 100 {
            7 => assert_eq!(
                (&line["error"]["code"], &line["error"]["field"]),
                (&"invalid_field".into(), &"data".into())
            ),
            8 => assert_eq!(line["error"]["code"], "invalid_json"),
            _ => assert!(line["id"].is_string() && line["targets"].is_null(), "{line}"),
        }
    }
    let ids: Vec<&str> = lines.iter().filter_map(|line| line["id"].as_str()).collect();
    assert!(ids.is_sorted(), "IDs sort in order of acceptance");
    let delivered: Vec<String> =
        service.edge.messages().iter().map(|message| message.id.to_string()).collect();
    assert_eq!(delivered, ids, "delivered in the order of the lines");
    let offsets: Vec<u64> =
        service.edge.messages().iter().filter_map(|m| Some(m.topic.as_ref()?.position.offset)).collect();
    assert_eq!(offsets, (1..=980).collect::<Vec<u64>>());
}

#[tokio::test]
async fn a_batch_is_bounded_in_lines() {
    let service = Service::start().await;
    let line = "{\"to\":{\"users\":[\"nobody\"]},\"when\":\"active\",\"data\":1}\n";
    let most = service.post("/v1/notifications/batch", &service.key, &line.repeat(10_000)).await;
    assert_eq!(most.lines().len(), 10_000);
    let over = service.post("/v1/notifications/batch", &service.key, &line.repeat(10_001)).await;
    over.problem(413, "too_many_lines");
    service
        .post("/v1/devices/batch", &service.key, &"{}\n".repeat(10_001))
        .await
        .problem(413, "too_many_lines");
    service.post("/v1/notifications/batch", &service.key, "").await.problem(400, "invalid_json");
    service.post("/v1/notifications/batch", &service.key, "\n").await.problem(400, "invalid_json");
    let no_break = service.post("/v1/notifications/batch", &service.key, line.trim_end()).await;
    assert_eq!(no_break.lines().len(), 1);
}

#[tokio::test]
async fn a_repeated_batch_with_a_key_delivers_nothing_twice() {
    let service = Service::start().await;
    let body = "{\"to\":{\"topic\":\"t\"},\"data\":1}\n{\"to\":{\"topic\":\"t\"},\"data\":2}\n";
    let send = async || {
        let mut request = request(Method::POST, "/v1/notifications/batch", &service.key, body);
        request.headers_mut().insert("idempotency-key", "night".parse().expect("a header"));
        service.send(request).await.lines()
    };
    let first: Vec<Value> = send().await;
    assert_eq!(send().await, first);
    assert_eq!(service.edge.messages().len(), 2);
    assert_ne!(first[0]["id"], first[1]["id"]);
}

#[tokio::test]
async fn a_batch_registers_one_device_per_line() {
    let service = Service::start().await;
    let line = |i: usize| match i {
        5 => "{\"platform\":\"toaster\"}\n".to_owned(),
        _ => format!("{{\"device\":\"d{i}\",\"user\":\"u{}\",\"topics\":[\"news\"]}}\n", i / 2),
    };
    let body: String = (0..2_500).map(line).collect();
    let answer = service.post("/v1/devices/batch", &service.key, &body).await;
    let lines = answer.lines();
    assert_eq!(lines.len(), 2_500);
    assert_eq!(lines[5]["error"]["field"], "platform");
    for (i, line) in lines.iter().enumerate().filter(|(i, _)| *i != 5) {
        assert_eq!(line["device"], format!("d{i}"));
    }
    let token = lines[2_499]["token"].as_str().expect("a token");
    let me = service.get("/v1/me", token).await.json();
    assert_eq!((&me["device"], &me["user"]), (&"d2499".into(), &"u1249".into()));
    assert_eq!(service.get("/v1/topics/news", &service.key).await.json()["subscribers"], 2_499);
}
