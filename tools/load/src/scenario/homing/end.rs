//! Kills a gateway: its devices reconnect to the others, and no `stored` message of a sample that was
//! published before, during or after is lost. Then all devices disconnect at once, which must not write
//! anything.
//!
//! The writes of a disconnect are the difference between two intervals of equal length without log-ins, one
//! before and one after it; both contain only lease renewals.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{Bench, Sample, note_reasons, progress};
use crate::args::Homing;
use crate::http::{Client, Request};
use crate::partition::Partition;
use crate::payload::{DATA_BYTES_MIN, When, push_users_body};
use crate::report::Values;
use crate::worker::{Recovery, RehomePlan, Rehomed};
use crate::{Error, clock};

/// The index of the gateway that is killed.
const ENDING: usize = 0;
/// The sample starts this long before the kill.
const SAMPLE_LEAD: Duration = Duration::from_secs(1);
/// A message that is not delivered this long after all devices are back is lost: longer than the sweep
/// interval.
const LOST_AFTER: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(200);

/// Messages published to single users: accepted by time stamp, rejected by reason.
#[derive(Default)]
struct Published {
    accepted: Vec<u64>,
    refused: BTreeMap<String, u64>,
}

impl Bench<'_> {
    pub(super) fn end_gateway(&mut self, values: &mut Values) -> Result<(), Error> {
        let Homing { pause, .. } = *self.args;
        progress("killing a gateway");
        self.settle();
        let mut received = HashMap::new();
        self.crew.kept(&mut received)?;
        // Without log-ins and publishing, for equally long before and after.
        let writes_before = self.writes_during(pause)?;
        let mut sample = SamplePlan::new(self.args, &self.setup);
        let mut published = Published::default();
        let end_ns = clock::now_ns() + clock::ns(SAMPLE_LEAD);
        let first_ns = end_ns + clock::ns(pause) * 2;
        self.crew.rehome(&RehomePlan {
            devices: self.args.connections(),
            opening_max: self.args.at_once.unwrap_or(usize::MAX / 2),
            home: ENDING,
            first_ns,
            deadline_ns: end_ns + clock::ns(self.args.patience),
        })?;
        sample.publish(&mut self.provider()?, &mut published, || clock::now_ns() >= end_ns);
        self.cell.gateways[ENDING].started.kill();
        let writes_after = self.writes_during(pause)?;
        let rehomed = self.come_back(first_ns, &mut sample, &mut published)?;
        rehomed.recovery.check(self.args.connections(), end_ns)?;
        push_back(&rehomed, end_ns, first_ns, values);
        values.push_some("Redis writes before a gateway ends", "", writes_before);
        values.push_some("Redis writes after it, before anybody is back", "", writes_after);
        let failed_attempts = &rehomed.recovery.failed_attempts.reasons;
        note_reasons(&mut self.notes, "failed attempts to reconnect", failed_attempts);
        self.count_stored(&published, received, values)
    }

    fn writes_during(&mut self, stretch: Duration) -> Result<Option<f64>, Error> {
        let from = Sample::take(&mut self.cell, &self.crew)?;
        std::thread::sleep(stretch);
        let to = Sample::take(&mut self.cell, &self.crew)?;
        Ok(from.redis_writes(&to).map(|count| count as f64))
    }

    /// Lets devices reconnect from `first_ns` on while the sample continues.
    fn come_back(
        &mut self,
        first_ns: u64,
        sample: &mut SamplePlan,
        published: &mut Published,
    ) -> Result<Rehomed, Error> {
        let over = AtomicBool::new(false);
        let mut client = self.provider()?;
        let crew = &mut self.crew;
        std::thread::scope(|scope| {
            scope.spawn(|| sample.publish(&mut client, published, || over.load(Ordering::Relaxed)));
            clock::sleep_until(first_ns + clock::ns(SAMPLE_LEAD));
            let rehomed = crew.rehomed();
            over.store(true, Ordering::Relaxed);
            rehomed
        })
    }

    /// Every accepted message must be received at least once.
    fn count_stored(
        &mut self,
        published: &Published,
        mut received: HashMap<u64, u32>,
        values: &mut Values,
    ) -> Result<(), Error> {
        let deadline_ns = clock::now_ns() + clock::ns(LOST_AFTER);
        let missing = |received: &HashMap<u64, u32>| {
            published.accepted.iter().filter(|stamp| !received.contains_key(stamp)).count()
        };
        self.crew.kept(&mut received)?;
        while missing(&received) > 0 && clock::now_ns() < deadline_ns {
            std::thread::sleep(POLL);
            self.crew.kept(&mut received)?;
        }
        let repeated: u32 = received.values().map(|count| count - 1).sum();
        values.push("stored messages accepted around it", "", published.accepted.len() as f64);
        values.push("stored messages lost", "", missing(&received) as f64);
        values.push("stored messages repeated", "", f64::from(repeated));
        note_reasons(&mut self.notes, "rejected stored messages", &published.refused);
        Ok(())
    }

    /// Disconnects all devices at once.
    pub(super) fn disconnect(&mut self, values: &mut Values) -> Result<(), Error> {
        progress("all devices disconnect");
        self.settle();
        let stretch = self.args.pause;
        let before = self.writes_during(stretch)?;
        let from = Sample::take(&mut self.cell, &self.crew)?;
        self.crew.disconnect()?;
        std::thread::sleep(stretch);
        let to = Sample::take(&mut self.cell, &self.crew)?;
        values.push_some("Redis writes before all disconnect", "", before);
        values.push_some(
            "Redis writes while all disconnect",
            "",
            from.redis_writes(&to).map(|count| count as f64),
        );
        Ok(())
    }
}

