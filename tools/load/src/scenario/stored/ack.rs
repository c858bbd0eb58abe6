//! Devices acknowledge stored messages: each its whole inbox at once, over HTTP or with one frame over its WebSocket.
//! The inboxes are filled before each measurement.

use std::time::{Duration, Instant};

use serde_json::json;

use super::Commits;
use crate::args::Stored;
use crate::http::Request;
use crate::metrics::Metrics;
use crate::report::Values;
use crate::request_loop::{Schedule, ask};
use crate::scenario::{Bench, Measurement, Sample, progress};
use crate::{Error, clock};

pub(super) const NAMES: (&str, &str) = ("messages acknowledged", "server CPU per acknowledged message");

/// Users of a request that fills inboxes.
const USERS_PER_REQUEST: usize = 1_000;
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(120);
/// Between two looks at the node's counter.
const POLL: Duration = Duration::from_millis(20);
const ACKNOWLEDGED: (&str, &str) = ("noroshi_outcomes_total", "outcome=\"acked\"");

/// Stores `args.messages` messages for each of the users. Returns the ids that each chunk of users got.
fn fill(bench: &Bench<'_>, args: &Stored, name: impl Fn(usize) -> String) -> Result<Vec<Vec<String>>, Error> {
    progress(&format!("storing {} messages for each of {} devices", args.messages, args.devices));
    let key = bench.setup().api_key.clone();
    let mut client = bench.provider()?;
    let numbers: Vec<usize> = (0..args.devices).collect();
    let chunks = numbers.chunks(USERS_PER_REQUEST).map(|chunk| {
        let users: Vec<String> = chunk.iter().map(|number| name(*number)).collect();
        let data = "x".repeat(args.payload.saturating_sub(2));
        let body = json!({"to": {"users": users}, "when": "stored", "data": data}).to_string();
        let send = |_| {
            let answer = client.expect_success(Request::notification(&key), body.as_bytes())?;
            let id = serde_json::from_slice::<serde_json::Value>(&answer.body).ok();
            let id = id.and_then(|body| Some(body["id"].as_str()?.to_owned()));
            id.ok_or(Error::Malformed {
                request: "POST /v1/notifications".to_owned(),
                what: "there is no id",
            })
        };
        (0..args.messages).map(send).collect()
    });
    chunks.collect()
}

/// Over HTTP: the answer comes when the acknowledgement is on disk.
pub(super) struct Requests<'a>(&'a Stored);

impl<'a> Requests<'a> {
    pub(super) fn new(args: &'a Stored) -> Self {
        Self(args)
    }
}

impl Measurement for Requests<'_> {
    fn prepare(&mut self, bench: &mut Bench<'_>) -> Result<(), Error> {
        bench.register_away(self.0.devices)
    }

    fn measure(&mut self, bench: &mut Bench<'_>, _number: u32) -> Result<Values, Error> {
        let args = self.0;
        let ids = fill(bench, args, |number| bench.setup().names.away(number))?;
        let (setup, now) = (bench.setup(), clock::unix_seconds());
        // Coprime to most counts: devices come in another order than their rows.
        let requests: Vec<Vec<u8>> = (0..args.devices)
            .map(|place| {
                let number = place * 7_919 % args.devices;
                let token = setup.signer.token(&setup.names.away(number), now);
                let body = json!({"ids": ids[number / USERS_PER_REQUEST]}).to_string();
                let mut out = Vec::new();
                let request = Request::json("POST", "/v1/me/inbox/ack", &token);
                request.push(&mut out, &setup.origin.host, body.as_bytes());
                out
            })
            .collect();
        bench.settle();
        let commits = Commits::count(bench)?;
        let from = Sample::take(bench);
        let asked = ask(&setup.origin, &requests, args.in_flight, Schedule::Each)?;
        let to = Sample::take(bench);
        let mut values = Values::default();
        let acked = (args.devices * args.messages) as u64;
        values.push(NAMES.0, "1/s", acked as f64 / asked.seconds);
        values.push("requests", "1/s", asked.answered as f64 / asked.seconds);
        values.push_latency("answer latency", &asked.latency);
        from.push_cpu(to, NAMES.1, acked, &mut values);
        commits.push(acked, &mut values)?;
        Ok(values)
    }

    fn finish(&mut self, bench: &mut Bench<'_>) -> Result<(), Error> {
        let kept = bench.rows_kept(self.0.devices)?;
        if kept > 0 {
            bench.notes.push(format!("{kept} rows are still in the inboxes"));
        }
        Ok(())
    }
}

/// Over WebSockets: devices receive their messages first, and send all acknowledgements at one moment.
pub(super) struct Frames<'a> {
    args: &'a Stored,
    /// Messages that each device received so far.
    received: u32,
}

impl<'a> Frames<'a> {
    pub(super) fn new(args: &'a Stored) -> Self {
        Self { args, received: 0 }
    }
}

impl Measurement for Frames<'_> {
    fn prepare(&mut self, bench: &mut Bench<'_>) -> Result<(), Error> {
        bench.connect(self.args.devices)?;
        bench.crew.hold_acks()
    }

    fn measure(&mut self, bench: &mut Bench<'_>, _number: u32) -> Result<Values, Error> {
        let args = self.args;
        let Some(admin) = bench.target.admin.clone() else {
            let rule = "--work ack-socket reads the node's counter of acknowledgements: give --admin too";
            return Err(Error::Usage(rule.to_owned()));
        };
        fill(bench, args, |number| bench.setup().names.connected(number))?;
        self.received += args.messages as u32;
        bench.crew.receive(self.received, RECEIVE_TIMEOUT)?;
        let missing = bench.crew.received()?.missing_devices;
        if missing > 0 {
            let (missing, expected) = (missing as u64, args.devices as u64);
            let hint = "devices did not receive what they should acknowledge".to_owned();
            return Err(Error::NotDelivered {
                missing,
                expected,
                seconds: RECEIVE_TIMEOUT.as_secs_f64(),
                hint,
            });
        }
        bench.settle();
        let commits = Commits::count(bench)?;
        let mut counter = Metrics::open(&admin)?;
        let goal = counter.sum_of(ACKNOWLEDGED.0, ACKNOWLEDGED.1) + (args.devices * args.messages) as f64;
        let (from, started) = (Sample::take(bench), Instant::now());
        bench.crew.send_acks()?;
        let seconds = loop {
            std::thread::sleep(POLL);
            counter.refresh()?;
            let seconds = started.elapsed().as_secs_f64();
            let left = goal - counter.sum_of(ACKNOWLEDGED.0, ACKNOWLEDGED.1);
            if left <= 0.0 {
                break seconds;
            }
            if seconds > RECEIVE_TIMEOUT.as_secs_f64() {
                let (missing, expected) = (left as u64, (args.devices * args.messages) as u64);
                let hint = "the node did not count all acknowledgements".to_owned();
                return Err(Error::NotDelivered { missing, expected, seconds, hint });
            }
        };
        let to = Sample::take(bench);
        let mut values = Values::default();
        let acked = (args.devices * args.messages) as u64;
        values.push(NAMES.0, "1/s", acked as f64 / seconds);
        from.push_cpu(to, NAMES.1, acked, &mut values);
        commits.push(acked, &mut values)?;
        Ok(values)
    }
}
