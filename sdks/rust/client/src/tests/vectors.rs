//! The test vectors of sdks/vectors, and what their players share.

use std::path::PathBuf;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::event::Event;
use crate::protocol::{Acknowledge, Effect};
use crate::state::{State, Transport};

/// 2026-01-01, at which every vector begins.
pub(crate) const START: Duration = Duration::from_secs(1_767_225_600);

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Vector {
    #[serde(skip)]
    pub(crate) file: String,
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) options: Options,
    pub(crate) tokens: Option<Vec<Token>>,
    #[serde(default)]
    pub(crate) random: Vec<f64>,
    pub(crate) steps: Vec<Map<String, Value>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Options {
    pub(crate) app: Option<String>,
    acknowledge: Option<String>,
    pub(crate) listener: Option<String>,
    ping_interval_s: Option<u64>,
    transports: Option<Vec<String>>,
    websocket: Option<bool>,
}

impl Options {
    pub(crate) fn transports(&self) -> Vec<Transport> {
        let names = self.transports.clone().unwrap_or_else(|| vec!["websocket".to_owned(), "sse".to_owned()]);
        let all = names.iter().map(|name| match name.as_str() {
            "sse" => Transport::Sse,
            _ => Transport::WebSocket,
        });
        all.filter(|transport| self.websocket != Some(false) || *transport == Transport::Sse).collect()
    }

    pub(crate) fn acknowledge(&self) -> Acknowledge {
        match self.acknowledge.as_deref() {
            Some("received") => Acknowledge::Received,
            Some("manual") => Acknowledge::Manual,
            _ => Acknowledge::Handled,
        }
    }

    pub(crate) fn ping_interval(&self) -> Duration {
        Duration::from_secs(self.ping_interval_s.unwrap_or(60))
    }

    pub(crate) fn listens(&self) -> bool {
        self.listener.as_deref() != Some("none")
    }
}

/// The answer to a request for a token.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Token {
    name: String,
    lifetime_s: Option<i64>,
    iat: Option<bool>,
    clock_ahead_s: i64,
    pub(crate) fail: bool,
    pub(crate) none: bool,
    pub(crate) pending: bool,
}

impl Token {
    pub(crate) fn text(&self, unix: Duration) -> String {
        let Some(lifetime) = self.lifetime_s else { return self.name.clone() };
        let iat = i64::try_from(unix.as_secs()).expect("small") + self.clock_ahead_s;
        let mut claims = json!({"jti": self.name, "exp": iat + lifetime});
        if self.iat != Some(false) {
            claims["iat"] = json!(iat);
        }
        let encode = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        format!("{}.{}.x", encode(json!({"alg": "none"})), encode(claims))
    }
}

/// The name of a token.
pub(crate) fn token_name(token: &str) -> String {
    let claims = token.split('.').nth(1).and_then(|text| URL_SAFE_NO_PAD.decode(text).ok());
    let claims = claims.and_then(|text| serde_json::from_slice::<Value>(&text).ok()).unwrap_or_default();
    claims["jti"].as_str().unwrap_or(token).to_owned()
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Expectation {
    pub(crate) wire: Vec<Value>,
    pub(crate) local: Vec<Value>,
}

pub(crate) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../vectors")
}

pub(crate) fn load() -> Vec<Vector> {
    #[derive(Deserialize)]
    struct File {
        vectors: Vec<Vector>,
    }
    let mut all = Vec::new();
    let entries = std::fs::read_dir(folder()).expect("the tests run in a clone of the repository");
    // Vectors that libraries of other languages do not pass yet. The folder may be gone.
    let next = std::fs::read_dir(folder().join("next")).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.chain(next).map(|entry| entry.expect("readable").path()).collect();
    paths.sort();
    for path in paths {
        let name = path.strip_prefix(folder()).expect("in the folder").to_string_lossy().into_owned();
        if path.extension().is_none_or(|extension| extension != "json") || name == "schema.json" {
            continue;
        }
        let file: File = serde_json::from_slice(&std::fs::read(&path).expect("readable")).expect("valid");
        all.extend(file.vectors.into_iter().map(|vector| Vector {
            file: name.clone(),
            tokens: vector.tokens.or_else(|| Some(vec![Token { name: "t1".to_owned(), ..Token::default() }])),
            ..vector
        }));
    }
    assert!(all.len() > 100, "{} vectors", all.len());
    all
}

/// Observations in a common order: each kind keeps its own.
pub(crate) fn by_kind(observed: &[Value]) -> Vec<Value> {
    let kind = |one: &Value| {
        let kinds = ["open", "frame", "close", "request"];
        kinds.iter().position(|name| one.get(name).is_some())
    };
    let mut sorted = observed.to_vec();
    sorted.sort_by_key(kind);
    sorted
}

/// An effect in the form of the vectors.
pub(crate) fn local(effect: &Effect, sees_unread: bool) -> Option<Value> {
    Some(match effect {
        Effect::AskToken { reason, .. } => json!({"token": reason.as_str()}),
        Effect::Pass(message) => json!({"message": message.id()}),
        Effect::Tell(event) => return local_event(event, sees_unread),
        _ => return None,
    })
}

fn local_event(event: &Event, sees_unread: bool) -> Option<Value> {
    Some(match event {
        Event::State(state) => {
            let mut seen = json!({"state": state.name()});
            if let Some(reason) = state.reason() {
                seen["reason"] = json!(reason);
            }
            match state {
                State::Waiting { retry_in: Some(wait), .. } => {
                    seen["in_ms"] = json!(u64::try_from(wait.as_millis()).expect("small"));
                }
                State::Connected { transport, .. } => seen["transport"] = json!(transport.as_str()),
                _ => {}
            }
            seen
        }
        Event::Recovered(event) => json!({"recovered": event.topic, "complete": event.complete}),
        Event::Denied(event) => json!({"denied": event.topic, "code": event.code, "reason": event.reason}),
        Event::Items(event) => json!({"items": event.event, "ids": event.ids}),
        Event::Unread(counts) if sees_unread => {
            json!({"unread": counts.unread, "categories": counts.categories})
        }
        Event::Error(error) => json!({"error": error.code()}),
        Event::Message(message) => json!({"message": message.id()}),
        Event::Unread(_) => return None,
    })
}
