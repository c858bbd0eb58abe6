//! Cells and a front inside the test process.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use noroshi_api::router::CONSOLE_API;
use noroshi_api::{Load, Peer, State};
use noroshi_auth::Auth;
use noroshi_cells::{CellConfig, Config, Front, Metrics};
use noroshi_delivery::quota::{self, Configured};
use noroshi_delivery::{Clock, Delivery};
use noroshi_store::{AppSettings, Cells, Sqlite, Store, sqlite};
use noroshi_telemetry::span::{Ended, Sampling, Spans};
use noroshi_types::{AppName, Role, Scopes};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tower::ServiceExt;

pub(crate) const OPERATOR: &str = "operator-token-of-the-test";
pub(crate) const JWT_SECRET: &str = "a secret of the app, long enough for HS256";
const DEADLINE: Duration = Duration::from_secs(60);

/// The parts of a node without connections.
struct Parts {
    state: Arc<State>,
    store: Arc<Sqlite>,
    metrics: Metrics,
}

async fn open(folder: &TempDir) -> Parts {
    let mut registry = noroshi_telemetry::registry();
    // A store that was just closed may release its folder a moment later.
    let store = within("the folder to be free", async || {
        // More than a page of an inbox.
        let options = sqlite::Options { inbox_rows: 3_000, ..sqlite::Options::default() };
        Sqlite::open(folder.path(), options, &mut noroshi_telemetry::registry()).ok()
    });
    let store = Arc::new(store.await);
    let shared: Arc<dyn Store> = store.clone();
    let egress = Arc::new(noroshi_egress::Egress::new(noroshi_egress::Config::default()).expect("egress"));
    let auth = Auth::open(shared.clone(), egress).await.expect("auth");
    let delivery = Delivery::new(
        shared,
        Clock::system(),
        noroshi_delivery::metrics::Metrics::new(&mut registry),
        tokio::runtime::Handle::current(),
    );
    let limited = delivery.clone();
    let of = |app: &noroshi_store::App| {
        let overrides = app.settings.quotas.as_deref().map(|text| quota::parse(text).expect("quotas"));
        Configured { app: app.id, name: app.name.clone(), overrides: overrides.unwrap_or_default() }
    };
    auth.watch_apps(move |apps, _| limited.quotas.configure(apps.iter().map(of))).await;
    let metrics = Metrics::new(&mut registry);
    let console = noroshi_console::Console::open(store.clone(), Default::default(), None).await;
    let console = console.expect("a console");
    let api_metrics = noroshi_api::Metrics::new(&mut registry);
    let registry = Arc::new(registry);
    let series = noroshi_series::Series::new(registry.clone(), &delivery, "front", Default::default());
    let tails = tails(&delivery, folder.path());
    let state = State {
        auth,
        delivery,
        console: Arc::new(console),
        config: noroshi_api::Config::default(),
        metrics: api_metrics,
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
    Parts { state: Arc::new(state), store, metrics }
}

/// On an event log without sinks, which stays attached to `delivery`.
fn tails(delivery: &Arc<Delivery>, folder: &std::path::Path) -> Arc<noroshi_tail::Tails> {
    let config = noroshi_events::Config::new("front", folder.join("events"));
    let names: noroshi_events::Names = Arc::new(|_| None);
    let log = noroshi_events::Service::start(&config, names, None, &Default::default(), &Default::default());
    let events = log.expect("a log").events();
    let runtime = tokio::runtime::Handle::current();
    noroshi_tail::Tails::new(delivery.clone(), events, "front".into(), runtime, Default::default())
}

/// Starts no traces, and continues all traces of others.
fn record(state: &State) -> Ended {
    let (spans, ended) = Spans::new(Sampling::per_million(0), Default::default());
    state.delivery.context.attach_spans(spans);
    ended
}

/// A cell that serves its API on two ports.
pub(crate) struct Cell {
    pub(crate) name: String,
    folder: TempDir,
    ports: [u16; 2],
    pub(crate) older: Arc<Older>,
    running: Option<Running>,
}

/// Whether the cell behaves like a version without `traceparent`.
#[derive(Default)]
pub(crate) struct Older {
    pub(crate) is: AtomicBool,
    /// Lines that it rejected for it.
    pub(crate) refused: AtomicUsize,
}

struct Running {
    state: Arc<State>,
    store: Arc<Sqlite>,
    tasks: JoinSet<()>,
}

impl Cell {
    async fn start(name: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut cell =
            Self { name: name.to_owned(), folder, ports: [0; 2], older: Arc::default(), running: None };
        cell.revive().await;
        cell
    }

    /// On the same ports, with the same data.
    pub(crate) async fn revive(&mut self) {
        let Parts { state, store, .. } = open(&self.folder).await;
        let mut tasks = JoinSet::new();
        tasks.spawn(state.delivery.clone().run(std::future::pending()));
        let public = axum::middleware::from_fn_with_state(self.older.clone(), before_traces);
        let public = noroshi_api::router(state.clone()).layer(public);
        let routers = [public, noroshi_api::admin_router(state.clone())];
        for (port, router) in self.ports.iter_mut().zip(routers) {
            let listener = TcpListener::bind(("127.0.0.1", *port)).await.expect("a port");
            *port = listener.local_addr().expect("bound").port();
            tasks.spawn(serve(listener, router));
        }
        self.running = Some(Running { state, store, tasks });
    }

    /// Aborts everything in progress.
    pub(crate) async fn kill(&mut self) {
        let Running { store, mut tasks, state } = self.running.take().expect("it runs");
        tasks.shutdown().await;
        noroshi_store::Maintenance::close(&*store).await;
        drop(state);
    }

    pub(crate) fn state(&self) -> &Arc<State> {
        &self.running.as_ref().expect("it runs").state
    }

    /// Its own API, without the front.
    pub(crate) async fn call(&self, method: Method, path: &str, bearer: &str, body: &str) -> Answer {
        send(noroshi_api::router(self.state().clone()), method, path, bearer, body, &[]).await
    }

    /// Whether the device was ever registered there.
    pub(crate) async fn has(&self, app: &str, device: &str) -> bool {
        let app = self.state().auth.app(app).expect("the app").id;
        let device = noroshi_types::DeviceId::parse(device).expect("an id");
        self.state().delivery.store().device(app, &device).await.expect("read").is_some()
    }

    pub(crate) fn has_app(&self, app: &str) -> bool {
        self.state().auth.app(app).is_some()
    }

    /// The spans that it records from now on.
    pub(crate) fn spans(&self) -> Ended {
        record(self.state())
    }

    fn config(&self, weight: u32) -> CellConfig {
        CellConfig {
            name: self.name.clone(),
            urls: vec![format!("http://127.0.0.1:{}", self.ports[0])],
            admin_url: format!("http://127.0.0.1:{}", self.ports[1]),
            operator_token: OPERATOR.to_owned(),
            public_url: Some(format!("https://{}.example", self.name)),
            weight,
        }
    }
}

fn nowhere() -> noroshi_console::Client {
    noroshi_console::Client { address: String::new(), network: String::new(), agent: String::new() }
}

/// An older cell rejects lines with unknown fields and accepts the others.
async fn before_traces(
    axum::extract::State(older): axum::extract::State<Arc<Older>>,
    request: Request<Body>,
    next: axum::middleware::Next,
) -> axum::response::Response {
    if !older.is.load(Ordering::Relaxed) || request.uri().path() != "/v1/notifications/relay" {
        return next.run(request).await;
    }
    let text = async |body: Body| {
        let bytes = body.collect().await.expect("a body").to_bytes();
        String::from_utf8(bytes.to_vec()).expect("UTF-8")
    };
    let (mut parts, body) = request.into_parts();
    let body = text(body).await;
    older.refused.fetch_add(body.matches("\"traceparent\"").count(), Ordering::Relaxed);
    parts.headers.remove(header::CONTENT_LENGTH);
    let unknown = body.replace("\"traceparent\"", "\"not_known_yet\"");
    let (mut parts, body) = next.run(Request::from_parts(parts, unknown.into())).await.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    let answers = text(body).await.replace("not_known_yet", "traceparent");
    axum::response::Response::from_parts(parts, answers.into())
}

async fn serve(listener: TcpListener, router: Router) {
    // Dropped with this task, which closes all connections.
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, address)) = listener.accept().await else { return };
        let peer = Peer { address, secure: false };
        let serving = noroshi_api::Serving::new(router.clone());
        connections.spawn(async move {
            noroshi_api::serve_connection(stream, serving, peer, None, std::future::pending()).await;
        });
    }
}

