//! Server-sent events, and requests to the API over the same port.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use noroshi_gateway::Config;
use noroshi_types::{DeviceId, When};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::node::{Client, Node, PATIENCE, plain, request, topic, user};

/// What `GET` answers, read as an `EventSource` would.
struct Stream<S = TcpStream> {
    socket: S,
    text: String,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Event {
    name: String,
    id: Option<String>,
    data: Value,
}

impl Stream {
    async fn open(node: &Node, path: &str, headers: &str) -> Self {
        let mut socket = TcpStream::connect(node.address()).await.expect("connected");
        let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
        socket.write_all(head.as_bytes()).await.expect("sent");
        Self { socket, text: String::new() }
    }
}

impl<S: AsyncRead + Unpin> Stream<S> {
    /// Everything up to and with `end`.
    async fn until(&mut self, end: &str) -> String {
        loop {
            if let Some(at) = self.text.find(end) {
                let rest = self.text.split_off(at + end.len());
                return std::mem::replace(&mut self.text, rest);
            }
            let mut bytes = [0; 4_096];
            let read = tokio::time::timeout(PATIENCE, self.socket.read(&mut bytes)).await.expect("in time");
            match read.expect("no error") {
                0 => panic!("ended before {end:?}: {}", self.text),
                count => self.text.push_str(&String::from_utf8_lossy(&bytes[..count])),
            }
        }
    }

    async fn event(&mut self) -> Event {
        loop {
            let block = self.until("\n\n").await;
            let mut event = Event::default();
            for line in block.lines() {
                match line.split_once(": ") {
                    Some(("event", name)) => name.clone_into(&mut event.name),
                    Some(("id", id)) => event.id = Some(id.to_owned()),
                    Some(("data", data)) => event.data = serde_json::from_str(data).expect("JSON"),
                    _ => {}
                }
            }
            if !event.name.is_empty() {
                return event;
            }
        }
    }

