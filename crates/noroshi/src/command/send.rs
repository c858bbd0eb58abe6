//! `noroshi send`: sends one notification from flags, or a file with one JSON object per line.

use std::path::PathBuf;
use std::process::ExitCode;

use http::Method;
use serde_json::{Map, Value, json};

use super::shown;
use crate::client::{Client, Connect};
use crate::failure::Failure;
use crate::input::{parse_json, present};
use crate::{ndjson, output};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    target: Target,
    /// Title of the notification
    #[arg(long)]
    title: Option<String>,
    /// Text of the notification
    #[arg(long)]
    body: Option<String>,
    /// URL of an image
    #[arg(long, value_name = "URL")]
    image: Option<String>,
    /// URL that a tap opens
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    #[command(flatten)]
    shown: shown::Flags,
    /// Data for the app, any JSON
    #[arg(long, value_name = "JSON", value_parser = parse_json)]
    data: Option<Value>,
    /// Which devices receive it: in use now, connected, or all, now or later
    #[arg(long, value_parser = ["active", "connected", "stored"])]
    when: Option<String>,
    /// Time to live, such as 90s or 24h
    #[arg(long)]
    ttl: Option<String>,
    #[arg(long, value_parser = ["very-low", "low", "normal", "high"])]
    urgency: Option<String>,
    /// Replaces undelivered notifications with the same key
    #[arg(long, value_name = "KEY")]
    collapse_key: Option<String>,
    /// Category of the notification, to which preferences apply
    #[arg(long, conflicts_with = "file")]
    category: Option<String>,
    /// Store it as the topic's retained message
    #[arg(long)]
    retain: bool,
    /// Add an item to the notification centre of each user, optionally with a category
    #[arg(long, value_name = "CATEGORY", num_args = 0..=1, require_equals = true, default_missing_value = "", conflicts_with = "file")]
    item: Option<String>,
    /// How long the item is listed [default: 30d]
    #[arg(long, value_name = "DURATION", value_parser = super::duration_text, requires = "item")]
    item_retention: Option<String>,
    /// Whether to use push services: never, if the device does not acknowledge it in time, or always
    #[arg(long, value_parser = ["never", "fallback", "always"], conflicts_with = "file")]
    push: Option<String>,
    /// Send the push to this token of each device, such as voip or controls/lamp [default: the main token]. Without
    /// --push, always
    #[arg(long, value_name = "KIND[/NAME]", conflicts_with = "file")]
    push_token: Option<String>,
    /// With --push fallback: time for a device to acknowledge it [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = super::duration_text)]
    push_after: Option<String>,
    /// Also send this to the channels that are bound to the topic, a JSON object as in noroshi channel broadcast
    #[arg(long, value_name = "JSON", value_parser = parse_json, conflicts_with = "file")]
    broadcast: Option<Value>,
    /// A request with the same key within 24 h returns the first response and sends nothing
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    format: output::Format,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = true)]
struct Target {
    /// To a user (repeatable)
    #[arg(long = "user", value_name = "USER", conflicts_with_all = ["devices", "topic", "condition", "everyone", "file"])]
    users: Vec<String>,
    /// To a device (repeatable)
    #[arg(long = "device", value_name = "DEVICE", conflicts_with_all = ["topic", "condition", "everyone", "file"])]
    devices: Vec<String>,
    /// To the subscribers of a topic
    #[arg(long, conflicts_with_all = ["condition", "everyone", "file"])]
    topic: Option<String>,
    /// To devices that match a condition, such as "'a' in topics && !('b' in topics)"
    #[arg(long, conflicts_with_all = ["everyone", "file"])]
    condition: Option<String>,
    /// To every device
    #[arg(long, conflicts_with = "file")]
    everyone: bool,
    /// Notifications from a file, one JSON object of the API per line; - for standard input
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

impl Arguments {
    pub(crate) async fn run(self) -> Result<ExitCode, Failure> {
        let client = self.connect.client()?;
        if let Some(file) = &self.target.file {
            return self.send_file(&client, file).await;
        }
        let body = ("application/json", self.request().to_string());
        let headers: Vec<(&str, &str)> =
            self.idempotency_key.iter().map(|key| ("Idempotency-Key", key.as_str())).collect();
        let text = client.text(Method::POST, "/v1/notifications", Some(body), &headers).await?;
        if self.format.json {
            output::line(text.trim())?;
        } else {
            let answer: Value = serde_json::from_str(&text).unwrap_or_default();
            let id = output::cell(answer.get("id"));
            match answer.get("targets").and_then(Value::as_u64) {
                Some(targets) => output::line(format_args!("{id}  accepted for {targets} target(s)"))?,
                None => output::line(format_args!("{id}  accepted"))?,
            }
            shown::print_warnings(&answer);
        }
        Ok(ExitCode::SUCCESS)
    }

    fn request(&self) -> Value {
        let target = &self.target;
        let to = match target {
            Target { topic: Some(topic), .. } => json!({"topic": topic}),
            Target { condition: Some(condition), .. } => json!({"condition": condition}),
            Target { everyone: true, .. } => json!({"everyone": true}),
            Target { devices, .. } if !devices.is_empty() => json!({"devices": devices}),
            Target { users, .. } => json!({"users": users}),
        };
        let mut request = Map::from_iter([("to".to_owned(), to)]);
        let texts =
            [("title", &self.title), ("body", &self.body), ("image", &self.image), ("url", &self.url)];
        let mut notification = present(&texts);
        notification.extend(self.shown.fields());
        if !notification.is_empty() {
            request.insert("notification".to_owned(), notification.into());
        }
        if let Some(data) = &self.data {
            request.insert("data".to_owned(), data.clone());
        }
        if self.retain {
            request.insert("retain".to_owned(), true.into());
        }
        request.extend(present(&[
            ("when", &self.when),
            ("ttl", &self.ttl),
            ("urgency", &self.urgency),
            ("collapse_key", &self.collapse_key),
            ("category", &self.category),
        ]));
        let mut push =
            present(&[("mode", &self.push), ("after", &self.push_after), ("token", &self.push_token)]);
        push.extend(self.broadcast.clone().map(|broadcast| ("broadcast".to_owned(), broadcast)));
        if !push.is_empty() {
            request.insert("push".to_owned(), push.into());
        }
        if let Some(category) = &self.item {
            let category = Some(category.clone()).filter(|category| !category.is_empty());
            let item = present(&[("category", &category), ("retention", &self.item_retention)]);
            request.insert("item".to_owned(), item.into());
        }
        request.into()
    }

    async fn send_file(&self, client: &Client, file: &std::path::Path) -> Result<ExitCode, Failure> {
        let print = |result: &Value| if self.format.json { output::line(result) } else { Ok(()) };
        let (accepted, refused) = ndjson::send(client, "/v1/notifications/batch", file, print).await?;
        if !self.format.json {
            output::line(format_args!("{accepted} accepted, {refused} refused"))?;
        }
        Ok(if refused == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
