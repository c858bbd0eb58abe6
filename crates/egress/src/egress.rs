//! The handle that opens connections: combines name resolution, guard, proxy and TLS.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use rustls_pki_types::CertificateDer;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use tokio_util::either::Either;
use url::Host;

use crate::dial::dial;
use crate::proxy::{Protocol, ProxyUrl, socks, tunnel};
use crate::resolve::Lane;
use crate::target::Target;
use crate::tls::Client;
use crate::{ConfigError, Error, Guard, Proxies, Resolver, Tls};

/// The configuration. The default reaches only the public Internet, without a proxy.
#[derive(Debug, Clone)]
pub struct Config {
    /// Networks that are allowed although they are not public.
    pub allow: Vec<IpNet>,
    pub proxies: Proxies,
    /// Trusted in addition to the public roots.
    pub ca: Vec<CertificateDer<'static>>,
    /// The timeout from resolving the name to the end of the TLS handshake.
    pub connect_timeout: Duration,
    /// The timeout of one of several addresses.
    pub address_timeout: Duration,
    pub resolver: Resolver,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            proxies: Proxies::default(),
            ca: Vec::new(),
            connect_timeout: Duration::from_secs(10),
            // Survives two lost SYNs (retransmitted after 1 s and 3 s, RFC 6298 §5.7), and a second address still gets
            // its turn.
            address_timeout: Duration::from_secs(4),
            resolver: Resolver::system(),
        }
    }
}

impl Config {
    /// For servers that an operator names: they may be anywhere, typically in private networks.
    pub fn anywhere() -> Self {
        let allow = vec![IpNet::V4(Ipv4Net::default()), IpNet::V6(Ipv6Net::default())];
        Self { allow, ..Self::default() }
    }
}

/// Bytes to and from the other end, without or with TLS.
pub type Stream = Either<Transport, Box<TlsStream<Transport>>>;

/// What carries a connection: a socket, or TLS with a proxy.
pub(crate) type Transport = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// ALPN of a proxy behind TLS.
const HTTP_1_1: &[u8] = b"http/1.1";

/// An open connection.
#[derive(Debug)]
pub struct Connected {
    pub stream: Stream,
    /// The protocol that the server chose from [`Tls::alpn`]; none without TLS.
    pub alpn: Option<Vec<u8>>,
    /// The peer of the socket: the server, or the proxy.
    pub peer: SocketAddr,
}

/// Shared as `Arc<Egress>`, or cloned.
#[derive(Clone)]
pub struct Egress {
    means: Arc<Means>,
    /// The party that chooses the hosts.
    lane: Lane,
}

/// Shared by all clones.
struct Means {
    guard: Guard,
    proxies: Proxies,
    resolver: Resolver,
    tls: Client,
    connect_timeout: Duration,
    address_timeout: Duration,
}

