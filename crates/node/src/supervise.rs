//! Ends the node when a required thread (`noroshi_supervision::Kind`) panics, ends early or stalls, so that the supervisor of
//! the process (systemd, Kubernetes) restarts it.
//!
//! ```text
//!   Heartbeat dropped by a panic ──┐
//!   a failed task ─────────────┼─► the first Failure ─► /readyz and /livez answer 503 at once
//!   watchdog finds a stall ────┘          │
//!                                         └─► watchdog: one log line ─► run: a bounded drain ─► exit code 70
//!                                                                 └──► the same exit code, if the drain hangs
//! ```
//!
//! The watchdog is a plain thread: it needs neither the runtime nor a lock that a working thread holds. It measures by the
//! monotonic clock how long a thread has been working without progress, and counts at most two ticks between two checks, so a
//! stopped process (SIGSTOP, a suspended machine) does not look stalled.

mod metrics;
mod stall;

use std::io;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use noroshi_supervision::{Failure, Kind, Sample, Threads, What};
use noroshi_telemetry::Registry;
use tokio::runtime::Handle;
use tokio::sync::watch;

use self::stall::{Stall, Stalls};
use crate::config::Config;

/// EX_SOFTWARE of sysexits.h: an internal failure, which a restart fixes.
pub(crate) const EXIT_CODE: u8 = 70;

/// Maximum drain of devices after a failure, during which the node may miss messages for some of them.
pub(crate) const DRAIN_MAX: Duration = Duration::from_secs(10);
/// Time for the rest of the drain.
pub(crate) const REST_MAX: Duration = Duration::from_secs(5);
/// Additional time for the log line and the exit.
const SLACK: Duration = Duration::from_secs(1);

/// Maximum drain of devices after a failure, within the configured deadline.
pub(crate) fn drain_max(config: &Config) -> Duration {
    config.gateway.drain.deadline.min(DRAIN_MAX)
}

/// How often the runtime reports that it runs tasks and timers.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// The running watchdog.
pub(crate) struct Supervisor {
    failed: watch::Receiver<bool>,
    threads: Threads,
}

/// Configuration of the watchdog.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Zero: stalls are not detected.
    pub(crate) stall: Duration,
    /// Maximum drain of devices after a failure, within the configured deadline.
    pub(crate) drain: Duration,
}

impl Supervisor {
    /// Registers metrics and starts counting panics.
    pub(crate) fn register(threads: &Threads, registry: &mut Registry) {
        noroshi_supervision::panics::count();
        metrics::register(threads, registry);
    }

    /// Starts the watchdog. Must be called inside the runtime to watch.
    pub(crate) fn start(threads: Threads, limits: Limits) -> io::Result<Self> {
        let (fail, failed) = watch::channel(false);
        let pulse = threads.register(Kind::Runtime, "runtime");
        tokio::spawn(async move {
            loop {
                pulse.working();
                tokio::time::sleep(HEARTBEAT).await;
            }
        });
        let watchdog = Watchdog { threads: threads.clone(), limits, runtime: Handle::current(), fail };
        std::thread::Builder::new().name("watchdog".to_owned()).spawn(move || watchdog.run())?;
        Ok(Self { failed, threads })
    }

    /// Resolves once a thread has failed and the failure is logged. Cancel-safe.
    pub(crate) async fn failed(&self) {
        if self.failed.clone().wait_for(|failed| *failed).await.is_err() {
            // The watchdog itself panicked, so no stall would be detected any longer.
            let (kind, what) = (Kind::Other, What::Panicked);
            let (thread, reason) = ("watchdog".to_owned(), what.to_string());
            log_failure(kind, &thread, &reason);
            self.threads.fail(Failure { kind, thread, what });
        }
    }

    pub(crate) fn failure(&self) -> Option<&Failure> {
        self.threads.failure()
    }

    /// A drain starts, so threads may end.
    pub(crate) fn expect_ends(&self) {
        self.threads.expect_ends();
    }

    /// A background task failed.
    pub(crate) fn task_failed(&self, task: &str) {
        let thread = format!("task-{task}");
        self.threads.fail(Failure { kind: Kind::Task, thread, what: What::Panicked });
    }
}

struct Watchdog {
    threads: Threads,
    limits: Limits,
    runtime: Handle,
    fail: watch::Sender<bool>,
}

