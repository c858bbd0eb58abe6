//! A gateway on a real store, in this process, and the clients that talk to it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use noroshi_auth::Auth;
use noroshi_delivery::{Clock, Delivery, Edge};
use noroshi_gateway::{Config, Gateway, Handover, HandoverFn, Listener, Metrics, Speaks};
use noroshi_store::{
    Accept, Accepted, Backlog, Devices, Notifications, Registration, Sessions, Sqlite, Store, sqlite::Options,
};
use noroshi_telemetry::Registry;
use noroshi_types::{
    AppId, AppName, DeviceId, DeviceNum, JsonText, NotificationId, Push, Request, Target, Timestamp, Topic,
    Ttl, Urgency, UserId, When,
};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Error, Message};

/// The timeout of all waits: far beyond anything that happens on a slow machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Node {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) delivery: Arc<Delivery>,
    pub(crate) auth: Arc<Auth>,
    pub(crate) store: Arc<Sqlite>,
    pub(crate) metrics: Metrics,
    registry: Registry,
    pub(crate) app: AppId,
    pub(crate) handed_over: Arc<std::sync::Mutex<Vec<Handover>>>,
    folder: Arc<tempfile::TempDir>,
}

type Kept = (Arc<Sqlite>, Arc<tempfile::TempDir>, Registry);

fn new_store() -> Kept {
    let folder = tempfile::tempdir().expect("a folder");
    let mut registry = noroshi_telemetry::registry();
    let store = Arc::new(Sqlite::open(folder.path(), Options::default(), &mut registry).expect("a store"));
    (store, Arc::new(folder), registry)
}

pub(crate) fn plain() -> Config {
    let address = "127.0.0.1:0".parse().expect("an address");
    Config {
        listeners: vec![Listener { speaks: Speaks::Http, address, tls: None }],
        shards: 2,
        ..Config::default()
    }
}

impl Node {
    pub(crate) async fn start(config: Config) -> Self {
        let handed_over = Arc::new(std::sync::Mutex::new(Vec::new()));
        let keep = handed_over.clone();
        Self::start_with(
            config,
            handed_over,
            Arc::new(move |handover| {
                keep.lock().expect("no panic").push(handover);
            }),
        )
        .await
    }

    pub(crate) async fn start_with(
        config: Config,
        handed_over: Arc<std::sync::Mutex<Vec<Handover>>>,
        handover: HandoverFn,
    ) -> Self {
        Self::start_on(new_store(), Clock::system(), config, handed_over, handover, |_| {}).await
    }

    /// With a clock that a test sets.
    pub(crate) async fn start_at(config: Config, clock: Clock) -> Self {
        Self::start_on(new_store(), clock, config, Arc::default(), Arc::new(|_| {}), |_| {}).await
    }

    /// What a node leaves for one that is started after it.
    pub(crate) fn kept(&self) -> Kept {
        (self.store.clone(), self.folder.clone(), noroshi_telemetry::registry())
    }

    pub(crate) async fn start_after(kept: Kept, config: Config, clock: Clock) -> Self {
        Self::start_on(kept, clock, config, Arc::default(), Arc::new(|_| {}), |_| {}).await
    }

    /// One more node on the store of `self`; `join` makes it one of several.
    pub(crate) async fn start_beside(&self, join: impl FnOnce(&Arc<Delivery>)) -> Self {
        Self::start_on(self.kept(), Clock::system(), plain(), Arc::default(), Arc::new(|_| {}), join).await
    }

    async fn start_on(
        (store, folder, mut registry): Kept,
        clock: Clock,
        config: Config,
        handed_over: Arc<std::sync::Mutex<Vec<Handover>>>,
        handover: HandoverFn,
        join: impl FnOnce(&Arc<Delivery>),
    ) -> Self {
        let egress =
            Arc::new(noroshi_egress::Egress::new(noroshi_egress::Config::default()).expect("egress"));
        let auth = Auth::open(store.clone() as Arc<dyn Store>, egress).await.expect("auth");
        let name = AppName::parse("dev").expect("a name");
        let app = match auth.app(name.as_str()) {
            Some(app) => app.id,
            None => auth.create_app(name, Default::default(), clock.now()).await.expect("an app").id,
        };
        let runtime = tokio::runtime::Handle::current();
        let delivery_metrics = noroshi_delivery::metrics::Metrics::new(&mut registry);
        let delivery = Delivery::new(store.clone() as Arc<dyn Store>, clock, delivery_metrics, runtime);
        join(&delivery);
        let metrics = Metrics::new(&mut registry);
        let bound = Gateway::bind(config).expect("a free port");
        let gateway = bound.start(&delivery, auth.clone(), metrics.clone(), handover).expect("threads");
        delivery.context.attach_edge(gateway.clone());
        tokio::spawn(delivery.clone().run(std::future::pending()));
        Self { gateway, delivery, auth, store, metrics, registry, app, handed_over, folder }
    }

    pub(crate) fn address(&self) -> std::net::SocketAddr {
        self.gateway.local_addrs()[0]
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.delivery.clock().now()
    }

