//! The services that are faked.

use serde::{Deserialize, Serialize};

/// A fake; each has its own port, behaviour and record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Service {
    Apns,
    ApnsSandbox,
    Fcm,
    /// The token endpoint from which FCM's senders get their access tokens.
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

    /// APNs only supports HTTP/2; some senders use HTTP/1.1 for the others.
    pub(crate) fn speaks_http1(self) -> bool {
        !matches!(self, Service::Apns | Service::ApnsSandbox)
    }
}
