//! HTTP/2 at frame level: clients that behave unlike libraries, and floods.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::routing::any;
use noroshi_api::{GatewayStream, Http2, Serving, Timing};
use noroshi_protocol::http2::PREFACE;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio::sync::oneshot;

use crate::connection::{Ended, serve, serve_io};
use crate::http2::{Held, in_time, serving};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

const CANCEL: u32 = 8;
const REFUSED_STREAM: u32 = 7;
const ENHANCE_YOUR_CALM: u32 = 11;

#[derive(Debug)]
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Frame {
    /// The error of RST_STREAM, the last stream of GOAWAY.
    fn number(&self) -> u32 {
        u32::from_be_bytes(self.payload[..4].try_into().expect("four bytes"))
    }

    fn goaway_error(&self) -> u32 {
        u32::from_be_bytes(self.payload[4..8].try_into().expect("four bytes"))
    }
}

/// The complete frames.
fn frames(mut bytes: &[u8]) -> Vec<Frame> {
    let mut frames = Vec::new();
    while let Some((&[len0, len1, len2, kind, flags, ref stream @ ..], rest)) = bytes.split_first_chunk::<9>()
    {
        let len = u32::from_be_bytes([0, len0, len1, len2]) as usize;
        let Some((payload, rest)) = rest.split_at_checked(len) else { break };
        frames.push(Frame { kind, flags, stream: u32::from_be_bytes(*stream), payload: payload.to_vec() });
        bytes = rest;
    }
    frames
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, len @ ..] = u32::try_from(payload.len()).expect("a short payload").to_be_bytes();
    [&len[..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A GET, or a POST if a body follows (RFC 7541: indexed fields and literals without indexing).
fn request(stream: u32, path: &str, ends: bool) -> Vec<u8> {
    let method = if ends { 0x82 } else { 0x83 };
    let len = u8::try_from(path.len()).expect("a short path");
    let block = [&[method, 0x86, 0x01, 1, b'h', 0x04, len], path.as_bytes()].concat();
    frame(HEADERS, if ends { END_HEADERS | END_STREAM } else { END_HEADERS }, stream, &block)
}

struct Client {
    io: DuplexStream,
    drain: Option<oneshot::Sender<()>>,
    served: Ended,
}

impl Client {
    async fn connect(serving: Serving) -> Self {
        Self::with_settings(serving, &[]).await
    }

    async fn with_settings(serving: Serving, settings: &[u8]) -> Self {
        let (io, drain, served) = serve(serving, None);
        let mut client = Self { io, drain: Some(drain), served };
        client.send(&[&PREFACE[..], &frame(SETTINGS, 0, 0, settings)].concat()).await;
        client
    }

    fn drain(&mut self) {
        self.drain.take().and_then(|drain| drain.send(()).ok()).expect("served");
    }

    async fn send(&mut self, frames: &[u8]) {
        in_time(self.io.write_all(frames)).await.expect("written");
    }

    /// None: end of the connection.
    async fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        in_time(self.io.read_exact(&mut head)).await.ok()?;
        let [len0, len1, len2, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, len0, len1, len2]) as usize];
        in_time(self.io.read_exact(&mut payload)).await.expect("a payload");
        Some(Frame { kind, flags, stream: u32::from_be_bytes(stream), payload })
    }

    /// Skips others. Acknowledges nothing.
    async fn until(&mut self, kind: u8) -> Frame {
        loop {
            let frame = self.next().await.unwrap_or_else(|| panic!("it ended before a frame of kind {kind}"));
            if frame.kind == kind && !(kind == SETTINGS && frame.flags == ACK) {
                return frame;
            }
        }
    }

    /// The next frame of a stream.
    async fn until_of(&mut self, stream: u32) -> Frame {
        loop {
            let frame = self.next().await.expect("a frame of the stream");
            if frame.stream == stream {
                return frame;
            }
        }
    }

    /// The error code of the last GOAWAY once the connection has ended.
    async fn ended(mut self) -> Option<u32> {
        let mut error = None;
        while let Some(frame) = self.next().await {
            if frame.kind == GOAWAY {
                error = Some(frame.goaway_error());
            }
        }
        in_time(self.served).await.expect("no panic");
        error
    }
}

