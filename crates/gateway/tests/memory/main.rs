//! What an idle connection costs on the heap, counted: the promise that the gateway is built around.
//!
//! One test in a process of its own, since the allocator counts everything but the clients. Each case
//! is counted twice: when its connections were never used, and after a large message both ways.

#![allow(unsafe_code)] // a global allocator is unsafe by nature; this one only counts

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use noroshi_auth::Auth;
use noroshi_delivery::{Clock, Delivery};
use noroshi_gateway::{Config, Gateway, Listener, Metrics, Speaks, tls};
use noroshi_protocol::mqtt::{Connect, Packet, Properties, Publish, Qos, Version};
use noroshi_store::{Devices, Registration, Sqlite, Store, sqlite::Options};
use noroshi_types::{
    AppId, AppName, DeviceId, JsonText, Push, Request, Target, Topic, Ttl, Urgency, UserId, When,
};
use rustls::ClientConfig;
use rustls::version::{TLS12, TLS13};

use crate::client::{Client, Trust, is_client, uncounted};

mod client;

/// 1.2 KiB.
const PLAIN_BYTES_MAX: i64 = 1_228;
/// 4 KiB, so that with what an allocator rounds it stays under 5. Most of it is rustls' own state: keys,
/// key schedule, room for the messages of a handshake.
const TLS_BYTES_MAX: i64 = 4_096;
/// The memory that use may leave at a connection: a place in a queue that does not shrink, not a buffer.
const USE_BYTES_MAX: i64 = 256;
/// Enough that a doubling map shows at its worst and its best.
const CONNECTIONS: usize = 800;
/// Connected before anything is compared.
const FIRST: usize = 100;
/// 16 bytes of the timer wheel for each that was there, until its ticks have passed, and what the
/// allocator of a shared cache rounds.
const LEFT_BYTES_MAX: i64 = 32 << 10;
const MESSAGE_BYTES: usize = 20 << 10;

struct Counting;

static LIVE_BYTES: AtomicI64 = AtomicI64::new(0);

fn count(bytes: i64) {
    if !is_client() {
        LIVE_BYTES.fetch_add(bytes, Ordering::Relaxed);
    }
}

// SAFETY: every call is passed to the system's allocator unchanged; counting touches nothing else.
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

struct Node {
    gateway: Arc<Gateway>,
    delivery: Arc<Delivery>,
    auth: Arc<Auth>,
    app: AppId,
    now: noroshi_types::Timestamp,
    trust: Trust,
    _folder: tempfile::TempDir,
}

async fn node() -> Node {
    let folder = tempfile::tempdir().expect("a folder");
    let mut registry = noroshi_telemetry::registry();
    let store = Arc::new(Sqlite::open(folder.path(), Options::default(), &mut registry).expect("a store"));
    let egress = Arc::new(noroshi_egress::Egress::new(noroshi_egress::Config::default()).expect("egress"));
    let auth = Auth::open(store.clone() as Arc<dyn Store>, egress).await.expect("auth");
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
    let trust = Trust::new(folder.path());
    let acceptor = tls::Acceptor::open(&trust.certificate, &trust.key).expect("usable");
    let mqtt = Listener { speaks: Speaks::Mqtt, address, tls: None };
    let mqtts = Listener { speaks: Speaks::Mqtt, address, tls: Some(acceptor.clone()) };
    let mut listeners = vec![
        Listener { speaks: Speaks::Http, address, tls: None },
        Listener { speaks: Speaks::Http, address, tls: Some(acceptor) },
    ];
    listeners.extend([mqtt, mqtts]);
    let xmpp = Listener { speaks: Speaks::Xmpp, address, tls: None };
    listeners.extend([xmpp.clone(), Listener { tls: listeners[1].tls.clone(), ..xmpp }]);
    let mut config = Config { listeners, shards: 2, connects_per_second: 100_000, ..Config::default() };
    // No pings meanwhile, as with the other protocols.
    config.socket_io.engine.ping_interval_ms = 600_000;
    config.websocket_deflate = true;
    config.xmpp.protocol.allow_plaintext = true;
    config.xmpp.protocol.resume_max_s = 1;
    let bound = Gateway::bind(config).expect("a port");
    let handover: noroshi_gateway::HandoverFn = Arc::new(|_| {});
    let gateway = bound.start(&delivery, auth.clone(), Metrics::unregistered(), handover).expect("threads");
    delivery.context.attach_edge(gateway.clone());
    Node { gateway, delivery, auth, app, now, trust, _folder: folder }
}

