//! What is on disk before it is answered: rows in inboxes, messages in logs of topics, acknowledgements; in SQLite or
//! PostgreSQL. With the floor, the engine alone is measured alternately, with as many rows in a commit as the node had.

mod ack;
mod inbox;
mod topic;

use std::path::PathBuf;

use super::{Bench, Compared, Measurement, Subject, progress, report};
use crate::Error;
use crate::args::{Common, Stored, Work};
use crate::cell::engines::{self, Priority};
use crate::disk_floor::{
    Engine, FloorPlan, Folder, PostgresFloor, Rows, Source, SqliteFloor, measure, syncs_per_second,
};
use crate::metrics::Metrics;
use crate::program::Owned;
use crate::report::{ReportDocument, Values};
use crate::server::random_hex;

/// The size of a group of the node, which the floor uses too.
const PER_COMMIT: &str = "rows per commit";

pub(crate) fn run(args: &Stored) -> Result<ReportDocument, Error> {
    args.check()?;
    args.common.check()?;
    // Stopped after the node.
    let postgres = start_postgres(args)?;
    let mut common = args.common.clone();
    let mut server = None;
    if let Some((started, url)) = &postgres {
        common.set.push(format!("store.url={url}"));
        server = Some(match started {
            Some(started) => format!("PostgreSQL started here in {}", started.folder().display()),
            None => "PostgreSQL".to_owned(),
        });
    }
    let connections = if args.work == Work::AckSocket { args.devices } else { args.in_flight };
    let subject = Subject::new(&common, connections);
    subject.check()?;
    let url = postgres.as_ref().map(|(_, url)| url.as_str());
    let mut floor = args.floor.then(|| Floor::open(args, url)).transpose()?;
    let ((repetitions, floor), mut outcome) = subject.open()?.attempt(|bench| {
        let repetitions = match args.work {
            Work::Inbox => repeat(bench, &mut inbox::Requests::new(args), floor.as_mut()),
            Work::Topic => repeat(bench, &mut topic::Publishing::new(args), floor.as_mut()),
            Work::Ack => repeat(bench, &mut ack::Requests::new(args), floor.as_mut()),
            Work::AckSocket => repeat(bench, &mut ack::Frames::new(args), floor.as_mut()),
        }?;
        Ok((repetitions, floor))
    })?;
    outcome.server.extend(server.map(|server| format!("; {server}")));
    if let Some(Floor { engine, repetitions, .. }) = floor {
        outcome.floor = Some(Compared { server: engine.describe(), repetitions });
    }
    Ok(report("stored", &repetitions, outcome))
}

/// A PostgreSQL with its URL: started here, unless a URL is given. `None`: SQLite.
fn start_postgres(args: &Stored) -> Result<Option<(Option<Owned>, String)>, Error> {
    match args.postgres.as_deref() {
        None => Ok(None),
        Some(url) if !url.is_empty() => Ok(Some((None, url.to_owned()))),
        Some(_) => {
            progress("starting PostgreSQL");
            let (started, url) =
                engines::postgres(&folder(&args.common, "postgres")?, &args.postgres_set, Priority::Usual)?;
            Ok(Some((Some(started), url)))
        }
    }
}

/// A new folder on the disk of the measurement.
fn folder(common: &Common, kind: &str) -> Result<PathBuf, Error> {
    let parent = common.data.clone().unwrap_or_else(std::env::temp_dir);
    Ok(parent.join(format!("noroshi-bench-{kind}-{}", random_hex(8)?)))
}

/// The engine alone.
struct Floor {
    engine: Box<dyn Engine>,
    rows: Source,
    /// The figure of the node that the floor has too, and that of its CPU time.
    names: (&'static str, &'static str),
    /// Whether the engine runs in this process.
    has_own_cpu: bool,
    /// Rows in a commit if the node does not report them: half of the requests in flight wait while the others are
    /// committed.
    group: usize,
    repetitions: Vec<Values>,
    folder: Folder,
}

