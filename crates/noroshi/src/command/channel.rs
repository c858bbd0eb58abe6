//! `noroshi channel`: manages broadcast channels of APNs and sends to them, through the API.

use clap::{Subcommand, ValueEnum};
use serde_json::{Map, Value, json};

use crate::client::{Client, Connect, PageArguments, escape, pages};
use crate::failure::Failure;
use crate::input::{parse_json, present};
use crate::output;

const PATH: &str = "/v1/push/channels";
const COLUMNS: [&str; 7] = ["name", "environment", "storage", "topic", "waiting", "apns_id", "created_at"];
const APNS_COLUMNS: [&str; 2] = ["apns_id", "name"];
const BROADCAST_COLUMNS: [&str; 6] = ["id", "accepted_at", "state", "reason", "attempts", "ended_at"];

#[derive(Debug, clap::Args)]
#[command(after_help = "\
A channel of APNs reaches the Live Activities of all devices that subscribe to it (iOS 18 or newer) with one request.
The app subscribes with Apple's id of the channel, which `create` and `show` print. The app needs the capability
\"Broadcast\" at Apple, and here a credential for APNs (noroshi push add apns).

  noroshi channel create final --storage latest --topic game/7
  noroshi channel broadcast final --event update --state '{\"home\":1,\"away\":0}'
  noroshi send --topic game/7 --data '{\"home\":2}' --broadcast '{\"event\":\"update\",\"content_state\":{\"home\":2}}'
  noroshi channel delete final")]
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
    /// Create a channel at Apple under a name of yours; an existing one with the same settings is shown
    Create {
        name: String,
        /// Apple's environment
        #[arg(long, value_enum, default_value_t = Environment::Production)]
        environment: Environment,
        /// What Apple keeps for devices that are offline [default: none]
        #[arg(long, value_enum)]
        storage: Option<Storage>,
        /// Bind it to this topic: a notification to the topic may be broadcast too
        #[arg(long)]
        topic: Option<String>,
        /// Adopt the channel with this id of Apple, instead of creating one
        #[arg(long, value_name = "ID")]
        apns_id: Option<String>,
    },
    /// List channels by name
    List {
        /// List the channels at Apple; those without a name belong to no channel here
        #[arg(long)]
        apple: bool,
        /// With --apple: Apple's environment
        #[arg(long, value_enum, default_value_t = Environment::Production, requires = "apple")]
        environment: Environment,
        #[command(flatten)]
        page: PageArguments,
    },
    /// Show a channel and its newest broadcasts
    Show { name: String },
    /// Delete a channel at Apple and here; broadcasts that wait are cancelled
    Delete(Delete),
    /// Bind a channel to a topic, in place of its present one
    Bind { name: String, topic: String },
    /// Bind a channel to no topic
    Unbind { name: String },
    /// Send an update or the end of a Live Activity to a channel
    Broadcast(Box<Broadcast>),
}

#[derive(Debug, clap::Args)]
struct Delete {
    /// The channel's name
    #[arg(required_unless_present = "apns_id", conflicts_with = "apns_id")]
    name: Option<String>,
    /// Only forget it here; it stays at Apple
    #[arg(long, conflicts_with = "apns_id")]
    forget: bool,
    /// Delete the channel with this id of Apple, which has no name here
    #[arg(long, value_name = "ID")]
    apns_id: Option<String>,
    /// With --apns-id: Apple's environment
    #[arg(long, value_enum, default_value_t = Environment::Production, conflicts_with = "name")]
    environment: Environment,
}

#[derive(Debug, clap::Args)]
struct Broadcast {
    /// The channel's name
    name: String,
    /// What happens to the Live Activity
    #[arg(long, value_enum, default_value_t = Event::Update)]
    event: Event,
    /// The fields of the app's ContentState, a JSON object; an end may have none
    #[arg(long, value_name = "JSON", value_parser = parse_json)]
    state: Option<Value>,
    /// When the state was true (RFC 3339) [default: now]
    #[arg(long, value_name = "TIME")]
    timestamp: Option<String>,
    /// From when on the activity counts as outdated (RFC 3339)
    #[arg(long, value_name = "TIME")]
    stale_at: Option<String>,
    /// With --event end: when it leaves the Lock Screen (RFC 3339)
    #[arg(long, value_name = "TIME")]
    dismiss_at: Option<String>,
    /// Rank among the app's activities
    #[arg(long, value_name = "NUMBER", value_parser = parse_json)]
    relevance: Option<Value>,
    /// Title of an alert
    #[arg(long)]
    title: Option<String>,
    /// Text of an alert
    #[arg(long)]
    body: Option<String>,
    /// Sound of the alert
    #[arg(long)]
    sound: Option<String>,
    /// APNs' priority: 1, 5 or 10 [default: 10]
    #[arg(long)]
    priority: Option<u8>,
    /// A newer broadcast replaces it while it waits
    #[arg(long)]
    replaceable: bool,
    /// Time to live, such as 10m [default: 1h]
    #[arg(long)]
    ttl: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Environment {
    Production,
    Sandbox,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Storage {
    None,
    Latest,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Event {
    Update,
    End,
}

impl Environment {
    fn as_str(self) -> &'static str {
        match self {
            Self::Production => "production",
            Self::Sandbox => "sandbox",
        }
    }
}

impl Storage {
    fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Latest => "latest",
        }
    }
}

