//! Calls of the device's HTTP API (T6, U).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use http::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::effect::{Effect, Outcome, Request, Response};
use super::machine::{Machine, Moment};
use super::outbox::Kind;
use super::token::Waiter;
use crate::error::{Code, Error};
use crate::event::Event;
use crate::types::{ItemCounts, ItemsChanged};

const EXPOSED_MAX: usize = 4_096;

#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) method: Method,
    /// Escaped.
    pub(crate) path: String,
    pub(crate) query: Vec<(&'static str, String)>,
    pub(crate) if_none_match: Option<String>,
    /// JSON.
    pub(crate) body: Option<String>,
}

impl Call {
    pub(crate) fn new(method: Method, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), query: Vec::new(), if_none_match: None, body: None }
    }

    pub(super) fn post(path: &str, body: &Value) -> Self {
        Self { body: Some(body.to_string()), ..Self::new(Method::POST, path) }
    }
}

/// What the answer is for.
#[derive(Debug)]
pub(super) enum Purpose {
    /// The application reads the body.
    Application,
    Report {
        kind: Kind,
        entries: Vec<String>,
    },
    Presence,
    Me,
    Variant {
        experiment: String,
        expose: bool,
    },
    Counts {
        version: u64,
    },
    /// Counts that the client reads by itself (U1).
    Refresh {
        version: u64,
    },
    Change {
        version: u64,
    },
}

#[derive(Debug)]
struct Pending {
    call: Call,
    purpose: Purpose,
    token: String,
    /// 401 rejects the token once (T6).
    is_repeated: bool,
}

#[derive(Debug, Default)]
pub(super) struct Requests {
    n: u64,
    pending: HashMap<u64, Pending>,
    etag: Option<String>,
    me: Option<Arc<RawValue>>,
    exposed: HashSet<(String, String)>,
    wants_unread: bool,
    counts: Option<ItemCounts>,
    /// Counts reports, so that older answers are recognized (U2).
    version: u64,
}

/// A success.
struct Answer {
    status: u16,
    etag: Option<String>,
    body: Vec<u8>,
}

impl Machine {
    /// Begins a call and returns its number. `Done` has its result.
    pub(crate) fn call(&mut self, now: Moment, call: Call) -> u64 {
        self.input(now, |m| m.request(call, Purpose::Application))
    }

    pub(super) fn request(&mut self, call: Call, purpose: Purpose) -> u64 {
        self.requests.n += 1;
        let n = self.requests.n;
        let pending = Pending { call, purpose, token: String::new(), is_repeated: false };
        self.requests.pending.insert(n, pending);
        self.take_token(Waiter::Call { n });
        n
    }

    pub(super) fn token_to_call(&mut self, n: u64, result: Result<&str, Error>) {
        let Some(pending) = self.requests.pending.get_mut(&n) else { return };
        match result {
            Ok(token) => {
                token.clone_into(&mut pending.token);
                let Call { method, path, query, if_none_match, body } = pending.call.clone();
                let token = token.to_owned();
                self.emit(Effect::Request(Request { n, method, path, query, if_none_match, token, body }));
            }
            Err(error) => self.finish(n, Err(error)),
        }
    }

    /// Forgets a call: it has no `Done`.
    pub(crate) fn cancel(&mut self, n: u64) {
        self.requests.pending.remove(&n);
    }

    /// The answer to `Request`. An error: there was none, because of the network or a timeout.
    pub(crate) fn answered(&mut self, now: Moment, n: u64, result: Result<Response, Error>) {
        self.input(now, |m| {
            let Some(pending) = m.requests.pending.get_mut(&n) else { return };
            let response = match result {
                Err(error) => return m.finish(n, Err(error)),
                Ok(response) => response,
            };
            if response.status == 401 && !pending.is_repeated {
                // T6
                pending.is_repeated = true;
                let token = std::mem::take(&mut pending.token);
                m.tokens.reject(&token);
                m.take_token(Waiter::Call { n });
                return;
            }
            m.finish(
                n,
                match response.status {
                    200..=299 | 304 => {
                        let Response { status, etag, body, .. } = response;
                        Ok(Answer { status, etag, body })
                    }
                    _ => Err(Error::problem(response)),
                },
            );
        });
    }

    fn finish(&mut self, n: u64, result: Result<Answer, Error>) {
        let Some(Pending { purpose, .. }) = self.requests.pending.remove(&n) else { return };
        let result = match purpose {
            Purpose::Report { kind, entries } => return self.reported(kind, &entries, result.map(drop)),
            Purpose::Presence => {
                if let Err(error) = result {
                    self.fail(error);
                }
                return;
            }
            Purpose::Refresh { version } => {
                if let Err(error) = result.and_then(|answer| self.counts_read(version, &answer.body)) {
                    self.fail(error);
                }
                return;
            }
            Purpose::Application => result.map(|answer| Outcome::Body(answer.body)),
            Purpose::Counts { version } => {
                result.and_then(|answer| self.counts_read(version, &answer.body)).map(Outcome::Counts)
            }
            Purpose::Change { version } => {
                result.and_then(|answer| self.items_changed(version, &answer.body)).map(Outcome::Changed)
            }
            Purpose::Me => result.and_then(|answer| self.me_read(answer)).map(Outcome::Me),
            Purpose::Variant { experiment, expose } => {
                let me = result.and_then(|answer| self.me_read(answer));
                me.and_then(|me| self.variant_of(&me, experiment, expose)).map(Outcome::Variant)
            }
        };
        self.emit(Effect::Done { n, result });
    }

