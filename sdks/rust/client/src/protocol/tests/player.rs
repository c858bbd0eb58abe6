//! The application and the service of a vector.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::HeaderMap;
use serde_json::{Map, Value, json};

use crate::error::{Code, Error};
use crate::http::retry_after_of;
use crate::presence::PresenceMode;
use crate::protocol::{Config, Dial, Effect, Ended, Machine, Moment, Outcome, Response};
use crate::state::Transport;
use crate::tests::vectors::{self, Expectation, Token, Vector, by_kind, token_name};
use crate::token::TokenError;

struct Link {
    attempt: u64,
    transport: Transport,
    is_open: bool,
    is_over: bool,
}

type SharedLink = Rc<RefCell<Link>>;

pub(super) struct Player<'a> {
    vector: &'a Vector,
    pub(super) machine: Machine,
    at: Duration,
    random: Arc<Mutex<VecDeque<f64>>>,
    tokens: VecDeque<Token>,
    wire: Vec<Value>,
    local: Vec<Value>,
    dialled: VecDeque<SharedLink>,
    links: HashMap<u64, SharedLink>,
    current: Option<SharedLink>,
    requests: VecDeque<u64>,
    passed: Option<String>,
    sees_unread: bool,
}

type Outcome_ = Result<(), String>;

impl<'a> Player<'a> {
    pub(super) fn new(vector: &'a Vector) -> Self {
        let random = Arc::new(Mutex::new(VecDeque::from(vector.random.clone())));
        let numbers = Arc::clone(&random);
        let machine = Machine::new(Config {
            acknowledge: vector.options.acknowledge(),
            ping_interval: vector.options.ping_interval(),
            transports: vector.options.transports(),
            kept: Vec::new(),
            keeps: false,
            listens: vector.options.listens(),
            random: Box::new(move || {
                numbers.lock().expect("one thread").pop_front().expect("the vector has enough random numbers")
            }),
        });
        Self {
            vector,
            machine,
            at: Duration::ZERO,
            random,
            tokens: vector.tokens.clone().unwrap_or_default().into(),
            wire: Vec::new(),
            local: Vec::new(),
            dialled: VecDeque::new(),
            links: HashMap::new(),
            current: None,
            requests: VecDeque::new(),
            passed: None,
            sees_unread: false,
        }
    }

    pub(super) fn now(&self) -> Moment {
        Moment { at: self.at, unix: vectors::START + self.at }
    }

    pub(super) fn play(mut self) -> Outcome_ {
        let last = Map::from_iter([("expect".to_owned(), json!({}))]);
        for (n, step) in self.vector.steps.iter().chain([&last]).enumerate() {
            for (name, argument) in step {
                let result = self.step(name, argument).and_then(|()| self.carry_out());
                result.map_err(|error| format!("step {n}, {name} {argument:.200}: {error}"))?;
            }
        }
        let unused = self.random.lock().expect("one thread").len();
        match (unused, self.tokens.len()) {
            (0, 0) => Ok(()),
            left => Err(format!("random numbers and tokens that were not used: {left:?}")),
        }
    }

