//! The fake Firehose as a separate program, so that programs in other languages are measured against the same
//! one (`scripts/firequeue`).
//!
//! It prints its address and credentials as lines of `name<TAB>value`, and reads commands from standard
//! input: `away`, `throttling`, `failing N` (every N-th record), `well`, and `told N`, which it answers with the
//! loss, duplicates and order of the events below N, and the time from the first to the last. It ends with its
//! input.

use std::io::{BufRead, Write};
use std::sync::Arc;

use noroshi_testkit::firehose::{ENVIRONMENT, Firehose, Mood};

use super::arrived::Arrived;
use super::{STREAM, failed};
use crate::Error;
use crate::args::Events;

/// One byte each: a minute and a half at 40,000 per second.
const EVENTS_MAX: usize = 4_000_000;

pub(super) fn run(args: &Events, input: impl BufRead, mut output: impl Write) -> Result<(), Error> {
    let arrived = Arc::new(Arrived::new(EVENTS_MAX, args.threads));
    let records = arrived.clone();
    let fake = Firehose::start(STREAM, Arc::new(move |record: &[u8]| records.record(record)))
        .map_err(Error::system("a fake of Firehose"))?;
    fake.delay(args.answer);
    let mut print = |lines: &[(&str, String)]| {
        lines
            .iter()
            .try_for_each(|(name, value)| writeln!(output, "{name}\t{value}"))
            .and_then(|()| output.flush())
            .map_err(Error::system("standard output"))
    };
    let mut place = vec![("endpoint", fake.origin()), ("stream", STREAM.to_owned())];
    place.extend(ENVIRONMENT.map(|(name, value)| (name, value.to_owned())));
    print(&place)?;
    for line in input.lines() {
        let line = line.map_err(Error::system("standard input"))?;
        match line.split_once(' ').unwrap_or((&line, "")) {
            ("away", "") => fake.behave(Mood::Away),
            ("throttling", "") => fake.behave(Mood::Throttling),
            ("failing", number) => {
                let every = number.parse().ok().filter(|every| *every > 0);
                let every = every.ok_or_else(|| failed(&format!("expected a number, got {number:?}")))?;
                fake.behave(Mood::Failing { every });
            }
            ("well", "") => fake.behave(Mood::Well),
            ("told", number) => {
                let told = number.parse().ok().filter(|told| *told <= EVENTS_MAX);
                let told = told.ok_or_else(|| {
                    failed(&format!("expected at most {EVENTS_MAX} events, got {number:?}"))
                })?;
                if let Some(violation) = fake.violation() {
                    return Err(failed(&violation));
                }
                let fate = arrived.fate(told);
                print(&[
                    ("lost", fate.lost.to_string()),
                    ("doubled", fate.doubled.to_string()),
                    ("late", fate.late.to_string()),
                    ("lasted", fate.lasted.as_secs_f64().to_string()),
                ])?;
            }
            _ => return Err(failed(&format!("unknown command of the fake Firehose: {line:?}"))),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        events: Events,
    }

    fn check(input: &str) -> Result<String, Error> {
        let mut output = Vec::new();
        run(&Cli::parse_from(["events"]).events, input.as_bytes(), &mut output)?;
        Ok(String::from_utf8(output).expect("text"))
    }

    #[test]
    fn prints_its_address_and_the_missing_events() {
        let said = check("away\nfailing 20\nthrottling\nwell\ntold 3\n").expect("it ran");
        let names: Vec<_> = said.lines().filter_map(|line| line.split_once('\t')).collect();
        assert!(names[0].0 == "endpoint" && names[0].1.starts_with("http://127.0.0.1:"), "{said}");
        assert_eq!(
            names[1..5].iter().map(|(name, _)| *name).collect::<Vec<_>>(),
            ["stream", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"]
        );
        assert_eq!(names[5..], [("lost", "3"), ("doubled", "0"), ("late", "0"), ("lasted", "0")]);
    }

    #[test]
    fn unknown_command_ends_it() {
        for wrong in ["asleep\n", "told many\n", "told 4000001\n", "failing 0\n"] {
            assert!(check(wrong).is_err(), "{wrong:?}");
        }
    }
}
