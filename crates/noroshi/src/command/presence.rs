//! `noroshi presence <user>…`: shows which users are online, and on which devices.

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
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let answer = self.connect.client()?.post("/v1/presence", &json!({"users": self.users})).await?;
        if self.format.json {
            return output::line(&answer);
        }
        let users = answer["users"].as_object().into_iter().flatten();
        let row = |(user, state): (&String, &Value)| {
            vec![output::clean(user), output::cell(state.get("presence")), output::cell(state.get("devices"))]
        };
        output::table(&["user", "presence", "devices"], users.map(row).collect())
    }
}
