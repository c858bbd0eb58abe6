//! `noroshi push`: manages an app's push service credentials, through the admin address, and lists invalidated push tokens, through
//! the API.
//!
//! Reads credentials from files, so that no secret is in a shell's history. The server validates them.

mod credential;
mod invalidation;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use serde_json::{Value, json};

use crate::client::{Client, ConnectAdmin, escape};
use crate::failure::Failure;
use crate::input::{parse_json, read_json};
use crate::output;

const COLUMNS: [&str; 10] = [
    "id",
    "service",
    "environment",
    "name",
    "breaker",
    "connections",
    "in_flight",
    "waiting",
    "settings",
    "created_at",
];

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Add a push service credential to an app
    Add(Box<Add>),
    /// List an app's credentials, without the secrets, and their state on the node that answers
    List(Managed),
    /// Remove a credential; devices of that push service get no more pushes
    Remove {
        /// Its number in the list
        id: u64,
        #[command(flatten)]
        managed: Managed,
    },
    /// Push to one device now, and show the push service's answer
    Test(Test),
    /// Replace the secret of a credential after a test
    Rotate(Rotate),
    /// Use push tokens again that were suspended because of a wrong credential
    Restore(Restore),
    /// List invalidated push tokens, oldest first
    Invalidations(invalidation::Arguments),
}

/// Arguments of commands with the operator token.
#[derive(Debug, clap::Args)]
struct Managed {
    /// App of the credential
    #[arg(long, default_value = "dev")]
    app: String,
    #[command(flatten)]
    connect: ConnectAdmin,
    #[command(flatten)]
    format: output::Format,
}

