//! The load of the noisy app, each kind with its own threads until it is stopped. Rejections count: rejecting
//! quickly is the purpose of a limit.
//!
//! The threads have the lowest priority: they use the CPU that the server and the steady app's clients leave.
//! At equal priority, eight busy threads would delay a client on the same cores by a time slice, about 3 ms
//! on Linux, whatever the server does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use serde_json::json;

use super::crowd::{Crowd, Priority};
use super::tenant::{APP, Tenant};
use super::wire;
use crate::Error;
use crate::http::{Client, Request};
use crate::report::Values;

/// Lines per request of a storm.
const LINES: usize = 200;
/// The pause after a failure: a server that refuses connections is not contacted in a tight loop.
const PAUSE: Duration = Duration::from_millis(20);
/// How long a wildcard subscriber reads.
const PATIENCE: Duration = Duration::from_millis(500);
/// `{"alg":"RS256","kid":"…"}`, meaningless claims, and 256 bytes that are not a signature.
const BOGUS_HEADER: &str = "eyJhbGciOiJSUzI1NiIsImtpZCI6Im5vYm9keSJ9";
const BOGUS_CLAIMS: &str = "eyJzdWIiOiJub2JvZHkiLCJkZXZpY2UiOiJub2JvZHkiLCJleHAiOjk5OTk5OTk5OTl9";

/// The name in the report, and the function.
type Kind = (&'static str, fn(&Tenant, u64, &AtomicBool, &AtomicU64));

const KINDS: [Kind; 4] = [
    ("noisy publishes", publish),
    ("noisy wildcard subscriptions", subscribe),
    ("noisy log-ins with bogus tokens", fail_to_log_in),
    ("noisy connections that come and go", come_and_go),
];

/// The names in the report.
pub(super) fn kinds() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|(name, _)| *name)
}

pub(super) struct Noise {
    crowd: Crowd,
    counts: Vec<(&'static str, Arc<AtomicU64>)>,
}

/// The number of operations of each kind.
pub(super) struct Made(Vec<(&'static str, u64)>);

impl Noise {
    pub(super) fn start(tenant: &Tenant, threads: u16) -> Result<Self, Error> {
        let mut noise = Self { crowd: Crowd::default(), counts: Vec::new() };
        for (name, act) in KINDS {
            let count: Arc<AtomicU64> = Arc::default();
            noise.counts.push((name, count.clone()));
            for number in 0..u64::from(threads) {
                let (tenant, count) = (tenant.clone(), count.clone());
                let run = move |ends: &AtomicBool| act(&tenant, number, ends, &count);
                noise.crowd.spawn("noise", Priority::Lowest, run)?;
            }
        }
        Ok(noise)
    }

    pub(super) fn stop(mut self) -> Made {
        self.crowd.end();
        Made(self.counts.iter().map(|(name, count)| (*name, count.load(Relaxed))).collect())
    }
}

impl Made {
    pub(super) fn push(&self, seconds: f64, values: &mut Values) {
        for (name, count) in &self.0 {
            values.push(*name, "1/s", *count as f64 / seconds);
        }
    }
}

/// Repeats an operation whatever its result.
fn until(ends: &AtomicBool, mut act: impl FnMut(u64) -> bool) {
    let mut turn = 0;
    while !ends.load(Relaxed) {
        if !act(turn) {
            std::thread::sleep(PAUSE);
        }
        turn += 1;
    }
}

fn client(tenant: &Tenant) -> Option<Client> {
    Client::new(tenant.origin.clone()).ok()
}

/// Batches to topics, to users with an inbox, and to devices whose push service does not answer.
fn publish(tenant: &Tenant, _: u64, ends: &AtomicBool, count: &AtomicU64) {
    let Some(mut client) = client(tenant) else { return };
    until(ends, |turn| {
        let line = |number: usize| {
            let data = json!({"turn": turn, "number": number});
            let line = match number % 10 {
                0 => {
                    json!({"to": {"users": ["pushed"]}, "when": "stored", "data": data, "push": {"mode": "always"},
                    "notification": {"title": "noise"}})
                }
                1..=4 => json!({"to": {"users": ["pushed"]}, "when": "stored", "data": data}),
                _ => json!({"to": {"topic": format!("retained/{number}")}, "retain": true, "data": data}),
            };
            format!("{line}\n")
        };
        let lines: String = (0..LINES).map(line).collect();
        let answer = client.request(Request::lines("/v1/notifications/batch", &tenant.key), lines.as_bytes());
        let is_answered = answer.is_ok_and(|answer| answer.status == 200);
        count.fetch_add(if is_answered { LINES as u64 } else { 0 }, Relaxed);
        is_answered
    });
}

fn subscribe(tenant: &Tenant, number: u64, ends: &AtomicBool, count: &AtomicU64) {
    let device = format!("wildcard-{number}");
    let token = tenant.token(&device);
    until(ends, |_| {
        let heard = wire::subscribe_to_all(&tenant.origin, &device, &token, PATIENCE);
        count.fetch_add(u64::from(heard.is_ok()), Relaxed);
        heard.is_ok()
    });
}

fn fail_to_log_in(tenant: &Tenant, number: u64, ends: &AtomicBool, count: &AtomicU64) {
    let Some(mut client) = client(tenant) else { return };
    until(ends, |turn| {
        // A new one each time, so that it is never cached: 342 digits of base64url encode 256 bytes.
        let token = format!("{BOGUS_HEADER}.{BOGUS_CLAIMS}.{:0>341}A", number * 1_000_000_000 + turn);
        let path = format!("/v1/me?app={APP}");
        let answered = client.request(Request::json("GET", &path, &token), b"").is_ok();
        count.fetch_add(u64::from(answered), Relaxed);
        answered
    });
}

fn come_and_go(tenant: &Tenant, number: u64, ends: &AtomicBool, count: &AtomicU64) {
    until(ends, |turn| {
        // Some devices reconnect, some are new.
        let token = tenant.token(&format!("churn-{number}-{}", turn % 1_000));
        let came = wire::come_and_go(&tenant.origin, &token);
        count.fetch_add(u64::from(came.is_ok()), Relaxed);
        came.is_ok()
    });
}
