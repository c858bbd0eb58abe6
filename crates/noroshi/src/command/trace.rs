//! Prints what traces of notifications, broadcasts and Live Activities have in common: sentences, and the requests to push
//! services with their responses.

use serde_json::Value;

use crate::failure::Failure;
use crate::output;

/// Prints whether it was for the device, and the summary.
pub(crate) fn sentences(answer: &Value) -> Result<(), Failure> {
    // They are equal if it was not for the device. Nodes of older versions give only the summary.
    let mut sentences = vec![output::text(answer, "targeting"), output::text(answer, "summary")];
    sentences.dedup();
    for sentence in sentences.into_iter().filter(|sentence| !sentence.is_empty()) {
        output::line(output::clean(sentence))?;
    }
    output::line("")
}

/// Prints a table, or with `whole` each request.
pub(crate) fn requests(attempts: &[Value], whole: bool) -> Result<(), Failure> {
    if whole {
        return attempts.iter().try_for_each(request);
    }
    if attempts.is_empty() {
        return Ok(());
    }
    output::line("")?;
    let row = |attempt: &Value| {
        let took = attempt.get("took_ms").and_then(Value::as_f64).unwrap_or_default();
        let status = attempt.get("response").and_then(|response| response.get("status"));
        vec![
            output::cell(attempt.get("sent_at")),
            format!("{took:.1}"),
            output::cell(status),
            output::cell(attempt.get("reason")),
            output::cell(attempt.get("url")),
        ]
    };
    output::table(&["sent at", "ms", "status", "reason", "url"], attempts.iter().map(row).collect())?;
    output::line("--requests prints headers, payloads and responses.")
}

/// Prints a request to a push service and its response, as HTTP shows them.
fn request(attempt: &Value) -> Result<(), Failure> {
    output::line("")?;
    output::line(format_args!("POST {}", output::cell(attempt.get("url"))))?;
    for (name, value) in attempt.get("headers").and_then(Value::as_object).into_iter().flatten() {
        output::line(format_args!("{name}: {}", output::cell(Some(value))))?;
    }
    output::line("")?;
    output::line(content(attempt.get("body").unwrap_or(&Value::Null)))?;
    let (at, took) = (output::cell(attempt.get("sent_at")), output::cell(attempt.get("took_ms")));
    let reason = attempt.get("reason").map(|reason| format!(" ({})", output::cell(Some(reason))));
    let reason = reason.unwrap_or_default();
    match attempt.get("response") {
        Some(response) => {
            let status = output::cell(response.get("status"));
            output::line(format_args!("=> {status}{reason}, sent at {at}, after {took} ms"))?;
            response.get("body").map_or(Ok(()), |body| output::line(content(body)))
        }
        None => output::line(format_args!("=> no response{reason}, sent at {at}, after {took} ms")),
    }
}

/// JSON stays JSON; other text has no quotes.
fn content(body: &Value) -> String {
    body.as_str().map_or_else(|| body.to_string(), output::clean)
}