    fn step(&mut self, name: &str, argument: &Value) -> Outcome_ {
        match name {
            "call" => {
                for (call, value) in argument.as_object().expect("an object") {
                    self.call(call, value)?;
                }
            }
            "advance" => {
                let end = self.at + Duration::from_millis(argument.as_u64().expect("a number"));
                while let Some(at) = self.machine.timeout().filter(|at| *at <= end) {
                    self.at = self.at.max(at);
                    self.machine.advance(self.now());
                    self.carry_out()?;
                }
                self.at = end;
            }
            "accept" => {
                let link = self.dialled.pop_front().ok_or("nothing waits")?;
                link.borrow_mut().is_open = true;
                let attempt = link.borrow().attempt;
                self.current = Some(link);
                self.machine.opened(self.now(), attempt);
            }
            "refuse" => {
                let link = self.dialled.pop_front().ok_or("nothing waits")?;
                link.borrow_mut().is_over = true;
                let Link { attempt, transport, .. } = *link.borrow();
                let is_stream = transport == Transport::Sse;
                let end = Ended {
                    code: None,
                    status: argument["status"]
                        .as_u64()
                        .filter(|_| is_stream)
                        .map(|status| u16::try_from(status).expect("a status")),
                    problem: argument["body"]["code"].as_str().filter(|_| is_stream).map(str::to_owned),
                    retry_after: retry_after_of(&headers(argument), self.now().unix),
                };
                self.machine.ended(self.now(), attempt, end);
            }
            "send" => self.send(argument),
            "send_many" => {
                let frame = argument["frame"].to_string();
                for n in 1..=argument["count"].as_u64().expect("a number") {
                    self.send(&serde_json::from_str(&frame.replace('#', &n.to_string())).expect("JSON"));
                    self.carry_out()?;
                }
            }
            "end" => {
                let link = self.current.clone().ok_or("no connection")?;
                link.borrow_mut().is_over = true;
                let attempt = link.borrow().attempt;
                let code = argument["code"].as_u64().map(|code| u16::try_from(code).expect("a code"));
                self.machine.ended(self.now(), attempt, Ended { code, ..Ended::default() });
            }
            "reply" => {
                let n = self.requests.pop_front().ok_or("no request waits")?;
                let status = u16::try_from(argument["status"].as_u64().expect("a status")).expect("a status");
                let headers = headers(argument);
                let result = match status {
                    0 => Err(Error::new(Code::Network, "the network broke")),
                    _ => Ok(Response {
                        status,
                        etag: headers.get("etag").map(|etag| etag.to_str().expect("a text").to_owned()),
                        request_id: None,
                        retry_after: retry_after_of(&headers, self.now().unix),
                        body: argument
                            .get("body")
                            .map(|body| body.to_string().into_bytes())
                            .unwrap_or_default(),
                    }),
                };
                self.machine.answered(self.now(), n, result);
            }
            "expect" => {
                let expected: Expectation = serde_json::from_value(argument.clone()).expect("valid");
                let (wire, local) = (std::mem::take(&mut self.wire), std::mem::take(&mut self.local));
                let (wanted, seen) = (by_kind(&expected.wire), by_kind(&wire));
                if wanted != seen {
                    return Err(format!(
                        "wire: expected {:.3000}\nobserved {:.3000}",
                        json!(wanted),
                        json!(seen)
                    ));
                }
                if expected.local != local {
                    return Err(format!(
                        "local: expected {:.3000}\nobserved {:.3000}",
                        json!(expected.local),
                        json!(local)
                    ));
                }
            }
            _ => return Err("not a step".to_owned()),
        }
        Ok(())
    }

    fn send(&mut self, frame: &Value) {
        let Some(link) = self.current.clone().filter(|link| !link.borrow().is_over) else { return };
        let attempt = link.borrow().attempt;
        let text = match (frame["raw"].as_str(), frame.get("binary")) {
            (Some(raw), _) => Some(raw.to_owned()),
            (None, Some(_)) => None,
            (None, None) => Some(frame.to_string()),
        };
        self.machine.frame(self.now(), attempt, text.as_deref());
    }

    fn call(&mut self, name: &str, argument: &Value) -> Outcome_ {
        let now = self.now();
        let texts = || -> Vec<String> { serde_json::from_value(argument.clone()).expect("texts") };
        let text = argument.as_str().unwrap_or_default();
        match name {
            "connect" => self.machine.connect(now),
            "close" => self.machine.close(now),
            "subscribe" => {
                let topic = argument["topic"].as_str().expect("a topic");
                self.machine.subscribe(now, topic, argument["recover"].as_bool().unwrap_or_default());
            }
            "unsubscribe" => self.machine.unsubscribe(now, text),
            "ack" => self.machine.ack(now, &texts().iter().map(String::as_str).collect::<Vec<_>>()),
            "opened" => self.machine.report_opened(now, &texts()),
            "presence" => self.machine.set_presence(now, presence(text)),
            "page" => {
                if let Some(is_hidden) = argument["hidden"].as_bool() {
                    self.machine.set_hidden(now, is_hidden);
                }
                if argument["online"] == true {
                    self.machine.network_returned(now);
                }
            }
            "finish" | "fail" => {
                if self.passed.take().as_deref() != Some(text) {
                    return Err(format!("the application does not have {text}"));
                }
                let result = if name == "fail" { Err("the listener failed".into()) } else { Ok(()) };
                self.machine.settled(now, result);
            }
            "listen_unread" => {
                self.sees_unread = true;
                self.machine.want_unread(now, true);
            }
            "me" => drop(self.machine.me(now)),
            "variant" => drop(self.machine.variant(now, text, true)),
            "mark_read" => drop(self.machine.change_items(now, &json!({"action": "read", "ids": argument}))),
            _ => return Err("not a call".to_owned()),
        }
        Ok(())
    }

    pub(super) fn carry_out(&mut self) -> Outcome_ {
        loop {
            let effects = self.machine.effects();
            if effects.is_empty() {
                return Ok(());
            }
            for effect in effects {
                self.local.extend(vectors::local(&effect, self.sees_unread));
                self.effect(effect)?;
            }
        }
    }