fn push_back(rehomed: &Rehomed, end_ns: u64, first_ns: u64, values: &mut Values) {
    let Rehomed { at_home, lost, recovery } = rehomed;
    let Recovery { back_ns, log_in, failed_attempts, .. } = recovery;
    let seconds = |from_ns: u64| back_ns.saturating_sub(from_ns).max(1) as f64 / 1e9;
    values.push("devices of the gateway that ended", "", *at_home as f64);
    values.push("connections lost", "", *lost as f64);
    values.push("time until all are back, from the end", "s", seconds(end_ns));
    values.push("time until all are back, from the first attempt", "s", seconds(first_ns));
    values.push("log-ins meanwhile", "1/s", *lost as f64 / seconds(first_ns));
    if !log_in.is_empty() {
        values.push("log-in latency meanwhile, p99", "ms", log_in.percentile_ms(99.0));
    }
    values.push(
        "attempts told to come back",
        "",
        (failed_attempts.retry_after + failed_attempts.close_frame) as f64,
    );
    values.push("attempts that broke", "", failed_attempts.broken as f64);
}

/// `stored` messages to single users, every second one to a user of the killed gateway.
struct SamplePlan {
    names: crate::payload::Names,
    key: String,
    interval: Duration,
    processes: usize,
    gateways: usize,
    connections: usize,
    /// The number of messages so far.
    number: usize,
}

impl SamplePlan {
    fn new(args: &Homing, setup: &crate::engine::Setup) -> Self {
        Self {
            names: setup.names.clone(),
            key: setup.api_key.clone(),
            interval: Duration::from_secs_f64(1.0 / args.sample_rate),
            processes: args.processes(),
            gateways: args.gateways,
            connections: args.connections(),
            number: 0,
        }
    }

    /// The device of the next message.
    fn next_device(&mut self) -> usize {
        let number = self.number;
        self.number += 1;
        let count = self.processes;
        let part = Partition { index: number / 2 % count, count };
        let own = part.share(self.connections).max(1);
        let local = match number.is_multiple_of(2) {
            // According to the initial assignment of devices.
            true => ENDING + number / 2 / count % own.div_ceil(self.gateways) * self.gateways,
            false => number.wrapping_mul(7_919) % own,
        };
        part.global(local.min(own - 1))
    }

    fn publish(&mut self, client: &mut Client, published: &mut Published, is_over: impl Fn() -> bool) {
        let mut body = Vec::new();
        while !is_over() {
            let stamp_ns = clock::now_ns();
            let device = self.next_device() as u32;
            body.clear();
            push_users_body(&mut body, &self.names, (&[device], &[]), When::Stored, stamp_ns, DATA_BYTES_MIN);
            match client.request(Request::notification(&self.key), &body) {
                Ok(response) if (200..300).contains(&response.status) => published.accepted.push(stamp_ns),
                Ok(response) => *published.refused.entry(response.problem_code()).or_default() += 1,
                Err(error) => *published.refused.entry(error.to_string()).or_default() += 1,
            }
            clock::sleep_until(stamp_ns + clock::ns(self.interval));
        }
    }
}