/// A front over cells `a`, `b` and `c`, with the app `dev`.
pub(crate) struct World {
    pub(crate) cells: Vec<Cell>,
    folder: TempDir,
    config: Config,
    running: Option<RunningFront>,
    /// A key of the app `dev` with all scopes.
    pub(crate) key: String,
}

struct RunningFront {
    front: Arc<Front>,
    state: Arc<State>,
    store: Arc<Sqlite>,
    task: JoinHandle<()>,
}

impl World {
    pub(crate) async fn start() -> Self {
        Self::weighted([1, 1, 1], |_| {}).await
    }

    pub(crate) async fn weighted(weights: [u32; 3], change: impl FnOnce(&mut Config)) -> Self {
        let mut cells = Vec::new();
        for name in ["a", "b", "c"] {
            cells.push(Cell::start(name).await);
        }
        let mut config = Config {
            cells: cells.iter().zip(weights).map(|(cell, weight)| cell.config(weight)).collect(),
            probe_interval: Duration::from_millis(100),
            ..Config::default()
        };
        change(&mut config);
        let folder = tempfile::tempdir().expect("a folder");
        let mut world = Self { cells, folder, config, running: None, key: String::new() };
        world.start_front().await;
        world.key = world.app("dev").await;
        world
    }

    /// Creates an app that every cell knows. Returns a key of it with all scopes.
    pub(crate) async fn app(&self, name: &str) -> String {
        let (_, state) = self.front();
        let settings = AppSettings { jwt_secret: Some(JWT_SECRET.into()), ..AppSettings::default() };
        let name = AppName::parse(name).expect("a name");
        let app = state.auth.create_app(name, settings, state.now()).await.expect("an app");
        let (_, key) =
            state.auth.create_key(app.id, "all".into(), Scopes::ALL, None, state.now()).await.expect("a key");
        let key = key.to_string();
        for cell in &self.cells {
            within("the cells to know the key", async || {
                cell.state().auth.key(&key, cell.state().now()).ok()
            })
            .await;
        }
        key
    }

