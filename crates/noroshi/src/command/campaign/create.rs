//! `noroshi campaign create`: from flags, from a file of the API's own form, or from both, where flags go
//! before the file; with its recipients from another file.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use http::Method;
use noroshi_types::limits;
use serde_json::{Map, Value, json};

use super::{PATH, Server, details, watch};
use crate::client::{Client, escape};
use crate::failure::Failure;
use crate::{ndjson, output};

/// A request carries at most this; the server's default limit is 16 MiB.
const BATCH_BYTES: usize = 8 << 20;

const HELP: &str = "\
Examples:
  noroshi campaign create --everyone --title \"Version 2 is here\" --local-time 09:00 --watch
  noroshi campaign create --topic news --platform ios --locale ja --title 号外 --lane extra --urgency high
  noroshi campaign create --upload users.ndjson --title \"Hello {{name}}\" --rate 5000 --watch
  noroshi campaign create --file campaign.json --dry-run

A line of --upload is {\"user\":\"u1\",\"variables\":{\"name\":\"Ana\"}}, or has a notification of its own. If any line is \
refused the campaign stays a draft of the others: start it without them (noroshi campaign start), or abort it, mend the file \
and create it again.";

#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Arguments {
    /// The campaign as the API takes it, a JSON object; - is standard input. Flags go before it
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Your own word for it
    #[arg(long)]
    name: Option<String>,
    /// Leave it a draft
    #[arg(long, conflicts_with = "watch")]
    draft: bool,
    /// Only count who would get it
    #[arg(long, conflicts_with_all = ["watch", "draft", "upload"])]
    dry_run: bool,
    /// The same key within 24 h gets the first campaign and makes none
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// Watch it until it has ended
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    judgement: watch::Judgement,
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
    /// Who is meant by a condition, such as "'a' in topics && !('b' in topics)"
    #[arg(long, conflicts_with = "upload")]
    condition: Option<String>,
    /// Users from a file, a JSON object a line; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["platform", "locale", "timezone", "tag", "min_version", "max_version"])]
    upload: Option<PathBuf>,
    /// Only devices of these platforms, separated by commas; so are the next two
    #[arg(long, value_delimiter = ',')]
    platform: Vec<String>,
    /// Only devices that speak one of these languages
    #[arg(long, value_delimiter = ',')]
    locale: Vec<String>,
    /// Only devices in one of these time zones
    #[arg(long, value_delimiter = ',', value_name = "ZONE")]
    timezone: Vec<String>,
    /// Only devices with this tag; may be given more than once, for one tag too
    #[arg(long, value_name = "KEY=VALUE", value_parser = tag)]
    tag: Vec<(String, String)>,
    /// Only devices with this version of the app or a newer one
    #[arg(long, value_name = "VERSION")]
    min_version: Option<String>,
    /// Only devices with this version of the app or an older one
    #[arg(long, value_name = "VERSION")]
    max_version: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Message")]
struct Message {
    /// Title of the notification; {{name}} is a recipient's own word
    #[arg(long)]
    title: Option<String>,
    /// Text of the notification
    #[arg(long)]
    body: Option<String>,
    /// Address of a picture
    #[arg(long, value_name = "URL")]
    image: Option<String>,
    /// What opens when it is touched
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Data for the app, any JSON
    #[arg(long, value_name = "JSON", value_parser = super::super::send::parse_json)]
    data: Option<Value>,
    /// A word for those who bring none of their own; may be given more than once
    #[arg(long = "variable", value_name = "NAME=WORD", value_parser = tag)]
    variables: Vec<(String, String)>,
    #[arg(long, value_parser = ["very-low", "low", "normal", "high"])]
    urgency: Option<String>,
    /// How long it is worth delivering, such as 90s or 24h
    #[arg(long)]
    ttl: Option<String>,
    /// Replaces what is undelivered with the same key
    #[arg(long, value_name = "KEY")]
    collapse_key: Option<String>,
    /// Also to connections and inboxes, as noroshi send does [default: push services alone]
    #[arg(long, value_parser = ["active", "connected", "stored"])]
    when: Option<String>,
    /// With --when: whether push services are asked too
    #[arg(long, value_parser = ["never", "fallback", "always"])]
    push: Option<String>,
    /// With --push fallback: how long a device has to confirm
    #[arg(long, value_name = "DURATION")]
    push_after: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "When and how fast")]
struct Schedule {
    /// Not before this time, RFC 3339
    #[arg(long, value_name = "TIME")]
    start_at: Option<String>,
    /// At this hour of each device's own clock, such as 09:00
    #[arg(long, value_name = "HH:MM")]
    local_time: Option<String>,
    /// Not in these hours of each device's own clock, such as 22:00-07:00; urgent ones know none
    #[arg(long, value_name = "FROM-TO", value_parser = hours)]
    quiet_hours: Option<(String, String)>,
    /// Recipients a second at most
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<u32>,
    /// extra overtakes campaigns that are under way
    #[arg(long, value_parser = ["campaign", "extra"])]
    lane: Option<String>,
    /// Recipients in one batch
    #[arg(long, value_name = "RECIPIENTS")]
    batch_size: Option<u32>,
}

