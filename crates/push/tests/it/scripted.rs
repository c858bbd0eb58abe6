//! A scripted HTTP/2 peer, frame by frame (RFC 9113), without TLS.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

pub(crate) struct Listener(TcpListener);

impl Listener {
    pub(crate) async fn new() -> (Self, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let origin = format!("http://{}", listener.local_addr().expect("an address"));
        (Self(listener), origin)
    }

    /// The next connection, after the client's preface.
    pub(crate) async fn accept(&self) -> Peer {
        let (socket, _) = self.0.accept().await.expect("a connection");
        let mut peer = Peer { socket };
        let mut preface = [0; PREFACE.len()];
        peer.socket.read_exact(&mut preface).await.expect("a preface");
        assert_eq!(preface, PREFACE);
        peer
    }

    /// The same, after sending SETTINGS that allow this many streams.
    pub(crate) async fn greet(&self, streams: u32) -> Peer {
        let mut peer = self.accept().await;
        peer.settings(streams).await;
        peer
    }
}

pub(crate) struct Peer {
    socket: TcpStream,
}

impl Peer {
    /// None: the client closed.
    pub(crate) async fn frame(&mut self) -> Option<Frame> {
        let mut header = [0; 9];
        self.socket.read_exact(&mut header).await.ok()?;
        let [a, b, c, kind, flags, stream @ ..] = header;
        let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
        self.socket.read_exact(&mut payload).await.ok()?;
        Some(Frame { kind, flags, stream: u32::from_be_bytes(stream), payload })
    }

    /// The next request: its stream, and the push's number from its body.
    pub(crate) async fn request(&mut self) -> Option<(u32, u32)> {
        loop {
            let frame = self.frame().await?;
            match frame.kind {
                SETTINGS if frame.flags & ACK == 0 => self.send(SETTINGS, ACK, 0, &[]).await,
                PING if frame.flags & ACK == 0 => self.send(PING, ACK, 0, &frame.payload).await,
                DATA if frame.flags & END_STREAM != 0 => {
                    let body = std::str::from_utf8(&frame.payload).expect("text");
                    let id: uuid::Uuid = body.parse().expect("an id");
                    return Some((frame.stream, id.as_u128() as u32));
                }
                _ => {}
            }
        }
    }

    pub(crate) async fn requests(&mut self, count: usize) -> Vec<(u32, u32)> {
        let mut requests = Vec::new();
        while requests.len() < count {
            requests.push(self.request().await.expect("one more request"));
        }
        requests
    }

    /// A closed client does not matter.
    pub(crate) async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        let _ = self.socket.write_all(&frame).await;
    }

    pub(crate) async fn settings(&mut self, streams: u32) {
        // SETTINGS_MAX_CONCURRENT_STREAMS
        let mut payload = vec![0, 3];
        payload.extend(streams.to_be_bytes());
        self.send(SETTINGS, 0, 0, &payload).await;
    }

    /// `:status 200` is number 8 in the static table (RFC 7541 appendix A).
    pub(crate) async fn ok(&mut self, stream: u32) {
        self.send(HEADERS, END_HEADERS | END_STREAM, stream, &[0x88]).await;
    }

    pub(crate) async fn refuse(&mut self, stream: u32) {
        self.send(RST_STREAM, 0, stream, &7_u32.to_be_bytes()).await;
    }

    pub(crate) async fn go_away(&mut self, last: u32) {
        let mut payload = last.to_be_bytes().to_vec();
        payload.extend(0_u32.to_be_bytes());
        self.send(GOAWAY, 0, 0, &payload).await;
    }

    /// Answers all requests until the client closes. Returns them.
    pub(crate) async fn answer_all(&mut self) -> Vec<u32> {
        let mut ids = Vec::new();
        while let Some((stream, id)) = self.request().await {
            ids.push(id);
            self.ok(stream).await;
        }
        ids
    }
}
