//! `noroshi campaign`: creates, starts, watches, pauses and ends campaigns. The node does the work; this command only controls and
//! watches it.

mod create;
mod report;
mod schedule;
mod upload;
mod watch;

use std::process::{ExitCode, Termination};

use clap::Subcommand;
use serde_json::{Value, json};

use crate::client::{Connect, PageArguments, escape, pages};
use crate::failure::Failure;
use crate::output;

const PATH: &str = "/v1/campaigns";
const COLUMNS: [&str; 7] = ["id", "name", "state", "recipients", "done", "rate_per_second", "created_at"];

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Create a campaign, and start it unless it is a draft
    Create(Box<create::Arguments>),
    /// List campaigns, newest first
    List(List),
    /// Show a campaign: progress, outcomes with reasons, and a comparison of its variants
    Show(Named),
    /// Add recipients from a file to a draft or scheduled campaign
    Upload(upload::Arguments),
    /// Start a draft now, or at its scheduled time
    Start(Ordered),
    /// Stop sending; batches in progress complete
    Pause(Named),
    /// Continue a paused campaign
    Resume(Ordered),
    /// End a campaign; remaining recipients get nothing
    Abort(Abort),
    /// Delete an ended campaign
    Delete(Named),
    /// Watch a campaign until it ends
    Watch(Watched),
}

#[derive(Debug, clap::Args)]
struct List {
    #[command(flatten)]
    page: PageArguments,
    #[command(flatten)]
    server: Server,
}

#[derive(Debug, clap::Args)]
struct Server {
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    format: output::Format,
}

#[derive(Debug, clap::Args)]
struct Named {
    /// Id of the campaign
    id: String,
    #[command(flatten)]
    server: Server,
}

#[derive(Debug, clap::Args)]
#[command(after_help = watch::EXIT_CODES)]
struct Ordered {
    #[command(flatten)]
    named: Named,
    /// Watch it until it ends
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    strictness: watch::Strictness,
}

#[derive(Debug, clap::Args)]
#[command(after_help = watch::EXIT_CODES)]
struct Watched {
    #[command(flatten)]
    named: Named,
    #[command(flatten)]
    strictness: watch::Strictness,
}

#[derive(Debug, clap::Args)]
struct Abort {
    #[command(flatten)]
    named: Named,
    /// Confirm the abort
    #[arg(long)]
    yes: bool,
}

impl Arguments {
    pub(crate) async fn run(self) -> Result<ExitCode, Failure> {
        match self.action {
            Action::Create(create) => create.run().await,
            Action::List(list) => list.run().await.map(Termination::report),
            Action::Show(named) => named.show().await.map(Termination::report),
            Action::Upload(upload) => upload.run().await.map(Termination::report),
            Action::Start(ordered) => ordered.run("start").await,
            Action::Pause(named) => named.order("pause").await.map(Termination::report),
            Action::Resume(ordered) => ordered.run("resume").await,
            Action::Abort(Abort { named, yes: true }) => named.order("abort").await.map(Termination::report),
            Action::Abort(Abort { named, yes: false }) => {
                Err(Failure::Usage(format!("{} would be ended permanently; confirm with --yes", named.id)))
            }
            Action::Delete(named) => named.delete().await.map(Termination::report),
            Action::Watch(Watched { named: Named { id, server }, strictness }) => {
                watch::watch(&server.connect.client()?, &id, server.format, &strictness).await
            }
        }
    }
}

impl List {
    async fn run(self) -> Result<(), Failure> {
        let client = self.server.connect.client()?;
        let listed = pages(&client, PATH, "campaigns", None, self.page).await?;
        listed.print("campaigns", &COLUMNS, self.server.format)
    }
}

impl Named {
    fn path(&self) -> String {
        format!("{PATH}/{}", escape(&self.id))
    }

    async fn show(&self) -> Result<(), Failure> {
        print(&self.server.connect.client()?.get(&self.path()).await?, self.server.format)
    }

    async fn order(&self, verb: &str) -> Result<(), Failure> {
        let client = self.server.connect.client()?;
        print(&client.post(&format!("{}/{verb}", self.path()), &json!({})).await?, self.server.format)
    }

    async fn delete(&self) -> Result<(), Failure> {
        self.server.connect.client()?.delete(&self.path()).await?;
        self.server.format.details(&json!({"id": self.id, "deleted": true}))
    }
}

impl Ordered {
    async fn run(self, verb: &str) -> Result<ExitCode, Failure> {
        if !self.watch {
            return self.named.order(verb).await.map(Termination::report);
        }
        let client = self.named.server.connect.client()?;
        client.post(&format!("{}/{verb}", self.named.path()), &json!({})).await?;
        watch::watch(&client, &self.named.id, self.named.server.format, &self.strictness).await
    }
}

/// Prints the campaign, a line for each outcome with its reasons, and one for each variant of an experiment.
fn print(campaign: &Value, format: output::Format) -> Result<(), Failure> {
    if format.json {
        return output::line(campaign);
    }
    let hidden = ["counts", "reasons", "experiment", "warnings", "schedule", "steps"];
    output::details(&schedule::with_rows(campaign), &hidden)?;
    schedule::print_steps(campaign)?;
    if !output::entries(campaign, "reasons").is_empty() {
        output::line("")?;
        format.list(campaign, "reasons", &["outcome", "reason", "count"])?;
    }
    report::print(campaign)
}
