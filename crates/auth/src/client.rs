//! Identifies the client of a connection or request, for limits, access logs and rate limits of failed log-ins. Nothing
//! else decides this.
//!
//! The client is the peer of the socket. If the peer is a trusted proxy, the client is the rightmost address in the
//! forwarding header that is not a trusted proxy: everything to its left is the client's own claim. Only one header is
//! trusted, because a proxy that writes one passes the other through unchanged.
//!
//! Limits count networks, not addresses: an IPv4 address, or an IPv6 /64, which is what one subscriber line gets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// The network by which limits count a client.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClientNetwork(u64);

impl ClientNetwork {
    /// No client, for connections without a socket. A multicast address, which is never a source address.
    pub const NONE: ClientNetwork = ClientNetwork(u64::MAX);
    /// Greater than all unicast prefixes (multicast is ff00::/8).
    const IPV4: u64 = 0xFFFF_FFFE_0000_0000;
    const LOOPBACK: ClientNetwork = ClientNetwork(Self::IPV4 | 0x7F00_0001);

    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(Self::IPV4 | u64::from(address.to_bits())),
            IpAddr::V6(address) if address.is_loopback() => Self::LOOPBACK,
            IpAddr::V6(address) => Self((address.to_bits() >> 64) as u64),
        }
    }

    /// The first address of the network.
    fn address(self) -> IpAddr {
        match self.0 {
            bits @ Self::IPV4.. => IpAddr::V4(Ipv4Addr::from_bits((bits & u64::from(u32::MAX)) as u32)),
            bits => IpAddr::V6(Ipv6Addr::from_bits(u128::from(bits) << 64)),
        }
    }
}

impl std::fmt::Display for ClientNetwork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.address() {
            _ if *self == Self::NONE => f.write_str("none"),
            IpAddr::V4(address) => write!(f, "{address}"),
            IpAddr::V6(address) => write!(f, "{address}/64"),
        }
    }
}

impl std::fmt::Debug for ClientNetwork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// The header that trusted proxies write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ForwardingHeader {
    #[default]
    XForwardedFor,
    /// RFC 7239.
    Forwarded,
}

impl ForwardingHeader {
    /// In lower case.
    pub fn name(self) -> &'static str {
        match self {
            ForwardingHeader::XForwardedFor => "x-forwarded-for",
            ForwardingHeader::Forwarded => "forwarded",
        }
    }
}

/// The proxies whose forwarding header is trusted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    pub networks: Vec<IpNet>,
    pub header: ForwardingHeader,
}

impl TrustedProxies {
    pub fn trusts(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.networks.iter().any(|network| network.contains(&address))
    }

    /// The client of a request from `peer`. `values` are the lines of [`ForwardingHeader::name`], in their order; they
    /// are ignored unless the peer is trusted.
    ///
    /// A hop that is not an address (`unknown`, `_hidden`, nonsense) ends the search, because an untrusted party wrote
    /// everything to its left. The result is then the last trusted hop. Parsing runs from right to left, so nothing
    /// that a client writes changes how the proxies' entries are read.
    pub fn client<'a>(&self, peer: IpAddr, values: impl DoubleEndedIterator<Item = &'a [u8]>) -> IpAddr {
        let mut client = peer.to_canonical();
        if !self.trusts(client) {
            return client;
        }
        for value in values.rev() {
            for hop in rsplit_unquoted(value, b',') {
                match self.hop(hop) {
                    Some(address) => client = address,
                    None => return client,
                }
                if !self.trusts(client) {
                    return client;
                }
            }
        }
        client
    }

    fn hop(&self, hop: &[u8]) -> Option<IpAddr> {
        let node = match self.header {
            ForwardingHeader::XForwardedFor => std::str::from_utf8(hop).ok()?,
            ForwardingHeader::Forwarded => rsplit_unquoted(hop, b';').find_map(|pair| {
                let (name, value) = std::str::from_utf8(pair).ok()?.trim().split_once('=')?;
                name.eq_ignore_ascii_case("for").then_some(value)
            })?,
        };
        address(node.trim().trim_matches('"'))
    }
}

/// `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]`, `[2001:db8::1]:80`.
fn address(node: &str) -> Option<IpAddr> {
    let parsed: Option<IpAddr> = match node.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?.0.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        None => {
            node.parse().ok().or_else(|| node.rsplit_once(':')?.0.parse::<Ipv4Addr>().ok().map(IpAddr::V4))
        }
    };
    parsed.map(|address| address.to_canonical())
}

