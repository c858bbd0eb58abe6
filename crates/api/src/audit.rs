//! The audit log: who changed what, and who logged in. Requests of people, of the operator's token and of `admin` keys that
//! change something leave an entry; those of providers and devices do not, because they are the traffic itself.
//!
//! The extractor that recognizes the caller fills in the [`Trail`]; a handler adds the state before and after, without
//! secrets; the middleware records the entry once the request succeeded. If that fails, the change stays, and the failure
//! is logged and counted.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::request::Parts;
use noroshi_console::Console;
use noroshi_delivery::Outcomes;
use noroshi_store::{App, Audited, AuditedBy, Person};
use noroshi_types::{AppId, Timestamp};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value;
use url::Url;

use crate::metrics::Metrics;

/// JSON before or after a change. Longer values are left out.
const VALUE_BYTES_MAX: usize = 16 << 10;

#[derive(Debug, Clone, Default)]
pub(crate) struct Trail(Arc<Mutex<Found>>);

#[derive(Debug, Default)]
struct Found {
    by: Option<AuditedBy>,
    app: Option<AppId>,
    before: Option<String>,
    after: Option<String>,
    /// The change stays although the request fails.
    is_kept: bool,
}

/// The request that leaves an entry.
pub(crate) struct Done {
    /// Method and route.
    pub(crate) action: String,
    /// The path.
    pub(crate) target: String,
    pub(crate) address: String,
    pub(crate) request: String,
}

impl<S: Send + Sync> FromRequestParts<S> for Trail {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or_default())
    }
}

impl Trail {
    pub(crate) fn by_person(&self, person: &Person, app: Option<&App>) {
        let mut found = self.0.lock();
        found.by = Some(AuditedBy::Person { id: person.id, email: person.email.clone() });
        found.app = app.map(|app| app.id);
    }

    pub(crate) fn by_key(&self, name: String, app: AppId) {
        let mut found = self.0.lock();
        (found.by, found.app) = (Some(AuditedBy::Key(name)), Some(app));
    }

    pub(crate) fn by_operator_token(&self) {
        self.0.lock().by = Some(AuditedBy::OperatorToken);
    }

    /// The app that the request names.
    pub(crate) fn in_app(&self, app: AppId) {
        self.0.lock().app = Some(app);
    }

    /// The state before the change. `value` has no secrets, except for queries of addresses, which are not recorded.
    pub(crate) fn before(&self, value: &impl Serialize) {
        self.0.lock().before = text(value);
    }

    pub(crate) fn after(&self, value: &impl Serialize) {
        self.0.lock().after = text(value);
    }

    /// The request changed something, whatever its status.
    pub(crate) fn keep(&self) {
        self.0.lock().is_kept = true;
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.0.lock().is_kept
    }

    /// Records the entry and emits it as an event, if the caller was recognized.
    pub(crate) async fn record(
        &self,
        console: &Console,
        (outcomes, metrics): (&Outcomes, &Metrics),
        done: Done,
        now: Timestamp,
    ) {
        let found = std::mem::take(&mut *self.0.lock());
        let Some(by) = found.by else { return };
        let Found { app, before, after, .. } = found;
        let Done { action, target, address, request } = done;
        let entry = Audited { by, app, action, target, before, after, address, request };
        outcomes.audited(&entry);
        if let Err(error) = console.store().record_audit(vec![entry], now).await {
            metrics.audit_failed();
            tracing::error!(%error, "a change could not be written to the audit log");
        }
    }
}

fn text(value: &impl Serialize) -> Option<String> {
    let mut value = serde_json::to_value(value).ok()?;
    hide(&mut value);
    Some(value.to_string()).filter(|text| text.len() <= VALUE_BYTES_MAX)
}

/// Removes what grants access from addresses: the user and the query.
fn hide(value: &mut Value) {
    match value {
        Value::String(text) if text.starts_with("https://") || text.starts_with("http://") => {
            let Ok(mut url) = Url::parse(text) else { return };
            let has_query = url.query().is_some();
            let has_user = !url.username().is_empty() || url.password().is_some();
            if !has_query && !has_user {
                return;
            }
            let is_without = url.set_username("").is_ok() && url.set_password(None).is_ok();
            url.set_query(has_query.then_some("hidden"));
            *text = if is_without { url.to_string() } else { "hidden".to_owned() };
        }
        Value::Array(values) => values.iter_mut().for_each(hide),
        Value::Object(fields) => fields.values_mut().for_each(hide),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_recorded_without_what_grants_access() {
        let value = serde_json::json!({
            "jwks_url": "https://u:p@id.example/keys?key=k",
            "list": ["http://h/x?a=b", "https://h/plain", "no?address"],
        });
        let shown = text(&value).expect("short");
        assert_eq!(
            shown,
            r#"{"jwks_url":"https://id.example/keys?hidden","list":["http://h/x?hidden","https://h/plain","no?address"]}"#
        );
    }
}
