//! `noroshi items`: the items of a user's notification centre.

use clap::Subcommand;
use serde_json::Value;

use crate::client::{Connect, PageArguments, escape, pages};
use crate::failure::Failure;
use crate::output;

const COLUMNS: [&str; 6] = ["id", "state", "category", "created_at", "expires_at", "notification"];

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
    /// List items, newest first
    List {
        user: String,
        /// [default: all that are not archived]
        #[arg(long, value_parser = ["unread", "read", "archived", "all"])]
        state: Option<String>,
        #[arg(long)]
        category: Option<String>,
        #[command(flatten)]
        page: PageArguments,
    },
    /// Count unread items, in all and by category
    Counts { user: String },
    /// Delete all items of a user
    Delete { user: String },
}

impl Arguments {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let client = self.connect.client()?;
        match self.action {
            Action::List { user, state, category, page } => {
                let given = [("state", state), ("category", category)];
                let given = given.into_iter().filter_map(|(name, value)| Some((name, value?)));
                let filter: Vec<String> =
                    given.map(|(name, value)| format!("{name}={}", escape(&value))).collect();
                let filter = (!filter.is_empty()).then(|| filter.join("&"));
                let items = pages(&client, &path(&user), "items", filter.as_deref(), page).await?;
                items.print("items", &COLUMNS, self.format)
            }
            Action::Counts { user } => {
                self.format.details(&client.get(&format!("{}/counts", path(&user))).await?)
            }
            Action::Delete { user } => {
                let answer: Value = client.delete(&path(&user)).await?;
                self.format.details(&answer)
            }
        }
    }
}

fn path(user: &str) -> String {
    format!("/v1/users/{}/items", escape(user))
}
