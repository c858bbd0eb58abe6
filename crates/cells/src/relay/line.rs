//! The lines of `POST /v1/notifications/relay`: how parts become lines, and what the cell's answers mean for each part.
//! Pure: [`super`] sends and records.

use noroshi_api::{Code, OVER_QUOTA_FIELD};
use noroshi_store::cells::{Part, PartEnd};
use noroshi_types::NotificationId;
use serde::Deserialize;

use crate::cell::Traces;
use crate::splice::splice;

/// Why parts are retried, and what that delays.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Retry {
    /// Delays only the app.
    App(String),
    /// Delays everything for the cell.
    Cell(String),
}

/// The result of a batch.
pub(super) struct Sent {
    pub(super) ended: Vec<(u64, PartEnd)>,
    /// Why some parts are retried.
    pub(super) retry: Option<Retry>,
    /// The last part, if all retried parts were rejected for their topic: later parts need not wait.
    pub(super) past: Option<u64>,
    /// Whether the cell accepted lines with a trace. A rejected line is retried without it.
    pub(super) traces: Option<Traces>,
}

impl Sent {
    /// Nothing was sent, or there is no usable answer.
    pub(super) fn failed(retry: Retry) -> Self {
        Self { ended: Vec::new(), retry: Some(retry), past: None, traces: None }
    }
}

/// The parts that may be sent at once. While it is unknown whether the cell accepts traces, the first line with a trace
/// is the last of its batch: if the cell rejects it, it is still the next in its order, without the trace.
pub(super) fn sendable(traces: Traces, mut parts: Vec<Part>) -> Vec<Part> {
    match traces {
        Traces::Taken => {}
        Traces::Untried => {
            let first = parts.iter().position(|part| part.trace.is_some());
            parts.truncate(first.map_or(parts.len(), |first| first + 1));
        }
        Traces::Refused => parts.iter_mut().for_each(|part| part.trace = None),
    }
    parts
}

/// Cells hash these lines: without a trace, a line is byte by byte the same as before traces existed.
pub(super) fn lines(parts: &[Part]) -> Option<String> {
    let mut text =
        String::with_capacity(parts.iter().map(|part| part.to.len() + part.body.len() + 200).sum());
    for part in parts {
        let notification = splice(part.body.as_bytes(), &[], &[("to", &part.to)])?;
        let (key, expires_at) = (part.id, part.expires_at.0);
        let trace = part.trace.map_or_else(String::new, |trace| format!("\"traceparent\":\"{trace}\","));
        text += &format!(
            "{{\"key\":\"{key}\",\"expires_at_ms\":{expires_at},{trace}\"notification\":{notification}}}\n"
        );
    }
    Some(text)
}

#[derive(Deserialize)]
struct LineBody {
    id: Option<String>,
    error: Option<LineError>,
}

#[derive(Deserialize)]
struct LineError {
    code: String,
    status: u16,
    field: Option<String>,
}

impl LineBody {
    /// An older cell does not know the field.
    fn refuses_trace(&self) -> bool {
        self.error.as_ref().is_some_and(|error| {
            error.code == Code::UnknownField.as_str() && error.field.as_deref() == Some("traceparent")
        })
    }

    /// Whether the line is done, or was rejected for its own topic.
    fn lets_others_pass(&self) -> bool {
        let passes = |error: &LineError| match error.status {
            429 => error.field.as_deref() == Some(OVER_QUOTA_FIELD),
            status => !matches!(status, 408 | 500..),
        };
        self.error.as_ref().is_none_or(passes)
    }
}

/// A missing or malformed line is retried.
pub(super) fn read_answers(parts: &[Part], body: &[u8]) -> Sent {
    let past = parts.last().map(|part| part.num);
    let mut sent = Sent { ended: Vec::with_capacity(parts.len()), retry: None, past, traces: None };
    let mut lines = body.split(|byte| *byte == b'\n');
    for part in parts {
        let line: Option<LineBody> = lines.next().and_then(|line| serde_json::from_slice(line).ok());
        if let (Some(_), Some(line)) = (part.trace, &line) {
            if line.refuses_trace() {
                (sent.traces, sent.past) = (Some(Traces::Refused), None);
                continue;
            }
            // Any other answer proves that it parsed the line.
            sent.traces = sent.traces.or(Some(Traces::Taken));
        }
        if !line.as_ref().is_some_and(LineBody::lets_others_pass) {
            sent.past = None;
        }
        match line.map(end_of) {
            Some(Ok(end)) => sent.ended.push((part.num, end)),
            // A reason of the cell takes precedence over one of the app.
            Some(Err(retry @ Retry::App(_))) => sent.retry = sent.retry.or(Some(retry)),
            Some(Err(retry)) => sent.retry = Some(retry),
            None => sent.retry = Some(Retry::Cell("the cell's answer has a malformed line".to_owned())),
        }
    }
    sent
}

