//! `noroshi devices`: manages the devices of an app.

use std::process::ExitCode;

use clap::Subcommand;
use serde_json::{Map, Value, json};

use crate::client::{Client, Connect, PageArguments, escape, pages};
use crate::failure::Failure;
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
    pub(crate) async fn run(self) -> Result<ExitCode, Failure> {
        let client = self.connect.client()?;
        match self.action {
            Action::List { user, page } => list(&client, user.as_deref(), page, self.format).await?,
            Action::Show { device } => {
                let answer = client.get(&path(&device)).await?;
                show(&answer, self.format)?;
            }
            Action::Register(register) => {
                let answer = client.post("/v1/devices", &register.body()).await?;
                show(&answer, self.format)?;
            }
            Action::Revoke { user: Some(user), .. } => {
                let answer = client.post(&format!("/v1/users/{}/revoke", escape(&user)), &json!({})).await?;
                match self.format.json {
                    true => output::line(&answer)?,
                    false => output::details(&answer)?,
                }
            }
            Action::Revoke { device, .. } => {
                let device = device.unwrap_or_default();
                client.post(&format!("{}/revoke", path(&device)), &json!({})).await?;
                done(&device, "revoked", self.format)?;
            }
            Action::Delete { device } => {
                client.delete(&path(&device)).await?;
                done(&device, "deleted", self.format)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Register {
    fn body(&self) -> Value {
        let texts = [
            ("device", &self.device),
            ("user", &self.user),
            ("platform", &self.platform),
            ("locale", &self.locale),
            ("timezone", &self.timezone),
            ("app_version", &self.app_version),
        ];
        let given =
            |(name, value): (&str, &Option<String>)| Some((name.to_owned(), Value::from(value.clone()?)));
        let mut body: Map<String, Value> = texts.into_iter().filter_map(given).collect();
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

async fn list(
    client: &Client,
    user: Option<&str>,
    page: PageArguments,
    format: output::Format,
) -> Result<(), Failure> {
    let filter = user.map(|user| format!("user={}", escape(user)));
    let devices = pages(client, "/v1/devices", "devices", filter.as_deref(), page).await?;
    match format.json {
        true => output::line(devices.json("devices")),
        false => {
            output::table(&COLUMNS, output::rows(&devices.entries, &COLUMNS))?;
            devices.print_next();
            Ok(())
        }
    }
}

fn show(answer: &Value, format: output::Format) -> Result<(), Failure> {
    match format.json {
        true => output::line(answer),
        false => output::details(answer),
    }
}

fn done(device: &str, what: &str, format: output::Format) -> Result<(), Failure> {
    match format.json {
        true => output::line(json!({"device": device, what: true})),
        false => output::line(format_args!("{} {what}", output::clean(device))),
    }
}
