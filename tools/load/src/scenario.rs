//! The common part of all scenarios: server, clients, offline devices, samples of CPU and memory, and the
//! report.

pub(crate) mod activities;
pub(crate) mod broadcast;
pub(crate) mod campaign;
mod compare;
pub(crate) mod connect;
pub(crate) mod direct;
pub(crate) mod disconnect;
pub(crate) mod events;
pub(crate) mod homing;
pub(crate) mod idle;
pub(crate) mod me;
pub(crate) mod million;
pub(crate) mod push;
pub(crate) mod slow;
pub(crate) mod stored;
pub(crate) mod storm;
pub(crate) mod tenants;
pub(crate) mod tls;
mod usage;

use std::time::Duration;

use crate::args::Common;
use crate::crew::Crew;
use crate::engine::Setup;
use crate::host::Host;
use crate::http::{Client, Request};
use crate::jwt::Signer;
use crate::payload::Names;
use crate::process::{Cpu, Process, machine_busy_seconds};
use crate::publisher::Publisher;
use crate::report::{ReportDocument, Values, cpu_note, figures};
use crate::server::random_u32;
use crate::target::Target;
use crate::worker::{Connected, Reasons, show_reasons};
use crate::{Error, clock};

/// Lines per registration request; half of the API's limit.
const REGISTRATIONS_PER_REQUEST: usize = 5_000;
/// The slowest rate of log-ins that is measured.
const LOG_INS_PER_SECOND_MIN: u64 = 250;

pub(crate) use compare::{Measurement, Subject, run};

/// A server and the clients that generate its load.
pub(crate) struct Bench<'a> {
    pub(crate) common: &'a Common,
    pub(crate) crew: Crew,
    /// Dropped, and so stopped, after the clients.
    pub(crate) target: Target,
    setup: Setup,
    pub(crate) notes: Vec<String>,
}

impl<'a> Bench<'a> {
    /// For an existing target; requires a previous [`Subject::check`]. `topic`: subscribed by all devices.
    fn new(common: &'a Common, target: Target, topic: Option<String>) -> Result<Self, Error> {
        let processes = usize::from(common.processes);
        let setup = Setup {
            origin: target.origin.clone(),
            homes: target.devices.iter().cloned().collect(),
            spare_homes: 0,
            providers: Vec::new(),
            names: Names { prefix: common.name.clone() },
            signer: Signer::new(&target.jwt_secret, &common.app),
            api_key: target.key.clone(),
            topic,
            dialect: target.dialect.clone(),
            sources_start: random_u32()?,
        };
        let crew = Crew::start(processes, &setup)?;
        let notes = target.notes();
        Ok(Self { common, crew, target, setup, notes })
    }

