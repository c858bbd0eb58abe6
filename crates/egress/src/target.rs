//! The target of a connection: scheme, host and port, with the host in a canonical form. A literal address becomes an
//! address however it is written (`127.1`, `0x7f000001`, `2130706433`, `[::ffff:127.0.0.1]`: WHATWG URL §3.5 and §4.3);
//! everything else is an ASCII name.

use std::fmt;
use std::net::IpAddr;

use url::{Host, Position, Url};

use crate::Error;

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub https: bool,
    pub host: Host<String>,
    pub port: u16,
}

impl Target {
    /// `host` is a name or an address; IPv6 may be in brackets.
    pub fn new(https: bool, host: &str, port: u16) -> Result<Self, Error> {
        let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        let host = match bare.parse() {
            Ok(IpAddr::V6(address)) => Host::Ipv6(address),
            _ => Host::parse(host).map_err(|_| Error::Invalid("no host"))?,
        };
        let host = match host {
            // A name may end with the root's dot (RFC 1034 §3.1); certificates and lists omit it.
            Host::Domain(name) => Host::Domain(name.strip_suffix('.').unwrap_or(&name).to_owned()),
            address => address,
        };
        match host {
            // RFC 1035 §2.3.4
            Host::Domain(name) if name.is_empty() || name.len() > 253 => Err(Error::Invalid("no host")),
            _ if port == 0 => Err(Error::Invalid("port 0")),
            host => Ok(Self { https, host, port }),
        }
    }

    /// Parses an `http` or `https` URL without credentials into target and path with query.
    pub fn of_url(text: &str) -> Result<(Self, String), Error> {
        let url = Url::parse(text).map_err(|_| Error::Invalid("not a URL"))?;
        let https = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return Err(Error::Invalid("neither http nor https")),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Error::Invalid("it contains a user name or a password"));
        }
        let host = url.host_str().ok_or(Error::Invalid("no host"))?;
        let port = url.port_or_known_default().ok_or(Error::Invalid("no port"))?;
        let path = url[Position::BeforePath..Position::AfterQuery].to_owned();
        Ok((Self::new(https, host, port)?, path))
    }

    /// The address, if the host is a literal address.
    pub fn address(&self) -> Option<IpAddr> {
        match self.host {
            Host::Domain(_) => None,
            Host::Ipv4(address) => Some(address.into()),
            Host::Ipv6(address) => Some(address.into()),
        }
    }

    /// The value of a `Host` header: without the scheme's default port (RFC 9110 §4.2.3).
    pub fn authority(&self) -> String {
        let implied = if self.https { 443 } else { 80 };
        match self.port == implied {
            true => self.host.to_string(),
            false => self.to_string(),
        }
    }
}

/// `host:port`
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literal_addresses_are_recognized_in_every_form() {
        for (text, address) in [
            ("127.0.0.1", "127.0.0.1"),
            ("127.1", "127.0.0.1"),
            ("2130706433", "127.0.0.1"),
            ("0x7f000001", "127.0.0.1"),
            ("0177.0.0.1", "127.0.0.1"),
            ("127.0.0.1.", "127.0.0.1"),
            ("%31%32%37.0.0.1", "127.0.0.1"),
            ("１２７.0.0.1", "127.0.0.1"),
            ("[::1]", "::1"),
            ("::1", "::1"),
            ("[::ffff:127.0.0.1]", "::ffff:127.0.0.1"),
            ("[0:0:0:0:0:ffff:7f00:1]", "::ffff:127.0.0.1"),
        ] {
            let target = Target::new(true, text, 443).expect(text);
            assert_eq!(target.address(), Some(address.parse().expect("an address")), "{text}");
        }
        for bad in ["", "[::1", "a b", "a/b", "a@b", "a:80", "256.0.0.1", "[fe80::1%25eth0]", "."] {
            assert!(matches!(Target::new(true, bad, 443), Err(Error::Invalid(_))), "{bad}");
        }
        assert!(Target::new(true, "example.com", 0).is_err());
        assert!(Target::new(true, &"a.".repeat(127), 443).is_ok());
        assert!(Target::new(true, &"a.".repeat(128), 443).is_err());
    }

    #[test]
    fn names_are_ascii_in_lower_case_without_the_roots_dot() {
        let name = |text| Target::new(true, text, 443).expect(text).host.to_string();
        assert_eq!(name("EXAMPLE.com."), "example.com");
        assert_eq!(name("bücher.example"), "xn--bcher-kva.example");
    }

    #[test]
    fn a_url_gives_target_and_path() {
        let check = |text: &str, shown: &str, authority: &str, path: &str| {
            let (target, its_path) = Target::of_url(text).expect(text);
            assert_eq!((target.to_string().as_str(), its_path.as_str()), (shown, path));
            assert_eq!(target.authority(), authority);
        };
        check("https://a.example", "a.example:443", "a.example", "/");
        check("http://a.example:8080/k?x=1#y", "a.example:8080", "a.example:8080", "/k?x=1");
        check("https://[::1]:443/p", "[::1]:443", "[::1]", "/p");
        for bad in
            ["", "a.example", "ftp://a.example/", "https://u@a.example/", "https://:p@a.example/", "http://"]
        {
            assert!(matches!(Target::of_url(bad), Err(Error::Invalid(_))), "{bad}");
        }
    }
}
