//! Socket.IO: the transports, the messages of a device in both directions, and the same session under other protocols.

mod closing;
mod device;
mod engine;
#[cfg(debug_assertions)]
mod log_in;
mod namespaces;

use std::time::Duration;

use futures_util::SinkExt;
use noroshi_gateway::{Config, SocketIo};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;

use crate::node::{Client, Node, PATIENCE, plain};

/// As the public suites expect the server: a session lives half a second without any packet.
fn conformance() -> Config {
    Config { conformance: true, socket_io: SocketIo::conformance(), ..plain() }
}

/// The same echo for peers that may take their time.
fn echoing() -> Config {
    let mut config = conformance();
    config.socket_io.engine.ping_interval_ms = 60_000;
    config.socket_io.conversation.connect_timeout_ms = 60_000;
    config
}

/// Pings soon, and waits long for an answer.
fn pinging() -> Config {
    let mut config = echoing();
    (config.socket_io.engine.ping_interval_ms, config.socket_io.engine.ping_timeout_ms) = (300, 60_000);
    config
}

/// One connection that is kept.
struct Http {
    socket: TcpStream,
    read: Vec<u8>,
}

#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Http {
    async fn open(node: &Node) -> Self {
        let socket = TcpStream::connect(node.address()).await.expect("connected");
        Self { socket, read: Vec::new() }
    }

    async fn send(&mut self, method: &str, path: &str, body: &str) {
        let length =
            if method == "GET" { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        let request = format!("{method} {path} HTTP/1.1\r\nHost: h\r\n{length}\r\n{body}");
        self.socket.write_all(request.as_bytes()).await.expect("sent");
    }

    async fn answer(&mut self) -> Answer {
        loop {
            if let Some(answer) = self.take_answer() {
                return answer;
            }
            let some = tokio::time::timeout(PATIENCE, self.socket.read_buf(&mut self.read)).await;
            let text = String::from_utf8_lossy(&self.read);
            assert!(some.expect("in time").expect("no error") > 0, "ended after {text}");
        }
    }

    fn take_answer(&mut self) -> Option<Answer> {
        let end = self.read.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
        let head = String::from_utf8(self.read[..end].to_vec()).expect("text");
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let length: usize = length.map_or(0, |length| length.parse().expect("a number"));
        let body = self.read.get(end..end + length)?.to_vec();
        self.read.drain(..end + length);
        let status = head[9..12].parse().expect("a status");
        Some(Answer { status, head, body: String::from_utf8(body).expect("text") })
    }

    async fn get(&mut self, path: &str) -> Answer {
        self.send("GET", path, "").await;
        self.answer().await
    }

    async fn post(&mut self, path: &str, body: &str) -> Answer {
        self.send("POST", path, body).await;
        self.answer().await
    }

    /// The peer ends the connection without a packet.
    async fn ended(&mut self) {
        let count = tokio::time::timeout(PATIENCE, self.socket.read_buf(&mut self.read)).await;
        assert_eq!(count.expect("in time").unwrap_or(0), 0, "{:?}", String::from_utf8_lossy(&self.read));
    }
}

/// A session that polls, and the path of its requests.
async fn polling(node: &Node, mount: &str) -> String {
    let answer = Http::open(node).await.get(&format!("{mount}?EIO=4&transport=polling")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let open: Value = serde_json::from_str(answer.body.strip_prefix('0').expect("open")).expect("JSON");
    format!("{mount}?EIO=4&transport=polling&sid={}", open["sid"].as_str().expect("a sid"))
}

/// The text messages of a WebSocket, pings of Engine.IO answered and left out.
pub(crate) struct Socket(Client);

impl Socket {
    async fn open(node: &Node, path: &str) -> Self {
        Self(node.open(path).await)
    }

    pub(crate) async fn session(node: &Node, mount: &str) -> Self {
        let mut socket = Self::open(node, &format!("{mount}?EIO=4&transport=websocket")).await;
        assert!(socket.next().await.starts_with(r#"0{"sid":""#));
        socket
    }

    pub(crate) fn send_at_once(&self) {
        self.0.send_at_once();
    }

    pub(crate) async fn say(&mut self, text: &str) {
        self.0.socket.send(Message::text(text)).await.expect("sent");
    }

    async fn raw(&mut self) -> Message {
        match self.0.message().await {
            Some(Ok(message)) => message,
            other => panic!("expected a message, got {other:?}"),
        }
    }

    pub(crate) async fn next(&mut self) -> String {
        loop {
            match self.raw().await {
                Message::Text(text) if text.as_str() == "2" => self.say("3").await,
                Message::Text(text) => return text.as_str().to_owned(),
                other => panic!("expected text, got {other:?}"),
            }
        }
    }

    async fn say_bytes(&mut self, bytes: &[u8]) {
        self.0.socket.send(Message::binary(bytes.to_vec())).await.expect("sent");
    }

    /// The next binary message; nothing but pings comes before it.
    async fn next_bytes(&mut self) -> Vec<u8> {
        loop {
            match self.raw().await {
                Message::Text(text) if text.as_str() == "2" => self.say("3").await,
                Message::Binary(bytes) => return bytes.to_vec(),
                other => panic!("expected bytes, got {other:?}"),
            }
        }
    }

    /// The code of its end, whatever comes before.
    async fn closed(&mut self) -> u16 {
        tokio::time::timeout(PATIENCE, self.0.closed()).await.expect("in time").1
    }
}

async fn pause(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}
