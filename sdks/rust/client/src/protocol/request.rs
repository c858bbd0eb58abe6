//! Calls of the device's HTTP API (T6, U).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::effect::{Effect, Outcome, Request, Response};
use super::machine::{Machine, Moment};
use super::outbox::Kind;
use super::timer::Timer;
use super::token::Waiter;
use crate::error::{Code, Error};
use crate::event::Event;
use crate::types::{ItemCounts, ItemsChanged};

const EXPOSED_MAX: usize = 4_096;
/// U5.
const VARIANT_TIME: Duration = Duration::from_secs(60);
/// U6: how often a read is repeated, and how long after the call.
const REPEATS_MAX: u32 = 2;
const REPEAT_TIME: Duration = Duration::from_secs(30);

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
    Me,
    Variant {
        experiment: String,
        expose: bool,
    },
    Counts {
        version: u64,
    },
    /// Counts that the client reads without a call (U1).
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
    called_at: Duration,
    /// Of the newest request.
    sent_at: Duration,
    /// U6.
    repeats: u32,
    repeat_at: Option<Duration>,
}

impl Pending {
    /// No call waits for it.
    fn is_own(&self) -> bool {
        matches!(self.purpose, Purpose::Refresh { .. })
    }

    /// When to repeat a read after an answer (U6).
    fn repetition(&self, response: &Response, now: Duration) -> Option<Duration> {
        let at = now + response.retry_after?;
        let can_repeat = self.call.method == Method::GET
            && matches!(response.status, 429 | 503)
            && self.repeats < REPEATS_MAX
            && at <= self.called_at + REPEAT_TIME;
        can_repeat.then_some(at)
    }
}

/// The last answer to `GET /v1/me`.
#[derive(Debug)]
struct KnownMe {
    json: Arc<RawValue>,
    /// When its request began, and with which token (U5).
    sent_at: Duration,
    token: String,
}

/// An experiment and its variant, with the device and the user that saw it (U4).
#[derive(Debug, PartialEq, Eq, Hash)]
struct Exposure {
    device: Option<String>,
    user: Option<String>,
    experiment: String,
    variant: String,
}

#[derive(Debug, Default)]
pub(super) struct Requests {
    n: u64,
    pending: HashMap<u64, Pending>,
    etag: Option<String>,
    me: Option<KnownMe>,
    exposed: HashSet<Exposure>,
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
    token: String,
    sent_at: Duration,
}

impl Machine {
    /// Begins a call and returns its number. `Done` has its result.
    pub(crate) fn call(&mut self, now: Moment, call: Call) -> u64 {
        self.input(now, |m| m.request(call, Purpose::Application))
    }

    pub(super) fn request(&mut self, call: Call, purpose: Purpose) -> u64 {
        self.requests.n += 1;
        let n = self.requests.n;
        let now = self.now.at;
        let pending = Pending {
            call,
            purpose,
            token: String::new(),
            is_repeated: false,
            called_at: now,
            sent_at: now,
            repeats: 0,
            repeat_at: None,
        };
        self.requests.pending.insert(n, pending);
        self.take_token(Waiter::Call { n });
        n
    }

    pub(super) fn token_to_call(&mut self, n: u64, result: Result<&str, Error>) {
        let Some(pending) = self.requests.pending.get_mut(&n) else { return };
        match result {
            Ok(token) => {
                token.clone_into(&mut pending.token);
                pending.sent_at = self.now.at;
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
            if let Some(at) = pending.repetition(&response, m.now.at) {
                pending.repeats += 1;
                pending.repeat_at = Some(at);
                m.arm_repetition();
                return;
            }
            if !matches!(response.status, 200..=299 | 304) {
                return m.finish(n, Err(Error::problem(response)));
            }
            let is_outdated = m.tokens.current.as_ref() != Some(&pending.token);
            if is_outdated && matches!(pending.purpose, Purpose::Variant { .. }) {
                m.take_token(Waiter::Call { n }); // U5
                return;
            }
            let Response { status, etag, body, .. } = response;
            let (token, sent_at) = (pending.token.clone(), pending.sent_at);
            m.finish(n, Ok(Answer { status, etag, body, token, sent_at }));
        });
    }

    fn arm_repetition(&mut self) {
        match self.requests.pending.values().filter_map(|pending| pending.repeat_at).min() {
            Some(at) => self.timers.set(Timer::Repeat, at),
            None => self.timers.clear(Timer::Repeat),
        }
    }

    /// Sends reads again that are due (U6).
    pub(super) fn repeat_reads(&mut self) {
        let now = self.now.at;
        let mut due: Vec<(Duration, u64)> = Vec::new();
        for (n, pending) in &mut self.requests.pending {
            due.extend(pending.repeat_at.take_if(|at| *at <= now).map(|at| (at, *n)));
        }
        due.sort_unstable();
        for (_, n) in due {
            let is_own = self.requests.pending.get(&n).is_some_and(Pending::is_own);
            if is_own && self.is_at_rest() {
                self.requests.pending.remove(&n); // S4
            } else {
                self.take_token(Waiter::Call { n });
            }
        }
        self.arm_repetition();
    }

    fn finish(&mut self, n: u64, result: Result<Answer, Error>) {
        let Some(Pending { purpose, .. }) = self.requests.pending.remove(&n) else { return };
        let result = match purpose {
            Purpose::Report { kind, entries } => return self.reported(kind, &entries, result.map(drop)),
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
        self.report(Kind::Presence, &[self.presence().to_owned()]);
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
        let Answer { status, etag, body, token, sent_at } = answer;
        let json: Arc<RawValue> = match (&self.requests.me, status) {
            (Some(known), 304) => Arc::clone(&known.json),
            (None, 304) => return Err(Error::new(Code::Network, "304 without an earlier answer")),
            _ => {
                let json: Box<RawValue> = read(&body)?;
                self.requests.etag = etag;
                json.into()
            }
        };
        self.requests.me = Some(KnownMe { json: Arc::clone(&json), sent_at, token });
        Ok(json)
    }

    /// The state of the device, if it is new enough to say the variant, and of the present token (U5).
    fn fresh_me(&self) -> Option<Arc<RawValue>> {
        let known = self.requests.me.as_ref()?;
        let is_fresh = self.now.at.saturating_sub(known.sent_at) < VARIANT_TIME;
        let is_fresh = is_fresh && self.tokens.current.as_ref() == Some(&known.token);
        is_fresh.then(|| Arc::clone(&known.json))
    }

    /// The variant of an experiment. `expose` reports it once (U4).
    pub(crate) fn variant(&mut self, now: Moment, experiment: &str, expose: bool) -> u64 {
        self.input(now, |m| {
            let experiment = experiment.to_owned();
            let Some(me) = m.fresh_me() else {
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
            device: Option<String>,
            user: Option<String>,
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
        let Me { device, user, .. } = me;
        let exposure = Exposure { device, user, experiment: experiment.clone(), variant };
        let exposed = &mut self.requests.exposed;
        if expose && exposed.len() < EXPOSED_MAX && exposed.insert(exposure) {
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
