//! Tests against an independent server, hyper: requests with and without bodies, more at once than it allows,
//! bodies beyond its windows, responses beyond ours, graceful shutdown, and refused streams.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use noroshi_protocol::http2::{Config, Connection, Event, Field, Head, Key, code};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

const CONFIG: Config = Config {
    stream_window: 65_535,
    connection_window: 65_535,
    response_body_bytes_max: 1 << 20,
    header_list_bytes_max: 16 << 10,
};

/// Responds with properties of the request: the status from the path, some fields, and the body's length and
/// sum.
async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let Ok(body) = body.collect().await.map(|body| body.to_bytes()) else {
        return Ok(Response::new(Full::default()));
    };
    assert_eq!((head.uri.scheme_str(), head.uri.host()), (Some("https"), Some("push.example")));
    assert_eq!(head.headers["authorization"], "bearer same each time");
    let status = head.uri.path().trim_start_matches('/').split('/').next().unwrap_or_default();
    let sum: u64 = body.iter().map(|byte| u64::from(*byte)).sum();
    let body = match head.uri.path().ends_with("/echo") {
        true => body,
        false => Bytes::from(format!("{} {} {sum}", head.method, body.len())),
    };
    let response = Response::builder()
        .status(StatusCode::from_bytes(status.as_bytes()).expect("a status"))
        .header("apns-id", head.headers.get("apns-id").expect("an id"))
        .header("server", "the same each time")
        .body(Full::new(body));
    Ok(response.expect("a response"))
}

struct Client {
    connection: Connection,
    socket: DuplexStream,
}

impl Client {
    /// Connects to a server with these limits through a pipe. The returned sender closes it.
    fn new(streams_max: u32, window: u32) -> (Self, tokio::sync::oneshot::Sender<()>) {
        let (socket, server) = tokio::io::duplex(10_000);
        let (close, closed) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            builder.max_concurrent_streams(streams_max).initial_stream_window_size(window);
            let served = builder.serve_connection(TokioIo::new(server), service_fn(answer));
            tokio::pin!(served);
            tokio::select! {
                result = &mut served => return result.expect("the client follows the protocol"),
                _ = closed => served.as_mut().graceful_shutdown(),
            }
            served.await.expect("the client follows the protocol");
        });
        (Self { connection: Connection::new(CONFIG), socket }, close)
    }

    fn request(&mut self, key: u64, path: &str, body: Bytes) {
        let id = format!("id {key}");
        let headers = [
            Field { name: "authorization", value: b"bearer same each time", indexed: true },
            Field { name: "apns-id", value: id.as_bytes(), indexed: false },
        ];
        let head = Head { method: "POST", authority: "push.example", path, headers: &headers };
        self.connection.request(Key(key), &head, body).expect("room");
    }

    /// Writes the output and reads once. Returns false at the end of the connection.
    async fn turn(&mut self) -> bool {
        let output = std::mem::take(self.connection.output());
        let (mut read, mut write) = tokio::io::split(&mut self.socket);
        let mut bytes = [0; 4096];
        // Concurrently: the server may wait for us to read.
        let writing = async {
            write.write_all(&output).await.expect("the server reads");
            write.flush().await
        };
        let both = async { tokio::join!(writing, read.read(&mut bytes)) };
        let (_, len) = tokio::time::timeout(Duration::from_secs(60), both).await.expect("no timeout");
        let len = len.expect("the server writes");
        self.connection.receive(&bytes[..len]).expect("the server follows the protocol");
        len > 0
    }
}

fn body(len: usize) -> Bytes {
    (0..len).map(|i| i as u8).collect()
}