impl Node {
    /// One message to all that are connected.
    async fn publish(&self, data: &str) {
        self.publish_to(Target::Topic(Topic::parse("news").expect("a topic")), data).await;
    }

    async fn publish_to(&self, target: Target, data: &str) {
        let request = Request {
            target,
            when: When::Connected,
            ttl: Ttl::default(),
            urgency: Urgency::Normal,
            waits_for_use: false,
            category: None,
            collapse_key: None,
            retain: false,
            notification: None,
            data: Some(JsonText::from_valid(data)),
            push: Push::default(),
            item: None,
            trace: None,
        };
        self.delivery.publisher.publish(self.app, request, None).await.expect("accepted");
    }
}

fn device(n: usize) -> DeviceId {
    // As long as a UUID.
    DeviceId::parse(&format!("00000000-0000-4000-8000-{n:012}")).expect("an id")
}

/// What an idle connection is.
#[derive(Clone, Copy)]
struct Case {
    path: &'static str,
    headers: &'static str,
    /// Ends the answer.
    end: &'static [u8],
    conversation: Conversation,
}

#[derive(Clone, Copy, PartialEq)]
enum Conversation {
    WebSocket,
    /// The same with permessage-deflate.
    Deflated,
    /// It receives, and sends nothing.
    Events,
    /// The same under gzip.
    Compressed,
    Mqtt,
    Xmpp,
    SocketIo,
    /// Socket.IO over long polling, between two messages: a GET waits.
    Polling,
}

impl Conversation {
    /// Of its plain listener.
    fn listener(self) -> usize {
        match self {
            Conversation::WebSocket
            | Conversation::Deflated
            | Conversation::Events
            | Conversation::Compressed
            | Conversation::SocketIo
            | Conversation::Polling => 0,
            Conversation::Mqtt => 2,
            Conversation::Xmpp => 4,
        }
    }

    /// The bytes that it may cost in addition.
    fn bytes(self) -> i64 {
        match self {
            Conversation::WebSocket | Conversation::Deflated | Conversation::Events => 0,
            // A checksum and a length, by slot.
            Conversation::Compressed => 48,
            Conversation::Mqtt | Conversation::SocketIo => 512,
            // The session, and the connection that serves it.
            Conversation::Polling => 1_024,
            Conversation::Xmpp => 1_024,
        }
    }
}

const WEBSOCKET: Case = Case {
    path: "/v1/connect",
    headers: "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
              Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
    end: b"ping_s",
    conversation: Conversation::WebSocket,
};
const DEFLATED: Case = Case {
    headers: "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
              Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
              Sec-WebSocket-Extensions: permessage-deflate\r\n",
    conversation: Conversation::Deflated,
    ..WEBSOCKET
};
const SSE: Case =
    Case { path: "/v1/events", headers: "", end: b"retry: ", conversation: Conversation::Events };
/// Each piece ends with a sync flush.
const COMPRESSED: Case = Case {
    headers: "Accept-Encoding: gzip\r\n",
    end: SYNC_FLUSH,
    conversation: Conversation::Compressed,
    ..SSE
};
const SYNC_FLUSH: &[u8] = &[0, 0, 0xFF, 0xFF];
/// CONNACK of MQTT 3.1.1.
const MQTT: Case = Case { path: "", headers: "", end: &[0x20, 2, 0, 0], conversation: Conversation::Mqtt };
/// A log-in in one round trip (XEP-0388, XEP-0386), with stream management that can resume, and the echo of the
/// presence behind it.
const XMPP: Case = Case { path: "", headers: "", end: b"</presence>", conversation: Conversation::Xmpp };

