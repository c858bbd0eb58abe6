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
    /// Id of the notification
    notification: String,
    /// Explain step by step for this device
    device: Option<String>,
    /// Read the event files in this folder instead of asking a server; includes the device's connections
    #[arg(long, value_name = "DIR", requires = "device")]
    events: Option<PathBuf>,
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
        let answer = client.get(&path).await?;
        match (self.format.json, &self.device) {
            (true, _) => output::line(&answer),
            (false, None) => notification(&answer),
            (false, Some(_)) => trace(&answer),
        }
    }
}

/// Prints the state, and one line for each outcome.
fn notification(answer: &Value) -> Result<(), Failure> {
    output::details(answer, &["counts", "outcomes"])?;
    let counts = answer.get("counts").and_then(Value::as_object).cloned().unwrap_or_default();
    if !counts.is_empty() {
        output::line("")?;
        let row = |(outcome, count): (&String, &Value)| {
            vec![output::clean(outcome), count.to_string(), meaning(outcome).to_owned()]
        };
        output::table(&["outcome", "devices", "meaning"], counts.iter().map(row).collect())?;
    }
    Ok(())
}

/// Prints the summary, and the steps.
fn trace(answer: &Value) -> Result<(), Failure> {
    if let Some(summary) = answer["summary"].as_str() {
        output::line(format_args!("{}\n", output::clean(summary)))?;
    }
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
    for (name, value) in fields.filter(|(name, _)| !matches!(name.as_str(), "steps" | "summary")) {
        output::line(format_args!("{name}: {}", output::cell(Some(value))))?;
    }
    Ok(())
}

fn meaning(outcome: &str) -> &'static str {
    Outcome::ALL.into_iter().find(|known| known.as_str() == outcome).map_or("", Outcome::explain)
}
