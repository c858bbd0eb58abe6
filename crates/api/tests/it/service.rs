//! A node's API without sockets: a real store in its own folder, a recording edge, and the
//! routers called directly.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use noroshi_api::{Config, Load, Metrics, State};
use noroshi_auth::Auth;
use noroshi_console::Console;
use noroshi_delivery::push::Outlet;
use noroshi_delivery::quota::{self, Configured};
use noroshi_delivery::{Clock, Delivery, Edge, Fan, LocalSession, Session};
use noroshi_push::{Answer as PushAnswer, Condition, Credential, CredentialStatus, Push};
use noroshi_store::{AppSettings, Sqlite, Store, sqlite};
use noroshi_types::{
    AppId, AppName, CloseReason, DeviceId, Message, NotificationId, Position, Presence, Scope, Scopes,
    Target, Timestamp, Topic, UserId,
};
use serde_json::Value;
use tower::ServiceExt;

pub(crate) const NOW: Timestamp = Timestamp(1_800_000_000_000);
pub(crate) const OPERATOR: &str = "operator-token-of-the-test";
pub(crate) const JWT_SECRET: &str = "a secret of the app, long enough for HS256";

pub(crate) struct Service {
    pub(crate) public: Router,
    pub(crate) admin: Router,
    pub(crate) console: Router,
    pub(crate) state: Arc<State>,
    pub(crate) edge: Arc<FakeEdge>,
    pub(crate) push: Arc<FakeServices>,
    pub(crate) clock: Clock,
    pub(crate) store: Arc<dyn Store>,
    /// A key of the app `dev` with all scopes.
    pub(crate) key: String,
    /// A key of the app `other` with all scopes.
    pub(crate) other_key: String,
    _log: noroshi_events::Service,
    _folder: tempfile::TempDir,
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Service {
    pub(crate) async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut State)) -> Self {
        let service = Self::without_push(change).await;
        let vault = Some(noroshi_push::Vault::new([7; 32]));
        service.state.delivery.push.attach(service.push.clone(), vault, Default::default());
        service
    }

    /// With background work: push work is sent, campaigns continue.
    pub(crate) async fn running() -> Self {
        let service = Self::start().await;
        tokio::spawn(service.state.delivery.clone().run(std::future::pending()));
        service
    }

    /// Of a node without a key for credentials.
    pub(crate) async fn without_push(change: impl FnOnce(&mut State)) -> Self {
        Self::open(Vec::new(), change).await
    }

    /// People can log in with these providers.
    pub(crate) async fn with_openid(providers: Vec<noroshi_console::Provider>) -> Self {
        Self::open(providers, |_| {}).await
    }

    async fn open(providers: Vec<noroshi_console::Provider>, change: impl FnOnce(&mut State)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut registry = noroshi_telemetry::registry();
        let store = Sqlite::open(folder.path(), sqlite::Options::default(), &mut registry).expect("a store");
        let store: Arc<dyn Store> = Arc::new(store);
        let egress =
            Arc::new(noroshi_egress::Egress::new(noroshi_egress::Config::default()).expect("egress"));
        let auth = Auth::open(store.clone(), egress).await.expect("auth");
        let mut keys = Vec::new();
        for name in ["dev", "other"] {
            let settings = AppSettings { jwt_secret: Some(JWT_SECRET.into()), ..AppSettings::default() };
            let app =
                auth.create_app(AppName::parse(name).expect("a name"), settings, NOW).await.expect("an app");
            let (_, key) =
                auth.create_key(app.id, "all".into(), Scopes::ALL, None, NOW).await.expect("a key");
            keys.push(key.to_string());
        }
        let clock = Clock::fixed(NOW);
        let delivery = Delivery::new(
            store.clone(),
            clock.clone(),
            noroshi_delivery::metrics::Metrics::new(&mut registry),
            tokio::runtime::Handle::current(),
        );
        let limited = delivery.clone();
        let of = |app: &noroshi_store::App| {
            let overrides = app.settings.quotas.as_deref().and_then(|text| quota::parse(text).ok());
            Configured { app: app.id, name: app.name.clone(), overrides: overrides.unwrap_or_default() }
        };
        auth.watch_apps(move |apps, _| {
            limited.quotas.configure(apps.iter().map(of));
            let essential = apps.iter().map(|app| (app.id, app.settings.essential_categories.clone()));
            limited.context.set_essential_categories(essential);
        })
        .await;
        let edge = Arc::new(FakeEdge::default());
        delivery.context.attach_edge(edge.clone());
        let console = Arc::new(console_of(&store, providers).await);
        let metrics = Metrics::new(&mut registry);
        let registry = Arc::new(registry);
        let series = noroshi_series::Series::new(registry.clone(), &delivery, "node", Default::default());
        let log = event_log(&delivery, folder.path());
        let runtime = tokio::runtime::Handle::current();
        let tails = noroshi_tail::Tails::new(
            delivery.clone(),
            log.events(),
            "node".into(),
            runtime,
            Default::default(),
        );
        let mut state = State {
            auth,
            delivery,
            console,
            config: Config::default(),
            metrics,
            registry,
            ready: Arc::new(AtomicBool::new(true)),
            threads: Default::default(),
            operator_token: Some(OPERATOR.into()),
            drain: None,
            nodes: None,
            series,
            tails,
            inspector: None,
            profiler: noroshi_profiling::Profiler::new(folder.path().join("profiles")),
            first_calls: noroshi_api::FirstCalls::default(),
            load: Load::default(),
        };
        change(&mut state);
        let state = Arc::new(state);
        Self {
            public: noroshi_api::router(state.clone()),
            admin: noroshi_api::admin_router(state.clone()),
            console: noroshi_api::console_router(state.clone(), false),
            state,
            edge,
            push: Arc::default(),
            clock,
            store,
            other_key: keys.remove(1),
            key: keys.remove(0),
            _log: log,
            _folder: folder,
        }
    }

    pub(crate) fn app(&self) -> AppId {
        self.state.auth.app("dev").expect("the app").id
    }

    /// A new key of the app `dev`.
    pub(crate) async fn key_with(&self, scopes: &[Scope]) -> String {
        let scopes = scopes.iter().copied().collect();
        let made = self.state.auth.create_key(self.app(), "some".into(), scopes, None, NOW).await;
        made.expect("a key").1.to_string()
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        answer(self.public.clone(), request).await
    }

    pub(crate) async fn call(&self, method: Method, path: &str, bearer: &str, body: &str) -> Answer {
        self.send(request(method, path, bearer, body)).await
    }

    pub(crate) async fn get(&self, path: &str, bearer: &str) -> Answer {
        self.call(Method::GET, path, bearer, "").await
    }

    pub(crate) async fn post(&self, path: &str, bearer: &str, body: &str) -> Answer {
        self.call(Method::POST, path, bearer, body).await
    }

    pub(crate) async fn put(&self, path: &str, bearer: &str, body: &str) -> Answer {
        self.call(Method::PUT, path, bearer, body).await
    }

    pub(crate) async fn delete(&self, path: &str, bearer: &str) -> Answer {
        self.call(Method::DELETE, path, bearer, "").await
    }

    pub(crate) async fn operate(&self, method: Method, path: &str, bearer: &str, body: &str) -> Answer {
        answer(self.admin.clone(), request(method, path, bearer, body)).await
    }

    /// Retries until the response is as expected.
    pub(crate) async fn until(&self, path: &str, expected: impl Fn(&Value) -> bool) -> Value {
        let mut body = Value::Null;
        for _ in 0..3_000 {
            body = self.get(path, &self.key).await.json();
            if expected(&body) {
                return body;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("{path} stays {body}");
    }

    /// Registers a device of the app `dev` and returns its token.
    pub(crate) async fn device(&self, device: &str, user: &str) -> String {
        let body = format!("{{\"device\": \"{device}\", \"user\": \"{user}\"}}");
        let answer = self.post("/v1/devices", &self.key, &body).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text);
        answer.json()["token"].as_str().expect("a token").to_owned()
    }

    /// The path of an endpoint on this service.
    pub(crate) fn path_of(&self, endpoint: &Value) -> String {
        let url = endpoint["url"].as_str().expect("a URL");
        url.strip_prefix("http://push.example.com").expect("of this host").to_owned()
    }

    /// Publishes as `dev` and returns the ID.
    pub(crate) async fn publish(&self, body: &str) -> String {
        let answer = self.post("/v1/notifications", &self.key, body).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.text);
        answer.json()["id"].as_str().expect("an id").to_owned()
    }
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    pub(crate) fn lines(&self) -> Vec<Value> {
        self.text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("ASCII"))
    }

    /// Checks that the response is a problem with this code and that status and body agree.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16, code: &str) -> Value {
        let body = self.json();
        assert_eq!((self.status.as_u16(), body["code"].as_str()), (status, Some(code)), "{body}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        assert_eq!(body["status"], status);
        assert!(body["title"].is_string() && body["detail"].is_string(), "{body}");
        body
    }
}

