//! What the clients of Amazon's services share: where the service is, TLS by rustls on ring, the chain of credentials,
//! timeouts, and which errors are temporary. The services' own clients are in the crates `sqs` and `events`.
//!
//! Credentials are not part of the configuration: they come from the SDK's chain (environment, profile, web identity,
//! container, instance). Without the feature `aws-sdk` there is only the configuration.
//!
//! The SDK opens its own connections: an operator configures their addresses, so the guard does not apply.

#[cfg(feature = "aws-sdk")]
pub mod sdk;

use std::error::Error;

/// Where a service is. None: from the environment and the profile (`AWS_REGION`, `AWS_ENDPOINT_URL_…`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Connection {
    /// Another service with the same protocol.
    pub endpoint: Option<String>,
    pub region: Option<String>,
}

/// Whether an error with this code is worth a retry although its status says otherwise.
pub fn is_temporary(code: &str) -> bool {
    matches!(
        code,
        "RequestThrottled"
            | "Throttling"
            | "ThrottlingException"
            | "OverLimit"
            | "KmsThrottled"
            | "ServiceUnavailableException"
    )
}

/// The error with its causes, because the SDK's own text does not explain it.
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttling_is_temporary_and_an_invalid_argument_is_not() {
        assert!(is_temporary("ThrottlingException") && is_temporary("ServiceUnavailableException"));
        assert!(!is_temporary("InvalidArgumentException"));
    }
}
