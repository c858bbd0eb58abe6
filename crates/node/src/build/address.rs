//! The node's base URLs for clients on the same machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::config::{Config, TlsFiles};
use crate::data::Addresses;

/// `http` and `admin`: the bound addresses.
pub(super) fn addresses(config: &Config, http: SocketAddr, admin: SocketAddr) -> Addresses {
    Addresses {
        http: base_url(http, config.server.tls.as_ref()),
        admin: base_url(admin, config.server.admin_tls.as_ref()),
    }
}

fn base_url(address: SocketAddr, tls: Option<&TlsFiles>) -> String {
    let port = address.port();
    match (tls, address.ip()) {
        // Certificates name hosts, and `localhost` is valid on every machine.
        (Some(_), ip) if ip.is_unspecified() || ip.is_loopback() => format!("https://localhost:{port}"),
        (Some(_), _) => format!("https://{address}"),
        (None, IpAddr::V4(ip)) if ip.is_unspecified() => format!("http://{}:{port}", Ipv4Addr::LOCALHOST),
        (None, IpAddr::V6(ip)) if ip.is_unspecified() => format!("http://[{}]:{port}", Ipv6Addr::LOCALHOST),
        (None, _) => format!("http://{address}"),
    }
}
