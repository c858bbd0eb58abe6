//! Over a byte stream: HTTP as it arrives, origins, connections that turn to the gateway, drain.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, StatusCode};
use noroshi_api::{Peer, serve_connection};
use noroshi_types::CloseReason;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::service::{Service, request};

const DEADLINE: Duration = Duration::from_secs(30);

fn peer() -> Peer {
    Peer { address: SocketAddr::from(([192, 0, 2, 7], 4_711)), secure: true }
}

/// A connection to the service; the sender drains it.
fn connect(
    service: &Service,
) -> (DuplexStream, tokio::sync::oneshot::Sender<()>, tokio::task::JoinHandle<()>) {
    let (client, server) = tokio::io::duplex(64 << 10);
    let (drain, drained) = tokio::sync::oneshot::channel();
    let router = service.public.clone();
    let task = tokio::spawn(serve_connection(server, router, peer(), async { drop(drained.await) }));
    (client, drain, task)
}

async fn read_until(client: &mut DuplexStream, end: &str) -> String {
    let mut text = String::new();
    let reading = async {
        let mut piece = [0; 4_096];
        while !text.contains(end) {
            let count = client.read(&mut piece).await.expect("a read");
            assert_ne!(count, 0, "ended after {text:?}");
            text.push_str(&String::from_utf8_lossy(&piece[..count]));
        }
    };
    tokio::time::timeout(DEADLINE, reading).await.expect("in time");
    text
}

#[tokio::test]
async fn requests_follow_each_other_on_one_connection() {
    let service = Service::start().await;
    let (mut client, drain, task) = connect(&service);
    let body = "{}";
    let head = format!(
        "POST /v1/devices HTTP/1.1\r\nHost: example.com\r\nAuthorization: Bearer {}\r\nContent-Length: {}\r\n\r\n{body}",
        service.key,
        body.len()
    );
    for _ in 0..2 {
        client.write_all(head.as_bytes()).await.expect("written");
        let answer = read_until(&mut client, "/xmpp\"}}").await;
        assert!(answer.starts_with("HTTP/1.1 201 Created\r\n"), "{answer}");
        assert!(answer.contains("wss://example.com/v1/connect"), "TLS as the peer says: {answer}");
    }
    drop(drain);
    tokio::time::timeout(DEADLINE, task).await.expect("drained in time").expect("no panic");
    assert_eq!(client.read(&mut [0; 1]).await.expect("a read"), 0, "closed");
}