    /// A device of a user, with durable subscriptions.
    pub(crate) async fn device(&self, id: &str, user: &str, topics: &[&str]) -> DeviceNum {
        let registration = Registration {
            device: Some(DeviceId::parse(id).expect("an id")),
            user: Some(UserId::parse(user).expect("an id")),
            topics: topics.iter().map(|topic| Topic::parse(topic).expect("a topic")).collect(),
            ..Registration::default()
        };
        let made = self.store.register(self.app, vec![registration], self.now()).await.expect("registered");
        made.into_iter().next().expect("one").expect("accepted").num
    }

    /// Devices `{prefix}0` and on, all in one commit, without users.
    pub(crate) async fn crowd(&self, prefix: &str, count: usize, topics: &[&str]) {
        let registration = |n| Registration {
            device: Some(DeviceId::parse(&format!("{prefix}{n}")).expect("an id")),
            topics: topics.iter().map(|topic| Topic::parse(topic).expect("a topic")).collect(),
            ..Registration::default()
        };
        let registrations = (0..count).map(registration).collect();
        self.store.register(self.app, registrations, self.now()).await.expect("registered");
    }

    pub(crate) fn token(&self, device: &str) -> String {
        self.token_for(device, Duration::from_secs(3_600))
    }

    pub(crate) fn token_for(&self, device: &str, lifetime: Duration) -> String {
        let device = DeviceId::parse(device).expect("an id");
        self.auth.issue(self.app, &device, 1, self.now().saturating_add(lifetime))
    }

    pub(crate) async fn publish(&self, target: Target, when: When, data: &str) -> NotificationId {
        self.publish_request(request(target, when, data)).await
    }

