//! The application of a vector, with a real client.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep};

use super::vectors::{self, Expectation, Token, Vector, by_kind};
use crate::client::{Client, Events, Subscribe, handles};
use crate::clock::Clock;
use crate::delivery::Delivery;
use crate::error::Error;
use crate::event::Event;
use crate::http::Http;
use crate::items::Which;
use crate::protocol::{Moment, presence};
use crate::shared::Shared;
use crate::token::{TokenError, TokenRequest};

/// A slow machine makes a test slow, but never fail.
const PATIENCE: Duration = Duration::from_secs(60);
/// For a step that the client need not notice.
const NOTICE: Duration = Duration::from_secs(2);
/// How often a step may find that the client has not come so far; each attempt takes a second.
const ATTEMPTS: usize = 20;
const KINDS: [&str; 7] = ["message", "state", "recovered", "denied", "items", "unread", "error"];

type Outcome = Result<(), String>;

/// A clock that only vectors move.
#[derive(Default)]
struct TestClock(Mutex<TestTime>);

#[derive(Default)]
struct TestTime {
    at: Duration,
    armed: Option<Duration>,
    random: VecDeque<f64>,
}

impl TestClock {
    fn lock(&self) -> MutexGuard<'_, TestTime> {
        self.0.lock().expect("no panic under the lock")
    }

    /// Moves to the next timer, or to `end`. Returns whether a timer is due.
    fn next(&self, end: Duration) -> bool {
        let mut time = self.lock();
        let is_due = time.armed.is_some_and(|at| at <= end);
        time.at = if is_due { time.at.max(time.armed.unwrap_or_default()) } else { end };
        is_due
    }
}

impl Clock for TestClock {
    fn now(&self) -> Moment {
        let at = self.lock().at;
        Moment { at, unix: vectors::START + at }
    }

    fn random(&self) -> f64 {
        self.lock().random.pop_front().expect("the vector has enough random numbers")
    }

    fn arm(&self, at: Option<Duration>) {
        self.lock().armed = at;
    }
}

/// What the application sees and does.
#[derive(Default)]
struct Application {
    tokens: VecDeque<Token>,
    /// The newest request for a token has no answer.
    is_pending: bool,
    /// By kind.
    seen: HashMap<&'static str, Vec<Value>>,
    deferred: HashMap<String, Delivery>,
    /// Calls that have not returned.
    calls: usize,
    wrong: Vec<String>,
}

struct Player {
    server: String,
    control: Http,
    client: Client,
    shared: Arc<Shared>,
    clock: Arc<TestClock>,
    application: Arc<Mutex<Application>>,
}

pub(super) async fn play(server: &str, vector: &Vector) -> Outcome {
    let clock = Arc::new(TestClock::default());
    clock.lock().random = vector.random.clone().into();
    let application = Arc::new(Mutex::new(Application {
        tokens: vector.tokens.clone().unwrap_or_default().into(),
        ..Application::default()
    }));
    let provider = {
        let (application, clock) = (Arc::clone(&application), Arc::clone(&clock));
        move |_: TokenRequest| token(Arc::clone(&application), Arc::clone(&clock))
    };
    let mut builder = Client::builder(server, provider)
        .acknowledge(vector.options.acknowledge())
        .ping_interval(vector.options.ping_interval())
        .transports(vector.options.transports());
    if let Some(app) = &vector.options.app {
        builder = builder.app(app);
    }
    if !vector.options.listens() {
        builder = builder.without_messages();
    }
    let shared = builder.shared(Arc::<TestClock>::clone(&clock)).map_err(|error| error.to_string())?;
    let (client, events) = handles(Arc::clone(&shared));
    let listener = vector.options.listener.clone().unwrap_or_default();
    let reader = tokio::spawn(read(events, Arc::clone(&application), Arc::clone(&shared), listener));
    let control = Http::new(None).map_err(|error| error.to_string())?;
    let player = Player { server: server.to_owned(), control, client, shared, clock, application };
    player.control("reset", &Value::Null).await?;
    let result = player.steps(vector).await;
    // Deliveries are dropped before the client.
    player.lock().deferred.clear();
    reader.abort();
    result
}

async fn token(application: Arc<Mutex<Application>>, clock: Arc<TestClock>) -> Result<String, TokenError> {
    let token = {
        let mut application = application.lock().expect("no panic");
        let Some(token) = application.tokens.pop_front() else {
            application.wrong.push("the vector has no more tokens".to_owned());
            return Err(TokenError::failed("no more tokens"));
        };
        application.is_pending = token.pending;
        token
    };
    match token {
        Token { pending: true, .. } => std::future::pending().await,
        Token { fail: true, .. } => Err(TokenError::failed("the backend is away")),
        Token { none: true, .. } => Err(TokenError::SignedOut),
        _ => Ok(token.text(clock.now().unix)),
    }
}

