//! The state of the running fakes, shared by their owner and the control port.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::apns::Apns;
use crate::authority::{Authority, ClientCertificate};
use crate::behaviour::Change;
use crate::exchange::Fake;
use crate::fcm::oauth::AccessTokens;
use crate::keys::{self, KEY_ID, Keys, SUBJECT, TEAM_ID, TOPIC};
use crate::service::Service;

/// Shared by the control port and the owner.
pub(crate) struct Shared {
    pub(crate) fakes: Vec<Arc<Fake>>,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) control: SocketAddr,
    pub(crate) keys: Keys,
    pub(crate) authority: Authority,
    pub(crate) access: Arc<AccessTokens>,
    pub(crate) apns: [Arc<Apns>; 2],
    /// Created on first use.
    pub(crate) certificate: Mutex<Option<ClientCertificate>>,
}

impl Shared {
    pub(crate) fn fake(&self, service: Service) -> &Arc<Fake> {
        &self.fakes[service as usize]
    }

    pub(crate) fn origin(&self, service: Service) -> String {
        format!("https://localhost:{}", self.addresses[service as usize].port())
    }

    pub(crate) fn clear(&self) {
        self.fakes.iter().for_each(|fake| fake.record.lock().clear());
    }

    pub(crate) fn revoke_access_tokens(&self) {
        self.access.revoke();
    }

    pub(crate) fn behave(&self, change: Change) -> Result<(), String> {
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

    pub(crate) fn client_certificate(&self) -> Result<ClientCertificate, keys::Error> {
        let mut made = self.certificate.lock();
        if let Some(certificate) = &*made {
            return Ok(certificate.clone());
        }
        let certificate = self.authority.client(TOPIC)?;
        self.apns.iter().for_each(|apns| apns.trust_certificate(certificate.fingerprint));
        Ok(made.insert(certificate).clone())
    }

    pub(crate) fn credential(&self, service: Service) -> Value {
        let endpoint = self.origin(service);
        let apns = |environment: &str| {
            json!({
                "service": "apns",
                "environment": environment,
                "key": self.keys.apns_p8,
                "key_id": KEY_ID,
                "team_id": TEAM_ID,
                "topic": TOPIC,
                "endpoint": endpoint,
            })
        };
        match service {
            Service::Apns => apns("production"),
            Service::ApnsSandbox => apns("sandbox"),
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
        }
    }

    pub(crate) fn info(&self) -> Value {
        let origins: serde_json::Map<String, Value> = Service::ALL
            .into_iter()
            .map(|service| (service.as_str().to_owned(), self.origin(service).into()))
            .collect();
        let services = [Service::Apns, Service::ApnsSandbox, Service::Fcm, Service::WebPush];
        let credentials: serde_json::Map<String, Value> = services
            .into_iter()
            .map(|service| (service.as_str().to_owned(), self.credential(service)))
            .collect();
        json!({
            "control": format!("http://{}", self.control),
            "origins": origins,
            "credentials": credentials,
            "ca": self.authority.pem,
            "ca_file": self.authority.path,
            "vapid_public_key": self.keys.vapid_public,
        })
    }
}
