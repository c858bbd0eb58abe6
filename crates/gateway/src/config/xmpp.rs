//! Configuration of XMPP, beyond what a conversation itself needs.

use noroshi_protocol::xmpp;

use crate::io::tls;

#[derive(Debug, Clone)]
pub struct Config {
    /// `decoy` is drawn by the gateway.
    pub protocol: xmpp::Config,
    /// The certificate of STARTTLS; without one it is not offered.
    pub starttls: Option<tls::Acceptor>,
    /// The server (`host:port`) that a drain redirects clients to; without it they are only closed.
    pub redirect: Option<Box<str>>,
    /// For conformance suites: accounts that log in with a password and may talk to each other.
    pub accounts: Vec<Account>,
    /// The app whose devices the accounts are.
    pub accounts_app: Box<str>,
}

/// Does not show the password.
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
