//! `noroshi devices`: manages the devices of an app.

use clap::Subcommand;
use serde_json::{Map, Value, json};

use crate::client::{Connect, PageArguments, escape, pages};
use crate::failure::Failure;
use crate::input::present;
use crate::output;

const COLUMNS: [&str; 7] = ["device", "user", "platform", "app_version", "locale", "topics", "created_at"];

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
    /// List all devices, or those of a user
    List {
        #[arg(long)]
        user: Option<String>,
        #[command(flatten)]
        page: PageArguments,
    },
    /// Show one device
    Show { device: String },
    /// Register a device and print its token
    Register(Register),
    /// Revoke all tokens and app JWTs of a device, or of a user, and close the connections
    Revoke {
        #[arg(required_unless_present = "user")]
        device: Option<String>,
        /// Revoke all tokens and app JWTs of this user, on all devices
        #[arg(long, conflicts_with = "device")]
        user: Option<String>,
    },
    /// Delete a device with its inbox
    Delete { device: String },
}

#[derive(Debug, clap::Args)]
struct Register {
    /// Id of the device [default: random]
    #[arg(long)]
    device: Option<String>,
    #[arg(long)]
    user: Option<String>,
    /// ios, android, web, console or other
    #[arg(long)]
    platform: Option<String>,
    #[arg(long)]
    locale: Option<String>,
    #[arg(long)]
    timezone: Option<String>,
    #[arg(long)]
    app_version: Option<String>,
    /// A durable subscription (repeatable)
    #[arg(long = "topic", value_name = "TOPIC")]
    topics: Vec<String>,
    /// A tag as KEY=VALUE (repeatable)
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = tag)]
    tags: Vec<(String, String)>,
}

fn tag(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("a tag must be KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

impl Arguments {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let client = self.connect.client()?;
        match self.action {
            Action::List { user, page } => {
                let filter = user.map(|user| format!("user={}", escape(&user)));
                let devices = pages(&client, "/v1/devices", "devices", filter.as_deref(), page).await?;
                devices.print("devices", &COLUMNS, self.format)
            }
            Action::Show { device } => self.format.details(&client.get(&path(&device)).await?),
            Action::Register(register) => {
                self.format.details(&client.post("/v1/devices", &register.body()).await?)
            }
            Action::Revoke { user: Some(user), .. } => {
                let path = format!("/v1/users/{}/revoke", escape(&user));
                self.format.details(&client.post(&path, &json!({})).await?)
            }
            Action::Revoke { device, .. } => {
                let device = device.unwrap_or_default();
                client.post(&format!("{}/revoke", path(&device)), &json!({})).await?;
                done(&device, "revoked", self.format)
            }
            Action::Delete { device } => {
                client.delete(&path(&device)).await?;
                done(&device, "deleted", self.format)
            }
        }
    }
}

impl Register {
    fn body(&self) -> Value {
        let mut body = present(&[
            ("device", &self.device),
            ("user", &self.user),
            ("platform", &self.platform),
            ("locale", &self.locale),
            ("timezone", &self.timezone),
            ("app_version", &self.app_version),
        ]);
        if !self.topics.is_empty() {
            body.insert("topics".to_owned(), json!(self.topics));
        }
        if !self.tags.is_empty() {
            let tags: Map<String, Value> =
                self.tags.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
            body.insert("tags".to_owned(), tags.into());
        }
        body.into()
    }
}

fn path(device: &str) -> String {
    format!("/v1/devices/{}", escape(device))
}

fn done(device: &str, what: &str, format: output::Format) -> Result<(), Failure> {
    format.print(json!({"device": device, what: true}), || format!("{} {what}", output::clean(device)))
}
