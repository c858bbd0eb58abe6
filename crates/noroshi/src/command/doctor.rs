//! `noroshi doctor`: whether this machine can hold the devices that are wanted, and what to change. It
//! changes nothing; the checks are `noroshi_node::doctor`'s, this is how they are asked and shown.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use http::Method;
use http::header::DATE;
use noroshi_node::capacity::grouped;
use noroshi_node::data;
use noroshi_node::doctor::{Diagnosis, Finding, Patient, Verdict, Wanted, examine};
use noroshi_node::host::{Folder, Host};
use serde_json::{Value, json};

use super::serve::Settings;
use crate::client::Client;
use crate::failure::Failure;
use crate::output;

const DEFAULT_CONNECTIONS: u64 = 10_000;
/// IPv4 with all its ports has no more.
const CONNECTIONS_MAX: u64 = 100_000_000;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, clap::Args)]
#[command(after_help = "Exit code 1 if a check fails; a warning is no failure.")]
pub(crate) struct Arguments {
    /// Devices to be connected at once [default: gateway.connections_max, else 10000]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=CONNECTIONS_MAX))]
    connections: Option<u64>,
    /// They use TLS up to this node [default: if it has a certificate, by the configuration or as it runs]
    #[arg(long)]
    tls: bool,
    /// They come through a reverse proxy on this machine
    #[arg(long)]
    proxy: bool,
    /// Compare the clock with this server's
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// Trust the certificates in this PEM file too
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
        let wanted = Wanted {
            connections: self.connections.or(configured).unwrap_or(DEFAULT_CONNECTIONS),
            tls: self.tls || config.server.tls.is_some() || serves_tls(&folder),
            proxied: self.proxy,
            database_bytes_max: config.store.database_bytes_max,
            connections_max,
        };
        let clock_offset = match &self.server {
            Some(server) => Some(super::wait(offset(server.clone(), self.ca_file.as_deref()))?),
            None => None,
        };
        let patient = Patient { host: Host::of(root, folder.pid), folder, wanted, clock_offset };
        let diagnosis = examine(&patient);
        match self.format.json {
            true => output::line(json(&patient, &diagnosis))?,
            false => show(&patient, &diagnosis)?,
        }
        Ok(match diagnosis.verdict() {
            Verdict::Ok | Verdict::Warn => ExitCode::SUCCESS,
            Verdict::Fail => ExitCode::FAILURE,
        })
    }
}

/// The node that runs on the folder may have its certificate from arguments that are not repeated here. A
/// note of one that was killed counts for nothing.
fn serves_tls(folder: &Folder) -> bool {
    let running = || data::read_addresses(&folder.path);
    folder.pid.is_some() && running().is_some_and(|addresses| addresses.http.starts_with("https:"))
}

/// How far this machine's clock is from the one of the server's `Date` (RFC 9110 §6.6.1).
async fn offset(server: String, ca_file: Option<&Path>) -> Result<Duration, Failure> {
    let client = Client::anonymous(server.clone(), ca_file)?;
    let asked = Instant::now();
    let answer =
        tokio::time::timeout(ANSWER_TIMEOUT, client.send(client.request(Method::GET, "/openapi.json")?));
    let answer = answer.await.map_err(|_| Failure::Unreachable {
        server: server.clone(),
        cause: "no answer in time".to_owned(),
    })??;
    let here = SystemTime::now() - asked.elapsed() / 2;
    let date = answer.headers().get(DATE).and_then(|date| date.to_str().ok());
    let there = date.and_then(|date| httpdate::parse_http_date(date).ok());
    let there = there.ok_or_else(|| Failure::failed(format!("{server} does not say what time it has")))?;
    Ok(apart(here, there))
}

/// `Date` is cut to whole seconds, so half of one is added.
fn apart(here: SystemTime, there: SystemTime) -> Duration {
    let there = there + Duration::from_millis(500);
    here.duration_since(there).unwrap_or_else(|ahead| ahead.duration())
}

fn show(patient: &Patient, diagnosis: &Diagnosis) -> Result<(), Failure> {
    let Wanted { connections, tls, .. } = patient.wanted;
    let over = if tls { " over TLS" } else { "" };
    output::line(format_args!("Wanted: {} devices{over}\n", grouped(connections)))?;
    let row = |finding: &Finding| {
        let Finding { name, verdict, found, wanted, .. } = finding;
        vec![verdict.as_str().to_owned(), (*name).to_owned(), output::clean(found), wanted.clone()]
    };
    output::table(&["", "check", "found", "wanted"], diagnosis.findings.iter().map(row).collect())?;
    let ill: Vec<&Finding> = diagnosis.findings.iter().filter(|finding| !finding.advice.is_empty()).collect();
    if !ill.is_empty() {
        output::line("\nWhat to do")?;
    }
    for Finding { name, verdict, advice, .. } in ill {
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
        output::line(format_args!("\n# the same until the next start\n{}", at_once.join("\n")))?;
    }
    if let Some(limit) = diagnosis.open_files() {
        output::line(format_args!("\n# systemctl edit noroshi\n[Service]\nLimitNOFILE={limit}"))?;
    }
    output::line(format_args!("\nAs it is: {}", diagnosis.capacity))
}

fn json(patient: &Patient, diagnosis: &Diagnosis) -> Value {
    let check = |finding: &Finding| {
        json!({
            "name": finding.name, "verdict": finding.verdict.as_str(), "found": finding.found,
            "wanted": finding.wanted, "advice": finding.advice,
        })
    };
    let capacity = &diagnosis.capacity;
    json!({
        "verdict": diagnosis.verdict().as_str(),
        "connections": patient.wanted.connections,
        "tls": patient.wanted.tls,
        "checks": diagnosis.findings.iter().map(check).collect::<Vec<_>>(),
        "sysctl": diagnosis.sysctls(),
        "limit_nofile": diagnosis.open_files(),
        "room": {
            "devices": capacity.limited_by.as_ref().map(|room| room.devices),
            "limited_by": capacity.limited_by.as_ref().map(|room| room.resource.to_string()),
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
            assert_eq!(apart(here, there), Duration::from_millis(apart_ms));
        };
        check(1_000_500, 0);
        check(1_000_000, 500);
        check(970_500, 30_000);
        check(1_030_500, 30_000);
    }
}