/// Another node with the same store has one of its own.
pub(crate) async fn console_of(store: &Arc<dyn Store>, providers: Vec<noroshi_console::Provider>) -> Console {
    let console = Console::open(store.clone(), noroshi_console::Config::default(), Some([7; 32])).await;
    let egress = noroshi_egress::Egress::new(noroshi_egress::Config::anywhere());
    let egress = Arc::new(egress.expect("egress"));
    let console = console.expect("a console").with_openid(providers, "https://push.example.com", &egress);
    console.await.expect("a console")
}

pub(crate) fn request(method: Method, path: &str, bearer: &str, body: &str) -> Request<Body> {
    let mut builder = Request::builder().method(method).uri(path).header(header::HOST, "push.example.com");
    if !bearer.is_empty() {
        builder = builder.header(header::AUTHORIZATION, format!("Bearer {bearer}"));
    }
    builder.body(Body::from(body.to_owned())).expect("a request")
}

pub(crate) async fn answer(router: Router, request: Request<Body>) -> Answer {
    let response = router.oneshot(request).await.expect("infallible");
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.expect("a body").to_bytes();
    let text = String::from_utf8(bytes.to_vec()).expect("UTF-8");
    Answer { status: parts.status, headers: parts.headers, text }
}

/// A JWT of the test's apps (RFC 7519), signed by HS256.
/// For the app `dev` by default: two apps sign tokens.
pub(crate) fn jwt(claims: &Value) -> String {
    let mut claims = claims.clone();
    if claims.get("aud").is_none() {
        claims["aud"] = "dev".into();
    }
    use base64::Engine;
    let encode = |bytes: &[u8]| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes);
    let signed =
        format!("{}.{}", encode(br#"{"alg":"HS256","typ":"JWT"}"#), encode(claims.to_string().as_bytes()));
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, JWT_SECRET.as_bytes());
    let signature = ring::hmac::sign(&key, signed.as_bytes());
    format!("{signed}.{}", encode(signature.as_ref()))
}

