//! Turns a device's credential into an identity, in two steps.
//!
//! [`Auth::check`] decides at once what takes microseconds: device tokens, HS256, and tokens that a key set has
//! verified before. The rest needs a public key (30 to 300 µs for each of up to four keys) and comes back as
//! [`Checked::Costly`]. [`Auth::submit`] passes it to the pool, whose threads call back, so no shard and no API
//! thread verifies a token with a public key. [`Auth::authenticate`] combines both for async callers.
//!
//! Counts failed log-ins, and limits them as `failures` describes.

use std::sync::Arc;

use jsonwebtoken::{Algorithm, DecodingKey, Header};
use noroshi_store::App;
use noroshi_types::{AppId, Timestamp};

use super::Auth;
use crate::client::ClientNetwork;
use crate::failures::{FailureLimits, Failures, Limited, Standing};
use crate::identity::Identity;
use crate::jwks::KeySet;
use crate::jwt::Unverified;
use crate::metrics::Metrics;
use crate::refused::Refused;
use crate::snapshot::Snapshot;
use crate::verdicts::{Question, Verdicts};
use crate::{jwt, key, subject, token};

/// The credential of a device.
#[derive(Clone, Copy)]
pub struct Credential<'a> {
    pub token: &'a str,
    /// The app named in the request.
    pub app: Option<&'a str>,
    /// The client that is charged with failed log-ins. None: its address is unknown.
    pub client: Option<ClientNetwork>,
}

pub enum Checked {
    Known(Result<Identity, Refused>),
    Costly(Box<Costly>),
}

/// A token that needs a verification with a public key.
pub struct Costly {
    token: Box<str>,
    header: Header,
    app: AppId,
    set: Arc<KeySet>,
    /// The result if the signature is valid.
    claimed: Result<Identity, Refused>,
    client: Option<ClientNetwork>,
    standing: Standing,
    now: Timestamp,
}

impl Costly {
    /// The app whose key set would verify it.
    pub fn app(&self) -> AppId {
        self.app
    }
}

/// What verification shares with the tasks of the pool.
pub(super) struct Checks {
    verdicts: Verdicts,
    failures: Failures,
    pub(super) metrics: Metrics,
}

impl Checks {
    pub(super) fn new(limits: FailureLimits) -> Self {
        Self { verdicts: Verdicts::new(), failures: Failures::new(limits), metrics: Metrics::new() }
    }

    /// Counts a failed log-in that may be a guess, and makes its client wait if it failed too often. Expired tokens,
    /// API keys and missing tokens are not guesses.
    fn refuse(
        &self,
        refused: Refused,
        client: Option<ClientNetwork>,
        app: Option<AppId>,
        now: Timestamp,
    ) -> Refused {
        let guesses = matches!(refused, Refused::Signature | Refused::Malformed(_) | Refused::Unknown);
        match guesses.then(|| self.failures.count(client, app, now)).flatten() {
            Some(retry_after_s) => {
                self.metrics.throttled_peer.inc();
                Refused::TooManyFailures { retry_after_s }
            }
            None => refused,
        }
    }

    /// Whether a key of the set signed the token. Runs on the pool.
    fn is_signed(&self, costly: &Costly) -> bool {
        let question = Question::new(costly.set.version(), &costly.token);
        // Another connection may have had it verified meanwhile.
        self.verdicts.recall(&question).unwrap_or_else(|| {
            let is_good = costly.set.candidates(&costly.header).any(|key| self.try_key(costly, key));
            self.verdicts.keep(question, is_good);
            is_good
        })
    }

    fn try_key(&self, costly: &Costly, key: &DecodingKey) -> bool {
        let is_good = jwt::is_signed_by(&costly.token, costly.header.alg, key);
        let counter = if is_good { &self.metrics.good } else { &self.metrics.bad };
        counter.inc();
        is_good
    }

