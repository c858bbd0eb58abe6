//! Topic messages to all devices at once: one, or a burst of them with one request.

use std::time::Duration;

use super::{Bench, PER_DELIVERY, Sample, progress, report};
use crate::args::{Broadcast, check, check_counts};
use crate::http::{Client, Request};
use crate::payload::push_topic_body;
use crate::report::{DELIVERY, ReportDocument, Values};
use crate::stats::{Latency, median};
use crate::worker::{Received, show_reasons};
use crate::{Error, clock};

/// Lines of one batch request that the API takes.
const MESSAGES_MAX: u32 = 10_000;
const TIMEOUT: Duration = Duration::from_secs(60);
/// Before the first measurement: connections grow their socket buffers, the server its queues.
const WARM_UP_ROUNDS: u32 = 2;

pub(crate) fn run(args: &Broadcast) -> Result<ReportDocument, Error> {
    check_counts(args.connections, 1, args.payload, 1)?;
    check((1..=MESSAGES_MAX).contains(&args.messages), "--messages is 1 to 10000")?;
    check(args.rounds > 0, "--rounds is at least 1")?;
    let topic = format!("{}-topic", args.common.name);
    let bench = Bench::open(&args.common, args.connections, Some(topic.clone()))?;
    let (repetitions, outcome) = bench.attempt(|bench| {
        bench.connect(args.connections)?;
        let mut rounds = Rounds { args, topic, provider: bench.provider(), messages_so_far: 0 };
        for _ in 0..WARM_UP_ROUNDS {
            rounds.round(bench)?;
        }
        let mut repetitions = Vec::new();
        for number in 1..=args.common.repeat {
            progress(&format!("measuring {number} of {}", args.common.repeat));
            repetitions.push(rounds.measure(bench)?);
        }
        Ok(repetitions)
    })?;
    Ok(report("broadcast", &repetitions, outcome))
}

struct Rounds<'a> {
    args: &'a Broadcast,
    topic: String,
    provider: Client,
    /// What each device has had.
    messages_so_far: u32,
}

impl Rounds<'_> {
    fn measure(&mut self, bench: &mut Bench<'_>) -> Result<Values, Error> {
        bench.settle();
        let (mut deliveries, mut busy_ns, mut reach_ms) = (0, 0, Vec::new());
        let mut latency = Latency::new();
        let from = Sample::take(bench);
        for _ in 0..self.args.rounds {
            let (sent_ns, received) = self.round(bench)?;
            let took_ns = received.last_ns.saturating_sub(sent_ns);
            deliveries += received.deliveries;
            busy_ns += took_ns;
            reach_ms.push(took_ns as f64 / 1e6);
            latency.merge(&received.latency);
        }
        let to = Sample::take(bench);
        let mut values = Values::default();
        values.push("deliveries", "1/s", deliveries as f64 / (busy_ns as f64 / 1e9));
        values.push("time to reach all", "ms", median(&reach_ms));
        values.push("time to reach all, worst round", "ms", reach_ms.iter().copied().fold(0.0, f64::max));
        values.push_latency(&DELIVERY, &latency);
        from.push_cpu(to, &PER_DELIVERY, deliveries, &mut values);
        Ok(values)
    }

    /// Publishes once and waits until all devices have all of it; returns when it was sent.
    fn round(&mut self, bench: &mut Bench<'_>) -> Result<(u64, Received), Error> {
        let Broadcast { messages, when, payload, .. } = *self.args;
        self.messages_so_far += messages;
        bench.crew.receive(self.messages_so_far, TIMEOUT)?;
        let sent_ns = clock::now_ns();
        let mut body = Vec::new();
        for _ in 0..messages {
            push_topic_body(&mut body, &self.topic, when, sent_ns, payload);
            body.push(b'\n');
        }
        let (path, content_type) = match messages {
            1 => ("/v1/notifications", "application/json"),
            _ => ("/v1/notifications/batch", "application/x-ndjson"),
        };
        let key = bench.setup().api_key.clone();
        self.provider.expect_success(Request { method: "POST", path, key: &key, content_type }, &body)?;
        let received = bench.crew.received()?;
        if received.missing_devices == 0 && received.disconnected.is_empty() {
            return Ok((sent_ns, received));
        }
        let expected = u64::from(messages) * self.args.connections as u64;
        let ended = show_reasons(&received.disconnected);
        Err(Error::NotDelivered {
            missing: expected.saturating_sub(received.deliveries),
            expected,
            seconds: TIMEOUT.as_secs_f64(),
            hint: match ended.is_empty() {
                true => "see the server's log and its metrics of dropped messages".to_owned(),
                false => format!("connections ended: {ended}"),
            },
        })
    }
}
