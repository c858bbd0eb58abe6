//! HTTP proxies: which one a connection goes through, if any.
//!
//! One is configured, or the variables that other programs honour too say it: `https_proxy`, `http_proxy`
//! by the scheme of the target, else `all_proxy`, each also in capitals (small letters win, as with curl);
//! `no_proxy` lists what is reached directly. Loopback is never asked of a proxy. Every connection is a
//! tunnel (`CONNECT`), also one without TLS. Proxies that are themselves reached by TLS or SOCKS are not
//! known.

use std::fmt;
use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ipnet::IpNet;
use percent_encoding::percent_decode_str;
use url::{Host, Url};

use crate::ConfigError;
use crate::target::Target;

pub(crate) mod tunnel;

/// A proxy's address and what it is told.
#[derive(Clone, PartialEq, Eq)]
pub struct ProxyUrl {
    pub(crate) host: Host<String>,
    pub(crate) port: u16,
    /// The value of `Proxy-Authorization` (RFC 7617).
    pub(crate) authorization: Option<String>,
}

impl ProxyUrl {
    /// `http://[user:password@]host[:port]`; the scheme may be missing. The error never shows the text.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let whole = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
        let url = Url::parse(&whole).map_err(|_| "it is not a URL such as \"http://proxy.example:3128\"")?;
        if url.scheme() != "http" {
            return Err("only proxies that are reached by http:// are known");
        }
        if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
            return Err("a proxy has no path");
        }
        let host = url.host().ok_or("it names no host")?.to_owned();
        let port = url.port().unwrap_or(80);
        if port == 0 {
            return Err("port 0 is no port");
        }
        let authorization = match (url.username(), url.password()) {
            ("", None) => None,
            (user, password) => {
                let mut plain: Vec<u8> = percent_decode_str(user).collect();
                // RFC 7617 §2: the colon divides them.
                if plain.contains(&b':') {
                    return Err("the user's name must not hold a colon");
                }
                plain.push(b':');
                plain.extend(percent_decode_str(password.unwrap_or_default()));
                Some(format!("Basic {}", STANDARD.encode(plain)))
            }
        };
        Ok(Self { host, port, authorization })
    }
}

/// Without what it is told.
impl fmt::Display for ProxyUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}:{}", self.host, self.port)
    }
}

impl fmt::Debug for ProxyUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProxyUrl({self})")
    }
}

/// Which proxy is for what. The default is none.
#[derive(Debug, Clone, Default)]
pub struct Proxies {
    http: Option<ProxyUrl>,
    https: Option<ProxyUrl>,
    direct: Vec<Direct>,
}

impl Proxies {
    /// One for everything.
    pub fn one(proxy: ProxyUrl) -> Self {
        Self { http: Some(proxy.clone()), https: Some(proxy), direct: Vec::new() }
    }

    /// What is reached directly, in the form of `no_proxy`, instead of what was said before.
    pub fn except(self, no_proxy: &str) -> Self {
        Self { direct: Direct::list(no_proxy), ..self }
    }

    /// By the variables of the environment, given as names with values.
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

    /// The one that `target` is to be reached through.
    pub fn choose(&self, target: &Target) -> Option<&ProxyUrl> {
        let proxy = if target.https { self.https.as_ref() } else { self.http.as_ref() }?;
        let direct = is_loopback(target) || self.direct.iter().any(|entry| entry.matches(target));
        (!direct).then_some(proxy)
    }
}

/// What the environment says is reached directly.
pub fn no_proxy(variables: &[(String, String)]) -> &str {
    variable(variables, "no_proxy").map_or("", |(_, value)| value)
}

/// In small letters or else in capitals; an empty one counts as unset.
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

/// An entry of `no_proxy`: `*`, a network, an address, or a name that stands for itself and all below it
/// (a dot before it changes nothing); each but `*` and networks may end with a port that has to be the same.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Direct {
    Everything,
    Network(IpNet),
    Address(IpAddr, Option<u16>),
    Name(String, Option<u16>),
}

impl Direct {
    /// Divided by commas or spaces. What is no entry matches nothing, as everywhere.
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
            // More colons are an address of version 6 without a port.
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
