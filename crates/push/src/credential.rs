//! A credential as the admin API accepts it and the vault stores it: one JSON object, validated as a whole before
//! any of it is used. The services' folders own what is inside; this file reads what all credentials share and
//! leaves the rest to the service that the object names.
//!
//! Errors, `shown` and `Debug` never hold a secret: an error names a field and a rule, never a value.

use std::sync::Arc;
use std::time::Duration;

use noroshi_types::{JsonText, PushEnvironment, PushService, Timestamp, TokenKey, TokenKind};
use serde_json::{Value, json};

use crate::breaker::Condition;
use crate::catalog;
use crate::exchange::{Client, Quota};
use crate::object::Object;
use crate::push::Reason;
use crate::service::Service;

pub use crate::object::Invalid;

/// A service account file has 2.4 KB, a certificate chain somewhat more.
const CREDENTIAL_BYTES_MAX: usize = 64 * 1_024;

/// A checked credential, ready to be used.
#[derive(Debug, Clone)]
pub struct Credential {
    pub service: PushService,
    pub environment: PushEnvironment,
    /// The provider whose tokens it is for; empty unless an app has several credentials of the service.
    pub provider: Arc<str>,
    /// The operator's own name for it, possibly empty.
    pub name: String,
    /// The service's, or the operator's own.
    pub quota: Quota,
    pub client: Arc<dyn Client>,
    /// The part that may be shown again: no secret, but a fingerprint.
    pub shown: JsonText,
}

/// The state of one credential in this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialStatus {
    pub service: PushService,
    pub environment: PushEnvironment,
    pub provider: Arc<str>,
    /// Of all its pools. Only Web Push has more than one: one for each origin.
    pub connections: usize,
    /// Sent, without an answer yet.
    pub in_flight: usize,
    /// Waiting for a connection or a free stream.
    pub queued: usize,
    pub breaker: Condition,
    /// The push service requested a pause, or its overload caused one: why, and how long it lasts.
    pub paused: Option<(Reason, Duration)>,
    /// The last failure of the service, its connections or the credential.
    pub last_error: Option<(Timestamp, Reason)>,
}

impl Credential {
    /// Reads the body of an admin API request, which is also what the vault seals.
    pub fn parse(json: &[u8]) -> Result<Self, Invalid> {
        if json.len() > CREDENTIAL_BYTES_MAX {
            return Err(Invalid::new("credential", "must be at most 64 KiB"));
        }
        let Ok(Value::Object(fields)) = serde_json::from_slice(json) else {
            return Err(Invalid::new("credential", "must be one JSON object"));
        };
        let mut object = Object::new(fields);
        let service = object.need_text("service")?;
        let service = PushService::named(&service).ok_or_else(|| {
            let names = PushService::ALL.map(|known| format!(" \"{}\"", known.as_str())).concat();
            Invalid::new("service", format!("must be one of{names}"))
        })?;
        let name = object.text("name")?.unwrap_or_default();
        let known = catalog::service(service);
        let environment = environment(known, &mut object)?;
        let per_second = per_second(&mut object)?;
        let provider: Arc<str> = match known.provider {
            Some(_) => provider(&name)?.into(),
            None => "".into(),
        };
        let (client, mut shown) = (known.read)(&mut object, environment, &provider)?;
        object.finish()?;
        shown.insert("service".to_owned(), json!(service.as_str()));
        shown.insert("environment".to_owned(), json!(environment.as_str()));
        if let Some(per_second) = per_second {
            shown.insert("quota".to_owned(), json!({"per_second": per_second}));
        }
        if !name.is_empty() {
            shown.insert("name".to_owned(), json!(name));
        }
        let shown = JsonText::from_valid(Value::Object(shown).to_string());
        let quota = known.quota.with_rate(per_second);
        Ok(Self { service, environment, provider, name, quota, client, shown })
    }
}

/// The name of the credential is that of its provider: tokens have it too.
fn provider(name: &str) -> Result<&str, Invalid> {
    match name.is_empty() {
        true => Err(Invalid::new("name", "is missing: tokens name the provider by it")),
        false => match TokenKey::new(TokenKind::Webhook, name) {
            Ok(_) => Ok(name),
            Err(_) => Err(Invalid::new("name", "must be 1 to 64 letters, digits and `.`, `_`, `-`")),
        },
    }
}

fn environment(service: &Service, object: &mut Object) -> Result<PushEnvironment, Invalid> {
    let environment = match object.text("environment")? {
        None => PushEnvironment::Production,
        Some(text) => PushEnvironment::named(&text)
            .ok_or_else(|| Invalid::new("environment", "must be \"production\" or \"sandbox\""))?,
    };
    match environment == PushEnvironment::Sandbox && !service.has_sandbox {
        true => Err(Invalid::new("environment", "must be \"production\": only apns has a sandbox")),
        false => Ok(environment),
    }
}

/// The operator's own rate.
fn per_second(object: &mut Object) -> Result<Option<f64>, Invalid> {
    let Some(mut quota) = object.object("quota", "quota.")? else { return Ok(None) };
    let wrong = || Invalid::new("quota.per_second", "must be a number above 0 and at most 1000000");
    let per_second = quota.number("per_second").ok_or_else(wrong)?;
    quota.finish()?;
    match per_second > 0.0 && per_second <= 1_000_000.0 {
        true => Ok(Some(per_second)),
        false => Err(wrong()),
    }
}

#[cfg(test)]
pub(crate) mod tests;
