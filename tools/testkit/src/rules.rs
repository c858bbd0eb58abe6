//! The interface between the services' folders, which implement rules without any IO, and the connections, which
//! handle HTTP without knowing the rules.

use http::{HeaderMap, Method};

use crate::behaviour::Scripted;

/// A complete request.
#[derive(Debug)]
pub(crate) struct IncomingRequest<'a> {
    pub(crate) method: &'a Method,
    /// With the query.
    pub(crate) path: &'a str,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a [u8],
    /// The fake's clock, which the behaviour may set ahead.
    pub(crate) now_ms: u64,
    pub(crate) connection: &'a ConnectionInfo,
}

/// The state of a connection.
#[derive(Debug, Default)]
pub(crate) struct ConnectionInfo {
    pub(crate) number: u64,
    /// SHA-256 of the client certificate, if it sent one signed by the fakes' authority.
    pub(crate) certificate: Option<[u8; 32]>,
    /// APNs: the team of the connection, set by its first authorised push.
    pub(crate) team: parking_lot::Mutex<Option<String>>,
}

/// The result of checking a request.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    /// The device's token or the endpoint of its subscription; empty if none was found.
    pub(crate) token: String,
    /// The sender's id of this push (`apns-id`).
    pub(crate) id: Option<uuid::Uuid>,
    /// The title the device would show.
    pub(crate) title: Option<String>,
    /// The decrypted payload.
    pub(crate) payload: Option<String>,
    pub(crate) reply: Reply,
}

/// An answer, with a one-word reason.
#[derive(Debug, Default, Clone)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) reason: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn new(status: u16, reason: impl Into<String>) -> Self {
        Self { status, reason: reason.into(), ..Self::default() }
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn body(mut self, body: impl Into<String>) -> Self {
        self.body = body.into();
        self
    }

    pub(crate) fn is_accepted(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// The rules of a service; must not block.
pub(crate) trait Rules: Send + Sync {
    fn evaluate(&self, request: &IncomingRequest<'_>) -> Verdict;
    /// A scripted answer in this service's format, without the header `retry-after`.
    fn scripted(&self, script: &Scripted, verdict: &Verdict, now_ms: u64) -> Reply;
}

/// The value of a header that may occur once; fails if it is repeated or not text.
pub(crate) fn single<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, ()> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(drop),
        (Some(_), Some(_)) => Err(()),
    }
}