    fn effect(&mut self, effect: Effect) -> Outcome_ {
        match effect {
            Effect::Dial(Dial { attempt, transport, token, topics, last_event_id }) => {
                let link = Rc::new(RefCell::new(Link { attempt, transport, is_open: false, is_over: false }));
                self.links.insert(attempt, Rc::clone(&link));
                self.dialled.push_back(link);
                let mut seen = json!({"open": transport.as_str()});
                let topics = Some(topics.join(",")).filter(|topics| !topics.is_empty());
                let token = token.as_deref().map(token_name);
                let app = self.vector.options.app.clone();
                for (name, value) in
                    [("app", app), ("token", token), ("topics", topics), ("last_event_id", last_event_id)]
                {
                    if let Some(value) = value {
                        seen[name] = json!(value);
                    }
                }
                self.wire.push(seen);
            }
            Effect::Send { attempt, frame } => {
                let link = self.links.get(&attempt).ok_or("no connection")?.borrow();
                if !link.is_open || link.is_over {
                    return Err(format!("sent {frame} on a connection that is not open"));
                }
                let mut frame: Value = serde_json::from_str(&frame).expect("JSON");
                if let Some(token) = frame["token"].as_str() {
                    frame["token"] = json!(token_name(token));
                }
                self.wire.push(json!({"frame": frame}));
            }
            Effect::Hangup { attempt } => {
                let link = Rc::clone(self.links.get(&attempt).ok_or("no connection")?);
                if std::mem::replace(&mut link.borrow_mut().is_over, true) {
                    return Ok(());
                }
                self.dialled.retain(|other| !Rc::ptr_eq(other, &link));
                let is_closed = link.borrow().is_open && link.borrow().transport == Transport::WebSocket;
                self.wire.push(json!({"close": is_closed.then_some(1000)}));
            }
            Effect::AskToken { n, .. } => {
                let token = self.tokens.pop_front().ok_or("the vector has no more tokens")?;
                let result = match token {
                    Token { pending: true, .. } => return Ok(()),
                    Token { fail: true, .. } => Err(TokenError::failed("the backend is away")),
                    Token { none: true, .. } => Err(TokenError::SignedOut),
                    _ => Ok(token.text(self.now().unix)),
                };
                self.machine.token_arrived(self.now(), n, result);
            }
            Effect::Request(request) => {
                self.requests.push_back(request.n);
                let mut seen = json!({"method": request.method.as_str(), "path": request.path, "token": token_name(&request.token)});
                let mut query = Map::new();
                query.extend(self.vector.options.app.as_ref().map(|app| ("app".to_owned(), json!(app))));
                query.extend(request.query.iter().map(|(name, value)| ((*name).to_owned(), json!(value))));
                if !query.is_empty() {
                    seen["query"] = query.into();
                }
                if let Some(etag) = request.if_none_match {
                    seen["if_none_match"] = json!(etag);
                }
                if let Some(body) = request.body {
                    seen["body"] = serde_json::from_str(&body).expect("JSON");
                }
                self.wire.push(json!({"request": seen}));
            }
            Effect::Pass(message) => match self.vector.options.listener.as_deref() {
                Some("deferred") => self.passed = Some(message.id().to_owned()),
                Some("throws") => self.machine.settled(self.now(), Err("the listener failed".into())),
                _ => self.machine.settled(self.now(), Ok(())),
            },
            Effect::Done { result, .. } => self.local.push(match result {
                Ok(Outcome::Me(me)) => {
                    let me: Value = serde_json::from_str(me.get()).expect("JSON");
                    json!({"me": me["device"]})
                }
                Ok(Outcome::Variant(variant)) => {
                    let variant = variant.map(|raw| serde_json::from_str::<Value>(raw.get()).expect("JSON"));
                    json!({"variant": variant.map(|variant| variant["variant"].clone())})
                }
                Ok(Outcome::Changed(changed)) => json!({"changed": changed.changed}),
                Ok(other) => return Err(format!("not expected: {other:?}")),
                Err(error) => json!({"failed": error.code()}),
            }),
            Effect::CancelToken { .. } | Effect::Keep(_) | Effect::Tell(_) => {}
        }
        Ok(())
    }
}

fn headers(argument: &Value) -> HeaderMap {
    let headers: HashMap<String, String> =
        serde_json::from_value(argument["headers"].clone()).unwrap_or_default();
    (&headers).try_into().expect("headers")
}

pub(crate) fn presence(text: &str) -> PresenceMode {
    match text {
        "active" => PresenceMode::Active,
        "idle" => PresenceMode::Idle,
        _ => PresenceMode::Auto,
    }
}
