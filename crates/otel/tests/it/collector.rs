//! A strict OTLP/HTTP collector: it panics, and fails the test, when a request violates the protocol. One request per
//! connection, with a configured answer.

use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

/// The answer to the next requests.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Tell {
    Status(u16),
    /// 503, with this many seconds in `Retry-After`.
    NotBefore(u64),
    /// Accepted, except for this many spans.
    Partly(i64),
    /// Accepted, with an answer after this time.
    Late(Duration),
}

#[derive(Default)]
struct State {
    next: Vec<Tell>,
    spans: Vec<Span>,
    metrics: Vec<Metric>,
    resource: Vec<KeyValue>,
    refused: usize,
    /// The violations of a request.
    wrong: Vec<String>,
}

pub(crate) struct Collector {
    pub(crate) url: String,
    state: Arc<Mutex<State>>,
}

impl Collector {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("port");
        let url = format!("http://{}/", listener.local_addr().expect("address"));
        let state = Arc::<Mutex<State>>::default();
        let heard = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let _ = answer(stream, &heard);
            }
        });
        Self { url, state }
    }

    pub(crate) fn tell(&self, tell: Tell, times: usize) {
        self.look(|state| state.next.extend(vec![tell; times]));
    }

    pub(crate) fn spans(&self) -> Vec<Span> {
        self.look(|state| state.spans.clone())
    }

    pub(crate) fn metrics(&self) -> Vec<Metric> {
        self.look(|state| state.metrics.clone())
    }

    pub(crate) fn resource(&self) -> Vec<KeyValue> {
        self.look(|state| state.resource.clone())
    }

    pub(crate) fn refused(&self) -> usize {
        self.look(|state| state.refused)
    }

    #[track_caller]
    fn look<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock().expect("not poisoned");
        assert!(state.wrong.is_empty(), "{:?}", state.wrong);
        look(&mut state)
    }
}

fn answer(mut stream: TcpStream, state: &Mutex<State>) -> Option<()> {
    let (path, headers, body) = read(&mut stream)?;
    let mut state = state.lock().expect("not poisoned");
    let mut wrong = |what: &str| state.wrong.push(format!("{path}: {what}"));
    if headers.get("content-type").map(String::as_str) != Some("application/x-protobuf") {
        wrong("the content type");
    }
    if headers.get("x-key").map(String::as_str) != Some("secret") {
        wrong("the configured header is missing");
    }
    let told = if path == "/v1/traces" && !state.next.is_empty() { Some(state.next.remove(0)) } else { None };
    match told {
        Some(Tell::Status(status)) => {
            state.refused += 1;
            return reply(stream, status, "", &[]);
        }
        Some(Tell::NotBefore(seconds)) => {
            state.refused += 1;
            return reply(stream, 503, &format!("retry-after: {seconds}\r\n"), &[]);
        }
        _ => {}
    }
    match path.as_str() {
        "/v1/traces" => take_spans(&mut state, &body),
        "/v1/metrics" => match ExportMetricsServiceRequest::decode(&body[..]) {
            Ok(request) => {
                let scopes = request.resource_metrics.into_iter().flat_map(|resource| resource.scope_metrics);
                state.metrics = scopes.flat_map(|scope| scope.metrics).collect();
            }
            Err(error) => state.wrong.push(error.to_string()),
        },
        _ => state.wrong.push(format!("the path {path}")),
    }
    let partly = match told {
        Some(Tell::Partly(rejected_spans)) => {
            Some(ExportTracePartialSuccess { rejected_spans, error_message: "some".to_owned() })
        }
        _ => None,
    };
    drop(state);
    if let Some(Tell::Late(by)) = told {
        std::thread::sleep(by);
    }
    reply(stream, 200, "", &ExportTraceServiceResponse { partial_success: partly }.encode_to_vec())
}

/// The MUST rules of trace.proto for a span.
fn take_spans(state: &mut State, body: &[u8]) {
    let request = match ExportTraceServiceRequest::decode(body) {
        Ok(request) => request,
        Err(error) => return state.wrong.push(error.to_string()),
    };
    for resource in request.resource_spans {
        state.resource = resource.resource.map(|resource| resource.attributes).unwrap_or_default();
        for span in resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            let zero = |id: &[u8]| id.iter().all(|byte| *byte == 0);
            let keys: HashSet<_> = span.attributes.iter().map(|pair| &pair.key).collect();
            for (right, what) in [
                (span.trace_id.len() == 16 && !zero(&span.trace_id), "the trace's id"),
                (span.span_id.len() == 8 && !zero(&span.span_id), "the span's id"),
                (matches!(span.parent_span_id.len(), 0 | 8), "the parent's id"),
                (span.parent_span_id.is_empty() || !zero(&span.parent_span_id), "the parent's id is zero"),
                (!span.name.is_empty(), "no name"),
                (span.start_time_unix_nano > 0, "no start"),
                (span.end_time_unix_nano >= span.start_time_unix_nano, "it ends before it starts"),
                (keys.len() == span.attributes.len() && !keys.iter().any(|key| key.is_empty()), "keys"),
            ] {
                if !right {
                    state.wrong.push(format!("{what}: {span:?}"));
                }
            }
            state.spans.push(span);
        }
    }
}

type Asked = (String, HashMap<String, String>, Vec<u8>);

fn read(stream: &mut TcpStream) -> Option<Asked> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 64 << 10]);
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8(bytes[..end].to_vec()).ok()?;
            let path = head.split(' ').nth(1)?.to_owned();
            let pairs = head.lines().skip(1).filter_map(|line| line.split_once(": "));
            let headers: HashMap<String, String> =
                pairs.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
            let length: usize = headers.get("content-length")?.parse().ok()?;
            if bytes.len() >= end + 4 + length {
                return Some((path, headers, bytes[end + 4..].to_vec()));
            }
        }
        match stream.read(&mut piece).ok()? {
            0 => return None,
            count => bytes.extend_from_slice(&piece[..count]),
        }
    }
}

fn reply(mut stream: TcpStream, status: u16, headers: &str, body: &[u8]) -> Option<()> {
    let head = format!(
        "HTTP/1.1 {status} told\r\n{headers}content-type: application/x-protobuf\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)).ok()
}
