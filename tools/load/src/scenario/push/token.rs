//! The tokens of a run. The fakes accept any token of the right form, except those of Web Push: a subscription has keys,
//! so the fake makes it.

use noroshi_types::{JsonText, PushEnvironment, PushService as Service, PushToken};

use crate::Error;
use crate::target::PushService;

/// Making one takes the fake about a tenth of a millisecond.
const SUBSCRIPTIONS_MAX: usize = 10_000;

pub(super) struct Tokens {
    service: Service,
    /// Of WNS: `https://…` without a trailing slash.
    origin: String,
    /// Of Web Push; pushes use them in turn.
    subscriptions: Vec<Subscription>,
}

struct Subscription {
    endpoint: String,
    json: JsonText,
}

impl Tokens {
    /// Tokens for runs of at most `count` pushes.
    pub(super) fn new(service: &mut PushService, count: usize) -> Result<Self, Error> {
        let subscriptions = match service.service {
            Service::WebPush => service.make_tokens(count.clamp(1, SUBSCRIPTIONS_MAX))?,
            _ => Vec::new(),
        };
        let subscription = |json: serde_json::Value| Subscription {
            endpoint: json["endpoint"].as_str().unwrap_or_default().to_owned(),
            json: JsonText::from_valid(json.to_string()),
        };
        Ok(Self {
            service: service.service,
            origin: service.credential["endpoint"].as_str().unwrap_or_default().to_owned(),
            subscriptions: subscriptions.into_iter().map(subscription).collect(),
        })
    }

    /// For the report.
    pub(super) fn note(&self) -> Option<String> {
        let count = self.subscriptions.len();
        (count > 0).then(|| format!("{count} subscriptions of one origin, each with its own keys, in turn"))
    }

    pub(super) fn first(&self, run: &str, count: usize) -> Vec<PushToken> {
        (0..count).map(|index| self.push_token(run, index)).collect()
    }

    /// The token as the fake knows it.
    pub(super) fn name(&self, run: &str, index: usize) -> String {
        match self.service {
            Service::Apns => apns_token(run, index),
            // The lengths are those of real tokens.
            Service::Fcm => format!("{run:x<22}:APA91b{index:x>134}"),
            Service::Hms => format!("IQAAAA{run:x<10}{index:x>114}"),
            Service::Wns | Service::Webhook => format!("{run:x<10}{index:x>150}"),
            Service::WebPush => self.subscription(index).endpoint.clone(),
        }
    }

    fn push_token(&self, run: &str, index: usize) -> PushToken {
        let json = match self.service {
            Service::WebPush => self.subscription(index).json.clone(),
            Service::Wns => JsonText::from_valid(format!(
                "{{\"service\":\"wns\",\"channel\":\"{}/?token={}\"}}",
                self.origin,
                self.name(run, index)
            )),
            service => JsonText::from_valid(format!(
                "{{\"service\":\"{}\",\"token\":\"{}\"}}",
                service.as_str(),
                self.name(run, index)
            )),
        };
        PushToken { service: self.service, environment: PushEnvironment::Production, json }
    }

    fn subscription(&self, index: usize) -> &Subscription {
        &self.subscriptions[index % self.subscriptions.len()]
    }
}

/// A valid token of APNs, equal in every run.
pub(crate) fn apns_token(name: &str, index: usize) -> String {
    let prefix: String = name.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("{prefix}{index:0width$x}", width = 64 - prefix.len())
}
