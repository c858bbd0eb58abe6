//! Several gateway nodes with many devices, PostgreSQL and Redis: a large installation on one machine.
//! Measures log-ins, requests to many users, topic messages to all, and the failure of a gateway, each with
//! the load on the engines.

mod end;

use std::time::Duration;

use super::direct::{check_accepted, note_trouble, pace, scheduled};
use super::usage::Sample;
use super::{Outcome, note_reasons, progress, register, report};
use crate::args::Homing;
use crate::cell::{Cell, Nodes};
use crate::crew::Crew;
use crate::dialect::Dialect;
use crate::engine::Setup;
use crate::host::{make_room_for, make_room_in_nodes};
use crate::http::{Client, Origin};
use crate::jwt::Signer;
use crate::payload::{Names, When};
use crate::process::Process;
use crate::publisher::Publisher;
use crate::report::{ReportDocument, Values};
use crate::server::random_u32;
use crate::stats::median;
use crate::worker::Plan;
use crate::{Error, clock};

/// The slowest rate of log-ins that is measured.
const LOG_INS_PER_SECOND_MIN: u64 = 100;
/// Several rounds of the nodes' tasks that run once a second.
const IDLE: Duration = Duration::from_secs(5);
const TOPIC_TIMEOUT: Duration = Duration::from_secs(60);
/// A node marks its last message after a second (a rule of the bus); counting ends after that.
const BUS_QUIET: Duration = Duration::from_millis(1_500);

pub(crate) fn run(args: &Homing) -> Result<ReportDocument, Error> {
    args.check()?;
    make_room_for(args.connections(), args.processes())?;
    make_room_in_nodes(args.connections(), args.gateways_left())?;
    progress("starting the cell");
    let nodes = Nodes { apis: args.apis, gateways: args.gateways + args.spare, ..Nodes::default() };
    let cell = Cell::start(&args.cell, &nodes)?;
    let mut bench = Bench::new(args, cell)?;
    let mut values = Values::default();
    let measured = bench.measure(&mut values).map_err(|error| bench.cell.explain(error));
    let outcome = Outcome { server: bench.cell.describe(), notes: bench.notes, floor: None };
    let document = report("homing", &[values], outcome);
    match measured {
        Ok(()) => Ok(document),
        Err(error) => {
            // Prints the results so far, which took minutes to measure.
            eprintln!("{}\n", document.table());
            Err(error)
        }
    }
}

struct Bench<'a> {
    args: &'a Homing,
    crew: Crew,
    setup: Setup,
    notes: Vec<String>,
    /// Dropped, and so stopped, after the clients.
    cell: Cell,
}

impl<'a> Bench<'a> {
    fn new(args: &'a Homing, cell: Cell) -> Result<Self, Error> {
        let origins = |nodes: &[crate::cell::CellNode]| -> Vec<Origin> {
            nodes.iter().map(|node| node.origin.clone()).collect()
        };
        let setup = Setup {
            origin: cell.apis[0].origin.clone(),
            homes: origins(&cell.gateways),
            spare_homes: args.spare,
            providers: origins(&cell.apis),
            names: Names { prefix: args.name.clone() },
            signer: Signer::new(&cell.jwt_secret, "dev"),
            api_key: cell.key.clone(),
            topic: None, // subscribed durably, at registration
            dialect: Dialect::Native,
            sources_start: random_u32()?,
        };
        let crew = Crew::start(args.processes(), &setup)?;
        Ok(Self { args, crew, setup, notes: Vec::new(), cell })
    }

