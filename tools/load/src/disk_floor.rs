//! The floor of `bench stored`: the engine alone, without a server. One thread writes the rows that a node would
//! write, into tables of the same shape with the same indexes and settings, in commits of as many rows, on the same
//! disk. SQLite runs prepared statements in a loop; PostgreSQL gets the rows of a commit with COPY.
//!
//! A node does more for each message than the floor: it reads the request, finds the recipients, and keeps the
//! outcome. Rows come in the order of arrival: devices at random.

mod postgres;
mod sqlite;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::Error;
use crate::process::Process;

pub(crate) use postgres::PostgresFloor;
pub(crate) use sqlite::SqliteFloor;

/// The rows that are written, or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rows {
    /// Rows in inboxes, of devices drawn at random.
    Inbox,
    /// Rows in the logs of topics, each with its message.
    Topic,
    /// The removal of inbox rows; all rows of a device follow each other.
    Ack,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct FloorPlan {
    pub(crate) rows: Rows,
    pub(crate) devices: usize,
    /// Rows of each device that are removed.
    pub(crate) messages: usize,
    pub(crate) topics: usize,
    /// Bytes of a message.
    pub(crate) payload: usize,
    pub(crate) warm_up: Duration,
    pub(crate) duration: Duration,
}

/// What was written, how long it took, and the CPU time of this process, if the engine runs in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    pub(crate) rows: u64,
    pub(crate) seconds: f64,
    pub(crate) cpu_us: Option<f64>,
}

/// An engine with its tables.
pub(crate) trait Engine {
    fn describe(&self) -> String;
    /// Fills the table that [`Rows::Ack`] empties.
    fn fill(&mut self, rows: &mut Source) -> Result<(), Error>;
    /// Commits the next `count` rows. Returns how many there were.
    fn commit(&mut self, rows: &mut Source, count: usize) -> Result<usize, Error>;
}

/// Measures `engine`, in commits of `group` rows.
pub(crate) fn measure(
    engine: &mut dyn Engine,
    rows: &mut Source,
    group: usize,
    has_own_cpu: bool,
) -> Result<Measured, Error> {
    let plan = rows.plan;
    match plan.rows {
        Rows::Ack => engine.fill(rows)?,
        Rows::Inbox | Rows::Topic => drop(commit_for(engine, rows, group, plan.warm_up)?),
    }
    let cpu = || has_own_cpu.then(|| Process::this().cpu()).flatten();
    let (before, started) = (cpu(), Instant::now());
    let count = match plan.rows {
        Rows::Ack => commit_all(engine, rows, group)?,
        Rows::Inbox | Rows::Topic => commit_for(engine, rows, group, plan.duration)?,
    };
    let seconds = started.elapsed().as_secs_f64();
    let cpu_us = before.zip(cpu()).map(|(before, after)| (after - before).total_us());
    Ok(Measured { rows: count, seconds, cpu_us })
}

fn commit_for(
    engine: &mut dyn Engine,
    rows: &mut Source,
    group: usize,
    time: Duration,
) -> Result<u64, Error> {
    let (started, mut count) = (Instant::now(), 0);
    while started.elapsed() < time {
        count += engine.commit(rows, group)? as u64;
    }
    Ok(count)
}

fn commit_all(engine: &mut dyn Engine, rows: &mut Source, group: usize) -> Result<u64, Error> {
    let mut count = 0;
    loop {
        match engine.commit(rows, group)? {
            0 => return Ok(count),
            more => count += more as u64,
        }
    }
}

/// The number of the first message: as large as those of a node, which contain the time.
const FIRST: i64 = 1_800_000_000_000 << 20;

/// Produces the rows.
pub(crate) struct Source {
    pub(crate) plan: FloorPlan,
    /// xorshift64: the selection need not be unpredictable, only spread.
    state: u64,
    /// The last message's number.
    last: i64,
    /// The last offset of each topic.
    heads: Vec<i64>,
    /// Rows that are still to be removed: devices in random order, all rows of one after the other.
    left: Vec<(i64, i64)>,
}

impl Source {
    pub(crate) fn new(plan: FloorPlan) -> Self {
        let heads = vec![0; plan.topics];
        Self { plan, state: 0x9e37_79b9_7f4a_7c15, last: FIRST, heads, left: Vec::new() }
    }

