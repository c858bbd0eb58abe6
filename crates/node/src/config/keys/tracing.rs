//! Keys of traces and metrics for an OpenTelemetry collector. Without an endpoint nothing is recorded.

use std::time::Duration;

use super::{HOUR, MINUTE, Reader, SECOND};
use crate::config::Tracing;

impl Tracing {
    pub(super) fn read(reader: &mut Reader) -> Tracing {
        let any = |_: &str| Ok(());
        let metrics_interval = |reader: &mut Reader| {
            let interval = reader.duration(
                "tracing.metrics_interval",
                Duration::ZERO,
                Duration::ZERO..=HOUR,
                "Interval for sending metrics to the collector. 0s: never.",
            );
            // A shorter interval costs more and has no use.
            (!interval.is_zero()).then(|| interval.max(SECOND))
        };
        Tracing {
            endpoint: reader.optional(
                "tracing.endpoint",
                ("url", "https:// or http://, without /v1/traces"),
                endpoint,
                "OpenTelemetry collector for traces, by OTLP over HTTP (docs/tracing.md). Unset: none.",
            ),
            headers_file: reader
                .optional(
                    "tracing.headers_file",
                    ("path", "a file with `name: value` lines"),
                    any,
                    "File with headers for the collector, such as a key.",
                )
                .map(Into::into),
            headers: Vec::new(),
            sample_per_million: u32::try_from(reader.count(
                "tracing.sample_per_million",
                10_000,
                0..=1_000_000,
                "traces",
                "Number of recorded traces in a million of those that start here. A request with a trace is recorded if its sender recorded it.",
            ))
            .unwrap_or(u32::MAX),
            timeout: reader.duration(
                "tracing.timeout",
                10 * SECOND,
                SECOND / 10..=MINUTE,
                "Timeout of a request to the collector.",
            ),
            drain: reader.duration(
                "tracing.drain",
                5 * SECOND,
                Duration::ZERO..=MINUTE,
                "Timeout for sending pending traces when the node stops; the rest is dropped and counted.",
            ),
            metrics_interval: metrics_interval(reader),
            service_name: reader.text(
                "tracing.service_name",
                "noroshi",
                ("text", "1 to 255 bytes"),
                |text| match (1..=255).contains(&text.len()) {
                    true => Ok(()),
                    false => Err("1 to 255 bytes".to_owned()),
                },
                "`service.name` of exported telemetry.",
            ),
            attributes_text: reader.optional(
                "tracing.attributes",
                ("text", "key=value, with commas between"),
                any,
                "Additional resource attributes of this node, such as deployment.environment.name=live.",
            ),
            attributes: Vec::new(),
            push_services: reader.switch(
                "tracing.push_services",
                false,
                "Sends `traceparent` to push services. They belong to other companies, which do not need it.",
            ),
        }
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
