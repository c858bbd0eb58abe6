//! What can go wrong on the way out, by what the caller does next. The texts are public: they name what
//! was asked for, never an address behind it nor a credential.

use std::time::Duration;

/// Why there is no connection, or no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Can never be reached as it is written.
    #[error("the address cannot be used: {0}")]
    Invalid(&'static str),
    /// The guard's rules forbid it; only another address or another configuration changes that.
    #[error("{host} is refused: {reason}")]
    Refused { host: String, reason: &'static str },
    #[error("the name {host} cannot be resolved: {reason}")]
    Unresolvable { host: String, reason: String },
    #[error("{host} cannot be reached: {reason}")]
    Unreachable { host: String, reason: String },
    #[error("{host} did not answer within {}", noroshi_types::time::format_duration(*.limit))]
    Timeout { host: String, limit: Duration },
    #[error("TLS with {host} failed: {reason}")]
    Tls { host: String, reason: String },
    /// The proxy is at fault, not whom it was asked for.
    #[error("the proxy {reason}")]
    Proxy { reason: String },
    /// The connection was there; the exchange on it broke off or was not HTTP.
    #[error("the exchange with {host} broke off: {reason}")]
    Exchange { host: String, reason: String },
    /// Redirects are among these: they are never followed.
    #[error("the server answered {0}")]
    Status(u16),
    #[error("the answer is over {bytes_max} bytes")]
    TooLarge { bytes_max: usize },
}

impl Error {
    /// Whether the same call can never succeed while configuration and address stay as they are.
    pub fn is_permanent(&self) -> bool {
        matches!(self, Self::Invalid(_) | Self::Refused { .. })
    }

    /// For a metric or a push's reason.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "address_invalid",
            Self::Refused { .. } => "address_refused",
            Self::Unresolvable { .. } => "unresolvable",
            Self::Unreachable { .. } => "unreachable",
            Self::Timeout { .. } => "timeout",
            Self::Tls { .. } => "tls",
            Self::Proxy { .. } => "proxy",
            Self::Exchange { .. } => "connection_lost",
            Self::Status(_) => "status",
            Self::TooLarge { .. } => "answer_too_large",
        }
    }
}

/// What an operator has to mend.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("the CA file {path} cannot be used: {reason}")]
    CaFile { path: String, reason: String },
    #[error("a CA certificate cannot be used: {0}")]
    Ca(rustls::Error),
    #[error("the client certificate cannot be used: {0}")]
    Identity(String),
    /// Never shows the URL: it may hold a password.
    #[error("{name}: {reason}")]
    Proxy { name: String, reason: &'static str },
    #[error("TLS cannot be used: {0}")]
    Tls(rustls::Error),
}
