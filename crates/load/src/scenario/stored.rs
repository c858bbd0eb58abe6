//! Accepting `stored` notifications for devices that are away: every target is a row in an inbox, on disk
//! before the answer.

use super::direct::{measure, note_trouble, pace};
use super::{Bench, PER_ROW, progress, report};
use crate::Error;
use crate::args::{Stored, check, check_counts};
use crate::payload::When;
use crate::report::{ReportDocument, Values};
use crate::worker::Plan;

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
            note_trouble(bench, &published);
            repetitions.push(values);
        }
        Ok(repetitions)
    })?;
    Ok(report("stored", &repetitions, outcome))
}
