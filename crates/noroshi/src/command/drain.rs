//! `noroshi drain`: moves devices from a running node to others, through the admin address. The node does the work; this command
//! only starts, watches and cancels it.

use std::time::Duration;

use indicatif::HumanDuration;
use serde_json::Value;
use tokio::time::Instant;

use crate::client::{Client, ConnectAdmin};
use crate::failure::Failure;
use crate::input::present;
use crate::output::{self, number, text};

const PATH: &str = "/v1/drain";
/// Poll interval of `--wait`.
const POLL: Duration = Duration::from_millis(500);
/// Interval of progress messages without a terminal.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The node keeps serving the API and rejects devices until it stops or the drain is cancelled. SIGTERM also drains, \
and then ends the process. During a drain, this command changes its parameters.")]
pub(crate) struct Arguments {
    /// Connections moved per second [default: the node's gateway.drain.rate]
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<u64>,
    /// Devices reconnect after a random delay of up to this time [default: the node's gateway.drain.spread]
    #[arg(long, value_name = "DURATION", value_parser = super::duration_text)]
    spread: Option<String>,
    /// After this time, move all remaining devices at once [default: never]
    #[arg(long, value_name = "DURATION", value_parser = super::duration_text)]
    deadline: Option<String>,
    /// Wait until all devices are moved, and show the progress
    #[arg(long)]
    wait: bool,
    /// Cancel the drain: accept devices again
    #[arg(long, conflicts_with_all = ["rate", "spread", "deadline", "wait", "status"])]
    cancel: bool,
    /// Only show the progress; with --wait, watch a drain in progress
    #[arg(long, conflicts_with_all = ["rate", "spread", "deadline"])]
    status: bool,
    #[command(flatten)]
    connect: ConnectAdmin,
    #[command(flatten)]
    format: output::Format,
}

impl Arguments {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let client = self.connect.client()?;
        let mut report = match (self.cancel, self.status) {
            (true, _) => client.delete(PATH).await?,
            (false, true) => client.get(PATH).await?,
            (false, false) => client.put(PATH, &self.order()).await?,
        };
        if self.wait {
            report = self.watch(&client, report).await?;
        }
        self.format.print(&report, || sentence(&report))
    }

    fn order(&self) -> Value {
        let mut order = present(&[("spread", &self.spread), ("deadline", &self.deadline)]);
        if let Some(rate) = self.rate {
            order.insert("rate".to_owned(), rate.into());
        }
        order.into()
    }

    /// Polls until the drain is complete. Fails if the node stops or the drain is cancelled, since not all devices were moved.
    async fn watch(&self, client: &Client, first: Value) -> Result<Value, Failure> {
        // The bar counts closed connections; a moved device may still be connected.
        let all = number(&first, "connections");
        let bar = self.format.progress(Some(all), "{bar:40} {percent:>3}%  {msg}  {elapsed}");
        let (mut report, mut reported_at) = (first, Instant::now());
        // There is no drain to watch.
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
            if bar.is_hidden() && !self.format.json && reported_at.elapsed() >= PROGRESS_INTERVAL {
                reported_at = Instant::now();
                eprintln!("{}", sentence(&report));
            }
            tokio::time::sleep(POLL).await;
            report = client.get(PATH).await?;
        }
        bar.finish_and_clear();
        Ok(report)
    }
}

/// `118000 left at 1000 per second: 2 minutes`
fn rest(report: &Value) -> String {
    let (left, rate) = (number(report, "connections"), number(report, "rate"));
    let eta = HumanDuration(Duration::from_secs(number(report, "eta_s")));
    format!("{left} left at {rate} per second: {eta}")
}

fn sentence(report: &Value) -> String {
    let (connections, moved) = (number(report, "connections"), number(report, "moved"));
    match text(report, "state") {
        "serving" => format!("not draining; {connections} devices connected"),
        "draining" => format!("draining: {moved} moved, {}", rest(report)),
        "drained" => format!(
            "drained: {moved} devices moved; the node serves the API and rejects devices until it restarts, or until \
             noroshi drain --cancel"
        ),
        "stopping" => format!("the node is stopping: {moved} moved, {connections} still connected"),
        other => output::clean(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_report_is_formatted_as_a_sentence() {
        let check = |report: Value, expected: &str| {
            let text = sentence(&report);
            assert!(text.contains(expected), "{text}");
        };
        check(json!({"state": "serving", "connections": 3}), "not draining; 3 devices connected");
        check(
            json!({"state": "draining", "connections": 900, "moved": 100, "rate": 30, "eta_s": 30}),
            "100 moved, 900 left at 30 per second: 30 seconds",
        );
        check(json!({"state": "drained", "connections": 0, "moved": 7}), "noroshi drain --cancel");
        check(json!({"state": "stopping", "connections": 1, "moved": 7}), "stopping");
        check(json!({"state": "new\u{1b}[2J"}), "new\u{fffd}[2J");
    }
}
