//! Live Activities of a node, updated in a fixed rhythm over HTTP like a provider does. The push service is the strict
//! fake, so every answer represents a valid push. Each state contains the time of its update, and the fake reports how
//! old the states are that it receives.
//!
//! A node that cannot send every state to every device skips states: then the number of pushes is below updates times
//! devices, while their age and the devices that wait show whether it keeps up.

use std::time::Duration;

use noroshi_testkit::record::{AGE_FIELD, Counts};
use serde_json::{Value, json};

use super::push::token::apns_token;
use super::{Outcome, progress, register, report};
use crate::args::{Activities, Speech, check};
use crate::http::{Client, Origin, Request};
use crate::process::Process;
use crate::report::{ReportDocument, Values};
use crate::target::{PushService, Target};
use crate::{Error, clock};

const DEVICES_MAX: usize = 1_000_000;
const ACTIVITIES_MAX: usize = 1_000;
const POLL: Duration = Duration::from_millis(20);

pub(crate) fn run(args: &Activities) -> Result<ReportDocument, Error> {
    args.common.check()?;
    check((1..=DEVICES_MAX).contains(&args.devices), "--devices must be 1 to 1000000")?;
    check((1..=ACTIVITIES_MAX).contains(&args.activities), "--activities must be 1 to 1000")?;
    check(args.activities <= args.devices, "--activities must not exceed --devices")?;
    check(args.common.server.is_none(), "the server must trust the fake, so this scenario starts its own")?;
    let mut service = PushService::start(noroshi_types::PushService::Apns)?;
    service.behave(&json!({"latency": args.latency}))?;
    let mut common = args.common.clone();
    if let Some(path) = &service.ca_file {
        common.set.push(format!("egress.ca_file={}", path.display()));
    }
    let server = Target::node(&common, &Speech::default())?;
    let mut outcome = Outcome { server: server.description.clone(), ..Outcome::default() };
    outcome.notes.push(format!("push service: {}", service.describe()));
    let mut bench = Bench { args, api: Client::new(server.origin.clone())?, server };
    bench.give_credential(&service.credential)?;
    bench.register()?;
    bench.start()?;
    let mut repetitions = Vec::new();
    for number in 1..=args.common.repeat {
        progress(&format!("measuring {number} of {}", args.common.repeat));
        std::thread::sleep(args.common.settle);
        repetitions.push(bench.measure(&mut service)?);
    }
    Ok(report("activities", &repetitions, outcome))
}

struct Bench<'a> {
    args: &'a Activities,
    api: Client,
    server: Target,
}

