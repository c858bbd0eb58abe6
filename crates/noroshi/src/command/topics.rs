//! `noroshi topics`: subscribers, positions and retained messages.

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::{Value, json};

use crate::client::{Connect, Part, escape, pages};
use crate::failure::Failure;
use crate::output;

const COLUMNS: [&str; 6] = ["topic", "subscribers", "connected", "epoch", "offset", "retained"];

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    format: output::Format,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List topics by name
    List {
        #[command(flatten)]
        part: Part,
    },
    /// Show one topic
    Show { topic: String },
    /// Print a topic's retained message
    Retained { topic: String },
    /// Remove a topic's retained message
    Clear { topic: String },
    /// Say whether a device may use a topic, by which topic rule and why
    May {
        #[arg(long)]
        device: String,
        #[arg(long)]
        topic: String,
        /// Whether it may publish, not subscribe
        #[arg(long)]
        publish: bool,
    },
}

impl Arguments {
    pub(crate) async fn run(self) -> Result<ExitCode, Failure> {
        let client = self.connect.client()?;
        let path = |topic: &str| format!("/v1/topics/{}", escape(topic));
        match self.action {
            Action::List { part } => {
                let topics = pages(&client, "/v1/topics", "topics", None, part).await?;
                match self.format.json {
                    true => output::line(topics.json("topics"))?,
                    false => {
                        output::table(&COLUMNS, output::rows(&topics.entries, &COLUMNS))?;
                        topics.print_next();
                    }
                }
            }
            Action::Show { topic } => show(&client.get(&path(&topic)).await?, self.format)?,
            Action::Retained { topic } => {
                show(&client.get(&format!("{}/retained", path(&topic))).await?, self.format)?;
            }
            Action::May { device, topic, publish } => {
                let action = if publish { "publish" } else { "subscribe" };
                let (device, topic) = (escape(&device), escape(&topic));
                let path = format!("/v1/devices/{device}/topics/{topic}/permission?action={action}");
                return tell(&client.get(&path).await?, self.format);
            }
            Action::Clear { topic } => {
                client.delete(&format!("{}/retained", path(&topic))).await?;
                match self.format.json {
                    true => output::line(json!({"topic": topic, "cleared": true}))?,
                    false => output::line(format_args!("{} has no retained message", output::clean(&topic)))?,
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// `noroshi topics may`: exits with 1 where the device may not.
fn tell(answer: &Value, format: output::Format) -> Result<ExitCode, Failure> {
    show(answer, format)?;
    Ok(match answer.get("decision").and_then(Value::as_str) {
        Some("denied") => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    })
}

fn show(answer: &Value, format: output::Format) -> Result<(), Failure> {
    match format.json {
        true => output::line(answer),
        false => output::details(answer),
    }
}
