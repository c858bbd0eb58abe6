//! Rejected log-ins in the event log: for which app, why, and of whom. Never the token.

use std::time::Duration;

use noroshi_events::Event;
use noroshi_events::event::Rejected;
use noroshi_store::Devices;
use noroshi_types::DeviceId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::event_log::EventLog;
use crate::node::{Node, PATIENCE, plain};

/// The next rejection.
async fn next(log: &EventLog) -> Rejected {
    let take = |events: &mut Vec<Event>| {
        let index = events.iter().position(|event| matches!(event, Event::Rejected(_)))?;
        match events.remove(index) {
            Event::Rejected(rejected) => Some(*rejected),
            _ => None,
        }
    };
    log.until("a rejection", take).await
}

/// Opens an event stream, and returns the status of the answer.
async fn open(node: &Node, query: &str, token: Option<&str>) -> String {
    let mut stream = TcpStream::connect(node.address()).await.expect("connected");
    let authorization = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let request = format!("GET /v1/events{query} HTTP/1.1\r\nHost: x\r\n{authorization}\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = [0; 12];
    tokio::time::timeout(PATIENCE, stream.read_exact(&mut answer))
        .await
        .expect("in time")
        .expect("an answer");
    String::from_utf8_lossy(&answer[9..]).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_log_in_is_an_event() {
    let node = Node::start(plain()).await;
    node.device("d1", "u1", &[]).await;
    let log = EventLog::of(&node);
    // Nothing reads events yet.
    let good = node.token("d1");
    let forged = format!("{}AAAA", &good[..good.len() - 4]);
    assert_eq!(open(&node, "", Some(&forged)).await, "401");
    log.open();

    assert_eq!(open(&node, "", Some(&forged)).await, "401");
    let first = next(&log).await;
    assert_eq!((first.app, first.reason, first.protocol), (Some(node.app), "signature", "native"));
    assert_eq!((&first.device_id, &first.user, first.network.as_deref()), (&None, &None, Some("127.0.0.1")));
    assert!(!format!("{first:?}").contains(&forged[10..]), "{first:?}");

    let expired = node.token_for("d1", Duration::ZERO);
    assert_eq!(open(&node, "", Some(&expired)).await, "401");
    assert_eq!(next(&log).await.reason, "expired");
    assert_eq!(open(&node, "?app=dev", None).await, "401");
    let missing = next(&log).await;
    assert_eq!((missing.app, missing.reason), (Some(node.app), "missing"));
    assert_eq!(open(&node, "?app=nothing", Some("nonsense")).await, "401");
    let unknown = next(&log).await;
    assert_eq!((unknown.app, unknown.reason), (None, "malformed"));

    // The token is valid, so it proves the device.
    let device = DeviceId::parse("d1").expect("an id");
    node.store.revoke_tokens(node.app, &device, node.now()).await.expect("revoked");
    assert_eq!(open(&node, "", Some(&good)).await, "401");
    let revoked = next(&log).await;
    assert_eq!((revoked.app, revoked.reason, revoked.device_id), (Some(node.app), "revoked", Some(device)));
    node.gateway.stop();
}