    /// Runs `measure`; if it fails because a started server exited, returns that cause instead.
    pub(crate) fn attempt<T>(
        mut self,
        measure: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<(T, Outcome), Error> {
        match measure(&mut self) {
            Ok(result) => Ok((result, self.close())),
            Err(error) => Err(self.explain(error)),
        }
    }

    /// Returns the exit of a started server as the cause of an error, if it exited.
    pub(crate) fn explain(&mut self, error: Error) -> Error {
        match self.target.exited() {
            Some(status) => {
                let why = format!("it started, then exited with {status} ({error})");
                Error::Start { why, log: self.target.log_end() }
            }
            None => error,
        }
    }

    pub(crate) fn close(self) -> Outcome {
        Outcome { server: self.target.description, notes: self.notes, floor: None }
    }

    /// A provider connection that waits for each response.
    pub(crate) fn provider(&self) -> Result<Client, Error> {
        Client::new(self.setup.origin.clone())
    }

    /// The publisher to all devices.
    pub(crate) fn publisher(&self) -> Result<Publisher, Error> {
        match self.target.publish()? {
            Some(publish) => Publisher::foreign(publish, &self.setup),
            None => Ok(Publisher::topic(self.provider()?, &self.setup)),
        }
    }

    pub(crate) fn setup(&self) -> &Setup {
        &self.setup
    }

    pub(crate) fn settle(&self) {
        std::thread::sleep(self.common.settle);
    }

    /// Connects devices until there are `devices` in total.
    pub(crate) fn connect(&mut self, devices: usize) -> Result<Connected, Error> {
        progress(&format!("connecting {devices} devices"));
        let (handshakes, timeout) = (self.common.handshakes as usize, connect_timeout(devices));
        let connected = self.crew.connect(devices, handshakes, timeout);
        self.note_connected(connected)
    }

    /// The same for `steady` devices of the first client process and `others` of the other processes.
    fn connect_apart(&mut self, steady: usize, others: usize) -> Result<Connected, Error> {
        progress(&format!("connecting {steady} and {others} devices"));
        let (handshakes, timeout) = (self.common.handshakes as usize, connect_timeout(steady + others));
        let connected = self.crew.connect_apart((steady, others), handshakes, timeout);
        self.note_connected(connected)
    }

    fn note_connected(&mut self, connected: Result<Connected, Error>) -> Result<Connected, Error> {
        let connected = connected.map_err(|error| self.with_server_limit(error))?;
        note_reasons(&mut self.notes, "failed and repeated log-ins", &connected.failed);
        Ok(connected)
    }

    /// Connects devices up to the last of `counts`, and returns the server's resident bytes at each count.
    pub(crate) fn connect_and_weigh(&mut self, counts: &[usize]) -> Result<Vec<(f64, f64)>, Error> {
        let mut points = Vec::new();
        for count in counts {
            self.connect(*count)?;
            self.settle();
            if let Some(resident) = self.target.process.and_then(Process::resident_bytes) {
                points.push((*count as f64, resident as f64));
            }
        }
        Ok(points)
    }

    /// Adds the server's file limit to the advice for a connection failure.
    fn with_server_limit(&self, error: Error) -> Error {
        let files_max = self.target.process.and_then(Process::files_max);
        match (error, files_max) {
            (Error::NotConnected { wanted, connected, seconds, reasons, advice }, Some(files_max)) => {
                let advice = format!("{advice} (the server may open {files_max} files)");
                Error::NotConnected { wanted, connected, seconds, reasons, advice }
            }
            (error, _) => error,
        }
    }

    /// Registers `count` devices that never connect, if the target stores devices.
    pub(crate) fn register_away(&self, count: usize) -> Result<(), Error> {
        if count == 0 || !self.target.keeps_devices() {
            return Ok(());
        }
        progress(&format!("registering {count} offline devices"));
        let names = &self.setup.names;
        register(&mut self.provider()?, &self.setup.api_key, count, |number| {
            let name = names.away(number);
            format!("{{\"device\":\"{name}\",\"user\":\"{name}\"}}\n")
        })
    }

    /// Rows in the inboxes of the first `count` offline devices.
    pub(crate) fn rows_kept(&self, count: usize) -> Result<u64, Error> {
        #[derive(serde::Deserialize)]
        struct Me {
            inbox: u64,
        }
        progress(&format!("counting the inboxes of {count} devices"));
        let mut consumer = self.provider()?;
        let now = clock::unix_seconds();
        let mut rows = 0;
        for number in 0..count {
            let token = self.setup.signer.token(&self.setup.names.away(number), now);
            let response = consumer.expect_success(Request::json("GET", "/v1/me", &token), b"")?;
            let malformed = |_| Error::Malformed {
                request: "GET /v1/me".to_owned(),
                what: "the number \"inbox\" is missing",
            };
            rows += serde_json::from_slice::<Me>(&response.body).map_err(malformed)?.inbox;
        }
        Ok(rows)
    }

    /// The server's CPU time so far, if known.
    pub(crate) fn server_cpu(&self) -> Option<Cpu> {
        self.target.process?.cpu()
    }
}

fn connect_timeout(devices: usize) -> Duration {
    Duration::from_secs(30 + devices as u64 / LOG_INS_PER_SECOND_MIN)
}

/// Registers `count` devices, one JSON line each.
fn register(
    provider: &mut Client,
    api_key: &str,
    count: usize,
    line: impl Fn(usize) -> String,
) -> Result<(), Error> {
    for from in (0..count).step_by(REGISTRATIONS_PER_REQUEST) {
        let numbers = from..count.min(from + REGISTRATIONS_PER_REQUEST);
        let lines: String = numbers.clone().map(&line).collect();
        let response =
            provider.expect_success(Request::lines("/v1/devices/batch", api_key), lines.as_bytes())?;
        check_registered(&response.body, numbers.len())?;
    }
    Ok(())
}

/// Checks that every line of the response names a device.
fn check_registered(body: &[u8], count: usize) -> Result<(), Error> {
    #[derive(serde::Deserialize)]
    struct Line {
        #[serde(default)]
        device: Option<String>,
    }
    let text = String::from_utf8_lossy(body);
    let mut registered = 0;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        match serde_json::from_str::<Line>(line) {
            Ok(Line { device: Some(_) }) => registered += 1,
            _ => return Err(not_registered(line)),
        }
    }
    if registered == count { Ok(()) } else { Err(not_registered(&format!("{registered} of {count} lines"))) }
}

