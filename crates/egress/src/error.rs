//! Errors of egress. The variants differ in what the caller does next. The texts are public: they name the requested
//! host, never an address behind it nor a credential.

use std::time::Duration;

/// Why there is no connection, or no response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The address is invalid.
    #[error("invalid address: {0}")]
    Invalid(&'static str),
    /// The guard's rules forbid it; only another address or configuration helps.
    #[error("{host} is not allowed: {reason}")]
    Refused { host: String, reason: &'static str },
    #[error("failed to resolve the name {host}: {reason}")]
    Unresolvable { host: String, reason: String },
    #[error("{host} is unreachable: {reason}")]
    Unreachable { host: String, reason: String },
    #[error("{host} did not answer within {}", noroshi_types::time::format_duration(*.limit))]
    Timeout { host: String, limit: Duration },
    #[error("TLS with {host} failed: {reason}")]
    Tls { host: String, reason: String },
    /// The proxy failed, not the requested host.
    #[error("the proxy {reason}")]
    Proxy { reason: String },
    /// The connection was open, but the exchange on it failed or was not HTTP.
    #[error("the exchange with {host} failed: {reason}")]
    Exchange { host: String, reason: String },
    /// Includes redirects, which are never followed.
    #[error("the server answered {0}")]
    Status(u16),
    #[error("the response exceeds {bytes_max} bytes")]
    TooLarge { bytes_max: usize },
}

impl Error {
    /// Whether a retry cannot succeed without a change of configuration or address.
    pub fn is_permanent(&self) -> bool {
        matches!(self, Self::Invalid(_) | Self::Refused { .. })
    }

    /// The label for a metric or the reason of a push.
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

/// An error that an operator has to fix.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("the CA file {path} cannot be used: {reason}")]
    CaFile { path: String, reason: String },
    #[error("invalid CA certificate: {0}")]
    Ca(rustls::Error),
    #[error("invalid client certificate: {0}")]
    Identity(String),
    /// Never shows the URL, which may contain a password.
    #[error("{name}: {reason}")]
    Proxy { name: String, reason: &'static str },
    #[error("failed to set up TLS: {0}")]
    Tls(rustls::Error),
}
