//! All devices disconnect at once, as in a network failure: the time until the server has released all
//! connections, and the cost.
//!
//! The server is clean when its number of open files has decreased by the number of devices, which the kernel
//! reports without load on the server, and, if metrics are available, when they agree. Other connections to
//! the server are ignored.

use std::time::Duration;

use super::{Bench, Measurement, Sample, Subject};
use crate::args::{Disconnect, check};
use crate::metrics::Metrics;
use crate::process::Process;
use crate::report::{ReportDocument, Values};
use crate::{Error, clock};

const TIMEOUT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(1);
/// Reading metrics costs the server some work.
const METRICS_POLL: Duration = Duration::from_millis(10);
/// The time for deferred writes of the server.
const AFTERMATH: Duration = Duration::from_secs(2);
const OPEN: &str = "noroshi_connections";
const COMMITS: &str = "noroshi_store_commits_total";

pub(crate) fn run(args: &Disconnect) -> Result<ReportDocument, Error> {
    check(args.connections > 0, "at least one device is required")?;
    let is_own = args.common.server.is_none() && !args.foreign.is_given();
    let seen = is_own || args.common.pid.is_some() || args.common.admin.is_some();
    check(seen, "--pid or --admin is required to detect when the server is clean")?;
    let subject = Subject {
        speech: Some(&args.speech),
        foreign: Some(&args.foreign),
        floor: args.floor,
        ..Subject::new(&args.common, args.connections)
    };
    super::run("disconnect", &subject, || Leaving { connections: args.connections, metrics: None })
}

struct Leaving {
    connections: usize,
    /// `None` if unavailable.
    metrics: Option<Metrics>,
}

impl Measurement for Leaving {
    fn prepare(&mut self, bench: &mut Bench<'_>) -> Result<(), Error> {
        self.metrics = bench.target.admin.as_ref().map(Metrics::open).transpose()?;
        bench.connect(self.connections).map(drop) // the first log-ins create the devices
    }

    fn measure(&mut self, bench: &mut Bench<'_>, _number: u32) -> Result<Values, Error> {
        bench.connect(self.connections)?;
        bench.settle();
        let clean = self.clean(bench)?;
        let commits_before = self.metric(COMMITS);
        let from = Sample::take(bench);
        let begun_ns = clock::now_ns();
        bench.crew.disconnect()?;
        let closed_ns = clock::now_ns();
        let clean_ns = self.wait_until_clean(bench, clean, begun_ns)?;
        std::thread::sleep(AFTERMATH);
        let to = Sample::take(bench);
        let mut values = Values::default();
        values.push("time until clean", "ms", (clean_ns - begun_ns) as f64 / 1e6);
        values.push("time the client took to close", "ms", (closed_ns - begun_ns) as f64 / 1e6);
        from.push_cpu_each(to, "server CPU per closed connection", self.connections as u64, &mut values);
        self.refresh()?;
        let commits = self.metric(COMMITS).zip(commits_before);
        values.push_some("store commits", "", commits.map(|(to, from)| to - from));
        Ok(values)
    }
}

/// The server's state once it is clean; `None` where unknown.
struct Clean {
    files: Option<u64>,
    open: Option<f64>,
}

impl Leaving {
    fn refresh(&mut self) -> Result<(), Error> {
        self.metrics.as_mut().map_or(Ok(()), Metrics::refresh)
    }

    /// The value at the last refresh.
    fn metric(&self, name: &str) -> Option<f64> {
        self.metrics.as_ref().map(|metrics| metrics.sum(name))
    }

    /// Computed from the state with all devices connected.
    fn clean(&mut self, bench: &Bench<'_>) -> Result<Clean, Error> {
        self.refresh()?;
        let files = bench.target.process.and_then(Process::open_files);
        let open = self.metric(OPEN);
        match (bench.target.process, files, open) {
            (Some(process), None, None) => Err(Error::NoProcess(process.pid)),
            _ => Ok(Clean {
                files: files.map(|files| files.saturating_sub(self.connections as u64)),
                open: open.map(|open| (open - self.connections as f64).max(0.0)),
            }),
        }
    }

    /// Returns when all connections were released.
    fn wait_until_clean(&mut self, bench: &Bench<'_>, clean: Clean, begun_ns: u64) -> Result<u64, Error> {
        let deadline_ns = begun_ns + clock::ns(TIMEOUT);
        if let Some((clean_files, process)) = clean.files.zip(bench.target.process) {
            loop {
                let files = process.open_files().ok_or(Error::NoProcess(process.pid))?;
                let left = files.saturating_sub(clean_files);
                match () {
                    () if left == 0 => break,
                    () if clock::now_ns() > deadline_ns => return Err(self.not_clean(left)),
                    () => std::thread::sleep(POLL),
                }
            }
        }
        let mut clean_ns = clock::now_ns();
        let Some(clean_open) = clean.open else { return Ok(clean_ns) };
        loop {
            self.refresh()?;
            let left = self.metric(OPEN).map_or(0.0, |open| open - clean_open);
            match () {
                () if left <= 0.0 => return Ok(clean_ns),
                () if clean_ns > deadline_ns => return Err(self.not_clean(left as u64)),
                () => std::thread::sleep(METRICS_POLL),
            }
            clean_ns = clock::now_ns();
        }
    }

    fn not_clean(&self, left: u64) -> Error {
        Error::NotClean { left, connections: self.connections, seconds: TIMEOUT.as_secs_f64() }
    }
}
