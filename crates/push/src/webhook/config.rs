//! A provider's credential: the URL of its webhook, the secret that signs requests, and the limits of requests.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use noroshi_egress::webhook;
use ring::hmac;
use serde_json::{Map, Value, json};
use url::{Position, Url};

use crate::exchange::BatchLimits;
use crate::key::fingerprint;
use crate::object::{Invalid, Object};

const BATCH_SIZE_DEFAULT: u64 = 100;
/// A batch of the sender has as many.
const BATCH_SIZE_MAX: u64 = 500;
const CONCURRENCY_DEFAULT: u64 = 4;
const CONCURRENCY_MAX: u64 = 32;
const TIMEOUT_DEFAULT_SECONDS: u64 = 10;
/// As long as a pool waits for any push service.
const TIMEOUT_MAX_SECONDS: u64 = 30;

pub(crate) struct Config {
    pub(super) provider: String,
    pub(super) origin: Arc<str>,
    /// Path and query.
    pub(super) path: String,
    url: Url,
    /// Newest first. Two while a secret is being replaced: a request has a signature by each.
    pub(super) keys: Vec<hmac::Key>,
    fingerprints: Vec<String>,
    pub(super) limits: BatchLimits,
    device_tokens: bool,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The query of the URL may hold a secret.
        f.debug_struct("Config").field("provider", &self.provider).finish_non_exhaustive()
    }
}

impl Config {
    pub(crate) fn read(object: &mut Object, provider: &str) -> Result<Self, Invalid> {
        let url = object.url("url", true)?;
        let url = url.ok_or_else(|| Invalid::new("url", "is missing"))?;
        let secret = |field: &'static str, text: String| {
            webhook::secret(&text).map_err(|rule| Invalid::new(field, rule))
        };
        let mut secrets = vec![secret("secret", object.need_text("secret")?)?];
        if let Some(text) = object.text("previous_secret")? {
            let previous = secret("previous_secret", text)?;
            if previous == secrets[0] {
                return Err(Invalid::new("previous_secret", "must differ from secret"));
            }
            secrets.push(previous);
        }
        let batch_size = count(object, "batch_size", BATCH_SIZE_DEFAULT, BATCH_SIZE_MAX)?;
        let concurrency = count(object, "concurrency", CONCURRENCY_DEFAULT, CONCURRENCY_MAX)?;
        let timeout = count(object, "timeout_seconds", TIMEOUT_DEFAULT_SECONDS, TIMEOUT_MAX_SECONDS)?;
        let device_tokens = object.flag("device_tokens")?.unwrap_or(false);
        Ok(Self {
            provider: provider.to_owned(),
            origin: url.origin().ascii_serialization().into(),
            path: url[Position::BeforePath..Position::AfterQuery].to_owned(),
            url,
            keys: secrets.iter().map(|secret| hmac::Key::new(hmac::HMAC_SHA256, secret)).collect(),
            fingerprints: secrets.iter().map(|secret| fingerprint(secret)).collect(),
            limits: BatchLimits {
                pushes_max: batch_size as usize,
                connections_max: concurrency as usize,
                timeout: Duration::from_secs(timeout),
            },
            device_tokens,
        })
    }

    pub(crate) fn shown(&self) -> Map<String, Value> {
        let mut shown = Map::new();
        let mut add = |name: &str, value: Value| shown.insert(name.to_owned(), value);
        // The query may hold a secret.
        add("url", json!(&self.url[..Position::AfterPath]));
        add("batch_size", json!(self.limits.pushes_max));
        add("concurrency", json!(self.limits.connections_max));
        add("timeout_seconds", json!(self.limits.timeout.as_secs()));
        add("device_tokens", json!(self.device_tokens));
        add("fingerprint", json!(self.fingerprints[0]));
        if let Some(previous) = self.fingerprints.get(1) {
            add("previous_fingerprint", json!(previous));
        }
        shown
    }
}

fn count(object: &mut Object, field: &'static str, default: u64, max: u64) -> Result<u64, Invalid> {
    if !object.has(field) {
        return Ok(default);
    }
    let whole = object
        .number(field)
        .filter(|number| number.fract() == 0.0 && *number >= 1.0 && *number <= max as f64);
    whole
        .map(|number| number as u64)
        .ok_or_else(|| Invalid::new(field, format!("must be a whole number from 1 to {max}")))
}
