//! All the fakes together: started on ports of the loopback interface with a thread of their own, stopped when
//! dropped. What a test asks of them it may ask here or, from another program, of the control port.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

use crate::apns::Apns;
use crate::ask::{Judge, Service};
use crate::authority::{Authority, ClientCertificate};
use crate::behaviour::{Change, Renewal};
use crate::connection::listen;
use crate::control;
use crate::exchange::{Fake, Listener};
use crate::fcm::Fcm;
use crate::fcm::oauth::{AccessTokens, OAuth};
use crate::keys::{self, KEY_ID, Keys, SUBJECT, TEAM_ID, TOPIC};
use crate::record::{Counts, Received, Record};
use crate::tokens::{Devices, NewDevices};
use crate::webpush::WebPush;

/// Requests that are kept with headers and payload: 10,000 × at most about 8 KiB = 80 MB.
const RECEIVED_MAX: usize = 10_000;
/// In light mode one Web Push payload of so many is decrypted.
const LIGHT_OPENS_EACH: u64 = 64;

/// How the fakes are started; the default is for tests.
#[derive(Clone, Default)]
pub struct Config {
    /// Where keys and certificates are kept; none: they are new each time.
    pub folder: Option<PathBuf>,
    /// In the order of [`Service::ALL`]; 0: any free one.
    pub ports: [u16; 5],
    pub control_port: u16,
    /// For measurements: requests are counted and not kept.
    pub light: bool,
    /// Tokens of the right form are taken though nobody registered them.
    pub any_token: bool,
    /// Provider tokens may be renewed at any time, since senders are started again and again.
    pub any_renewal: bool,
    /// Hears of every request that was answered; must not block.
    pub listener: Option<Listener>,
}

/// Why the fakes do not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Keys(#[from] keys::Error),
    #[error("no port for {service}: {source}")]
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

/// What the control port shares with the owner.
pub(crate) struct Shared {
    pub(crate) fakes: Vec<Arc<Fake>>,
    addresses: Vec<SocketAddr>,
    control: SocketAddr,
    keys: Keys,
    authority: Authority,
    access: Arc<AccessTokens>,
    apns: [Arc<Apns>; 2],
    /// Made when first asked for.
    certificate: Mutex<Option<ClientCertificate>>,
}

impl Fakes {
    /// The default configuration.
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
        let judges: [Box<dyn Judge>; 5] = [
            Box::new(apns[0].clone()),
            Box::new(apns[1].clone()),
            Box::new(Fcm::new(of(Service::Fcm), access.clone())),
            Box::new(OAuth::new(access.clone(), keys.account_public.clone(), token_url)),
            Box::new(WebPush::new(of(Service::WebPush), if config.light { LIGHT_OPENS_EACH } else { 1 })),
        ];
        let kept = if config.light { 0 } else { RECEIVED_MAX };
        let fakes: Vec<Arc<Fake>> = Service::ALL
            .into_iter()
            .zip(judges)
            .map(|(service, judge)| {
                let listener = config.listener.clone();
                Arc::new(Fake::new(service, judge, of(service), Record::new(kept), listener))
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
            // A change of known fields cannot be refused.
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

    /// What a provider has to trust, PEM.
    pub fn ca(&self) -> &str {
        &self.shared.authority.pem
    }

    pub fn ca_file(&self) -> Option<&Path> {
        self.shared.authority.path.as_deref()
    }

    pub fn keys(&self) -> &Keys {
        &self.shared.keys
    }

    /// The body of `POST /v1/apps/<app>/push` that leads Noroshi to this fake.
    pub fn credential(&self, service: Service) -> Value {
        self.shared.credential(service)
    }

    /// APNs' older way: a certificate that both environments trust.
    pub fn client_certificate(&self) -> Result<ClientCertificate, Error> {
        Ok(self.shared.client_certificate()?)
    }

    /// The devices' tokens, as the API's `push_token`.
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

    /// No access token is believed any more.
    pub fn revoke_access_tokens(&self) {
        self.shared.access.revoke();
    }

    /// What the control port tells of itself.
    pub fn info(&self) -> Value {
        self.shared.info()
    }
}

impl Drop for Fakes {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // its panic was reported when it happened
        }
    }
}

impl Shared {
    pub(crate) fn fake(&self, service: Service) -> &Arc<Fake> {
        &self.fakes[service as usize]
    }

    fn origin(&self, service: Service) -> String {
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
            None => Err("scripts are for one service: say which".to_owned()),
        }
    }

    fn change_all(&self, change: &dyn Fn() -> Change) -> Result<(), String> {
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

fn bind(service: &'static str, port: u16) -> Result<(TcpListener, SocketAddr), Error> {
    let failed = |source| Error::Port { service, source };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

/// One thread for all: a fake must not take the cores of what it is measured with.
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
            let _ = stopped.await; // the sender is only ever dropped
        });
    };
    std::thread::Builder::new().name("push-fakes".to_owned()).spawn(work).map_err(Error::Thread)
}
