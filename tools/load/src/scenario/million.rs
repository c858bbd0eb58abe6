//! As many devices as one machine can hold: gateway and client processes in the number that the limit of open files
//! requires, with PostgreSQL and Redis. Reports memory by kind, idle CPU, a topic message to all, messages to random
//! users, the loss of a gateway and a rolling drain.
//!
//! [`plan`] compares what is needed with [`machine`] before anything starts. Nodes get one shard, one worker and a small
//! pool, since dozens of them share the cores and one PostgreSQL.

mod lose;
mod machine;
mod memory;
mod plan;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::direct::{LEAD_NS, check_accepted, note_trouble};
use super::usage::Sample;
use super::{Outcome, note_reasons, progress, register, report};
use crate::args::{Million, Phase};
use crate::cell::engines::Priority;
use crate::cell::{Cell, CellNode, Nodes};
use crate::crew::Crew;
use crate::dialect::Dialect;
use crate::engine::Setup;
use crate::http::{Client, Origin};
use crate::jwt::Signer;
use crate::metrics::Metrics;
use crate::payload::{Names, When};
use crate::publisher::Publisher;
use crate::report::{ReportDocument, Values, show_whole};
use crate::server::random_u32;
use crate::stats::{Latency, median};
use crate::worker::{Pace, Plan as Requests};
use crate::{Error, clock};
use machine::Machine;
use memory::Memory;
use plan::Plan;

/// The slowest rate of log-ins that is measured.
const LOG_INS_PER_SECOND_MIN: u64 = 500;
/// A node marks its last message after a second (a rule of the bus); counting ends after that.
const BUS_QUIET: Duration = Duration::from_millis(1_500);
/// A message to all: 10 s, and a million at 10,000 per second.
const TOPIC_TIMEOUT: Duration = Duration::from_secs(10);
const TOPIC_DELIVERIES_PER_SECOND_MIN: u64 = 10_000;
const POLL: Duration = Duration::from_millis(100);
/// Single messages that take longer are not waited for.
const DIRECT_TIMEOUT: Duration = Duration::from_secs(600);
/// Devices per line of progress while registering.
const REGISTERED_PER_LINE: usize = 100_000;
const PROGRESS_EVERY: Duration = Duration::from_secs(5);
/// Draining devices come back within this time.
const DRAIN_SPREAD: Duration = Duration::from_secs(5);

pub(crate) fn run(args: &Million) -> Result<Option<ReportDocument>, Error> {
    args.check()?;
    let machine = Machine::read(&args.cell.parent());
    let plan = Plan::new(args, &machine)?;
    let text = plan.describe(&machine);
    if args.plan {
        println!("{text}");
        return Ok(None);
    }
    eprintln!("{text}\n");
    let alone = plan.gateways == 1 && (args.has(Phase::Kill) || args.has(Phase::Drain));
    if alone {
        let rule = "devices of the only gateway have no other one: use --gateways 2, or --skip kill,drain";
        return Err(Error::Usage(rule.to_owned()));
    }
    let notes = match plan.check(&machine) {
        Ok(notes) => notes,
        Err(error) if args.force => vec![error.to_string()],
        Err(error) => return Err(error),
    };
    progress(&format!("starting PostgreSQL, Redis, {} API and {} gateway nodes", plan.apis, plan.gateways));
    let started_ns = clock::now_ns();
    let cell = Cell::start(&args.cell, &nodes(args, &plan))?;
    let start_seconds = (clock::now_ns() - started_ns) as f64 / 1e9;
    let mut bench = Bench::new(args, plan, cell, notes)?;
    let mut values = Values::default();
    values.push("start of all nodes", "s", start_seconds);
    let measured = bench.measure(&mut values).map_err(|error| bench.cell.explain(error));
    let outcome = Outcome { server: bench.cell.describe(), notes: bench.notes, floor: None };
    let document = report("million", &[values], outcome);
    match measured {
        Ok(()) => Ok(Some(document)),
        Err(error) => {
            // Prints the results so far, which took minutes to measure.
            eprintln!("{}\n", document.table());
            Err(error)
        }
    }
}

