//! The timers of a machine: one for each purpose.

use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Timer {
    Retry,
    Connect,
    Pong,
    Beat,
    Renew,
    WebSocket,
    Flush,
    Idle,
    Token,
    Opened,
    Exposures,
    Acks,
    Presence,
    Repeat,
}

const COUNT: usize = Timer::Repeat as usize + 1;

#[derive(Debug, Default)]
pub(super) struct Timers {
    /// When it is due, and the order in which equal ones were set.
    due: [Option<(Duration, u64)>; COUNT],
    order: u64,
}

const ALL: [Timer; COUNT] = [
    Timer::Retry,
    Timer::Connect,
    Timer::Pong,
    Timer::Beat,
    Timer::Renew,
    Timer::WebSocket,
    Timer::Flush,
    Timer::Idle,
    Timer::Token,
    Timer::Opened,
    Timer::Exposures,
    Timer::Acks,
    Timer::Presence,
    Timer::Repeat,
];

impl Timers {
    pub(super) fn set(&mut self, timer: Timer, at: Duration) {
        self.order += 1;
        self.due[timer as usize] = Some((at, self.order));
    }

    pub(super) fn clear(&mut self, timer: Timer) {
        self.due[timer as usize] = None;
    }

    pub(super) fn is_set(&self, timer: Timer) -> bool {
        self.due[timer as usize].is_some()
    }

    /// The timer that is due first.
    pub(super) fn next(&self) -> Option<(Duration, Timer)> {
        let set = ALL.into_iter().filter_map(|timer| Some((self.due[timer as usize]?, timer)));
        set.min_by_key(|(due, _)| *due).map(|((at, _), timer)| (at, timer))
    }
}
