//! Authenticates callers: API keys of providers, device tokens and app JWTs of devices.
//!
//! ```text
//!   Authorization: Bearer … ──► Auth::key ────► Access   (app + scopes)
//!   device token or app JWT ──► Auth::check ──► Identity (app + device)
//!                                  │   └─ a public key is needed ─► Auth::submit ─► Identity, from a thread of the pool
//!                                  │
//!              Snapshot (apps, keys, JWK sets: all in memory, swapped when they change)
//! ```
//!
//! All decisions are local and need no store: apps and keys are few and stay in memory. The log-in, which reads the
//! device anyway, decides whether a device token was revoked.
//!
//! Also here: capability URLs (`capability`), VAPID signatures of senders to key-bound endpoints (`vapid`), the client of a
//! request (`client`), and signatures of an OpenID provider (`id_token`).
//!
//! Reading order: `identity`, `refused`, `key`, `token`, `provider`, `select`, `jwt`, `subject`, `jwks`, `jwk_sets`,
//! `capability`, `snapshot`; `verdicts`, `failures` and `pool`, which bound the cost of a log-in; then [`Auth`], which
//! assembles them, and its `verify`.

mod auth;
mod capability;
mod client;
mod failures;
#[doc(hidden)]
pub mod fuzzing;
mod id_token;
mod identity;
mod jwk_sets;
mod jwks;
mod jwt;
mod key;
mod metrics;
mod mirror;
mod pool;
mod provider;
mod refused;
mod select;
mod snapshot;
mod subject;
mod token;
pub mod topic_rules;
mod vapid;
mod verdicts;

pub use auth::{Auth, Checked, Costly, Credential};
pub use capability::Permit;
pub use client::{ClientNetwork, ForwardingHeader, TrustedProxies};
pub use failures::FailureLimits;
pub use id_token::{IdTokenRefused, SigningKeys};
pub use identity::{Access, Identity};
pub use jwks::Error as JwksError;
pub use key::{ApiKey, hash as key_hash};
pub use mirror::MirrorKey;
pub use pool::QUEUE_MAX as VERIFICATIONS_MAX;
pub use refused::Refused;
pub use snapshot::RulesByApp;
pub use token::unverified_device;
pub use vapid::{VapidRefused, verify_vapid};

/// Whether it has the form of a device's credential (a device token or an app JWT), valid or not.
pub fn is_device_credential(bearer: &str) -> bool {
    bearer.starts_with(token::PREFIX) || jwt::header(bearer).is_ok()
}

/// Whether a JWK set that an app gives directly is usable.
pub fn check_jwks(json: &str) -> Result<(), JwksError> {
    jwks::KeySet::parse(json, jwks::Strictness::Given).map(|_| ())
}