fn nodes(args: &Million, plan: &Plan) -> Nodes {
    // A node that gets no turn for 10 s would lose a shorter one.
    let lease = "cluster.lease=30s".to_owned();
    let gateway = [
        lease.clone(),
        "server.shards=1".to_owned(),
        "server.workers=1".to_owned(),
        format!("store.connections={}", plan::GATEWAY_POOL),
        format!("gateway.drain.rate={}", args.drain_rate),
        format!("gateway.drain.spread={}s", DRAIN_SPREAD.as_secs()),
        format!("gateway.drain.deadline={}s", args.patience.as_secs().max(1)),
    ];
    Nodes {
        apis: plan.apis,
        gateways: plan.gateways,
        set_api: vec![lease],
        set_gateway: gateway.into(),
        small_pages: true,
        set_postgres: vec![
            format!("max_connections={}", plan.postgres_sessions()),
            // Every session maps it, with page tables of its own.
            "shared_buffers=256MB".to_owned(),
        ],
        priority: Priority::First,
    }
}

struct Bench<'a> {
    args: &'a Million,
    plan: Plan,
    crew: Crew,
    setup: Setup,
    notes: Vec<String>,
    /// Dropped, and so stopped, after the clients.
    cell: Cell,
}

impl<'a> Bench<'a> {
    fn new(args: &'a Million, plan: Plan, cell: Cell, notes: Vec<String>) -> Result<Self, Error> {
        let origins =
            |nodes: &[CellNode]| -> Vec<Origin> { nodes.iter().map(|node| node.origin.clone()).collect() };
        let setup = Setup {
            origin: cell.apis[0].origin.clone(),
            homes: origins(&cell.gateways),
            spare_homes: 0,
            providers: origins(&cell.apis),
            names: Names { prefix: args.name.clone() },
            signer: Signer::new(&cell.jwt_secret, "dev"),
            api_key: cell.key.clone(),
            topic: None, // subscribed durably, at registration
            dialect: Dialect::Native,
            sources_start: random_u32()?,
        };
        let crew = Crew::start_many(plan.clients, &setup)?;
        Ok(Self { args, plan, crew, setup, notes, cell })
    }

