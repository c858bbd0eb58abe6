//! Addresses, and the connections to the service.

use std::fmt::Write;
use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::error::BoxError;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// RFC 3986 §2.3.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

pub(crate) type Pool = HyperClient<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// A segment of a path, or a value of a query.
pub(crate) fn escape(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

/// The public address of the service, without a slash at its end.
pub(crate) fn base(url: &str) -> Result<String, String> {
    let wrong = || format!("{url:?} is not an http or https address such as https://push.example.com");
    let uri: Uri = url.parse().map_err(|_| wrong())?;
    let scheme = uri.scheme_str().filter(|scheme| matches!(*scheme, "http" | "https")).ok_or_else(wrong)?;
    let authority =
        uri.authority().filter(|authority| !authority.as_str().contains('@')).ok_or_else(wrong)?;
    match uri.query() {
        Some(_) => Err(wrong()),
        None => Ok(format!("{scheme}://{authority}{}", uri.path().trim_end_matches('/'))),
    }
}

pub(crate) fn address(base: &str, path: &str, query: &[(&'static str, String)]) -> String {
    let mut address = format!("{base}{path}");
    for (n, (name, value)) in query.iter().enumerate() {
        let _ = write!(address, "{}{name}={}", if n == 0 { '?' } else { '&' }, escape(value));
    }
    address
}

pub(crate) fn pool(tls: Option<rustls::ClientConfig>) -> Result<Pool, BoxError> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let tls = match tls {
        Some(config) => config,
        None => default_tls()?,
    };
    let connector =
        HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(tcp);
    Ok(HyperClient::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(connector))
}

fn default_tls() -> Result<rustls::ClientConfig, BoxError> {
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    with_roots(config)
}

type WithoutRoots = rustls::ConfigBuilder<rustls::ClientConfig, rustls::WantsVerifier>;

#[cfg(feature = "native-roots")]
fn with_roots(config: WithoutRoots) -> Result<rustls::ClientConfig, BoxError> {
    use hyper_rustls::ConfigBuilderExt;
    Ok(config.with_native_roots()?.with_no_client_auth())
}

#[cfg(all(feature = "webpki-roots", not(feature = "native-roots")))]
#[allow(clippy::unnecessary_wraps, reason = "the roots of the operating system may be unreadable")]
fn with_roots(config: WithoutRoots) -> Result<rustls::ClientConfig, BoxError> {
    use hyper_rustls::ConfigBuilderExt;
    Ok(config.with_webpki_roots().with_no_client_auth())
}

#[cfg(not(any(feature = "webpki-roots", feature = "native-roots")))]
#[allow(clippy::unnecessary_wraps, reason = "the roots of the operating system may be unreadable")]
fn with_roots(config: WithoutRoots) -> Result<rustls::ClientConfig, BoxError> {
    Ok(config.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let base_of = |url| base(url).ok();
        assert_eq!(base_of("https://push.example.com/").as_deref(), Some("https://push.example.com"));
        assert_eq!(base_of("http://127.0.0.1:8080/n/").as_deref(), Some("http://127.0.0.1:8080/n"));
        for wrong in
            ["push.example.com", "ftp://push.example.com", "https://", "https://u:p@h", "https://h/?q", ""]
        {
            assert_eq!(base_of(wrong), None, "{wrong}");
        }
        assert_eq!(
            address("http://h", "/v1/x", &[("a", "b&c".to_owned()), ("d", "é".to_owned())]),
            "http://h/v1/x?a=b%26c&d=%C3%A9"
        );
    }
}