impl Bench<'_> {
    fn ask(&mut self, method: &'static str, path: &str, body: &Value) -> Result<Value, Error> {
        let body = if method == "GET" { String::new() } else { body.to_string() };
        let request = Request::json(method, path, &self.server.key);
        let response = self.api.expect_success(request, body.as_bytes())?;
        let malformed = |_| Error::Malformed { request: path.to_owned(), what: "it is not an activity" };
        serde_json::from_slice(&response.body).map_err(malformed)
    }

    fn give_credential(&self, credential: &Value) -> Result<(), Error> {
        let missing = || Error::Usage("the node has no admin address".to_owned());
        let token = self.server.operator_token().ok_or_else(missing)?;
        let admin: Origin = self.server.admin.clone().ok_or_else(missing)?;
        let path = format!("/v1/apps/{}/push?replace=true", self.args.common.app);
        let request = Request::json("POST", &path, &token);
        Client::new(admin)?.expect_success(request, credential.to_string().as_bytes()).map(drop)
    }

    fn id(&self, activity: usize) -> String {
        format!("{}-{activity}", self.args.common.name)
    }

    /// Each device has the token of its activity, as an app that started it has.
    fn register(&mut self) -> Result<(), Error> {
        let Activities { devices, activities, .. } = *self.args;
        progress(&format!("registering {devices} devices"));
        let name = self.args.common.name.clone();
        let line = |number: usize| {
            let activity = format!("{name}-{}", number % activities);
            let line = json!({
                "device": format!("{name}-activity-{number}"),
                "platform": "ios",
                "topics": [activity],
                "push_tokens": [{"kind": "live-activity", "name": activity, "token": apns_token("ac", number)}],
            });
            format!("{line}\n")
        };
        register(&mut self.api, &self.server.key, devices, line)
    }

    fn start(&mut self) -> Result<(), Error> {
        progress(&format!("starting {} activities", self.args.activities));
        for activity in 0..self.args.activities {
            let id = self.id(activity);
            let body = json!({
                "to": {"topic": id}, "id": id, "attributes_type": "Match", "frequent_updates": true,
                "content_state": {"score": "0:0"}, "alert": {"title": "It starts"},
            });
            self.ask("POST", "/v1/activities", &body)?;
        }
        let deadline_ns = clock::now_ns() + clock::ns(self.args.patience);
        while self.waiting(true)? > 0 {
            if clock::now_ns() > deadline_ns {
                return Err(self.late("the first state"));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Devices that lack the newest state. With `collecting`, also those that are not collected.
    fn waiting(&mut self, collecting: bool) -> Result<u64, Error> {
        let mut waiting = 0;
        let mut collected = 0;
        for activity in 0..self.args.activities {
            let shown = self.ask("GET", &format!("/v1/activities/{}", self.id(activity)), &Value::Null)?;
            waiting += shown["progress"]["waiting"].as_u64().unwrap_or_default();
            collected += shown["devices"].as_u64().unwrap_or_default();
        }
        let missing = (self.args.devices as u64).saturating_sub(collected);
        Ok(waiting + if collecting { missing } else { 0 })
    }

    fn measure(&mut self, service: &mut PushService) -> Result<Values, Error> {
        service.forget()?;
        let cpu = |server: &Target| server.process.and_then(Process::cpu);
        let from = cpu(&self.server);
        let started_ns = clock::now_ns();
        let interval_ns = clock::ns(self.args.interval).max(1);
        let rounds = (clock::ns(self.args.duration) / interval_ns).max(1);
        let (mut answers, mut waiting_most, mut waiting_last) = (Vec::new(), 0, 0);
        let mut steady = Counts::default();
        for round in 0..rounds {
            let due_ns = started_ns + round * interval_ns;
            std::thread::sleep(Duration::from_nanos(due_ns.saturating_sub(clock::now_ns())));
            if round > 0 {
                // Before the next update: what the last one left.
                waiting_last = self.waiting(false)?;
                waiting_most = waiting_most.max(waiting_last);
            }
            if round + 1 == rounds {
                steady = service.counts()?.unwrap_or_default();
            }
            for activity in 0..self.args.activities {
                let asked_ns = clock::now_ns();
                let state = json!({"score": format!("{round}:0"), (AGE_FIELD): unix_ms()});
                let path = format!("/v1/activities/{}", self.id(activity));
                self.ask("PATCH", &path, &json!({"content_state": state}))?;
                answers.push((clock::now_ns() - asked_ns) as f64 / 1e6);
            }
        }
        let updated_ns = clock::now_ns();
        let deadline_ns = updated_ns + clock::ns(self.args.patience);
        while self.waiting(false)? > 0 {
            if clock::now_ns() > deadline_ns {
                return Err(self.late("the last state"));
            }
            std::thread::sleep(POLL);
        }
        let ended_ns = clock::now_ns();
        let to = cpu(&self.server);
        let counts = service.counts()?.unwrap_or_default();
        let seconds = (ended_ns - started_ns) as f64 / 1e9;
        let mut values = Values::default();
        values.push("updates", "", (rounds * self.args.activities as u64) as f64);
        values.push("pushes", "1/s", counts.accepted as f64 / seconds);
        let updates = rounds as f64 * self.args.devices as f64;
        values.push("states that a device got", "%", counts.accepted as f64 / updates * 100.0);
        for (name, share) in [("p50", 0.5), ("p99", 0.99), ("max", 1.0)] {
            values.push_some(&format!("update to receipt, {name}"), "ms", age(&counts, share));
            // Without the last state, which the last device gets whenever its turn comes.
            let name = format!("update to receipt before the last update, {name}");
            values.push_some(&name, "ms", age(&steady, share));
        }
        answers.sort_by(f64::total_cmp);
        for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
            let place = ((answers.len() as f64 * share).ceil() as usize).clamp(1, answers.len()) - 1;
            values.push(format!("answer to an update, {name}"), "ms", answers[place]);
        }
        values.push("devices that waited before the next update, most", "", waiting_most as f64);
        values.push("devices that waited before the last update", "", waiting_last as f64);
        values.push("last update to the last device", "s", (ended_ns - updated_ns) as f64 / 1e9);
        if let Some((from, to)) = from.zip(to) {
            let used = to - from;
            values.count_cpu(used.total_us());
            values.push("server CPU per push", "µs", used.total_us() / counts.accepted.max(1) as f64);
        }
        let missed = (self.args.devices as u64).saturating_sub(counts.tokens);
        values.push("devices that got none", "", missed as f64);
        values.push("pushes that were doubled", "", counts.ids_repeated as f64);
        Ok(values)
    }

    fn late(&self, what: &str) -> Error {
        Error::NotDelivered {
            missing: 1,
            expected: self.args.devices as u64,
            seconds: self.args.patience.as_secs_f64(),
            hint: format!("devices still wait for {what}"),
        }
    }
}

fn unix_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}

/// The age that this share of the states had at most when the fake received them.
fn age(counts: &Counts, share: f64) -> Option<f64> {
    let total: u64 = counts.ages_ms.values().sum();
    let wanted = ((total as f64 * share).ceil() as u64).max(1);
    let mut sum = 0;
    counts.ages_ms.iter().find_map(|(ms, count)| {
        sum += count;
        (sum >= wanted).then_some(*ms as f64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_ranked() {
        let counts = Counts { ages_ms: [(10, 98), (50, 1), (900, 1)].into(), ..Counts::default() };
        assert_eq!([0.5, 0.99, 1.0].map(|share| age(&counts, share)), [Some(10.0), Some(50.0), Some(900.0)]);
        assert_eq!(age(&Counts::default(), 0.5), None);
    }
}
