//! All fakes together: they listen on loopback ports, run on their own thread, and stop when dropped. Tests
//! use these methods or, from another language, the control port.

use std::io;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::apns::Apns;
use crate::apns::channels::Management;
use crate::authority::Authority;
use crate::background::{Background, bind, serve};
use crate::behaviour::{Change, Renewal};
use crate::connection::listen;
use crate::control;
use crate::exchange::{Fake, Listener};
use crate::fcm::Fcm;
use crate::fcm::oauth::{AccessTokens, OAuth};
use crate::hms::Hms;
use crate::keys::{self, Keys};
use crate::record::Record;
use crate::rules::Rules;
use crate::service::Service;
use crate::shared::Shared;
use crate::tokens::Devices;
use crate::webhook::Webhook;
use crate::webpush::WebPush;
use crate::wns::{Wns, login};

/// Requests kept with headers and payload: 10,000 × up to about 8 KiB = 80 MB.
const RECEIVED_MAX: usize = 10_000;
/// In light mode, one of this many Web Push payloads is decrypted.
const LIGHT_OPENS_EACH: u64 = 64;

/// Configuration of the fakes; the default is for tests.
#[derive(Clone, Default)]
pub struct Config {
    /// Where keys and certificates are stored; `None`: new ones each time.
    pub folder: Option<PathBuf>,
    /// In the order of [`Service::ALL`]; 0: any free port.
    pub ports: [u16; Service::ALL.len()],
    pub control_port: u16,
    /// For measurements: requests are counted but not kept.
    pub light: bool,
    /// Accept well-formed tokens that are not registered.
    pub any_token: bool,
    /// Do not limit the renewal of provider tokens, because senders are restarted often.
    pub any_renewal: bool,
    /// Called for every answered request; must not block.
    pub listener: Option<Listener>,
}

/// Why the fakes could not be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Keys(#[from] keys::Error),
    #[error("cannot bind the port for {service}: {source}")]
    Port { service: &'static str, source: io::Error },
    #[error("the fakes' thread: {0}")]
    Thread(io::Error),
}

/// The running fakes.
pub struct Fakes {
    shared: Arc<Shared>,
    _background: Background,
}

impl Fakes {
    /// With the default configuration.
    pub fn start() -> Result<Self, Error> {
        Self::start_with(Config::default())
    }

    pub fn start_with(config: Config) -> Result<Self, Error> {
        let (keys, authority) = match &config.folder {
            Some(folder) => (Keys::open(folder)?, Authority::open(folder)?),
            None => (Keys::generate()?, Authority::generate()?),
        };
        let bind = |service, port| bind(port).map_err(|source| Error::Port { service, source });
        let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
        for (service, port) in Service::ALL.into_iter().zip(config.ports) {
            let (listener, address) = bind(service.as_str(), port)?;
            listeners.push(listener);
            addresses.push(address);
        }
        let (control_listener, control) = bind("the control port", config.control_port)?;
        let origin = |service: Service| format!("https://localhost:{}", addresses[service as usize].port());
        let devices = |service| {
            Arc::new(Devices::new(service, config.any_token, origin(service), keys.vapid_public.clone()))
        };
        let access = Arc::new(AccessTokens::default());
        let token_url = format!("{}/token", origin(Service::OAuth));
        let devices = Service::ALL.map(devices);
        let of = |service: Service| devices[service as usize].clone();
        let apns = [Service::Apns, Service::ApnsSandbox]
            .map(|service| Arc::new(Apns::new(service, of(service), &keys)));
        let wns_access = Arc::new(login::AccessTokens::default());
        let rules: [Arc<dyn Rules>; Service::ALL.len()] = [
            apns[0].clone(),
            apns[1].clone(),
            Arc::new(Management(apns[0].clone())),
            Arc::new(Management(apns[1].clone())),
            Arc::new(Fcm::new(of(Service::Fcm), access.clone())),
            Arc::new(OAuth::new(access.clone(), keys.account_public.clone(), token_url)),
            Arc::new(WebPush::new(of(Service::WebPush), if config.light { LIGHT_OPENS_EACH } else { 1 })),
            Arc::new(Webhook::new(of(Service::Webhook))),
            Arc::new(Hms::new(of(Service::Hms), keys.account_public.clone())),
            Arc::new(Wns::new(of(Service::Wns), wns_access.clone())),
            Arc::new(login::Login::new(wns_access.clone())),
        ];
        let kept = if config.light { 0 } else { RECEIVED_MAX };
        let fakes: Vec<Arc<Fake>> = Service::ALL
            .into_iter()
            .zip(rules)
            .map(|(service, rules)| {
                let listener = config.listener.clone();
                Arc::new(Fake::new(service, rules, of(service), Record::new(kept), listener))
            })
            .collect();
        let shared = Arc::new(Shared {
            fakes,
            addresses,
            control,
            keys,
            authority,
            access,
            wns_access,
            apns,
            certificate: Mutex::default(),
        });
        if config.any_renewal {
            // Cannot fail: the change is valid.
            let _ = shared.change_all(&|| Change { renewal: Some(Renewal::Any), ..Change::default() });
        }
        let mut acceptors = Vec::new();
        for service in Service::ALL {
            let alpn: &[&[u8]] = if service.speaks_http1() { &[b"h2", b"http/1.1"] } else { &[b"h2"] };
            let config = shared.authority.server_config(!service.speaks_http1(), alpn)?;
            acceptors.push(TlsAcceptor::from(config));
        }
        let served = shared.clone();
        let start = || {
            for ((fake, listener), tls) in served.fakes.iter().zip(listeners).zip(acceptors) {
                tokio::spawn(listen(fake.clone(), TcpListener::from_std(listener)?, tls));
            }
            let control = TcpListener::from_std(control_listener)?;
            Ok(serve(control, move |request| control::answer(served.clone(), request)))
        };
        let background = Background::start("push-fakes", start).map_err(Error::Thread)?;
        Ok(Self { shared, _background: background })
    }
}

impl Deref for Fakes {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}
