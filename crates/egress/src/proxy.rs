//! Proxies: selects the proxy of a connection, if any. `tunnel` speaks to HTTP proxies, `socks` to those of SOCKS5.
//!
//! It is configured, or comes from the usual environment variables: `https_proxy` or `http_proxy` by the scheme of the
//! target, else `all_proxy`, each also in upper case (lower case wins, as with curl); `no_proxy` lists direct targets.
//! Loopback never uses a proxy. Every connection is a tunnel (`CONNECT`), also without TLS, and the proxy resolves names.

use std::fmt;
use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ipnet::IpNet;
use percent_encoding::percent_decode_str;
use url::{Host, Url};

use crate::ConfigError;
use crate::target::Target;

pub(crate) mod socks;
pub(crate) mod tunnel;

/// A proxy's address and credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct ProxyUrl {
    pub(crate) host: Host<String>,
    pub(crate) port: u16,
    pub(crate) protocol: Protocol,
}

/// How to speak to a proxy.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http {
        /// The connection to the proxy uses TLS.
        tls: bool,
        /// The value of `Proxy-Authorization` (RFC 7617).
        authorization: Option<String>,
    },
    Socks5 {
        login: Option<Login>,
    },
}

/// Each of 1 to 255 bytes (RFC 1929 §2).
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) user: Vec<u8>,
    pub(crate) password: Vec<u8>,
}

impl ProxyUrl {
    /// `http://[user:password@]host[:port]`, or with `https`, `socks5` or `socks5h` (the same: the proxy resolves names); the
    /// scheme `http` is optional. The error never shows the text.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let whole = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let url = Url::parse(&whole).map_err(|_| "must be a URL such as \"http://proxy.example:3128\"")?;
        let (default_port, socks) = match url.scheme() {
            "http" => (80, false),
            "https" => (443, false),
            "socks5" | "socks5h" => (1_080, true),
            _ => {
                return Err(
                    "must begin with http://, https:// or socks5://: other proxies are not supported",
                );
            }
        };
        if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
            return Err("must have no path");
        }
        // Again: the host of a scheme that the URL standard does not know is any text.
        let host = Host::parse(url.host_str().unwrap_or_default()).map_err(|_| "must name a host")?;
        let port = url.port().unwrap_or(default_port);
        if port == 0 {
            return Err("must have a port other than 0");
        }
        let login = match (url.username(), url.password()) {
            ("", None) => None,
            (user, password) => Some(Login {
                user: percent_decode_str(user).collect(),
                password: percent_decode_str(password.unwrap_or_default()).collect(),
            }),
        };
        let protocol = match socks {
            false => Protocol::Http { tls: url.scheme() == "https", authorization: basic(login)? },
            true => Protocol::Socks5 { login: limited(login)? },
        };
        Ok(Self { host, port, protocol })
    }

    fn scheme(&self) -> &'static str {
        match self.protocol {
            Protocol::Http { tls: false, .. } => "http",
            Protocol::Http { tls: true, .. } => "https",
            Protocol::Socks5 { .. } => "socks5",
        }
    }
}

fn basic(login: Option<Login>) -> Result<Option<String>, &'static str> {
    let Some(Login { user, password }) = login else { return Ok(None) };
    // RFC 7617 §2: a colon separates them.
    if user.contains(&b':') {
        return Err("must have no colon in the user name");
    }
    let plain = [&user[..], b":", &password].concat();
    Ok(Some(format!("Basic {}", STANDARD.encode(plain))))
}

fn limited(login: Option<Login>) -> Result<Option<Login>, &'static str> {
    let fits = |text: &[u8]| (1..=255).contains(&text.len());
    match login {
        Some(login) if !fits(&login.user) || !fits(&login.password) => {
            Err("must have a user and a password of 1 to 255 bytes, or neither")
        }
        login => Ok(login),
    }
}

/// Without credentials.
impl fmt::Display for ProxyUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:{}", self.scheme(), self.host, self.port)
    }
}

impl fmt::Debug for ProxyUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProxyUrl({self})")
    }
}

/// Selects proxies. The default selects none.
#[derive(Debug, Clone, Default)]
pub struct Proxies {
    http: Option<ProxyUrl>,
    https: Option<ProxyUrl>,
    direct: Vec<Direct>,
}

