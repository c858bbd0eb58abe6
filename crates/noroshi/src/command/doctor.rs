//! `noroshi doctor`: checks whether this machine can hold a number of devices, and what to change. Changes nothing itself. The
//! checks are in `noroshi_node::doctor`; this command gathers their input and prints the results.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use http::Method;
use http::header::DATE;
use noroshi_node::capacity::grouped;
use noroshi_node::data;
use noroshi_node::doctor::{
    CONNECTIONS_DEFAULT, Diagnosis, Finding, Requirements, Subject, Verdict, examine,
};
use noroshi_node::host::{Folder, Host};
use serde_json::{Value, json};

use super::serve::Settings;
use crate::client::Client;
use crate::failure::Failure;
use crate::output;

/// More than any node can hold.
const CONNECTIONS_MAX: u64 = 100_000_000;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
#[command(after_help = "Exit code 1 if a check fails. Warnings are no failures.")]
pub(crate) struct Arguments {
    /// Number of concurrent devices [default: gateway.connections_max, or 10000]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=CONNECTIONS_MAX))]
    connections: Option<u64>,
    /// Devices use TLS up to this node [default: if the configuration or the running node has a certificate]
    #[arg(long)]
    tls: bool,
    /// Devices connect through a reverse proxy on this machine
    #[arg(long)]
    proxy: bool,
    /// Compare the clock with that of this server
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// Also trust the certificates in this PEM file
    #[arg(long, env = "NOROSHI_CA_FILE", value_name = "FILE")]
    ca_file: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
    #[command(flatten)]
    format: output::Format,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let config = self.settings.load()?;
        let connections_max = config.gateway.connections_max;
        let configured = Some(connections_max as u64).filter(|count| *count > 0);
        let root = Path::new("/");
        let folder = Folder::examine(root, &config.server.data);
        let requirements = Requirements {
            connections: self.connections.or(configured).unwrap_or(CONNECTIONS_DEFAULT),
            tls: self.tls || config.server.tls.is_some() || serves_tls(&folder),
            proxied: self.proxy,
            database_bytes_max: config.store.database_bytes_max,
            connections_max,
        };
        let clock_offset = match &self.server {
            Some(server) => Some(super::block_on(offset(server.clone(), self.ca_file.as_deref()))?),
            None => None,
        };
        let subject = Subject { host: Host::of(root, folder.pid), folder, requirements, clock_offset };
        let diagnosis = examine(&subject);
        match self.format.json {
            true => output::line(json(&subject, &diagnosis))?,
            false => show(&subject, &diagnosis)?,
        }
        Ok(match diagnosis.verdict() {
            Verdict::Ok | Verdict::Warn => ExitCode::SUCCESS,
            Verdict::Fail => ExitCode::FAILURE,
        })
    }
}

/// Whether the running node uses TLS: its certificate may come from arguments that are not given here. Ignores the addresses of a
/// killed node.
fn serves_tls(folder: &Folder) -> bool {
    let running = || data::read_addresses(&folder.path);
    folder.pid.is_some() && running().is_some_and(|addresses| addresses.http.starts_with("https:"))
}

/// Offset of this machine's clock from the server's `Date` (RFC 9110 §6.6.1).
async fn offset(server: String, ca_file: Option<&Path>) -> Result<Duration, Failure> {
    let client = Client::anonymous(server.clone(), ca_file)?;
    let asked = Instant::now();
    let answer =
        tokio::time::timeout(ANSWER_TIMEOUT, client.send(client.request(Method::GET, "/openapi.json")?));
    let answer = answer
        .await
        .map_err(|_| Failure::Unreachable { server: server.clone(), cause: "timeout".to_owned() })??;
    let here = SystemTime::now() - asked.elapsed() / 2;
    let date = answer.headers().get(DATE).and_then(|date| date.to_str().ok());
    let there = date.and_then(|date| httpdate::parse_http_date(date).ok());
    let there = there.ok_or_else(|| Failure::failed(format!("{server} sent no valid Date header")))?;
    Ok(difference(here, there))
}

/// `Date` is truncated to whole seconds, so half a second is added.
fn difference(here: SystemTime, there: SystemTime) -> Duration {
    let there = there + Duration::from_millis(500);
    here.duration_since(there).unwrap_or_else(|ahead| ahead.duration())
}

fn show(subject: &Subject, diagnosis: &Diagnosis) -> Result<(), Failure> {
    let Requirements { connections, tls, .. } = subject.requirements;
    let over = if tls { " with TLS" } else { "" };
    output::line(format_args!("Required: {} devices{over}\n", grouped(connections)))?;
    let row = |finding: &Finding| {
        let Finding { name, verdict, found, required, .. } = finding;
        vec![verdict.as_str().to_owned(), (*name).to_owned(), output::clean(found), required.clone()]
    };
    output::table(&["", "check", "found", "required"], diagnosis.findings.iter().map(row).collect())?;
    let advised: Vec<&Finding> =
        diagnosis.findings.iter().filter(|finding| !finding.advice.is_empty()).collect();
    if !advised.is_empty() {
        output::line("\nRecommendations")?;
    }
    for Finding { name, verdict, advice, .. } in advised {
        output::line(format_args!("  {}  {name}: {}", verdict.as_str(), output::clean(advice)))?;
    }
    let settings = diagnosis.sysctls();
    if !settings.is_empty() {
        output::line("\n# /etc/sysctl.d/90-noroshi.conf, then: sysctl --system")?;
        for (key, value) in &settings {
            output::line(format_args!("{key} = {value}"))?;
        }
        let at_once: Vec<String> = settings
            .iter()
            .map(|(key, value)| format!("sysctl -w {}", output::quoted(&format!("{key}={value}"))))
            .collect();
        output::line(format_args!("\n# the same until the next reboot\n{}", at_once.join("\n")))?;
    }
    if let Some(limit) = diagnosis.open_files() {
        output::line(format_args!("\n# systemctl edit noroshi\n[Service]\nLimitNOFILE={limit}"))?;
    }
    output::line(format_args!("\nCurrent {}", diagnosis.capacity))
}

fn json(subject: &Subject, diagnosis: &Diagnosis) -> Value {
    let check = |finding: &Finding| {
        json!({
            "name": finding.name, "verdict": finding.verdict.as_str(), "found": finding.found,
            "wanted": finding.required, "advice": finding.advice,
        })
    };
    let capacity = &diagnosis.capacity;
    json!({
        "verdict": diagnosis.verdict().as_str(),
        "connections": subject.requirements.connections,
        "tls": subject.requirements.tls,
        "checks": diagnosis.findings.iter().map(check).collect::<Vec<_>>(),
        "sysctl": diagnosis.sysctls(),
        "limit_nofile": diagnosis.open_files(),
        "room": {
            "devices": capacity.limited_by.as_ref().map(|limit| limit.devices),
            "limited_by": capacity.limited_by.as_ref().map(|limit| limit.resource.to_string()),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_compared_in_both_directions() {
        let there = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        let check = |here_ms: u64, apart_ms: u64| {
            let here = SystemTime::UNIX_EPOCH + Duration::from_millis(here_ms);
            assert_eq!(difference(here, there), Duration::from_millis(apart_ms));
        };
        check(1_000_500, 0);
        check(1_000_000, 500);
        check(970_500, 30_000);
        check(1_030_500, 30_000);
    }
}