impl Arguments {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let (client, format) = (self.connect.client()?, self.format);
        let path = |name: &str| format!("{PATH}/{}", escape(name));
        match self.action {
            Action::Create { name, environment, storage, topic, apns_id } => {
                let storage = storage.map(|storage| storage.as_str().to_owned());
                let mut body = present(&[("storage", &storage), ("topic", &topic), ("apns_id", &apns_id)]);
                body.insert("name".to_owned(), name.into());
                body.insert("environment".to_owned(), environment.as_str().into());
                format.details(&client.post(PATH, &body.into()).await?)
            }
            Action::List { apple: true, environment, .. } => {
                let path = format!("/v1/push/apns-channels?environment={}", environment.as_str());
                format.list(&client.get(&path).await?, "channels", &APNS_COLUMNS)
            }
            Action::List { page, .. } => {
                pages(&client, PATH, "channels", None, page).await?.print("channels", &COLUMNS, format)
            }
            Action::Show { name } => show(&client.get(&path(&name)).await?, format),
            Action::Delete(delete) => delete.run(&client, format).await,
            Action::Bind { name, topic } => {
                format.details(&client.patch(&path(&name), &json!({"topic": topic})).await?)
            }
            Action::Unbind { name } => {
                format.details(&client.patch(&path(&name), &json!({"topic": null})).await?)
            }
            Action::Broadcast(broadcast) => {
                let path = format!("{}/broadcasts", path(&broadcast.name));
                format.details(&client.post(&path, &broadcast.request()).await?)
            }
        }
    }
}

/// A channel, then its broadcasts.
fn show(answer: &Value, format: output::Format) -> Result<(), Failure> {
    if format.json {
        return output::line(answer);
    }
    output::details(answer, &["broadcasts"])?;
    let broadcasts = output::entries(answer, "broadcasts");
    if broadcasts.is_empty() {
        return Ok(());
    }
    output::line("")?;
    output::table(&BROADCAST_COLUMNS, output::rows(broadcasts, &BROADCAST_COLUMNS))
}

impl Delete {
    async fn run(self, client: &Client, format: output::Format) -> Result<(), Failure> {
        let (what, path) = match (self.name, self.apns_id) {
            (Some(name), _) => {
                let forget = if self.forget { "?forget=true" } else { "" };
                (json!({"name": name}), format!("{PATH}/{}{forget}", escape(&name)))
            }
            (None, id) => {
                let (id, environment) = (id.unwrap_or_default(), self.environment.as_str());
                let path = format!("/v1/push/apns-channels/{}?environment={environment}", escape(&id));
                (json!({"apns_id": id}), path)
            }
        };
        client.delete(&path).await?;
        let mut done = what;
        done["deleted"] = true.into();
        format.details(&done)
    }
}

impl Broadcast {
    fn request(&self) -> Value {
        let mut body: Map<String, Value> = present(&[
            ("timestamp", &self.timestamp),
            ("stale_at", &self.stale_at),
            ("dismiss_at", &self.dismiss_at),
            ("ttl", &self.ttl),
        ]);
        let event = match self.event {
            Event::Update => "update",
            Event::End => "end",
        };
        body.insert("event".to_owned(), event.into());
        let alert = present(&[("title", &self.title), ("body", &self.body), ("sound", &self.sound)]);
        let alert = (!alert.is_empty()).then(|| Value::from(alert));
        let others = [
            ("content_state", self.state.clone()),
            ("relevance", self.relevance.clone()),
            ("alert", alert),
            ("priority", self.priority.map(Value::from)),
            ("replaceable", self.replaceable.then(|| true.into())),
        ];
        body.extend(others.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
        body.into()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn request(words: &str) -> Value {
        let line = Line::try_parse_from(format!("channel broadcast {words}").split(' ')).expect(words);
        match line.arguments.action {
            Action::Broadcast(broadcast) => broadcast.request(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_broadcast_has_the_fields_that_are_given() {
        assert_eq!(request("c --state {}"), json!({"event": "update", "content_state": {}}));
        let full = request(
            "c --event end --title Final --sound default --priority 5 --replaceable --ttl 10m --relevance 0.5",
        );
        let expected = json!({"event": "end", "alert": {"title": "Final", "sound": "default"}, "priority": 5,
            "replaceable": true, "ttl": "10m", "relevance": 0.5});
        assert_eq!(full, expected);
    }

    #[test]
    fn a_channel_is_deleted_by_one_of_two_names() {
        let parsed = |words: &str| Line::try_parse_from(format!("channel delete {words}").split(' '));
        assert!(parsed("a").is_ok() && parsed("--apns-id x --environment sandbox").is_ok());
        assert!(parsed("a --apns-id x").is_err() && parsed("a --environment sandbox").is_err());
    }
}