    pub(super) fn requests_connected(&mut self) {
        self.wake_outboxes();
        if self.requests.wants_unread {
            self.refresh_counts(); // U1
        }
    }

    pub(super) fn report_presence(&mut self) {
        self.connection.flushed_at = Some(self.now.at);
        let body = json!({"state": self.presence()}).to_string();
        let call = Call { body: Some(body), ..Call::new(Method::PUT, "/v1/me/presence") };
        self.request(call, Purpose::Presence);
    }

    /// Reports that the user opened messages (O2).
    pub(crate) fn report_opened(&mut self, now: Moment, ids: &[String]) {
        self.input(now, |m| m.report(Kind::Opened, ids));
    }

    /// Reads the state of the device (U3).
    pub(crate) fn me(&mut self, now: Moment) -> u64 {
        self.input(now, |m| m.read_me(Purpose::Me))
    }

    fn read_me(&mut self, purpose: Purpose) -> u64 {
        let call = Call { if_none_match: self.requests.etag.clone(), ..Call::new(Method::GET, "/v1/me") };
        self.request(call, purpose)
    }

    fn me_read(&mut self, answer: Answer) -> Result<Arc<RawValue>, Error> {
        match (&self.requests.me, answer.status) {
            (Some(me), 304) => return Ok(Arc::clone(me)),
            (None, 304) => return Err(Error::new(Code::Network, "304 without an earlier answer")),
            _ => {}
        }
        let me: Box<RawValue> = read(&answer.body)?;
        let me: Arc<RawValue> = me.into();
        self.requests.me = Some(Arc::clone(&me));
        self.requests.etag = answer.etag;
        Ok(me)
    }

    /// The variant of an experiment. `expose` reports it once (U4).
    pub(crate) fn variant(&mut self, now: Moment, experiment: &str, expose: bool) -> u64 {
        self.input(now, |m| {
            let experiment = experiment.to_owned();
            let Some(me) = m.requests.me.clone() else {
                return m.read_me(Purpose::Variant { experiment, expose });
            };
            m.requests.n += 1;
            let n = m.requests.n;
            let result = m.variant_of(&me, experiment, expose).map(Outcome::Variant);
            m.emit(Effect::Done { n, result });
            n
        })
    }

    fn variant_of(
        &mut self,
        me: &RawValue,
        experiment: String,
        expose: bool,
    ) -> Result<Option<Box<RawValue>>, Error> {
        #[derive(Deserialize)]
        struct Me {
            #[serde(default)]
            experiments: HashMap<String, Box<RawValue>>,
        }
        #[derive(Deserialize)]
        struct Name {
            variant: String,
        }
        let mut me: Me = read(me.get().as_bytes())?;
        let Some(found) = me.experiments.remove(&experiment) else { return Ok(None) };
        let Name { variant } = read(found.get().as_bytes())?;
        let exposed = &mut self.requests.exposed;
        if expose && exposed.len() < EXPOSED_MAX && exposed.insert((experiment.clone(), variant)) {
            self.report(Kind::Exposures, &[experiment]);
        }
        Ok(Some(found))
    }

    /// Whether the application observes unread items (U1).
    pub(crate) fn want_unread(&mut self, now: Moment, wants: bool) {
        self.input(now, |m| {
            m.requests.wants_unread = wants;
            if wants && m.is_connected() {
                m.refresh_counts();
            }
        });
    }

    fn refresh_counts(&mut self) {
        let version = self.requests.version;
        self.request(Call::new(Method::GET, "/v1/me/items/counts"), Purpose::Refresh { version });
    }

    /// Reads the numbers of unread items.
    pub(crate) fn read_counts(&mut self, now: Moment) -> u64 {
        self.input(now, |m| {
            let version = m.requests.version;
            m.request(Call::new(Method::GET, "/v1/me/items/counts"), Purpose::Counts { version })
        })
    }

    fn counts_read(&mut self, version: u64, body: &[u8]) -> Result<ItemCounts, Error> {
        let counts: ItemCounts = read(body)?;
        if version == self.requests.version {
            self.update_counts(counts.clone()); // U2
        }
        Ok(counts)
    }

    /// Changes the state of at most 100 items, or of all up to one.
    pub(crate) fn change_items(&mut self, now: Moment, change: &Value) -> u64 {
        self.input(now, |m| {
            let version = m.requests.version;
            let call = Call { body: Some(change.to_string()), ..Call::new(Method::PATCH, "/v1/me/items") };
            m.request(call, Purpose::Change { version })
        })
    }

    fn items_changed(&mut self, version: u64, body: &[u8]) -> Result<ItemsChanged, Error> {
        let changed: ItemsChanged = read(body)?;
        if version == self.requests.version {
            let counts = ItemCounts { unread: changed.unread, categories: changed.categories.clone() };
            self.update_counts(counts); // U2
        }
        Ok(changed)
    }

    /// Newer counts.
    pub(super) fn update_counts(&mut self, counts: ItemCounts) {
        self.requests.version += 1;
        if self.requests.counts.as_ref() != Some(&counts) {
            self.requests.counts = Some(counts.clone());
            self.tell(Event::Unread(counts));
        }
    }

    /// The last known counts.
    pub(crate) fn unread(&self) -> Option<&ItemCounts> {
        self.requests.counts.as_ref()
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(body).map_err(|cause| {
        let text = format!("the answer is not what was expected: {cause}");
        Error::new(Code::Network, text).caused_by(cause.into())
    })
}
