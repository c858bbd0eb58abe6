//! The first call of an app, `GET /v1/me`: cold, warm, and warm with many experiments that are live for other
//! users or ended, all with one server in one run; and the 304 for a client that has the current answer.
//!
//! One thread sends over connections with one request each; devices take turns. All requests are prepared
//! before the measurement.

use serde_json::{Value, json};

use super::{Bench, Sample, Subject, progress, report};
use crate::args::{Me, check};
use crate::http::Request;
use crate::report::{ReportDocument, Values};
use crate::request_loop::{Results, Schedule};
use crate::{Error, clock};

/// Concurrent definition requests: the store commits them together.
const DEFINITIONS_IN_FLIGHT: usize = 64;
/// Lines per registration, users per notification.
const DEVICES_PER_REQUEST: usize = 1_000;

/// A phase of the measurement: the name of its rate, and the prefix of its other figures.
type Phase = (&'static str, &'static str);

const FEW: Phase = ("requests, few experiments", "few");
const MANY: Phase = ("requests, many experiments", "many");
const UNCHANGED: Phase = ("requests, unchanged (304)", "304");

pub(crate) fn run(args: &Me) -> Result<ReportDocument, Error> {
    args.pacing.check()?;
    check(args.pacing.rate.is_none(), "--rate is not supported: requests are unlimited")?;
    check(args.experiments <= args.live, "--experiments must not exceed --live")?;
    let connections = usize::from(args.in_flight).max(DEFINITIONS_IN_FLIGHT);
    let subject = Subject::new(&args.common, connections);
    subject.check()?;
    let (repetitions, outcome) = subject.open()?.attempt(|bench| measure_all(args, bench))?;
    Ok(report("me", &repetitions, outcome))
}

fn measure_all(args: &Me, bench: &mut Bench<'_>) -> Result<Vec<Values>, Error> {
    let mut scene = Scene::new(args, bench)?;
    let mut repetitions = vec![Values::default(); args.common.repeat as usize];
    // The first call of every device.
    let cold = scene.ask(bench, &scene.requests, Schedule::Each)?;
    repetitions[0].push_latency("cold", &cold.latency);
    for (number, values) in repetitions.iter_mut().enumerate() {
        progress(&format!("measuring {} of {}, few experiments", number + 1, args.common.repeat));
        scene.measure(bench, FEW, &scene.requests, values)?;
    }
    progress(&format!("creating {} experiments that end, and {} live ones", args.expired, args.live));
    scene.fill(bench)?;
    scene.know_answers(bench)?;
    for (number, values) in repetitions.iter_mut().enumerate() {
        progress(&format!("measuring {} of {}, many experiments", number + 1, args.common.repeat));
        scene.measure(bench, MANY, &scene.requests, values)?;
        let rate = |name: &str| values.get(name).unwrap_or(f64::NAN);
        values.push("many / few", "", rate(MANY.0) / rate(FEW.0));
        scene.measure(bench, UNCHANGED, &scene.conditional, values)?;
    }
    bench.notes.push(format!(
        "a response is {} bytes of JSON, with {} experiments and {} messages; many: {} live, {} ended",
        scene.answer_bytes, args.experiments, args.messages, args.live, args.expired
    ));
    Ok(repetitions)
}

/// Devices with their prepared requests.
struct Scene<'a> {
    args: &'a Me,
    requests: Vec<Vec<u8>>,
    /// The same for clients that have the answer.
    conditional: Vec<Vec<u8>>,
    tokens: Vec<String>,
    answer_bytes: usize,
}

impl<'a> Scene<'a> {
    fn new(args: &'a Me, bench: &mut Bench<'_>) -> Result<Self, Error> {
        let tokens = register(args, bench)?;
        let host = bench.setup().origin.host.clone();
        let requests = tokens.iter().map(|token| request_bytes(&host, token, None)).collect();
        let scene = Self { args, requests, conditional: Vec::new(), tokens, answer_bytes: 0 };
        let few = (0..args.experiments).map(|number| define(bench, &format!("shown-{number}"), None, None));
        scene.ask(bench, &few.collect::<Vec<_>>(), Schedule::Each)?;
        Ok(scene)
    }

    /// Runs a phase as fast as the server answers, and returns its figures.
    fn measure(
        &self,
        bench: &mut Bench<'_>,
        (requests_rate, phase): Phase,
        requests: &[Vec<u8>],
        values: &mut Values,
    ) -> Result<(), Error> {
        bench.settle();
        self.ask(bench, requests, Schedule::For(self.args.pacing.warm_up))?;
        let from = Sample::take(bench);
        let asked = self.ask(bench, requests, Schedule::For(self.args.pacing.duration))?;
        let to = Sample::take(bench);
        values.push(requests_rate, "1/s", asked.answered as f64 / asked.seconds);
        values.push_latency(phase, &asked.latency);
        let cpu = format!("{phase}, server CPU");
        from.push_cpu_parts(to, (&cpu, phase), asked.answered, values);
        Ok(())
    }

    fn ask(&self, bench: &Bench<'_>, requests: &[Vec<u8>], asking: Schedule) -> Result<Results, Error> {
        let in_flight = match asking {
            Schedule::Each => DEFINITIONS_IN_FLIGHT,
            Schedule::For(_) => usize::from(self.args.in_flight),
        };
        crate::request_loop::ask(&bench.setup().origin, requests, in_flight, asking)
    }

