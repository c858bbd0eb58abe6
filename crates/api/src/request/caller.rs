//! Whose request it is, for its log line, its span, and the pool of connections. Extractors record it once they know.

use std::sync::{Arc, OnceLock};

use http::request::Parts;
use noroshi_types::AppId;

use crate::connection::{Handle, Trust};

/// The app of a request, for its log line and span. Set when the credential is verified.
#[derive(Debug, Clone, Default)]
pub(crate) struct Caller(pub(crate) Arc<OnceLock<AppId>>);

/// Records the app for the request's log line and span.
pub(crate) fn record_app(parts: &Parts, app: AppId) {
    if let Some(caller) = parts.extensions.get::<Caller>() {
        // A request has one credential, so it is set once.
        let _ = caller.0.set(app);
    }
}

/// Records the app of a provider. The pool then prefers to keep the connection.
pub fn record_provider(parts: &Parts, app: AppId) {
    record_app(parts, app);
    record_trust(parts, Trust::Provider);
}

pub(crate) fn record_trust(parts: &Parts, trust: Trust) {
    if let Some(handle) = parts.extensions.get::<Handle>() {
        handle.record_trust(trust);
    }
}
