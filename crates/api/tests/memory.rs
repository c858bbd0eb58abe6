//! Heap use of an HTTP/2 connection with one event stream. Most of it is buffers and tables of `h2`.
//!
//! One test in its own process, since the allocator counts everything.

#![allow(unsafe_code)] // a global allocator is unsafe by nature; this one only counts

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use noroshi_api::{GatewayStream, Http2, Peer, Serving, serve_connection};

const CONNECTIONS: i64 = 200;
/// 43 KiB measured. `h2` allocates 16 KiB to write, 8 KiB to read and 4 KiB for headers, not configurable.
const BYTES_MAX: i64 = 48 << 10;

struct Counting;

static LIVE_BYTES: AtomicI64 = AtomicI64::new(0);
fn count(bytes: i64) {
    LIVE_BYTES.fetch_add(bytes, Ordering::Relaxed);
}

// SAFETY: every call is forwarded unchanged to the system allocator; counting touches nothing else.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Preface, SETTINGS, and a GET of `/v1/events`.
const ASKED: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\x11\x01\x05\0\0\0\x01\x82\x86\x01\x01h\x04\x0a/v1/events";

#[tokio::test]
async fn an_event_stream_on_a_connection_of_its_own() {
    let shards = Arc::new(Mutex::new(Vec::new()));
    let given = shards.clone();
    let bridge = move |_: SocketAddr, _: Vec<u8>| {
        let (mut ours, theirs) = UnixStream::pair().ok()?;
        theirs.set_nonblocking(true).ok()?;
        ours.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n").ok()?;
        given.lock().ok()?.push(ours);
        Some(GatewayStream { stream: theirs, held: Box::new(()) })
    };
    let http2 = Http2 { bridge: Some(Arc::new(bridge)), ..Http2::default() };
    let serving = Serving { hands_off: true, http2: Some(http2), ..Serving::new(Router::new()) };
    let mut clients = Vec::new();
    let open = async || {
        let (mut client, server) = UnixStream::pair().expect("a pair");
        server.set_nonblocking(true).expect("a socket");
        client.write_all(ASKED).expect("sent");
        let io = tokio::net::UnixStream::from_std(server).expect("a socket");
        let peer = Peer { address: SocketAddr::from(([192, 0, 2, 7], 4_711)), secure: true };
        let served = serve_connection(io, serving.clone(), peer, None, std::future::pending());
        drop(tokio::spawn(served)); // it runs on
        client.set_nonblocking(true).expect("a socket");
        let mut all = Vec::new();
        // HEADERS of the only stream.
        while !all.windows(6).any(|window: &[u8]| window == [1, 4, 0, 0, 0, 1]) {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let mut piece = [0; 1_024];
            if let Ok(count) = client.read(&mut piece) {
                all.extend_from_slice(&piece[..count]);
            }
        }
        client
    };
    for _ in 0..10 {
        clients.push(open().await);
    }
    let before = LIVE_BYTES.load(Ordering::Relaxed);
    for _ in 0..CONNECTIONS {
        clients.push(open().await);
    }
    let each = (LIVE_BYTES.load(Ordering::Relaxed) - before) / CONNECTIONS;
    println!("{each} bytes each");
    assert!(each <= BYTES_MAX, "{each} bytes each");
    drop(clients);
}
