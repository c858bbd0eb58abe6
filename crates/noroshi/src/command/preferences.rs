//! `noroshi preferences`: which notifications arrive at a user or a device, and how.

use std::path::PathBuf;

use clap::Subcommand;
use serde_json::{Map, Value, json};

use crate::client::{Connect, escape};
use crate::failure::Failure;
use crate::input::read_json;
use crate::output;

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
    /// Show the preferences of a user or a device
    Show {
        #[command(flatten)]
        of: Of,
    },
    /// Replace the preferences of a user or a device
    Set {
        #[command(flatten)]
        of: Of,
        #[command(flatten)]
        preferences: Box<Preferences>,
    },
    /// Delete the preferences of a user or a device
    Clear {
        #[command(flatten)]
        of: Of,
    },
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Of {
    /// User whose preferences to show or change
    #[arg(long)]
    user: Option<String>,
    /// Device whose preferences to show or change
    #[arg(long)]
    device: Option<String>,
}

/// The server validates the values.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = true)]
struct Preferences {
    /// Allowed channels, such as live,push; none for no channel
    #[arg(long, value_name = "CHANNELS", conflicts_with = "file")]
    channels: Option<String>,
    /// Mute a topic (repeatable)
    #[arg(long, value_name = "TOPIC", conflicts_with = "file")]
    mute_topic: Vec<String>,
    /// Mute a category (repeatable)
    #[arg(long, value_name = "CATEGORY", conflicts_with = "file")]
    mute: Vec<String>,
    /// Unmute a category that the user's preferences mute, for a device (repeatable)
    #[arg(long, value_name = "CATEGORY", conflicts_with = "file")]
    unmute: Vec<String>,
    /// Channels of one category, such as news=inbox or news=none (repeatable)
    #[arg(long, value_name = "CATEGORY=CHANNELS", conflicts_with = "file")]
    category_channels: Vec<String>,
    /// How many notifications of a category may interrupt a device on one day, such as news=3 (repeatable)
    #[arg(long, value_name = "CATEGORY=COUNT", conflicts_with = "file")]
    daily_max: Vec<String>,
    /// Quiet hours, such as 22:00-07:00
    #[arg(long, value_name = "FROM-TO", conflicts_with = "file")]
    quiet: Option<String>,
    /// IANA name of the clock of the quiet hours [default: the device's time zone]
    #[arg(long, value_name = "ZONE", requires = "quiet", conflicts_with = "file")]
    timezone: Option<String>,
    /// File with the preferences as JSON; - for standard input
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

impl Arguments {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let client = self.connect.client()?;
        match self.action {
            Action::Show { of } => {
                let stored = client.get(&of.path()).await?;
                self.format.print(&stored, || table(&stored))
            }
            Action::Set { of, preferences } => {
                let stored = client.put(&of.path(), &preferences.body()?).await?;
                self.format.print(&stored, || table(&stored))
            }
            Action::Clear { of } => {
                client.delete(&of.path()).await?;
                self.format.print(json!({}), || "cleared")
            }
        }
    }
}

impl Of {
    fn path(&self) -> String {
        match &self.user {
            Some(user) => format!("/v1/users/{}/preferences", escape(user)),
            None => format!("/v1/devices/{}/preferences", escape(self.device.as_deref().unwrap_or_default())),
        }
    }
}