    fn measure(&mut self, values: &mut Values) -> Result<(), Error> {
        values.push("gateway nodes", "", self.plan.gateways as f64);
        values.push("client processes", "", self.plan.clients as f64);
        values.push("API nodes", "", self.plan.apis as f64);
        values.push("devices", "", self.plan.devices as f64);
        values.push("data of a message", "bytes", self.args.payload as f64);
        values.push("log-ins on their way at most", "", f64::from(self.args.handshakes));
        self.register(values)?;
        let empty = self.weigh_nodes(values)?;
        self.log_in(values)?;
        self.settle();
        let full = Memory::take(&self.cell, &self.crew);
        full.push_growth(&empty, self.plan.devices, values);
        self.notes.extend(full.caches_note(&empty, self.plan.devices));
        self.push_redis(values)?;
        if self.args.has(Phase::Idle) {
            self.stand_idle(values)?;
        }
        if self.args.has(Phase::Topic) {
            self.tell_all(values)?;
        }
        if self.args.has(Phase::Direct) {
            self.tell_some(values)?;
        }
        self.push_cluster(values)?;
        if self.args.has(Phase::Kill) {
            self.lose_gateway(values)?;
        }
        if self.args.has(Phase::Drain) {
            self.drain_gateways(values)?;
        }
        progress("all devices disconnect, and the nodes stop");
        self.crew.disconnect()
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

    fn register(&self, values: &mut Values) -> Result<(), Error> {
        let devices = self.plan.devices;
        let (names, topic) = (&self.setup.names, self.topic());
        let mut provider = self.provider()?;
        let started_ns = clock::now_ns();
        for from in (0..devices).step_by(REGISTERED_PER_LINE) {
            progress(&format!("registering devices: {} of {devices}", show_whole(from as f64)));
            let count = REGISTERED_PER_LINE.min(devices - from);
            register(&mut provider, &self.setup.api_key, count, |number| {
                let name = names.connected(from + number);
                format!("{{\"device\":\"{name}\",\"user\":\"{name}\",\"topics\":[\"{topic}\"]}}\n")
            })?;
        }
        let seconds = (clock::now_ns() - started_ns) as f64 / 1e9;
        values.push("registrations", "1/s", devices as f64 / seconds);
        Ok(())
    }

    /// What the nodes cost before a device connects.
    fn weigh_nodes(&mut self, values: &mut Values) -> Result<Memory, Error> {
        self.settle();
        let empty = Memory::take(&self.cell, &self.crew);
        empty.push_base(self.plan.gateways, self.plan.clients, values);
        let (from, waits) = (Sample::take(&mut self.cell, &self.crew)?, self.waits());
        std::thread::sleep(self.args.settle.max(Duration::from_secs(1)));
        let (to, waits_after) = (Sample::take(&mut self.cell, &self.crew)?, self.waits());
        let seconds = from.seconds_until(&to);
        let gateways = self.plan.gateways as f64;
        if let Some(cores) = from.gateway_cores(&to) {
            values.push("CPU of a gateway without devices", "ms/s", cores * 1e3 / gateways);
        }
        if let Some(((threads, before), (_, after))) = waits.zip(waits_after) {
            values.push("threads of a gateway", "", threads as f64 / gateways);
            let wakeups = after.saturating_sub(before) as f64 / seconds / gateways;
            values.push("wake-ups of a gateway without devices", "1/s", wakeups);
        }
        if let Some(postgres) = self.cell.postgres_process() {
            values.push("processes of PostgreSQL", "", postgres.children().len() as f64);
        }
        if let Some(redis) = &mut self.cell.redis {
            values.push("connections to Redis", "", redis.done()?.connections as f64);
        }
        Ok(empty)
    }

    /// The threads of all gateways, and how often they have waited.
    fn waits(&self) -> Option<(usize, u64)> {
        self.cell.gateways.iter().try_fold((0, 0), |(threads, waits), node| {
            let (own, own_waits) = node.process().threads()?;
            Some((threads + own, waits + own_waits))
        })
    }

    fn log_in(&mut self, values: &mut Values) -> Result<(), Error> {
        let devices = self.plan.devices;
        progress(&format!("connecting {} devices", show_whole(devices as f64)));
        let from = Sample::take(&mut self.cell, &self.crew)?;
        let timeout = Duration::from_secs(60 + devices as u64 / LOG_INS_PER_SECOND_MIN);
        let crew = &mut self.crew;
        let handshakes = self.args.handshakes as usize;
        let connected = watch(|| crew.connect(devices, handshakes, timeout))?;
        let to = Sample::take(&mut self.cell, &self.crew)?;
        let seconds = connected.last_log_in_ns.saturating_sub(connected.first_open_ns).max(1) as f64 / 1e9;
        values.push("time to connect all", "s", seconds);
        values.push("log-ins", "1/s", devices as f64 / seconds);
        values.push("log-ins that failed", "", connected.failed.values().sum::<u64>() as f64);
        values.push_latency("log-in latency", &connected.log_in);
        from.push_each(&to, "per log-in", devices as u64, values);
        note_reasons(&mut self.notes, "failed and repeated log-ins", &connected.failed);
        Ok(())
    }

    fn push_redis(&mut self, values: &mut Values) -> Result<(), Error> {
        if let Some(redis) = &mut self.cell.redis {
            let bytes = redis.done()?.memory_bytes as f64;
            values.push("Redis: data per device", "bytes", bytes / self.plan.devices as f64);
        }
        Ok(())
    }

    /// Events that cost the cell much, up to here: on an overloaded machine leases lapse, and all sessions are then
    /// registered again.
    fn push_cluster(&self, values: &mut Values) -> Result<(), Error> {
        const COUNTERS: [(&str, &str); 3] = [
            ("leases that lapsed", "noroshi_cluster_leases_lapsed_total"),
            ("losses on the bus", "noroshi_cluster_bus_gaps_total"),
            (
                "comparisons of all sessions of a gateway with the store",
                "noroshi_delivery_cluster_sweeps_total",
            ),
        ];
        let mut sums = [0.0; COUNTERS.len()];
        for node in &self.cell.gateways {
            let metrics = Metrics::open(&node.admin)?;
            sums.iter_mut().zip(COUNTERS).for_each(|(sum, (_, metric))| *sum += metrics.sum(metric));
        }
        sums.iter().zip(COUNTERS).for_each(|(sum, (name, _))| values.push(name, "", *sum));
        Ok(())
    }

    fn stand_idle(&mut self, values: &mut Values) -> Result<(), Error> {
        progress("idle");
        self.settle();
        let (from, waits) = (Sample::take(&mut self.cell, &self.crew)?, self.waits());
        std::thread::sleep(self.args.idle);
        let (to, waits_after) = (Sample::take(&mut self.cell, &self.crew)?, self.waits());
        from.push_idle(&to, values);
        if let Some(((_, before), (_, after))) = waits.zip(waits_after) {
            let each = from.seconds_until(&to) * self.plan.gateways as f64;
            values.push("idle: wake-ups of a gateway", "1/s", after.saturating_sub(before) as f64 / each);
        }
        values.push_some("idle: Redis commands", "1/s", from.redis_commands_per_second(&to));
        Ok(())
    }

    /// One topic message to all devices. The first one after the log-ins fills caches and is reported apart.
    fn tell_all(&mut self, values: &mut Values) -> Result<(), Error> {
        progress("a topic message to all");
        let setup = Setup { topic: Some(self.topic()), ..self.setup.clone() };
        let mut publisher = Publisher::topic(self.provider()?, &setup);
        let (mut reach, mut latencies) = (Vec::new(), Latency::default());
        let from = Sample::take(&mut self.cell, &self.crew)?;
        for round in 0..self.args.rounds {
            std::thread::sleep(BUS_QUIET);
            self.crew.receive(0, Duration::ZERO)?;
            self.crew.received()?; // ignores earlier messages
            let sent_ns = clock::now_ns();
            publisher.publish(1, When::Connected, sent_ns, self.args.payload)?;
            let (latency, last_ns) = self.all_received(sent_ns)?;
            let seconds = last_ns.saturating_sub(sent_ns) as f64 / 1e9;
            progress(&format!("the message reached all in {seconds:.2} s"));
            match round {
                0 => values.push("topic message to all: time to reach all, first", "s", seconds),
                _ => reach.push(seconds),
            }
            latencies.merge(&latency);
        }
        let to = Sample::take(&mut self.cell, &self.crew)?;
        if !reach.is_empty() {
            values.push("topic message to all: time to reach all", "s", median(&reach));
        }
        values.push_latency("topic message to all: latency", &latencies);
        let deliveries = u64::from(self.args.rounds) * self.plan.devices as u64;
        from.push_each(&to, "per delivery to all", deliveries, values);
        Ok(())
    }

    /// Waits until as many messages have arrived as there are devices.
    fn all_received(&mut self, sent_ns: u64) -> Result<(Latency, u64), Error> {
        let wanted = self.plan.devices as u64;
        let timeout = TOPIC_TIMEOUT + Duration::from_secs(wanted / TOPIC_DELIVERIES_PER_SECOND_MIN);
        let (mut latency, mut last_ns, mut got) = (Latency::default(), 0, 0);
        while got < wanted {
            if clock::now_ns() > sent_ns + clock::ns(timeout) {
                return Err(Error::NotDelivered {
                    missing: wanted - got,
                    expected: wanted,
                    seconds: timeout.as_secs_f64(),
                    hint: "see the nodes' metrics of dropped messages".to_owned(),
                });
            }
            std::thread::sleep(POLL);
            self.crew.receive(0, Duration::ZERO)?;
            let part = self.crew.received()?;
            got += part.deliveries;
            last_ns = last_ns.max(part.last_ns);
            latency.merge(&part.latency);
        }
        Ok((latency, last_ns))
    }

    /// Messages to random users, one per request.
    fn tell_some(&mut self, values: &mut Values) -> Result<(), Error> {
        progress(&format!("{} messages to random users", show_whole(self.args.direct as f64)));
        std::thread::sleep(BUS_QUIET);
        let start_ns = clock::now_ns() + LEAD_NS;
        let requests = Requests {
            start_ns,
            from_ns: start_ns,
            to_ns: start_ns + clock::ns(DIRECT_TIMEOUT),
            requests: Some(self.args.direct),
            pace: Pace::Max,
            in_flight: self.args.in_flight,
            connected: 1,
            data_bytes: self.args.payload,
            ..Requests::default()
        };
        let from = Sample::take(&mut self.cell, &self.crew)?;
        self.crew.publish(&requests)?;
        let published = self.crew.published()?;
        let to = Sample::take(&mut self.cell, &self.crew)?;
        check_accepted(&published)?;
        let seconds = published.answered_ns.saturating_sub(start_ns).max(1) as f64 / 1e9;
        values.push("random messages accepted", "", published.accepted as f64);
        values.push("random messages", "1/s", published.accepted as f64 / seconds);
        values.push("random messages lost", "", published.lost() as f64);
        values.push_latency("random messages: delivery latency", &published.latency);
        values.push_latency("random messages: accept latency", &published.accept);
        from.push_each(&to, "per random message", published.accepted, values);
        note_trouble(&mut self.notes, &published, "connections that ended while publishing");
        Ok(())
    }
}

/// Runs `work`, and prints meanwhile how many TCP connections the machine has.
fn watch<T>(work: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut next_ns = clock::now_ns() + clock::ns(PROGRESS_EVERY);
            while !over.load(Ordering::Relaxed) {
                std::thread::sleep(POLL);
                if clock::now_ns() >= next_ns {
                    next_ns += clock::ns(PROGRESS_EVERY);
                    // Both ends are on this machine.
                    let connections = show_whole((memory::socket_count() / 2.0).floor());
                    progress(&format!("{connections} TCP connections"));
                }
            }
        });
        let result = work();
        over.store(true, Ordering::Relaxed);
        result
    })
}