/// The answer to CONNECT.
const SOCKET_IO: Case = Case {
    path: "/socket.io/?EIO=4&transport=websocket",
    end: br#","pid":""#,
    conversation: Conversation::SocketIo,
    ..WEBSOCKET
};
const POLLING: Case = Case {
    path: "/socket.io/?EIO=4&transport=polling",
    headers: "",
    end: br#","pid":""#,
    conversation: Conversation::Polling,
};

/// Connects these devices, at once as far as the store is concerned.
fn connect(
    node: &Node,
    devices: std::ops::Range<usize>,
    case: Case,
    tls: Option<&Arc<ClientConfig>>,
    clients: &mut Vec<Client>,
) {
    let expiry = node.now.saturating_add(Duration::from_secs(3_600));
    let token = |n| (n, node.auth.issue(node.app, &device(n), 1, expiry));
    let tokens: Vec<(usize, String)> = devices.map(token).collect();
    let address = node.gateway.local_addrs()[usize::from(tls.is_some()) + case.conversation.listener()];
    let Case { path, headers, end, .. } = case;
    uncounted(|| {
        let begin = |(n, token): &(usize, String)| {
            let mut client = Client::dial(address, tls);
            let head = format!("GET {path}?token={token} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
            let first = match case.conversation {
                Conversation::WebSocket
                | Conversation::Deflated
                | Conversation::Events
                | Conversation::Compressed => head.into_bytes(),
                Conversation::SocketIo => {
                    let mut first = head.replace("?token=", "&token=").into_bytes();
                    first.extend_from_slice(&frame("40"));
                    first
                }
                Conversation::Polling => {
                    client.path = format!("{path}&token={token}");
                    client.ask("GET", "");
                    let open = client.hear_until("}");
                    let sid = open.split_once(r#""sid":""#).expect("a session").1;
                    client.path = format!("{path}&sid={}", sid.split_once('"').expect("an id").0);
                    client.ask("POST", "40");
                    client.hear_until("ok");
                    client.ask("GET", "");
                    return client;
                }
                Conversation::Mqtt => connect_packet(&device(*n), token),
                Conversation::Xmpp => xmpp_log_in(&device(*n), token),
            };
            client.write_all(&first).expect("sent");
            client
        };
        let first = clients.len();
        clients.extend(tokens.iter().map(begin));
        for client in &mut clients[first..] {
            match case.conversation {
                Conversation::Polling => {
                    client.hear_until("}");
                    client.ask("GET", "");
                }
                _ => client.read_until(end),
            }
        }
    });
}

/// A large message to every client, and one from each where it can say something.
/// The first `again` were used before.
async fn use_all(node: &Node, clients: &mut [Client], case: Case, again: usize) {
    let data = format!("\"{}the end\"", "x".repeat(MESSAGE_BYTES));
    node.publish(&data).await;
    uncounted(|| {
        for (at, client) in clients.iter_mut().enumerate() {
            if case.conversation == Conversation::Polling {
                client.hear_until("}]");
                client.ask("POST", &long_presence());
                client.hear_until("ok");
                client.ask("GET", "");
                client.hear_until("431[{\"ok\":true}]");
                client.ask("GET", "");
                continue;
            }
            match case.conversation {
                // It cannot be read from a frame; the pong comes behind it, or before.
                Conversation::Deflated => {}
                Conversation::Compressed => client.read_until(SYNC_FLUSH),
                _ => client.read_until(b"the end"),
            }
            match case.conversation {
                Conversation::SocketIo => {
                    client.write_all(&frame(&long_presence())).expect("sent");
                    client.read_until(br#"431[{"ok":true}]"#);
                }
                Conversation::WebSocket => {
                    client.write_all(&long_ping()).expect("sent");
                    client.read_until(b"pong");
                }
                Conversation::Deflated => {
                    client.write_all(&long_deflated_ping()).expect("sent");
                    client.read_until(b"pong");
                }
                Conversation::Mqtt => {
                    client.write_all(&long_publish()).expect("sent");
                    client.read_until(&[0xD0, 0]);
                }
                Conversation::Xmpp => {
                    let heard = if at < again { 3 } else { 1 };
                    client.write_all(&long_ask(heard)).expect("sent");
                    client.read_until(b"id='long'");
                }
                Conversation::Events | Conversation::Compressed | Conversation::Polling => {}
            }
        }
    });
}

/// A text frame whose mask changes nothing (RFC 6455 §5.2).
fn frame(text: &str) -> Vec<u8> {
    frame_of(0x81, text.as_bytes())
}

fn frame_of(first: u8, payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(payload.len()).expect("16 bits");
    let mut frame = vec![first];
    match u8::try_from(len) {
        Ok(short @ 0..126) => frame.push(0x80 | short),
        _ => frame.extend_from_slice(&[&[0x80 | 126], &len.to_be_bytes()[..]].concat()),
    }
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(payload);
    frame
}

fn long_ping() -> Vec<u8> {
    frame(&format!("{:MESSAGE_BYTES$}", "{\"t\":\"ping\"}"))
}

/// The same, compressed (RFC 7692 §7.2.1).
fn long_deflated_ping() -> Vec<u8> {
    let plain = format!("{:MESSAGE_BYTES$}", "{\"t\":\"ping\"}");
    let mut payload = Vec::with_capacity(plain.len());
    let mut compress = flate2::Compress::new(flate2::Compression::fast(), false);
    compress.compress_vec(plain.as_bytes(), &mut payload, flate2::FlushCompress::Sync).expect("any input");
    payload.truncate(payload.len() - SYNC_FLUSH.len());
    frame_of(0xC1, &payload)
}

/// An event of Socket.IO that is answered.
fn long_presence() -> String {
    format!(r#"421["presence",{:MESSAGE_BYTES$}]"#, r#""active""#)
}

fn connect_packet(device: &DeviceId, token: &str) -> Vec<u8> {
    let connect = Connect {
        version: Version::V3,
        is_mqtt31: false,
        clean_start: true,
        keep_alive_s: 0,
        properties: Properties::default(),
        client_id: device.as_str(),
        will: None,
        username: Some(device.as_str()),
        password: Some(token.as_bytes()),
    };
    let mut bytes = Vec::new();
    Packet::Connect(connect).encode(Version::V3, &mut bytes);
    bytes
}

fn xmpp_log_in(device: &DeviceId, token: &str) -> Vec<u8> {
    let plain = STANDARD.encode(format!("\0{}\0{token}", device.as_str()));
    format!(
        "<?xml version='1.0'?><stream:stream to='localhost' version='1.0' xmlns='jabber:client' \
         xmlns:stream='http://etherx.jabber.org/streams'><authenticate xmlns='urn:xmpp:sasl:2' \
         mechanism='PLAIN'><initial-response>{plain}</initial-response><bind xmlns='urn:xmpp:bind:0'>\
         <tag>idle</tag><enable xmlns='urn:xmpp:sm:3' resume='true'/></bind></authenticate><presence/>\
         <a xmlns='urn:xmpp:sm:3' h='1'/>"
    )
    .into_bytes()
}

/// Counts all that was sent, the message and the answer, and asks something in many bytes.
fn long_ask(heard: u32) -> Vec<u8> {
    let nothing = "x".repeat(MESSAGE_BYTES);
    format!(
        "<a xmlns='urn:xmpp:sm:3' h='{}'/><iq type='get' id='long' to='localhost'><ping xmlns='urn:xmpp:ping'>\
         {nothing}</ping></iq><a xmlns='urn:xmpp:sm:3' h='{}'/>",
        heard + 1,
        heard + 2
    )
    .into_bytes()
}

/// What the app does not allow, and a ping that is answered behind it.
fn long_publish() -> Vec<u8> {
    let publish = Publish {
        dup: false,
        qos: Qos::AtMostOnce,
        retain: false,
        topic: "x",
        packet_id: 0,
        properties: Properties::default(),
        payload: &[b'x'; MESSAGE_BYTES],
    };
    let mut bytes = Vec::new();
    Packet::Publish(publish).encode(Version::V3, &mut bytes);
    Packet::PingReq.encode(Version::V3, &mut bytes);
    bytes
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

async fn check(name: &str, case: Case, version: Option<&'static rustls::SupportedProtocolVersion>) {
    let node = node().await;
    let tls = uncounted(|| version.map(|version| node.trust.client(version)));
    let bytes_max = case.conversation.bytes() + if tls.is_some() { TLS_BYTES_MAX } else { PLAIN_BYTES_MAX };
    let mut clients = Vec::new();
    // The first ones pay for what all share: caches of statements, maps, threads, scratch.
    connect(&node, 0..FIRST, case, tls.as_ref(), &mut clients);
    use_all(&node, &mut clients, case, 0).await;
    if case.conversation == Conversation::Deflated {
        // One shard compresses a message to all: here each makes its compressor.
        for n in 0..FIRST {
            let user = UserId::parse(&format!("user-{n}")).expect("an id");
            node.publish_to(Target::Users(vec![user]), &format!("{:300}", "1")).await;
        }
    }
    let before = settled();
    connect(&node, FIRST..CONNECTIONS, case, tls.as_ref(), &mut clients);
    let count = i64::try_from(CONNECTIONS - FIRST).expect("small");
    let idle = (settled() - before) / count;
    use_all(&node, &mut clients, case, FIRST).await;
    let used = (settled() - before) / count;
    println!("{name}: {idle} bytes of heap for an idle connection, {used} after use");
    assert!(idle > 0, "something must be counted");
    assert!(idle <= bytes_max && used <= bytes_max, "{name}: {idle} bytes, {used} after use");
    assert!(used <= idle + USE_BYTES_MAX, "{name}: of {idle} bytes use made {used}");
    uncounted(|| drop(clients));
    let until = Instant::now() + Duration::from_secs(30);
    while node.gateway.connections() > 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(node.gateway.sessions_count(), 0);
    if case.conversation == Conversation::Xmpp {
        // No client resumed them.
        std::thread::sleep(Duration::from_millis(1_100));
        node.gateway.observe();
    }
    let left = settled() - before;
    println!("{name}: {left} bytes of heap more than {FIRST} connections had, when all are gone");
    assert!(left <= LEFT_BYTES_MAX, "{name}: {left} bytes are left of {CONNECTIONS} connections");
    node.gateway.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_is_small() {
    for (transport, version) in [("plain", None), ("TLS 1.3", Some(&TLS13)), ("TLS 1.2", Some(&TLS12))] {
        check(&format!("WebSocket, {transport}"), WEBSOCKET, version).await;
        check(&format!("WebSocket with permessage-deflate, {transport}"), DEFLATED, version).await;
        check(&format!("SSE, {transport}"), SSE, version).await;
        check(&format!("SSE under gzip, {transport}"), COMPRESSED, version).await;
        check(&format!("Socket.IO, {transport}"), SOCKET_IO, version).await;
        check(&format!("Socket.IO that polls, {transport}"), POLLING, version).await;
        check(&format!("MQTT, {transport}"), MQTT, version).await;
        check(&format!("XMPP, {transport}"), XMPP, version).await;
    }
}
