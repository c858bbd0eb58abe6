//! What the gateway is told about XMPP, besides what a conversation has to know itself.

use noroshi_protocol::xmpp;

use crate::io::tls;

#[derive(Debug, Clone)]
pub struct Config {
    /// `decoy` is drawn by the gateway.
    pub protocol: xmpp::Config,
    /// The certificate of STARTTLS; without one it is not offered.
    pub starttls: Option<tls::Acceptor>,
    /// Where a drain sends clients, `host:port`; none: they are told that the node leaves.
    pub redirect: Option<Box<str>>,
    /// Conformance only: accounts that log in with a password and may talk to each other.
    pub accounts: Vec<Account>,
    /// The app whose devices the accounts are.
    pub accounts_app: Box<str>,
}

/// Shows no password.
#[derive(Clone, PartialEq, Eq)]
pub struct Account {
    pub name: Box<str>,
    pub password: Box<str>,
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Account({:?})", self.name)
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            protocol: xmpp::Config::new("localhost"),
            starttls: None,
            redirect: None,
            accounts: Vec::new(),
            accounts_app: "dev".into(),
        }
    }
}