fn tag(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    pair.map(|(name, value)| (name.to_owned(), value.to_owned())).ok_or_else(|| "NAME=VALUE".to_owned())
}

fn hours(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('-').map(|(from, to)| (from.trim().to_owned(), to.trim().to_owned()));
    pair.ok_or_else(|| "two times of day, such as 22:00-07:00".to_owned())
}

impl Arguments {
    pub(super) async fn run(self) -> Result<ExitCode, Failure> {
        let mut body = self.body()?;
        let client = self.server.connect.client()?;
        let json = self.server.format.json;
        if self.dry_run {
            let count = client.post(&format!("{PATH}?dry_run=true"), &body).await?;
            match json {
                true => output::line(&count)?,
                false => output::details(&count)?,
            }
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
        let id = campaign.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
        // With a key that was used before it may have its recipients, and be under way.
        let is_draft = campaign.get("state").is_some_and(|state| state == "draft");
        if let Some(file) = self.audience.upload.as_ref().filter(|_| is_draft) {
            let refused = upload(&client, &id, file).await.inspect_err(|_| {
                eprintln!("campaign {} is left a draft", output::clean(&id));
            })?;
            if refused > 0 {
                return Err(Failure::failed(format!(
                    "{refused} lines were refused: campaign {id} is left a draft"
                )));
            }
            if !self.draft {
                campaign = client.post(&format!("{PATH}/{}/start", escape(&id)), &json!({})).await?;
            }
        }
        if self.watch {
            if !json {
                eprintln!("campaign {}", output::clean(&id));
            }
            return watch::watch(&client, &id, json, &self.judgement).await;
        }
        match json {
            true => output::line(&campaign)?,
            false => details(&campaign)?,
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The file with the flags written over it.
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
            let text =
                "for whom? give --everyone, --topic, --condition, --upload or a filter such as --platform";
            return Err(Failure::Usage(text.to_owned()));
        }
        Ok(body.into())
    }
}

impl Audience {
    /// None: the flags name nobody.
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
        let texts = present(&[
            ("title", &self.title),
            ("body", &self.body),
            ("image", &self.image),
            ("url", &self.url),
        ]);
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
            ("when", &self.when),
        ]));
        let push = present(&[("mode", &self.push), ("after", &self.push_after)]);
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

/// How many lines were refused; why is said on standard error.
async fn upload(client: &Client, id: &str, file: &Path) -> Result<u64, Failure> {
    let path = format!("{PATH}/{}/recipients", escape(id));
    let mut lines = ndjson::Lines::open(file)?;
    let mut refused = 0;
    loop {
        let batch = lines.batch(limits::BATCH_LINES_MAX, BATCH_BYTES)?;
        if batch.is_empty() {
            return Ok(refused);
        }
        for answer in ndjson::exchange(client, &path, batch).await? {
            if let Some(error) = answer.error() {
                refused += 1;
                eprintln!("line {}: {}", answer.line.number, output::clean(&error));
            }
        }
    }
}

fn read(path: &Path) -> Result<Map<String, Value>, Failure> {
    let text = match path.as_os_str() == "-" {
        true => std::io::read_to_string(std::io::stdin()),
        false => std::fs::read_to_string(path),
    };
    let text = text.map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?;
    let wrong = |why: &dyn std::fmt::Display| Failure::Usage(format!("{}: {why}", path.display()));
    let value: Value =
        serde_json::from_str(&text).map_err(|error| wrong(&format_args!("not JSON: {error}")))?;
    object(value).ok_or_else(|| wrong(&"a campaign is a JSON object"))
}

fn object(value: Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(fields) => Some(fields),
        _ => None,
    }
}

fn present(fields: &[(&str, &Option<String>)]) -> Map<String, Value> {
    let given =
        |(name, value): &(&str, &Option<String>)| Some(((*name).to_owned(), Value::from((*value).clone()?)));
    fields.iter().filter_map(given).collect()
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
    fn flags_say_what_the_api_takes() {
        let check = |arguments: &[&str], expected: Value| {
            assert_eq!(body(arguments).expect("a body"), expected, "{arguments:?}");
        };
        check(
            &["--everyone", "--title", "T", "--data", "{\"n\":1}"],
            json!({"audience": {"everyone": true}, "message": {"notification": {"title": "T"}, "data": {"n": 1}}}),
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
                "message": {"when": "stored", "push": {"mode": "fallback", "after": "1m"}},
                "variables": {"name": "you"}, "quiet_hours": {"from": "22:00", "to": "07:00"},
                "rate_per_second": 50, "lane": "extra"}),
        );
        assert!(matches!(body(&["--title", "for nobody"]), Err(Failure::Usage(_))));
    }

    #[test]
    fn flags_go_before_the_file() {
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
