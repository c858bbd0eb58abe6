//! The figures that are kept, where each comes from, and what the API shows of it.
//!
//! A figure has a number that never changes its meaning, because rows of older versions stay in the store. It is the sum of
//! metrics that `/metrics` shows, so the two never disagree; of apps it is a count that delivery keeps.

use noroshi_delivery::quota::{AppFigures, Counted};
use noroshi_telemetry::histogram::BOUNDS_US;

/// How values of several times become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A state, such as open connections: the mean.
    Gauge,
    /// What happened: the sum.
    Count,
    /// How long something took: a quantile.
    Time,
}

impl Kind {
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Gauge => "gauge",
            Kind::Count => "count",
            Kind::Time => "time",
        }
    }
}

/// Samples of a metric that count for a figure.
#[derive(Debug, Clone, Copy)]
pub struct Source {
    /// Its name in `/metrics`.
    pub metric: &'static str,
    /// A part of its labels, such as `status="5xx"`. Empty: all.
    pub label: &'static str,
    /// By which its values are multiplied.
    pub factor: f64,
}

#[derive(Debug, Clone, Copy)]
pub struct Figure {
    pub number: u16,
    pub kind: Kind,
    pub sources: &'static [Source],
    /// Of an app.
    pub of_app: Option<fn(&AppFigures) -> u64>,
}

const fn all(metric: &'static str) -> Source {
    Source { metric, label: "", factor: 1.0 }
}

const fn with(metric: &'static str, label: &'static str) -> Source {
    Source { metric, label, factor: 1.0 }
}

const fn figure(number: u16, kind: Kind, sources: &'static [Source]) -> Figure {
    Figure { number, kind, sources, of_app: None }
}

const fn in_app(number: u16, kind: Kind, sources: &'static [Source], of: fn(&AppFigures) -> u64) -> Figure {
    Figure { number, kind, sources, of_app: Some(of) }
}

/// In steps of 10 s that this row covers: what a mean divides by. Not a figure.
pub const STEPS: u16 = 0;
/// The same, added over nodes: how many rows of 10 s and of one node it sums up. Not a figure.
pub const ROWS: u16 = 21;
pub const CONNECTIONS: u16 = 1;

/// Of times: the first of [`TIME_BUCKETS`] numbers, one for each bucket.
const TIMES: u16 = 256;
/// Numbers that each time has.
pub const TIME_NUMBERS: u16 = 32;
pub const TIME_BUCKETS: usize = BOUNDS_US.len() + 1;
const _: () = assert!(TIME_BUCKETS <= TIME_NUMBERS as usize);

const DELIVERY_TIME: u16 = TIMES;
const ACK_TIME: u16 = TIMES + TIME_NUMBERS;
const PUSH_TIME: u16 = TIMES + 2 * TIME_NUMBERS;
const REQUEST_TIME: u16 = TIMES + 3 * TIME_NUMBERS;

pub const FIGURES: &[Figure] = &[
    in_app(CONNECTIONS, Kind::Gauge, &[all("noroshi_connections")], |app| app.connections),
    in_app(2, Kind::Count, &[all("noroshi_log_ins_total")], |app| app.counted(Counted::LogIns)),
    figure(3, Kind::Count, &[all("noroshi_log_ins_refused_total"), all("noroshi_log_ins_throttled_total")]),
    in_app(4, Kind::Count, &[all("noroshi_notifications_accepted_total")], |app| {
        app.counted(Counted::Publishes)
    }),
    in_app(5, Kind::Count, &[all("noroshi_messages_written_total")], |app| app.counted(Counted::Deliveries)),
    figure(6, Kind::Count, &[with("noroshi_outcomes_total", "outcome=\"acked\"")]),
    in_app(7, Kind::Count, &[with("noroshi_outcomes_total", "outcome=\"pushed\"")], |app| {
        app.counted(Counted::PushesAccepted)
    }),
    in_app(
        8,
        Kind::Count,
        &[
            with("noroshi_outcomes_total", "outcome=\"push_refused\""),
            with("noroshi_outcomes_total", "outcome=\"push_token_gone\""),
            with("noroshi_outcomes_total", "outcome=\"push_token_suspect\""),
        ],
        |app| app.counted(Counted::PushesRefused),
    ),
    figure(9, Kind::Count, &[all("noroshi_push_retries_total")]),
    figure(10, Kind::Gauge, &[all("noroshi_push_recipients_in_flight"), all("noroshi_push_queued")]),
    figure(11, Kind::Gauge, &[all("noroshi_mailbox_items")]),
    figure(12, Kind::Gauge, &[all("noroshi_store_queue_operations")]),
    figure(13, Kind::Count, &[all("noroshi_http_requests_total")]),
    figure(14, Kind::Count, &[with("noroshi_http_requests_total", "status=\"5xx\"")]),
    figure(
        15,
        Kind::Count,
        &[
            all("noroshi_slow_drops_total"),
            all("noroshi_late_drops_total"),
            all("noroshi_store_dropped_behind_total"),
        ],
    ),
    figure(
        16,
        Kind::Count,
        &[
            all("noroshi_refused_overloaded_total"),
            all("noroshi_http_requests_shed_total"),
            all("noroshi_connections_refused_total"),
        ],
    ),
    in_app(17, Kind::Count, &[all("noroshi_quota_refused_total")], |app| app.refused),
    figure(
        18,
        Kind::Count,
        &[Source { metric: "noroshi_process_cpu_seconds_total", label: "", factor: 1_000.0 }],
    ),
    figure(19, Kind::Gauge, &[all("noroshi_process_resident_memory_bytes")]),
    figure(20, Kind::Count, &[all("noroshi_bytes_written_total")]),
    figure(DELIVERY_TIME, Kind::Time, &[all("noroshi_written_seconds_bucket")]),
    figure(ACK_TIME, Kind::Time, &[all("noroshi_acked_seconds_bucket")]),
    figure(PUSH_TIME, Kind::Time, &[all("noroshi_push_answered_seconds_bucket")]),
    figure(REQUEST_TIME, Kind::Time, &[all("noroshi_http_request_seconds_bucket")]),
];