    fn verify(&self, costly: Costly) -> Result<Identity, Refused> {
        match self.is_signed(&costly) {
            true => costly.claimed,
            false => Err(self.refuse(Refused::Signature, costly.client, Some(costly.app), costly.now)),
        }
    }
}

type Done = Box<dyn FnOnce(Result<Identity, Refused>) + Send>;

/// Calls back exactly once, even if the task is dropped.
struct Answer(Option<Done>);

impl Answer {
    fn give(mut self, result: Result<Identity, Refused>) {
        if let Some(done) = self.0.take() {
            done(result);
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some(done) = self.0.take() {
            done(Err(Refused::Busy));
        }
    }
}

impl Auth {
    /// Identifies a device, as far as this takes microseconds; the rest comes back as [`Checked::Costly`].
    pub fn check(&self, credential: Credential<'_>, now: Timestamp) -> Checked {
        let Credential { token, app: named, client } = credential;
        let refuse = |refused, app| Err(self.checks.refuse(refused, client, app, now));
        if token.is_empty() {
            return Checked::Known(Err(Refused::Missing));
        }
        if token.starts_with(token::PREFIX) {
            let result = self.device_token(token, now);
            return Checked::Known(result.or_else(|refused| refuse(refused, None)));
        }
        let header = match jwt::header(token) {
            Ok(header) => header,
            Err(_) if self.snapshot.load().keys.contains_key(&key::hash(token)) => {
                return Checked::Known(Err(Refused::NotAToken));
            }
            Err(why) => return Checked::Known(refuse(why, None)),
        };
        let body = match jwt::body(token) {
            Ok(body) => body,
            Err(why) => return Checked::Known(refuse(why, None)),
        };
        let unverified = match Unverified::read(&body) {
            Ok(unverified) => unverified,
            Err(why) => return Checked::Known(refuse(why, None)),
        };
        let snapshot = self.snapshot.load();
        let is_signed_for =
            |app: &App| snapshot.secrets.get(&app.id).is_some_and(|key| jwt::is_signed_with(token, key));
        match snapshot.app_of_token(&unverified.named, named) {
            Ok(app) if header.alg != Algorithm::HS256 => {
                self.check_public(&snapshot, credential, header, &unverified, app, now)
            }
            Ok(app) if is_signed_for(app) => Checked::Known(claimed(&snapshot, token, &unverified, app, now)),
            Ok(app) => Checked::Known(refuse(Refused::Signature, Some(app.id))),
            Err(refused) => Checked::Known(refuse(refused, None)),
        }
    }

    /// Checks a token that is signed with a public key.
    fn check_public(
        &self,
        snapshot: &Snapshot,
        credential: Credential<'_>,
        header: Header,
        unverified: &Unverified<'_>,
        app: &App,
        now: Timestamp,
    ) -> Checked {
        let Credential { token, client, .. } = credential;
        let Checks { verdicts, metrics, .. } = &*self.checks;
        let refuse =
            || Checked::Known(Err(self.checks.refuse(Refused::Signature, client, Some(app.id), now)));
        let set = self.jwk_sets.get(app.id).filter(|set| set.candidates(&header).next().is_some());
        let Some(set) = set else {
            self.jwk_sets.miss(app);
            return refuse();
        };
        let claimed = claimed(snapshot, token, unverified, app, now);
        match verdicts.recall(&Question::new(set.version(), token)) {
            Some(true) => {
                metrics.recalled_good.inc();
                Checked::Known(claimed)
            }
            Some(false) => {
                metrics.recalled_bad.inc();
                refuse()
            }
            None => match self.admit(client, app.id, now) {
                Ok(standing) => {
                    let (token, app) = (token.into(), app.id);
                    Checked::Costly(Box::new(Costly {
                        token,
                        header,
                        app,
                        set,
                        claimed,
                        client,
                        standing,
                        now,
                    }))
                }
                Err(refused) => Checked::Known(Err(refused)),
            },
        }
    }