#[derive(Debug, clap::Args)]
struct Add {
    #[command(subcommand)]
    service: credential::Service,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit code 0 where the push service took it, 1 where it did not. The push shows a short text.")]
struct Test {
    /// Number of the credential [default: the matching one]
    id: Option<u64>,
    /// A registered device, by its current token
    #[arg(long, required_unless_present = "token", conflicts_with = "token")]
    device: Option<String>,
    /// A push token as devices register it, such as {"service":"fcm","token":"…"}
    #[arg(long, value_name = "JSON", value_parser = parse_json)]
    token: Option<Value>,
    #[command(flatten)]
    managed: Managed,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The node suspends a token if the push service reports another app, topic or environment. Correct the credential first: a
token that the push service reports again is suspended again.")]
struct Restore {
    /// Number of the credential: tokens of its push service and environment are restored
    id: u64,
    /// Only tokens that were suspended at this time or later (RFC 3339)
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only tokens that were suspended for this reason, such as BadDeviceToken
    #[arg(long, value_name = "REASON")]
    reason: Option<String>,
    #[command(flatten)]
    managed: Managed,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The file has the fields to change, as in the API; the others stay. The server pushes to the device with the new secret, and
replaces the credential only if the push service accepts it.

Examples:
  jq -n --rawfile key AuthKey_XYZ987WVUT.p8 '{$key, key_id: \"XYZ987WVUT\"}' | noroshi push rotate 1 - --device d1
  jq '{service_account: .}' service-account.json | noroshi push rotate 2 - --device d2")]
struct Rotate {
    /// Number of the credential
    id: u64,
    /// A JSON file with the fields to change, such as the new key; - reads standard input
    #[arg(value_name = "FILE")]
    fields: PathBuf,
    /// A registered device, by its current token
    #[arg(long, required_unless_present = "token", conflicts_with = "token")]
    device: Option<String>,
    /// A push token as devices register it, such as {"service":"fcm","token":"…"}
    #[arg(long, value_name = "JSON", value_parser = parse_json)]
    token: Option<Value>,
    #[command(flatten)]
    managed: Managed,
}

impl Rotate {
    async fn run(self) -> Result<(), Failure> {
        let path = format!("{}/{}/rotate", self.managed.path(), self.id);
        let body = json!({
            "credential": read_json(&self.fields)?, "device": self.device, "push_token": self.token,
        });
        let answer = self.managed.connect.client()?.post(&path, &body).await?;
        self.managed.format.details(&answer)
    }
}

impl Restore {
    async fn run(self) -> Result<(), Failure> {
        let path = format!("{}/{}/restore", self.managed.path(), self.id);
        let body = json!({"since": self.since, "reason": self.reason});
        let answer = self.managed.connect.client()?.post(&path, &body).await?;
        self.managed
            .format
            .print(&answer, || format!("restored {} tokens", output::cell(answer.get("restored"))))
    }
}

impl Arguments {
    pub(crate) async fn run(self) -> Result<ExitCode, Failure> {
        match self.action {
            Action::Add(add) => add.service.add().await?,
            Action::List(managed) => managed.list().await?,
            Action::Remove { id, managed } => managed.remove(id).await?,
            Action::Test(test) => return test.run().await,
            Action::Rotate(rotate) => rotate.run().await?,
            Action::Restore(restore) => restore.run().await?,
            Action::Invalidations(invalidations) => invalidations.run().await?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Managed {
    /// The path of the app's credentials.
    fn path(&self) -> String {
        format!("/v1/apps/{}/push", escape(&self.app))
    }

    async fn list(&self) -> Result<(), Failure> {
        let answer = self.connect.client()?.get(&self.path()).await?;
        if self.format.json {
            return output::line(answer);
        }
        let credentials: Vec<Value> =
            output::entries(&answer, "credentials").iter().map(with_state).collect();
        output::table(&COLUMNS, output::rows(&credentials, &COLUMNS))
    }

    async fn remove(&self, id: u64) -> Result<(), Failure> {
        self.connect.client()?.delete(&format!("{}/{id}", self.path())).await?;
        self.format.details(&json!({"id": id.to_string(), "removed": true}))
    }
}

impl Test {
    async fn run(self) -> Result<ExitCode, Failure> {
        let client = self.managed.connect.client()?;
        let ids = match self.id {
            Some(id) => vec![id.to_string()],
            None => self.matching(&client).await?,
        };
        let answer = self.first_matching(&client, &ids).await?;
        self.managed.format.print(&answer, || sentence(&answer))?;
        let taken = answer["answer"] == "accepted";
        Ok(if taken { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Only the server knows a device's token. It rejects a credential of another push service or environment, and sends nothing.
    async fn first_matching(&self, client: &Client, ids: &[String]) -> Result<Value, Failure> {
        let body = match (&self.device, &self.token) {
            (Some(device), _) => json!({"device": device}),
            (None, token) => json!({"push_token": token}),
        };
        let mut refused =
            Failure::failed("the app has no matching credential; add one with noroshi push add");
        for id in ids {
            let path = format!("{}/{}/test", self.managed.path(), escape(id));
            match client.post(&path, &body).await {
                Err(failure) if self.device.is_some() && is_of_another(&failure) => refused = failure,
                answer => return answer,
            }
        }
        Err(refused)
    }

    /// The matching credentials: for a token, those of its service, environment and provider.
    async fn matching(&self, client: &Client) -> Result<Vec<String>, Failure> {
        let answer = client.get(&self.managed.path()).await?;
        let matches_device = |credential: &&Value| {
            self.token.as_ref().is_none_or(|token| {
                let environment = token["environment"].as_str().unwrap_or("production");
                let is_of_provider =
                    token.get("provider").is_none_or(|provider| credential["name"] == *provider);
                credential.get("service") == token.get("service")
                    && credential["environment"] == environment
                    && is_of_provider
            })
        };
        let matching = output::entries(&answer, "credentials").iter().filter(matches_device);
        let mut matching: Vec<&Value> = matching.collect();
        // A device's main token comes before its further addresses.
        matching.sort_by_key(|credential| credential["service"] == "webhook");
        Ok(matching.into_iter().map(|credential| output::cell(credential.get("id"))).collect())
    }
}

/// A credential with its state in columns of its own.
fn with_state(credential: &Value) -> Value {
    let mut columns = credential.clone();
    let state = &credential["state"];
    for name in ["connections", "in_flight", "waiting"] {
        columns[name] = state[name].clone();
    }
    columns["breaker"] = match (state["breaker"].as_str(), state["reason"].as_str()) {
        (Some("open"), Some(reason)) => {
            json!(format!("open until {} ({reason})", output::text(state, "open_until")))
        }
        (Some(breaker), Some(reason)) => json!(format!("{breaker} ({reason})")),
        (breaker, _) => json!(breaker),
    };
    columns
}

fn is_of_another(failure: &Failure) -> bool {
    matches!(failure, Failure::Answered { code, detail, .. }
        if code == "invalid_field" && detail.starts_with("push_token: "))
}

/// `refused (BadDeviceToken): the push service refused it for good`
fn sentence(answer: &Value) -> String {
    let result = output::cell(answer.get("answer"));
    let explain = output::cell(answer.get("explain"));
    match answer["reason"].as_str() {
        Some(reason) => format!("{result} ({}): {explain}", output::clean(reason)),
        None => format!("{result}: {explain}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_credential_has_columns() {
        let check = |state: Value, expected: [&str; 4]| {
            let row = with_state(&json!({"id": "1", "state": state}));
            let cells =
                ["breaker", "connections", "in_flight", "waiting"].map(|name| output::cell(row.get(name)));
            assert_eq!(cells, expected);
        };
        check(
            json!({"breaker": "open", "reason": "InvalidProviderToken", "open_until": "2026-01-15T10:31:07.000Z",
                "connections": 1, "in_flight": 0, "waiting": 12}),
            ["open until 2026-01-15T10:31:07.000Z (InvalidProviderToken)", "1", "0", "12"],
        );
        check(
            json!({"breaker": "half-open", "reason": "bad", "connections": 1, "in_flight": 1, "waiting": 0}),
            ["half-open (bad)", "1", "1", "0"],
        );
        check(json!({"breaker": "closed", "reason": null}), ["closed", "-", "-", "-"]);
        check(Value::Null, ["-"; 4]);
    }

    #[test]
    fn an_answer_is_formatted_as_a_sentence() {
        let check = |answer: Value, expected: &str| assert_eq!(sentence(&answer), expected);
        check(
            json!({"answer": "accepted", "reason": null, "explain": "the push service accepted it"}),
            "accepted: the push service accepted it",
        );
        check(
            json!({"answer": "refused", "reason": "BadTopic\u{7}", "explain": "not taken"}),
            "refused (BadTopic\u{fffd}): not taken",
        );
    }
}