    fn measure(&mut self, values: &mut Values) -> Result<(), Error> {
        let Homing { gateways, spare, apis, targets, payload, .. } = self.args;
        values.push("gateway nodes", "", *gateways as f64);
        if *spare > 0 {
            values.push("gateway nodes that nobody connects to at first", "", *spare as f64);
        }
        values.push("API nodes", "", *apis as f64);
        values.push("devices connected", "", self.args.connections() as f64);
        values.push("users of a request", "", *targets as f64);
        values.push("of them connected", "", self.args.targets().0 as f64);
        values.push("data of a message", "bytes", *payload as f64);
        values.push_some("requests due", "1/s", self.args.pacing.rate);
        values.push("requests in flight at most", "", self.args.in_flight as f64);
        values.push("log-ins on their way at most", "", f64::from(self.args.handshakes));
        if self.cell.redis.is_none() {
            self.notes.push("Redis is not a single server: its commands and CPU are not counted".to_owned());
        }
        if !self.cell.has_postgres() {
            self.notes.push("PostgreSQL was not started here: its CPU is not counted".to_owned());
        }
        self.register()?;
        self.log_in(values)?;
        self.publish(values)?;
        self.tell_all(values)?;
        if !self.args.no_kill {
            self.end_gateway(values)?;
        }
        self.disconnect(values)
    }

    fn provider(&self) -> Result<Client, Error> {
        Client::new(self.setup.origin.clone())
    }

    fn settle(&self) {
        std::thread::sleep(self.args.settle);
    }

    fn topic(&self) -> String {
        format!("{}-topic", self.args.name)
    }

    fn register(&mut self) -> Result<(), Error> {
        let (connected, away) = (self.args.connections(), self.args.away_devices());
        progress(&format!("registering {connected} devices that connect and {away} that stay offline"));
        let (names, topic) = (&self.setup.names, self.topic());
        let mut provider = self.provider()?;
        let started_ns = clock::now_ns();
        register(&mut provider, &self.setup.api_key, connected, |number| {
            let name = names.connected(number);
            format!("{{\"device\":\"{name}\",\"user\":\"{name}\",\"topics\":[\"{topic}\"]}}\n")
        })?;
        register(&mut provider, &self.setup.api_key, away, |number| {
            let name = names.away(number);
            format!("{{\"device\":\"{name}\",\"user\":\"{name}\"}}\n")
        })?;
        let seconds = (clock::now_ns() - started_ns) as f64 / 1e9;
        let rate = (connected + away) as f64 / seconds;
        self.notes.push(format!("{} devices were registered at {rate:.0} per second", connected + away));
        Ok(())
    }

    fn log_in(&mut self, values: &mut Values) -> Result<(), Error> {
        let devices = self.args.connections();
        progress(&format!("connecting {devices} devices to {} gateways", self.args.gateways));
        let resident_before = self.gateways_resident();
        self.settle();
        let from = Sample::take(&mut self.cell, &self.crew)?;
        let timeout = Duration::from_secs(60 + devices as u64 / LOG_INS_PER_SECOND_MIN);
        let connected = self.crew.connect(devices, self.args.handshakes as usize, timeout)?;
        let to = Sample::take(&mut self.cell, &self.crew)?;
        let seconds = connected.last_log_in_ns.saturating_sub(connected.first_open_ns).max(1) as f64 / 1e9;
        values.push("log-ins", "1/s", devices as f64 / seconds);
        values.push("log-ins that failed", "", connected.failed.values().sum::<u64>() as f64);
        values.push_latency("log-in latency", &connected.log_in);
        from.push_each(&to, "per log-in", devices as u64, values);
        note_reasons(&mut self.notes, "failed and repeated log-ins", &connected.failed);
        self.settle();
        if let Some((before, after)) = resident_before.zip(self.gateways_resident()) {
            values.push("resident memory of all gateways", "MiB", after / 1_048_576.0);
            values.push("memory per connection", "bytes", (after - before).max(0.0) / devices as f64);
        }
        Ok(())
    }

    fn gateways_resident(&self) -> Option<f64> {
        let resident = |process: Process| process.resident_bytes().map(|bytes| bytes as f64);
        self.cell.gateways.iter().map(|node| resident(node.process())).sum()
    }

    /// Counts Redis commands while nothing happens.
    fn stand_idle(&mut self, values: &mut Values) -> Result<(), Error> {
        self.settle();
        let from = Sample::take(&mut self.cell, &self.crew)?;
        std::thread::sleep(IDLE);
        let to = Sample::take(&mut self.cell, &self.crew)?;
        values.push_some(
            "Redis commands while nothing is published",
            "1/s",
            from.redis_commands_per_second(&to),
        );
        Ok(())
    }