/// Seconds, as `exp` has.
pub(crate) fn in_an_hour() -> u64 {
    NOW.0 / 1_000 + 3_600
}

/// Connections that exist only as entries.
#[derive(Default)]
pub(crate) struct FakeEdge {
    record: Mutex<Record>,
    pub(crate) full: AtomicBool,
    /// Reading sessions panics.
    pub(crate) broken: AtomicBool,
}

#[derive(Default)]
struct Record {
    messages: Vec<Arc<Message>>,
    closed: Vec<(DeviceId, CloseReason)>,
    subscribed: Vec<(DeviceId, Topic)>,
    sessions: HashMap<(AppId, DeviceId), (Option<UserId>, Presence)>,
}

impl FakeEdge {
    pub(crate) fn connect(&self, app: AppId, device: &str, user: &str) {
        let key = (app, DeviceId::parse(device).expect("an id"));
        let value = (Some(UserId::parse(user).expect("an id")), Presence::Active);
        self.record.lock().expect("no panic").sessions.insert(key, value);
    }

    pub(crate) fn messages(&self) -> Vec<Arc<Message>> {
        self.record.lock().expect("no panic").messages.clone()
    }

    pub(crate) fn closed(&self) -> Vec<(String, CloseReason)> {
        let record = self.record.lock().expect("no panic");
        record.closed.iter().map(|(device, reason)| (device.to_string(), *reason)).collect()
    }

