//! Topic messages to all devices: one, or a burst in one request.

use std::time::Duration;

use super::{Bench, Measurement, PER_DELIVERY, Sample, Subject};
use crate::args::{Broadcast, check, check_counts};
use crate::payload::When;
use crate::publisher::Publisher;
use crate::report::{ReportDocument, Values};
use crate::stats::{Latency, median};
use crate::worker::{Received, show_reasons};
use crate::{Error, clock};

/// The API's limit of lines per batch request.
const MESSAGES_MAX: u32 = 10_000;
const TIMEOUT: Duration = Duration::from_secs(60);
/// Before the first measurement: connections grow their socket buffers, the server its queues.
const WARM_UP_ROUNDS: u32 = 2;

pub(crate) fn run(args: &Broadcast) -> Result<ReportDocument, Error> {
    check_counts(args.connections, 1, args.payload, 1)?;
    check((1..=MESSAGES_MAX).contains(&args.messages), "--messages must be 1 to 10000")?;
    check(args.rounds > 0, "--rounds must be at least 1")?;
    check(!args.floor || args.when == When::Connected, "--floor stores nothing: omit --when")?;
    let subject = Subject {
        speech: Some(&args.speech),
        foreign: Some(&args.foreign),
        floor: args.floor,
        topic: Some(format!("{}-topic", args.common.name)),
        when: args.when,
        ..Subject::new(&args.common, args.connections)
    };
    super::run("broadcast", &subject, || Rounds { args, publisher: None, messages_so_far: 0 })
}

struct Rounds<'a> {
    args: &'a Broadcast,
    /// Set once devices are connected.
    publisher: Option<Publisher>,
    /// The number of messages per device so far.
    messages_so_far: u32,
}

impl Measurement for Rounds<'_> {
    fn prepare(&mut self, bench: &mut Bench<'_>) -> Result<(), Error> {
        self.publisher = Some(bench.publisher()?);
        bench.connect(self.args.connections)?;
        (0..WARM_UP_ROUNDS).try_for_each(|_| self.round(bench).map(drop))
    }

    fn measure(&mut self, bench: &mut Bench<'_>, _number: u32) -> Result<Values, Error> {
        bench.settle();
        let (mut deliveries, mut busy_ns, mut reach_ms) = (0, 0, Vec::new());
        let mut latency = Latency::default();
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
        values.push_latency("delivery latency", &latency);
        from.push_cpu(to, PER_DELIVERY, deliveries, &mut values);
        Ok(values)
    }
}

impl Rounds<'_> {
    /// Publishes once and waits until all devices have received everything; returns the time of sending.
    fn round(&mut self, bench: &mut Bench<'_>) -> Result<(u64, Received), Error> {
        let Broadcast { messages, when, payload, .. } = *self.args;
        self.messages_so_far += messages;
        bench.crew.receive(self.messages_so_far, TIMEOUT)?;
        let sent_ns = clock::now_ns();
        if let Some(publisher) = &mut self.publisher {
            publisher.publish(messages, when, sent_ns, payload)?;
        }
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