#[tokio::test]
async fn a_drain_serves_streams_opened_before_goaway_arrived() {
    let held = Held::new();
    let mut client = Client::connect(serving(held.router(), Http2::default())).await;
    client.send(&request(1, "/held", true)).await;
    held.wait_started(1).await;
    client.drain();
    let told = client.until(GOAWAY).await;
    assert_eq!((told.number(), told.goaway_error()), (i32::MAX as u32, 0));
    client.send(&request(3, "/held", true)).await;
    held.wait_started(1).await;
    let ping = client.until(PING).await;
    client.send(&frame(PING, ACK, 0, &ping.payload)).await;
    assert_eq!(client.until(GOAWAY).await.number(), 3, "the last stream served");
    client.send(&request(5, "/held", true)).await;
    held.release(3);
    let mut answered = Vec::new();
    while let Some(frame) = client.next().await {
        if frame.kind == HEADERS {
            answered.push(frame.stream);
        }
    }
    answered.sort_unstable();
    assert_eq!(answered, [1, 3]);
    in_time(client.served).await.expect("no panic");
}

/// Clients may open any number of streams before they know the limit.
#[tokio::test]
async fn streams_refused_at_the_start_do_not_close_the_connection() {
    let held = Held::new();
    let http2 = Http2 { streams_max: 8, ..Http2::default() };
    let mut client = Client::connect(serving(held.router(), http2)).await;
    let requests: Vec<u8> = (0..500).flat_map(|n| request(2 * n + 1, "/held", true)).collect();
    client.send(&requests).await;
    held.wait_started(8).await;
    for _ in 8..500 {
        assert_eq!(client.until(RST_STREAM).await.number(), REFUSED_STREAM);
    }
    held.release(9);
    for _ in 0..8 {
        client.until(HEADERS).await;
    }
    client.send(&request(1_001, "/held", true)).await;
    assert_eq!(client.until_of(1_001).await.kind, HEADERS);
}