#[tokio::test]
async fn more_requests_than_the_server_allows() {
    let (mut client, _close) = Client::new(20, 10_000);
    const COUNT: u64 = 500;
    let lens = |key: u64| [0, 1, 300, 4096, 70_000][key as usize % 5];
    let (mut waiting, mut answered) = (VecDeque::from_iter(0..COUNT), HashMap::new());
    let mut refused = 0;
    while answered.len() < COUNT as usize {
        while let Some(key) = waiting.pop_front_if(|_| client.connection.room() > 0) {
            let status = if key.is_multiple_of(3) { 410 } else { 200 };
            client.request(key, &format!("/{status}/device/{key}"), body(lens(key)));
        }
        assert!(client.turn().await);
        while let Some(event) = client.connection.poll_event() {
            match event {
                Event::Response { key, status, headers, body, truncated } => {
                    assert!(!truncated);
                    assert_eq!(headers.get("apns-id"), Some(format!("id {}", key.0).as_bytes()));
                    assert_eq!(headers.get("server"), Some(&b"the same each time"[..]));
                    assert!(answered.insert(key.0, (status, body)).is_none());
                }
                // The client opened 100 streams before the server's limit of 20 arrived.
                Event::Reset { key, code, processed } => {
                    assert_eq!((code, processed), (code::REFUSED_STREAM, false));
                    waiting.push_back(key.0);
                    refused += 1;
                }
                Event::SettingsChanged => assert!(client.connection.room() <= 20),
                other => panic!("{other:?}"),
            }
        }
    }
    // The limit is respected once it is known.
    assert!(refused <= 80, "{refused} refused");
    for (key, (status, answer)) in answered {
        assert_eq!(status, if key.is_multiple_of(3) { 410 } else { 200 });
        let body = body(lens(key));
        let sum: u64 = body.iter().map(|byte| u64::from(*byte)).sum();
        assert_eq!(answer, format!("POST {} {sum}", body.len()));
    }
}

#[tokio::test]
async fn responses_beyond_our_windows() {
    let (mut client, _close) = Client::new(100, 1 << 20);
    for key in 0..4 {
        client.request(key, "/200/echo", body(300_000));
    }
    let mut answered = 0;
    while answered < 4 {
        assert!(client.turn().await);
        while let Some(event) = client.connection.poll_event() {
            if let Event::Response { body: echoed, .. } = event {
                assert_eq!(echoed, body(300_000));
                answered += 1;
            }
        }
    }
}

#[tokio::test]
async fn server_shuts_down_gracefully() {
    let (mut client, close) = Client::new(100, 10_000);
    client.connection.ping();
    client.request(0, "/200/x", body(100));
    let mut heard = Vec::new();
    while heard.len() < 3 {
        assert!(client.turn().await);
        heard.extend(std::iter::from_fn(|| client.connection.poll_event()));
    }
    assert!(heard.contains(&Event::Pong));
    for key in 1..4 {
        client.request(key, "/200/x", body(100));
    }
    close.send(()).expect("a server");
    let mut answered = 0;
    // The server closes the connection after answering the open requests.
    while client.turn().await {
        while let Some(event) = client.connection.poll_event() {
            match event {
                Event::Response { .. } => answered += 1,
                Event::Reset { processed, .. } => assert!(!processed),
                Event::GoAway { code, .. } => assert_eq!((code, client.connection.room()), (0, 0)),
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(client.connection.is_closing());
    assert_eq!((answered, client.connection.into_open()), (3, vec![]));
}

#[tokio::test]
async fn cancelled_request_does_not_affect_others() {
    let (mut client, _close) = Client::new(100, 1000);
    for key in 0..10 {
        client.request(key, "/200/x", body(5000));
    }
    assert!(client.turn().await);
    (0..10).step_by(2).for_each(|key| client.connection.cancel(Key(key)));
    let mut answered = Vec::new();
    while client.connection.open() > 0 {
        assert!(client.turn().await);
        while let Some(event) = client.connection.poll_event() {
            answered.extend(event.key().map(|key| key.0));
        }
    }
    answered.sort_unstable();
    assert_eq!(answered, [1, 3, 5, 7, 9]);
}
