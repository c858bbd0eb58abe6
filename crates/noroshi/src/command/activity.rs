//! `noroshi activity`: starts, updates, ends and shows Live Activities.

use http::Method;
use serde_json::{Map, Value, json};

use clap::Subcommand;

use super::trace;
use crate::client::{Client, Connect, PageArguments, escape, pages};
use crate::failure::Failure;
use crate::input::{parse_json, present};
use crate::output;

const PATH: &str = "/v1/activities";
const COLUMNS: [&str; 6] = ["id", "state", "version", "devices", "updated_at", "expires_at"];

const HELP: &str = "\
Examples:
  noroshi activity start match-7 --topic match-7 --type MatchAttributes --state '{\"score\":\"0:0\"}' --alert Kick-off
  noroshi activity update match-7 --state '{\"score\":\"1:0\"}' --alert Goal --high
  noroshi activity end match-7 --state '{\"score\":\"2:1\"}' --dismiss-at 2026-01-15T11:30:00Z
  noroshi activity show match-7 --device d1";

#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Start an activity
    Start(Box<Start>),
    /// Set a new state; devices that are behind get the newest only
    Update(Box<Update>),
    /// End an activity on all devices
    End(Box<End>),
    /// Show an activity and how far its newest state has come, or what one device has of it
    Show(Show),
    /// List activities, newest first
    List(List),
}

#[derive(Debug, clap::Args)]
struct Server {
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    format: output::Format,
}

#[derive(Debug, clap::Args)]
#[group(id = "target", required = true, multiple = true)]
struct Target {
    /// To a user (repeatable)
    #[arg(long = "user", value_name = "USER", conflicts_with_all = ["devices", "topic", "condition", "everyone"])]
    users: Vec<String>,
    /// To a device (repeatable)
    #[arg(long = "to-device", value_name = "DEVICE", conflicts_with_all = ["topic", "condition", "everyone"])]
    devices: Vec<String>,
    /// To the subscribers of a topic
    #[arg(long, conflicts_with_all = ["condition", "everyone"])]
    topic: Option<String>,
    /// To devices that match a condition, such as "'a' in topics && !('b' in topics)"
    #[arg(long, conflicts_with = "everyone")]
    condition: Option<String>,
    /// To every device
    #[arg(long)]
    everyone: bool,
}

/// What devices show.
#[derive(Debug, clap::Args)]
struct State {
    /// State of the activity: an object with the fields of the app's ContentState
    #[arg(long, value_name = "JSON", value_parser = parse_json)]
    state: Option<Value>,
    /// What Android devices show: an object with title, text, short_text and progress
    #[arg(long, value_name = "JSON", value_parser = parse_json)]
    android: Option<Value>,
    /// The greatest one of an app's activities is in the Dynamic Island
    #[arg(long, value_name = "NUMBER")]
    relevance: Option<f64>,
    /// Title of an alert
    #[arg(long, value_name = "TITLE")]
    alert: Option<String>,
    /// Text of an alert
    #[arg(long, value_name = "TEXT")]
    alert_body: Option<String>,
    /// Sound of an alert: default, or a sound of the app
    #[arg(long, value_name = "SOUND")]
    sound: Option<String>,
}

#[derive(Debug, clap::Args)]
struct Start {
    /// Id of the activity [default: a UUID]
    id: Option<String>,
    #[command(flatten)]
    target: Target,
    /// Swift type of the attributes
    #[arg(long = "type", value_name = "TYPE")]
    attributes_type: String,
    /// Attributes, an object
    #[arg(long, value_name = "JSON", value_parser = parse_json)]
    attributes: Option<Value>,
    #[command(flatten)]
    state: State,
    /// When the state becomes outdated, RFC 3339
    #[arg(long, value_name = "TIME")]
    stale_at: Option<String>,
    /// Life of the activity, at most 12h
    #[arg(long)]
    ttl: Option<String>,
    /// Which devices receive each state as a message too [default: connected]
    #[arg(long, value_parser = ["active", "connected", "stored"])]
    when: Option<String>,
    /// The way to iOS [default: apns, or fcm if the app has no credential for APNs]
    #[arg(long, value_parser = ["apns", "fcm"])]
    ios_via: Option<String>,
    /// Any device of the app may join by reporting a token
    #[arg(long)]
    anyone: bool,
    /// The app declares NSSupportsLiveActivitiesFrequentUpdates
    #[arg(long)]
    frequent_updates: bool,
    /// A request with the same key returns the first activity and starts none
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    #[command(flatten)]
    server: Server,
}

#[derive(Debug, clap::Args)]
struct Update {
    /// Id of the activity
    id: String,
    #[command(flatten)]
    state: State,
    /// When the state becomes outdated, RFC 3339, or never
    #[arg(long, value_name = "TIME")]
    stale_at: Option<String>,
    /// Ask for a high priority, while the budget of the activity allows it
    #[arg(long)]
    high: bool,
    #[command(flatten)]
    server: Server,
}

#[derive(Debug, clap::Args)]
struct End {
    /// Id of the activity
    id: String,
    #[command(flatten)]
    state: State,
    /// When iOS removes it, RFC 3339, at most 4 hours from now; a past time removes it at once
    #[arg(long, value_name = "TIME")]
    dismiss_at: Option<String>,
    #[command(flatten)]
    server: Server,
}

#[derive(Debug, clap::Args)]
struct Show {
    /// Id of the activity
    id: String,
    /// What this device has of it
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Print the headers and the payload of each recorded request to a push service, and its response
    #[arg(long, requires = "device")]
    requests: bool,
    #[command(flatten)]
    server: Server,
}