    /// Creates an app that no cell accepts.
    pub(crate) async fn rejected_app(&self, name: &str) {
        let (_, state) = self.front();
        let settings = AppSettings { client_publish: vec!["a/#/b".into()], ..AppSettings::default() };
        let name = AppName::parse(name).expect("a name");
        state.auth.create_app(name, settings, state.now()).await.expect("an app");
    }

    /// Sets an app's quotas at the front. Returns when the cells have them.
    pub(crate) async fn limit(&self, app: &str, quotas: Value) {
        let path = format!("/v1/apps/{app}/quotas");
        let answer = self.operate(Method::PUT, &path, &quotas.to_string()).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
        let set = |state: &State| state.auth.app(app).and_then(|app| app.settings.quotas);
        for cell in &self.cells {
            let wanted = set(self.front().1);
            within("the cells to know quotas", async || (set(cell.state()) == wanted).then_some(())).await;
        }
    }

    pub(crate) async fn start_front(&mut self) {
        let Parts { mut state, store, metrics } = open(&self.folder).await;
        Arc::get_mut(&mut state).expect("not shared yet").config.front = true;
        let cells: Arc<dyn Cells> = store.clone();
        let front = Front::new(self.config.clone(), state.clone(), cells, metrics).await.expect("a front");
        let task = tokio::spawn(front.clone().run(std::future::pending()));
        self.running = Some(RunningFront { front, state, store, task });
    }

