//! The spans of a notification: publishing, the store's write, the calls to push services.
//!
//! Spans begin and end here, so that the code that does the work calls one function. A trace that is not recorded
//! creates no span.
//!
//! ```text
//!   (request) ─► publish ─┬─► store accept
//!                         └─► push apns, again for each attempt ─┬─► push call
//! ```
//!
//! An attempt may run hours later and on another node: the notification keeps the parent's trace context.

use std::borrow::Cow;

use noroshi_push::Answer;
use noroshi_store::{Accepted, Batch, Error as StoreError};
use noroshi_telemetry::span::{Kind, Open, Spans};
use noroshi_types::{NotificationId, PushService, Request, TraceContext};

use crate::error::Error;
use crate::outcomes::{push_name, target_name};

/// Pushes of a batch that get a span of their own. A batch of 500 must not create 500 spans.
const CALLS_MAX: usize = 16;

/// `begins`: a trace may begin here, because no caller has decided whether to record one.
pub(crate) fn publish(spans: &Spans, request: &Request, begins: bool) -> Option<Open> {
    if !begins && request.trace.is_none() {
        return None;
    }
    let mut span = spans.begin("publish", Kind::Internal, request.trace.as_ref())?;
    span.set("noroshi.target", target_name(&request.target));
    if let Some(targets) = request.target.named_count() {
        span.set("noroshi.targets", targets);
    }
    span.set("noroshi.when", request.when.as_str());
    span.set("noroshi.push", push_name(request.push.mode));
    Some(span)
}

pub(crate) fn published(span: &mut Open, id: NotificationId, replayed: bool) {
    span.set("noroshi.notification", id.to_string());
    if replayed {
        span.set("noroshi.replayed", true);
    }
}

pub(crate) fn refused(span: &mut Open, error: &Error) {
    span.fail(error.to_string());
}

/// From the writer's queue to the commit.
pub(crate) fn store(spans: &Spans, request: &Request) -> Option<Open> {
    // A request without a trace is not recorded.
    spans.begin("store accept", Kind::Internal, Some(request.trace.as_ref()?))
}

pub(crate) fn stored(span: Option<Open>, result: &Result<Accepted, StoreError>) {
    let Some(mut span) = span else { return };
    match result {
        Ok(accepted) => span.set("noroshi.kept", accepted.kept()),
        Err(error) => span.fail(error.to_string()),
    }
}

/// One attempt at a batch, from the first push to the last answer.
pub(crate) fn push(spans: &Spans, trace: Option<TraceContext>, batch: &Batch, pushes: usize) -> Option<Open> {
    let trace = trace?;
    let name =
        batch.service.map_or(Cow::Borrowed("push"), |service| format!("push {}", service.as_str()).into());
    let mut span = spans.begin(name, Kind::Internal, Some(&trace))?;
    span.set("noroshi.push.attempt", u64::from(batch.attempt));
    span.set("noroshi.push.recipients", batch.recipients.len() as u64);
    span.set("noroshi.push.sent", pushes as u64);
    span.set("noroshi.push.lane", batch.lane.as_str());
    Some(span)
}

/// One span for each of the first [`CALLS_MAX`] pushes of a recorded batch.
pub(crate) fn calls(spans: &Spans, span: Option<&Open>, batch: &Batch, pushes: usize) -> Vec<Option<Open>> {
    let Some(context) = span.and_then(Open::context) else { return Vec::new() };
    let service = batch.service.map_or("", PushService::as_str);
    let call = |_| {
        let mut call = spans.begin("push call", Kind::Client, Some(&context))?;
        call.set("noroshi.push.service", service);
        call.set("noroshi.push.attempt", u64::from(batch.attempt));
        Some(call)
    };
    (0..pushes.min(CALLS_MAX)).map(call).collect()
}

pub(crate) fn answered(call: Option<Open>, answer: &Answer) {
    let Some(mut call) = call else { return };
    let (result, reason) = describe(answer);
    call.set("noroshi.push.result", result);
    if let Some(reason) = reason {
        call.set("noroshi.push.reason", reason);
        call.fail(reason);
    }
}

pub(crate) fn pushed(span: Option<Open>, answers: &[Answer]) {
    let Some(mut span) = span else { return };
    let accepted = answers.iter().filter(|answer| **answer == Answer::Accepted).count();
    let again = answers.iter().filter(|answer| matches!(answer, Answer::Later { .. })).count();
    span.set("noroshi.push.accepted", accepted as u64);
    span.set("noroshi.push.again", again as u64);
    if let Some(reason) = answers.iter().find_map(|answer| describe(answer).1) {
        span.fail(reason);
    }
}

/// The answer's name, and the reason for any answer other than acceptance.
fn describe(answer: &Answer) -> (&'static str, Option<&'static str>) {
    match answer {
        Answer::Accepted => ("accepted", None),
        Answer::Gone { reason, .. } => ("gone", Some(reason)),
        Answer::Suspect { reason } => ("suspect", Some(reason)),
        Answer::Refused { reason } => ("refused", Some(reason)),
        Answer::Later { reason, .. } => ("again", Some(reason)),
        Answer::Unconfigured => ("unconfigured", Some("no credential")),
        Answer::Expired => ("expired", Some("expired")),
    }
}
