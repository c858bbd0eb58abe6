//! `noroshi explain <notification> [device]`: explains why a device received a notification or not. Prints each outcome with its
//! explanation.

mod log;

use std::path::PathBuf;

use noroshi_types::Outcome;
use serde_json::Value;

use crate::client::{Connect, escape};
use crate::failure::Failure;
use crate::output;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Id of the notification or of a broadcast to a channel; with a device also of a campaign, which stands for everything that it sends
    notification: String,
    /// Explain step by step for this device
    device: Option<String>,
    /// Read the event files in this folder instead of asking a server; includes the device's connections
    #[arg(long, value_name = "DIR", requires = "device")]
    events: Option<PathBuf>,
    /// Print the headers and the payload of each request to a push service, and its response
    #[arg(long, requires = "device", conflicts_with = "events")]
    requests: bool,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    format: output::Format,
}

impl Arguments {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        if let (Some(folder), Some(device)) = (&self.events, &self.device) {
            return log::print(folder, &self.notification, device);
        }
        let client = self.connect.client()?;
        let mut path = format!("/v1/notifications/{}", escape(&self.notification));
        if let Some(device) = &self.device {
            path += &format!("/devices/{}", escape(device));
        }
        let answer = match client.get(&path).await {
            // A broadcast to a channel alone has an id of its own.
            Err(unknown @ Failure::Answered { status: 404, .. }) if self.device.is_none() => {
                let path = format!("/v1/push/broadcasts/{}", escape(&self.notification));
                client.get(&path).await.map_err(|_| unknown)?
            }
            answer => answer?,
        };
        match (self.format.json, &self.device) {
            (true, _) => output::line(&answer),
            (false, None) => notification(&answer),
            (false, Some(_)) => trace(&answer, self.requests),
        }
    }
}

/// Columns of the broadcasts to channels.
const BROADCASTS: [&str; 6] = ["channel", "id", "state", "reason", "attempts", "ended_at"];

/// Prints the state, and one line for each outcome.
fn notification(answer: &Value) -> Result<(), Failure> {
    output::details(answer, &["counts", "outcomes", "broadcasts"])?;
    let counts = answer.get("counts").and_then(Value::as_object).cloned().unwrap_or_default();
    if !counts.is_empty() {
        output::line("")?;
        let row = |(outcome, count): (&String, &Value)| {
            vec![output::clean(outcome), count.to_string(), meaning(outcome).to_owned()]
        };
        output::table(&["outcome", "devices", "meaning"], counts.iter().map(row).collect())?;
    }
    let broadcasts = output::entries(answer, "broadcasts");
    if !broadcasts.is_empty() {
        output::line("")?;
        output::table(&BROADCASTS, output::rows(broadcasts, &BROADCASTS))?;
    }
    Ok(())
}

/// Prints whether it was for the device, the summary, the steps, and the requests to push services.
fn trace(answer: &Value, whole: bool) -> Result<(), Failure> {
    // They are equal if it was not for the device. Nodes of older versions give only the summary.
    let mut sentences = vec![output::text(answer, "targeting"), output::text(answer, "summary")];
    sentences.dedup();
    for sentence in sentences.into_iter().filter(|sentence| !sentence.is_empty()) {
        output::line(output::clean(sentence))?;
    }
    output::line("")?;
    let steps = output::entries(answer, "steps");
    let row = |step: &Value| {
        let outcome = output::cell(step.get("outcome"));
        let meaning = meaning(&outcome).to_owned();
        vec![output::cell(step.get("at")), outcome, output::cell(step.get("reason")), meaning]
    };
    match steps.is_empty() {
        true => output::line("nothing is recorded for this notification and device")?,
        false => output::table(&["at", "outcome", "reason", "meaning"], steps.iter().map(row).collect())?,
    }
    let fields = answer.as_object().into_iter().flatten();
    for (name, value) in
        fields.filter(|(name, _)| !matches!(name.as_str(), "steps" | "summary" | "targeting" | "attempts"))
    {
        output::line(format_args!("{name}: {}", output::cell(Some(value))))?;
    }
    let attempts = output::entries(answer, "attempts");
    match whole {
        true => attempts.iter().try_for_each(request),
        false if attempts.is_empty() => Ok(()),
        false => {
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
    }
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

fn meaning(outcome: &str) -> &'static str {
    Outcome::ALL.into_iter().find(|known| known.as_str() == outcome).map_or("", Outcome::explain)
}
