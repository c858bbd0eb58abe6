//! The log as other crates use it: through its handle, to real files, a real HTTP receiver and the strict fake of
//! Firehose.

mod file;
#[cfg(feature = "firehose")]
mod firehose;
mod receiver;
mod tap;
mod webhook;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use noroshi_events::{Config, Event, Events, Metrics, Names, Record, Service};
use noroshi_types::{AppId, DeviceNum, NotificationId, Outcome, Timestamp};

/// A log and its metrics.
struct Log {
    service: Service,
    events: Events,
    metrics: Metrics,
}

fn names() -> Names {
    Arc::new(|_| None)
}

/// Shorter than the default, because a test waits for it.
fn config(spool: &Path) -> Config {
    Config { flush_interval: Duration::from_millis(20), ..Config::new("test", spool) }
}

fn start(config: &Config, runtime: Option<&tokio::runtime::Runtime>) -> Log {
    let metrics = Metrics::new(&mut prometheus_client::registry::Registry::default());
    let network = runtime.map(|runtime| {
        let egress = noroshi_egress::Config {
            allow: vec!["127.0.0.0/8".parse().expect("network")],
            ..noroshi_egress::Config::default()
        };
        let egress = noroshi_egress::Egress::new(egress).expect("egress");
        (runtime.handle().clone(), Arc::new(egress))
    });
    let service = Service::start(config, names(), network, &Default::default(), &metrics).expect("a log");
    Log { events: service.events(), service, metrics }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("runtime")
}

/// Emits one event; waits for room.
fn tell(events: &Events, number: u64) {
    let mut record = Record { at: Timestamp(number), event: written(number) };
    while let Err(back) = events.try_emit(record) {
        record = back;
        std::thread::yield_now();
    }
}

fn written(number: u64) -> Event {
    let mut id = [0; 16];
    id[8..].copy_from_slice(&number.to_be_bytes());
    let of = noroshi_events::Subject::Notification(NotificationId::from_bytes(id));
    let (app, outcome, devices) = (AppId(1), Outcome::Written, Box::new([DeviceNum(number)]));
    Event::Outcome { app, of, outcome, devices, count: 1 }
}

/// The number of each line, in order, without the line that starts a log.
fn numbers(text: &str) -> Vec<u64> {
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
    lines.filter_map(|line| line["devices"][0].as_u64()).collect()
}

/// A generous deadline: a machine may be busy.
fn wait_until(what: &str, is: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is() {
        assert!(Instant::now() < deadline, "still waiting until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
