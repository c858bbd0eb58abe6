//! `noroshi campaign create`: from flags, from a file in the API's format, or from both, where flags take precedence; with recipients
//! from another file.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use http::Method;
use serde_json::{Map, Value, json};

use super::super::shown;
use super::{PATH, Server, print, upload, watch};
use crate::client::escape;
use crate::failure::Failure;
use crate::input::{parse_json, present, read_json};
use crate::output;

const HELP: &str = "\
Examples:
  noroshi campaign create --everyone --title \"Version 2 is here\" --local-time 09:00 --watch
  noroshi campaign create --topic news --platform ios --locale ja --title 号外 --lane extra --urgency high
  noroshi campaign create --upload users.ndjson --title \"Hello {{name}}\" --rate 5000 --watch
  noroshi campaign create --file campaign.json --dry-run

A line of --upload is {\"user\":\"u1\",\"variables\":{\"name\":\"Ana\"}}, or has its own notification. If a line is \
rejected, the campaign remains a draft with the other lines: upload the corrected lines (noroshi campaign upload), or leave them out, \
and start it (noroshi campaign start).";

#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Arguments {
    /// File with the campaign as JSON object of the API; - for standard input. Flags take precedence
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// A name for you to recognize it
    #[arg(long)]
    name: Option<String>,
    /// Create a draft
    #[arg(long, conflicts_with = "watch")]
    draft: bool,
    /// Only count the recipients
    #[arg(long, conflicts_with_all = ["watch", "draft", "upload"])]
    dry_run: bool,
    /// A request with the same key within 24 h returns the first campaign and creates none
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Watch it until it ends
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    strictness: watch::Strictness,
    #[command(flatten)]
    audience: Audience,
    #[command(flatten)]
    message: Message,
    #[command(flatten)]
    schedule: Schedule,
    #[command(flatten)]
    server: Server,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Audience")]
struct Audience {
    /// Every device
    #[arg(long, conflicts_with_all = ["topic", "condition", "upload"])]
    everyone: bool,
    /// The subscribers of a topic
    #[arg(long, conflicts_with_all = ["condition", "upload"])]
    topic: Option<String>,
    /// Devices that match a condition, such as "'a' in topics && !('b' in topics)"
    #[arg(long, conflicts_with = "upload")]
    condition: Option<String>,
    /// Users from a file, one JSON object per line; - for standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["platform", "locale", "timezone", "tag", "min_version", "max_version"])]
    upload: Option<PathBuf>,
    /// Only devices of these platforms, comma-separated, like the next two
    #[arg(long, value_delimiter = ',')]
    platform: Vec<String>,
    /// Only devices with one of these languages
    #[arg(long, value_delimiter = ',')]
    locale: Vec<String>,
    /// Only devices in one of these time zones
    #[arg(long, value_delimiter = ',', value_name = "ZONE")]
    timezone: Vec<String>,
    /// Only devices with this tag (repeatable, also for the same tag)
    #[arg(long, value_name = "KEY=VALUE", value_parser = tag)]
    tag: Vec<(String, String)>,
    /// Only devices with at least this version of the app
    #[arg(long, value_name = "VERSION")]
    min_version: Option<String>,
    /// Only devices with at most this version of the app
    #[arg(long, value_name = "VERSION")]
    max_version: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Message")]
struct Message {
    /// Title of the notification; {{name}} is replaced by a recipient's variable
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
    /// Default value of a variable (repeatable)
    #[arg(long = "variable", value_name = "NAME=WORD", value_parser = tag)]
    variables: Vec<(String, String)>,
    #[arg(long, value_parser = ["very-low", "low", "normal", "high"])]
    urgency: Option<String>,
    /// Time to live, such as 90s or 24h
    #[arg(long)]
    ttl: Option<String>,
    /// Replaces undelivered notifications with the same key
    #[arg(long, value_name = "KEY")]
    collapse_key: Option<String>,
    /// Category of the notification, to which preferences apply
    #[arg(long)]
    category: Option<String>,
    /// Also deliver to connections and inboxes, like noroshi send [default: only through push services]
    #[arg(long, value_parser = ["active", "connected", "stored"])]
    when: Option<String>,
    /// With --when: whether to use push services as well
    #[arg(long, value_parser = ["never", "fallback", "always"])]
    push: Option<String>,
    /// Send the push to this token of each device, such as voip or controls/lamp [default: the main token]
    #[arg(long, value_name = "KIND[/NAME]")]
    push_token: Option<String>,
    /// With --push fallback: time for a device to acknowledge it
    #[arg(long, value_name = "DURATION")]
    push_after: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Schedule and rate")]
struct Schedule {
    /// Start time, RFC 3339
    #[arg(long, value_name = "TIME")]
    start_at: Option<String>,
    /// Local time of each device, such as 09:00
    #[arg(long, value_name = "HH:MM")]
    local_time: Option<String>,
    /// Quiet hours in local time of each device, such as 22:00-07:00; no effect with urgency high
    #[arg(long, value_name = "FROM-TO", value_parser = hours)]
    quiet_hours: Option<(String, String)>,
    /// Maximum recipients per second
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<u32>,
    /// extra goes before other campaigns
    #[arg(long, value_parser = ["campaign", "extra"])]
    lane: Option<String>,
    /// Recipients per batch
    #[arg(long, value_name = "RECIPIENTS")]
    batch_size: Option<u32>,
}

fn tag(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    pair.map(|(name, value)| (name.to_owned(), value.to_owned())).ok_or_else(|| "NAME=VALUE".to_owned())
}

fn hours(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('-').map(|(from, to)| (from.trim().to_owned(), to.trim().to_owned()));
    pair.ok_or_else(|| "must be two times of day, such as 22:00-07:00".to_owned())
}

impl Arguments {
    pub(super) async fn run(self) -> Result<ExitCode, Failure> {
        let mut body = self.body()?;
        let client = self.server.connect.client()?;
        let format = self.server.format;
        if self.dry_run {
            format.details(&client.post(&format!("{PATH}?dry_run=true"), &body).await?)?;
            return Ok(ExitCode::SUCCESS);
        }
        let is_upload = body.pointer("/audience/upload").is_some();
        if self.draft || is_upload {
            body["start"] = false.into();
        }
        let headers: Vec<(&str, &str)> =
            self.idempotency_key.iter().map(|key| ("Idempotency-Key", key.as_str())).collect();
        let text =
            client.text(Method::POST, PATH, Some(("application/json", body.to_string())), &headers).await?;
        let mut campaign: Value = serde_json::from_str(&text).unwrap_or_default();
        let id = output::text(&campaign, "id").to_owned();
        if !format.json {
            shown::print_warnings(&campaign);
        }
        // With a key that was used before, it may already have its recipients and be running.
        let is_draft = campaign.get("state").is_some_and(|state| state == "draft");
        if let Some(file) = self.audience.upload.as_ref().filter(|_| is_draft) {
            let refused = upload::send(&client, &id, file).await.inspect_err(|_| {
                eprintln!("campaign {} remains a draft", output::clean(&id));
            })?;
            if refused > 0 {
                return Err(Failure::failed(format!(
                    "{refused} lines were rejected; campaign {id} remains a draft"
                )));
            }
            if !self.draft {
                campaign = client.post(&format!("{PATH}/{}/start", escape(&id)), &json!({})).await?;
            }
        }
        if self.watch {
            if !format.json {
                eprintln!("campaign {}", output::clean(&id));
            }
            return watch::watch(&client, &id, format, &self.strictness).await;
        }
        print(&campaign, format)?;
        Ok(ExitCode::SUCCESS)
    }

    /// The file, overridden by the flags.
    fn body(&self) -> Result<Value, Failure> {
        let mut body = match &self.file {
            Some(path) => read(path)?,
            None => Map::new(),
        };
        let insert = |body: &mut Map<String, Value>, name: &str, value: Option<Value>| {
            if let Some(value) = value {
                body.insert(name.to_owned(), value);
            }
        };
        insert(&mut body, "name", self.name.clone().map(Value::from));
        insert(&mut body, "audience", self.audience.body());
        let mut message = body.remove("message").and_then(object).unwrap_or_default();
        self.message.write(&mut message);
        insert(&mut body, "message", Some(message.into()));
        let variables = &self.message.variables;
        let words = || variables.iter().map(|(name, word)| (name.clone(), word.clone().into())).collect();
        insert(&mut body, "variables", (!variables.is_empty()).then(|| Value::Object(words())));
        for (name, value) in self.schedule.fields() {
            insert(&mut body, name, value);
        }
        if !body.contains_key("audience") {
            let text = "an audience is required: --everyone, --topic, --condition, --upload or a filter such as --platform";
            return Err(Failure::Usage(text.to_owned()));
        }
        Ok(body.into())
    }
}

impl Audience {
    /// None: the flags name no audience.
    fn body(&self) -> Option<Value> {
        let mut body = match self {
            Self { everyone: true, .. } => json!({"everyone": true}),
            Self { topic: Some(topic), .. } => json!({"topic": topic}),
            Self { condition: Some(condition), .. } => json!({"condition": condition}),
            Self { upload: Some(_), .. } => json!({"upload": true}),
            _ => json!({}),
        };
        let mut filter = Map::new();
        for (name, values) in
            [("platforms", &self.platform), ("locales", &self.locale), ("timezones", &self.timezone)]
        {
            if !values.is_empty() {
                filter.insert(name.to_owned(), json!(values));
            }
        }
        let mut tags = Map::new();
        for (name, value) in &self.tag {
            let values = tags.entry(name.clone()).or_insert_with(|| json!([]));
            values.as_array_mut().into_iter().for_each(|values| values.push(value.clone().into()));
        }
        if !tags.is_empty() {
            filter.insert("tags".to_owned(), tags.into());
        }
        let version = present(&[("min", &self.min_version), ("max", &self.max_version)]);
        if !version.is_empty() {
            filter.insert("app_version".to_owned(), version.into());
        }
        if !filter.is_empty() {
            body["devices"] = filter.into();
        }
        body.as_object().is_some_and(|fields| !fields.is_empty()).then_some(body)
    }
}

impl Message {
    fn write(&self, message: &mut Map<String, Value>) {
        let mut texts = present(&[
            ("title", &self.title),
            ("body", &self.body),
            ("image", &self.image),
            ("url", &self.url),
        ]);
        texts.extend(self.shown.fields());
        if !texts.is_empty() {
            let mut notification = message.remove("notification").and_then(object).unwrap_or_default();
            notification.extend(texts);
            message.insert("notification".to_owned(), notification.into());
        }
        if let Some(data) = &self.data {
            message.insert("data".to_owned(), data.clone());
        }
        message.extend(present(&[
            ("urgency", &self.urgency),
            ("ttl", &self.ttl),
            ("collapse_key", &self.collapse_key),
            ("category", &self.category),
            ("when", &self.when),
        ]));
        let push = present(&[("mode", &self.push), ("after", &self.push_after), ("token", &self.push_token)]);
        if !push.is_empty() {
            let mut whole = message.remove("push").and_then(object).unwrap_or_default();
            whole.extend(push);
            message.insert("push".to_owned(), whole.into());
        }
    }
}

impl Schedule {
    fn fields(&self) -> [(&'static str, Option<Value>); 6] {
        [
            ("start_at", self.start_at.clone().map(Value::from)),
            ("local_time", self.local_time.clone().map(Value::from)),
            ("quiet_hours", self.quiet_hours.as_ref().map(|(from, to)| json!({"from": from, "to": to}))),
            ("rate_per_second", self.rate.map(Value::from)),
            ("lane", self.lane.clone().map(Value::from)),
            ("batch_size", self.batch_size.map(Value::from)),
        ]
    }
}

fn read(path: &Path) -> Result<Map<String, Value>, Failure> {
    let rule = || Failure::Usage(format!("{}: must be a JSON object", path.display()));
    object(read_json(path)?).ok_or_else(rule)
}

fn object(value: Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(fields) => Some(fields),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn body(arguments: &[&str]) -> Result<Value, Failure> {
        let line = Line::try_parse_from([&["create"], arguments].concat()).expect("arguments");
        line.arguments.body()
    }

    #[test]
    fn flags_build_the_body_of_the_request() {
        let check = |arguments: &[&str], expected: Value| {
            assert_eq!(body(arguments).expect("a body"), expected, "{arguments:?}");
        };
        check(
            &["--everyone", "--title", "T", "--data", "{\"n\":1}"],
            json!({"audience": {"everyone": true}, "message": {"notification": {"title": "T"}, "data": {"n": 1}}}),
        );
        check(
            &[
                "--everyone",
                "--title",
                "T",
                "--badge",
                "0",
                "--sound",
                "default",
                "--action",
                "y=Yes",
                "--relevance",
                "0.5",
            ],
            json!({"audience": {"everyone": true}, "message": {"notification": {"title": "T", "badge": 0, "sound": "default",
                "actions": [{"id": "y", "title": "Yes"}], "relevance": 0.5}}}),
        );
        check(
            &[
                "--platform",
                "ios,android",
                "--tag",
                "plan=free",
                "--tag",
                "plan=trial",
                "--min-version",
                "1.2",
            ],
            json!({"audience": {"devices": {"platforms": ["ios", "android"], "tags": {"plan": ["free", "trial"]},
                "app_version": {"min": "1.2"}}}, "message": {}}),
        );
        check(
            &[
                "--topic",
                "news",
                "--name",
                "N",
                "--when",
                "stored",
                "--push",
                "fallback",
                "--push-token",
                "controls/lamp",
                "--push-after",
                "1m",
                "--quiet-hours",
                "22:00-07:00",
                "--rate",
                "50",
                "--lane",
                "extra",
                "--variable",
                "name=you",
            ],
            json!({"name": "N", "audience": {"topic": "news"},
                "message": {"when": "stored", "push": {"mode": "fallback", "after": "1m", "token": "controls/lamp"}},
                "variables": {"name": "you"}, "quiet_hours": {"from": "22:00", "to": "07:00"},
                "rate_per_second": 50, "lane": "extra"}),
        );
        assert!(matches!(body(&["--title", "without an audience"]), Err(Failure::Usage(_))));
    }

    #[test]
    fn json_is_not_listed_with_the_schedule() {
        let command = <Line as clap::CommandFactory>::command();
        let json = command.get_arguments().find(|option| option.get_id() == "json").expect("an option");
        assert_eq!(json.get_help_heading(), None);
    }

    #[test]
    fn flags_override_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("campaign.json");
        let text = r#"{"audience": {"everyone": true}, "message": {"notification": {"title": "F", "body": "B"}},
            "rate_per_second": 7, "locales": {"ja": {"data": 1}}}"#;
        std::fs::write(&file, text).expect("written");
        let read =
            body(&["--file", file.to_str().expect("UTF-8"), "--title", "T", "--topic", "t"]).expect("a body");
        let expected = json!({"audience": {"topic": "t"},
            "message": {"notification": {"title": "T", "body": "B"}},
            "rate_per_second": 7, "locales": {"ja": {"data": 1}}});
        assert_eq!(read, expected);
        std::fs::write(&file, "[]").expect("written");
        assert!(matches!(body(&["--file", file.to_str().expect("UTF-8")]), Err(Failure::Usage(_))));
    }
}