impl Preferences {
    fn body(&self) -> Result<Value, Failure> {
        if let Some(file) = &self.file {
            return read_json(file);
        }
        let mut categories = Map::new();
        let mut category = |name: &str, field: &str, value: Value| {
            categories.entry(name).or_insert_with(|| json!({}))[field] = value;
        };
        for name in &self.mute {
            category(name, "muted", true.into());
        }
        if let Some(both) = self.mute.iter().find(|name| self.unmute.contains(name)) {
            return Err(Failure::Usage(format!("{both}: cannot be in both --mute and --unmute")));
        }
        for name in &self.unmute {
            category(name, "muted", false.into());
        }
        for text in &self.category_channels {
            let (name, list) = pair(text, "CATEGORY=CHANNELS, such as news=inbox")?;
            category(name, "channels", channels(list));
        }
        for text in &self.daily_max {
            const FORM: &str = "CATEGORY=COUNT, such as news=3";
            let (name, count) = pair(text, FORM)?;
            let count: u64 = count.parse().map_err(|_| must_be(text, FORM))?;
            category(name, "daily_max", count.into());
        }
        let mut body = Map::new();
        if let Some(list) = &self.channels {
            body.insert("channels".to_owned(), channels(list));
        }
        if !self.mute_topic.is_empty() {
            body.insert("muted_topics".to_owned(), json!(self.mute_topic));
        }
        if !categories.is_empty() {
            body.insert("categories".to_owned(), categories.into());
        }
        if let Some(hours) = &self.quiet {
            let (from, to) =
                hours.split_once('-').ok_or_else(|| must_be(hours, "FROM-TO, such as 22:00-07:00"))?;
            let mut quiet = json!({"from": from, "to": to});
            if let Some(zone) = &self.timezone {
                quiet["timezone"] = zone.clone().into();
            }
            body.insert("quiet_hours".to_owned(), quiet);
        }
        Ok(body.into())
    }
}

/// One row for each preference.
fn table(stored: &Value) -> String {
    let mut rows = Vec::new();
    for (name, value) in stored.as_object().into_iter().flatten() {
        match (name.as_str(), value) {
            ("channels", list) => rows.push(("channels".to_owned(), channel_names(list))),
            ("muted_topics", topics) => rows.push(("muted topics".to_owned(), output::cell(Some(topics)))),
            ("quiet_hours", hours) => rows.push(("quiet hours".to_owned(), quiet_hours(hours))),
            ("categories", Value::Object(categories)) => rows.extend(categories.iter().map(|(name, of)| {
                let name = output::clean(name);
                (format!("category {name}"), category(of))
            })),
            // Of a newer server.
            (name, value) => rows.push((output::clean(name), output::cell(Some(value)))),
        }
    }
    if rows.is_empty() {
        return "no preferences".to_owned();
    }
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines: Vec<String> = rows.iter().map(|(name, value)| format!("{name:width$}  {value}")).collect();
    lines.join("\n")
}

fn category(of: &Value) -> String {
    let rule = |(name, value): (&String, &Value)| match (name.as_str(), value) {
        ("muted", Value::Bool(true)) => "muted".to_owned(),
        ("muted", Value::Bool(false)) => "not muted".to_owned(),
        ("channels", list) => format!("channels: {}", channel_names(list)),
        ("daily_max", max) => format!("at most {max} a day"),
        (name, value) => format!("{}={}", output::clean(name), output::cell(Some(value))),
    };
    let rules: Vec<String> = of.as_object().into_iter().flatten().map(rule).collect();
    if rules.is_empty() { "-".to_owned() } else { rules.join("; ") }
}

fn channel_names(list: &Value) -> String {
    match list.as_array() {
        Some(names) if names.is_empty() => "none".to_owned(),
        _ => output::cell(Some(list)),
    }
}

fn quiet_hours(hours: &Value) -> String {
    let field = |name: &str| output::clean(output::text(hours, name));
    format!("{}-{} {}", field("from"), field("to"), field("timezone")).trim_end().to_owned()
}

fn channels(list: &str) -> Value {
    match list {
        "none" => json!([]),
        list => list.split(',').collect::<Vec<_>>().into(),
    }
}

fn pair<'a>(text: &'a str, form: &str) -> Result<(&'a str, &'a str), Failure> {
    text.split_once('=').ok_or_else(|| must_be(text, form))
}

