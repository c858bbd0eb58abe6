//! `noroshi topics`: shows subscribers, positions and retained messages.

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::json;

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
                topics.print("topics", &COLUMNS, self.format)?;
            }
            Action::Show { topic } => self.format.details(&client.get(&path(&topic)).await?)?,
            Action::Retained { topic } => {
                self.format.details(&client.get(&format!("{}/retained", path(&topic))).await?)?;
            }
            Action::May { device, topic, publish } => {
                let action = if publish { "publish" } else { "subscribe" };
                let (device, topic) = (escape(&device), escape(&topic));
                let path = format!("/v1/devices/{device}/topics/{topic}/permission?action={action}");
                let answer = client.get(&path).await?;
                self.format.details(&answer)?;
                if answer["decision"] == "denied" {
                    // Exit code 1 tells a script that the device may not.
                    return Ok(ExitCode::FAILURE);
                }
            }
            Action::Clear { topic } => {
                client.delete(&format!("{}/retained", path(&topic))).await?;
                let text = || format!("{} has no retained message", output::clean(&topic));
                self.format.print(json!({"topic": topic, "cleared": true}), text)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
