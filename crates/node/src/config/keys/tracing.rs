//! Keys of traces and metrics for an OpenTelemetry collector, the file with its headers, and parsed attributes. Without an
//! endpoint nothing is recorded.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{HOUR, MINUTE, SECOND};
use crate::config::reader::{Reader, any};
use crate::small_file;

/// Longer than any list of headers. A larger file is a different one.
const FILE_BYTES_MAX: u64 = 16 << 10;

const SERVICE_NAME: &str = "1 to 255 bytes";

section! {
    /// Traces and metrics for a collector. Without an endpoint there are none.
    #[derive(Clone)]
    Tracing(reader) {
        /// OpenTelemetry collector for traces, by OTLP over HTTP (docs/tracing.md). Unset: none.
        pub endpoint: Option<String> =
            optional("tracing.endpoint", ("url", "https:// or http://, without /v1/traces"), endpoint),
        /// File with headers for the collector, such as a key.
        headers_file: Option<PathBuf> =
            optional_path("tracing.headers_file", "a file with `name: value` lines"),
        /// Read from the file.
        pub headers: Vec<(String, String)> = value(Vec::new()),
        /// Number of recorded traces in a million of those that start here. A request with a trace is recorded
        /// if its sender recorded it.
        pub sample_per_million: u32 =
            count("tracing.sample_per_million", 10_000, 0..=1_000_000, "traces") as u32,
        /// Timeout of a request to the collector.
        pub timeout: Duration = duration("tracing.timeout", 10 * SECOND, SECOND / 10..=MINUTE),
        /// Timeout for sending pending traces when the node stops; the rest is dropped and counted.
        pub drain: Duration = duration("tracing.drain", 5 * SECOND, Duration::ZERO..=MINUTE),
        /// None: metrics are not sent.
        pub metrics_interval: Option<Duration> = value(metrics_interval(reader)),
        /// `service.name` of exported telemetry.
        pub service_name: String =
            text("tracing.service_name", "noroshi", ("text", SERVICE_NAME), service_name),
        /// Additional resource attributes of this node, such as deployment.environment.name=live.
        attributes_text: Option<String> =
            optional("tracing.attributes", ("text", "key=value, with commas between"), any),
        pub attributes: Vec<(String, String)> = value(Vec::new()),
        /// Sends `traceparent` to push services. They belong to other companies, which do not need it.
        pub push_services: bool = switch("tracing.push_services", false),
    }
}

/// Omits the headers, which are secret.
impl std::fmt::Debug for Tracing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tracing").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

fn metrics_interval(reader: &mut Reader) -> Option<Duration> {
    let help = "Interval for sending metrics to the collector. 0s: never.";
    let interval = reader.duration("tracing.metrics_interval", Duration::ZERO, Duration::ZERO..=HOUR, help);
    // A shorter interval costs more and has no use.
    (!interval.is_zero()).then(|| interval.max(SECOND))
}

fn service_name(text: &str) -> Result<(), String> {
    match (1..=255).contains(&text.len()) {
        true => Ok(()),
        false => Err(SERVICE_NAME.to_owned()),
    }
}

fn endpoint(text: &str) -> Result<(), String> {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let right = rest.is_some_and(|rest| !rest.is_empty() && !rest.contains(['@', '?', '#', ' ']));
    match right && !text.ends_with("/v1/traces") {
        true => Ok(()),
        false => Err("a URL such as \"http://collector:4318\", to which /v1/traces is appended".to_owned()),
    }
}

impl Tracing {
    pub(in crate::config) fn complete(&mut self, reader: &mut Reader) {
        if self.endpoint.is_some() && !noroshi_otel::AVAILABLE {
            let text = "this build does not include OpenTelemetry (feature `otel`); `make dist` builds one that does";
            reader.problem("tracing.endpoint", text);
        }
        if let Some(path) = &self.headers_file {
            match read(path) {
                Ok(headers) => self.headers = headers,
                Err(problem) => reader.problem("tracing.headers_file", problem),
            }
        }
        match noroshi_otel::config::attributes(self.attributes_text.as_deref().unwrap_or_default()) {
            Ok(attributes) => self.attributes = attributes,
            Err(expected) => reader.problem("tracing.attributes", format!("must be {expected}")),
        }
    }
}

fn read(path: &Path) -> Result<Vec<(String, String)>, String> {
    let text = small_file::read(path, FILE_BYTES_MAX)?;
    let text = text.ok_or_else(|| format!("{} is too large for a list of headers", path.display()))?;
    noroshi_otel::config::headers(&text).map_err(|problem| format!("{}: {problem}", path.display()))
}
