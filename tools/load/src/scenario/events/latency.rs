//! The cost of the log for a request: two nodes, one with a log to a slow Firehose and one without,
//! alternately over one connection each. A log that blocks requests on its sink would be visible here.

use std::sync::Arc;
use std::time::Instant;

use noroshi_testkit::firehose::Firehose;

use super::{Found, failed, found, percentile};
use crate::Error;
use crate::args::{Common, Events, Speech};
use crate::http::{Client, Request};
use crate::target::Target;

/// Requests to one node before switching to the other.
const TURN: u64 = 50;

pub(super) fn measure(args: &Events) -> Result<Found, Error> {
    let fake =
        Firehose::start("bench", Arc::new(|_: &[u8]| {})).map_err(Error::system("a fake of Firehose"))?;
    fake.delay(args.answer);
    let mut common: Common = args.common.clone();
    let off = Target::node(&common, &Speech::default())?;
    common.set.push("events.firehose.stream=bench".to_owned());
    common.set.push(format!("events.firehose.endpoint={}", fake.origin()));
    let on = Target::node(&common, &Speech::default())?;
    let (mut off, mut on) = (MeasuredNode::new(off)?, MeasuredNode::new(on)?);
    off.ask(TURN)?;
    on.ask(TURN)?;
    off.times.clear();
    on.times.clear();
    for turn in 0..args.requests.div_ceil(TURN) {
        // Alternates which one is first.
        let (first, second) = if turn % 2 == 0 { (&mut off, &mut on) } else { (&mut on, &mut off) };
        first.ask(TURN)?;
        second.ask(TURN)?;
    }
    let counts = fake.counts();
    if counts.violations > 0 || counts.records == 0 {
        return Err(failed(&format!("Firehose: {counts:?} {:?}", fake.violation())));
    }
    off.times.sort_unstable();
    on.times.sort_unstable();
    let us = |asked: &MeasuredNode, share: f64| percentile(&asked.times, share) / 1e3;
    let mean = |asked: &MeasuredNode| {
        asked.times.iter().map(|ns| f64::from(*ns)).sum::<f64>() / asked.times.len() as f64
    };
    let times = [
        ("request p50, log off", us(&off, 0.5)),
        ("request p50, log on", us(&on, 0.5)),
        ("request p99, log off", us(&off, 0.99)),
        ("request p99, log on", us(&on, 0.99)),
    ];
    let ratios = [
        ("request mean, log on to off", mean(&on) / mean(&off)),
        ("request p50, log on to off", us(&on, 0.5) / us(&off, 0.5)),
    ];
    Ok([found("µs", times), found("ratio", ratios)].concat())
}

struct MeasuredNode {
    server: Target,
    client: Client,
    times: Vec<u32>,
}

impl MeasuredNode {
    fn new(server: Target) -> Result<Self, Error> {
        let client = Client::new(server.origin.clone())?;
        Ok(Self { server, client, times: Vec::new() })
    }

    fn ask(&mut self, count: u64) -> Result<(), Error> {
        let body = br#"{"to":{"users":["nobody"]},"when":"connected","data":{"n":1}}"#;
        let key = self.server.key.clone();
        let request = Request::notification(&key);
        for _ in 0..count {
            let begin = Instant::now();
            self.client.expect_success(request, body)?;
            self.times.push(u32::try_from(begin.elapsed().as_nanos()).unwrap_or(u32::MAX));
        }
        Ok(())
    }
}