fn must_be(text: &str, form: &str) -> Failure {
    Failure::Usage(format!("{text}: must be {form}"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Flags {
        #[command(flatten)]
        preferences: Preferences,
    }

    fn body(flags: &[&str]) -> Result<Value, Failure> {
        let flags = Flags::try_parse_from(["set"].iter().chain(flags)).expect("flags");
        flags.preferences.body()
    }

    #[test]
    fn flags_become_the_body() {
        let all = body(&[
            "--channels",
            "live,push",
            "--mute-topic",
            "a",
            "--mute-topic",
            "b/c",
            "--mute",
            "promo",
            "--unmute",
            "chat",
            "--category-channels",
            "news=inbox",
            "--category-channels",
            "ads=none",
            "--daily-max",
            "news=3",
            "--quiet",
            "22:00-07:00",
            "--timezone",
            "Asia/Tokyo",
        ]);
        let expected = json!({
            "channels": ["live", "push"],
            "muted_topics": ["a", "b/c"],
            "categories": {"promo": {"muted": true}, "chat": {"muted": false}, "ads": {"channels": []},
                "news": {"channels": ["inbox"], "daily_max": 3}},
            "quiet_hours": {"from": "22:00", "to": "07:00", "timezone": "Asia/Tokyo"},
        });
        assert_eq!(all.expect("a body"), expected);
        assert_eq!(body(&["--channels", "none"]).expect("a body"), json!({"channels": []}));
    }

    #[test]
    fn preferences_are_shown_in_rows() {
        assert_eq!(table(&json!({})), "no preferences");
        let stored = json!({
            "channels": [],
            "muted_topics": ["a", "b/c"],
            "categories": {"promo": {"muted": true}, "chat": {"muted": false},
                "news": {"channels": ["inbox", "push"], "daily_max": 3}},
            "quiet_hours": {"from": "22:00", "to": "07:00", "timezone": "Asia/Tokyo"},
            "later": 1,
        });
        let text = table(&stored);
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        let expected = [
            "category chat   not muted",
            "category news   channels: inbox, push; at most 3 a day",
            "category promo  muted",
            "channels        none",
            "later           1",
            "muted topics    a, b/c",
            "quiet hours     22:00-07:00 Asia/Tokyo",
        ];
        assert_eq!(lines, expected);
        assert_eq!(quiet_hours(&json!({"from": "22:00", "to": "07:00"})), "22:00-07:00");
    }

    #[test]
    fn an_owner_is_required() {
        #[derive(Debug, Parser)]
        struct Flags {
            #[command(flatten)]
            of: Of,
        }
        let path = |flags: &[&str]| Flags::try_parse_from(flags).map(|flags| flags.of.path());
        assert_eq!(path(&["show", "--user", "a b"]).expect("a user"), "/v1/users/a%20b/preferences");
        assert_eq!(path(&["show", "--device", "d"]).expect("a device"), "/v1/devices/d/preferences");
        let none = path(&["show"]).expect_err("neither").to_string();
        assert!(none.contains("--user") && none.contains("--device"), "{none}");
        assert!(path(&["show", "--user", "u", "--device", "d"]).is_err());
    }

    #[test]
    fn wrong_flags_are_rejected() {
        let both = body(&["--mute", "a", "--mute", "b", "--unmute", "b"]);
        assert!(matches!(both, Err(Failure::Usage(text)) if text.starts_with("b:")));
        for flags in [
            ["--daily-max", "news"],
            ["--daily-max", "news=few"],
            ["--category-channels", "x"],
            ["--quiet", "22:00"],
        ] {
            assert!(
                matches!(body(&flags), Err(Failure::Usage(text)) if text.contains("must be")),
                "{flags:?}"
            );
        }
        for flags in [&["set"][..], &["set", "--timezone", "UTC"], &["set", "--file", "-", "--mute", "a"]] {
            assert!(Flags::try_parse_from(flags).is_err(), "{flags:?}");
        }
    }
}