    /// Without a graceful shutdown.
    pub(crate) async fn kill_front(&mut self) {
        let RunningFront { store, task, .. } = self.running.take().expect("it runs");
        task.abort();
        let _ = task.await;
        noroshi_store::Maintenance::close(&*store).await;
    }

    fn front(&self) -> (&Arc<Front>, &Arc<State>) {
        let running = self.running.as_ref().expect("it runs");
        (&running.front, &running.state)
    }

    pub(crate) fn cell(&self, name: &str) -> &Cell {
        self.cells.iter().find(|cell| cell.name == name).expect(name)
    }

    pub(crate) fn cell_mut(&mut self, name: &str) -> &mut Cell {
        self.cells.iter_mut().find(|cell| cell.name == name).expect(name)
    }

    pub(crate) async fn call(&self, method: Method, path: &str, bearer: &str, body: &str) -> Answer {
        send(self.front().0.router(), method, path, bearer, body, &[]).await
    }

    /// A request to the console by a person with this role in all apps.
    pub(crate) async fn in_console(&self, role: Role, method: Method, path: &str, body: &str) -> Answer {
        let (front, state) = self.front();
        let (console, now, client) = (&state.console, state.now(), nowhere());
        let email = format!("{}@example.com", role.as_str());
        let person = match console.store().person_with_email(&email).await.expect("the store") {
            Some(person) => person.id,
            None => {
                let roles = vec![(None, role)];
                let invited = console.invite(None, &email, roles, now).await.expect("an invitation");
                let password = "correct horse battery".to_owned();
                let accepted = console.accept_invitation(&invited.token, "Ann", password, &client, now);
                accepted.await.expect("a person").caller.person.id
            }
        };
        let link = console.link(None, person, Duration::from_secs(60), now).await.expect("a link");
        let token = console.log_in_with_link(&link.token, &client, now).await.expect("a session").token;
        let (cookie, csrf) = (format!("noroshi_session={token}"), noroshi_console::csrf_of(&token));
        let headers = [("cookie", &*cookie), ("noroshi-csrf", &*csrf), ("noroshi-app", "dev")];
        send(front.console_router(false), method, &format!("{CONSOLE_API}{path}"), "", body, &headers).await
    }

    pub(crate) async fn call_with(&self, path: &str, body: &str, headers: &[(&str, &str)]) -> Answer {
        self.call_as(&self.key, path, body, headers).await
    }

    pub(crate) async fn call_as(
        &self,
        bearer: &str,
        path: &str,
        body: &str,
        headers: &[(&str, &str)],
    ) -> Answer {
        send(self.front().0.router(), Method::POST, path, bearer, body, headers).await
    }

