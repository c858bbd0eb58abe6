//! A credential as the admin API takes it and the vault keeps it: one JSON object, checked whole before
//! anything of it is used. The services' folders own what is inside; here the service is told apart.
//!
//! Nothing made here for people — errors, `shown`, `Debug` — holds a secret.

use std::borrow::Cow;
use std::sync::Arc;

use noroshi_types::{JsonText, PushEnvironment, PushService};
use serde_json::Value;

use crate::exchange::Client;

/// A checked credential, ready to be used.
#[derive(Debug, Clone)]
pub struct Credential {
    pub service: PushService,
    pub environment: PushEnvironment,
    /// The operator's own word for it; empty: none given.
    pub name: String,
    pub client: Arc<dyn Client>,
    /// What may be shown again: never a secret, but a fingerprint to tell two apart.
    pub shown: JsonText,
}

/// Why a credential was refused: which field, and the rule it breaks. Never the value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {rule}")]
pub struct Invalid {
    pub field: Cow<'static, str>,
    pub rule: Cow<'static, str>,
}

impl Invalid {
    pub fn new(field: impl Into<Cow<'static, str>>, rule: impl Into<Cow<'static, str>>) -> Self {
        Self { field: field.into(), rule: rule.into() }
    }
}

impl Credential {
    /// Reads the body of the admin API, which is also what the vault seals.
    pub fn parse(json: &[u8]) -> Result<Self, Invalid> {
        let value: Value = serde_json::from_slice(json)
            .map_err(|_| Invalid::new("credential", "must be one JSON object"))?;
        let service = value.get("service").and_then(Value::as_str).and_then(PushService::parse);
        match service {
            Some(_) => Err(Invalid::new("service", "is not built into this program")),
            None => Err(Invalid::new("service", "must be \"apns\", \"fcm\" or \"webpush\"")),
        }
    }
}