fn not_registered(body: &str) -> Error {
    Error::Refused {
        request: "a line of POST /v1/devices/batch".to_owned(),
        status: 200,
        body: body.to_owned(),
    }
}

/// The parts of a bench that outlive it.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) server: String,
    pub(crate) notes: Vec<String>,
    /// The floor's alternating repetitions.
    pub(crate) floor: Option<Compared>,
}

pub(crate) struct Compared {
    pub(crate) server: String,
    pub(crate) repetitions: Vec<Values>,
}

/// CPU of the server and of all clients, in cores.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) server: f64,
    pub(crate) clients: f64,
}

/// A sample of the CPU times of the server and all client processes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    at_ns: u64,
    server: Option<Cpu>,
    client: Option<Cpu>,
    machine_seconds: Option<f64>,
}

impl Sample {
    pub(crate) fn take(bench: &Bench<'_>) -> Self {
        Self {
            at_ns: clock::now_ns(),
            server: bench.server_cpu(),
            client: bench.crew.cpu().zip(Process::this().cpu()).map(|(crew, this)| crew + this),
            machine_seconds: machine_busy_seconds(),
        }
    }

    pub(crate) fn seconds_until(self, later: Sample) -> f64 {
        later.at_ns.saturating_sub(self.at_ns) as f64 / 1e9
    }

    pub(crate) fn server_until(self, later: Sample) -> Option<Cpu> {
        self.server.zip(later.server).map(|(from, to)| to - from)
    }

    pub(crate) fn server_cores(self, later: Sample) -> Option<f64> {
        self.server_until(later).map(|cpu| cpu.total_us() / 1e6 / self.seconds_until(later))
    }

    /// The usage of both sides up to a later sample, in cores.
    pub(crate) fn load_until(self, later: Sample) -> Option<Load> {
        let client = self.client.zip(later.client).map(|(from, to)| to - from);
        Some(Load {
            server: self.server_cores(later)?,
            clients: client?.total_us() / 1e6 / self.seconds_until(later),
        })
    }

    /// CPU of the server up to a later sample, per item: the sum named `whole`, and its parts named after `part`.
    pub(crate) fn push_cpu_parts(
        self,
        later: Sample,
        (whole, part): (&str, &str),
        count: u64,
        values: &mut Values,
    ) {
        if let Some(cpu) = self.server_until(later).filter(|_| count > 0) {
            values.count_cpu(cpu.total_us());
            values.push(whole, "µs", cpu.total_us() / count as f64);
            values.push(format!("{part}, user space"), "µs", cpu.user_us / count as f64);
            values.push(format!("{part}, kernel"), "µs", cpu.system_us / count as f64);
        }
    }

    pub(crate) fn push_cpu_each(self, later: Sample, name: &str, count: u64, values: &mut Values) {
        self.push_cpu_parts(later, (name, name), count, values);
    }

    /// [`Sample::push_cpu_each`], and the usage of both sides in cores.
    pub(crate) fn push_cpu(self, later: Sample, name: &str, count: u64, values: &mut Values) {
        self.push_cpu_each(later, name, count, values);
        self.push_cores(later, values);
    }

