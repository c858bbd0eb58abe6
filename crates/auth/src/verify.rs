//! From a credential of a device to an identity, in two steps.
//!
//! [`Auth::check`] decides at once whatever costs some microseconds: device tokens, HS256, and tokens that a key set has
//! verified before. What is left needs a public key (30 to 300 µs for each of up to four keys) and comes back as
//! [`Checked::Costly`]. [`Auth::submit`] has that done by the pool's threads and calls back from one of them, so no
//! shard and no thread of the API's runtime ever verifies with a public key. [`Auth::authenticate`] is both for async
//! callers.
//!
//! Failed log-ins are counted here, and limited as `failures` describes.

use std::net::IpAddr;
use std::sync::Arc;

use jsonwebtoken::{Algorithm, DecodingKey, Header};
use noroshi_store::App;
use noroshi_types::{AppId, Timestamp};

use crate::auth::{Auth, Identity};
use crate::failures::{FailureLimits, Failures, Limited, Peer, Standing};
use crate::jwks::KeySet;
use crate::metrics::Metrics;
use crate::verdicts::{Question, Verdicts};
use crate::{Refused, jwt, key, token};

/// What a device brings.
#[derive(Clone, Copy)]
pub struct Credential<'a> {
    pub token: &'a str,
    /// The app that the request names.
    pub app: Option<&'a str>,
    /// Who failed log-ins are counted for. None: for nobody.
    pub peer: Option<IpAddr>,
}

pub enum Checked {
    Known(Result<Identity, Refused>),
    Costly(Costly),
}

/// A token that has to be verified with a public key.
pub struct Costly {
    token: Box<str>,
    header: Header,
    /// To be tried in turn.
    sets: Vec<(AppId, Arc<KeySet>)>,
    peer: Option<Peer>,
    standing: Standing,
    now: Timestamp,
}

/// Everything that verification needs and shares; held by tasks of the pool.
pub(crate) struct Verifier {
    verdicts: Verdicts,
    failures: Failures,
    pub(crate) metrics: Metrics,
}

impl Verifier {
    pub(crate) fn new(limits: FailureLimits) -> Self {
        Self { verdicts: Verdicts::new(), failures: Failures::new(limits), metrics: Metrics::new() }
    }

    /// A log-in that failed: counted where its cause says that somebody guesses, and told to wait if the address failed
    /// too often. Who comes with an expired token, an API key or none at all is not guessing.
    fn refuse(&self, refused: Refused, peer: Option<Peer>, app: Option<AppId>, now: Timestamp) -> Refused {
        let guesses = matches!(refused, Refused::Signature | Refused::Malformed(_) | Refused::Unknown);
        match guesses.then(|| self.failures.count(peer, app, now)).flatten() {
            Some(retry_after_s) => {
                self.metrics.throttled_peer.inc();
                Refused::TooManyFailures { retry_after_s }
            }
            None => refused,
        }
    }

    /// Whether a set has a key that signed the token. Costs what verifications cost.
    fn try_keys(&self, costly: &Costly) -> Option<AppId> {
        costly.sets.iter().find_map(|(app, set)| {
            let question = Question::new(set.version(), &costly.token);
            let is_good = match self.verdicts.recall(&question) {
                // Another connection came with it meanwhile.
                Some(is_good) => is_good,
                None => {
                    let is_good = set.candidates(&costly.header).any(|key| self.try_key(costly, key));
                    self.verdicts.keep(question, is_good);
                    is_good
                }
            };
            is_good.then_some(*app)
        })
    }

    fn try_key(&self, costly: &Costly, key: &DecodingKey) -> bool {
        let is_good = jwt::is_signed_by(&costly.token, costly.header.alg, key);
        let counter = if is_good { &self.metrics.good } else { &self.metrics.bad };
        counter.inc();
        is_good
    }

    fn verify(&self, costly: &Costly) -> Result<Identity, Refused> {
        match self.try_keys(costly) {
            Some(app) => jwt::claimed(&costly.token, app, costly.now),
            None => {
                let app = costly.sets.first().map(|(app, _)| *app);
                Err(self.refuse(Refused::Signature, costly.peer, app, costly.now))
            }
        }
    }
}

type Done = Box<dyn FnOnce(Result<Identity, Refused>) + Send>;

