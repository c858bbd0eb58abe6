//! Spans as OTLP's messages (opentelemetry-proto 1.x, `trace/v1/trace.proto`). Pure.

pub(crate) mod metric;

use noroshi_telemetry::span::{Kind, Span, Value};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{self as otlp, ResourceSpans, ScopeSpans, Status, status};
use prost::Message;

/// `SpanFlags` of trace.proto: the lowest eight bits are those of `traceparent`; of the next two, the first says that
/// the second is set, which says whether the parent is remote.
const SAMPLED: u32 = 0x01;
const HAS_IS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;

/// The body of `POST /v1/traces`.
pub(crate) fn spans(resource: &Resource, spans: &[Span]) -> Vec<u8> {
    let scope_spans = ScopeSpans {
        scope: Some(scope()),
        spans: spans.iter().map(span).collect(),
        schema_url: String::new(),
    };
    let resource_spans = ResourceSpans {
        resource: Some(resource.clone()),
        scope_spans: vec![scope_spans],
        schema_url: String::new(),
    };
    ExportTraceServiceRequest { resource_spans: vec![resource_spans] }.encode_to_vec()
}

pub(crate) fn resource(attributes: &[(String, String)]) -> Resource {
    let text = |(key, value): &(String, String)| pair(key, any_value::Value::StringValue(value.clone()));
    Resource { attributes: attributes.iter().map(text).collect(), ..Resource::default() }
}

pub(crate) fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "noroshi".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    }
}

pub(crate) fn pair(key: &str, value: any_value::Value) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

fn span(span: &Span) -> otlp::Span {
    let remote = if span.parent_is_remote { IS_REMOTE } else { 0 };
    otlp::Span {
        trace_id: span.trace.as_bytes().to_vec(),
        span_id: span.id.as_bytes().to_vec(),
        parent_span_id: span.parent.map(|parent| parent.as_bytes().to_vec()).unwrap_or_default(),
        trace_state: span.state.as_ref().map(ToString::to_string).unwrap_or_default(),
        flags: SAMPLED | HAS_IS_REMOTE | remote,
        name: span.name.clone().into_owned(),
        kind: match span.kind {
            Kind::Internal => otlp::span::SpanKind::Internal,
            Kind::Server => otlp::span::SpanKind::Server,
            Kind::Client => otlp::span::SpanKind::Client,
        }
        .into(),
        start_time_unix_nano: span.started,
        end_time_unix_nano: span.ended,
        attributes: span.attributes.iter().map(|(key, value)| pair(key, any(value))).collect(),
        // Unset for a success: only an observer may declare a span OK.
        status: span
            .failed
            .as_ref()
            .map(|why| Status { message: why.clone().into_owned(), code: status::StatusCode::Error.into() }),
        ..otlp::Span::default()
    }
}

fn any(value: &Value) -> any_value::Value {
    match value {
        Value::Text(text) => any_value::Value::StringValue(text.clone().into_owned()),
        Value::Count(count) => any_value::Value::IntValue(*count),
        Value::Flag(flag) => any_value::Value::BoolValue(*flag),
    }
}
