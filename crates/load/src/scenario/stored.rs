//! Accepting `stored` notifications for devices that are away: every target is a row in an inbox, on disk
//! before the answer.

use super::direct::{measure, note_trouble, pace};
use super::{Bench, PER_ROW, progress, report};
use crate::Error;
use crate::args::{Stored, check, check_counts};
use crate::payload::When;
use crate::report::{ReportDocument, Values};
use crate::worker::Plan;

/// Half of a device's 1,000 rows: draws are even enough that none has twice the mean.
const ROWS_PER_DEVICE_SAFE: u64 = 500;

pub(crate) fn run(args: &Stored) -> Result<ReportDocument, Error> {
    check_counts(args.devices, args.targets, args.payload, args.in_flight)?;
    check(args.targets <= args.devices, "a request names more users than there are: ask for more --devices")?;
    args.pacing.check()?;
    let bench = Bench::open(&args.common, args.in_flight, None)?;
    let (repetitions, outcome) = bench.attempt(|bench| {
        bench.register_away(args.devices)?;
        let plan = Plan {
            start_ns: 0,
            from_ns: 0,
            to_ns: 0,
            pace: pace(&args.pacing),
            in_flight: args.in_flight,
            connected: 0,
            away: args.targets,
            away_devices: args.devices,
            when: When::Stored,
            data_bytes: args.payload,
        };
        let mut repetitions = Vec::new();
        let mut accepted = 0;
        for number in 1..=args.common.repeat {
            progress(&format!("measuring {number} of {}", args.common.repeat));
            let mut values = Values::default();
            let published = measure(
                bench,
                &plan,
                &args.pacing,
                |published, seconds, values| {
                    let rows = published.accepted * args.targets as u64;
                    values.push("inbox rows accepted", "1/s", rows as f64 / seconds);
                    values.push("requests", "1/s", published.accepted as f64 / seconds);
                    (PER_ROW, rows)
                },
                &mut values,
            )?;
            accepted += published.accepted_ever * args.targets as u64;
            note_trouble(bench, &published);
            repetitions.push(values);
        }
        check_kept(bench, args, accepted)?;
        Ok(repetitions)
    })?;
    Ok(report("stored", &repetitions, outcome))
}

/// Accepted means kept: looks at the inboxes, unless they may have reached the number of rows at which
/// older ones make room.
fn check_kept(bench: &mut Bench<'_>, args: &Stored, accepted: u64) -> Result<(), Error> {
    if accepted > args.devices as u64 * ROWS_PER_DEVICE_SAFE {
        bench.notes.push("inboxes were not counted: they are near their limit of rows".to_owned());
        return Ok(());
    }
    let kept = bench.rows_kept(args.devices)?;
    if kept < accepted {
        return Err(Error::NotKept { kept, accepted });
    }
    bench.notes.push(format!("all {accepted} rows accepted were found in the inboxes afterwards"));
    Ok(())
}
