//! Stored messages to topics whose durable subscribers are offline: every message is a row in a topic's log.

use super::Commits;
use crate::Error;
use crate::args::Stored;
use crate::http::Request;
use crate::payload::{When, push_topic_body};
use crate::report::Values;
use crate::request_loop::{Schedule, ask};
use crate::scenario::{Bench, Measurement, Sample, progress, register};

pub(super) const NAMES: (&str, &str) = ("messages appended to logs", "server CPU per message");

pub(super) struct Publishing<'a> {
    args: &'a Stored,
    /// A request for each topic.
    requests: Vec<Vec<u8>>,
}

impl<'a> Publishing<'a> {
    pub(super) fn new(args: &'a Stored) -> Self {
        Self { args, requests: Vec::new() }
    }
}

impl Measurement for Publishing<'_> {
    fn prepare(&mut self, bench: &mut Bench<'_>) -> Result<(), Error> {
        let (setup, args) = (bench.setup(), self.args);
        let (names, host) = (&setup.names, &setup.origin.host);
        let topic = |number: usize| format!("{}-log-{number}", names.prefix);
        progress(&format!("subscribing {} offline devices to {} topics", args.devices, args.topics));
        register(&mut bench.provider()?, &setup.api_key, args.devices, |number| {
            let (name, topic) = (names.away(number), topic(number % args.topics));
            format!("{{\"device\":\"{name}\",\"user\":\"{name}\",\"topics\":[\"{topic}\"]}}\n")
        })?;
        // Each connection sends the next request, so more requests than connections.
        let count = args.topics.max(args.in_flight);
        self.requests = (0..count)
            .map(|number| {
                let (mut body, mut request) = (Vec::new(), Vec::new());
                push_topic_body(&mut body, &topic(number % args.topics), When::Stored, 0, args.payload);
                Request::notification(&setup.api_key).push(&mut request, host, &body);
                request
            })
            .collect();
        Ok(())
    }

    fn measure(&mut self, bench: &mut Bench<'_>, _number: u32) -> Result<Values, Error> {
        let (origin, in_flight) = (bench.setup().origin.clone(), self.args.in_flight);
        bench.settle();
        ask(&origin, &self.requests, in_flight, Schedule::For(self.args.pacing.warm_up))?;
        let commits = Commits::count(bench)?;
        let from = Sample::take(bench);
        let asked = ask(&origin, &self.requests, in_flight, Schedule::For(self.args.pacing.duration))?;
        let to = Sample::take(bench);
        let mut values = Values::default();
        values.push(NAMES.0, "1/s", asked.answered as f64 / asked.seconds);
        values.push_latency("accept latency", &asked.latency);
        from.push_cpu(to, NAMES.1, asked.answered, &mut values);
        commits.push(asked.answered, &mut values)?;
        Ok(values)
    }
}
