//! A campaign of a node, controlled over HTTP like a provider does: the evenness of its rate, its memory, and
//! how quickly an urgent message overtakes it. The push service is the strict fake, so every response
//! represents a valid push.
//!
//! Response times are those at which the node reports them, after its store has recorded them.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::push::token::apns_token;
use super::{Outcome, progress, register, report};
use crate::args::{Campaign, Common, Speech, check};
use crate::http::{Client, Origin, Request, Response};
use crate::process::Process;
use crate::report::{ReportDocument, Values};
use crate::target::{PushService, Target};
use crate::{Error, clock};

const DEVICES_MAX: usize = 10_000_000;
/// Recipients of the urgent message.
const BREAKING_DEVICES: usize = 1_000;
const POLL: Duration = Duration::from_millis(50);
/// Shorter, since the measured time is below a second.
const POLL_BREAKING: Duration = Duration::from_millis(10);
pub(crate) fn run(args: &Campaign) -> Result<ReportDocument, Error> {
    args.common.check()?;
    check((100..=DEVICES_MAX).contains(&args.devices), "--devices must be 100 to 10000000")?;
    if let Some(server) = &args.common.server {
        let rule = format!("{server} must trust the fake, which it cannot for a started one: use --fake");
        args.fake.as_ref().ok_or(Error::Usage(rule))?;
        check(args.common.admin.is_some(), "--admin is required to give the app a credential")?;
    }
    let mut service = match &args.fake {
        Some(control) => PushService::attach(control)?,
        None => PushService::start(noroshi_types::PushService::Apns)?,
    };
    service.behave(&json!({"latency": args.latency}))?;
    let server = Target::node(&trusting(&args.common, &service), &Speech::default())?;
    let mut outcome = Outcome { server: server.description.clone(), ..Outcome::default() };
    outcome.notes.push(format!("push service: {}", service.describe()));
    let mut bench = Bench::new(args, server)?;
    bench.give_credential(&service.credential)?;
    bench.register()?;
    let mut repetitions = Vec::new();
    for number in 1..=args.common.repeat {
        progress(&format!("measuring {number} of {}", args.common.repeat));
        std::thread::sleep(args.common.settle);
        repetitions.push(bench.measure(&mut service)?);
    }
    outcome.notes.append(&mut bench.notes);
    Ok(report("campaign", &repetitions, outcome))
}

/// A started server trusts the fake.
fn trusting(common: &Common, service: &PushService) -> Common {
    let mut common = common.clone();
    if let (None, Some(path)) = (&common.server, &service.ca_file) {
        common.set.push(format!("egress.ca_file={}", path.display()));
    }
    common
}

struct Bench<'a> {
    args: &'a Campaign,
    server: Target,
    api: Client,
    notes: Vec<String>,
}

/// The fields of a campaign that are read.
#[derive(Debug, Deserialize)]
struct Shown {
    id: String,
    state: String,
    done: u64,
    recipients: u64,
    errors: u64,
    latency: ShownLatency,
}

#[derive(Debug, Deserialize)]
struct ShownLatency {
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
}

/// The results of watching a campaign.
#[derive(Default)]
struct Watched {
    start_ns: u64,
    /// Number of responses over time, at most one point per poll.
    points: Vec<(u64, u64)>,
    resident_max: u64,
    breaking_ms: Option<f64>,
}

impl<'a> Bench<'a> {
    fn new(args: &'a Campaign, server: Target) -> Result<Self, Error> {
        let api = Client::new(server.origin.clone())?;
        Ok(Self { args, server, api, notes: Vec::new() })
    }

    fn ask(&mut self, method: &'static str, path: &str, body: &[u8]) -> Result<Response, Error> {
        self.api.expect_success(Request::json(method, path, &self.server.key), body)
    }

    fn shown(&mut self, method: &'static str, path: &str, body: &[u8]) -> Result<Shown, Error> {
        let response = self.ask(method, path, body)?;
        let malformed = |_| Error::Malformed { request: path.to_owned(), what: "it is not a campaign" };
        serde_json::from_slice(&response.body).map_err(malformed)
    }