/// A series of the API.
#[derive(Debug, Clone, Copy)]
pub struct Shown {
    pub name: &'static str,
    /// Of counts: what is counted; the API gives their number in each step.
    pub unit: &'static str,
    pub number: u16,
    pub kind: Kind,
    /// Of times: the quantile.
    pub quantile: f64,
    /// People with a role in one app see it.
    pub is_of_apps: bool,
}

const fn shown(name: &'static str, unit: &'static str, number: u16, kind: Kind) -> Shown {
    Shown { name, unit, number, kind, quantile: 0.0, is_of_apps: false }
}

const fn of_apps(name: &'static str, unit: &'static str, number: u16, kind: Kind) -> Shown {
    Shown { is_of_apps: true, ..shown(name, unit, number, kind) }
}

const fn time(name: &'static str, number: u16, quantile: f64) -> Shown {
    Shown { quantile, ..shown(name, "seconds", number, Kind::Time) }
}

/// All series of the API, in the order of its answers.
pub const SHOWN: &[Shown] = &[
    of_apps("connections", "connections", CONNECTIONS, Kind::Gauge),
    of_apps("log_ins", "log-ins", 2, Kind::Count),
    shown("log_ins_refused", "log-ins", 3, Kind::Count),
    of_apps("publishes", "notifications", 4, Kind::Count),
    of_apps("deliveries", "notifications", 5, Kind::Count),
    shown("acks", "acknowledgements", 6, Kind::Count),
    time("delivery_p50", DELIVERY_TIME, 0.5),
    time("delivery_p99", DELIVERY_TIME, 0.99),
    time("ack_p50", ACK_TIME, 0.5),
    time("ack_p99", ACK_TIME, 0.99),
    of_apps("pushes_accepted", "pushes", 7, Kind::Count),
    of_apps("pushes_refused", "pushes", 8, Kind::Count),
    shown("push_retries", "pushes", 9, Kind::Count),
    time("push_p50", PUSH_TIME, 0.5),
    time("push_p99", PUSH_TIME, 0.99),
    shown("push_backlog", "pushes", 10, Kind::Gauge),
    shown("delivery_backlog", "deliveries", 11, Kind::Gauge),
    shown("store_backlog", "operations", 12, Kind::Gauge),
    shown("requests", "requests", 13, Kind::Count),
    shown("request_errors", "requests", 14, Kind::Count),
    time("request_p50", REQUEST_TIME, 0.5),
    time("request_p99", REQUEST_TIME, 0.99),
    shown("drops", "notifications", 15, Kind::Count),
    shown("overloads", "requests", 16, Kind::Count),
    of_apps("quota_refusals", "requests", 17, Kind::Count),
    shown("cpu", "milliseconds", 18, Kind::Count),
    shown("memory", "bytes", 19, Kind::Gauge),
    shown("bytes_written", "bytes", 20, Kind::Count),
];

impl Shown {
    pub fn named(name: &str) -> Option<&'static Shown> {
        SHOWN.iter().find(|shown| shown.name == name)
    }
}

/// The kind of the figure with this number. `None`: one of a newer version, which is kept.
pub fn kind_of(number: u16) -> Option<Kind> {
    if number >= TIMES {
        return Some(Kind::Time);
    }
    FIGURES.iter().find(|figure| figure.number == number).map(|figure| figure.kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shown_series_has_a_figure_and_a_name_of_its_own() {
        for (index, shown) in SHOWN.iter().enumerate() {
            let figure = FIGURES.iter().find(|figure| figure.number == shown.number).expect("a figure");
            assert_eq!(figure.kind, shown.kind, "{}", shown.name);
            assert_eq!(figure.of_app.is_some(), shown.is_of_apps, "{}", shown.name);
            assert!(SHOWN[..index].iter().all(|other| other.name != shown.name), "{}", shown.name);
        }
        let mut numbers: Vec<u16> = FIGURES.iter().map(|figure| figure.number).collect();
        numbers.dedup();
        assert_eq!(numbers.len(), FIGURES.len());
        assert!(!numbers.contains(&STEPS) && !numbers.contains(&ROWS));
    }
}