    fn random(&mut self, below: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state % below as u64) as usize
    }

    fn message(&mut self) -> i64 {
        self.last += 1;
        self.last
    }

    /// The device and the message of the next row. Each message goes to one device: no two rows are equal.
    fn inbox_row(&mut self) -> (i64, i64) {
        (self.random(self.plan.devices) as i64 + 1, self.message())
    }

    /// The topic, the offset and the message of the next row.
    fn log_row(&mut self) -> (i64, i64, i64) {
        let topic = self.random(self.heads.len());
        self.heads[topic] += 1;
        (topic as i64 + 1, self.heads[topic], self.message())
    }

    /// All rows of a new table, in the order of its key; then [`Self::take`] returns them.
    fn fill(&mut self) -> Vec<(i64, i64)> {
        let first = self.last + 1;
        self.last += self.plan.messages as i64;
        let last = self.last;
        let of_device = |device: usize| (first..=last).map(move |num| (device as i64 + 1, num));
        let all: Vec<_> = (0..self.plan.devices).flat_map(of_device).collect();
        let mut devices: Vec<usize> = (0..self.plan.devices).collect();
        for at in (1..devices.len()).rev() {
            let other = self.random(at + 1);
            devices.swap(at, other);
        }
        self.left = devices.into_iter().flat_map(of_device).collect();
        all
    }

    /// The next rows to remove, at most `count`.
    fn take(&mut self, count: usize) -> Vec<(i64, i64)> {
        let rest = self.left.len().saturating_sub(count);
        self.left.split_off(rest)
    }
}

/// How often per second a file on the disk of `folder` can be synced after a page was appended.
pub(crate) fn syncs_per_second(folder: &Path) -> Result<f64, Error> {
    const TIME: Duration = Duration::from_millis(500);
    const PAGE: [u8; 4_096] = [7; 4_096];
    let path = folder.join("sync");
    let failed = |source| Error::Folder { path: path.clone(), source };
    let mut file = File::create(&path).map_err(failed)?;
    let (started, mut count) = (Instant::now(), 0_u32);
    while started.elapsed() < TIME {
        file.write_all(&PAGE).and_then(|()| file.sync_all()).map_err(failed)?;
        count += 1;
    }
    let rate = f64::from(count) / started.elapsed().as_secs_f64();
    std::fs::remove_file(&path).map_err(failed)?;
    Ok(rate)
}

/// A folder that is removed with the floor.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn create(path: PathBuf) -> Result<Self, Error> {
        std::fs::create_dir_all(&path).map_err(|source| Error::Folder { path: path.clone(), source })?;
        crate::program::remember_folder(path.clone());
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("cannot remove {}: {error}", self.0.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn plan(rows: Rows) -> FloorPlan {
        let second = Duration::from_millis(100);
        FloorPlan {
            rows,
            devices: 50,
            messages: 4,
            topics: 3,
            payload: 100,
            warm_up: second,
            duration: second,
        }
    }

    #[test]
    fn every_row_is_removed_once() {
        let mut rows = Source::new(plan(Rows::Ack));
        let all: HashSet<_> = rows.fill().into_iter().collect();
        let mut removed = HashSet::new();
        loop {
            let taken = rows.take(7);
            if taken.is_empty() {
                break;
            }
            assert!(taken.into_iter().all(|row| removed.insert(row)));
        }
        assert_eq!((all.len(), &removed), (200, &all));
    }

    #[test]
    fn sqlite_writes_all_rows() {
        let folder = std::env::temp_dir().join(format!("noroshi-floor-{}", std::process::id()));
        let folder = Folder::create(folder).unwrap();
        assert!(syncs_per_second(folder.path()).unwrap() > 0.0);
        for rows in [Rows::Inbox, Rows::Topic, Rows::Ack] {
            let mut source = Source::new(plan(rows));
            let mut engine =
                SqliteFloor::open(&folder.path().join(format!("{rows:?}.db")), source.plan).unwrap();
            for _ in 0..2 {
                let measured = measure(&mut engine, &mut source, 30, true).unwrap();
                assert!(measured.rows > 0 && measured.seconds > 0.0, "{measured:?}");
                assert_eq!(rows == Rows::Ack, measured.rows == 200 && engine.count() == 0, "{measured:?}");
            }
        }
    }
}
