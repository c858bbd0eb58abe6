//! The keys of traces and metrics that go to an OpenTelemetry collector. Where no endpoint is named nothing is recorded.

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
                "How often metrics go to the same collector; 0s: never.",
            );
            // Twice a second would be as dear as it is of no use.
            (!interval.is_zero()).then(|| interval.max(SECOND))
        };
        Tracing {
            endpoint: reader.optional(
                "tracing.endpoint",
                ("url", "https:// or http://, without /v1/traces"),
                endpoint,
                "Sends traces to this OpenTelemetry collector, as OTLP over HTTP (docs/tracing.md). Unset: none.",
            ),
            headers_file: reader
                .optional(
                    "tracing.headers_file",
                    ("path", "a file with `name: value` lines"),
                    any,
                    "Headers that the collector wants, such as a key.",
                )
                .map(Into::into),
            headers: Vec::new(),
            sample_per_million: u32::try_from(reader.count(
                "tracing.sample_per_million",
                10_000,
                0..=1_000_000,
                "traces",
                "Of the traces that begin here, so many of a million are recorded. A request that brings a trace is recorded if its sender recorded it.",
            ))
            .unwrap_or(u32::MAX),
            timeout: reader.duration(
                "tracing.timeout",
                10 * SECOND,
                SECOND / 10..=MINUTE,
                "How long the collector may take to answer.",
            ),
            drain: reader.duration(
                "tracing.drain",
                5 * SECOND,
                Duration::ZERO..=MINUTE,
                "How long the collector has to take what is left when the node ends; then it is lost and counted.",
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
                "`service.name` of what is sent.",
            ),
            attributes_text: reader.optional(
                "tracing.attributes",
                ("text", "key=value, with commas between"),
                any,
                "What else is said of this node with all that is sent, such as deployment.environment.name=live.",
            ),
            attributes: Vec::new(),
            push_services: reader.switch(
                "tracing.push_services",
                false,
                "Tells push services of the trace of what they get (`traceparent`). They are other companies' servers: nobody there needs it.",
            ),
        }
    }
}

fn endpoint(text: &str) -> Result<(), String> {
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let right = rest.is_some_and(|rest| !rest.is_empty() && !rest.contains(['@', '?', '#', ' ']));
    match right && !text.ends_with("/v1/traces") {
        true => Ok(()),
        false => Err("a URL such as \"http://collector:4318\": /v1/traces is added to it".to_owned()),
    }
}
