//! `noroshi config check|print`: loads file, environment and flags as `serve` does, without starting a node.

use clap::Subcommand;
use noroshi_node::config::{self, Config};
use serde_json::json;

use super::serve::Settings;
use crate::failure::Failure;
use crate::output;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List all problems; exit code 64 if there is one
    Check {
        #[command(flatten)]
        settings: Settings,
    },
    /// Print the effective configuration, with defaults and the source of each value
    Print {
        #[command(flatten)]
        settings: Settings,
        #[command(flatten)]
        format: output::Format,
    },
}

impl Arguments {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.action {
            Action::Check { settings } => {
                settings.load()?;
                output::line("the configuration is valid")
            }
            Action::Print { settings, format } => {
                let config = settings.load()?;
                format.print(json(&config), || config::print(&config).trim_end().to_owned())
            }
        }
    }
}

fn json(config: &Config) -> serde_json::Value {
    let entry = |entry: &config::Entry| {
        json!({
            "key": entry.key, "value": entry.value, "default": entry.default,
            "unit": entry.unit, "range": entry.range, "source": entry.source.to_string(),
        })
    };
    config.entries.iter().map(entry).collect()
}