impl Proxies {
    /// One proxy for everything.
    pub fn one(proxy: ProxyUrl) -> Self {
        Self { http: Some(proxy.clone()), https: Some(proxy), direct: Vec::new() }
    }

    /// Replaces the list of direct targets, in the form of `no_proxy`.
    pub fn except(self, no_proxy: &str) -> Self {
        Self { direct: Direct::list(no_proxy), ..self }
    }

    /// From environment variables, given as pairs of name and value.
    pub fn from_environment(variables: &[(String, String)]) -> Result<Self, ConfigError> {
        let read = |scheme: &str| {
            let own = variable(variables, &format!("{scheme}_proxy"));
            let Some((name, value)) = own.or_else(|| variable(variables, "all_proxy")) else {
                return Ok(None);
            };
            ProxyUrl::parse(value)
                .map(Some)
                .map_err(|reason| ConfigError::Proxy { name: name.to_owned(), reason })
        };
        let proxies = Self { http: read("http")?, https: read("https")?, direct: Vec::new() };
        Ok(proxies.except(no_proxy(variables)))
    }

    /// The proxy for `target`.
    pub fn choose(&self, target: &Target) -> Option<&ProxyUrl> {
        let proxy = if target.https { self.https.as_ref() } else { self.http.as_ref() }?;
        let direct = is_loopback(target) || self.direct.iter().any(|entry| entry.matches(target));
        (!direct).then_some(proxy)
    }
}

/// The value of `no_proxy` in the environment.
pub fn no_proxy(variables: &[(String, String)]) -> &str {
    variable(variables, "no_proxy").map_or("", |(_, value)| value)
}

/// Lower case first, then upper case; an empty variable counts as unset.
fn variable<'a>(variables: &'a [(String, String)], name: &str) -> Option<(&'a str, &'a str)> {
    let capitals = name.to_ascii_uppercase();
    let find = |name: &str| variables.iter().find(|(its_name, value)| its_name == name && !value.is_empty());
    find(name).or_else(|| find(&capitals)).map(|(name, value)| (name.as_str(), value.as_str()))
}

fn is_loopback(target: &Target) -> bool {
    match &target.host {
        Host::Domain(name) => name == "localhost" || name.ends_with(".localhost"),
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => IpAddr::from(*address).to_canonical().is_loopback(),
    }
}

/// An entry of `no_proxy`: `*`, a network, an address, or a name that includes all names below it (with or without a
/// leading dot). Names and addresses may have a port, which then must match.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Direct {
    Everything,
    Network(IpNet),
    Address(IpAddr, Option<u16>),
    Name(String, Option<u16>),
}

impl Direct {
    /// Separated by commas or spaces. An invalid entry matches nothing, as in other programs.
    fn list(text: &str) -> Vec<Self> {
        text.split([',', ' ', '\t']).filter(|entry| !entry.is_empty()).map(Self::parse).collect()
    }

    fn parse(text: &str) -> Self {
        if text == "*" {
            return Self::Everything;
        }
        if let Ok(net) = text.parse() {
            return Self::Network(net);
        }
        let (host, port) = match text.rsplit_once(':').map(|(host, port)| (host, port.parse())) {
            // Several colons: an IPv6 address without a port.
            Some((host, Ok(port))) if !host.contains(':') || host.ends_with(']') => (host, Some(port)),
            _ => (text, None),
        };
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        match bare.parse() {
            Ok(address) => Self::Address(address, port),
            Err(_) => {
                let name = host.trim_start_matches("*.").trim_start_matches('.').trim_end_matches('.');
                Self::Name(name.to_ascii_lowercase(), port)
            }
        }
    }

    fn matches(&self, target: &Target) -> bool {
        let port_is = |port: &Option<u16>| port.is_none_or(|port| port == target.port);
        match (self, &target.host) {
            (Self::Everything, _) => true,
            (Self::Name(name, port), Host::Domain(domain)) => {
                let above = |rest: &str| rest.is_empty() || rest.ends_with('.');
                port_is(port) && !name.is_empty() && domain.strip_suffix(name.as_str()).is_some_and(above)
            }
            (Self::Network(net), _) => target.address().is_some_and(|ip| net.contains(&ip.to_canonical())),
            (Self::Address(address, port), _) => {
                port_is(port)
                    && target.address().is_some_and(|ip| ip.to_canonical() == address.to_canonical())
            }
            (Self::Name(..), _) => false,
        }
    }
}

#[cfg(test)]
mod tests;
