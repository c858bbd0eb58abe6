//! From a credential of a device to an identity, in two steps.
//!
//! [`Auth::check`] decides at once whatever costs some microseconds: device tokens, HS256, and tokens that a key set has
//! verified before. What is left needs a public key (30 to 300 µs for each of up to four keys) and comes back as
//! [`Checked::Costly`]. [`Auth::submit`] has that done by the pool's threads and calls back from one of them, so no
//! shard and no thread of the API's runtime ever verifies a device's token with a public key. [`Auth::authenticate`] is
//! both for async callers.
//!
//! Failed log-ins are counted here, and limited as `failures` describes.

use std::sync::Arc;

use jsonwebtoken::{Algorithm, DecodingKey, Header};
use noroshi_store::App;
use noroshi_types::{AppId, Timestamp};

use crate::auth::{Auth, Identity};
use crate::client::ClientNetwork;
use crate::failures::{FailureLimits, Failures, Limited, Standing};
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
    /// The client that failed log-ins count for. None: it has no known address.
    pub client: Option<ClientNetwork>,
}

pub enum Checked {
    Known(Result<Identity, Refused>),
    Costly(Box<Costly>),
}

/// A token that has to be verified with a public key.
pub struct Costly {
    token: Box<str>,
    header: Header,
    app: AppId,
    set: Arc<KeySet>,
    /// What is answered if the signature is right.
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

    /// Counts a failed log-in whose cause is a guess, and tells its client to wait if it failed too often. Expired tokens,
    /// API keys and missing tokens do not count as guesses.
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

    /// Whether a key of the set signed the token. Costs what verifications cost.
    fn is_signed(&self, costly: &Costly) -> bool {
        let question = Question::new(costly.set.version(), &costly.token);
        // Another connection may have come with it meanwhile.
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
        let Credential { token, app: named, client } = credential;
        let refuse = |refused, app| Err(self.verifier().refuse(refused, client, app, now));
        if token.is_empty() {
            return Checked::Known(Err(Refused::Missing));
        }
        if token.starts_with(token::PREFIX) {
            let result = self.device_token(token, now);
            return Checked::Known(result.or_else(|refused| refuse(refused, None)));
        }
        let header = match jwt::header(token) {
            Ok(header) => header,
            Err(_) if self.is_key(&key::hash(token)) => return Checked::Known(Err(Refused::NotAToken)),
            Err(why) => return Checked::Known(refuse(why, None)),
        };
        let checked = self.with_app_of(token, named, |app| match header.alg {
            Algorithm::HS256 if is_signed_with_secret(token, app) => {
                Checked::Known(self.claimed(token, app, now))
            }
            Algorithm::HS256 => Checked::Known(refuse(Refused::Signature, Some(app.id))),
            _ => self.check_public(credential, header, app, now),
        });
        checked.unwrap_or_else(|refused| Checked::Known(refuse(refused, None)))
    }

    /// A token that is signed with a public key.
    fn check_public(&self, credential: Credential<'_>, header: Header, app: &App, now: Timestamp) -> Checked {
        let Credential { token, client, .. } = credential;
        let Verifier { verdicts, metrics, .. } = &**self.verifier();
        let refuse =
            || Checked::Known(Err(self.verifier().refuse(Refused::Signature, client, Some(app.id), now)));
        let set = self.jwk_sets().get(app.id).filter(|set| set.candidates(&header).next().is_some());
        let Some(set) = set else {
            self.jwk_sets().miss(app);
            return refuse();
        };
        let claimed = self.claimed(token, app, now);
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

    fn admit(&self, client: Option<ClientNetwork>, app: AppId, now: Timestamp) -> Result<Standing, Refused> {
        let Verifier { failures, metrics, .. } = &**self.verifier();
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
        let (verifier, answer) = (self.verifier().clone(), Answer(Some(Box::new(done))));
        let (app, standing) = (costly.app, costly.standing);
        let task = move || answer.give(verifier.verify(*costly));
        if !self.pool().submit(app, standing, Box::new(task)) {
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

fn is_signed_with_secret(token: &str, app: &App) -> bool {
    let Some(secret) = &app.settings.jwt_secret else { return false };
    jwt::is_signed_by(token, Algorithm::HS256, &DecodingKey::from_secret(secret))
}