/// Is given once, whatever becomes of the task.
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
    /// Who the device with this credential is, as far as that can be said in microseconds.
    pub fn check(&self, credential: Credential<'_>, now: Timestamp) -> Checked {
        let peer = credential.peer.map(Peer::new);
        match self.look_at(credential, peer, now) {
            Ok(checked) => checked,
            Err((refused, app)) => Checked::Known(Err(self.verifier().refuse(refused, peer, app, now))),
        }
    }

    fn look_at(
        &self,
        credential: Credential<'_>,
        peer: Option<Peer>,
        now: Timestamp,
    ) -> Result<Checked, (Refused, Option<AppId>)> {
        let Credential { token, app: named, .. } = credential;
        let nobody = |refused| (refused, None);
        if token.is_empty() {
            return Err(nobody(Refused::Missing));
        }
        if token.starts_with(token::PREFIX) {
            let identity = self.device_token(token, now).map_err(nobody)?;
            return Ok(Checked::Known(Ok(identity)));
        }
        let header = jwt::header(token).map_err(|why| match self.is_key(&key::hash(token)) {
            true => nobody(Refused::NotAToken),
            false => nobody(why),
        })?;
        let apps = self.signing_apps(token, named);
        let first = apps.first().map(|app| app.id);
        let signer = match header.alg {
            Algorithm::HS256 => apps.iter().find(|app| is_signed_with_secret(token, app)).map(|app| app.id),
            _ => {
                let sets = match self.recall(token, &header, &apps) {
                    Recalled::Good(app) => return Ok(Checked::Known(jwt::claimed(token, app, now))),
                    Recalled::Unknown(sets) => sets,
                };
                if let Some((app, _)) = sets.first() {
                    let standing = self.admit(peer, *app, now).map_err(nobody)?;
                    let (token, header) = (token.into(), header);
                    return Ok(Checked::Costly(Costly { token, header, sets, peer, standing, now }));
                }
                None
            }
        };
        match signer {
            Some(app) => Ok(Checked::Known(jwt::claimed(token, app, now))),
            None => Err((Refused::Signature, first)),
        }
    }

    /// What the key sets of `apps` said of the token before.
    fn recall(&self, token: &str, header: &Header, apps: &[App]) -> Recalled {
        let mut unknown = Vec::new();
        for app in apps {
            let set = self.jwk_sets().get(app.id).filter(|set| set.candidates(header).next().is_some());
            let Some(set) = set else {
                self.jwk_sets().miss(app);
                continue;
            };
            match self.verifier().verdicts.recall(&Question::new(set.version(), token)) {
                Some(true) => {
                    self.verifier().metrics.recalled_good.inc();
                    return Recalled::Good(app.id);
                }
                Some(false) => {
                    self.verifier().metrics.recalled_bad.inc();
                }
                None => unknown.push((app.id, set)),
            }
        }
        Recalled::Unknown(unknown)
    }

    fn admit(&self, peer: Option<Peer>, app: AppId, now: Timestamp) -> Result<Standing, Refused> {
        let Verifier { failures, metrics, .. } = &**self.verifier();
        failures.admit(peer, app, now).map_err(|limited| {
            let (counter, retry_after_s) = match limited {
                Limited::Peer { retry_after_s } => (&metrics.throttled_peer, retry_after_s),
                Limited::App { retry_after_s } => (&metrics.throttled_app, retry_after_s),
            };
            counter.inc();
            Refused::TooManyFailures { retry_after_s }
        })
    }

    /// Verifies on a thread of the pool. Calls `done` once: from that thread, or at once with [`Refused::Busy`] if the
    /// queue is full.
    pub fn submit(&self, costly: Costly, done: impl FnOnce(Result<Identity, Refused>) + Send + 'static) {
        let (verifier, answer) = (self.verifier().clone(), Answer(Some(Box::new(done))));
        let standing = costly.standing;
        let task = move || answer.give(verifier.verify(&costly));
        if !self.pool().submit(standing, Box::new(task)) {
            self.verifier().metrics.throttled_queue.inc();
        }
    }

    /// [`Auth::check`], and what is costly by the pool. Cancel-safe: a verification under way is finished for nobody.
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

enum Recalled {
    Good(AppId),
    /// The sets that were not asked yet.
    Unknown(Vec<(AppId, Arc<KeySet>)>),
}

fn is_signed_with_secret(token: &str, app: &App) -> bool {
    let Some(secret) = &app.settings.jwt_secret else { return false };
    jwt::is_signed_by(token, Algorithm::HS256, &DecodingKey::from_secret(secret))
}