    pub(crate) async fn publish_request(&self, request: Request) -> NotificationId {
        loop {
            match self.delivery.publisher.publish(self.app, request.clone(), None).await {
                Ok(receipt) => return receipt.id,
                Err(noroshi_delivery::Error::Overloaded) => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Straight to the store: not asked whether there is room, nor waited for.
    pub(crate) fn publish_unasked(&self, target: Target, when: When, data: &str) {
        let request = Arc::new(request(target.clone(), when, data));
        let accept =
            Accept { app: self.app, request, now: self.now(), idempotency: None, campaign: None, gate: None };
        let gateway = self.gateway.clone();
        let deliver = move |accepted: Result<Accepted, _>| {
            gateway.deliver(accepted.expect("accepted").message, &target);
        };
        Notifications::accept(&*self.store, accept, Box::new(deliver));
    }

    /// A WebSocket that is not logged in.
    pub(crate) async fn open(&self, path: &str) -> Client {
        let stream = TcpStream::connect(self.address()).await.expect("connected");
        Client::over(stream, path).await
    }

    /// A logged-in device, after its `ready`.
    pub(crate) async fn connect(&self, device: &str) -> Client {
        let mut client = self.open(&format!("/v1/connect?token={}", self.token(device))).await;
        let ready = client.next().await;
        assert_eq!(ready["t"], "ready", "{ready}");
        assert_eq!(ready["device"], device);
        client
    }

    /// A logged-in device on a bare socket, after its `ready`: for crowds.
    pub(crate) async fn bare(&self, device: &str) -> TcpStream {
        let mut socket = TcpStream::connect(self.address()).await.expect("connected");
        socket.write_all(&upgrade_head(&self.token(device))).await.expect("sent");
        read_until(&mut socket, b"\"ping_s\":").await;
        socket
    }

    /// Devices of which something became of a notification.
    pub(crate) fn outcome(&self, outcome: &str) -> u64 {
        let text = noroshi_telemetry::encode(&self.registry).expect("text");
        let begin = format!("noroshi_outcomes_total{{outcome=\"{outcome}\"}} ");
        let value = text.lines().find_map(|line| line.strip_prefix(&begin)?.parse().ok());
        value.unwrap_or_default()
    }

    /// The value of a counter or gauge, summed over its labels.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let text = noroshi_telemetry::encode(&self.registry).expect("text");
        let values: Vec<u64> = text
            .lines()
            .filter_map(|line| line.strip_prefix(name)?.strip_prefix(['{', ' ']))
            .map(|rest| {
                let value = rest.rsplit(' ').next().unwrap_or_default();
                // As the sum of a histogram ends.
                value.strip_suffix(".0").unwrap_or(value).parse().expect("a whole number")
            })
            .collect();
        assert!(!values.is_empty(), "no {name} in {text}");
        values.iter().sum()
    }

    pub(crate) async fn until(&self, what: &str, mut reached: impl FnMut(&Self) -> bool) {
        let until = tokio::time::Instant::now() + PATIENCE;
        while !reached(self) {
            assert!(tokio::time::Instant::now() < until, "in vain: {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits for a connection that the gateway hands to the API, and takes it.
    pub(crate) async fn next_handover(&self) -> Handover {
        let is_there = |node: &Self| !node.handed_over.lock().expect("no panic").is_empty();
        self.until("a hand-over", is_there).await;
        self.handed_over.lock().expect("no panic").pop().expect("one")
    }

    pub(crate) async fn until_sessions(&self, count: usize) {
        self.until("sessions", |node| node.gateway.sessions_count() == count).await;
    }

    /// Waits until the store has written everything that it was given so far, as it writes in order. This is a commit
    /// too.
    pub(crate) async fn until_written(&self) {
        self.store.keep_session(DeviceNum(0), None).await.expect("written"); // no such device
    }

    /// Waits until no message waits for a device. Its acknowledgements are written a little later, together with those of
    /// others: a device that reconnects before receives the messages again.
    pub(crate) async fn until_acknowledged(&self, device: &str) {
        let device = DeviceId::parse(device).expect("an id");
        let found = self.store.device(self.app, &device).await.expect("read");
        let asked = Backlog {
            app: self.app,
            device: found.expect("a device").num,
            after: None,
            session_topics: Vec::new(),
            session_since: None,
            now: self.now(),
        };
        let until = tokio::time::Instant::now() + PATIENCE;
        while !self.store.backlog(asked.clone()).await.expect("read").messages.is_empty() {
            assert!(tokio::time::Instant::now() < until, "{device} has not acknowledged all");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

pub(crate) fn request(target: Target, when: When, data: &str) -> Request {
    Request {
        target,
        when,
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
    }
}

pub(crate) fn user(name: &str) -> Target {
    Target::Users(vec![UserId::parse(name).expect("an id")])
}

pub(crate) fn topic(name: &str) -> Target {
    Target::Topic(Topic::parse(name).expect("a topic"))
}

/// The request for a WebSocket, with a token.
pub(crate) fn upgrade_head(token: &str) -> Vec<u8> {
    let head = format!(
        "GET /v1/connect?token={token} HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    head.into_bytes()
}

/// Everything up to the first read that brings `end` along.
pub(crate) async fn read_until(socket: &mut (impl AsyncRead + Unpin), end: &[u8]) -> Vec<u8> {
    let mut read = Vec::new();
    while !read.windows(end.len()).any(|window| window == end) {
        let some = tokio::time::timeout(PATIENCE, socket.read_buf(&mut read)).await.expect("in time");
        let text = String::from_utf8_lossy(&read);
        assert!(some.expect("no error") > 0, "ended before {:?}: {text}", String::from_utf8_lossy(end));
    }
    read
}

pub(crate) struct Client<S = TcpStream> {
    pub(crate) socket: WebSocketStream<S>,
}

impl Client {
    /// Small frames do not wait until the peer's kernel has acknowledged the frames before.
    pub(crate) fn send_at_once(&self) {
        self.socket.get_ref().set_nodelay(true).expect("set");
    }
}

impl<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin> Client<S> {
    pub(crate) async fn over(stream: S, path: &str) -> Self {
        let url = format!("ws://localhost{path}");
        let (socket, _) = tokio_tungstenite::client_async(url, stream).await.expect("upgraded");
        Self { socket }
    }

    pub(crate) async fn message(&mut self) -> Option<Result<Message, Error>> {
        tokio::time::timeout(PATIENCE, self.socket.next()).await.expect("something within a long time")
    }

    /// The next JSON object.
    pub(crate) async fn next(&mut self) -> Value {
        loop {
            match self.message().await {
                Some(Ok(Message::Text(text))) => return serde_json::from_str(&text).expect("JSON"),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                other => panic!("expected a text message, got {other:?}"),
            }
        }
    }

    /// The next message's `data`.
    pub(crate) async fn next_data(&mut self) -> Value {
        let message = self.next().await;
        assert_eq!(message["t"], "msg", "{message}");
        message["data"].clone()
    }

    pub(crate) async fn send(&mut self, frame: Value) {
        self.socket.send(Message::text(frame.to_string())).await.expect("sent");
    }

    /// Everything the server did for this connection so far has arrived when this returns.
    pub(crate) async fn sync(&mut self) -> Vec<Value> {
        self.send(json!({"t": "ping"})).await;
        let mut before = Vec::new();
        loop {
            let frame = self.next().await;
            if frame["t"] == "pong" {
                return before;
            }
            before.push(frame);
        }
    }

    /// The close object's reason and the close frame's code, after which the socket ends.
    pub(crate) async fn closed(&mut self) -> (String, u16) {
        let mut reason = String::new();
        loop {
            match self.message().await {
                Some(Ok(Message::Text(text))) => {
                    let frame: Value = serde_json::from_str(&text).expect("JSON");
                    if frame["t"] == "close" {
                        frame["reason"].as_str().expect("a reason").clone_into(&mut reason);
                    }
                }
                Some(Ok(Message::Close(frame))) => {
                    let code = frame.map_or(1005, |CloseFrame { code, .. }| code.into());
                    while let Some(Ok(_)) = self.message().await {}
                    return (reason, code);
                }
                Some(Ok(_)) => {}
                other => panic!("expected a close, got {other:?} after reason {reason:?}"),
            }
        }
    }
}
