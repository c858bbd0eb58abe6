//! Who may do what: API keys of providers, device tokens and app JWTs of consumers.
//!
//! ```text
//!   Authorization: Bearer … ──► Auth::key ────► Access   (app + scopes)
//!   device token or app JWT ──► Auth::check ──► Identity (app + device)
//!                                  │   └─ a public key is needed ─► Auth::submit ─► Identity, from a thread of the pool
//!                                  │
//!              Snapshot (apps, keys, JWK sets: all in memory, swapped when they change)
//! ```
//!
//! Everything is decided locally, without the store: apps and keys are few and held in memory;
//! whether a device token was revoked is decided by the log-in, which reads the device anyway.
//!
//! Beside them: addresses that are permissions themselves (`capability`), and who may post to those that are bound to a
//! key (`vapid`), and which client a request comes from (`client`).
//!
//! Reading order: `key`, `token`, `provider`, `select`, `jwt`, `jwks`, `jwk_sets`, `capability`, then [`Auth`] which puts them
//! together, and `verify` with `verdicts`, `failures` and `pool`: what a log-in may cost.

mod auth;
mod capability;
mod client;
mod failures;
#[doc(hidden)]
pub mod fuzzing;
mod jwk_sets;
mod jwks;
mod jwt;
mod key;
mod metrics;
mod mirror;
mod pool;
mod provider;
mod select;
mod subject;
mod token;
pub mod topic_rules;
mod vapid;
mod verdicts;
mod verify;

pub use auth::{Access, Auth, Identity, RulesByApp};
pub use capability::Permit;
pub use client::{ClientNetwork, ForwardingHeader, TrustedProxies};
pub use failures::FailureLimits;
pub use jwks::Error as JwksError;
pub use key::ApiKey;
pub use mirror::MirrorKey;
pub use pool::QUEUE_MAX as VERIFICATIONS_MAX;
pub use vapid::{VapidRefused, verify_vapid};
pub use verify::{Checked, Costly, Credential};

/// The hash under which a key is kept.
pub fn key_hash(secret: &str) -> noroshi_store::KeyHash {
    key::hash(secret)
}

/// The app and the device that a device token names, unverified: for a caller that only has to find out whom to ask.
/// The app is the issuer's number of it. None if it has not the form of a device token.
pub fn device_named(token: &str) -> Option<(noroshi_types::AppId, noroshi_types::DeviceId)> {
    token::device_named(token)
}

/// Whether it has the form of a device's credential, a device token or an app JWT, whatever it is worth.
pub fn is_of_a_device(bearer: &str) -> bool {
    bearer.starts_with(token::PREFIX) || jwt::header(bearer).is_ok()
}

/// Whether a JWK set given directly can be used.
pub fn check_jwks(json: &str) -> Result<(), JwksError> {
    jwks::KeySet::parse(json, jwks::Strictness::Given).map(|_| ())
}

/// Why a credential was refused. The text is public and never contains the credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("no credential was given")]
    Missing,
    #[error("the credential is not known")]
    Unknown,
    #[error("this is a device token or JWT; an API key is needed here")]
    NotAKey,
    #[error("this is an API key; a device token or app JWT is needed here")]
    NotAToken,
    #[error("the token is malformed: {0}")]
    Malformed(&'static str),
    #[error("the token's signature does not verify")]
    Signature,
    #[error(
        "the token names no app, and this server has several that sign tokens: put the app's name or its declared \
         audience into the claim aud, or name the app with ?app=NAME or the header Noroshi-App"
    )]
    Unnamed,
    #[error(
        "several apps match the claims aud and iss of the token: name one with ?app=NAME or the header Noroshi-App"
    )]
    Ambiguous,
    #[error("the claim iss is not the issuer that the app declares")]
    Issuer,
    #[error(
        "the token is for another audience: the claim aud must contain the audience that the app declares, or the \
         app's name if it declares none"
    )]
    Audience,
    #[error("the token has expired")]
    Expired,
    #[error("the token is not valid yet")]
    NotYet,
    /// Nothing is said of the token: it may be good.
    #[error("too many log-ins failed; try again in {retry_after_s} s")]
    TooManyFailures { retry_after_s: u32 },
    /// Nothing is said of the token: it may be good.
    #[error("too many tokens wait to be verified; try again")]
    Busy,
}
