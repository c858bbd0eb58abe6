//! Over a byte stream: HTTP requests, origins, handoff to the gateway, drain.

use std::net::SocketAddr;
use std::time::Duration;

use http::{Method, StatusCode};
use noroshi_api::{Handoff, Peer, Place, Pool, PoolLimits, PoolMetrics, Serving, Timing, serve_connection};
use noroshi_types::CloseReason;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::service::{Service, request};

pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

fn peer() -> Peer {
    Peer { address: SocketAddr::from(([192, 0, 2, 7], 4_711)), secure: true }
}

pub(crate) type Ended = tokio::task::JoinHandle<Option<Handoff<DuplexStream>>>;

/// A connection to the service; sending on the channel drains it.
fn connect(service: &Service) -> (DuplexStream, tokio::sync::oneshot::Sender<()>, Ended) {
    serve(Serving { hands_off: true, ..Serving::new(service.public.clone()) }, None)
}

pub(crate) fn serve(
    serving: Serving,
    place: Option<Place>,
) -> (DuplexStream, tokio::sync::oneshot::Sender<()>, Ended) {
    let (client, server) = tokio::io::duplex(64 << 10);
    let (drain, drained) = tokio::sync::oneshot::channel();
    let drained = async { drop(drained.await) };
    let task = tokio::spawn(serve_connection(server, serving, peer(), place, drained));
    (client, drain, task)
}