/// Reads the events of the client, as an application does.
async fn read(
    mut events: Events,
    application: Arc<Mutex<Application>>,
    shared: Arc<Shared>,
    listener: String,
) {
    while let Some(event) = events.next().await {
        let (kind, seen) = match &event {
            Event::Message(message) => ("message", json!({"message": message.id()})),
            Event::State(state) => {
                let mut seen = json!({"state": state.name()});
                if let Some(reason) = state.reason() {
                    seen["reason"] = json!(reason);
                }
                ("state", seen)
            }
            Event::Recovered(event) => {
                ("recovered", json!({"recovered": event.topic, "complete": event.complete}))
            }
            Event::Denied(event) => {
                ("denied", json!({"denied": event.topic, "code": event.code, "reason": event.reason}))
            }
            Event::Items(event) => ("items", json!({"items": event.event, "ids": event.ids})),
            Event::Unread(counts) => {
                ("unread", json!({"unread": counts.unread, "categories": counts.categories}))
            }
            Event::Error(error) => ("error", json!({"error": error.code()})),
        };
        let is_relevant = kind != "unread" || shared.observer.lock().sees_unread;
        if is_relevant {
            application.lock().expect("no panic").seen.entry(kind).or_default().push(seen);
        }
        if let Event::Message(message) = event {
            match listener.as_str() {
                "throws" => message.failed("the listener failed"),
                "deferred" => {
                    let id = message.id().to_owned();
                    application.lock().expect("no panic").deferred.insert(id, message);
                }
                _ => message.handled(),
            }
            shared.observer.lock().passed -= 1;
        }
    }
}