    fn give_credential(&self, credential: &Value) -> Result<(), Error> {
        let rule = "the operator's token is required: use --operator-token";
        let token = self.args.operator_token.clone().or_else(|| self.server.operator_token());
        let token = token.ok_or_else(|| Error::Usage(rule.to_owned()))?;
        let admin: Option<Origin> = self.server.admin.clone();
        let admin = admin.ok_or_else(|| Error::Usage("--admin is required".to_owned()))?;
        let path = format!("/v1/apps/{}/push?replace=true", self.args.common.app);
        let request = Request::json("POST", &path, &token);
        Client::new(admin)?.expect_success(request, credential.to_string().as_bytes()).map(drop)
    }

    /// Registers the campaign's devices, of which the first also receive the urgent message.
    fn register(&mut self) -> Result<(), Error> {
        let Common { name, .. } = &self.args.common;
        progress(&format!("registering {} devices", self.args.devices));
        let topic = breaking_topic(name);
        let line = |number: usize| {
            let id = format!("{name}-push-{number}");
            let mut line = json!({
                "device": id,
                "user": id,
                "platform": "ios",
                "push_token": {"service": "apns", "token": apns_token("ca", number)},
            });
            if number < BREAKING_DEVICES {
                line["topics"] = json!([topic]);
            }
            format!("{line}\n")
        };
        register(&mut self.api, &self.server.key, self.args.devices, line)
    }

    fn measure(&mut self, service: &mut PushService) -> Result<Values, Error> {
        service.forget()?;
        let resident = |server: &Target| server.process.and_then(Process::resident_bytes);
        let idle = resident(&self.server);
        let cpu = |server: &Target| server.process.and_then(Process::cpu);
        let from = cpu(&self.server);
        let watched = self.watch()?;
        let to = cpu(&self.server);
        let mut values = Values::default();
        self.push_rates(&watched, &mut values);
        let mib = |bytes: u64| bytes as f64 / 1_048_576.0;
        let over = idle.map(|idle| mib(watched.resident_max.saturating_sub(idle)));
        values.push_some("memory idle", "MiB", idle.map(mib));
        values.push_some("memory over idle, most", "MiB", over);
        if let Some((from, to)) = from.zip(to) {
            let used = to - from;
            values.count_cpu(used.total_us());
            values.push("server CPU per push", "µs", used.total_us() / self.args.devices as f64);
        }
        values.push_some("breaking news, to the first answer", "ms", watched.breaking_ms);
        if let Some(counts) = service.counts()? {
            let missed = (self.args.devices as u64).saturating_sub(counts.tokens);
            values.push("devices that got none", "", missed as f64);
            values.push("pushes that were doubled", "", counts.ids_repeated as f64);
            values.push("connections", "", counts.connections.open_max as f64);
            let failed = counts.connections.reset + counts.connections.failed;
            values.push("connections reset or failed", "", failed as f64);
        }
        Ok(values)
    }

    /// Runs one campaign to its end.
    fn watch(&mut self) -> Result<Watched, Error> {
        let body = campaign(&self.args.common.name, "campaign", &json!({"everyone": true}));
        let mut watched = Watched { start_ns: clock::now_ns(), ..Watched::default() };
        let id = self.shown("POST", "/v1/campaigns", body.as_bytes())?.id;
        let path = format!("/v1/campaigns/{id}");
        let deadline_ns = watched.start_ns + clock::ns(self.args.patience);
        let half = self.args.devices as u64 / 2;
        loop {
            let shown = self.shown("GET", &path, b"")?;
            let now_ns = clock::now_ns();
            if watched.points.last().is_none_or(|(_, done)| *done < shown.done) {
                watched.points.push((now_ns, shown.done));
            }
            let resident = self.server.process.and_then(Process::resident_bytes).unwrap_or_default();
            watched.resident_max = watched.resident_max.max(resident);
            if self.args.breaking && watched.breaking_ms.is_none() && shown.done >= half {
                watched.breaking_ms = Some(self.break_in(deadline_ns, &shown)?);
            }
            match shown.state.as_str() {
                "done" => {
                    self.note_end(&shown);
                    return Ok(watched);
                }
                "aborted" => return Err(ended(&shown, self.args)),
                _ if now_ns > deadline_ns => return Err(ended(&shown, self.args)),
                _ => std::thread::sleep(POLL),
            }
        }
    }