impl Egress {
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        let Config { allow, proxies, ca, connect_timeout, address_timeout, resolver } = config;
        let tls = Client::new(&ca)?;
        let guard = Guard::new(allow);
        let means = Means { guard, proxies, resolver, tls, connect_timeout, address_timeout };
        Ok(Self { means: Arc::new(means), lane: Lane::Operator })
    }

    /// The same for hosts that this app chooses: slow lookups of one app delay only its own connections (`resolve`).
    #[must_use]
    pub fn for_app(&self, app: u32) -> Self {
        Self { means: self.means.clone(), lane: Lane::App(app) }
    }

    /// Whether the guard would reject `host` as written, without resolving it: for input that is only stored now. A
    /// name that passes may still be rejected when it is connected to.
    pub fn check(&self, https: bool, host: &str, port: u16) -> Result<(), Error> {
        self.check_target(&Target::new(https, host, port)?)
    }

    /// Connects to `host`, a name or an address (IPv6 optionally in brackets), with TLS if `https`. Takes at most
    /// [`Config::connect_timeout`]. Cancel-safe: the attempt is dropped.
    pub async fn connect(&self, https: bool, host: &str, port: u16, tls: Tls) -> Result<Connected, Error> {
        self.connect_to(&Target::new(https, host, port)?, tls).await
    }

    pub(crate) async fn connect_to(&self, target: &Target, tls: Tls) -> Result<Connected, Error> {
        let limit = self.means.connect_timeout;
        match timeout(limit, self.open(target, tls)).await {
            Ok(result) => result,
            Err(_) => Err(Error::Timeout { host: target.host.to_string(), limit }),
        }
    }

    async fn open(&self, target: &Target, tls: Tls) -> Result<Connected, Error> {
        self.check_target(target)?;
        let (stream, peer) = match self.means.proxies.choose(target) {
            Some(proxy) => self.through(proxy, target).await?,
            None => self.directly(target).await?,
        };
        if !target.https {
            return Ok(Connected { stream: Stream::Left(stream), alpn: None, peer });
        }
        let stream = self.means.tls.handshake(target, tls, stream).await?;
        let alpn = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
        Ok(Connected { stream: Stream::Right(Box::new(stream)), alpn, peer })
    }

    fn check_target(&self, target: &Target) -> Result<(), Error> {
        let checked = match (&target.host, target.address()) {
            (_, Some(address)) => self.means.guard.check(address, target.port),
            // Without a proxy the addresses are checked once they are known.
            (Host::Domain(name), _) if self.means.proxies.choose(target).is_some() => {
                self.means.guard.check_name(name, target.port)
            }
            _ => Ok(()),
        };
        checked.map_err(|reason| Error::Refused { host: target.host.to_string(), reason })
    }

    async fn directly(&self, target: &Target) -> Result<(Transport, SocketAddr), Error> {
        let mut addresses = match (&target.host, target.address()) {
            (_, Some(address)) => vec![address],
            (host, None) => self.means.resolver.resolve(&host.to_string(), self.lane).await?,
        };
        let mut refused = None;
        addresses.retain(|address| match self.means.guard.check(*address, target.port) {
            Ok(()) => true,
            Err(reason) => {
                tracing::debug!(%target, %address, reason, "egress rejected an address");
                refused = Some(reason);
                false
            }
        });
        match refused {
            Some(reason) if addresses.is_empty() => {
                Err(Error::Refused { host: target.host.to_string(), reason })
            }
            _ => dial(&addresses, target.port, self.means.address_timeout)
                .await
                .map(|(stream, peer)| (Transport::Left(stream), peer))
                .map_err(|error| Error::Unreachable { host: target.to_string(), reason: error.to_string() }),
        }
    }

    /// An operator configures the proxy, so it may be anywhere.
    async fn through(&self, proxy: &ProxyUrl, target: &Target) -> Result<(Transport, SocketAddr), Error> {
        let failed = |error: String| Error::Proxy { reason: format!("{proxy} is unreachable: {error}") };
        let addresses = match &proxy.host {
            Host::Domain(name) => {
                let found = self.means.resolver.resolve(name, Lane::Operator).await;
                found.map_err(|error| failed(error.to_string()))?
            }
            Host::Ipv4(address) => vec![(*address).into()],
            Host::Ipv6(address) => vec![(*address).into()],
        };
        let (mut stream, peer) = dial(&addresses, proxy.port, self.means.address_timeout)
            .await
            .map_err(|error| failed(error.to_string()))?;
        let stream = match &proxy.protocol {
            Protocol::Socks5 { login } => {
                socks::open(&mut stream, login.as_ref(), target).await?;
                Transport::Left(stream)
            }
            Protocol::Http { tls: false, authorization } => {
                tunnel::open(&mut stream, authorization.as_deref(), target).await?;
                Transport::Left(stream)
            }
            Protocol::Http { tls: true, authorization } => {
                let itself = Target { https: true, host: proxy.host.clone(), port: proxy.port };
                let stream = self.means.tls.handshake(&itself, Tls::alpn(&[HTTP_1_1]), stream).await;
                let mut stream = stream.map_err(|error| failed(error.to_string()))?;
                tunnel::open(&mut stream, authorization.as_deref(), target).await?;
                Transport::Right(Box::new(stream))
            }
        };
        Ok((stream, peer))
    }
}

impl fmt::Debug for Egress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Egress")
            .field("lane", &self.lane)
            .field("guard", &self.means.guard)
            .field("proxies", &self.means.proxies)
            .finish_non_exhaustive()
    }
}