    async fn rest(mut self) -> String {
        let mut rest = Vec::new();
        let read = tokio::time::timeout(PATIENCE, self.socket.read_to_end(&mut rest)).await.expect("in time");
        read.expect("no error");
        self.text + std::str::from_utf8(&rest).expect("UTF-8")
    }
}

fn bearer(node: &Node, device: &str) -> String {
    format!("Authorization: Bearer {}\r\n", node.token(device))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_stream_receives_messages_and_resumes_behind_the_last() {
    let node = Node::start(plain()).await;
    node.device("d1", "u1", &[]).await;
    let mut stream = Stream::open(&node, "/v1/events?topics=news", &bearer(&node, "d1")).await;
    let head = stream.until("\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    assert!(head.contains("Content-Type: text/event-stream\r\n"), "{head}");
    assert!(head.contains("Access-Control-Allow-Origin: *\r\n"), "{head}");
    assert!(stream.until("\n\n").await.starts_with("retry: "));
    node.publish(user("u1"), When::Stored, "1").await;
    node.publish(topic("news"), When::Connected, "2").await;
    let first = stream.event().await;
    assert_eq!((first.name.as_str(), &first.data["data"]), ("msg", &json!(1)));
    assert_eq!(first.id.as_deref(), first.data["id"].as_str());
    let second = stream.event().await;
    assert_eq!((second.id, &second.data["data"]), (None, &json!(2)));
    drop(stream);
    node.until_sessions(0).await;
    for n in 3..6 {
        node.publish(if n == 4 { topic("news") } else { user("u1") }, When::Stored, &n.to_string()).await;
    }
    // In the header, and in the query for who cannot set it.
    let id = first.id.expect("stored");
    let token = bearer(&node, "d1");
    for (query, header) in
        [("", format!("Last-Event-ID: {id}\r\n")), (&*format!("&last_event_id={id}"), String::new())]
    {
        let mut stream =
            Stream::open(&node, &format!("/v1/events?topics=news{query}"), &(token.clone() + &header)).await;
        for n in 3..6 {
            assert_eq!(stream.event().await.data["data"], json!(n));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_refused_in_http() {
    let node = Node::start(plain()).await;
    node.device("d1", "u1", &[]).await;
    let expired = format!("Authorization: Bearer {}\r\n", node.token_for("d1", Duration::ZERO));
    tokio::time::sleep(Duration::from_millis(20)).await;
    let (good, ghost) = (bearer(&node, "d1"), bearer(&node, "ghost"));
    for (path, headers, status, code) in [
        ("/v1/events", "", 401, "unauthorized"),
        ("/v1/events?token=nd1.x", "", 401, "unauthorized"),
        ("/v1/events", &*expired, 401, "expired"),
        ("/v1/events", &*ghost, 401, "revoked"),
        ("/v1/events?topics=%2B", &*good, 400, "bad_topic"),
        ("/v1/events?last_event_id=7", &*good, 400, "bad_last_event_id"),
    ] {
        let headers = format!("{headers}X-Request-Id: mine.{code}\r\n");
        let answer = Stream::open(&node, path, &headers).await.rest().await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {answer}");
        assert!(answer.contains(&format!("\"code\":\"{code}\"")), "{path}: {answer}");
        assert!(answer.contains(&format!("\"type\":\"/docs#{code}\"")), "{path}: {answer}");
        assert!(answer.contains(&format!("\r\nX-Request-Id: mine.{code}\r\n")), "{path}: {answer}");
    }
    // The answer does not repeat a possible credential.
    let shown = "X-Request-Id: letmein\r\n";
    for (path, headers) in [
        ("/v1/events", format!("Authorization: Bearer letmein\r\n{shown}")),
        ("/v1/events?token=letm%65in", shown.to_owned()),
        ("/v1/events?token=other", "X-Request-Id: nd1.letmein\r\n".to_owned()),
    ] {
        let answer = Stream::open(&node, path, &headers).await.rest().await;
        assert!(answer.contains("\r\nX-Request-Id: ") && !answer.contains("letmein"), "{path}: {answer}");
    }
    assert_eq!(node.gateway.sessions_count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_with_its_reason_and_competes_with_websockets() {
    let node = Node::start(plain()).await;
    node.device("d1", "u1", &[]).await;
    let mut stream = Stream::open(&node, "/v1/events", &bearer(&node, "d1")).await;
    stream.until("retry").await;
    let mut client = node.connect("d1").await;
    let event = stream.event().await;
    assert_eq!((event.name.as_str(), &event.data["reason"]), ("close", &json!("replaced")));
    assert_eq!(stream.rest().await, "");
    let mut stream = Stream::open(&node, "/v1/events", &bearer(&node, "d1")).await;
    assert_eq!(client.closed().await.0, "replaced");
    stream.until("retry").await;
    let device = DeviceId::parse("d1").expect("an id");
    node.delivery.devices.revoke(node.app, &device).await.expect("revoked");
    assert_eq!(stream.event().await.data["reason"], "revoked");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quiet_stream_is_kept_alive() {
    let node = Node::start(Config { ping_interval: Duration::from_secs(1), ..plain() }).await;
    node.device("d1", "u1", &[]).await;
    let mut stream = Stream::open(&node, "/v1/events", &bearer(&node, "d1")).await;
    stream.until(": keep-alive\n\n").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retained_message_on_a_stream_is_no_place_to_resume_from() {
    let node = Node::start(plain()).await;
    node.device("d1", "u1", &["news"]).await;
    let mut retained = request(topic("news"), When::Stored, "1");
    retained.retain = true;
    node.device("d2", "u2", &[]).await;
    node.publish_request(retained).await;
    let mut stream = Stream::open(&node, "/v1/events?topics=news", &bearer(&node, "d2")).await;
    let event = stream.event().await;
    assert_eq!((event.id, &event.data["data"]), (None, &json!(1)));
}

#[tokio::test(flavor = "multi_thread")]
async fn other_requests_reach_the_api_with_the_bytes_read() {
    let node = Node::start(plain()).await;
    let request = "POST /v1/notifications HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello";
    let mut client = TcpStream::connect(node.address()).await.expect("connected");
    client.write_all(request.as_bytes()).await.expect("sent");
    node.until("a hand-over", |node| !node.handed_over.lock().expect("no panic").is_empty()).await;
    let handover = node.handed_over.lock().expect("no panic").pop().expect("one");
    assert_eq!(handover.peer, client.local_addr().expect("bound"));
    assert!(handover.tls.is_none());
    let mut io = handover.into_io().expect("a stream");
    let mut read = vec![0; request.len()];
    io.read_exact(&mut read).await.expect("read");
    assert_eq!(read, request.as_bytes());
    client.write_all(b" and more").await.expect("sent");
    let mut more = [0; 9];
    io.read_exact(&mut more).await.expect("read");
    assert_eq!(&more, b" and more");
    io.write_all(b"answer").await.expect("written");
    io.shutdown().await.expect("ended");
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.expect("read");
    assert_eq!(answer, "answer");
    assert_eq!(node.gateway.connections(), 0, "it is the API's now");
}

/// A connection that the API serves.
async fn handed_over(node: &Node) -> (TcpStream, noroshi_gateway::Io) {
    let mut client = TcpStream::connect(node.address()).await.expect("connected");
    client.write_all(b"GET /v1/me HTTP/1.1\r\n\r\n").await.expect("sent");
    node.until("a hand-over", |node| !node.handed_over.lock().expect("no panic").is_empty()).await;
    let handover = node.handed_over.lock().expect("no panic").pop().expect("one");
    let mut io = handover.into_io().expect("a stream");
    let mut read = [0; b"GET /v1/me HTTP/1.1\r\n\r\n".len()];
    io.read_exact(&mut read).await.expect("read");
    (client, io)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_connection_is_taken_back_for_a_gateway_request() {
    let node = Node::start(plain()).await;
    node.device("d1", "u1", &[]).await;
    let (socket, io) = handed_over(&node).await;
    let head = format!("GET /v1/events HTTP/1.1\r\nHost: h\r\n{}\r\n", bearer(&node, "d1"));
    assert!(node.gateway.take_back(io, head.into_bytes()).is_ok());
    let mut stream = Stream { socket, text: String::new() };
    stream.until("retry").await;
    node.publish(user("u1"), When::Connected, "1").await;
    assert_eq!(stream.event().await.data["data"], json!(1));
    drop(stream);
    node.until_sessions(0).await;
    // The upgrade and the first frames may come together.
    let (socket, io) = handed_over(&node).await;
    let mut head = b"GET /v1/connect HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        .to_vec();
    let connect = json!({"t": "connect", "token": node.token("d1")}).to_string();
    noroshi_protocol::ws::push_masked_frame(
        &mut head,
        noroshi_protocol::ws::Opcode::Text,
        connect.as_bytes(),
        [1, 2, 3, 4],
    );
    assert!(node.gateway.take_back(io, head).is_ok());
    let mut stream = Stream { socket, text: String::new() };
    assert!(stream.until("\r\n\r\n").await.starts_with("HTTP/1.1 101 "));
    node.until_sessions(1).await;
    assert_eq!(node.gateway.connections(), 1, "it costs what every other does");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_ends_one_connection() {
    let panicking: noroshi_gateway::HandoverFn = Arc::new(|_| panic!("on purpose"));
    let node = Node::start_with(Config { shards: 1, ..plain() }, Arc::default(), panicking).await;
    node.device("d1", "u1", &[]).await;
    let mut client = node.connect("d1").await;
    assert_eq!(Stream::open(&node, "/v1/me", "").await.rest().await, "");
    node.publish(user("u1"), When::Connected, "1").await;
    assert_eq!(client.next_data().await, json!(1));
    node.until("only the client is left", |node| node.gateway.connections() == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_in_use_is_one_clear_error() {
    let node = Node::start(plain()).await;
    let taken = noroshi_gateway::Listener {
        speaks: noroshi_gateway::Speaks::Http,
        address: node.address(),
        tls: None,
    };
    let error =
        noroshi_gateway::Gateway::bind(Config { listeners: vec![taken], ..plain() }).err().expect("taken");
    assert!(error.to_string().contains(&node.address().to_string()), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_echo_is_there_for_the_conformance_suite_only() {
    let node = Node::start(Config { conformance: true, ..plain() }).await;
    let mut client = node.open("/v1/echo").await;
    let large = "x".repeat(3 << 20);
    for text in ["hello", &large] {
        let message = tokio_tungstenite::tungstenite::Message::text(text);
        futures_util::SinkExt::send(&mut client.socket, message.clone()).await.expect("sent");
        assert_eq!(client.message().await.expect("open").expect("no error"), message);
    }
    client.socket.close(None).await.expect("sent");
    client.closed().await;
    let node = Node::start(plain()).await;
    let _echo = Stream::open(&node, "/v1/echo", "").await;
    node.until("a hand-over", |node| !node.handed_over.lock().expect("no panic").is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_byte_at_a_time_is_understood() {
    let node = Node::start(plain()).await;
    node.device("d1", "u1", &[]).await;
    let address = node.address();
    let token = node.token("d1");
    let answer = tokio::task::spawn_blocking(move || {
        let mut socket = std::net::TcpStream::connect(address).expect("connected");
        socket.set_nodelay(true).expect("set");
        let mut bytes = format!(
            "GET /v1/connect?token={token} HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        .into_bytes();
        noroshi_protocol::ws::push_masked_frame(
            &mut bytes,
            noroshi_protocol::ws::Opcode::Text,
            br#"{"t":"ping"}"#,
            [9, 8, 7, 6],
        );
        for byte in bytes {
            socket.write_all(&[byte]).expect("sent");
        }
        let mut answer = Vec::new();
        while !answer.ends_with(br#"{"t":"pong"}"#) {
            let mut byte = [0; 1];
            socket.read_exact(&mut byte).expect("more");
            answer.push(byte[0]);
        }
        String::from_utf8_lossy(&answer).into_owned()
    });
    let answer = tokio::time::timeout(PATIENCE, answer).await.expect("in time").expect("no panic");
    assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
    assert!(answer.contains(r#""t":"ready""#), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_websocket_over_another_transport_is_the_same() {
    let node = Node::start(plain()).await;
    node.device("d1", "u1", &[]).await;
    let (ours, theirs) = tokio::io::duplex(4_096);
    let mut tcp = TcpStream::connect(node.address()).await.expect("connected");
    let copy = tokio::spawn(async move {
        let mut ours = ours;
        tokio::io::copy_bidirectional(&mut ours, &mut tcp).await
    });
    let mut client = Client::over(theirs, &format!("/v1/connect?token={}", node.token("d1"))).await;
    assert_eq!(client.next().await["t"], "ready");
    drop(client);
    let _ = copy.await;
}

/// A stream under gzip, as far as it came.
struct Compressed {
    socket: TcpStream,
    bytes: Vec<u8>,
}

impl Compressed {
    async fn open(node: &Node, path: &str, device: &str) -> Self {
        let headers = bearer(node, device) + "Accept-Encoding: br, gzip\r\n";
        let Stream { socket, .. } = Stream::open(node, path, &headers).await;
        let mut stream = Self { socket, bytes: Vec::new() };
        let end = loop {
            if let Some(at) = stream.bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            assert!(stream.more().await, "an answer");
        };
        let head = String::from_utf8(stream.bytes.drain(..end).collect()).expect("text");
        assert!(
            head.starts_with("HTTP/1.1 200 ") && head.contains("\r\nContent-Encoding: gzip\r\n"),
            "{head}"
        );
        stream
    }

    async fn more(&mut self) -> bool {
        let read = self.socket.read_buf(&mut self.bytes);
        tokio::time::timeout(PATIENCE, read).await.expect("in time").expect("no error") > 0
    }

    /// What can be read now, whether the stream has ended or not.
    fn text(&self) -> String {
        let mut text = Vec::new();
        // It has not ended: that is the error.
        let _ = flate2::read::GzDecoder::new(&self.bytes[..]).read_to_end(&mut text);
        String::from_utf8(text).expect("UTF-8")
    }

    async fn until(&mut self, end: &str) {
        while !self.text().contains(end) {
            assert!(self.more().await, "ended before {end:?}: {}", self.text());
        }
    }

    /// The whole of it, checksum and length right.
    async fn whole(mut self) -> String {
        while self.more().await {}
        let mut text = String::new();
        flate2::read::GzDecoder::new(&self.bytes[..]).read_to_string(&mut text).expect("a whole stream");
        text
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_stream_is_compressed_on_request() {
    let node = Node::start(plain()).await;
    node.device("d1", "u1", &["news"]).await;
    node.device("d2", "u2", &["news"]).await;
    for n in 0..50 {
        node.publish(user("u1"), When::Stored, &format!("\"waits {n}\"")).await;
    }
    let mut one = Compressed::open(&node, "/v1/events", "d1").await;
    one.until("waits 49").await;
    let mut two = Compressed::open(&node, "/v1/events", "d2").await;
    two.until("retry: ").await;
    // One compressed piece for both, after different earlier pieces; in a burst, and separately.
    for n in 0..20 {
        node.publish(topic("news"), When::Connected, &format!("\"live {n}\"")).await;
    }
    one.until("live 19").await;
    two.until("live 19").await;
    node.publish(user("u2"), When::Stored, "\"last\"").await;
    two.until("\"last\"").await;
    let headers = bearer(&node, "d1") + "Accept-Encoding: gzip;q=0\r\n";
    let mut plain = Stream::open(&node, "/v1/events", &headers).await;
    assert!(!plain.until("\n\n").await.contains("Content-Encoding"));
    // It took over from the first one, which reports this and ends as a whole.
    let heard = one.whole().await;
    let ids: std::collections::HashSet<_> = heard.lines().filter(|line| line.starts_with("id: ")).collect();
    assert_eq!((ids.len(), heard.matches("live ").count()), (50, 20), "{heard}");
    assert!(heard.contains("event: close\ndata: {\"t\":\"close\",\"reason\":\"replaced\""), "{heard}");
    node.gateway
        .drain_devices(noroshi_gateway::drain::Order {
            rate_per_second: 1_000,
            spread: Duration::ZERO,
            deadline: None,
        })
        .expect("begun");
    let heard = two.whole().await;
    assert!(heard.contains("\"last\"") && heard.contains("\"reason\":\"drain\""), "{heard}");
}
