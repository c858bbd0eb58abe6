//! `noroshi topics`: shows subscribers, positions and retained messages.

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::{Value, json};

use crate::client::{Connect, PageArguments, escape, pages};
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
        page: PageArguments,
    },
    /// Show one topic
    Show { topic: String },
    /// Print a topic's retained message
    Retained { topic: String },
    /// Remove a topic's retained message
    Clear { topic: String },
    /// Show whether a device may use a topic, by which rule and why
    May {
        #[arg(long)]
        device: String,
        #[arg(long)]
        topic: String,
        /// Check publishing instead of subscribing
        #[arg(long)]
        publish: bool,
    },
}

impl Arguments {
    pub(crate) async fn run(self) -> Result<ExitCode, Failure> {
        let client = self.connect.client()?;
        let path = |topic: &str| format!("/v1/topics/{}", escape(topic));
        match self.action {
            Action::List { page } => {
                let topics = pages(&client, "/v1/topics", "topics", None, page).await?;
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
                return print_decision(&client.get(&path).await?, self.format);
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

/// `noroshi topics may`: exit code 1 if the device may not.
fn print_decision(answer: &Value, format: output::Format) -> Result<ExitCode, Failure> {
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
