//! Batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::stub::{Answer, Stub};
use crate::batch::{Batch, Line};
use crate::error::Error;
use crate::types::{Code, DeviceRegistration, Notification, Receipt, Recipient, Shown, To};

fn notification(n: usize) -> Notification {
    Notification::new(To::Users(vec![format!("u{n}")])).notification(Shown::new().title("Hello"))
}

/// The answer to lines from `start` on; `refused` are not accepted.
fn receipts(start: usize, count: usize, refused: &[usize]) -> Answer {
    let line = |n: usize| match refused.contains(&n) {
        true => {
            r#"{"error": {"status": 400, "code": "invalid_field", "title": "T", "field": "ttl"}}"#.to_owned()
                + "\n"
        }
        false => format!("{{\"id\": \"n{n}\", \"targets\": 1}}\n"),
    };
    Answer::ok((start..start + count).map(line).collect::<String>())
}

async fn all<T>(mut batch: Batch<T>) -> Result<Vec<Line<T>>, Error> {
    let mut lines = Vec::new();
    while let Some(line) = batch.next().await {
        lines.push(line?);
    }
    Ok(lines)
}

#[tokio::test]
async fn lines_are_sent_in_requests_of_bounded_size() {
    let stub =
        Stub::start([receipts(0, 1_000, &[7]), receipts(1_000, 1_000, &[]), receipts(2_000, 500, &[2_499])])
            .await;
    let batch = stub.client().publish_batch((0..2_500).map(notification)).idempotency_key("import");
    let lines = all(batch).await.expect("results");
    assert_eq!(lines.len(), 2_500);
    for (n, line) in lines.iter().enumerate() {
        assert_eq!(line.number, n);
        match &line.result {
            Ok(Receipt { id, .. }) => assert_eq!(*id, format!("n{n}")),
            Err(refused) => {
                assert!(n == 7 || n == 2_499);
                assert_eq!(
                    (refused.status, &refused.code, refused.field.as_deref()),
                    (400, &Code::InvalidField, Some("ttl"))
                );
            }
        }
    }
    let seen = stub.seen();
    let keys: Vec<_> = seen.iter().map(|one| one.header("idempotency-key").unwrap_or_default()).collect();
    assert_eq!(keys, ["import-0", "import-1000", "import-2000"]);
    assert_eq!(seen[2].body.lines().count(), 500);
    assert_eq!(seen[0].header("content-type"), Some("application/x-ndjson"));
}

#[tokio::test]
async fn lines_are_read_as_the_batch_proceeds() {
    let read = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&read);
    let endless = (0..).map(move |n| {
        counter.fetch_add(1, Ordering::SeqCst);
        notification(n)
    });
    let stub = Stub::start([receipts(0, 1_000, &[])]).await;
    let mut batch = stub.client().publish_batch(endless);
    assert_eq!(read.load(Ordering::SeqCst), 0);
    assert!(batch.next().await.is_some_and(|line| line.is_ok()));
    // One more, which did not fit.
    assert_eq!(read.load(Ordering::SeqCst), 1_001);
}

#[tokio::test]
async fn large_lines_make_small_requests() {
    let large = |n: usize| notification(n).data("x".repeat(3 << 20));
    let stub = Stub::start([receipts(0, 1, &[]), receipts(1, 1, &[])]).await;
    let lines = all(stub.client().publish_batch((0..2).map(large))).await.expect("results");
    assert_eq!(lines.len(), 2);
    assert_eq!(stub.seen().len(), 2);
}

#[tokio::test]
async fn a_failure_ends_the_batch() {
    let stub = Stub::start([receipts(0, 1_000, &[]), Answer::problem(403, "")]).await;
    let mut batch = stub.client().publish_batch((0..2_500).map(notification));
    let mut results = Vec::new();
    while let Some(line) = batch.next().await {
        results.push(line.is_ok());
    }
    assert_eq!((results.len(), results[1_000]), (1_001, false));
    assert_eq!(stub.seen().len(), 2);
    assert!(batch.next().await.is_none());
}

#[tokio::test]
async fn a_request_is_repeated_with_the_same_key() {
    let stub = Stub::start([Answer::problem(503, ""), Answer::Break, receipts(0, 3, &[])]).await;
    let lines = all(stub.client().publish_batch((0..3).map(notification))).await.expect("results");
    assert_eq!(lines.len(), 3);
    let keys: Vec<_> =
        stub.seen().iter().map(|one| one.header("idempotency-key").map(str::to_owned)).collect();
    assert!(keys.len() == 3 && keys[0].is_some() && keys.iter().all(|key| *key == keys[0]), "{keys:?}");
}

#[tokio::test]
async fn an_answer_with_missing_lines_is_no_answer() {
    let stub = Stub::start([receipts(0, 2, &[])]).await;
    let client = stub.builder().attempts(1).build().expect("a client");
    assert!(matches!(all(client.publish_batch((0..3).map(notification))).await, Err(Error::NoAnswer(_))));
}

#[tokio::test]
async fn registrations_without_a_name_are_sent_once() {
    let registered = r#"{"device": "d1", "token": "t"}"#;
    for (named, attempts) in [(true, 2), (false, 1)] {
        let stub = Stub::start([Answer::problem(500, ""), Answer::ok(registered)]).await;
        let device = DeviceRegistration::new().user("u1");
        let device = if named { device.device("d1") } else { device };
        let result = all(stub.client().import_devices([device])).await;
        assert_eq!((stub.seen().len(), result.is_ok()), (attempts, named));
    }
}

#[tokio::test]
async fn recipients_are_uploaded_to_a_campaign() {
    let stub = Stub::start([Answer::ok("{\"user\": \"u1\"}\n")]).await;
    let client = stub.client();
    let lines = all(client.upload_recipients("c1", [Recipient::new("u1")])).await.expect("results");
    assert_eq!(lines[0].result.as_ref().expect("accepted").user, "u1");
    assert_eq!(stub.seen()[0].line, "POST /v1/campaigns/c1/recipients HTTP/1.1");
    assert!(all(client.upload_recipients("..", [Recipient::new("u1")])).await.is_err());
    assert!(all(client.publish_batch([])).await.expect("nothing").is_empty());
}
