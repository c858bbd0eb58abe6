//! Metrics of this process, read on scrape: memory, descriptors, threads, CPU time and build.

use std::hash::{BuildHasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::{Registry, Unit};

/// Registers the metrics.
pub fn register(registry: &mut Registry) {
    let build: Family<Vec<(&str, &str)>, Gauge> = Family::default();
    build.get_or_create(&vec![("version", env!("CARGO_PKG_VERSION"))]).set(1);
    registry.register("build_info", "The running version. Always 1", build);
    let started_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    registry.register_collector(Box::new(Process { started_s }));
}

/// CPU time of this process, user and system.
pub(crate) fn cpu_seconds() -> Option<f64> {
    cpu_s(&std::fs::read_to_string("/proc/self/stat").ok()?)
}

pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// For choices that need not be unpredictable.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(0u8)
}

#[derive(Debug)]
struct Process {
    started_s: f64,
}

/// Values from `/proc`. Unreadable ones are left out.
#[derive(Debug, Default, PartialEq)]
struct Figures {
    resident_bytes: Option<u64>,
    threads: Option<u64>,
    descriptors: Option<u64>,
    cpu_s: Option<f64>,
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let figures = Figures::read();
        let mut put = |name: &str, help: &str, unit: Option<&Unit>, metric: &dyn Put| {
            metric.put(encoder.encode_descriptor(name, help, unit, metric.kind())?)
        };
        if let Some(bytes) = figures.resident_bytes {
            put("process_resident_memory", "Resident memory", Some(&Unit::Bytes), &ConstGauge::new(bytes))?;
        }
        if let Some(threads) = figures.threads {
            put("process_threads", "Threads", None, &ConstGauge::new(threads))?;
        }
        if let Some(descriptors) = figures.descriptors {
            put("process_open_fds", "Open file descriptors", None, &ConstGauge::new(descriptors))?;
        }
        if let Some(seconds) = figures.cpu_s {
            let help = "CPU time, user and system";
            put("process_cpu", help, Some(&Unit::Seconds), &ConstCounter::new(seconds))?;
        }
        let help = "Start time of the process, in seconds since 1970";
        put("process_start_time", help, Some(&Unit::Seconds), &ConstGauge::new(self.started_s))
    }
}

/// A metric of any type.
trait Put {
    fn kind(&self) -> MetricType;
    fn put(&self, encoder: prometheus_client::encoding::MetricEncoder<'_>) -> Result<(), std::fmt::Error>;
}

impl<M: EncodeMetric> Put for M {
    fn kind(&self) -> MetricType {
        self.metric_type()
    }

    fn put(&self, encoder: prometheus_client::encoding::MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        self.encode(encoder)
    }
}

impl Figures {
    fn read() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        Self {
            resident_bytes: field(&status, "VmRSS:").map(|kib| kib * 1_024),
            threads: field(&status, "Threads:"),
            // Without the descriptor of the listing itself.
            descriptors: std::fs::read_dir("/proc/self/fd")
                .ok()
                .map(|list| (list.count() as u64).saturating_sub(1)),
            cpu_s: cpu_s(&stat),
        }
    }
}

fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// proc_pid_stat(5): fields 14 and 15, counted from the end of the name, which may contain anything.
fn cpu_s(stat: &str) -> Option<f64> {
    let (_, behind) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = behind.split_ascii_whitespace().collect();
    let user: f64 = fields.get(11)?.parse().ok()?;
    let system: f64 = fields.get(12)?.parse().ok()?;
    Some((user + system) / rustix::param::clock_ticks_per_second() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_present_and_named() {
        let mut registry = noroshi_telemetry::registry();
        register(&mut registry);
        let text = noroshi_telemetry::encode(&registry).expect("text");
        for name in [
            "noroshi_build_info{version=",
            "noroshi_process_resident_memory_bytes ",
            "noroshi_process_threads ",
            "noroshi_process_open_fds ",
            "noroshi_process_cpu_seconds_total ",
            "noroshi_process_start_time_seconds ",
        ] {
            let line =
                text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}\n{text}"));
            let value =
                line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).expect("a number");
            assert!(value >= 0.0, "{line}");
        }
    }

    #[test]
    fn a_name_with_brackets_does_not_shift_the_fields() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 0 0 0 0 0 250 150 0 0 20 0";
        let ticks = cpu_s(stat).map(|seconds| seconds * rustix::param::clock_ticks_per_second() as f64);
        assert!(ticks.is_some_and(|ticks| (ticks - 400.0).abs() < 1e-6), "{ticks:?}");
        assert_eq!(cpu_s(""), None);
    }
}
