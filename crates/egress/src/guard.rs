//! Protects against server-side request forgery: rejects addresses outside the public Internet, and ports of other
//! protocols that would accept an HTTP request.
//!
//! Of a name's addresses only those that pass are connected to; the name is rejected if none passes. Networks that an
//! operator allows pass on any port. Other ports are free, because push services and identity servers choose their own.
//!
//! The tables are the IANA special-purpose address registries (RFC 6890; iana-ipv4-special-registry,
//! iana-ipv6-special-registry), multicast, and addresses of clouds' metadata services. Globally reachable blocks inside
//! a rejected one (192.0.0.9, parts of 2001::/23) have no web servers and stay rejected.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

const fn v4(a: u8, b: u8, c: u8, d: u8, prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6(a: u16, b: u16, c: u16, prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0), prefix)
}

/// The kind of each block, for the log.
const SPECIAL_V4: [(Ipv4Net, &str); 17] = [
    (v4(0, 0, 0, 0, 8), "this network"), // RFC 791 §3.2; 0.0.0.0 connects to this machine
    (v4(10, 0, 0, 0, 8), "private"),     // RFC 1918
    (v4(100, 64, 0, 0, 10), "carrier-grade NAT"), // RFC 6598; 100.100.100.200 is a metadata service
    (v4(127, 0, 0, 0, 8), "loopback"),   // RFC 1122 §3.2.1.3
    (v4(168, 63, 129, 16, 32), "platform service"), // a public address that Azure serves inside its networks
    (v4(169, 254, 0, 0, 16), "link-local"), // RFC 3927; 169.254.169.254 is the metadata service
    (v4(172, 16, 0, 0, 12), "private"),  // RFC 1918
    (v4(192, 0, 0, 0, 24), "protocol assignment"), // RFC 6890 §2.1; 192.0.0.192 is a metadata service
    (v4(192, 0, 2, 0, 24), "documentation"), // RFC 5737
    (v4(192, 88, 99, 0, 24), "6to4 relay"), // RFC 7526
    (v4(192, 168, 0, 0, 16), "private"), // RFC 1918
    (v4(198, 18, 0, 0, 15), "benchmarking"), // RFC 2544
    (v4(198, 51, 100, 0, 24), "documentation"), // RFC 5737
    (v4(203, 0, 113, 0, 24), "documentation"), // RFC 5737
    (v4(224, 0, 0, 0, 4), "multicast"),  // RFC 5771
    (v4(240, 0, 0, 0, 4), "reserved"),   // RFC 1112 §4
    (v4(255, 255, 255, 255, 32), "limited broadcast"), // RFC 919 §7; 240.0.0.0/4 holds it, the registry has it too
];

/// Only this block is global unicast (RFC 4291 §2.4, iana-ipv6-address-space). Outside are `::`, `::1`, IPv4-compatible
/// `::/96` (RFC 4291 §2.5.5.1), discard-only `100::/64` (RFC 6666), segment routing `5f00::/16` (RFC 9602), unique
/// local `fc00::/7` (RFC 4193), link-local `fe80::/10`, site-local `fec0::/10` (RFC 3879) and multicast `ff00::/8`.
const GLOBAL_V6: Ipv6Net = v6(0x2000, 0, 0, 3);

/// Blocks inside global unicast.
const SPECIAL_V6: [(Ipv6Net, &str); 4] = [
    (v6(0x2001, 0, 0, 23), "protocol assignment"), // RFC 2928; Teredo 2001::/32 (RFC 4380), benchmarking, ORCHID
    (v6(0x2001, 0xdb8, 0, 32), "documentation"),   // RFC 3849
    (v6(0x2002, 0, 0, 16), "6to4"),                // RFC 3056; leads to any IPv4 address, private ones too
    (v6(0x3fff, 0, 0, 20), "documentation"),       // RFC 9637
];

/// RFC 6052 §2.1: behind NAT64 every IPv4 server has such an address. It must not represent a private one (§3.1), so
/// the embedded address decides. `64:ff9b:1::/48` (RFC 8215) is local and rejected.
const NAT64: Ipv6Net = v6(0x64, 0xff9b, 0, 96);

/// The "bad ports" of the Fetch standard §2.9: ports of protocols other than HTTP.
const BAD_PORTS: [u16; 83] = [
    0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103,
    104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514,
    515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723,
    2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080,
];

/// The kind of a non-public address.
pub fn special(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => special_v4(address),
        IpAddr::V6(address) => special_v6(address),
    }
}

fn special_v4(address: Ipv4Addr) -> Option<&'static str> {
    SPECIAL_V4.iter().find(|(net, _)| net.contains(&address)).map(|(_, what)| *what)
}

fn special_v6(address: Ipv6Addr) -> Option<&'static str> {
    // RFC 4291 §2.5.5.2: the system connects to the embedded IPv4 address.
    if let Some(inside) = address.to_ipv4_mapped() {
        return special_v4(inside);
    }
    if NAT64.contains(&address) {
        let [.., a, b, c, d] = address.octets();
        return special_v4(Ipv4Addr::new(a, b, c, d));
    }
    match GLOBAL_V6.contains(&address) {
        true => SPECIAL_V6.iter().find(|(net, _)| net.contains(&address)).map(|(_, what)| *what),
        false => Some("not global unicast"),
    }
}

/// Decides what may be connected to.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    allow: Vec<IpNet>,
}

impl Guard {
    pub fn new(allow: Vec<IpNet>) -> Self {
        Self { allow }
    }

    /// Whether an operator allows the address.
    pub fn allows(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.allow.iter().any(|net| net.contains(&address))
    }