#[tokio::test]
async fn a_head_that_is_too_much_is_refused() {
    let service = Service::start().await;
    for head in [
        format!("GET / HTTP/1.1\r\n{}\r\n", "X-A: 1\r\n".repeat(100)),
        format!("GET / HTTP/1.1\r\nX-A: {}\r\n\r\n", "a".repeat(20_000)),
    ] {
        let (mut client, _drain, _task) = connect(&service);
        client.write_all(head.as_bytes()).await.expect("written");
        let answer = read_until(&mut client, "\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    }
}

#[tokio::test]
async fn a_body_that_stops_half_way_is_given_up() {
    let service = Service::with(|state| state.config.body_timeout = Duration::from_millis(50)).await;
    let endless = futures_util::stream::pending::<Result<bytes::Bytes, std::io::Error>>();
    let mut request = request(Method::POST, "/v1/notifications", &service.key, "");
    *request.body_mut() = axum::body::Body::from_stream(endless);
    service.send(request).await.problem(408, "body_timeout");
}

#[tokio::test]
async fn pages_of_any_origin_may_use_what_devices_use() {
    let service = Service::start().await;
    for path in ["/v1/me", "/v1/me/topics/a%2Fb", "/v1/devices", "/v1/events"] {
        let mut preflight = request(Method::OPTIONS, path, "", "");
        preflight.headers_mut().insert("origin", "https://app.example.com".parse().expect("a header"));
        preflight.headers_mut().insert("access-control-request-method", "PUT".parse().expect("a header"));
        let answer = service.send(preflight).await;
        assert_eq!(answer.status, StatusCode::NO_CONTENT, "{path}");
        assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
        assert!(
            answer
                .header("access-control-allow-methods")
                .is_some_and(|m| m.contains("PUT") && m.contains("PATCH"))
        );
        let headers = answer.header("access-control-allow-headers").expect("headers").to_lowercase();
        assert!(headers.contains("authorization") && headers.contains("content-type"), "{headers}");
    }
    let refused = service.get("/v1/me", "").await;
    assert_eq!(
        refused.header("access-control-allow-origin"),
        Some("*"),
        "a page may read why it was refused"
    );
    let provider = service.get("/v1/topics", &service.key).await;
    assert_eq!(provider.header("access-control-allow-origin"), None, "an API key has no place in a page");
}

/// A gateway that answers every head with `answer`, then echoes until the other side ends.
fn gateway(answer: &'static str, seen: Arc<Mutex<Vec<u8>>>) -> noroshi_api::Tunnel {
    Arc::new(move |head: Vec<u8>, address: SocketAddr| {
        assert_eq!(address, peer().address);
        *seen.lock().expect("no panic") = head;
        let (ours, mut theirs) = UnixStream::pair()?;
        std::thread::spawn(move || {
            theirs.write_all(answer.as_bytes()).expect("written");
            let mut piece = [0; 1_024];
            while let Ok(count @ 1..) = theirs.read(&mut piece) {
                theirs.write_all(&piece[..count]).expect("written");
            }
        });
        Ok(ours)
    })
}

#[tokio::test]
async fn an_upgrade_on_an_open_connection_goes_to_the_gateway() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let answer =
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nhello ";
    let tunnel = gateway(answer, seen.clone());
    let service = Service::with(|state| state.tunnel = Some(tunnel)).await;
    let (mut client, _drain, task) = connect(&service);
    client.write_all(b"GET /docs HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("written");
    read_until(&mut client, "</html>").await;
    let upgrade =
        "GET /v1/connect?token=t HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    client.write_all(upgrade.as_bytes()).await.expect("written");
    let head = read_until(&mut client, "hello ").await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert!(head.to_lowercase().contains("upgrade: websocket\r\n"), "{head}");
    client.write_all(b"ping").await.expect("written");
    assert_eq!(read_until(&mut client, "ping").await, "ping", "both ways");
    let seen = String::from_utf8(seen.lock().expect("no panic").clone()).expect("UTF-8");
    assert!(seen.starts_with("GET /v1/connect?token=t HTTP/1.1\r\n") && seen.ends_with("\r\n\r\n"), "{seen}");
    assert!(seen.to_lowercase().contains("upgrade: websocket\r\n"), "{seen}");
    drop(client);
    tokio::time::timeout(DEADLINE, task).await.expect("ended in time").expect("no panic");
}

#[tokio::test]
async fn an_event_stream_on_an_open_connection_is_passed_on_as_it_comes() {
    let answer =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\nretry: 1\n\n";
    let tunnel = gateway(answer, Arc::default());
    let service = Service::with(|state| state.tunnel = Some(tunnel)).await;
    let (mut client, _drain, _task) = connect(&service);
    client.write_all(b"GET /v1/events HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("written");
    let head = read_until(&mut client, "retry: 1\n\n").await;
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("text/event-stream"), "{head}");
}

#[tokio::test]
async fn a_gateway_that_does_not_answer_is_a_problem() {
    let service = Service::start().await;
    service.get("/v1/connect", "").await.problem(421, "misdirected");
    let refusing: noroshi_api::Tunnel = Arc::new(|_, _| Err(std::io::Error::other("full")));
    let service = Service::with(|state| state.tunnel = Some(refusing)).await;
    service.get("/v1/events", "").await.problem(503, "overloaded");
    let closing: noroshi_api::Tunnel = Arc::new(|_, _| UnixStream::pair().map(|(ours, _)| ours));
    let service = Service::with(|state| state.tunnel = Some(closing)).await;
    service.get("/v1/events", "").await.problem(503, "overloaded");
}

/// Everything that follows a change follows it also where nobody waits for the answer, and nothing counts as in work
/// for ever.
#[tokio::test]
async fn a_change_is_carried_through_when_its_client_leaves_amid() {
    let service = Service::start().await;
    let devices: Vec<String> = (0..20).map(|n| format!("d{n}")).collect();
    for device in &devices {
        let body = json!({"device": device}).to_string();
        let made = service.call(Method::POST, "/v1/devices", &service.key, &body).await;
        assert_eq!(made.status, StatusCode::CREATED);
    }
    for device in &devices {
        for line in [format!("POST /v1/devices/{device}/revoke"), format!("GET /v1/devices/{device}")] {
            let (mut client, _drain, task) = connect(&service);
            let head = format!("{line} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {}\r\n\r\n", service.key);
            client.write_all(head.as_bytes()).await.expect("written");
            tokio::task::yield_now().await; // it is begun
            drop(client);
            tokio::time::timeout(DEADLINE, task).await.expect("ended in time").expect("no panic");
        }
    }
    let revoked: Vec<_> = devices.into_iter().map(|device| (device, CloseReason::Revoked)).collect();
    assert_eq!(service.edge.closed(), revoked);
    let metrics = service.operate(Method::GET, "/metrics", "", "").await.text;
    assert!(metrics.contains("\nnoroshi_http_requests_in_flight 1\n"), "its own: {metrics}");
    assert!(metrics.contains(r#"{route="POST /v1/devices/{device}/revoke",status="2xx"} 20"#), "{metrics}");
}

/// Also where what came of it could be understood.
#[tokio::test]
async fn a_body_that_ends_with_its_connection_is_refused() {
    let service = Service::start().await;
    let body = r#"{"to":{"users":["u1"]},"when":"connected","data":1}"#;
    for (length, framed) in [
        (format!("Content-Length: {}", body.len() + 1), body.to_owned()),
        ("Transfer-Encoding: chunked".to_owned(), format!("{:x}\r\n{body}\r\n", body.len())),
    ] {
        let (mut client, _drain, task) = connect(&service);
        let head = format!(
            "POST /v1/notifications HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\n{length}\r\n\r\n{framed}",
            service.key
        );
        client.write_all(head.as_bytes()).await.expect("written");
        tokio::task::yield_now().await;
        drop(client);
        tokio::time::timeout(DEADLINE, task).await.expect("ended in time").expect("no panic");
    }
    assert!(service.edge.messages().is_empty());
    let metrics = service.operate(Method::GET, "/metrics", "", "").await.text;
    assert!(metrics.contains(r#"{route="POST /v1/notifications",status="4xx"} 2"#), "{metrics}");
}