#[derive(Debug, clap::Args)]
struct List {
    #[command(flatten)]
    page: PageArguments,
    #[command(flatten)]
    server: Server,
}

impl Arguments {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        match self.action {
            Action::Start(start) => start.run().await,
            Action::Update(update) => update.run().await,
            Action::End(end) => end.run().await,
            Action::Show(show) => show.run().await,
            Action::List(list) => {
                let client = list.server.connect.client()?;
                let listed = pages(&client, PATH, "activities", None, list.page).await?;
                listed.print("activities", &COLUMNS, list.server.format)
            }
        }
    }
}

impl State {
    fn fields(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        let objects = [("content_state", &self.state), ("android", &self.android)];
        fields
            .extend(objects.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value.clone()?))));
        fields.extend(self.relevance.map(|relevance| ("relevance".to_owned(), relevance.into())));
        let alert = present(&[("title", &self.alert), ("body", &self.alert_body), ("sound", &self.sound)]);
        if !alert.is_empty() {
            fields.insert("alert".to_owned(), alert.into());
        }
        fields
    }
}

impl Start {
    async fn run(self) -> Result<(), Failure> {
        let to = match &self.target {
            Target { topic: Some(topic), .. } => json!({"topic": topic}),
            Target { condition: Some(condition), .. } => json!({"condition": condition}),
            Target { everyone: true, .. } => json!({"everyone": true}),
            Target { devices, .. } if !devices.is_empty() => json!({"devices": devices}),
            Target { users, .. } => json!({"users": users}),
        };
        let mut body = self.state.fields();
        body.insert("to".to_owned(), to);
        body.insert("attributes_type".to_owned(), self.attributes_type.clone().into());
        body.extend(self.attributes.clone().map(|attributes| ("attributes".to_owned(), attributes)));
        body.extend(present(&[
            ("id", &self.id),
            ("stale_date", &self.stale_at),
            ("ttl", &self.ttl),
            ("when", &self.when),
            ("ios_via", &self.ios_via),
        ]));
        if self.anyone {
            body.insert("join".to_owned(), "anyone".into());
        }
        if self.frequent_updates {
            body.insert("frequent_updates".to_owned(), true.into());
        }
        let headers: Vec<(&str, &str)> =
            self.idempotency_key.iter().map(|key| ("Idempotency-Key", key.as_str())).collect();
        let client = self.server.connect.client()?;
        let started = sent(&client, Method::POST, PATH, body, &headers).await?;
        print(&started, self.server.format)
    }
}

impl Update {
    async fn run(self) -> Result<(), Failure> {
        let mut body = self.state.fields();
        match self.stale_at.as_deref() {
            Some("never") => drop(body.insert("stale_date".to_owned(), Value::Null)),
            Some(at) => drop(body.insert("stale_date".to_owned(), at.into())),
            None => {}
        }
        if self.high {
            body.insert("urgency".to_owned(), "high".into());
        }
        let client = self.server.connect.client()?;
        let updated = sent(&client, Method::PATCH, &path(&self.id), body, &[]).await?;
        print(&updated, self.server.format)
    }
}

impl End {
    async fn run(self) -> Result<(), Failure> {
        let mut body = self.state.fields();
        body.extend(present(&[("dismissal_date", &self.dismiss_at)]));
        let client = self.server.connect.client()?;
        let ended = sent(&client, Method::DELETE, &path(&self.id), body, &[]).await?;
        print(&ended, self.server.format)
    }
}

impl Show {
    async fn run(self) -> Result<(), Failure> {
        let client = self.server.connect.client()?;
        match &self.device {
            Some(device) => {
                let of_device = format!("{}/devices/{}", path(&self.id), escape(device));
                print_device(&client.get(&of_device).await?, self.requests, self.server.format)
            }
            None => print(&client.get(&path(&self.id)).await?, self.server.format),
        }
    }
}

fn path(id: &str) -> String {
    format!("{PATH}/{}", escape(id))
}

async fn sent(
    client: &Client,
    method: Method,
    path: &str,
    body: Map<String, Value>,
    headers: &[(&str, &str)],
) -> Result<Value, Failure> {
    let body = ("application/json", Value::from(body).to_string());
    let text = client.text(method, path, Some(body), headers).await?;
    Ok(serde_json::from_str(&text).unwrap_or_default())
}

/// Prints what a device has of an activity, and why.
pub(super) fn print_device(answer: &Value, whole: bool, format: output::Format) -> Result<(), Failure> {
    if format.json {
        return output::line(answer);
    }
    trace::sentences(answer)?;
    output::details(answer, &["targeting", "summary", "attempts"])?;
    trace::requests(output::entries(answer, "attempts"), whole)
}

/// Prints the activity, with what belongs to parts of the answer on lines of its own.
pub(super) fn print(activity: &Value, format: output::Format) -> Result<(), Failure> {
    if format.json {
        return output::line(activity);
    }
    let mut rows = activity.clone();
    for part in ["change", "progress"] {
        let Some(Value::Object(fields)) = rows.get(part).cloned() else { continue };
        let plain = fields.into_iter().filter(|(name, _)| !matches!(name.as_str(), "counts" | "reasons"));
        if let Some(rows) = rows.as_object_mut() {
            rows.extend(plain);
        }
    }
    output::details(&rows, &["change", "progress", "target", "attributes", "android"])?;
    let progress = activity.get("progress").cloned().unwrap_or_default();
    if !output::entries(&progress, "reasons").is_empty() {
        output::line("")?;
        format.list(&progress, "reasons", &["outcome", "reason", "count"])?;
    }
    Ok(())
}