    /// The text is public and does not reveal the addresses of a name.
    pub fn check(&self, address: IpAddr, port: u16) -> Result<(), &'static str> {
        if self.allows(address) {
            return Ok(());
        }
        self.check_port(port)?;
        match special(address) {
            Some(_) => Err("not a public address"),
            None => Ok(()),
        }
    }

    /// Checks a name whose addresses are unknown here.
    pub fn check_name(&self, name: &str, port: u16) -> Result<(), &'static str> {
        // RFC 6761 §6.3: always loopback.
        let local = name == "localhost" || name.ends_with(".localhost");
        match local {
            true => Err("not a public address"),
            false => self.check_port(port),
        }
    }

    fn check_port(&self, port: u16) -> Result<(), &'static str> {
        match BAD_PORTS.binary_search(&port) {
            Ok(_) => Err("the port belongs to a protocol other than HTTP"),
            Err(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect(text)
    }

    #[test]
    fn special_addresses_are_rejected_in_every_form() {
        for (text, what) in [
            ("0.0.0.0", "this network"),
            ("0.1.2.3", "this network"),
            ("10.255.255.255", "private"),
            ("100.64.0.1", "carrier-grade NAT"),
            ("100.127.255.255", "carrier-grade NAT"),
            ("127.0.0.1", "loopback"),
            ("127.255.255.254", "loopback"),
            ("168.63.129.16", "platform service"),
            ("169.254.169.254", "link-local"),
            ("172.16.0.1", "private"),
            ("172.31.255.255", "private"),
            ("192.0.0.192", "protocol assignment"),
            ("192.0.2.1", "documentation"),
            ("192.88.99.1", "6to4 relay"),
            ("192.168.1.1", "private"),
            ("198.19.255.255", "benchmarking"),
            ("198.51.100.7", "documentation"),
            ("203.0.113.7", "documentation"),
            ("224.0.0.1", "multicast"),
            ("239.255.255.255", "multicast"),
            ("240.0.0.1", "reserved"),
            ("255.255.255.255", "reserved"),
            ("::", "not global unicast"),
            ("::1", "not global unicast"),
            ("::7f00:1", "not global unicast"),
            ("::8.8.8.8", "not global unicast"),
            ("::ffff:10.0.0.1", "private"),
            ("::ffff:169.254.169.254", "link-local"),
            ("64:ff9b::127.0.0.1", "loopback"),
            ("64:ff9b::10.0.0.1", "private"),
            ("64:ff9b::169.254.169.254", "link-local"),
            ("64:ff9b:1::8.8.8.8", "not global unicast"),
            ("100::1", "not global unicast"),
            ("2001::1", "protocol assignment"),
            ("2001:0:7f00:1::1", "protocol assignment"),
            ("2001:2::1", "protocol assignment"),
            ("2001:20::1", "protocol assignment"),
            ("2001:1ff:ffff::1", "protocol assignment"),
            ("2001:db8::1", "documentation"),
            ("2002:7f00:1::1", "6to4"),
            ("2002:0a00:1::1", "6to4"),
            ("3fff::1", "documentation"),
            ("3fff:fff:ffff::1", "documentation"),
            ("4000::1", "not global unicast"),
            ("5f00::1", "not global unicast"),
            ("fc00::1", "not global unicast"),
            ("fd00:ec2::254", "not global unicast"),
            ("fe80::1", "not global unicast"),
            ("fec0::1", "not global unicast"),
            ("ff02::1", "not global unicast"),
        ] {
            assert_eq!(special(ip(text)), Some(what), "{text}");
            assert!(Guard::default().check(ip(text), 443).is_err(), "{text}");
        }
    }

    #[test]
    fn public_addresses_pass_to_the_edge_of_every_block() {
        for text in [
            "1.0.0.0",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "17.188.143.1",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "168.63.129.15",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.88.98.255",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "::ffff:8.8.8.8",
            "64:ff9b::8.8.8.8",
            "2000::1",
            "2001:200::1",
            "2001:db7:ffff::1",
            "2001:db9::1",
            "2003::1",
            "2606:4700::1111",
            "2a00:1450:4001::1",
            "3fff:1000::1",
        ] {
            assert_eq!(special(ip(text)), None, "{text}");
            assert_eq!(Guard::default().check(ip(text), 8443), Ok(()), "{text}");
        }
    }

    #[test]
    fn allowed_networks_pass_in_every_form_and_on_any_port() {
        let nets = ["10.1.0.0/16", "::1/128"].map(|net| net.parse().expect("a network"));
        let guard = Guard::new(nets.to_vec());
        for (text, passes) in [
            ("10.1.2.3", true),
            ("::ffff:10.1.2.3", true),
            ("10.2.0.1", false),
            ("::1", true),
            ("127.0.0.1", false),
            ("64:ff9b::10.1.2.3", false),
        ] {
            assert_eq!(guard.check(ip(text), 25).is_ok(), passes, "{text}");
            assert_eq!(guard.check(ip(text), 443).is_ok(), passes, "{text}");
        }
    }

    #[test]
    fn ports_of_other_protocols_are_rejected() {
        assert!(BAD_PORTS.is_sorted());
        let guard = Guard::default();
        for port in [22, 25, 53, 587, 6667, 10080] {
            assert!(guard.check(ip("8.8.8.8"), port).is_err(), "{port}");
            assert!(guard.check_name("example.com", port).is_err(), "{port}");
        }
        for port in [80, 443, 2197, 5228, 8080, 8443] {
            assert_eq!(guard.check(ip("8.8.8.8"), port), Ok(()), "{port}");
        }
        assert!(guard.check_name("localhost", 443).is_err() && guard.check_name("a.localhost", 443).is_err());
        assert_eq!(guard.check_name("notlocalhost", 443), Ok(()));
    }
}