pub(crate) fn serve_io<I>(
    io: I,
    serving: Serving,
) -> (tokio::sync::oneshot::Sender<()>, tokio::task::JoinHandle<Option<Handoff<I>>>)
where
    I: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (drain, drained) = tokio::sync::oneshot::channel();
    let drained = async { drop(drained.await) };
    (drain, tokio::spawn(serve_connection(io, serving, peer(), None, drained)))
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
async fn a_connection_serves_several_requests() {
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
async fn a_too_large_head_is_rejected() {
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
async fn pages_of_any_origin_may_use_the_paths_of_devices() {
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
    assert_eq!(provider.header("access-control-allow-origin"), None, "web pages must not use API keys");
}

async fn handed_off(task: Ended) -> Handoff<DuplexStream> {
    let ended = tokio::time::timeout(DEADLINE, task).await.expect("ended in time").expect("no panic");
    ended.expect("the request is the gateway's")
}

#[tokio::test]
async fn an_upgrade_on_an_open_connection_is_handed_off_with_all_bytes_read() {
    let service = Service::start().await;
    let (mut client, _drain, task) = connect(&service);
    client.write_all(b"GET /docs HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("written");
    read_until(&mut client, "</html>").await;
    let upgrade = "GET /v1/connect?token=t HTTP/1.1\r\nhost: a\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\r\n\
        and a frame";
    client.write_all(upgrade.as_bytes()).await.expect("written");
    let Handoff { mut io, bytes } = handed_off(task).await;
    assert_eq!(String::from_utf8_lossy(&bytes), upgrade);
    io.write_all(b"hello").await.expect("written");
    assert_eq!(read_until(&mut client, "hello").await, "hello", "nothing precedes the gateway's bytes");
}

#[tokio::test]
async fn a_partial_body_is_handed_off_to_the_gateway() {
    let service = Service::start().await;
    let head = "POST /socket.io/?sid=a HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n";
    for body in ["", "01234", "0123456789"] {
        let (mut client, _drain, task) = connect(&service);
        client.write_all(format!("{head}{body}").as_bytes()).await.expect("written");
        let Handoff { mut io, mut bytes } = handed_off(task).await;
        client.write_all(b"!").await.expect("written");
        let mut more = [0; 64];
        while !bytes.ends_with(b"!") {
            let count = io.read(&mut more).await.expect("read");
            bytes.extend_from_slice(&more[..count]);
        }
        assert_eq!(String::from_utf8_lossy(&bytes), format!("{head}{body}!"));
    }
}

#[tokio::test]
async fn responses_are_written_before_the_connection_is_handed_off() {
    let service = Service::start().await;
    let (mut client, _drain, task) = connect(&service);
    // More than the connection buffers, followed by the upgrade.
    let pipelined = "GET /openapi.json HTTP/1.1\r\nhost: a\r\n\r\nGET /mqtt HTTP/1.1\r\nhost: a\r\n\r\n";
    client.write_all(pipelined.as_bytes()).await.expect("written");
    tokio::task::yield_now().await;
    let answer = read_until(&mut client, "\r\n\r\n").await;
    let (head, begun) = answer.split_once("\r\n\r\n").expect("a head");
    let length = head.to_lowercase().split_once("content-length: ").expect("a length").1.to_owned();
    let length: usize = length.lines().next().expect("a line").parse().expect("a number");
    let mut rest = vec![0; length - begun.len()];
    client.read_exact(&mut rest).await.expect("the whole answer");
    assert!(handed_off(task).await.bytes.starts_with(b"GET /mqtt "));
}

#[tokio::test]
async fn without_a_gateway_its_requests_get_misdirected() {
    let service = Service::start().await;
    for path in ["/v1/connect", "/v1/events", "/mqtt", "/xmpp", "/socket.io/"] {
        service.get(path, "").await.problem(421, "misdirected");
    }
}

fn hasty() -> Timing {
    let short = Duration::from_millis(100);
    Timing { body_first_byte: short, body: short * 3, send: short, ..Timing::default() }
}

/// Also for handlers without a deadline of their own.
#[tokio::test]
async fn a_missing_body_times_out_and_closes_the_connection() {
    let service = Service::start().await;
    let (mut client, _drain, task) =
        serve(Serving { timing: hasty(), ..Serving::new(service.public.clone()) }, None);
    let head = format!(
        "POST /v1/notifications HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {}\r\nX-Request-Id: mine\r\n\
         Content-Length: 10\r\n\r\n",
        service.key
    );
    client.write_all(head.as_bytes()).await.expect("written");
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.expect("an answer and the end");
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("body_timeout"), "{answer}");
    assert!(
        answer.contains("connection: close\r\n") && answer.contains("x-request-id: mine\r\n"),
        "{answer}"
    );
    drop(client);
    assert!(tokio::time::timeout(DEADLINE, task).await.expect("in time").expect("no panic").is_none());
}

/// A handler's own deadline, shorter than that of other bodies.
#[tokio::test]
async fn a_missing_web_push_body_times_out_and_closes_the_connection() {
    let service = Service::start().await;
    let device = service.device("d1", "u1").await;
    let made = service.post("/v1/me/endpoints", &device, "").await;
    let path = service.path_of(&made.json());
    let (mut client, _drain, _task) = serve(Serving::new(service.public.clone()), None);
    let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nTTL: 1\r\nContent-Length: 10\r\n\r\n");
    client.write_all(head.as_bytes()).await.expect("written");
    let mut answer = String::new();
    let read = client.read_to_string(&mut answer);
    tokio::time::timeout(DEADLINE, read).await.expect("in time").expect("an answer and the end");
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("within 5 s"), "{answer}");
    assert!(answer.contains("connection: close\r\n"), "{answer}");
}

#[tokio::test]
async fn a_client_that_does_not_read_its_response_is_disconnected() {
    let service = Service::start().await;
    let (mut client, _drain, task) =
        serve(Serving { timing: hasty(), ..Serving::new(service.public.clone()) }, None);
    client.write_all(b"GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n").await.expect("written");
    tokio::time::timeout(DEADLINE, task).await.expect("ended in time").expect("no panic");
    drop(client);
}

#[tokio::test]
async fn an_idle_connection_is_evicted_and_one_with_a_key_is_kept() {
    let service = Service::start().await;
    let limits = PoolLimits { connections_max: 2, per_client_max: 0 };
    let pool = Pool::new("public", limits, PoolMetrics::unregistered());
    let open = || {
        let Ok(place) = pool.enter(None) else { panic!("no room") };
        serve(Serving::new(service.public.clone()), Some(place))
    };
    let ask = |key: &str| {
        format!("GET /v1/topics HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {key}\r\n\r\n").into_bytes()
    };
    let (mut provider, _drain, _task) = open();
    provider.write_all(&ask(&service.key)).await.expect("written");
    assert!(read_until(&mut provider, "\r\n\r\n").await.starts_with("HTTP/1.1 200 "));
    let (mut stranger, _drain, task) = open();
    stranger.write_all(&ask("guessed")).await.expect("written");
    assert!(read_until(&mut stranger, "\r\n\r\n").await.starts_with("HTTP/1.1 401 "));
    let (mut newcomer, _drain, _task) = open();
    tokio::time::timeout(DEADLINE, task).await.expect("evicted").expect("no panic");
    for client in [&mut newcomer, &mut provider] {
        client.write_all(&ask(&service.key)).await.expect("written");
        assert!(read_until(client, "\r\n\r\n").await.contains("HTTP/1.1 200 "));
    }
}

/// All effects of a change happen even if the client no longer waits for the response, and no request counts as
/// active forever.
#[tokio::test]
async fn an_unsafe_request_completes_when_its_client_disconnects() {
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
            tokio::task::yield_now().await; // starts the request
            drop(client);
            tokio::time::timeout(DEADLINE, task).await.expect("ended in time").expect("no panic");
        }
    }
    let revoked: Vec<_> = devices.into_iter().map(|device| (device, CloseReason::Revoked)).collect();
    assert_eq!(service.edge.closed(), revoked);
    let metrics = service.operate(Method::GET, "/metrics", "", "").await.text;
    assert!(
        metrics.contains("\nnoroshi_http_requests_in_flight 1\n"),
        "only the metrics request itself: {metrics}"
    );
    assert!(metrics.contains(r#"{route="POST /v1/devices/{device}/revoke",status="2xx"} 20"#), "{metrics}");
}

/// Even if the partial body would parse.
#[tokio::test]
async fn a_body_that_ends_with_its_connection_is_rejected() {
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
