//! `noroshi notice`: manages maintenance notices, through the admin address.

use std::path::PathBuf;

use clap::Subcommand;
use serde_json::{Value, json};

use crate::client::{ConnectAdmin, escape};
use crate::command::definition::{Kind, List};
use crate::failure::Failure;
use crate::input::parse_json;
use crate::output;

const COLUMNS: [&str; 6] = ["name", "state", "announced_at", "starts_at", "ends_at", "notification"];
const KIND: Kind = Kind { list: "notices", columns: &COLUMNS, shown: |notice| notice };

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
    /// The app the notices belong to
    #[arg(long, default_value = "dev", global = true)]
    app: String,
    #[command(flatten)]
    connect: ConnectAdmin,
    #[command(flatten)]
    format: output::Format,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List current and future notices, or past ones
    List(List),
    /// Show a notice
    Show { name: String },
    /// Create or replace a notice
    Put {
        name: String,
        /// When it is first shown (RFC 3339) [default: now]
        #[arg(long, value_name = "TIME")]
        announced_at: Option<String>,
        /// Start of the window (RFC 3339)
        #[arg(long, value_name = "TIME")]
        starts_at: String,
        /// End of the window (RFC 3339)
        #[arg(long, value_name = "TIME")]
        ends_at: String,
        #[arg(long)]
        title: Option<String>,
        #[arg(long)]
        body: Option<String>,
        /// A title in another language (repeatable)
        #[arg(long, value_name = "LANGUAGE=TITLE", value_parser = title_of)]
        title_in: Vec<(String, String)>,
        /// Data for the app, any JSON
        #[arg(long, value_name = "JSON", value_parser = parse_json)]
        data: Option<Value>,
    },
    /// Create or change all experiments and notices of a file (TOML or JSON)
    Apply {
        /// File; - for standard input
        file: PathBuf,
    },
    /// End a notice now
    End { name: String },
}

fn title_of(text: &str) -> Result<(String, String), String> {
    let (language, title) = text.split_once('=').ok_or("a title must be LANGUAGE=TITLE, such as ja=…")?;
    Ok((language.to_owned(), title.to_owned()))
}

impl Arguments {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let client = self.connect.client()?;
        let base = format!("/v1/apps/{}/notices", escape(&self.app));
        let path = |name: &str| format!("{base}/{}", escape(name));
        let answer = match self.action {
            Action::List(list) => return KIND.list(&client, &base, list, self.format).await,
            Action::Apply { file } => {
                return super::definition::apply(&client, &self.app, &file, self.format).await;
            }
            Action::Show { name } => client.get(&path(&name)).await?,
            Action::Put { name, announced_at, starts_at, ends_at, title, body, title_in, data } => {
                let shown =
                    (title.is_some() || body.is_some()).then(|| json!({"title": title, "body": body}));
                let locale = |(language, title)| (language, json!({"notification": {"title": title}}));
                let locales: serde_json::Map<String, Value> = title_in.into_iter().map(locale).collect();
                let mut fields = json!({
                    "announced_at": announced_at,
                    "starts_at": starts_at,
                    "ends_at": ends_at,
                    "notification": shown,
                    "locales": locales,
                });
                // Omitted, since null is a value of `data`.
                if let (Some(data), Some(fields)) = (data, fields.as_object_mut()) {
                    fields.insert("data".to_owned(), data);
                }
                client.put(&path(&name), &fields).await?
            }
            Action::End { name } => {
                client.delete(&path(&name)).await?;
                json!({"name": name, "ended": true})
            }
        };
        self.format.details(&answer)
    }
}
