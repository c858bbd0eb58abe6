//! `noroshi presence <user>…`: shows which users are online, and on which devices.

use std::process::ExitCode;

use serde_json::{Value, json};

use crate::client::Connect;
use crate::failure::Failure;
use crate::output;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[arg(required = true)]
    users: Vec<String>,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    format: output::Format,
}

impl Arguments {
    pub(crate) async fn run(self) -> Result<ExitCode, Failure> {
        let answer = self.connect.client()?.post("/v1/presence", &json!({"users": self.users})).await?;
        if self.format.json {
            output::line(&answer)?;
            return Ok(ExitCode::SUCCESS);
        }
        let empty = serde_json::Map::new();
        let users = answer.get("users").and_then(Value::as_object).unwrap_or(&empty);
        let row = |(user, state): (&String, &Value)| {
            vec![output::clean(user), output::cell(state.get("presence")), output::cell(state.get("devices"))]
        };
        output::table(&["user", "presence", "devices"], users.iter().map(row).collect())?;
        Ok(ExitCode::SUCCESS)
    }
}