impl Player {
    fn lock(&self) -> MutexGuard<'_, Application> {
        self.application.lock().expect("no panic under the lock")
    }

    async fn steps(&self, vector: &Vector) -> Outcome {
        let last = Map::from_iter([("expect".to_owned(), json!({}))]);
        for (n, step) in vector.steps.iter().chain([&last]).enumerate() {
            for (name, argument) in step {
                let result = self.step(name, argument).await;
                result.map_err(|error| format!("step {n}, {name} {argument:.200}: {error}"))?;
                if let Some(wrong) = self.lock().wrong.first() {
                    return Err(format!("step {n}: {wrong}"));
                }
            }
        }
        match (self.clock.lock().random.len(), self.lock().tokens.len()) {
            (0, 0) => Ok(()),
            left => Err(format!("random numbers and tokens that were not used: {left:?}")),
        }
    }

    async fn step(&self, name: &str, argument: &Value) -> Outcome {
        match name {
            "call" => {
                for (call, value) in argument.as_object().expect("an object") {
                    self.call(call, value).await?;
                    self.settle().await?;
                }
            }
            "advance" => {
                self.settle().await?;
                let end = self.clock.now().at + Duration::from_millis(argument.as_u64().expect("a number"));
                while self.clock.next(end) {
                    self.shared.tick();
                    self.settle().await?;
                }
            }
            "expect" => {
                let expected: Expectation = serde_json::from_value(argument.clone()).expect("valid");
                self.control("expect", &json!(expected.wire)).await?;
                self.expect(expected.local).await?;
            }
            _ => {
                let before = self.inputs();
                self.control("step", &json!({name: argument})).await?;
                if !name.starts_with("send") {
                    let _ = until(NOTICE, || self.inputs() != before).await;
                }
                self.settle().await?;
            }
        }
        Ok(())
    }

    fn inputs(&self) -> u64 {
        self.shared.lock().input_count
    }

    /// Calls the scripted server.
    async fn control(&self, path: &str, body: &Value) -> Outcome {
        for _ in 0..ATTEMPTS {
            let (status, answer) = self.try_control(path, body).await.map_err(|error| error.to_string())?;
            match status {
                200 => return Ok(()),
                409 => {
                    let observed = |name: &str| json!(by_kind(answer[name].as_array().expect("a list")));
                    return Err(format!(
                        "wire: expected {:.3000}\nobserved {:.3000}",
                        observed("expected"),
                        observed("observed")
                    ));
                }
                _ if answer["error"] == "nothing waits for this step" => {}
                _ => return Err(format!("{path}: {answer}")),
            }
        }
        Err("nothing waits for this step".to_owned())
    }

    async fn try_control(&self, path: &str, body: &Value) -> Result<(u16, Value), crate::BoxError> {
        let request = http::Request::post(format!("{}/control/{path}", self.server));
        let request = request.body(Full::<Bytes>::from(body.to_string()))?;
        let response = self.control.send(request).await?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await?.to_bytes();
        Ok((status, serde_json::from_slice(&body)?))
    }

    /// Waits until the client has nothing to do but wait for the service, the clock or the application.
    async fn settle(&self) -> Outcome {
        let mut quiet = 0;
        let deadline = Instant::now() + PATIENCE;
        while quiet < 3 {
            if Instant::now() > deadline {
                return Err("the client does not settle".to_owned());
            }
            sleep(Duration::from_micros(500)).await;
            quiet = if self.is_quiet() { quiet + 1 } else { 0 };
        }
        Ok(())
    }

    fn is_quiet(&self) -> bool {
        let inner = self.shared.lock();
        let is_sending = inner
            .links
            .values()
            .any(|link| link.is_open && link.frames.as_ref().is_some_and(|frames| !frames.is_empty()));
        let (has_events, asks, calls) =
            (!inner.events.is_empty(), !inner.tokens.is_empty(), inner.calls.len());
        drop(inner);
        let observed = self.shared.observer.lock();
        let is_writing = self.shared.http.connector.heads.load(Ordering::SeqCst) < observed.started;
        let is_handling = observed.passed > 0;
        drop(observed);
        let application = self.lock();
        !is_sending
            && !has_events
            && (!asks || application.is_pending)
            && application.calls == calls
            && !is_writing
            && !is_handling
    }

    async fn expect(&self, expected: Vec<Value>) -> Outcome {
        let _ = until(PATIENCE / 3, || self.shared.observer.lock().local == expected).await;
        self.settle().await?;
        let local = std::mem::take(&mut self.shared.observer.lock().local);
        if local != expected {
            return Err(format!(
                "local: expected {:.3000}\nobserved {:.3000}",
                json!(expected),
                json!(local)
            ));
        }
        // The application got the same events.
        let mut wanted: HashMap<&str, Vec<Value>> = HashMap::new();
        for mut event in expected {
            let Some(kind) = KINDS.into_iter().find(|kind| event.get(kind).is_some()) else { continue };
            if let (Some(object), "state") = (event.as_object_mut(), kind) {
                object.remove("in_ms");
                object.remove("transport");
            }
            wanted.entry(kind).or_default().push(event);
        }
        let seen = std::mem::take(&mut self.lock().seen);
        match seen == wanted {
            true => Ok(()),
            false => Err(format!("the application saw {seen:?} instead of {wanted:?}")),
        }
    }

    /// Makes a call of the application, which returns later.
    fn begin<R>(&self, call: impl FnOnce(Client) -> R)
    where
        R: Future<Output = Result<Value, Error>> + Send + 'static,
    {
        self.lock().calls += 1;
        let call = call(self.client.clone());
        let (application, shared) = (Arc::clone(&self.application), Arc::clone(&self.shared));
        tokio::spawn(async move {
            let result = call.await;
            let seen = result.unwrap_or_else(|error| json!({"failed": error.code()}));
            shared.observer.lock().local.push(seen);
            application.lock().expect("no panic").calls -= 1;
        });
    }

    async fn call(&self, name: &str, argument: &Value) -> Outcome {
        let client = &self.client;
        let texts = || -> Vec<String> { serde_json::from_value(argument.clone()).expect("texts") };
        let text = argument.as_str().unwrap_or_default().to_owned();
        match name {
            "connect" => client.connect(),
            "close" => {
                let closing = client.clone();
                tokio::spawn(async move { closing.close().await });
                until(PATIENCE, || matches!(client.state().name(), "closed" | "idle")).await?;
            }
            "subscribe" => {
                let recover = argument["recover"] == true;
                client.subscribe(argument["topic"].as_str().expect("a topic"), Subscribe { recover });
            }
            "unsubscribe" => client.unsubscribe(&text),
            "ack" => client.ack(texts()),
            "opened" => client.opened(texts()),
            "presence" => client.set_presence(presence(&text)),
            "page" => {
                if let Some(is_hidden) = argument["hidden"].as_bool() {
                    client.set_hidden(is_hidden);
                }
                if argument["online"] == true {
                    client.network_returned();
                }
            }
            "finish" | "fail" => {
                until(PATIENCE, || self.lock().deferred.contains_key(&text)).await?;
                let delivery = self.lock().deferred.remove(&text).ok_or("no delivery")?;
                match name {
                    "fail" => delivery.failed("the listener failed"),
                    _ => delivery.handled(),
                }
            }
            "listen_unread" => {
                self.shared.observer.lock().sees_unread = true;
                client.observe_unread(true);
            }
            "me" => self.begin(|client| async move { Ok(json!({"me": client.me().await?.device})) }),
            "variant" => self.begin(|client| async move {
                let variant = client.variant(&text).await?;
                Ok(json!({"variant": variant.map(|variant| variant.variant)}))
            }),
            "mark_read" => {
                let ids = Which::ids(texts());
                self.begin(
                    |client| async move { Ok(json!({"changed": client.mark_read(ids).await?.changed})) },
                );
            }
            _ => return Err("not a call".to_owned()),
        }
        Ok(())
    }
}

async fn until(patience: Duration, mut probe: impl FnMut() -> bool) -> Outcome {
    let deadline = Instant::now() + patience;
    while !probe() {
        if Instant::now() > deadline {
            return Err("waited too long".to_owned());
        }
        sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}