    /// The usage of both sides, in cores.
    pub(crate) fn push_cores(self, later: Sample, values: &mut Values) {
        let seconds = self.seconds_until(later);
        let server = self.server_until(later);
        let client = self.client.zip(later.client).map(|(from, to)| to - from);
        let cores = |cpu: Cpu| cpu.total_us() / 1e6 / seconds;
        values.push_some("server CPU", "cores", server.map(cores));
        values.push_some("client CPU", "cores", client.map(cores));
        if let (Some(server), Some(client)) = (server, client) {
            let machine = self.machine_seconds.zip(later.machine_seconds);
            let machine = machine.map(|(from, to)| (to - from) / seconds);
            // The three values were not read at exactly the same time.
            let others = machine.map(|machine| (machine - cores(server) - cores(client)).max(0.0));
            values.push_some("CPU of everything else on this machine", "cores", others);
        }
    }
}

/// The name of a figure that several scenarios have.
pub(crate) const PER_DELIVERY: &str = "server CPU per delivery";

/// Combines repetitions and conditions in a report.
pub(crate) fn report(scenario: &'static str, repetitions: &[Values], outcome: Outcome) -> ReportDocument {
    let (floor, floor_repetitions) = outcome.floor.map(|floor| (floor.server, floor.repetitions)).unzip();
    let floor_repetitions = floor_repetitions.unwrap_or_default();
    let mut notes = outcome.notes;
    notes.extend(cpu_note(repetitions));
    notes.extend(cpu_note(&floor_repetitions).map(|note| format!("floor: {note}")));
    ReportDocument {
        scenario,
        command: command_line(std::env::args()),
        version: env!("CARGO_PKG_VERSION"),
        optimized: !cfg!(debug_assertions),
        host: Host::read(),
        server: outcome.server,
        floor,
        figures: figures(repetitions, &floor_repetitions),
        notes,
    }
}

const SECRETS: [&str; 5] = ["--key", "--jwt-secret", "--publish-header", "--operator-token", "--password"];

/// The command as typed, without secrets.
fn command_line(words: impl Iterator<Item = String>) -> String {
    let mut shown: Vec<String> = Vec::new();
    let mut secret_follows = false;
    for (at, word) in words.enumerate() {
        let given =
            SECRETS.iter().any(|option| word.strip_prefix(option).is_some_and(|rest| rest.starts_with('=')));
        shown.push(match () {
            () if at == 0 => word.rsplit('/').next().unwrap_or_default().to_owned(),
            () if secret_follows || given => "…".to_owned(),
            () => word.clone(),
        });
        secret_follows = !secret_follows && SECRETS.contains(&word.as_str());
    }
    shown.join(" ")
}

/// Adds a note unless there are no reasons.
fn note_reasons(notes: &mut Vec<String>, what: &str, reasons: &Reasons) {
    if !reasons.is_empty() {
        notes.push(format!("{what}: {}", show_reasons(reasons)));
    }
}

/// Prints progress on standard error.
pub(crate) fn progress(text: &str) {
    eprintln!("noroshi bench: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_is_shown_without_secrets() {
        let words = [
            "/opt/noroshi",
            "bench",
            "direct",
            "--key",
            "k1",
            "--jwt-secret=s1",
            "--publish-header",
            "X-Key: s2",
            "--pid",
            "7",
        ];
        let shown = command_line(words.map(str::to_owned).into_iter());
        assert_eq!(shown, "noroshi bench direct --key … … --publish-header … --pid 7");
    }

    #[test]
    fn every_registration_must_create_a_device() {
        assert!(check_registered(b"{\"device\":\"a\",\"token\":\"t\"}\n{\"device\":\"b\"}\n", 2).is_ok());
        assert!(check_registered(b"{\"device\":\"a\"}\n", 2).is_err());
        let error =
            check_registered(b"{\"device\":\"a\"}\n{\"status\":400,\"code\":\"bad_user\"}\n", 2).unwrap_err();
        assert!(error.to_string().contains("bad_user"));
    }
}