/// The error is a reason to retry. Too many requests (RFC 6585 §4) concern one app.
fn end_of(line: LineBody) -> Result<PartEnd, Retry> {
    if let Some(id) = line.id.as_deref().and_then(|id| NotificationId::parse(id).ok()) {
        return Ok(PartEnd::Forwarded(id));
    }
    match line.error {
        Some(LineError { code, status: 429, .. }) => Err(Retry::App(code)),
        // 408 and 5xx are temporary (RFC 9110 §15.5.9, §15.6).
        Some(LineError { code, status: 408 | 500.., .. }) => Err(Retry::Cell(code)),
        Some(LineError { code, .. }) => Ok(PartEnd::Refused(code)),
        None => Err(Retry::Cell("a line without an id".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use noroshi_types::{AppId, Timestamp, TraceContext};

    const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn part(num: u64) -> Part {
        Part {
            num,
            id: NotificationId::from_bytes([num as u8; 16]),
            app: AppId(1),
            to: r#"{"users":["u"]}"#.to_owned(),
            body: r#"{"data":{"n": 1},"ttl":"60s"}"#.to_owned(),
            expires_at: Timestamp(7),
            trace: None,
        }
    }

    fn traced(num: u64) -> Part {
        let trace = TraceContext::parse(TRACEPARENT.as_bytes());
        Part { trace: Some(trace.expect("a context")), ..part(num) }
    }

    #[test]
    fn a_line_has_the_message_its_key_and_its_expiry() {
        let expected = "{\"key\":\"01010101-0101-0101-0101-010101010101\",\"expires_at_ms\":7,\"notification\":\
                        {\"to\":{\"users\":[\"u\"]},\"data\":{\"n\": 1},\"ttl\":\"60s\"}}\n";
        assert_eq!(lines(&[part(1)]).as_deref(), Some(expected));
        let with_trace = expected.replace("7,\"not", &format!("7,\"traceparent\":\"{TRACEPARENT}\",\"not"));
        assert_eq!(lines(&[traced(1)]), Some(with_trace));
    }

    #[test]
    fn a_batch_ends_at_the_first_untried_trace() {
        let parts = vec![part(1), traced(2), part(3), traced(4)];
        assert_eq!(sendable(Traces::Taken, parts.clone()), parts);
        assert_eq!(sendable(Traces::Untried, parts.clone()), parts[..2]);
        assert_eq!(sendable(Traces::Untried, vec![part(1), part(3)]), [part(1), part(3)]);
        assert_eq!(sendable(Traces::Refused, parts), [part(1), part(2), part(3), part(4)]);
    }

    #[test]
    fn a_line_rejected_for_its_trace_is_retried() {
        let refusal = |field: &str| {
            format!("{{\"error\":{{\"code\":\"unknown_field\",\"status\":400,\"field\":\"{field}\"}}}}\n")
        };
        let refused = |num: u64| (num, PartEnd::Refused("unknown_field".to_owned()));
        let body = refusal("traceparent") + &refusal("notification.new") + &refusal("traceparent");
        let sent = read_answers(&[traced(1), traced(2), part(3)], body.as_bytes());
        assert_eq!((sent.ended, sent.traces), (vec![refused(2), refused(3)], Some(Traces::Refused)));
        let sent = read_answers(&[traced(2)], refusal("notification.new").as_bytes());
        assert_eq!((sent.ended, sent.traces), (vec![refused(2)], Some(Traces::Taken)));
        let busy = b"{\"error\":{\"code\":\"overloaded\",\"status\":503}}";
        assert_eq!(read_answers(&[traced(1)], busy).traces, Some(Traces::Taken));
        assert_eq!(read_answers(&[traced(1)], b"nonsense").traces, None);
        assert_eq!(read_answers(&[part(1)], busy).traces, None);
    }

    #[test]
    fn an_app_over_its_quota_does_not_delay_the_cell() {
        let over = "{\"error\":{\"code\":\"quota_exceeded\",\"status\":429}}\n";
        let busy = "{\"error\":{\"code\":\"overloaded\",\"status\":503}}\n";
        let retry = |body: String| read_answers(&[part(1), part(2)], body.as_bytes()).retry;
        assert_eq!(retry(over.repeat(2)), Some(Retry::App("quota_exceeded".to_owned())));
        for mixed in [format!("{over}{busy}"), format!("{busy}{over}")] {
            assert_eq!(retry(mixed), Some(Retry::Cell("overloaded".to_owned())));
        }
    }

    #[test]
    fn temporary_errors_are_retried_and_others_are_final() {
        let id = NotificationId::from_bytes([9; 16]);
        let parts: Vec<Part> = (1..=5).map(part).collect();
        let body = format!(
            "{{\"id\":\"{id}\",\"targets\":1}}\n{{\"error\":{{\"code\":\"data_too_large\",\"status\":413}}}}\n\
             {{\"error\":{{\"code\":\"overloaded\",\"status\":503}}}}\nnonsense\n"
        );
        let sent = read_answers(&parts, body.as_bytes());
        assert_eq!(
            sent.ended,
            [(1, PartEnd::Forwarded(id)), (2, PartEnd::Refused("data_too_large".to_owned()))]
        );
        assert!(sent.retry.is_some());
        assert_eq!(read_answers(&parts[..1], b"").ended, []);
    }

    #[test]
    fn only_a_rejection_for_its_topic_lets_later_parts_pass() {
        let id = NotificationId::from_bytes([9; 16]);
        let taken = format!("{{\"id\":\"{id}\",\"targets\":1}}\n");
        let over =
            |field: &str| format!("{{\"error\":{{\"code\":\"quota_exceeded\",\"status\":429{field}}}}}\n");
        let of_topic = over(",\"field\":\"to.topic\"");
        let past = |body: String| read_answers(&[part(1), part(2)], body.as_bytes()).past;
        assert_eq!(past(of_topic.repeat(2)), Some(2));
        assert_eq!(past(format!("{of_topic}{taken}")), Some(2));
        assert_eq!(past(format!("{of_topic}{}", over(""))), None, "over its rate: keeps its order");
        assert_eq!(past(of_topic), None, "a line is missing");
    }
}
