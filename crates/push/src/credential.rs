//! A credential as the admin API takes it and the vault keeps it: one JSON object, checked whole before
//! anything of it is used. The services' folders own what is inside; here the service is told apart and what
//! they have in common is read.
//!
//! Nothing made here for people — errors, `shown`, `Debug` — holds a secret: an error names a field and a
//! rule, never a value.

use std::borrow::Cow;
use std::sync::Arc;

use noroshi_types::{JsonText, PushEnvironment, PushService};
use serde_json::{Map, Value, json};
use url::{Host, Url};

use crate::exchange::{Client, Quota};
use crate::{apns, fcm, webpush};

/// A service account file has 2.4 KB, a certificate chain some more.
const CREDENTIAL_BYTES_MAX: usize = 64 * 1_024;
const TEXT_BYTES_MAX: usize = 255;

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
        if json.len() > CREDENTIAL_BYTES_MAX {
            return Err(Invalid::new("credential", "must be at most 64 KiB"));
        }
        let Ok(Value::Object(fields)) = serde_json::from_slice(json) else {
            return Err(Invalid::new("credential", "must be one JSON object"));
        };
        let mut object = Object { path: "", fields };
        let service = object.need_text("service")?;
        let service = PushService::parse(&service)
            .ok_or_else(|| Invalid::new("service", "must be \"apns\", \"fcm\" or \"webpush\""))?;
        let name = object.text("name")?.unwrap_or_default();
        let environment = environment(service, &mut object)?;
        let quota = quota(&mut object)?;
        let (client, mut shown): (Arc<dyn Client>, _) = match service {
            PushService::Apns => {
                let config = apns::Config::read(&mut object, environment)?;
                let shown = config.shown();
                (Arc::new(apns::Client::new(config, quota)), shown)
            }
            PushService::Fcm => {
                let config = fcm::Config::read(&mut object)?;
                let shown = config.shown();
                (Arc::new(fcm::Client::new(config, quota)), shown)
            }
            PushService::WebPush => {
                let config = webpush::Config::read(&mut object)?;
                let shown = config.shown();
                (Arc::new(webpush::Client::new(config, quota)), shown)
            }
        };
        object.finish()?;
        shown.insert("service".to_owned(), json!(service.as_str()));
        shown.insert("environment".to_owned(), json!(environment.as_str()));
        if let Some(per_second) = quota {
            shown.insert("quota".to_owned(), json!({"per_second": per_second}));
        }
        if !name.is_empty() {
            shown.insert("name".to_owned(), json!(name));
        }
        let shown = JsonText::from_valid(Value::Object(shown).to_string());
        Ok(Self { service, environment, name, client, shown })
    }
}

fn environment(service: PushService, object: &mut Object) -> Result<PushEnvironment, Invalid> {
    let environment = match object.text("environment")? {
        None => PushEnvironment::Production,
        Some(text) => PushEnvironment::parse(&text)
            .ok_or_else(|| Invalid::new("environment", "must be \"production\" or \"sandbox\""))?,
    };
    match (service, environment) {
        (PushService::Fcm | PushService::WebPush, PushEnvironment::Sandbox) => {
            Err(Invalid::new("environment", "must be \"production\": only apns has a sandbox"))
        }
        _ => Ok(environment),
    }
}

/// An operator's own `per_second`.
fn quota(object: &mut Object) -> Result<Option<f64>, Invalid> {
    let Some(mut quota) = object.object("quota", "quota.")? else { return Ok(None) };
    let wrong = || Invalid::new("quota.per_second", "must be a number over 0 and at most 1000000");
    let per_second = quota.fields.remove("per_second").and_then(|value| value.as_f64()).ok_or_else(wrong)?;
    quota.finish()?;
    match per_second > 0.0 && per_second <= 1_000_000.0 {
        true => Ok(Some(per_second)),
        false => Err(wrong()),
    }
}

/// The service's own quota with an operator's rate; what may go at once stays a second's worth.
pub(crate) fn quota_of(service: Quota, per_second: Option<f64>) -> Quota {
    match per_second {
        Some(rate) => Quota { per_second, burst: rate.max(1.0), ..service },
        None => service,
    }
}

