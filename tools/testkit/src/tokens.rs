//! The devices that a fake knows: tokens with topic, environment and state, and Web Push subscriptions with
//! their private keys.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::Service;
use crate::jwt;
use crate::keys::{Error, PROVIDER, TOPIC, key_error, new_p256};

/// Maximum number of devices per fake: 2 M × about 200 bytes.
const DEVICES_MAX: usize = 2_000_000;

/// The state of a device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    #[default]
    Registered,
    /// The app was removed at this time, milliseconds since 1970.
    Unregistered { at_ms: u64 },
    /// Belongs to another sender (FCM), or has expired (APNs).
    Foreign,
}

#[derive(Debug, Clone)]
pub(crate) struct Device {
    pub(crate) state: State,
    /// APNs: the bundle id that the token was issued for.
    pub(crate) topic: Arc<str>,
    pub(crate) subscription: Option<Arc<Subscription>>,
}

/// The private side of a Web Push subscription.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) secret: p256::SecretKey,
    pub(crate) public: Vec<u8>,
    pub(crate) auth: [u8; 16],
    /// The only key allowed to push to it, if restricted (RFC 8292 §4.1).
    pub(crate) server_key: Option<String>,
}

/// The devices of one fake.
#[derive(Debug)]
pub(crate) struct Devices {
    service: Service,
    known: RwLock<HashMap<String, Device>>,
    /// Accept well-formed tokens that are not registered.
    pub(crate) any: bool,
    random: SystemRandom,
    topic: Arc<str>,
    /// Web Push: `https://…` without a trailing slash.
    pub(crate) origin: String,
    vapid_public: String,
}

/// Devices to create.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewDevices {
    pub service: Service,
    #[serde(default = "one")]
    pub count: usize,
    /// APNs: the bundle id.
    pub topic: Option<String>,
    #[serde(default)]
    pub state: State,
    /// Web Push: not restricted to a key.
    #[serde(default)]
    pub unrestricted: bool,
    /// Use this token, known or not, instead of a new one.
    pub token: Option<String>,
}

fn one() -> usize {
    1
}

impl Devices {
    pub(crate) fn new(service: Service, any: bool, origin: String, vapid_public: String) -> Self {
        Self {
            service,
            known: RwLock::default(),
            any,
            random: SystemRandom::new(),
            topic: TOPIC.into(),
            origin,
            vapid_public,
        }
    }

    pub(crate) fn find(&self, token: &str) -> Option<Device> {
        self.known.read().get(token).cloned()
    }

    /// Creates devices and returns their tokens in the format of the API's `push_token`.
    pub(crate) fn make(&self, new: &NewDevices) -> Result<Vec<Value>, String> {
        if new.count == 0 || new.count > 100_000 {
            return Err("count must be between 1 and 100000".to_owned());
        }
        if self.known.read().len() + new.count > DEVICES_MAX {
            return Err(format!("at most {DEVICES_MAX} devices are possible"));
        }
        if let Some(token) = &new.token {
            return self.set(token, new).map(|token| vec![token]);
        }
        (0..new.count).map(|_| self.make_one(new).map_err(|error| error.to_string())).collect()
    }

    fn make_one(&self, new: &NewDevices) -> Result<Value, Error> {
        let token = self.new_token()?;
        let subscription = match self.service {
            Service::WebPush => Some(Arc::new(self.subscribe(new.unrestricted)?)),
            _ => None,
        };
        let shown = self.show(&token, subscription.as_deref());
        let topic = new.topic.as_deref().map_or_else(|| self.topic.clone(), Into::into);
        self.known.write().insert(token, Device { state: new.state, topic, subscription });
        Ok(shown)
    }

    /// Changes a device, or creates one with this token.
    fn set(&self, token: &str, new: &NewDevices) -> Result<Value, String> {
        let name = token.rsplit('/').next().unwrap_or(token);
        let name = name.strip_prefix("?token=").unwrap_or(name);
        let mut known = self.known.write();
        if let Some(device) = known.get_mut(name) {
            device.state = new.state;
            if let Some(topic) = &new.topic {
                device.topic = topic.as_str().into();
            }
            return Ok(self.show(name, device.subscription.as_deref()));
        }
        if self.service == Service::WebPush {
            return Err("unknown subscription; keys of a new one cannot be chosen".to_owned());
        }
        let topic = new.topic.as_deref().map_or_else(|| self.topic.clone(), Into::into);
        known.insert(name.to_owned(), Device { state: new.state, topic, subscription: None });
        Ok(self.show(name, None))
    }

    fn new_token(&self) -> Result<String, Error> {
        let mut bytes = [0; 48];
        self.random.fill(&mut bytes).map_err(|error| key_error("a token")(&error))?;
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        Ok(match self.service {
            Service::Apns | Service::ApnsSandbox | Service::ApnsChannels | Service::ApnsSandboxChannels => {
                hex(&bytes[..32])
            }
            Service::Fcm | Service::OAuth => {
                format!("{}:APA91b{}", jwt::encode(&bytes[..16]), jwt::encode(&bytes))
            }
            Service::WebPush => jwt::encode(&bytes[..24]),
            Service::Webhook => format!("{}@example.com", hex(&bytes[..8])),
            Service::Hms => format!("IQAAAA{}", jwt::encode(&bytes)),
            Service::Wns | Service::WnsLogin => jwt::encode(&bytes),
        })
    }

    fn subscribe(&self, unrestricted: bool) -> Result<Subscription, Error> {
        let (secret, public) = new_p256(&self.random)?;
        let mut auth = [0; 16];
        self.random.fill(&mut auth).map_err(|error| key_error("a subscription")(&error))?;
        let server_key = (!unrestricted).then(|| self.vapid_public.clone());
        Ok(Subscription { secret, public, auth, server_key })
    }

    fn show(&self, token: &str, subscription: Option<&Subscription>) -> Value {
        match (self.service, subscription) {
            (Service::Apns, _) => json!({"service": "apns", "token": token}),
            (Service::ApnsSandbox, _) => json!({"service": "apns", "token": token, "environment": "sandbox"}),
            (Service::WebPush, Some(subscription)) => json!({
                "service": "webpush",
                "endpoint": format!("{}/push/{token}", self.origin),
                "keys": {
                    "p256dh": jwt::encode(&subscription.public),
                    "auth": jwt::encode(&subscription.auth),
                },
            }),
            (Service::Webhook, _) => json!({"service": "webhook", "provider": PROVIDER, "token": token}),
            (Service::Hms, _) => json!({"service": "hms", "token": token}),
            (Service::Wns, _) => {
                json!({"service": "wns", "channel": format!("{}/?token={token}", self.origin)})
            }
            _ => json!({"service": "fcm", "token": token}),
        }
    }
}
