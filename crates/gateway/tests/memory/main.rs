//! What an idle connection costs on the heap, counted: the promise that the gateway is built around.
//!
//! One test in a process of its own, since the allocator counts everything. The clients are bare
//! sockets, so what grows with their number is the gateway's.

#![allow(unsafe_code)] // a global allocator is unsafe by nature; this one only counts

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use noroshi_auth::Auth;
use noroshi_delivery::{Clock, Delivery};
use noroshi_gateway::{Config, Gateway, Listener, Metrics};
use noroshi_store::{Devices, Registration, Sqlite, Store, sqlite::Options};
use noroshi_types::{AppId, AppName, DeviceId, Topic, UserId};

/// 1.2 KiB.
const IDLE_BYTES_MAX: i64 = 1_228;
/// Enough that a doubling map shows at its worst and its best.
const CONNECTIONS: usize = 800;

struct Counting;

static LIVE_BYTES: AtomicI64 = AtomicI64::new(0);

// SAFETY: every call goes to the system's allocator as it is; counting touches nothing else.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE_BYTES.fetch_add(layout.size() as i64, Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Node {
    gateway: Arc<Gateway>,
    auth: Arc<Auth>,
    app: AppId,
    now: noroshi_types::Timestamp,
    _folder: tempfile::TempDir,
}

async fn node() -> Node {
    let folder = tempfile::tempdir().expect("a folder");
    let mut registry = noroshi_telemetry::registry();
    let store = Arc::new(Sqlite::open(folder.path(), Options::default(), &mut registry).expect("a store"));
    let auth = Auth::open(store.clone() as Arc<dyn Store>).await.expect("auth");
    let clock = Clock::system();
    let now = clock.now();
    let name = AppName::parse("dev").expect("a name");
    let app = auth.create_app(name, Default::default(), now).await.expect("an app").id;
    let registration = |n: usize| Registration {
        device: Some(device(n)),
        user: Some(UserId::parse(&format!("user-{n}")).expect("an id")),
        topics: vec![Topic::parse("news").expect("a topic"), Topic::parse("sport").expect("a topic")],
        ..Registration::default()
    };
    store.register(app, (0..CONNECTIONS).map(registration).collect(), now).await.expect("stored");
    let metrics = noroshi_delivery::metrics::Metrics::new(&mut registry);
    let runtime = tokio::runtime::Handle::current();
    let delivery = Delivery::new(store as Arc<dyn Store>, clock, metrics, runtime);
    let address = "127.0.0.1:0".parse().expect("an address");
    let config = Config { listeners: vec![Listener { address, tls: None }], shards: 2, ..Config::default() };
    let bound = Gateway::bind(config).expect("a port");
    let handover: noroshi_gateway::HandoverFn = Arc::new(|_| {});
    let gateway = bound.start(&delivery, auth.clone(), Metrics::unregistered(), handover).expect("threads");
    delivery.attach(gateway.clone());
    Node { gateway, auth, app, now, _folder: folder }
}

fn device(n: usize) -> DeviceId {
    // As long as a UUID.
    DeviceId::parse(&format!("00000000-0000-4000-8000-{n:012}")).expect("an id")
}

/// Connects device `n` and reads its answer up to `end`.
fn connect(node: &Node, n: usize, path: &str, headers: &str, end: &[u8]) -> TcpStream {
    let token = node.auth.issue(node.app, &device(n), 1, node.now.saturating_add(Duration::from_secs(3_600)));
    let mut socket = TcpStream::connect(node.gateway.local_addrs()[0]).expect("connected");
    let head = format!("GET {path}?token={token} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
    socket.write_all(head.as_bytes()).expect("sent");
    let mut answer = [0; 4_096];
    let mut len = 0;
    while !answer[..len].windows(end.len()).any(|window| window == end) {
        let count = socket.read(&mut answer[len..]).expect("an answer");
        assert!(count > 0, "ended: {}", String::from_utf8_lossy(&answer[..len]));
        len += count;
    }
    socket
}

/// Bytes on the heap when nothing moves any more.
fn settled() -> i64 {
    let until = Instant::now() + Duration::from_secs(30);
    let (mut last, mut same) = (i64::MIN, 0);
    while same < 10 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
        let live = LIVE_BYTES.load(Ordering::Relaxed);
        same = if live == last { same + 1 } else { 0 };
        last = live;
    }
    last
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_is_small() {
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let cases =
        [("websocket", "/v1/connect", upgrade, &b"ping_s"[..]), ("sse", "/v1/events", "", &b"retry: "[..])];
    for (name, path, headers, end) in cases {
        let node = node().await;
        // The first ones pay for what all share: caches of statements, maps, threads.
        let mut sockets: Vec<TcpStream> = (0..100).map(|n| connect(&node, n, path, headers, end)).collect();
        sockets.reserve_exact(CONNECTIONS);
        let before = settled();
        sockets.extend((100..CONNECTIONS).map(|n| connect(&node, n, path, headers, end)));
        let after = settled();
        let count = i64::try_from(CONNECTIONS).expect("small") - 100;
        let each = (after - before) / count;
        println!("{name}: {each} bytes of heap for an idle connection");
        assert!(each <= IDLE_BYTES_MAX, "{name}: {each} bytes over {count} connections");
        assert!(each > 0, "something must be counted");
        drop(sockets);
        let until = Instant::now() + Duration::from_secs(30);
        while node.gateway.connections() > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(node.gateway.sessions_count(), 0);
        node.gateway.stop();
    }
}