    pub(crate) async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        send(self.front().0.router(), Method::GET, path, &self.key, "", headers).await
    }

    /// The spans that the front records from now on.
    pub(crate) fn spans(&self) -> Ended {
        record(self.front().1)
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call(Method::GET, path, &self.key, "").await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Answer {
        self.call(Method::POST, path, &self.key, body).await
    }

    pub(crate) async fn operate(&self, method: Method, path: &str, body: &str) -> Answer {
        send(self.front().0.admin_router(), method, path, OPERATOR, body, &[]).await
    }

    /// Registers a device and returns its token.
    pub(crate) async fn device(&self, device: &str, user: &str) -> String {
        let answer = self.post("/v1/devices", &json!({"device": device, "user": user}).to_string()).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text);
        answer.json()["token"].as_str().expect("a token").to_owned()
    }

    /// The cell that has the device now.
    pub(crate) async fn cell_of(&self, device: &str) -> String {
        for cell in &self.cells {
            if cell.running.is_some() && cell.has("dev", device).await {
                return cell.name.clone();
            }
        }
        panic!("{device} is nowhere");
    }

    /// A user with a device in this cell: device and token.
    pub(crate) async fn resident(&self, cell: &str, nth: usize) -> (String, String) {
        let mut found = 0;
        for n in 0..500 {
            let user = format!("{cell}-{n}");
            let token = self.device(&user, &user).await;
            if self.cell_of(&user).await == cell {
                if found == nth {
                    return (user, token);
                }
                found += 1;
            }
        }
        panic!("nobody lives in {cell}");
    }

    pub(crate) async fn publish(&self, body: Value) -> String {
        let answer = self.post("/v1/notifications", &body.to_string()).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.text);
        answer.json()["id"].as_str().expect("an id").to_owned()
    }

    /// Polls until the answer satisfies the condition.
    pub(crate) async fn until(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        within(path, async || {
            let answer = self.get(path).await;
            (answer.status == StatusCode::OK).then(|| answer.json()).filter(&wanted)
        })
        .await
    }

    /// The state of each cell's part of a message.
    pub(crate) async fn parts(&self, id: &str) -> Vec<(String, String)> {
        parts(&self.get(&format!("/v1/notifications/{id}")).await.json())
    }

    pub(crate) async fn until_done(&self, id: &str) -> Value {
        self.until(&format!("/v1/notifications/{id}"), |state| {
            parts(state).iter().all(|(_, state)| !matches!(&**state, "waiting" | "unanswered"))
        })
        .await
    }

    pub(crate) async fn listed(&self, cell: &str) -> Value {
        let cells = self.operate(Method::GET, "/v1/cells", "").await.json();
        cells["cells"].as_array().expect("cells").iter().find(|one| one["cell"] == cell).expect(cell).clone()
    }

    /// The device's inbox at the front.
    pub(crate) async fn inbox(&self, token: &str) -> Vec<Value> {
        let answer = self.call(Method::GET, "/v1/me/inbox?limit=1000", token, "").await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
        let messages = answer.json()["messages"].as_array().expect("messages").clone();
        messages.into_iter().map(|message| message["data"].clone()).collect()
    }
}

pub(crate) fn parts(state: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let cells = state["cells"].as_array().expect("cells");
    cells.iter().map(|one| (text(&one["cell"]), text(&one["state"]))).collect()
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    pub(crate) fn lines(&self) -> Vec<Value> {
        self.text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    #[track_caller]
    pub(crate) fn problem(&self, status: u16, code: &str) -> Value {
        let body = self.json();
        assert_eq!((self.status.as_u16(), body["code"].as_str()), (status, Some(code)), "{body}");
        body
    }
}

async fn send(
    router: Router,
    method: Method,
    path: &str,
    bearer: &str,
    body: &str,
    headers: &[(&str, &str)],
) -> Answer {
    let mut request = Request::builder().method(method).uri(path).header(header::HOST, "push.example.com");
    if !bearer.is_empty() {
        request = request.header(header::AUTHORIZATION, format!("Bearer {bearer}"));
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut request = request.body(Body::from(body.to_owned())).expect("a request");
    let address = SocketAddr::from(([127, 0, 0, 1], 1));
    request.extensions_mut().insert(Peer { address, secure: false });
    let (parts, body) = router.oneshot(request).await.expect("infallible").into_parts();
    let bytes = body.collect().await.expect("a body").to_bytes();
    let text = String::from_utf8(bytes.to_vec()).expect("UTF-8");
    Answer { status: parts.status, headers: parts.headers, text }
}

/// Polls until there is a value.
pub(crate) async fn within<T>(what: &str, probe: impl AsyncFn() -> Option<T>) -> T {
    let end = Instant::now() + DEADLINE;
    loop {
        if let Some(value) = probe().await {
            return value;
        }
        assert!(Instant::now() < end, "waited {DEADLINE:?} for: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A JWT of the app `dev` (RFC 7519), signed with HS256.
pub(crate) fn jwt(claims: &Value) -> String {
    use base64::Engine;
    let encode = |bytes: &[u8]| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes);
    let signed =
        format!("{}.{}", encode(br#"{"alg":"HS256","typ":"JWT"}"#), encode(claims.to_string().as_bytes()));
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, JWT_SECRET.as_bytes());
    let signature = ring::hmac::sign(&key, signed.as_bytes());
    format!("{signed}.{}", encode(signature.as_ref()))
}

pub(crate) fn in_an_hour() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    now.as_secs() + 3_600
}
