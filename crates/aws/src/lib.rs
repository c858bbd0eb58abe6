//! What every client of Amazon's services has in common: where the service is, TLS by rustls on ring, the chain of
//! credentials, time limits, and which errors pass.
//!
//! ```text
//!   Connection ─► sdk::load ─► aws_config::SdkConfig ─► a service's own client (crates `sqs`, `events`)
//! ```
//!
//! Credentials are none of the configuration's business: they come from the SDK's chain, that is environment, profile, web
//! identity, container, instance. Without the feature `sdk` there is only the configuration.

#[cfg(feature = "sdk")]
pub mod sdk;

use std::error::Error;

/// Where a service is. None: as the environment and the profile say (`AWS_REGION`, `AWS_ENDPOINT_URL_…`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Connection {
    /// A service of one's own that speaks the same protocol.
    pub endpoint: Option<String>,
    pub region: Option<String>,
}

/// Whether an error of this code passes by itself although its status says otherwise.
pub fn is_passing(code: &str) -> bool {
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

/// The error with what caused it: the SDK's own text alone says nothing.
pub fn causes(error: &dyn Error) -> String {
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
    fn throttling_passes_and_a_wrong_argument_does_not() {
        assert!(is_passing("ThrottlingException") && is_passing("ServiceUnavailableException"));
        assert!(!is_passing("InvalidArgumentException"));
    }
}