    /// Subscriptions sent to open connections, as `device topic`.
    pub(crate) fn subscribed(&self) -> Vec<String> {
        let record = self.record.lock().expect("no panic");
        record.subscribed.iter().map(|(device, topic)| format!("{device} {topic}")).collect()
    }
}

impl Edge for FakeEdge {
    fn deliver(&self, message: Arc<Message>, _: &Target) {
        self.record.lock().expect("no panic").messages.push(message);
    }

    fn deliver_part(&self, message: Arc<Message>, target: &Target, _: &mut dyn FnMut(usize)) {
        self.deliver(message, target);
    }

    fn offer(&self, _: Arc<Message>, _: &Topic) {}

    fn offered(&self, _: AppId, _: &Topic, _: Position) {}

    fn has_room(&self, _: Fan, _: usize, _: Duration) -> bool {
        !self.full.load(Ordering::SeqCst)
    }

    fn delay(&self, _: Fan, _: usize) -> Option<Duration> {
        Some(Duration::ZERO)
    }

    fn sessions(&self, app: AppId, users: &[UserId]) -> Vec<Vec<Session>> {
        assert!(!self.broken.load(Ordering::SeqCst), "the edge is broken");
        let record = self.record.lock().expect("no panic");
        let of = |user: &UserId| {
            let mine =
                record.sessions.iter().filter(|((a, _), (u, _))| *a == app && u.as_ref() == Some(user));
            mine.map(|((_, device), (_, presence))| Session { device: device.clone(), presence: *presence })
                .collect()
        };
        users.iter().map(of).collect()
    }

    fn session(&self, app: AppId, device: &DeviceId) -> Option<Session> {
        let record = self.record.lock().expect("no panic");
        let (_, presence) = record.sessions.get(&(app, device.clone()))?;
        Some(Session { device: device.clone(), presence: *presence })
    }

    fn generation(&self, app: AppId, device: &DeviceId) -> u64 {
        u64::from(self.session(app, device).is_some())
    }

    fn set_presence(&self, app: AppId, device: &DeviceId, presence: Presence) -> bool {
        let mut record = self.record.lock().expect("no panic");
        record.sessions.get_mut(&(app, device.clone())).map(|session| session.1 = presence).is_some()
    }

    fn subscribe(&self, _: AppId, device: &DeviceId, topics: &[Topic]) {
        let new = topics.iter().map(|topic| (device.clone(), topic.clone()));
        self.record.lock().expect("no panic").subscribed.extend(new);
    }

    fn unsubscribe(&self, _: AppId, _: &DeviceId, _: &Topic) {}

    fn close(&self, app: AppId, device: &DeviceId, reason: CloseReason) {
        let mut record = self.record.lock().expect("no panic");
        record.sessions.remove(&(app, device.clone()));
        record.closed.push((device.clone(), reason));
    }

    fn replaced(&self, _: AppId, _: &DeviceId, _: u64) {}

    fn close_app(&self, _: AppId, _: CloseReason) {}

    fn topic_sessions(&self, _: AppId, _: &Topic) -> u64 {
        3
    }

    fn sessions_page(&self, _: usize) -> Vec<LocalSession> {
        Vec::new()
    }