impl Floor {
    fn open(args: &Stored, postgres: Option<&str>) -> Result<Self, Error> {
        let (rows, names, rows_per_request) = match args.work {
            Work::Inbox => (Rows::Inbox, inbox::NAMES, args.targets),
            Work::Topic => (Rows::Topic, topic::NAMES, 1),
            Work::Ack => (Rows::Ack, ack::NAMES, args.messages),
            Work::AckSocket => (Rows::Ack, ack::NAMES, args.messages),
        };
        let plan = FloorPlan {
            rows,
            devices: args.devices,
            messages: args.messages,
            topics: args.topics,
            payload: args.payload,
            warm_up: args.pacing.warm_up,
            duration: args.pacing.duration,
        };
        let folder = Folder::create(folder(&args.common, "floor")?)?;
        let engine: Box<dyn Engine> = match postgres {
            Some(url) => Box::new(PostgresFloor::open(url, plan)?),
            None => Box::new(SqliteFloor::open(&folder.path().join("floor.db"), plan)?),
        };
        Ok(Self {
            engine,
            rows: Source::new(plan),
            names,
            has_own_cpu: postgres.is_none(),
            group: (args.in_flight * rows_per_request / 2).max(1),
            repetitions: Vec::new(),
            folder,
        })
    }

    /// Measures the floor next to a repetition of the node.
    fn measure(&mut self, node: &mut Values) -> Result<(), Error> {
        let group = node.get(PER_COMMIT).map_or(self.group, |rows| rows.round().max(1.0) as usize);
        let measured = measure(&mut *self.engine, &mut self.rows, group, self.has_own_cpu)?;
        let mut values = Values::default();
        values.push(self.names.0, "1/s", measured.rows as f64 / measured.seconds);
        values.push(PER_COMMIT, "", group as f64);
        let cpu = measured.cpu_us.map(|us| us / measured.rows.max(1) as f64);
        values.push_some(self.names.1, "µs", cpu);
        self.repetitions.push(values);
        node.push("syncs of a file", "1/s", syncs_per_second(self.folder.path())?);
        Ok(())
    }
}

/// Measures the node, and after each repetition the floor.
fn repeat(
    bench: &mut Bench<'_>,
    measurement: &mut impl Measurement,
    mut floor: Option<&mut Floor>,
) -> Result<Vec<Values>, Error> {
    measurement.prepare(bench)?;
    let repeat = bench.common.repeat;
    let mut repetitions = Vec::new();
    for number in 1..=repeat {
        progress(&format!("measuring {number} of {repeat}"));
        let mut values = measurement.measure(bench, number)?;
        if let Some(floor) = &mut floor {
            progress(&format!("measuring {number} of {repeat} (floor)"));
            floor.measure(&mut values)?;
        }
        repetitions.push(values);
    }
    measurement.finish(bench)?;
    Ok(repetitions)
}

/// The commits of a node since a point in time.
struct Commits(Option<(Metrics, f64)>);

const COMMITS: &str = "noroshi_store_commits_total";

impl Commits {
    fn count(bench: &Bench<'_>) -> Result<Self, Error> {
        let metrics = bench.target.admin.as_ref().map(Metrics::open).transpose()?;
        Ok(Self(metrics.map(|metrics| {
            let before = metrics.sum(COMMITS);
            (metrics, before)
        })))
    }

    /// Pushes how many of `rows` a commit had, if the node reports its commits.
    fn push(self, rows: u64, values: &mut Values) -> Result<(), Error> {
        let Some((mut metrics, before)) = self.0 else { return Ok(()) };
        metrics.refresh()?;
        let commits = metrics.sum(COMMITS) - before;
        values.push_some(PER_COMMIT, "", (commits > 0.0).then(|| rows as f64 / commits));
        Ok(())
    }
}
