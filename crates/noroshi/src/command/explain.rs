//! `noroshi explain <id> [device]`: explains why a device received a notification or the state of a Live Activity, or not.
//! Prints each outcome with its explanation.

mod log;

use std::path::PathBuf;

use noroshi_types::Outcome;
use serde_json::Value;

use super::{activity, trace as shown};
use crate::client::{Client, Connect, escape};
use crate::failure::Failure;
use crate::output;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Id of the notification, of a Live Activity, or of a broadcast to a channel; with a device also of a campaign, which stands for everything that it sends
    notification: String,
    /// Explain step by step for this device
    device: Option<String>,
    /// Read the event files in this folder instead of asking a server; includes the device's connections
    #[arg(long, value_name = "DIR", requires = "device")]
    events: Option<PathBuf>,
    /// Print the headers and the payload of each request to a push service, and its response
    #[arg(long, conflicts_with = "events")]
    requests: bool,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    format: output::Format,
}

impl Arguments {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        if let (Some(folder), Some(device)) = (&self.events, &self.device) {
            return log::print(folder, &self.notification, device);
        }
        let client = self.connect.client()?;
        let (kind, answer) = self.find(&client).await?;
        match (kind, &self.device) {
            (Kind::Activity, None) => activity::print(&answer, self.format),
            (Kind::Activity, Some(_)) => activity::print_device(&answer, self.requests, self.format),
            _ if self.format.json => output::line(&answer),
            (_, None) => notification(&answer, self.requests),
            (_, Some(_)) => trace(&answer, self.requests),
        }
    }

    /// Kinds of ids do not overlap, except that an activity may have any id.
    async fn find(&self, client: &Client) -> Result<(Kind, Value), Failure> {
        let mut unknown = None;
        for kind in [Kind::Notification, Kind::Broadcast, Kind::Activity] {
            let path = match (kind, &self.device) {
                (Kind::Broadcast, Some(_)) => continue,
                (_, None) => format!("{}/{}", kind.path(), escape(&self.notification)),
                (_, Some(device)) => {
                    format!("{}/{}/devices/{}", kind.path(), escape(&self.notification), escape(device))
                }
            };
            match client.get(&path).await {
                // Ids of the others are UUIDs, and a front knows notifications only.
                Err(failure @ Failure::Answered { status: 400 | 404 | 421, .. }) => match unknown {
                    Some(Failure::Answered { status: 404, .. }) => {}
                    Some(Failure::Answered { status: 400, .. }) => unknown = Some(no_uuid(failure)),
                    _ => unknown = Some(failure),
                },
                answer => return Ok((kind, answer?)),
            }
        }
        Err(unknown.expect("every kind that was asked is unknown"))
    }
}

/// The id of no activity, which cannot be one of a notification either.
fn no_uuid(failure: Failure) -> Failure {
    match failure {
        Failure::Answered { status, code, detail, retry_after } => {
            let detail = format!("{detail}; the id of a notification or broadcast is a whole UUID");
            Failure::Answered { status, code, detail, retry_after }
        }
        failure => failure,
    }
}

/// What may be explained.
#[derive(Clone, Copy)]
enum Kind {
    Notification,
    Broadcast,
    Activity,
}

impl Kind {
    fn path(self) -> &'static str {
        match self {
            Self::Notification => "/v1/notifications",
            Self::Broadcast => "/v1/push/broadcasts",
            Self::Activity => "/v1/activities",
        }
    }
}

/// Columns of the broadcasts to channels.
const BROADCASTS: [&str; 6] = ["channel", "id", "state", "reason", "attempts", "ended_at"];

/// Prints the state, and one line for each outcome.
fn notification(answer: &Value, whole: bool) -> Result<(), Failure> {
    output::details(answer, &["counts", "outcomes", "broadcasts", "requests"])?;
    let counts = answer.get("counts").and_then(Value::as_object).cloned().unwrap_or_default();
    if !counts.is_empty() {
        output::line("")?;
        let row = |(outcome, count): (&String, &Value)| {
            vec![output::clean(outcome), count.to_string(), meaning(outcome).to_owned()]
        };
        output::table(&["outcome", "devices", "meaning"], counts.iter().map(row).collect())?;
    }
    let broadcasts = output::entries(answer, "broadcasts");
    if !broadcasts.is_empty() {
        output::line("")?;
        output::table(&BROADCASTS, output::rows(broadcasts, &BROADCASTS))?;
    }
    shown::requests(output::entries(answer, "requests"), whole)
}

/// Prints whether it was for the device, the summary, the steps, and the requests to push services.
fn trace(answer: &Value, whole: bool) -> Result<(), Failure> {
    shown::sentences(answer)?;
    let steps = output::entries(answer, "steps");
    let row = |step: &Value| {
        let outcome = output::cell(step.get("outcome"));
        let meaning = meaning(&outcome).to_owned();
        vec![output::cell(step.get("at")), outcome, output::cell(step.get("reason")), meaning]
    };
    match steps.is_empty() {
        true => output::line("nothing is recorded for this notification and device")?,
        false => output::table(&["at", "outcome", "reason", "meaning"], steps.iter().map(row).collect())?,
    }
    let fields = answer.as_object().into_iter().flatten();
    for (name, value) in
        fields.filter(|(name, _)| !matches!(name.as_str(), "steps" | "summary" | "targeting" | "attempts"))
    {
        output::line(format_args!("{name}: {}", output::cell(Some(value))))?;
    }
    shown::requests(output::entries(answer, "attempts"), whole)
}

fn meaning(outcome: &str) -> &'static str {
    Outcome::ALL.into_iter().find(|known| known.as_str() == outcome).map_or("", Outcome::explain)
}