    /// Creates ended experiments, then those that are live for other users. Ended ones are created by the API
    /// like any other, and archived.
    fn fill(&self, bench: &mut Bench<'_>) -> Result<(), Error> {
        // The limit of concurrently live experiments.
        const AT_ONCE: u32 = 500;
        let mut made = 0;
        while made < self.args.expired {
            let names = made..self.args.expired.min(made + AT_ONCE);
            made = names.end;
            let name = |number| format!("over-{number}");
            let ends_at = in_an_hour();
            let made =
                names.clone().map(|number| define(bench, &name(number), Some("nobody"), Some(&ends_at)));
            self.ask(bench, &made.collect::<Vec<_>>(), Schedule::Each)?;
            let ended = names.map(|number| archive(bench, &name(number)));
            self.ask(bench, &ended.collect::<Vec<_>>(), Schedule::Each)?;
        }
        let others = self.args.experiments..self.args.live;
        let others = others.map(|number| define(bench, &format!("other-{number}"), Some("nobody"), None));
        self.ask(bench, &others.collect::<Vec<_>>(), Schedule::Each).map(drop)
    }

    /// Makes a call for each device, and prepares the conditional requests.
    fn know_answers(&mut self, bench: &mut Bench<'_>) -> Result<(), Error> {
        let host = bench.setup().origin.host.clone();
        let mut client = bench.provider()?;
        for token in &self.tokens {
            let answer = client.expect_success(Request::json("GET", "/v1/me", token), b"")?;
            let me: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
            let experiments = me["experiments"].as_object().map_or(0, serde_json::Map::len);
            if experiments != self.args.experiments as usize || me["inbox"] != json!(self.args.messages) {
                let what = "the created experiments and messages are missing";
                return Err(Error::Malformed { request: "/v1/me".to_owned(), what });
            }
            self.answer_bytes = answer.body.len();
            let tag = answer.tag.unwrap_or_default();
            self.conditional.push(request_bytes(&host, token, Some(&tag)));
        }
        Ok(())
    }
}

/// Registers devices with one user each, with messages in their inboxes. Returns their tokens.
fn register(args: &Me, bench: &mut Bench<'_>) -> Result<Vec<String>, Error> {
    let (key, prefix) = (bench.setup().api_key.clone(), bench.setup().names.prefix.clone());
    let mut client = bench.provider()?;
    let numbers: Vec<u32> = (0..args.devices).collect();
    let mut tokens = Vec::with_capacity(numbers.len());
    for chunk in numbers.chunks(DEVICES_PER_REQUEST) {
        let line = |number: &u32| {
            let line = json!({"device": format!("{prefix}-me-{number}"), "user": format!("{prefix}-me-{number}"),
                "platform": "ios", "locale": "ja-JP", "timezone": "Asia/Tokyo", "app_version": "1.2.3",
                "tags": {"plan": "free"}});
            format!("{line}\n")
        };
        let body: String = chunk.iter().map(line).collect();
        let answer = client.expect_success(Request::lines("/v1/devices/batch", &key), body.as_bytes())?;
        for line in String::from_utf8_lossy(&answer.body).lines() {
            let line: Value = serde_json::from_str(line).unwrap_or_default();
            tokens.extend(line["token"].as_str().map(str::to_owned));
        }
        let users: Vec<String> = chunk.iter().map(|number| format!("{prefix}-me-{number}")).collect();
        for number in 0..args.messages {
            let body = json!({"to": {"users": users}, "when": "stored", "data": {"number": number},
                "notification": {"title": "Something happened", "body": "And here is what it was, in a line."}});
            client.expect_success(Request::notification(&key), body.to_string().as_bytes())?;
        }
    }
    match tokens.len() == numbers.len() {
        true => Ok(tokens),
        false => {
            Err(Error::Malformed { request: "/v1/devices/batch".to_owned(), what: "a device has no token" })
        }
    }
}

/// A first call.
fn request_bytes(host: &str, token: &str, tag: Option<&str>) -> Vec<u8> {
    let condition = tag.map(|tag| format!("If-None-Match: {tag}\r\n")).unwrap_or_default();
    format!("GET /v1/me HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n{condition}\r\n")
        .into_bytes()
}

/// A request that creates an experiment, for all devices or those with a plan.
fn define(bench: &Bench<'_>, name: &str, plan: Option<&str>, ends_at: Option<&str>) -> Vec<u8> {
    let audience = plan.map(|plan| json!({"devices": {"tags": {"plan": [plan]}}}));
    let body = json!({"variants": [{"name": "control", "weight": 50}, {"name": "treatment", "weight": 50}],
        "audience": audience, "ends_at": ends_at});
    of_experiment(bench, "PUT", name, &body.to_string())
}

fn archive(bench: &Bench<'_>, name: &str) -> Vec<u8> {
    of_experiment(bench, "DELETE", name, "")
}

fn of_experiment(bench: &Bench<'_>, method: &'static str, name: &str, body: &str) -> Vec<u8> {
    let path = format!("/v1/apps/{}/experiments/{name}", bench.common.app);
    let setup = bench.setup();
    let mut out = Vec::new();
    Request::json(method, &path, &setup.api_key).push(&mut out, &setup.origin.host, body.as_bytes());
    out
}

/// RFC 3339, as the API expects.
fn in_an_hour() -> String {
    let at = jiff::Timestamp::from_second((clock::unix_seconds() + 3_600) as i64);
    at.unwrap_or_default().to_string()
}
