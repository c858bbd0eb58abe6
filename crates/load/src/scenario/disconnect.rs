//! All devices gone at once, as when a network fails: how long until the server has let go of every one of
//! them, and what it paid for that.
//!
//! The server is clean when it has as many open files fewer as there were devices, which the kernel tells
//! at no cost to the server, and, where its metrics can be asked, when they agree.

use std::time::Duration;

use super::{Bench, CpuNames, Measurement, Needs, Sample, Subject};
use crate::args::{Disconnect, check};
use crate::metrics::Metrics;
use crate::process::Process;
use crate::report::{ReportDocument, Values};
use crate::{Error, clock};

const TIMEOUT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(1);
/// Asking for metrics is work for the server.
const METRICS_POLL: Duration = Duration::from_millis(10);
/// What a server writes a moment later it writes within this time.
const AFTERMATH: Duration = Duration::from_secs(2);
const OPEN: &str = "noroshi_connections";
const COMMITS: &str = "noroshi_store_commits_total";

const PER_CLOSE: CpuNames = CpuNames {
    total: "server CPU per closed connection",
    user: "server CPU per closed connection, user space",
    system: "server CPU per closed connection, kernel",
};

pub(crate) fn run(args: &Disconnect) -> Result<ReportDocument, Error> {
    check(args.connections > 0, "at least one device is needed")?;
    let seen = args.common.server.is_none() || args.common.pid.is_some() || args.common.admin.is_some();
    check(seen, "--pid or --admin is needed to see when the server is clean")?;
    let subject = Subject {
        common: &args.common,
        foreign: Some(&args.foreign),
        floor: args.floor,
        needs: Needs { connections: args.connections, ..Needs::default() },
    };
    super::run("disconnect", &subject, || Leaving { connections: args.connections, metrics: None })
}

struct Leaving {
    connections: usize,
    /// None where they cannot be asked.
    metrics: Option<Metrics>,
}

impl Measurement for Leaving {
    fn prepare(&mut self, bench: &mut Bench<'_>) -> Result<(), Error> {
        self.metrics = bench.target.admin().map(Metrics::open).transpose()?;
        bench.connect(self.connections).map(drop) // the first log-ins make the devices
    }

    fn measure(&mut self, bench: &mut Bench<'_>, _number: u32) -> Result<Values, Error> {
        bench.connect(self.connections)?;
        bench.settle();
        let files = bench.target.process().and_then(Process::open_files);
        let clean_files = files.map(|files| files.saturating_sub(self.connections as u64));
        let commits_before = self.commits()?;
        let from = Sample::take(bench);
        let begun_ns = clock::now_ns();
        bench.crew.disconnect()?;
        let closed_ns = clock::now_ns();
        let clean_ns = self.wait_until_clean(bench, clean_files, begun_ns)?;
        std::thread::sleep(AFTERMATH);
        let to = Sample::take(bench);
        let mut values = Values::default();
        values.push("time until clean", "ms", (clean_ns - begun_ns) as f64 / 1e6);
        values.push("time the client took to close", "ms", (closed_ns - begun_ns) as f64 / 1e6);
        from.push_cpu_each(to, &PER_CLOSE, self.connections as u64, &mut values);
        let commits = self.commits()?;
        values.push_some("store commits", "", commits.zip(commits_before).map(|(to, from)| to - from));
        Ok(values)
    }
}

impl Leaving {
    fn commits(&mut self) -> Result<Option<f64>, Error> {
        let Some(metrics) = &mut self.metrics else { return Ok(None) };
        metrics.refresh()?;
        Ok(Some(metrics.sum(COMMITS)))
    }

    /// When nothing of the connections was left.
    fn wait_until_clean(
        &mut self,
        bench: &Bench<'_>,
        clean_files: Option<u64>,
        begun_ns: u64,
    ) -> Result<u64, Error> {
        let deadline_ns = begun_ns + clock::ns(TIMEOUT);
        if let Some(clean_files) = clean_files {
            loop {
                let files = bench.target.process().and_then(Process::open_files);
                let left = files.unwrap_or(0).saturating_sub(clean_files);
                match () {
                    () if left == 0 => break,
                    () if clock::now_ns() > deadline_ns => return Err(self.not_clean(left)),
                    () => std::thread::sleep(POLL),
                }
            }
        }
        let mut clean_ns = clock::now_ns();
        let Some(metrics) = &mut self.metrics else { return Ok(clean_ns) };
        loop {
            metrics.refresh()?;
            let left = metrics.sum(OPEN);
            match () {
                () if left == 0.0 => return Ok(clean_ns),
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
