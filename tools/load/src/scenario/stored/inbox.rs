//! Stored notifications for offline devices: every target is a row in an inbox.

use super::Commits;
use crate::Error;
use crate::args::Stored;
use crate::payload::When;
use crate::report::Values;
use crate::scenario::direct::{measure, note_trouble, pace};
use crate::scenario::{Bench, Measurement};
use crate::worker::{Plan, Published};

/// Half of a device's 1,000 rows: the draws are even enough that no device has twice the mean.
const ROWS_PER_DEVICE_SAFE: u64 = 500;

pub(super) const NAMES: (&str, &str) = ("inbox rows accepted", "server CPU per inbox row");

pub(super) struct Requests<'a> {
    args: &'a Stored,
    plan: Plan,
    /// Rows so far, including the warm-up.
    accepted: u64,
}

impl<'a> Requests<'a> {
    pub(super) fn new(args: &'a Stored) -> Self {
        let plan = Plan {
            pace: pace(&args.pacing),
            in_flight: args.in_flight,
            away: args.targets,
            away_devices: args.devices,
            when: When::Stored,
            data_bytes: args.payload,
            ..Plan::default()
        };
        Self { args, plan, accepted: 0 }
    }
}

impl Measurement for Requests<'_> {
    fn prepare(&mut self, bench: &mut Bench<'_>) -> Result<(), Error> {
        bench.register_away(self.args.devices)
    }

    fn measure(&mut self, bench: &mut Bench<'_>, _number: u32) -> Result<Values, Error> {
        let mut values = Values::default();
        let targets = self.args.targets as u64;
        let head = |published: &Published, seconds: f64, values: &mut Values| {
            let rows = published.accepted * targets;
            values.push(NAMES.0, "1/s", rows as f64 / seconds);
            values.push("requests", "1/s", published.accepted as f64 / seconds);
            (NAMES.1, rows)
        };
        let commits = Commits::count(bench)?;
        let published = measure(bench, &self.plan, &self.args.pacing, head, &mut values)?;
        commits.push(published.accepted_ever * targets, &mut values)?;
        self.accepted += published.accepted_ever * targets;
        note_trouble(&mut bench.notes, &published, "connections that ended");
        Ok(values)
    }

    fn finish(&mut self, bench: &mut Bench<'_>) -> Result<(), Error> {
        check_kept(bench, self.args, self.accepted)
    }
}

/// Checks that accepted rows are stored, unless inboxes may have reached the limit at which old rows are
/// evicted.
fn check_kept(bench: &mut Bench<'_>, args: &Stored, accepted: u64) -> Result<(), Error> {
    if accepted > args.devices as u64 * ROWS_PER_DEVICE_SAFE {
        bench.notes.push("inboxes were not counted: they are near their row limit".to_owned());
        return Ok(());
    }
    let kept = bench.rows_kept(args.devices)?;
    if kept < accepted {
        return Err(Error::NotKept { kept, accepted });
    }
    bench.notes.push(format!("all {accepted} accepted rows were found in the inboxes afterwards"));
    Ok(())
}