impl Watchdog {
    fn run(self) {
        self.threads.wake_me();
        // Ten checks within the stall timeout, and at least one a second.
        let tick = match self.limits.stall {
            Duration::ZERO => Duration::from_secs(1),
            stall => (stall / 10).clamp(Duration::from_millis(100), Duration::from_secs(1)),
        };
        let (mut stalls, mut last) = (Stalls::new(self.limits.stall), Instant::now());
        #[cfg(debug_assertions)]
        let mut faults = faults::Faults::default();
        while self.threads.failure().is_none() {
            std::thread::park_timeout(tick);
            #[cfg(debug_assertions)]
            faults.check(&self.runtime);
            let elapsed = last.elapsed().min(tick * 2);
            last = Instant::now();
            let mut samples = self.threads.sample();
            samples.extend(workers(&self.runtime));
            for stall in stalls.check(&samples, elapsed) {
                self.note(&stall);
            }
            for (name, busy) in stalls.busy() {
                self.threads.note_busy(name, busy);
            }
        }
        self.end();
    }

    fn note(&self, stall: &Stall) {
        let Stall { kind, name, busy } = stall;
        if !self.threads.stalled(*kind, name, *busy) {
            let (kind, seconds) = (kind.name(), busy.as_secs());
            tracing::warn!(
                thread = name,
                kind,
                seconds,
                "a thread makes no progress; the node continues without it"
            );
        }
    }

    /// Logs the failure, lets the node drain, and ends the process if the drain hangs.
    fn end(&self) {
        let Some(failure) = self.threads.failure().cloned() else { return };
        // Writing to standard error may hang: waits at most `SLACK`.
        let (logged, is_logged) = mpsc::sync_channel(1);
        let log = move || {
            log_failure(failure.kind, &failure.thread, &failure.what.to_string());
            let _ = logged.try_send(());
        };
        if std::thread::Builder::new().name("watchdog-log".to_owned()).spawn(log).is_ok() {
            // The drain starts, whether logged or not.
            let _ = is_logged.recv_timeout(SLACK);
        }
        self.fail.send_replace(true);
        std::thread::sleep(self.limits.drain + REST_MAX + SLACK);
        exit();
    }
}

fn log_failure(kind: Kind, thread: &str, reason: &str) {
    let (kind, exit_code) = (kind.name(), EXIT_CODE);
    tracing::error!(thread, kind, reason, exit_code, "a thread failed; the node drains and exits");
}

/// Ends the process at once, without destructors, which could hang as well. Accepted data is on disk.
#[allow(clippy::exit)] // A hanging thread leaves no other way.
pub(crate) fn exit() -> ! {
    std::process::exit(i32::from(EXIT_CODE))
}

/// Progress of the runtime's threads: the runtime counts how often each parked and how long each was busy.
fn workers(runtime: &Handle) -> Vec<Sample> {
    let metrics = runtime.metrics();
    let sample = |worker| {
        let parks = metrics.worker_park_unpark_count(worker);
        let busy_ms = metrics.worker_total_busy_duration(worker).as_millis();
        Sample {
            kind: Kind::Runtime,
            name: format!("noroshi-worker-{worker}"),
            // Neither decreases, so the sum changes if either does.
            count: parks.wrapping_add(u64::try_from(busy_ms).unwrap_or(u64::MAX)),
            // Tokio: an even count is an active worker.
            is_working: parks.is_multiple_of(2),
            busy: Duration::ZERO,
        }
    };
    (0..metrics.num_workers()).map(sample).collect()
}

/// Faults that tests inject, in debug builds only.
#[cfg(debug_assertions)]
mod faults {
    use noroshi_supervision::fault;
    use tokio::runtime::Handle;

    #[derive(Default)]
    pub(super) struct Faults {
        last: String,
    }

    impl Faults {
        /// Arms the fault in the file, once for each change.
        pub(super) fn check(&mut self, runtime: &Handle) {
            let Some(text) = fault::file().and_then(|file| std::fs::read_to_string(file).ok()) else {
                return;
            };
            if text != self.last {
                fault::arm(&text);
                self.last = text;
                if fault::is_armed("worker") {
                    runtime.spawn(async { fault::strike("worker") });
                }
                if fault::is_armed("workers") {
                    for _ in 0..runtime.metrics().num_workers() {
                        runtime.spawn(async { fault::strike("workers") });
                    }
                }
            }
        }
    }
}