    fn publish(&mut self, values: &mut Values) -> Result<(), Error> {
        self.stand_idle(values)?;
        progress("publishing to users");
        let (connected, away) = self.args.targets();
        let plan = Plan {
            pace: pace(&self.args.pacing),
            in_flight: self.args.in_flight,
            connected,
            away,
            away_devices: self.args.away_devices(),
            data_bytes: self.args.payload,
            ..Plan::default()
        };
        let plan = scheduled(plan, &self.args.pacing);
        self.crew.publish(&plan)?;
        clock::sleep_until(plan.from_ns);
        let from = Sample::take(&mut self.cell, &self.crew)?;
        clock::sleep_until(plan.to_ns);
        let to = Sample::take(&mut self.cell, &self.crew)?;
        let published = self.crew.published()?;
        check_accepted(&published)?;
        let seconds = self.args.pacing.duration.as_secs_f64();
        values.push("deliveries", "1/s", published.deliveries as f64 / seconds);
        values.push("requests", "1/s", published.accepted as f64 / seconds);
        values.push("deliveries lost", "", published.lost() as f64);
        values.push_latency("delivery latency", &published.latency);
        values.push_latency("accept latency", &published.accept);
        from.push_each(&to, "per delivery", published.deliveries, values);
        from.push_cores(&to, values);
        self.notes.extend(from.redis_note(&to, "while publishing"));
        note_trouble(&mut self.notes, &published, "connections that ended while publishing");
        Ok(())
    }

    /// Publishes a topic message to all devices, several times.
    fn tell_all(&mut self, values: &mut Values) -> Result<(), Error> {
        progress("one topic message to all");
        let setup = Setup { topic: Some(self.topic()), ..self.setup.clone() };
        let mut publisher = Publisher::topic(self.provider()?, &setup);
        let (mut spread, mut reach, mut messages) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.args.rounds {
            std::thread::sleep(BUS_QUIET);
            self.crew.receive(0, Duration::ZERO)?;
            self.crew.received()?; // ignores earlier messages
            let before = Sample::take(&mut self.cell, &self.crew)?;
            let sent_ns = clock::now_ns();
            publisher.publish(1, When::Connected, sent_ns, self.args.payload)?;
            // Accepted messages were passed to the bus; a second later each gateway receives the end mark.
            let after = Sample::take(&mut self.cell, &self.crew)?;
            let (latency, last_ns) = self.all_received(sent_ns)?;
            reach.push(last_ns.saturating_sub(sent_ns) as f64 / 1e6);
            spread.push((latency.max_ms() - latency.min_ms()).max(0.0));
            messages.extend(before.bus_messages(&after).map(|count| count as f64));
        }
        if self.args.rounds > 0 {
            values.push("topic message to all: time to reach all", "ms", median(&reach));
            values.push("topic message to all: first to last", "ms", median(&spread));
            if !messages.is_empty() {
                values.push("topic message to all: bus messages", "", median(&messages));
            }
        }
        Ok(())
    }

    /// Waits until as many messages have arrived as there are devices.
    fn all_received(&mut self, sent_ns: u64) -> Result<(crate::stats::Latency, u64), Error> {
        let (mut latency, mut last_ns, mut got) = (crate::stats::Latency::default(), 0, 0);
        let wanted = self.args.connections() as u64;
        while got < wanted {
            if clock::now_ns() > sent_ns + clock::ns(TOPIC_TIMEOUT) {
                return Err(Error::NotDelivered {
                    missing: wanted - got,
                    expected: wanted,
                    seconds: TOPIC_TIMEOUT.as_secs_f64(),
                    hint: "see the nodes' metrics of dropped messages".to_owned(),
                });
            }
            std::thread::sleep(Duration::from_millis(50));
            self.crew.receive(0, Duration::ZERO)?;
            let part = self.crew.received()?;
            got += part.deliveries;
            last_ns = last_ns.max(part.last_ns);
            latency.merge(&part.latency);
        }
        Ok((latency, last_ns))
    }
}