/// The parts of a value between separators outside quotes, last first.
fn rsplit_unquoted(value: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let mut quoted = false;
    value.rsplit(move |byte| {
        quoted ^= *byte == b'"';
        *byte == separator && !quoted
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_network_is_an_ipv4_address_or_an_ipv6_64() {
        let same = |a: &str, b: &str| ClientNetwork::of(ip(a)) == ClientNetwork::of(ip(b));
        assert!(same("192.0.2.1", "::ffff:192.0.2.1"));
        assert!(!same("192.0.2.1", "192.0.2.2"));
        assert!(same("2001:db8:1:2::1", "2001:db8:1:2:ffff::9"));
        assert!(!same("2001:db8:1:2::1", "2001:db8:1:3::1"));
        assert!(same("::1", "127.0.0.1"), "the same machine");
        assert_eq!(ClientNetwork::of(ip("2001:db8:1:2::1")).to_string(), "2001:db8:1:2::/64");
        assert_eq!(ClientNetwork::of(ip("192.0.2.1")).to_string(), "192.0.2.1");
        assert_ne!(ClientNetwork::of(ip("255.255.255.255")), ClientNetwork::NONE);
    }

    #[test]
    fn the_client_is_the_rightmost_hop_that_is_not_trusted() {
        let proxies = TrustedProxies {
            networks: vec!["10.0.0.0/8".parse().expect("a network"), "fd00::/8".parse().expect("a network")],
            header: ForwardingHeader::XForwardedFor,
        };
        let check = |peer: &str, values: &[&str], expected: &str| {
            let values_bytes = values.iter().map(|value| value.as_bytes());
            assert_eq!(proxies.client(ip(peer), values_bytes), ip(expected), "{peer} {values:?}");
        };
        check("198.51.100.1", &["192.0.2.1"], "198.51.100.1"); // not trusted
        check("10.0.0.1", &[], "10.0.0.1");
        check("::ffff:10.0.0.1", &["192.0.2.1"], "192.0.2.1");
        check("10.0.0.1", &["192.0.2.1"], "192.0.2.1");
        check("10.0.0.1", &["203.0.113.9, 192.0.2.1"], "192.0.2.1"); // the client wrote the first itself
        check("10.0.0.1", &["192.0.2.1, 10.0.0.2, fd00::1"], "192.0.2.1");
        check("10.0.0.1", &["203.0.113.9", "192.0.2.1", "10.2.3.4"], "192.0.2.1");
        check("10.0.0.1", &["10.0.0.9, 10.0.0.2"], "10.0.0.9");
        check("10.0.0.1", &["203.0.113.9, junk, 10.0.0.2"], "10.0.0.2");
        check("10.0.0.1", &[""], "10.0.0.1");
        check("10.0.0.1", &["192.0.2.1:4711"], "192.0.2.1");
        check("10.0.0.1", &["[2001:db8::1]:80"], "2001:db8::1");
        check("10.0.0.1", &["2001:db8::1"], "2001:db8::1");
        check("10.0.0.1", &["203.0.113.9 ,\t 192.0.2.1  ,10.0.0.2 "], "192.0.2.1");
        check("10.0.0.1", &["[fd00::2]:443", "[2001:db8::1] , fd00::1"], "2001:db8::1");
        check("10.0.0.1", &["::ffff:192.0.2.1"], "192.0.2.1");
        for nonsense in
            ["unknown", "192.0.2.1:x:y", "192.0.2", "[2001:db8::1", "fe80::1%eth0", "-", "\u{7f}", ","]
        {
            check("10.0.0.1", &["203.0.113.9", nonsense], "10.0.0.1");
        }
    }

    #[test]
    fn a_client_cannot_forge_the_entries_of_its_proxy() {
        let networks = vec!["10.0.0.0/8".parse().expect("a network")];
        for (header, proxys) in
            [(ForwardingHeader::XForwardedFor, "192.0.2.1"), (ForwardingHeader::Forwarded, "for=192.0.2.1")]
        {
            let proxies = TrustedProxies { networks: networks.clone(), header };
            for begin in
                [&b"\""[..], b"for=\"", b"\xff", b"for=\xff", b"\xc3", b"\0", b"for=\"_a\\", b";\"", b""]
            {
                let value = [begin, b", ", proxys.as_bytes()].concat();
                let client = proxies.client(ip("10.0.0.1"), [&value[..]].into_iter());
                assert_eq!(client, ip("192.0.2.1"), "{}", String::from_utf8_lossy(&value));
            }
        }
    }

    #[test]
    fn forwarded_follows_rfc_7239() {
        let proxies = TrustedProxies {
            networks: vec!["10.0.0.0/8".parse().expect("a network")],
            header: ForwardingHeader::Forwarded,
        };
        let check = |value: &str, expected: &str| {
            let client = proxies.client(ip("10.0.0.1"), [value.as_bytes()].into_iter());
            assert_eq!(client, ip(expected), "{value}");
        };
        check("for=192.0.2.43;proto=https, for=10.0.0.2;by=10.0.0.1", "192.0.2.43");
        check("For=\"[2001:db8:cafe::17]:4711\"", "2001:db8:cafe::17");
        check("for=192.0.2.1, for=unknown", "10.0.0.1");
        check("for=192.0.2.1, for=\"_a,b;c\"", "10.0.0.1");
        check("proto=https", "10.0.0.1");
    }
}
