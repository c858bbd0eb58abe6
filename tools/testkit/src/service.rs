//! The services that are faked.

use serde::{Deserialize, Serialize};

/// A fake; each has its own port, behaviour and record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Service {
    Apns,
    ApnsSandbox,
    /// The host on which channels of production are managed.
    ApnsChannels,
    ApnsSandboxChannels,
    Fcm,
    /// The token endpoint from which FCM's senders get their access tokens.
    #[serde(rename = "oauth")]
    OAuth,
    #[serde(rename = "webpush")]
    WebPush,
    /// A provider behind a webhook.
    Webhook,
    /// Huawei Push Kit.
    Hms,
    Wns,
    /// The token endpoint from which WNS' senders get their access tokens.
    WnsLogin,
}

impl Service {
    pub const ALL: [Service; 11] = [
        Service::Apns,
        Service::ApnsSandbox,
        Service::ApnsChannels,
        Service::ApnsSandboxChannels,
        Service::Fcm,
        Service::OAuth,
        Service::WebPush,
        Service::Webhook,
        Service::Hms,
        Service::Wns,
        Service::WnsLogin,
    ];

    /// Those that devices have tokens of.
    pub const WITH_DEVICES: [Service; 7] = [
        Service::Apns,
        Service::ApnsSandbox,
        Service::Fcm,
        Service::WebPush,
        Service::Webhook,
        Service::Hms,
        Service::Wns,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Service::Apns => "apns",
            Service::ApnsSandbox => "apns-sandbox",
            Service::ApnsChannels => "apns-channels",
            Service::ApnsSandboxChannels => "apns-sandbox-channels",
            Service::Fcm => "fcm",
            Service::OAuth => "oauth",
            Service::WebPush => "webpush",
            Service::Webhook => "webhook",
            Service::Hms => "hms",
            Service::Wns => "wns",
            Service::WnsLogin => "wns-login",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|service| service.as_str() == text)
    }

    /// APNs only supports HTTP/2; some senders use HTTP/1.1 for the others.
    pub(crate) fn speaks_http1(self) -> bool {
        let only_http2 =
            [Service::Apns, Service::ApnsSandbox, Service::ApnsChannels, Service::ApnsSandboxChannels];
        !only_http2.contains(&self)
    }
}
