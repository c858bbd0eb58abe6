//! The clock: JWTs, device tokens and lifetimes of notifications are compared with it.

use std::time::Duration;

use super::{Finding, Patient, Verdict};

/// `Date` has whole seconds, and the answer takes its time.
const OFFSET_OK: Duration = Duration::from_secs(2);
/// Tokens that a backend signs for minutes are refused, or work for long after they should.
const OFFSET_FAIL: Duration = Duration::from_secs(30);

pub(super) fn kept(patient: &Patient) -> Option<Finding> {
    let clock = &patient.host.clock;
    let (verdict, found) = match &clock.keeper {
        _ if clock.is_set => (Verdict::Ok, "set by systemd-timesyncd".to_owned()),
        Some(keeper) if keeper == "systemd-timesyn" => {
            (Verdict::Warn, "systemd-timesyncd runs, but has not set it yet".to_owned())
        }
        Some(keeper) => (Verdict::Ok, format!("kept by {keeper}")),
        None if clock.in_container => (Verdict::Ok, "the host's; look there".to_owned()),
        None => (Verdict::Warn, "no program was found that keeps it right".to_owned()),
    };
    let advice = "run chrony or systemd-timesyncd: tokens expire by this clock (a host that sets its guests' needs none)";
    Some(Finding::new("clock", verdict, found, "kept right").advise(advice))
}

pub(super) fn compared(patient: &Patient) -> Option<Finding> {
    let offset = patient.clock_offset?;
    let verdict = match offset {
        offset if offset <= OFFSET_OK => Verdict::Ok,
        offset if offset <= OFFSET_FAIL => Verdict::Warn,
        _ => Verdict::Fail,
    };
    let found = format!("{:.1} s from the server's", offset.as_secs_f64());
    let finding = Finding::new("clock of the server", verdict, found, format!("{} s", OFFSET_OK.as_secs()));
    Some(finding.advise("one of the two clocks is wrong: tokens made with the one are refused by the other"))
}