    /// The time from the publish request until the node reports a response.
    fn break_in(&mut self, deadline_ns: u64, running: &Shown) -> Result<f64, Error> {
        let name = &self.args.common.name;
        let body = campaign(name, "extra", &json!({"topic": breaking_topic(name)}));
        let start_ns = clock::now_ns();
        let id = self.shown("POST", "/v1/campaigns", body.as_bytes())?.id;
        let path = format!("/v1/campaigns/{id}");
        if running.state == "done" {
            self.notes.push("the campaign ended before the urgent message: increase --devices".to_owned());
        }
        while self.shown("GET", &path, b"")?.done == 0 {
            if clock::now_ns() > deadline_ns {
                return Err(ended(running, self.args));
            }
            std::thread::sleep(POLL_BREAKING);
        }
        Ok((clock::now_ns() - start_ns) as f64 / 1e6)
    }

    fn note_end(&mut self, shown: &Shown) {
        let wanted = self.args.devices as u64;
        if shown.errors > 0 || shown.recipients < wanted {
            let Shown { recipients, errors, .. } = shown;
            self.notes
                .push(format!("of {wanted} devices {recipients} were recipients, with {errors} errors"));
        }
        if let (Some(p50), Some(p99)) = (shown.latency.p50_ms, shown.latency.p99_ms) {
            self.notes
                .push(format!("reported by the node, from dequeue to response: p50 {p50} ms, p99 {p99} ms"));
        }
    }

    /// The overall rate, and that of each tenth of the recipients.
    fn push_rates(&self, watched: &Watched, values: &mut Values) {
        let total = self.args.devices as f64;
        let at = |share: f64| crossing_ns(watched, (total * share).round() as u64);
        let rate = |from: f64, to: f64| {
            let seconds = at(to)?.saturating_sub(at(from)?).max(1) as f64 / 1e9;
            Some(total * (to - from) / seconds)
        };
        values.push_some("answers", "1/s", rate(0.0, 1.0));
        let tenths: Vec<f64> =
            (0..10).filter_map(|n| rate(f64::from(n) / 10.0, f64::from(n + 1) / 10.0)).collect();
        for (number, rate) in (1..).zip(&tenths) {
            values.push(format!("rate, tenth {number}"), "1/s", *rate);
        }
        let slowest = tenths.iter().copied().reduce(f64::min);
        let fastest = tenths.iter().copied().reduce(f64::max);
        let ratio = slowest.zip(fastest).map(|(slowest, fastest)| slowest / fastest);
        values.push_some("slowest tenth to fastest", "", ratio);
    }
}

/// When `count` responses had arrived, interpolated between two polls.
fn crossing_ns(watched: &Watched, count: u64) -> Option<u64> {
    let mut before = (watched.start_ns, 0);
    for &(at_ns, done) in &watched.points {
        if done >= count {
            let (from_ns, from) = before;
            let share = (count - from) as f64 / (done - from).max(1) as f64;
            return Some(from_ns + ((at_ns - from_ns) as f64 * share) as u64);
        }
        before = (at_ns, done);
    }
    None
}

fn breaking_topic(name: &str) -> String {
    format!("{name}-breaking")
}

fn campaign(name: &str, lane: &str, audience: &Value) -> String {
    let body = json!({
        "name": format!("{name} {lane}"),
        "audience": audience,
        "lane": lane,
        "message": {
            "notification": {"title": "A headline of usual length", "body": "And a line that says a little more."},
            "data": {"article": "0123456789abcdef"},
            "ttl": "1h",
        },
    });
    body.to_string()
}

fn ended(shown: &Shown, args: &Campaign) -> Error {
    let Shown { id, state, done, recipients, .. } = shown;
    Error::NotDelivered {
        missing: (args.devices as u64).saturating_sub(*done),
        expected: args.devices as u64,
        seconds: args.patience.as_secs_f64(),
        hint: format!("campaign {id} is {state}, {done} of {recipients} recipients have a response so far"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_between_two_polls_are_interpolated() {
        let watched = Watched { start_ns: 100, points: vec![(200, 10), (400, 30)], ..Watched::default() };
        for (count, at_ns) in [(0, Some(100)), (5, Some(150)), (10, Some(200)), (20, Some(300)), (31, None)] {
            assert_eq!(crossing_ns(&watched, count), at_ns, "{count}");
        }
    }
}
