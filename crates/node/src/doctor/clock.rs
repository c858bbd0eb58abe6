//! Checks of the clock, which decides about JWTs, device tokens and expiry of notifications.

use std::time::Duration;

use super::{Finding, Subject, Verdict};

/// `Date` has whole seconds, and the response takes time.
const OFFSET_OK: Duration = Duration::from_secs(2);
/// Short-lived tokens of a backend are rejected, or valid for too long.
const OFFSET_FAIL: Duration = Duration::from_secs(30);

pub(super) fn kept(subject: &Subject) -> Option<Finding> {
    let clock = &subject.host.clock;
    let (verdict, found) = match &clock.keeper {
        _ if clock.is_set => (Verdict::Ok, "synchronized by systemd-timesyncd".to_owned()),
        Some(keeper) if keeper == "systemd-timesyn" => {
            (Verdict::Warn, "systemd-timesyncd is running, but has not synchronized it yet".to_owned())
        }
        Some(keeper) => (Verdict::Ok, format!("synchronized by {keeper}")),
        None if clock.in_container => (Verdict::Ok, "the host's clock; check the host".to_owned()),
        None => (Verdict::Warn, "no time synchronization found".to_owned()),
    };
    let advice = "run chrony or systemd-timesyncd, since tokens expire by this clock (not needed if the host synchronizes its guests)";
    Some(Finding::new("clock", verdict, found, "synchronized").advise(advice))
}

pub(super) fn compared(subject: &Subject) -> Option<Finding> {
    let offset = subject.clock_offset?;
    let verdict = match offset {
        offset if offset <= OFFSET_OK => Verdict::Ok,
        offset if offset <= OFFSET_FAIL => Verdict::Warn,
        _ => Verdict::Fail,
    };
    let found = format!("{:.1} s offset from the server", offset.as_secs_f64());
    let finding = Finding::new("clock of the server", verdict, found, format!("{} s", OFFSET_OK.as_secs()));
    Some(finding.advise("one of the clocks is wrong: tokens from one machine are rejected by the other"))
}