/// A JSON object that is taken apart field by field; what is left at the end is refused.
pub(crate) struct Object {
    /// Before the name of each field, in errors.
    path: &'static str,
    fields: Map<String, Value>,
}

impl Object {
    fn named(&self, field: &str) -> String {
        format!("{}{field}", self.path)
    }

    /// A short text. The field's absence is no error; null, an empty and a blank text are.
    pub(crate) fn text(&mut self, field: &str) -> Result<Option<String>, Invalid> {
        match self.long_text(field)? {
            Some(text) if text.len() > TEXT_BYTES_MAX || text.contains(char::is_control) => {
                Err(Invalid::new(self.named(field), "must be at most 255 bytes without control characters"))
            }
            text => Ok(text),
        }
    }

    /// A text of several lines, such as PEM.
    pub(crate) fn long_text(&mut self, field: &str) -> Result<Option<String>, Invalid> {
        match self.fields.remove(field) {
            None => Ok(None),
            Some(Value::String(text)) if !text.trim().is_empty() => Ok(Some(text)),
            Some(_) => Err(Invalid::new(self.named(field), "must be a text that is not empty")),
        }
    }

    pub(crate) fn need_text(&mut self, field: &str) -> Result<String, Invalid> {
        self.text(field)?.ok_or_else(|| self.missing(field))
    }

    pub(crate) fn need_long_text(&mut self, field: &str) -> Result<String, Invalid> {
        self.long_text(field)?.ok_or_else(|| self.missing(field))
    }

    pub(crate) fn has(&self, field: &str) -> bool {
        self.fields.contains_key(field)
    }

    pub(crate) fn object(&mut self, field: &str, path: &'static str) -> Result<Option<Object>, Invalid> {
        match self.fields.remove(field) {
            None => Ok(None),
            Some(Value::Object(fields)) => Ok(Some(Object { path, fields })),
            Some(_) => Err(Invalid::new(self.named(field), "must be an object")),
        }
    }

    /// Scheme, host and port of another server than the service's own.
    pub(crate) fn origin(&mut self, field: &str) -> Result<Option<Arc<str>>, Invalid> {
        let Some(url) = self.url(field, false)? else { return Ok(None) };
        match url.path() == "/" && url.query().is_none() {
            true => Ok(Some(url.origin().ascii_serialization().into())),
            false => Err(Invalid::new(
                self.named(field),
                "must be scheme, host and port alone (\"https://push.example:443\")",
            )),
        }
    }

    /// `loopback`: whether http will do where nothing leaves the machine.
    pub(crate) fn url(&mut self, field: &str, loopback: bool) -> Result<Option<Url>, Invalid> {
        let Some(text) = self.text(field)? else { return Ok(None) };
        let url = Url::parse(&text).map_err(|_| Invalid::new(self.named(field), "must be a URL"))?;
        let secure = match url.scheme() {
            "https" => true,
            "http" => loopback && is_loopback(&url),
            _ => false,
        };
        match (secure, url.username().is_empty() && url.password().is_none() && url.fragment().is_none()) {
            (true, true) => Ok(Some(url)),
            (false, _) => Err(Invalid::new(self.named(field), "must be an https URL")),
            (true, false) => {
                Err(Invalid::new(self.named(field), "must be without user name, password and fragment"))
            }
        }
    }

    fn missing(&self, field: &str) -> Invalid {
        Invalid::new(self.named(field), "is missing")
    }

    /// Nothing else may stand there: a misspelt field is told, not ignored.
    fn finish(self) -> Result<(), Invalid> {
        match self.fields.keys().next() {
            None => Ok(()),
            // A name out of ordinary letters is no secret that slipped out of its place.
            Some(field)
                if field.len() <= 32 && field.bytes().all(|b| b.is_ascii_lowercase() || b == b'_') =>
            {
                Err(Invalid::new(self.named(field), "is not a field of this credential"))
            }
            Some(_) => Err(Invalid::new("credential", "has a field of a name that no credential has")),
        }
    }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

#[cfg(test)]
pub(crate) mod tests;
