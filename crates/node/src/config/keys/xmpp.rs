//! Keys of XMPP, and the rules between them.

use std::net::SocketAddr;
use std::time::Duration;

use noroshi_gateway::xmpp::Account;

use super::{HOUR, SECOND, Server, host_and_port, tcp_url};
use crate::config::reader::Reader;

section! {
    /// Listeners of XMPP, each optional, and settings of its protocol.
    #[derive(Debug, Clone, PartialEq, Eq)]
    Xmpp(reader, server: &Server) {
        /// Address for XMPP with STARTTLS, such as 0.0.0.0:5222, with the certificate of tls.cert. Unset:
        /// none. XMPP over WebSocket is always available at /xmpp of the public address.
        pub listen: Option<SocketAddr> = optional_address("xmpp.listen", 5222),
        /// Address for XMPP with direct TLS, such as 0.0.0.0:5223, with the certificate of tls.cert. Unset:
        /// none.
        pub tls_listen: Option<SocketAddr> = optional_address("xmpp.tls_listen", 5223),
        /// Public URL of XMPP over TCP (xmpps:// for direct TLS, xmpp:// for STARTTLS), which nodes with
        /// the role api return as xmpp_tcp. One name for all nodes, such as that of a TCP load balancer.
        /// Unset: not returned.
        pub public_url: Option<String> = optional(
            "xmpp.public_url",
            ("url", "xmpps:// or xmpp:// and HOST:PORT"),
            |text| tcp_url(text, ["xmpps", "xmpp"]),
        ),
        /// Domain of the addresses (DEVICE@DOMAIN), which clients name when they connect. Default: the host
        /// of server.public_url, otherwise localhost.
        pub domain: String = text("xmpp.domain", default_domain(server), ("name", "a host name"), domain_name),
        /// Allows log-ins without TLS on xmpp.listen. With `server.dev` the default is true.
        pub plaintext: bool = switch("xmpp.plaintext", server.dev),
        /// Server to which a drain redirects clients (see-other-host), HOST:PORT. Unset: the node reports
        /// its shutdown to clients, and they reconnect to the same name.
        pub redirect: Option<String> = optional("xmpp.redirect", ("text", "HOST:PORT"), host_and_port),
        /// How long a session without a connection can be resumed (XEP-0198). 0s: never.
        pub resume: Duration = duration("xmpp.resume", Duration::from_secs(300), Duration::ZERO..=HOUR),
        /// Conformance only.
        pub accounts: Vec<Account> = value(accounts(reader)),
    }
}

impl Xmpp {
    /// Rules between keys.
    pub(in crate::config) fn check(&self, reader: &mut Reader, server: &Server) {
        let has_certificate = server.tls.is_some();
        if self.tls_listen.is_some() && !has_certificate {
            reader.problem("xmpp.tls_listen", "needs a certificate: tls.cert and tls.key");
        }
        if self.listen.is_some() && !has_certificate && !self.plaintext {
            reader.problem(
                "xmpp.listen",
                "needs a certificate for STARTTLS: tls.cert and tls.key, or xmpp.plaintext",
            );
        }
        if !self.accounts.is_empty() && !server.conformance {
            reader.problem("xmpp.accounts", "needs server.conformance: devices log in with their tokens");
        }
        if self.resume > Duration::ZERO && self.resume < SECOND {
            reader.problem("xmpp.resume", "is counted in seconds: at least 1s, or 0s for never");
        }
    }
}

fn accounts(reader: &mut Reader) -> Vec<Account> {
    let help = "Accounts for conformance suites, which can register more and exchange messages. Requires server.conformance.";
    let given = reader.secret("xmpp.accounts", "NAME:PASSWORD, separated by commas", help);
    let mut accounts = Vec::new();
    for given in given.iter().flat_map(|text| text.split(',')) {
        match given.trim().split_once(':') {
            Some((name, password)) if !name.is_empty() && !password.is_empty() => {
                accounts.push(Account { name: name.into(), password: password.into() });
            }
            // Not quoted, since it may be a password.
            _ => reader.problem("xmpp.accounts", "expected NAME:PASSWORD with commas between them"),
        }
    }
    accounts
}

fn default_domain(server: &Server) -> &str {
    server.public_url.as_deref().and_then(host_of).unwrap_or("localhost")
}

/// The host of a valid URL.
fn host_of(url: &str) -> Option<&str> {
    let rest = url.split_once("://")?.1;
    let host = if rest.starts_with('[') { rest } else { rest.split(':').next()? };
    domain_name(host).ok().map(|()| host)
}

pub(super) fn domain_name(text: &str) -> Result<(), String> {
    let is_label = |label: &str| {
        !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    match text.split('.').all(is_label) && text.len() <= 253 {
        true => Ok(()),
        false => Err("a host name, such as \"push.example.com\"".to_owned()),
    }
}
