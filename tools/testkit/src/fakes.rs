//! All fakes together: they listen on loopback ports, run on their own thread, and stop when dropped. Tests
//! use these methods or, from another language, the control port.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

use crate::apns::Apns;
use crate::authority::{Authority, ClientCertificate};
use crate::behaviour::{Change, Renewal};
use crate::connection::listen;
use crate::control;
use crate::exchange::{Fake, Listener};
use crate::fcm::Fcm;
use crate::fcm::oauth::{AccessTokens, OAuth};
use crate::keys::{self, Keys};
use crate::record::{Counts, Received, Record};
use crate::rules::Rules;
use crate::service::Service;
use crate::shared::Shared;
use crate::tokens::{Devices, NewDevices};
use crate::webpush::WebPush;

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
    pub ports: [u16; 5],
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
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
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
        let mut listeners = Vec::new();
        for (service, port) in Service::ALL.into_iter().zip(config.ports) {
            listeners.push(bind(service.as_str(), port)?);
        }
        let control_listener = bind("the control port", config.control_port)?;
        let addresses: Vec<SocketAddr> = listeners.iter().map(|(_, address)| *address).collect();
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
        let rules: [Box<dyn Rules>; 5] = [
            Box::new(apns[0].clone()),
            Box::new(apns[1].clone()),
            Box::new(Fcm::new(of(Service::Fcm), access.clone())),
            Box::new(OAuth::new(access.clone(), keys.account_public.clone(), token_url)),
            Box::new(WebPush::new(of(Service::WebPush), if config.light { LIGHT_OPENS_EACH } else { 1 })),
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
            control: control_listener.1,
            keys,
            authority,
            access,
            apns,
            certificate: Mutex::default(),
        });
        if config.any_renewal {
            // Cannot fail: the change is valid.
            let _ = shared.change_all(&|| Change { renewal: Some(Renewal::Any), ..Change::default() });
        }
        let (stop, stopped) = oneshot::channel();
        let listeners = listeners.into_iter().map(|(listener, _)| listener).collect();
        let thread = run(shared.clone(), listeners, control_listener.0, stopped)?;
        Ok(Self { shared, stop: Some(stop), thread: Some(thread) })
    }

    /// `https://localhost:<port>`
    pub fn origin(&self, service: Service) -> String {
        self.shared.origin(service)
    }

    pub fn address(&self, service: Service) -> SocketAddr {
        self.shared.addresses[service as usize]
    }

    /// `http://127.0.0.1:<port>`
    pub fn control(&self) -> String {
        format!("http://{}", self.shared.control)
    }

    /// The CA certificate to trust, PEM.
    pub fn ca(&self) -> &str {
        &self.shared.authority.pem
    }

    pub fn ca_file(&self) -> Option<&Path> {
        self.shared.authority.path.as_deref()
    }

    pub fn keys(&self) -> &Keys {
        &self.shared.keys
    }

    /// The body of `POST /v1/apps/<app>/push` that makes Noroshi use this fake.
    pub fn credential(&self, service: Service) -> Value {
        self.shared.credential(service)
    }

    /// For APNs' older authentication: a certificate that both environments trust.
    pub fn client_certificate(&self) -> Result<ClientCertificate, Error> {
        Ok(self.shared.client_certificate()?)
    }

    /// Creates devices and returns their tokens, as the API's `push_token`.
    pub fn make_devices(&self, new: &NewDevices) -> Result<Vec<Value>, String> {
        self.shared.fake(new.service).devices.make(new)
    }

    pub fn behave(&self, change: Change) -> Result<(), String> {
        self.shared.behave(change)
    }

    /// The newest requests, oldest first.
    pub fn received(&self, service: Service) -> Vec<Received> {
        self.shared.fake(service).record.lock().newest.iter().cloned().collect()
    }

    pub fn counts(&self, service: Service) -> Counts {
        self.shared.fake(service).record.lock().counts()
    }

    pub fn clear(&self) {
        self.shared.clear();
    }

    /// Revokes all access tokens.
    pub fn revoke_access_tokens(&self) {
        self.shared.access.revoke();
    }

    /// The response of `GET /info`.
    pub fn info(&self) -> Value {
        self.shared.info()
    }
}

impl Drop for Fakes {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic has already been reported
        }
    }
}

fn bind(service: &'static str, port: u16) -> Result<(TcpListener, SocketAddr), Error> {
    let failed = |source| Error::Port { service, source };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

/// A single thread, so that the fakes leave the other cores to the measured program.
fn run(
    shared: Arc<Shared>,
    listeners: Vec<TcpListener>,
    control: TcpListener,
    stopped: oneshot::Receiver<()>,
) -> Result<std::thread::JoinHandle<()>, Error> {
    let mut acceptors = Vec::new();
    for service in Service::ALL {
        let alpn: &[&[u8]] = if service.speaks_http1() { &[b"h2", b"http/1.1"] } else { &[b"h2"] };
        let config = shared.authority.server_config(!service.speaks_http1(), alpn)?;
        acceptors.push(TlsAcceptor::from(config));
    }
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Thread)?;
    let (listeners, control) = {
        let _inside = runtime.enter();
        let inside = tokio::net::TcpListener::from_std;
        let listeners: Result<Vec<_>, io::Error> = listeners.into_iter().map(inside).collect();
        (listeners.map_err(Error::Thread)?, inside(control).map_err(Error::Thread)?)
    };
    let work = move || {
        runtime.block_on(async {
            for ((fake, listener), tls) in shared.fakes.iter().zip(listeners).zip(acceptors) {
                tokio::spawn(listen(fake.clone(), listener, tls));
            }
            tokio::spawn(control::serve(shared, control));
            let _ = stopped.await; // completes when the sender is dropped
        });
    };
    std::thread::Builder::new().name("push-fakes".to_owned()).spawn(work).map_err(Error::Thread)
}
