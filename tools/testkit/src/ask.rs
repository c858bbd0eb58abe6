//! What a judge sees of a request and what it says: the border between the services' folders, which know the
//! rules and no socket, and the connections, which know HTTP and no rule.

use http::{HeaderMap, Method};
use serde::{Deserialize, Serialize};

use crate::behaviour::Scripted;

/// One of the fakes: each has a port, a behaviour and a record of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Service {
    Apns,
    ApnsSandbox,
    Fcm,
    /// The token endpoint that FCM's senders get their access tokens from.
    #[serde(rename = "oauth")]
    OAuth,
    #[serde(rename = "webpush")]
    WebPush,
}

impl Service {
    pub const ALL: [Service; 5] =
        [Service::Apns, Service::ApnsSandbox, Service::Fcm, Service::OAuth, Service::WebPush];

    pub fn as_str(self) -> &'static str {
        match self {
            Service::Apns => "apns",
            Service::ApnsSandbox => "apns-sandbox",
            Service::Fcm => "fcm",
            Service::OAuth => "oauth",
            Service::WebPush => "webpush",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|service| service.as_str() == text)
    }

    /// APNs speaks HTTP/2 alone; senders of the others are known to use HTTP/1.1.
    pub(crate) fn speaks_http1(self) -> bool {
        !matches!(self, Service::Apns | Service::ApnsSandbox)
    }
}

/// A request, whole.
#[derive(Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) method: &'a Method,
    pub(crate) path: &'a str,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a [u8],
    /// The fake's clock, which a behaviour may set ahead.
    pub(crate) now_ms: u64,
    pub(crate) connection: &'a Facts,
}

/// What is known of a connection.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) number: u64,
    /// SHA-256 of the client's certificate, if it showed one that our authority signed.
    pub(crate) certificate: Option<[u8; 32]>,
    /// What APNs keeps of a connection: whose it is since its first authorised push.
    pub(crate) team: parking_lot::Mutex<Option<String>>,
}

/// What a judge found.
#[derive(Debug, Default)]
pub(crate) struct Judged {
    /// The device's token, or the endpoint of its subscription, as far as it was found.
    pub(crate) token: String,
    /// What the sender calls this push (`apns-id`).
    pub(crate) id: Option<uuid::Uuid>,
    /// What the device would show.
    pub(crate) title: Option<String>,
    /// What the device would get, decrypted.
    pub(crate) payload: Option<String>,
    pub(crate) reply: Reply,
}

/// An answer, and why in one word.
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

/// One push service's rules. It is asked for one request at a time and must not block.
pub(crate) trait Judge: Send + Sync {
    fn judge(&self, ask: &Ask<'_>) -> Judged;
    /// The answer that a script asks for, in this service's words.
    fn scripted(&self, script: &Scripted, judged: &Judged, now_ms: u64) -> Reply;
}

impl<J: Judge> Judge for std::sync::Arc<J> {
    fn judge(&self, ask: &Ask<'_>) -> Judged {
        (**self).judge(ask)
    }

    fn scripted(&self, script: &Scripted, judged: &Judged, now_ms: u64) -> Reply {
        (**self).scripted(script, judged, now_ms)
    }
}

/// The value of a header that may be there once. `Err`: it is there more than once, or is no text.
pub(crate) fn single<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, ()> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(drop),
        (Some(_), Some(_)) => Err(()),
    }
}
