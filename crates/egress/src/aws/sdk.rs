//! The SDK's configuration, from which every service's client is built.

use std::time::Duration;

use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};

use super::Connection;

/// From resolving the name to the end of the TLS handshake.
const CONNECT: Duration = Duration::from_secs(5);

/// `answer` is the timeout of one attempt; the SDK makes up to `attempts` per call.
pub async fn load(connection: &Connection, answer: Duration, attempts: u32) -> SdkConfig {
    let http =
        aws_smithy_http_client::Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https();
    let timeouts =
        TimeoutConfig::builder().connect_timeout(CONNECT).operation_attempt_timeout(answer).build();
    let mut loader = aws_config::defaults(BehaviorVersion::latest())
        .http_client(http)
        .timeout_config(timeouts)
        .retry_config(RetryConfig::standard().with_max_attempts(attempts));
    if let Some(region) = &connection.region {
        loader = loader.region(Region::new(region.clone()));
    }
    if let Some(endpoint) = &connection.endpoint {
        loader = loader.endpoint_url(endpoint);
    }
    loader.load().await
}
