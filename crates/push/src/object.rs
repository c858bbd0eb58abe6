//! Reads a JSON object field by field and rejects unknown fields. Errors name a field and the rule it
//! breaks, never a value, because values of credentials are secrets.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value};
use url::{Host, Url};

const TEXT_BYTES_MAX: usize = 255;

/// Why a credential was rejected: the field and the rule, never the value.
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

/// A JSON object whose fields are taken out one by one; [`Object::finish`] rejects the rest.
pub(crate) struct Object {
    /// The prefix of field names in errors.
    path: &'static str,
    fields: Map<String, Value>,
}

impl Object {
    pub(crate) fn new(fields: Map<String, Value>) -> Self {
        Self { path: "", fields }
    }

    fn named(&self, field: &str) -> String {
        format!("{}{field}", self.path)
    }

    /// A short text. A missing field is allowed; null, an empty and a blank text are not.
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
            Some(_) => Err(Invalid::new(self.named(field), "must be a non-empty string")),
        }
    }

    pub(crate) fn need_text(&mut self, field: &str) -> Result<String, Invalid> {
        self.text(field)?.ok_or_else(|| self.missing(field))
    }

    pub(crate) fn need_long_text(&mut self, field: &str) -> Result<String, Invalid> {
        self.long_text(field)?.ok_or_else(|| self.missing(field))
    }

    /// None if the field is missing or not a number.
    pub(crate) fn number(&mut self, field: &str) -> Option<f64> {
        self.fields.remove(field).and_then(|value| value.as_f64())
    }

    pub(crate) fn flag(&mut self, field: &str) -> Result<Option<bool>, Invalid> {
        match self.fields.remove(field) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(_) => Err(Invalid::new(self.named(field), "must be true or false")),
        }
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

    /// Scheme, host and port of a server that replaces the service's own.
    pub(crate) fn origin(&mut self, field: &str) -> Result<Option<Arc<str>>, Invalid> {
        let Some(url) = self.url(field, false)? else { return Ok(None) };
        match url.path() == "/" && url.query().is_none() {
            true => Ok(Some(url.origin().ascii_serialization().into())),
            false => Err(Invalid::new(
                self.named(field),
                "must be scheme, host and port only (\"https://push.example:443\")",
            )),
        }
    }

    /// `loopback`: whether http is allowed for loopback addresses.
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
                Err(Invalid::new(self.named(field), "must have no user name, password or fragment"))
            }
        }
    }

    fn missing(&self, field: &str) -> Invalid {
        Invalid::new(self.named(field), "is missing")
    }

    /// Rejects remaining fields, so that a misspelt name is reported.
    pub(crate) fn finish(self) -> Result<(), Invalid> {
        match self.fields.keys().next() {
            None => Ok(()),
            // A name of ordinary letters is not a misplaced secret.
            Some(field)
                if field.len() <= 32 && field.bytes().all(|b| b.is_ascii_lowercase() || b == b'_') =>
            {
                Err(Invalid::new(self.named(field), "is not a field of this credential"))
            }
            Some(_) => Err(Invalid::new("credential", "has an unknown field")),
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
