//! The running log: opens sinks, starts the threads, and stops them within a deadline.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use noroshi_egress::Egress;
use noroshi_supervision::{Heartbeat, Kind, Threads};
use noroshi_types::Timestamp;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::batch::Limits;
use crate::collector::Collector;
use crate::config::{self, Config};
use crate::emit::{Events, Shared};
use crate::event::{Event, Record};
use crate::feed::Feed;
use crate::health::Health;
use crate::line::{Names, Writer};
use crate::metrics::Metrics;
use crate::sink::{Network, Sink};
use crate::spool::Spool;
use crate::worker;

/// A cancelled attempt ends within this time.
const BREAK_OFF: Duration = Duration::from_millis(500);
const STEP: Duration = Duration::from_millis(5);

/// Why the log cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Config(String),
    #[error("failed to open the sink {sink}: {reason}")]
    Sink { sink: &'static str, reason: String },
    #[error("failed to open the spool {path}: {reason}")]
    Spool { path: String, reason: std::io::Error },
    #[error("failed to start a thread: {0}")]
    Thread(std::io::Error),
}

/// The result of a shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Drained {
    /// Events on disk for the next start.
    pub spooled: u64,
    /// Events that a sink without a spool did not accept in time.
    pub lost: u64,
}

/// A running log. Dropped without [`Service::drain`], it ends at once: unsent events are on disk, or lost.
pub struct Service {
    shared: Arc<Shared>,
    collector: JoinHandle<()>,
    workers: Vec<JoinHandle<()>>,
    feeds: Vec<Arc<Feed>>,
    ending: CancellationToken,
    deadline: Duration,
}

impl Service {
    /// Opens sinks and spools, and starts. Without a sink it idles until a tap opens. `network`: for sinks outside of this machine. `threads` supervises the log's
    /// threads.
    pub fn start(
        config: &Config,
        names: Names,
        network: Option<(Handle, Arc<Egress>)>,
        threads: &Threads,
        metrics: &Metrics,
    ) -> Result<Self, Error> {
        config.check().map_err(Error::Config)?;
        let ending = CancellationToken::new();
        let network = network.map(|(runtime, egress)| Network { runtime, egress, ending: ending.clone() });
        let mut parts = Vec::new();
        for sink in &config.sinks {
            let name = sink.name();
            let opened = Sink::open(sink, &config.node, network.as_ref(), threads)
                .map_err(|reason| Error::Sink { sink: name, reason })?;
            parts.push((name, opened, Arc::new(feed(config, sink, metrics)?)));
        }
        let shared = Arc::new(Shared::new(config.ring_places, !config.sinks.is_empty()));
        let feeds: Vec<_> = parts.iter().map(|(_, _, feed)| feed.clone()).collect();
        let collector =
            collect((config, names), &shared, &feeds, (threads, metrics)).map_err(Error::Thread)?;
        let mut workers = Vec::new();
        for (name, sink, feed) in parts {
            let health = Health::new(name, metrics.of_sink(name).failed);
            let work = move |pulse: &Heartbeat| worker::run(sink, health, &feed, pulse);
            let thread = threads.spawn(Kind::EventsSink, format!("events-{name}"), work);
            workers.push(thread.map_err(Error::Thread)?);
        }
        Ok(Self { shared, collector, workers, feeds, ending, deadline: config.drain })
    }

    /// A handle for emitting events.
    pub fn events(&self) -> Events {
        Events::new(self.shared.clone())
    }

    /// False: only a tap reads events.
    pub fn has_sinks(&self) -> bool {
        self.shared.has_sinks()
    }

    /// Sends queued events to the sinks within the configured time; the rest goes to disk. Events emitted from now on
    /// may be lost. Blocks.
    pub fn drain(self) -> Drained {
        let deadline = Instant::now() + self.deadline;
        self.shared.ending.store(true, Ordering::Release);
        self.shared.wake();
        wait_for(std::slice::from_ref(&self.collector), deadline);
        wait_for(&self.workers, deadline);
        let mut drained = Drained::default();
        for feed in &self.feeds {
            let (lost, spooled) = feed.abandon();
            drained.lost += lost;
            drained.spooled += spooled;
        }
        self.ending.cancel();
        wait_for(&self.workers, Instant::now() + BREAK_OFF);
        drained
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.shared.ending.store(true, Ordering::Release);
        self.shared.wake();
        for feed in &self.feeds {
            feed.abandon();
        }
        self.ending.cancel();
    }
}

/// A thread cannot be joined with a deadline.
fn wait_for(threads: &[JoinHandle<()>], deadline: Instant) {
    while threads.iter().any(|thread| !thread.is_finished()) && Instant::now() < deadline {
        std::thread::sleep(STEP);
    }
}

fn feed(config: &Config, sink: &config::Sink, metrics: &Metrics) -> Result<Feed, Error> {
    let name = sink.name();
    let spool = match sink.spools() {
        true => Some(open_spool(&config.spool.join(name), config.spool_bytes)?),
        false => None,
    };
    // From then on, events that a sink has not accepted survive a kill.
    let spill_after = config.flush_interval.max(Duration::from_secs(1));
    Ok(Feed::new(config.memory_bytes, spill_after, spool, metrics.of_sink(name)))
}

fn open_spool(path: &Path, bytes_max: u64) -> Result<Spool, Error> {
    let spool = Spool::open(path, bytes_max)
        .map_err(|reason| Error::Spool { path: path.display().to_string(), reason })?;
    if !spool.is_empty() {
        tracing::info!(spool = %path.display(), events = spool.events(), "events of an earlier run are queued on disk");
    }
    Ok(spool)
}

fn collect(
    (config, names): (&Config, Names),
    shared: &Arc<Shared>,
    feeds: &[Arc<Feed>],
    (threads, metrics): (&Threads, &Metrics),
) -> std::io::Result<JoinHandle<()>> {
    let run = wall();
    let writer = Writer::new(&config.node, run, names);
    let limits = Limits { events: config.batch_events, bytes: config.batch_bytes };
    let pace = (limits, config.flush_interval);
    let collector = Collector::new(shared.clone(), writer, feeds.to_vec(), pace, metrics, wall);
    let first = Record { at: run, event: Event::Started { version: config.version } };
    let collect = move |pulse: &Heartbeat| collector.run(first, pulse);
    let thread = threads.spawn(Kind::EventsCollector, "events-collect", collect)?;
    // Set only here.
    let _ = shared.collector.set(thread.thread().clone());
    Ok(thread)
}

/// A clock before 1970 counts as unset.
fn wall() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
