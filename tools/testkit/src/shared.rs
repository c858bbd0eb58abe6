//! The state of the running fakes, and what their owner and the control port can do with it.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::apns::Apns;
use crate::authority::{Authority, ClientCertificate};
use crate::behaviour::Change;
use crate::exchange::Fake;
use crate::fcm::oauth::AccessTokens;
use crate::keys::{
    self, KEY_ID, Keys, PROVIDER, SUBJECT, TEAM_ID, TOPIC, WEBHOOK_SECRET, WNS_CLIENT_ID, WNS_SECRET,
    WNS_TENANT,
};
use crate::record::{Counts, Received};
use crate::service::Service;
use crate::tokens::NewDevices;
use crate::wns::login;

/// The state of [`Fakes`](crate::Fakes), whose public methods are these.
pub struct Shared {
    pub(crate) fakes: Vec<Arc<Fake>>,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) control: SocketAddr,
    pub(crate) keys: Keys,
    pub(crate) authority: Authority,
    pub(crate) access: Arc<AccessTokens>,
    pub(crate) wns_access: Arc<login::AccessTokens>,
    pub(crate) apns: [Arc<Apns>; 2],
    /// Created on first use.
    pub(crate) certificate: Mutex<Option<ClientCertificate>>,
}

impl Shared {
    pub(crate) fn fake(&self, service: Service) -> &Arc<Fake> {
        &self.fakes[service as usize]
    }

    /// `https://localhost:<port>`
    pub fn origin(&self, service: Service) -> String {
        format!("https://localhost:{}", self.address(service).port())
    }

    pub fn address(&self, service: Service) -> SocketAddr {
        self.addresses[service as usize]
    }

    /// `http://127.0.0.1:<port>`
    pub fn control(&self) -> String {
        format!("http://{}", self.control)
    }

    /// The CA certificate to trust, PEM.
    pub fn ca(&self) -> &str {
        &self.authority.pem
    }

    pub fn ca_file(&self) -> Option<&Path> {
        self.authority.path.as_deref()
    }

    pub fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Creates devices and returns their tokens, as the API's `push_token`.
    pub fn make_devices(&self, new: &NewDevices) -> Result<Vec<Value>, String> {
        self.fake(new.service).devices.make(new)
    }

    /// The newest requests, oldest first.
    pub fn received(&self, service: Service) -> Vec<Received> {
        self.fake(service).record.lock().newest.iter().cloned().collect()
    }

    pub fn counts(&self, service: Service) -> Counts {
        self.fake(service).record.lock().counts()
    }

    pub fn clear(&self) {
        self.fakes.iter().for_each(|fake| fake.record.lock().clear());
    }

    /// Revokes all access tokens.
    pub fn revoke_access_tokens(&self) {
        self.access.revoke();
        self.wns_access.revoke();
    }

    pub fn behave(&self, change: Change) -> Result<(), String> {
        match change.service {
            Some(service) => {
                self.fake(service).change(change)?;
                self.renew();
                Ok(())
            }
            None if change.tokens.is_empty() && change.next.is_empty() => self.change_all(&|| Change {
                service: None,
                tokens: Default::default(),
                next: Vec::new(),
                ..change
            }),
            None => Err("scripts are for one service: specify which".to_owned()),
        }
    }

    pub(crate) fn change_all(&self, change: &dyn Fn() -> Change) -> Result<(), String> {
        self.fakes.iter().try_for_each(|fake| fake.change(change()))?;
        self.renew();
        Ok(())
    }

    fn renew(&self) {
        for apns in &self.apns {
            apns.set_renewal(self.fake(apns.service()).behaviour.lock().renewal);
        }
    }

    /// For APNs' older authentication: a certificate that both environments trust.
    pub fn client_certificate(&self) -> Result<ClientCertificate, keys::Error> {
        let mut made = self.certificate.lock();
        if let Some(certificate) = &*made {
            return Ok(certificate.clone());
        }
        let certificate = self.authority.client(TOPIC)?;
        self.apns.iter().for_each(|apns| apns.trust_certificate(certificate.fingerprint));
        Ok(made.insert(certificate).clone())
    }

    /// The body of `POST /v1/apps/<app>/push` that makes Noroshi use this fake.
    pub fn credential(&self, service: Service) -> Value {
        let endpoint = self.origin(match service {
            Service::ApnsChannels => Service::Apns,
            Service::ApnsSandboxChannels => Service::ApnsSandbox,
            service => service,
        });
        let apns = |environment: &str, channels: Service| {
            json!({
                "service": "apns",
                "environment": environment,
                "key": self.keys.apns_p8,
                "key_id": KEY_ID,
                "team_id": TEAM_ID,
                "topic": TOPIC,
                "endpoint": endpoint,
                "channels_endpoint": self.origin(channels),
            })
        };
        match service {
            Service::Apns | Service::ApnsChannels => apns("production", Service::ApnsChannels),
            Service::ApnsSandbox | Service::ApnsSandboxChannels => {
                apns("sandbox", Service::ApnsSandboxChannels)
            }
            Service::Fcm | Service::OAuth => {
                let token_url = format!("{}/token", self.origin(Service::OAuth));
                json!({
                    "service": "fcm",
                    "service_account": self.keys.service_account(&token_url),
                    "endpoint": self.origin(Service::Fcm),
                })
            }
            Service::WebPush => json!({
                "service": "webpush",
                "private_key": self.keys.vapid_private,
                "subject": SUBJECT,
            }),
            Service::Webhook => json!({
                "service": "webhook",
                "name": PROVIDER,
                "url": format!("{endpoint}/push"),
                "secret": WEBHOOK_SECRET,
            }),
            Service::Hms => json!({
                "service": "hms",
                "service_account": self.keys.hms_account(),
                "endpoint": endpoint,
            }),
            Service::Wns | Service::WnsLogin => json!({
                "service": "wns",
                "client_id": WNS_CLIENT_ID,
                "client_secret": WNS_SECRET,
                "tenant_id": WNS_TENANT,
                "endpoint": self.origin(Service::Wns),
                "token_endpoint": format!("{}/token", self.origin(Service::WnsLogin)),
            }),
        }
    }

    /// The response of `GET /info`.
    pub fn info(&self) -> Value {
        let origins: serde_json::Map<String, Value> = Service::ALL
            .into_iter()
            .map(|service| (service.as_str().to_owned(), self.origin(service).into()))
            .collect();
        let credentials: serde_json::Map<String, Value> = Service::WITH_DEVICES
            .into_iter()
            .map(|service| (service.as_str().to_owned(), self.credential(service)))
            .collect();
        json!({
            "control": self.control(),
            "origins": origins,
            "credentials": credentials,
            "ca": self.authority.pem,
            "ca_file": self.authority.path,
            "vapid_public_key": self.keys.vapid_public,
        })
    }
}
