//! HTTP/2 over a byte stream, with the `h2` client: deadlines, places, resets, bridging to the gateway, drain.

use std::future::poll_fn;
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::any;
use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Method, Request, StatusCode};
use noroshi_api::{GatewayStream, Http2, Pool, PoolLimits, PoolMetrics, Serving, Timing};
use noroshi_auth::ClientNetwork;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinHandle;

use crate::connection::{DEADLINE, Ended, serve};

pub(crate) async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, what).await.expect("in time")
}

/// A router whose requests at `/held` wait until released.
#[derive(Clone)]
pub(crate) struct Held {
    gate: Arc<Semaphore>,
    started: Arc<Semaphore>,
    dropped: Arc<AtomicUsize>,
    done: Arc<AtomicUsize>,
}

/// The number of headers of a request, and its cookies.
async fn cookies(headers: HeaderMap) -> String {
    let cookies: Vec<_> = headers.get_all("cookie").iter().filter_map(|value| value.to_str().ok()).collect();
    format!("{} {}", headers.len(), cookies.join("|"))
}

struct Counts(Arc<AtomicUsize>);

impl Drop for Counts {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Held {
    pub(crate) fn new() -> Self {
        Self {
            gate: Arc::new(Semaphore::new(0)),
            started: Arc::new(Semaphore::new(0)),
            dropped: Arc::default(),
            done: Arc::default(),
        }
    }

    pub(crate) fn router(&self) -> Router {
        let held = self.clone();
        let wait = async move || {
            let _counts = Counts(held.dropped.clone());
            held.started.add_permits(1);
            held.gate.acquire().await.expect("open").forget();
            held.done.fetch_add(1, Ordering::SeqCst);
            "done"
        };
        Router::new()
            .route("/held", any(wait))
            .route("/large", any(async || "x".repeat(1 << 20)))
            .route("/whole", any(async |body: Bytes| body))
            .route("/cookies", any(cookies))
    }

    /// Releases this many requests.
    pub(crate) fn release(&self, count: usize) {
        self.gate.add_permits(count);
    }

    /// Waits until this many more requests have started.
    pub(crate) async fn wait_started(&self, count: u32) {
        in_time(self.started.acquire_many(count)).await.expect("open").forget();
    }
}

struct Client {
    send: SendRequest<Bytes>,
    /// The result of the connection.
    ended: JoinHandle<Result<(), h2::Error>>,
    drain: oneshot::Sender<()>,
    served: Ended,
}

impl Client {
    async fn connect(serving: Serving, place: Option<noroshi_api::Place>) -> Self {
        Self::with(&mut h2::client::Builder::new(), serving, place).await
    }

    async fn with(
        builder: &mut h2::client::Builder,
        serving: Serving,
        place: Option<noroshi_api::Place>,
    ) -> Self {
        let (io, drain, served) = serve(serving, place);
        let (send, connection) = in_time(builder.handshake(io)).await.expect("a handshake");
        Self { send, ended: tokio::spawn(connection), drain, served }
    }

    async fn open(&mut self, method: Method, path: &str, end: bool) -> (ResponseFuture, SendStream<Bytes>) {
        let uri = format!("http://h{path}");
        let request = Request::builder().method(method).uri(uri).body(()).expect("a request");
        let mut send = in_time(self.send.clone().ready()).await.expect("a connection");
        send.send_request(request, end).expect("a stream")
    }

    async fn call(&mut self, path: &str) -> Result<(StatusCode, String), h2::Error> {
        self.send(Request::get(format!("http://h{path}"))).await
    }

    /// A POST whose body is sent on demand.
    async fn wait_to_send(&mut self, path: &str) -> (ResponseFuture, SendStream<Bytes>) {
        let request = Request::post(format!("http://h{path}")).header("expect", "100-continue").body(());
        let mut send = in_time(self.send.clone().ready()).await.expect("a connection");
        send.send_request(request.expect("a request"), false).expect("a stream")
    }