    fn reread_all(&self) {}

    fn reread(&self, _: &[LocalSession], _: NotificationId) {}
}

/// Push services that answer at once: tokens with `gone` are gone, those with `refused` are rejected,
/// and those with `suspect` are suspect.
#[derive(Default)]
pub(crate) struct FakeServices {
    pushed: Mutex<Vec<Push>>,
    /// Credentials that were tested before use.
    tried: Mutex<Vec<Credential>>,
    credentials: Mutex<HashMap<AppId, usize>>,
    states: Mutex<HashMap<AppId, Vec<CredentialStatus>>>,
}

impl FakeServices {
    /// Tokens pushed to, as registered.
    pub(crate) fn tokens(&self) -> Vec<String> {
        let pushed = self.pushed.lock().expect("no panic");
        pushed.iter().map(|push| push.token.json.as_str().to_owned()).collect()
    }

    /// What is shown of the credentials that were tested before use.
    pub(crate) fn tried(&self) -> Vec<String> {
        let tried = self.tried.lock().expect("no panic");
        tried.iter().map(|credential| credential.shown.as_str().to_owned()).collect()
    }

    /// Credentials of the app in use.
    pub(crate) fn credentials(&self, app: AppId) -> usize {
        self.credentials.lock().expect("no panic").get(&app).copied().unwrap_or(0)
    }
}

#[async_trait::async_trait]
impl Outlet for FakeServices {
    async fn send(&self, push: Push) {
        let answer = match push.token.json.as_str() {
            _ if self.credentials(push.app) == 0 => PushAnswer::Unconfigured,
            token if token.contains("gone") => PushAnswer::Gone { reason: "UNREGISTERED", since: None },
            token if token.contains("suspect") => PushAnswer::Suspect { reason: "VapidPkHashMismatch" },
            token if token.contains("refused") => PushAnswer::Refused { reason: "INVALID_ARGUMENT" },
            _ => PushAnswer::Accepted,
        };
        let reply = push.reply.clone();
        self.pushed.lock().expect("no panic").push(push);
        reply.to.answered(reply.index, answer);
    }

    /// A credential with the subject `broken` is rejected.
    async fn send_with(&self, credential: Credential, push: Push) {
        let is_broken = credential.shown.as_str().contains("broken");
        self.tried.lock().expect("no panic").push(credential);
        match is_broken {
            true => {
                let later =
                    PushAnswer::Later { reason: "InvalidProviderToken", after: Duration::from_secs(30) };
                push.reply.to.answered(push.reply.index, later);
            }
            false => self.send(push).await,
        }
    }

    fn set_credentials(&self, app: AppId, credentials: Vec<Credential>) {
        let state = |credential: &Credential| CredentialStatus {
            service: credential.service,
            environment: credential.environment,
            provider: credential.provider.clone(),
            connections: 2,
            in_flight: 3,
            queued: 4,
            breaker: Condition::Open { reason: "InvalidProviderToken", after: Duration::from_secs(30) },
            paused: None,
            last_error: Some((Timestamp(1_800_000_000_000), "InvalidProviderToken")),
        };
        let states = credentials.iter().map(state).collect();
        self.states.lock().expect("no panic").insert(app, states);
        self.credentials.lock().expect("no panic").insert(app, credentials.len());
    }

    fn status(&self, app: AppId) -> Vec<CredentialStatus> {
        self.states.lock().expect("no panic").get(&app).cloned().unwrap_or_default()
    }
}

/// An event log without sinks, which only live tails read.
fn event_log(delivery: &Delivery, folder: &std::path::Path) -> noroshi_events::Service {
    let config = noroshi_events::Config::new("node", folder.join("events"));
    let names: noroshi_events::Names = Arc::new(|_| None);
    let log = noroshi_events::Service::start(&config, names, None, &Default::default(), &Default::default());
    let log = log.expect("a log");
    delivery.context.outcomes.attach_events(log.events());
    log
}