    /// The app that a rejected log-in was for, as far as its token or its request tell. Nothing of it is verified.
    pub fn claimed_app(&self, token: Option<&str>, named: Option<&str>) -> Option<AppId> {
        let of_device =
            || token::unverified_device(token?).map(|(app, _)| app).filter(|app| self.has_app(*app));
        let of_jwt = || {
            // Its length is limited.
            jwt::header(token?).ok()?;
            let body = jwt::body(token?).ok()?;
            let unverified = Unverified::read(&body).ok()?;
            Some(self.snapshot.load().app_of_token(&unverified.named, named).ok()?.id)
        };
        of_device().or_else(of_jwt).or_else(|| self.app_id(named?))
    }

    fn device_token(&self, token: &str, now: Timestamp) -> Result<Identity, Refused> {
        let identity = self.signer.verify(token, now)?;
        // The app may be deleted while its tokens are still valid.
        match self.snapshot.load().app(identity.app) {
            Some(_) => Ok(identity),
            None => Err(Refused::Unknown),
        }
    }

    fn admit(&self, client: Option<ClientNetwork>, app: AppId, now: Timestamp) -> Result<Standing, Refused> {
        let Checks { failures, metrics, .. } = &*self.checks;
        failures.admit(client, app, now).map_err(|limited| {
            let (counter, retry_after_s) = match limited {
                Limited::Client { retry_after_s } => (&metrics.throttled_peer, retry_after_s),
                Limited::App { retry_after_s } => (&metrics.throttled_app, retry_after_s),
            };
            counter.inc();
            Refused::TooManyFailures { retry_after_s }
        })
    }

    /// Verifies on a thread of the pool. Calls `done` once: from that thread, or at once with [`Refused::Busy`] if the
    /// queue has no room for the app.
    pub fn submit(&self, costly: Box<Costly>, done: impl FnOnce(Result<Identity, Refused>) + Send + 'static) {
        let (checks, answer) = (self.checks.clone(), Answer(Some(Box::new(done))));
        let (app, standing) = (costly.app, costly.standing);
        let task = move || answer.give(checks.verify(*costly));
        if !self.pool.submit(app, standing, Box::new(task)) {
            self.checks.metrics.throttled_queue.inc();
        }
    }

    /// [`Auth::authenticate`] for a caller that may block: waits on the calling thread while the pool verifies.
    pub fn device(&self, token: &str, app: Option<&str>, now: Timestamp) -> Result<Identity, Refused> {
        match self.check(Credential { token, app, client: None }, now) {
            Checked::Known(result) => result,
            Checked::Costly(costly) => {
                let (answer, answered) = std::sync::mpsc::sync_channel(1);
                // Fails only if this thread is gone.
                self.submit(costly, move |result| drop(answer.send(result)));
                answered.recv().unwrap_or(Err(Refused::Busy))
            }
        }
    }

    /// [`Auth::check`], with the costly part done by the pool. Cancel-safe: the pool finishes the verification and
    /// discards its result.
    pub async fn authenticate(
        &self,
        credential: Credential<'_>,
        now: Timestamp,
    ) -> Result<Identity, Refused> {
        let costly = match self.check(credential, now) {
            Checked::Known(result) => return result,
            Checked::Costly(costly) => costly,
        };
        let (answer, answered) = tokio::sync::oneshot::channel();
        // Fails only if the caller is gone.
        self.submit(costly, move |result| drop(answer.send(result)));
        answered.await.unwrap_or(Err(Refused::Busy))
    }
}

/// What a JWT claims, completed with what the app's topic rules need. The caller checks the signature.
fn claimed(
    snapshot: &Snapshot,
    token: &str,
    unverified: &Unverified<'_>,
    app: &App,
    now: Timestamp,
) -> Result<Identity, Refused> {
    let identity = jwt::claimed(unverified, app, now)?;
    let rules = snapshot.topic_rules(app.id);
    subject::complete(identity, token, rules.map(|rules| &**rules))
}
