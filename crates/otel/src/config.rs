//! The configuration of the export of spans and metrics. `node` reads and validates it.

use std::fmt;
use std::time::Duration;

use noroshi_egress::Proxies;
use rustls_pki_types::CertificateDer;

/// The configuration of one exporter.
#[derive(Clone)]
pub struct Config {
    /// As in `OTEL_EXPORTER_OTLP_ENDPOINT`: the exporter appends `/v1/traces` and `/v1/metrics`.
    pub endpoint: String,
    /// Sent with every export; may be secrets.
    pub headers: Vec<(String, String)>,
    /// The timeout from connecting to the collector's last byte.
    pub timeout: Duration,
    /// How often metrics are sent; none: never.
    pub metrics_interval: Option<Duration>,
    /// The timeout for the rest when the node stops.
    pub drain: Duration,
    /// The resource of spans and metrics: `service.name` and others.
    pub resource: Vec<(String, String)>,
    /// An operator configures the collector, typically in a private network, so every address is allowed.
    pub proxies: Proxies,
    /// Trusted in addition to the public roots.
    pub ca: Vec<CertificateDer<'static>>,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Config {
    /// The URL of a signal's path, such as `/v1/traces`.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.endpoint.trim_end_matches('/'))
    }
}

/// Parses headers: one per line, `name: value`. Returns names in lower case. The error names the line, never its text.
pub fn headers(text: &str) -> Result<Vec<(String, String)>, String> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let read = |line: &str| {
        let (name, value) = line.split_once(':').map(|(name, value)| (name.trim(), value.trim()))?;
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        let visible = |byte: u8| matches!(byte, b' '..=b'~' | b'\t');
        let right = !name.is_empty()
            && name.bytes().all(token)
            && !value.is_empty()
            && value.bytes().all(visible)
            // Set by the exporter itself.
            && !["host", "content-length", "content-type", "transfer-encoding", "connection"]
                .contains(&name.to_ascii_lowercase().as_str());
        right.then(|| (name.to_ascii_lowercase(), value.to_owned()))
    };
    lines
        .map(|(index, line)| read(line).ok_or_else(|| format!("line {} is not `name: value`", index + 1)))
        .collect()
}

/// Parses attributes: `key=value`, separated by commas.
pub fn attributes(text: &str) -> Result<Vec<(String, String)>, String> {
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    let read = |pair: &str| {
        let (key, value) = pair.split_once('=')?;
        let (key, value) = (key.trim(), value.trim());
        (!key.is_empty() && !value.is_empty()).then(|| (key.to_owned(), value.to_owned()))
    };
    pairs.map(|pair| read(pair).ok_or_else(|| "key=value, separated by commas".to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_lines() {
        let read = headers("Authorization: Bearer abc:def\n\n x-scope : a \n").expect("headers");
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(read, [pair("authorization", "Bearer abc:def"), pair("x-scope", "a")]);
        for (wrong, line) in
            [("a", 1), ("a: b\nc d: e", 2), (": v", 1), ("a:", 1), ("host: x", 1), ("a: \u{e4}", 1)]
        {
            let error = headers(wrong).expect_err(wrong);
            assert_eq!(error, format!("line {line} is not `name: value`"), "{wrong}");
        }
    }

    #[test]
    fn attributes_are_pairs() {
        let read = attributes("deployment.environment.name=live, region = eu").expect("attributes");
        assert_eq!(read[1], ("region".to_owned(), "eu".to_owned()));
        assert!(attributes("").expect("none").is_empty());
        assert!(attributes("a").is_err() && attributes("=b").is_err() && attributes("a=").is_err());
    }
}