#[tokio::test]
async fn a_client_that_ignores_goaway_is_refused_and_closed() {
    let held = Held::new();
    let http2 = Http2 { leave_timeout: Duration::from_millis(50), ..Http2::default() };
    let mut client = Client::connect(serving(held.router(), http2)).await;
    client.send(&request(1, "/held", true)).await;
    held.wait_started(1).await;
    client.drain();
    client.until(GOAWAY).await;
    // It acknowledges nothing and continues.
    let mut stream = 1;
    in_time(async {
        loop {
            stream += 2;
            client.send(&request(stream, "/nothing", true)).await;
            let frame = client.until_of(stream).await;
            if frame.kind == RST_STREAM {
                return assert_eq!(frame.number(), REFUSED_STREAM);
            }
            assert_eq!(frame.kind, HEADERS, "in time");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    held.release(1);
    assert_eq!(client.until_of(1).await.kind, HEADERS, "requests in progress are answered");
    let (mut read, mut write) = tokio::io::split(client.io);
    let goes_on = tokio::spawn(async move {
        loop {
            stream += 2;
            let Ok(()) = write.write_all(&request(stream, "/nothing", true)).await else { return };
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    in_time(read.read_to_end(&mut Vec::new())).await.expect("end of the connection");
    in_time(client.served).await.expect("no panic");
    goes_on.abort();
}

#[tokio::test]
async fn a_client_that_sends_frames_is_alive_without_ping_acknowledgement() {
    let http2 = Http2 {
        ping_interval: Duration::from_millis(10),
        ping_timeout: Duration::from_millis(200),
        ..Http2::default()
    };
    let mut client = Client::connect(serving(Held::new().router(), http2)).await;
    client.until(PING).await;
    for _ in 0..200 {
        client.send(&frame(PRIORITY, 0, 1, &[0; 5])).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    client.send(&request(1, "/nothing", true)).await;
    assert_eq!(client.until_of(1).await.kind, HEADERS);
    // It sends nothing more.
    assert_eq!(client.ended().await, None);
}

#[tokio::test]
async fn an_incomplete_head_does_not_keep_the_connection() {
    let (idle, leave_timeout) = (Duration::from_millis(50), Duration::from_millis(50));
    let http2 = Http2 { idle, leave_timeout, ..Http2::default() };
    let mut client = Client::connect(serving(Held::new().router(), http2)).await;
    client.send(&frame(HEADERS, 0, 1, &[0x82, 0x86])).await;
    assert_eq!(client.ended().await, Some(0));
}

/// Floods end or stall their connection: unread frames cost nothing.
#[tokio::test]
async fn floods_are_bounded() {
    let begun = frame(HEADERS, 0, 1, &[0x82, 0x86, 0x84]);
    let posted = request(1, "/whole", false);
    let floods = [
        ("SETTINGS", Vec::new(), frame(SETTINGS, 0, 0, &[]), None),
        ("PING", Vec::new(), frame(PING, 0, 0, &[0; 8]), None),
        ("CONTINUATION", begun, frame(CONTINUATION, 0, 1, &[]), Some(ENHANCE_YOUR_CALM)),
        ("empty DATA", posted, frame(DATA, 0, 1, &[]), Some(ENHANCE_YOUR_CALM)),
    ];
    for (name, first, repeated, error) in floods {
        let timing = Timing { send: Duration::from_millis(100), ..Timing::default() };
        let serving = Serving { timing, ..serving(Held::new().router(), Http2::default()) };
        let client = Client::connect(serving).await;
        let Client { io, drain, served } = client;
        let (mut read, mut write) = tokio::io::split(io);
        let flood = tokio::spawn(async move {
            // The client reads nothing until it is throttled.
            let all = [first, repeated.repeat(100_000)].concat();
            let _ = write.write_all(&all).await;
            std::future::pending::<()>().await;
        });
        if error.is_some() {
            let mut all = Vec::new();
            in_time(read.read_to_end(&mut all)).await.expect("end of the connection");
            let goaway = frames(&all).into_iter().find(|frame| frame.kind == GOAWAY).expect(name);
            assert_eq!(Some(goaway.goaway_error()), error, "{name}");
        }
        in_time(served).await.expect("no panic");
        flood.abort();
        drop(drain);
    }
}

/// A reader that always has one more frame.
struct Flood {
    first: Vec<u8>,
    written: Arc<Mutex<Vec<u8>>>,
}

impl AsyncRead for Flood {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let budget = ready!(tokio::task::coop::poll_proceed(cx)); // as a socket does
        budget.made_progress();
        if self.first.is_empty() {
            let flood = frame(PRIORITY, 0, 1, &[0; 5]);
            self.first = flood.repeat(into.remaining() / flood.len() + 1);
        }
        let count = self.first.len().min(into.remaining());
        into.put_slice(&self.first.drain(..count).collect::<Vec<_>>());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Flood {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.written.lock().extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[tokio::test]
async fn a_flood_of_frames_does_not_delay_requests_and_drains() {
    let slow = any(async || tokio::time::sleep(Duration::from_millis(20)).await);
    let first = [&PREFACE[..], &frame(SETTINGS, 0, 0, &[]), &request(1, "/slow", true)].concat();
    let written = Arc::<Mutex<Vec<u8>>>::default();
    let io = Flood { first, written: written.clone() };
    let (drain, served) = serve_io(io, serving(Router::new().route("/slow", slow), Http2::default()));
    let until_sent = async |kind: u8| {
        in_time(async {
            while !frames(&written.lock()).iter().any(|frame| frame.kind == kind) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    };
    until_sent(HEADERS).await;
    drain.send(()).expect("served");
    until_sent(GOAWAY).await;
    served.abort();
}

#[tokio::test]
async fn an_event_waits_for_the_clients_window() {
    let (mut shard, theirs) = tokio::net::UnixStream::pair().expect("a pair");
    let theirs = Mutex::new(Some(theirs.into_std().expect("a socket")));
    let bridge = move |_, _| Some(GatewayStream { stream: theirs.lock().take()?, held: Box::new(()) });
    let http2 = Http2 { bridge: Some(Arc::new(bridge)), ..Http2::default() };
    let serving = Serving { hands_off: true, ..serving(Router::new(), http2) };
    // SETTINGS_INITIAL_WINDOW_SIZE
    let mut client = Client::with_settings(serving, &[0, 4, 0, 0, 0, 0]).await;
    client.send(&request(1, "/v1/events", true)).await;
    shard.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.expect("written");
    assert_eq!(client.until_of(1).await.kind, HEADERS);
    shard.write_all(b"data: 1\n\n").await.expect("written");
    // Its acknowledgement shows that the node was scheduled and had sent no DATA before.
    client.send(&frame(PING, 0, 0, b"waiting.")).await;
    loop {
        let frame = client.next().await.expect("a frame");
        assert_ne!(frame.kind, DATA);
        if frame.kind == PING && frame.payload == b"waiting." {
            break;
        }
    }
    client.send(&frame(WINDOW_UPDATE, 0, 1, &5_u32.to_be_bytes())).await;
    assert_eq!(client.until_of(1).await.payload, b"data:");
    client.send(&frame(WINDOW_UPDATE, 0, 1, &100_u32.to_be_bytes())).await;
    assert_eq!(client.until_of(1).await.payload, b" 1\n\n");
    client.send(&frame(RST_STREAM, 0, 1, &CANCEL.to_be_bytes())).await;
    assert_eq!(in_time(shard.read(&mut [0; 1])).await.expect("a read"), 0, "end of the connection");
}