    async fn send(&mut self, request: http::request::Builder) -> Result<(StatusCode, String), h2::Error> {
        let mut send = in_time(self.send.clone().ready()).await.expect("a connection");
        let (answer, _) = send.send_request(request.body(()).expect("a request"), true).expect("a stream");
        let (head, body) = in_time(answer).await?.into_parts();
        Ok((head.status, String::from_utf8_lossy(&whole(body).await?).into_owned()))
    }
}

async fn whole(mut body: RecvStream) -> Result<Vec<u8>, h2::Error> {
    let mut bytes = Vec::new();
    while let Some(piece) = in_time(body.data()).await {
        let piece = piece?;
        body.flow_control().release_capacity(piece.len())?;
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

pub(crate) fn serving(router: Router, http2: Http2) -> Serving {
    Serving { http2: Some(http2), ..Serving::new(router) }
}

#[tokio::test]
async fn an_idle_connection_gets_goaway() {
    let held = Held::new();
    let idle = Http2 { idle: Duration::from_millis(50), ..Http2::default() };
    let mut client = Client::connect(serving(held.router(), idle), None).await;
    let (answer, _) = client.open(Method::GET, "/held", true).await;
    held.wait_started(1).await;
    tokio::time::sleep(Duration::from_millis(150)).await;
    held.gate.add_permits(1);
    assert_eq!(
        in_time(answer).await.expect("an answer").status(),
        StatusCode::OK,
        "the connection was in use"
    );
    in_time(client.ended).await.expect("no panic").expect("a good end");
    in_time(client.served).await.expect("no panic");
}

#[tokio::test]
async fn a_client_without_ping_acknowledgement_is_disconnected() {
    let pings = Duration::from_millis(50);
    let http2 = Http2 { ping_interval: pings, ping_timeout: pings, ..Http2::default() };
    let (mut raw, _drain, served) = serve(serving(Held::new().router(), http2), None);
    raw.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.expect("written");
    in_time(served).await.expect("no panic");
    let mut all = Vec::new();
    in_time(raw.read_to_end(&mut all)).await.expect("end of the stream");
    assert!(all.windows(5).any(|frame| frame == [0, 0, 8, 6, 0]), "the client was pinged");
}

#[tokio::test]
async fn an_unread_response_resets_only_its_stream() {
    let timing = Timing { send: Duration::from_millis(100), ..Timing::default() };
    let held = Held::new();
    let serving = Serving { timing, ..serving(held.router(), Http2::default()) };
    let mut client = Client::connect(serving, None).await;
    let (answer, _) = client.open(Method::GET, "/large", true).await;
    let mut body = in_time(answer).await.expect("a head").into_body();
    let mut received = 0;
    let reset = loop {
        // Releases no flow-control window.
        match in_time(body.data()).await.expect("a reset") {
            Ok(piece) => received += piece.len(),
            Err(error) => break error,
        }
    };
    assert_eq!(reset.reason(), Some(Reason::CANCEL));
    assert_eq!(received, 65_535, "up to the client's window");
    drop(body);
    held.gate.add_permits(1);
    assert_eq!(client.call("/held").await.expect("an answer").0, StatusCode::OK);
}

#[tokio::test]
async fn an_unsafe_request_completes_after_a_reset_or_disconnect() {
    for leaves in [false, true] {
        let held = Held::new();
        let mut client = Client::connect(serving(held.router(), Http2::default()), None).await;
        let (asked, mut get) = client.open(Method::GET, "/held", true).await;
        let (changed, mut post) = client.open(Method::POST, "/held", true).await;
        held.wait_started(2).await;
        if leaves {
            client.ended.abort();
        } else {
            get.send_reset(Reason::CANCEL);
            post.send_reset(Reason::CANCEL);
        }
        drop((asked, changed, get, post));
        in_time(async {
            while held.dropped.load(Ordering::SeqCst) < 1 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        assert_eq!(held.done.load(Ordering::SeqCst), 0, "the other stream was reset");
        assert!(!client.served.is_finished());
        held.gate.add_permits(1);
        in_time(async {
            while held.done.load(Ordering::SeqCst) < 1 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        drop(client.send);
        in_time(client.served).await.expect("no panic");
        assert_eq!(held.dropped.load(Ordering::SeqCst), 2);
    }
}

#[tokio::test]
async fn requests_of_reset_streams_are_bounded() {
    let held = Held::new();
    let http2 = Http2 { streams_max: 2, ..Http2::default() };
    let mut registry = noroshi_telemetry::registry();
    let limits = PoolLimits { connections_max: 9, per_client_max: 0 };
    let pool = Pool::new("public", limits, PoolMetrics::new(&mut registry));
    let mut client = Client::connect(serving(held.router(), http2), pool.enter(None).ok()).await;
    // The node's settings are known after its first response.
    held.gate.add_permits(1);
    client.call("/held").await.expect("an answer");
    held.wait_started(1).await;
    for _ in 0..4 {
        let (_answer, mut stream) = client.open(Method::POST, "/held", true).await;
        held.wait_started(1).await;
        stream.send_reset(Reason::CANCEL);
    }
    let refused = client.call("/held").await.expect_err("too many");
    assert_eq!(refused.reason(), Some(Reason::REFUSED_STREAM));
    let text = noroshi_telemetry::encode(&registry).expect("metrics");
    let counted = "noroshi_api_connections_refused_total{listener=\"public\",reason=\"streams\"} 1\n";
    assert!(text.contains(counted), "{text}");
    held.gate.add_permits(5);
    in_time(async {
        while held.done.load(Ordering::SeqCst) < 5 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert_eq!(client.call("/held").await.expect("an answer").0, StatusCode::OK);
}

#[tokio::test]
async fn repeated_resets_get_enhance_your_calm() {
    let held = Held::new();
    let mut client = Client::connect(serving(held.router(), Http2::default()), None).await;
    for _ in 0..256 {
        let (_answer, mut stream) = client.open(Method::GET, "/held", true).await;
        held.wait_started(1).await;
        stream.send_reset(Reason::CANCEL);
    }
    let ended = in_time(client.ended).await.expect("no panic").expect_err("GOAWAY");
    assert_eq!(
        (ended.reason(), ended.is_go_away(), ended.is_remote()),
        (Some(Reason::ENHANCE_YOUR_CALM), true, true)
    );
    in_time(client.served).await.expect("no panic");
}

#[tokio::test]
async fn streams_take_places_in_the_pool() {
    let held = Held::new();
    let pool = Pool::new(
        "public",
        PoolLimits { connections_max: 10, per_client_max: 3 },
        PoolMetrics::unregistered(),
    );
    let network = Some(ClientNetwork::of(IpAddr::from([192, 0, 2, 7])));
    let place = pool.enter(network).ok();
    let mut client = Client::connect(serving(held.router(), Http2::default()), place).await;
    let mut answers = Vec::new();
    for _ in 0..3 {
        answers.push(client.open(Method::GET, "/held", true).await);
        held.wait_started(1).await;
    }
    let (status, text) = client.call("/held").await.expect("an answer");
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{text}");
    assert!(text.contains("overloaded"), "{text}");
    assert!(pool.enter(network).is_err(), "a connection of the same client is rejected too");
    held.gate.add_permits(4);
    for (answer, _) in answers {
        assert_eq!(in_time(answer).await.expect("an answer").status(), StatusCode::OK);
    }
    assert_eq!(client.call("/held").await.expect("an answer").0, StatusCode::OK);
}

/// A stream waiting for its body gives up its place without ending the connection or its other requests.
#[tokio::test]
async fn a_request_survives_the_eviction_of_another_stream() {
    let held = Held::new();
    let limits = PoolLimits { connections_max: 2, per_client_max: 0 };
    let pool = Pool::new("public", limits, PoolMetrics::unregistered());
    let place = pool.enter(None).ok();
    let mut client = Client::connect(serving(held.router(), Http2::default()), place).await;
    let (working, _) = client.open(Method::POST, "/held", true).await;
    held.wait_started(1).await;
    let (mut waiting, _body) = client.wait_to_send("/whole").await;
    in_time(poll_fn(|context| waiting.poll_informational(context))).await.expect("100").expect("100");
    let Ok(newcomer) = pool.enter(None) else { panic!("nobody made room") };
    assert_eq!(in_time(waiting).await.expect_err("a reset").reason(), Some(Reason::CANCEL));
    assert!(pool.enter(None).is_err(), "the other request is in progress");
    held.gate.add_permits(1);
    assert_eq!(in_time(working).await.expect("an answer").status(), StatusCode::OK);
    drop(newcomer);
    assert_eq!(client.call("/large").await.expect("an answer").0, StatusCode::OK);
}

#[tokio::test]
async fn a_drain_lets_requests_complete() {
    let held = Held::new();
    let mut client = Client::connect(serving(held.router(), Http2::default()), None).await;
    let (answer, _) = client.open(Method::GET, "/held", true).await;
    held.wait_started(1).await;
    client.drain.send(()).expect("served");
    in_time(async {
        while client.send.clone().ready().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await; // GOAWAY
    held.gate.add_permits(1);
    let (head, body) = in_time(answer).await.expect("an answer").into_parts();
    assert_eq!((head.status, whole(body).await.expect("a body")), (StatusCode::OK, b"done".to_vec()));
    in_time(client.ended).await.expect("no panic").expect("a good end");
    in_time(client.served).await.expect("no panic");
}

#[tokio::test]
async fn headers_count_as_those_of_http1() {
    let serving = serving(Held::new().router(), Http2::default());
    let head = noroshi_protocol::http::Limits { headers: 20, ..serving.head };
    let mut client = Client::connect(Serving { head, ..serving }, None).await;
    let crumbs = (0..60)
        .fold(Request::get("http://h/cookies"), |request, n| request.header("cookie", format!("c{n}=1")));
    let joined: Vec<_> = (0..60).map(|n| format!("c{n}=1")).collect();
    // Cookies are joined into one header, and there is one host.
    assert_eq!(
        client.send(crumbs).await.expect("an answer"),
        (StatusCode::OK, format!("2 {}", joined.join("; ")))
    );
    let with = |count: usize| {
        (0..count).fold(Request::get("http://h/cookies"), |request, n| request.header(format!("x-{n}"), "1"))
    };
    assert_eq!(client.send(with(19)).await.expect("an answer").0, StatusCode::OK);
    let (status, _) = client.send(with(20)).await.expect("an answer");
    assert_eq!(status, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
}

#[tokio::test]
async fn the_head_limit_is_configurable() {
    let serving = serving(Held::new().router(), Http2::default());
    let head = noroshi_protocol::http::Limits { head_bytes: 1_024, ..serving.head };
    let mut client = Client::connect(Serving { head, ..serving }, None).await;
    let with = |bytes: usize| Request::get("http://h/cookies").header("x-long", "x".repeat(bytes));
    assert_eq!(client.send(with(500)).await.expect("an answer").0, StatusCode::OK);
    let (status, _) = client.send(with(1_024)).await.expect("an answer");
    assert_eq!(status, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
}

#[tokio::test]
async fn continue_is_sent_when_the_body_is_read() {
    let mut client = Client::connect(serving(Held::new().router(), Http2::default()), None).await;
    let (mut answer, mut body) = client.wait_to_send("/whole").await;
    let go_on = in_time(poll_fn(|context| answer.poll_informational(context))).await;
    assert_eq!(go_on.expect("a head").expect("a head").status(), StatusCode::CONTINUE);
    body.send_data(Bytes::from_static(b"all of it"), true).expect("sent");
    let (head, body) = in_time(answer).await.expect("an answer").into_parts();
    assert_eq!((head.status, whole(body).await.expect("a body")), (StatusCode::OK, b"all of it".to_vec()));

    let (mut answer, _body) = client.wait_to_send("/nothing").await;
    let informational = in_time(poll_fn(|context| answer.poll_informational(context))).await;
    assert!(informational.is_none(), "no 100 Continue for an unread body");
    assert_eq!(in_time(answer).await.expect("an answer").status(), StatusCode::NOT_FOUND);
}

/// What the gateway receives: heads, and its ends of the socket pairs.
type Given = Arc<Mutex<Vec<(String, UnixStream)>>>;

fn bridged(held: &Held, room: bool) -> (Serving, Given) {
    bridged_with(held, room, Http2::default())
}

fn bridged_with(held: &Held, room: bool, http2: Http2) -> (Serving, Given) {
    let given = Given::default();
    let gateway = given.clone();
    let bridge = move |peer: std::net::SocketAddr, head: Vec<u8>| {
        assert_eq!(peer.ip(), IpAddr::from([192, 0, 2, 7]));
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        theirs.set_nonblocking(true).expect("a socket");
        ours.set_nonblocking(true).expect("a socket");
        gateway.lock().push((String::from_utf8(head).expect("text"), ours));
        room.then(|| GatewayStream { stream: theirs, held: Box::new(()) })
    };
    let http2 = Http2 { bridge: Some(Arc::new(bridge)), ..http2 };
    (Serving { hands_off: true, ..serving(held.router(), http2) }, given)
}

async fn next(given: &Given) -> (String, tokio::net::UnixStream) {
    let (head, stream) = in_time(async {
        loop {
            if let Some(next) = given.lock().pop() {
                return next;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    (head, tokio::net::UnixStream::from_std(stream).expect("a socket"))
}

const EVENTS: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\nretry: 1\n\n";

#[tokio::test]
async fn an_event_stream_is_bridged_until_either_side_closes() {
    let (serving, given) = bridged(&Held::new(), true);
    let mut client = Client::connect(serving, None).await;
    let (answer, _) = client.open(Method::GET, "/v1/events?topics=a", true).await;
    let (head, mut shard) = next(&given).await;
    assert_eq!(head, "GET /v1/events?topics=a HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n");
    shard.write_all(EVENTS).await.expect("written");
    let answer = in_time(answer).await.expect("a head");
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    assert!(!answer.headers().contains_key("connection"));
    let mut body = answer.into_body();
    assert_eq!(in_time(body.data()).await.expect("data").expect("data"), "retry: 1\n\n");
    shard.write_all(b"data: 1\n\n").await.expect("written");
    assert_eq!(in_time(body.data()).await.expect("data").expect("data"), "data: 1\n\n");
    drop(shard);
    assert_eq!(whole(body).await.expect("a good end"), b"");

    let (answer, mut stream) = client.open(Method::GET, "/v1/events", true).await;
    let (_, mut shard) = next(&given).await;
    shard.write_all(EVENTS).await.expect("written");
    let answer = in_time(answer).await.expect("a head");
    stream.send_reset(Reason::CANCEL);
    assert_eq!(in_time(shard.read(&mut [0; 1])).await.expect("a read"), 0, "end of the stream");
    drop(answer);

    let (_answer, _) = client.open(Method::GET, "/v1/events", true).await;
    let (_, mut shard) = next(&given).await;
    client.ended.abort();
    assert_eq!(in_time(shard.read(&mut [0; 1])).await.expect("a read"), 0, "end of the stream");
}

/// Otherwise a browser would retry on the same connection, and give its stream up if that is refused.
#[tokio::test]
async fn goaway_precedes_the_end_of_drained_streams() {
    let draining = watch::Sender::new(false);
    let http2 = Http2 { draining: draining.subscribe(), ..Http2::default() };
    let mut registry = noroshi_telemetry::registry();
    let limits = PoolLimits { connections_max: 9, per_client_max: 0 };
    let pool = Pool::new("public", limits, PoolMetrics::new(&mut registry));
    let (serving, given) = bridged_with(&Held::new(), true, http2);
    let mut client = Client::connect(serving.clone(), pool.enter(None).ok()).await;
    let mut other = Client::connect(serving, pool.enter(None).ok()).await;
    assert_eq!(other.call("/large").await.expect("an answer").0, StatusCode::OK);
    let (answer, _) = client.open(Method::GET, "/v1/events", true).await;
    let (_, mut shard) = next(&given).await;
    shard.write_all(EVENTS).await.expect("written");
    let mut body = in_time(answer).await.expect("a head").into_body();
    in_time(body.data()).await.expect("data").expect("data");

    draining.send_replace(true);
    shard.write_all(b"event: close\n\n").await.expect("written");
    assert_eq!(in_time(body.data()).await.expect("data").expect("data"), "event: close\n\n");
    assert!(in_time(client.send.clone().ready()).await.is_err_and(|error| error.is_go_away()));
    drop(shard);
    assert_eq!(whole(body).await.expect("a good end"), b"");
    in_time(client.ended).await.expect("no panic").expect("a good end");

    assert_eq!(other.call("/large").await.expect("requests of the API go on").0, StatusCode::OK);
    let (answer, _) = other.open(Method::GET, "/socket.io/?EIO=4&sid=s", true).await;
    let (_, mut shard) = next(&given).await;
    shard.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.expect("written");
    assert_eq!(
        in_time(answer).await.expect("an answer").status(),
        StatusCode::OK,
        "as do sessions that poll"
    );
    let (answer, _) = other.open(Method::GET, "/v1/events", true).await;
    let (_, mut shard) = next(&given).await;
    shard.write_all(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n").await.expect("written");
    assert_eq!(in_time(answer).await.expect_err("a reset").reason(), Some(Reason::REFUSED_STREAM));
    in_time(other.ended).await.expect("no panic").expect("a good end");

    for served in [client.served, other.served] {
        in_time(served).await.expect("no panic");
    }
    let text = noroshi_telemetry::encode(&registry).expect("metrics");
    let closed = "noroshi_api_http2_connections_closed_total{listener=\"public\",reason=\"drain\"} 2\n";
    assert!(text.contains(closed), "{text}");
}

#[tokio::test]
async fn unread_bytes_stay_with_the_gateway() {
    let (serving, given) = bridged(&Held::new(), true);
    let mut client = Client::connect(serving, None).await;
    let (answer, _) = client.open(Method::GET, "/v1/events", true).await;
    let (_, mut shard) = next(&given).await;
    shard.write_all(EVENTS).await.expect("written");
    let _body = in_time(answer).await.expect("a head").into_body();
    let mut written = 0;
    // Until no more is accepted for a while: sockets, windows and buffers are full.
    while let Ok(count) = tokio::time::timeout(Duration::from_millis(500), shard.write(&[b'x'; 8_192])).await
    {
        written += count.expect("a write");
        assert!(written < 4 << 20, "memory is bounded");
    }
    let (other, _) = client.open(Method::GET, "/v1/events", true).await;
    let (_, mut shard) = next(&given).await;
    shard.write_all(EVENTS).await.expect("written");
    assert_eq!(in_time(other).await.expect("a head").status(), StatusCode::OK, "other streams continue");
}

#[tokio::test]
async fn a_post_to_the_gateway_has_a_content_length() {
    let (serving, given) = bridged(&Held::new(), true);
    let mut client = Client::connect(serving, None).await;
    let (answer, mut body) = client.open(Method::POST, "/socket.io/?EIO=4&sid=s", false).await;
    body.send_data(Bytes::from_static(b"40"), false).expect("sent");
    body.send_data(Bytes::from_static(b"{}"), true).expect("sent");
    let (head, mut shard) = next(&given).await;
    assert!(
        head.starts_with("POST /socket.io/?EIO=4&sid=s HTTP/1.1\r\n")
            && head.contains("content-length: 4\r\n"),
        "{head}"
    );
    let mut posted = [0; 4];
    in_time(shard.read_exact(&mut posted)).await.expect("a body");
    assert_eq!(&posted, b"40{}");
    shard.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.expect("written");
    let (head, body) = in_time(answer).await.expect("an answer").into_parts();
    assert_eq!((head.status, whole(body).await.expect("a body")), (StatusCode::OK, b"ok".to_vec()));

    let (answer, mut body) = client.open(Method::POST, "/socket.io/?EIO=4&sid=s", false).await;
    body.send_data(Bytes::from(vec![b'x'; 65_535]), false).expect("sent");
    body.send_data(Bytes::from_static(b"xx"), false).expect("sent");
    assert_eq!(in_time(answer).await.expect("an answer").status(), StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn the_body_limit_of_posts_to_the_gateway_is_configurable() {
    let http2 = Http2 { client_message_bytes: 10, ..Http2::default() };
    let (serving, given) = bridged_with(&Held::new(), true, http2);
    let mut client = Client::connect(serving, None).await;
    for (bytes, fits) in [(10, true), (11, false)] {
        let (answer, mut body) = client.open(Method::POST, "/socket.io/?EIO=4&sid=s", false).await;
        body.send_data(vec![b'x'; bytes].into(), true).expect("sent");
        if fits {
            let (head, mut shard) = next(&given).await;
            assert!(head.contains("content-length: 10\r\n"), "{head}");
            shard.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.expect("written");
        }
        let expected = if fits { StatusCode::OK } else { StatusCode::PAYLOAD_TOO_LARGE };
        assert_eq!(in_time(answer).await.expect("an answer").status(), expected);
    }
}

#[tokio::test]
async fn a_response_to_head_has_no_body() {
    let (serving, given) = bridged(&Held::new(), true);
    let mut client = Client::connect(serving, None).await;
    let (answer, _) = client.open(Method::HEAD, "/socket.io/?EIO=4", true).await;
    let (head, mut shard) = next(&given).await;
    assert!(head.starts_with("HEAD "), "{head}");
    shard.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\nno").await.expect("written");
    let (head, body) = in_time(answer).await.expect("an answer").into_parts();
    assert_eq!((head.status, whole(body).await.expect("no body")), (StatusCode::BAD_REQUEST, Vec::new()));
}

#[tokio::test]
async fn a_failed_or_full_gateway_is_reported() {
    let (serving, given) = bridged(&Held::new(), true);
    let mut client = Client::connect(serving, None).await;
    for said in
        [&b""[..], b"HTTP/1.1 200", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok"]
    {
        let (answer, _) = client.open(Method::GET, "/v1/events", true).await;
        let (_, mut shard) = next(&given).await;
        shard.write_all(said).await.expect("written");
        drop(shard);
        let error = match in_time(answer).await {
            Ok(answer) => whole(answer.into_body()).await.expect_err("a reset"),
            Err(error) => error,
        };
        assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR), "{said:?}");
    }
    let (serving, _given) = bridged(&Held::new(), false);
    let mut client = Client::connect(serving, None).await;
    assert_eq!(client.call("/v1/events").await.expect("an answer").0, StatusCode::SERVICE_UNAVAILABLE);
}

#[tokio::test]
async fn invalid_requests_are_reset_or_rejected() {
    let (serving, _given) = bridged(&Held::new(), true);
    let mut client = Client::connect(serving, None).await;
    for path in ["/v1/connect", "/mqtt", "/xmpp", "/socket.io/?EIO=4&transport=websocket"] {
        let reset = client.call(path).await.expect_err("a reset");
        assert_eq!(reset.reason(), Some(Reason::HTTP_1_1_REQUIRED), "{path}");
    }
    for two_hosts in [
        Request::get("http://h/held").header("host", "other"),
        Request::get("/held").header("host", "h").header("host", "h"),
    ] {
        let reset = client.send(two_hosts).await.expect_err("a reset");
        assert_eq!(reset.reason(), Some(Reason::PROTOCOL_ERROR));
    }
    let connect = Request::connect("other:443").body(()).expect("a request");
    let mut send = in_time(client.send.clone().ready()).await.expect("a connection");
    let (answer, _) = send.send_request(connect, false).expect("a stream");
    assert_eq!(in_time(answer).await.expect("an answer").status(), StatusCode::NOT_IMPLEMENTED);
}
