//! `noroshi drain`: devices are moved away from a node that goes on, through the admin address. What the
//! node does is its own affair and goes on without this command, which only orders, watches and cancels.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use http::Method;
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::client::{Client, ConnectAdmin};
use crate::failure::Failure;
use crate::output;

const PATH: &str = "/v1/drain";
/// How often `--wait` asks.
const POLL: Duration = Duration::from_millis(500);
/// How often it says so where there is no terminal to show it.
const REMARK: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The node keeps serving the API and refuses devices until it is stopped or the drain is cancelled; SIGTERM \
drains too, and then ends the process. Called while a drain is under way, this changes how it is done.")]
pub(crate) struct Arguments {
    /// Connections told to leave a second, in all [default: the node's gateway.drain.rate]
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<u64>,
    /// They are told to come back within this time, each at another moment [default: the node's
    /// gateway.drain.spread]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    spread: Option<String>,
    /// After this time the rest is told at once [default: never]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    deadline: Option<String>,
    /// Wait until every device has gone, and show how far it is
    #[arg(long)]
    wait: bool,
    /// Let devices in again
    #[arg(long, conflicts_with_all = ["rate", "spread", "deadline", "wait", "status"])]
    cancel: bool,
    /// Only say how far it is; with --wait, watch a drain that somebody else began
    #[arg(long, conflicts_with_all = ["rate", "spread", "deadline"])]
    status: bool,
    #[command(flatten)]
    connect: ConnectAdmin,
    #[command(flatten)]
    format: output::Format,
}

/// Checked here, sent as it was written. As in the configuration, a number without a unit is none.
fn duration(text: &str) -> Result<String, noroshi_types::Invalid> {
    super::duration(text).map(|_| text.to_owned())
}

impl Arguments {
    pub(crate) async fn run(self) -> Result<ExitCode, Failure> {
        let client = self.connect.client()?;
        let mut report = match (self.cancel, self.status) {
            (true, _) => client.delete(PATH).await?,
            (false, true) => client.get(PATH).await?,
            (false, false) => client.json(Method::PUT, PATH, Some(&self.order())).await?,
        };
        if self.wait {
            report = self.watch(&client, report).await?;
        }
        match self.format.json {
            true => output::line(&report)?,
            false => output::line(sentence(&report))?,
        }
        Ok(ExitCode::SUCCESS)
    }

    fn order(&self) -> Value {
        let mut order = Map::new();
        if let Some(rate) = self.rate {
            order.insert("rate".to_owned(), rate.into());
        }
        for (name, text) in [("spread", &self.spread), ("deadline", &self.deadline)] {
            if let Some(text) = text {
                order.insert(name.to_owned(), text.clone().into());
            }
        }
        order.into()
    }

    /// Asks until it is done. That the node ended or somebody cancelled is a failure: the caller wanted
    /// every device moved.
    async fn watch(&self, client: &Client, first: Value) -> Result<Value, Failure> {
        // Who was told may not have left yet: the bar shows who has.
        let all = number(&first, "connections");
        let (bar, mut report, mut said) = (self.bar(all), first, Instant::now());
        // Nobody drains: there is nothing to watch.
        if self.status && text(&report, "state") == "serving" {
            return Ok(report);
        }
        loop {
            match text(&report, "state") {
                "drained" => break,
                "serving" => return Err(Failure::failed("the drain was cancelled")),
                _ => {}
            }
            bar.set_position(all.saturating_sub(number(&report, "connections")));
            bar.set_message(rest(&report));
            if bar.is_hidden() && !self.format.json && said.elapsed() >= REMARK {
                said = Instant::now();
                eprintln!("{}", sentence(&report));
            }
            tokio::time::sleep(POLL).await;
            report = client.get(PATH).await?;
        }
        bar.finish_and_clear();
        Ok(report)
    }

    fn bar(&self, all: u64) -> ProgressBar {
        let shown = std::io::stderr().is_terminal() && !self.format.json;
        let target = if shown { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(all), target);
        // The template is a constant without a mistake; the plain bar would do as well.
        match ProgressStyle::with_template("{bar:40} {percent:>3}%  {msg}  {elapsed}") {
            Ok(style) => bar.with_style(style),
            Err(_) => bar,
        }
    }
}

fn text<'a>(report: &'a Value, name: &str) -> &'a str {
    report.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn number(report: &Value, name: &str) -> u64 {
    report.get(name).and_then(Value::as_u64).unwrap_or(0)
}

/// `118000 to go at 1000 a second: 2 minutes`
fn rest(report: &Value) -> String {
    let (left, rate) = (number(report, "connections"), number(report, "rate"));
    let eta = HumanDuration(Duration::from_secs(number(report, "eta_s")));
    format!("{left} to go at {rate} a second: {eta}")
}

fn sentence(report: &Value) -> String {
    let (connections, moved) = (number(report, "connections"), number(report, "moved"));
    match text(report, "state") {
        "serving" => format!("devices are let in; {connections} are connected"),
        "draining" => format!("draining: {moved} told to leave, {}", rest(report)),
        "drained" => format!(
            "drained: {moved} devices were told to leave; the node serves the API and lets no device in until it is \
             restarted, or with noroshi drain --cancel"
        ),
        "stopping" => format!("the node is stopping: {moved} told to leave, {connections} still connected"),
        other => output::clean(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_report_is_said_in_a_sentence() {
        let check = |report: Value, expected: &str| {
            let said = sentence(&report);
            assert!(said.contains(expected), "{said}");
        };
        check(json!({"state": "serving", "connections": 3}), "devices are let in; 3 are connected");
        check(
            json!({"state": "draining", "connections": 900, "moved": 100, "rate": 30, "eta_s": 30}),
            "100 told to leave, 900 to go at 30 a second: 30 seconds",
        );
        check(json!({"state": "drained", "connections": 0, "moved": 7}), "noroshi drain --cancel");
        check(json!({"state": "stopping", "connections": 1, "moved": 7}), "stopping");
        check(json!({"state": "new\u{1b}[2J"}), "new\u{fffd}[2J");
    }
}
