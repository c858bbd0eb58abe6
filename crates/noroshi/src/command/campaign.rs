//! `noroshi campaign`: creates, starts, watches, pauses and ends campaigns. The node does the work; this command only controls and
//! watches it.

mod create;
mod report;
mod watch;

use std::process::ExitCode;

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
            Action::List(list) => list.run().await,
            Action::Show(named) => named.show().await,
            Action::Start(ordered) => ordered.run("start").await,
            Action::Pause(named) => named.order("pause").await,
            Action::Resume(ordered) => ordered.run("resume").await,
            Action::Abort(Abort { named, yes: true }) => named.order("abort").await,
            Action::Abort(Abort { named, yes: false }) => {
                Err(Failure::Usage(format!("{} would be ended permanently; confirm with --yes", named.id)))
            }
            Action::Delete(named) => named.delete().await,
            Action::Watch(watched) => {
                let client = watched.named.server.connect.client()?;
                let json = watched.named.server.format.json;
                watch::watch(&client, &watched.named.id, json, &watched.strictness).await
            }
        }
    }
}

impl List {
    async fn run(self) -> Result<ExitCode, Failure> {
        let client = self.server.connect.client()?;
        let listed = pages(&client, PATH, "campaigns", None, self.page).await?;
        match self.server.format.json {
            true => output::line(listed.json("campaigns"))?,
            false => {
                output::table(&COLUMNS, output::rows(&listed.entries, &COLUMNS))?;
                listed.print_next();
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Named {
    fn path(&self) -> String {
        format!("{PATH}/{}", escape(&self.id))
    }

    async fn show(&self) -> Result<ExitCode, Failure> {
        let answer = self.server.connect.client()?.get(&self.path()).await?;
        self.server.print(&answer)?;
        Ok(ExitCode::SUCCESS)
    }

    async fn order(&self, verb: &str) -> Result<ExitCode, Failure> {
        let client = self.server.connect.client()?;
        let answer = client.post(&format!("{}/{verb}", self.path()), &json!({})).await?;
        self.server.print(&answer)?;
        Ok(ExitCode::SUCCESS)
    }

    async fn delete(&self) -> Result<ExitCode, Failure> {
        self.server.connect.client()?.delete(&self.path()).await?;
        let answer = json!({"id": self.id, "deleted": true});
        match self.server.format.json {
            true => output::line(&answer)?,
            false => output::details(&answer)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Ordered {
    async fn run(self, verb: &str) -> Result<ExitCode, Failure> {
        if !self.watch {
            return self.named.order(verb).await;
        }
        let client = self.named.server.connect.client()?;
        client.post(&format!("{}/{verb}", self.named.path()), &json!({})).await?;
        watch::watch(&client, &self.named.id, self.named.server.format.json, &self.strictness).await
    }
}

impl Server {
    fn print(&self, campaign: &Value) -> Result<(), Failure> {
        match self.format.json {
            true => output::line(campaign),
            false => details(campaign),
        }
    }
}

/// Prints the campaign, a line for each outcome with its reasons, and one for each variant of an experiment.
fn details(campaign: &Value) -> Result<(), Failure> {
    output::details_but(campaign, &["counts", "reasons", "experiment"])?;
    let reasons = campaign.get("reasons").and_then(Value::as_array).cloned().unwrap_or_default();
    if !reasons.is_empty() {
        output::line("")?;
        let columns = ["outcome", "reason", "count"];
        output::table(&columns, output::rows(&reasons, &columns))?;
    }
    report::print(campaign)
}
