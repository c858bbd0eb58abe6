//! The CPU profile: a timer of the process's CPU time (`ITIMER_PROF`) sends SIGPROF to whatever thread runs, and the
//! handler of the crate `pprof` notes that thread's stack.
//!
//! The handler takes no lock that it could wait for and allocates nothing: where it cannot have its own table at once
//! the sample is left out. Stacks are unwound by the tables for exceptions (`framehop`), since a walk along frame
//! pointers does not see the function that runs, nor who called into libc. The one thing that handler would allocate
//! for, those tables, it makes when it runs first: [`Process::warm`] lets that be on a thread which holds nothing.
//!
//! System calls that a signal interrupts are begun anew (`SA_RESTART`), but those that wait for events: whoever calls
//! them has to take EINTR. A child process inherits no timer.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use ::pprof::{ProfilerGuardBuilder, UnresolvedReport};
use crossbeam_channel::{Receiver, RecvTimeoutError};
use nix::sys::signal::{Signal, raise};
use nix::time::{ClockId, clock_gettime};
use parking_lot::Mutex;
use tokio::sync::{OwnedMutexGuard, oneshot};

use crate::pprof::{Kind, Stack, encode};
use crate::profiler::{Ask, Detail, Error, Taken};
use crate::symbol::Symbols;

/// pprof's table is read by a recursion as deep as it has buckets, 4,096.
const STACK_BYTES: usize = 8 << 20;

/// Guards that the sampler, which is the process's, is made ready once.
static WARM: Mutex<bool> = Mutex::new(false);

/// The folder is there; taken under [`WARM`] or alone.
static PREPARED: Mutex<bool> = Mutex::new(false);

/// What lasts from one profile to the next.
pub(crate) struct Process {
    folder: PathBuf,
    /// Guards the tables of names. No other lock under it.
    pub(crate) symbols: Mutex<Symbols>,
}

impl Process {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder, symbols: Mutex::default() }
    }

    /// Where files of the samplers go, before the first of them.
    pub(crate) fn prepare(&self) -> Result<(), Error> {
        let mut prepared = PREPARED.lock();
        if *prepared {
            return Ok(());
        }
        let failed = |error: std::io::Error| {
            Error::Failed(format!("{} cannot be written: {error}", self.folder.display()))
        };
        // Stacks that its table has no place for are written to a file, which lasts as long as the process.
        match std::fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
            _ => std::fs::create_dir_all(&self.folder).map_err(failed)?,
        }
        // Somebody else's choice is as good.
        let _ = tempfile::env::override_temp_dir(&self.folder);
        *prepared = true;
        Ok(())
    }

    /// Before the first profile of all.
    fn warm(&self) -> Result<(), Error> {
        let mut warm = WARM.lock();
        if *warm {
            return Ok(());
        }
        self.prepare()?;
        // Once a second of CPU time: the signal that is raised here comes first.
        let guard = start(1)?;
        raise(Signal::SIGPROF).map_err(|error| Error::Failed(error.to_string()))?;
        drop(guard);
        *warm = true;
        Ok(())
    }
}

/// `turn` is given back when the samples are there; what is made of them comes after.
pub(crate) async fn take(
    process: Arc<Process>,
    turn: OwnedMutexGuard<()>,
    ask: Ask,
    detail: Detail,
    end: impl Future<Output = ()>,
) -> Result<Taken, Error> {
    let (stop, stopped) = crossbeam_channel::bounded(1);
    let (done, mut taken) = oneshot::channel();
    let thread = std::thread::Builder::new().name("noroshi-profile".to_owned()).stack_size(STACK_BYTES);
    thread
        .spawn(move || {
            // Nobody may be left to hear it.
            let _ = done.send(run(&process, turn, ask, detail, &stopped));
        })
        .map_err(|error| Error::Failed(error.to_string()))?;
    let ended = tokio::select! {
        result = &mut taken => result,
        () = end => {
            // It may have ended by itself.
            let _ = stop.try_send(());
            taken.await
        }
    };
    ended.unwrap_or_else(|_| Err(Error::Failed("the sampler failed".to_owned())))
}

fn run(
    process: &Process,
    turn: OwnedMutexGuard<()>,
    ask: Ask,
    detail: Detail,
    stopped: &Receiver<()>,
) -> Result<Taken, Error> {
    process.warm()?;
    let (from, began) = (SystemTime::now(), Instant::now());
    let guard = start(ask.hz)?;
    if let Err(RecvTimeoutError::Disconnected) = stopped.recv_timeout(ask.duration) {
        return Err(Error::Failed("nobody waits for it any more".to_owned()));
    }
    let report = guard.report().build_unresolved();
    drop(guard);
    let lasted = began.elapsed();
    drop(turn);
    let report = report.map_err(|error| Error::Failed(error.to_string()))?;
    let kind = Kind::Cpu { period: Duration::from_secs(1) / ask.hz };
    let stacks = stacks(&report);
    let pprof = encode(kind, &stacks, &mut process.symbols.lock(), detail, (from, lasted))?;
    Ok(Taken { pprof, stacks: stacks.len(), from, until: from + lasted, cost: thread_time() })
}

/// CPU time of this thread so far.
pub(crate) fn thread_time() -> Duration {
    // Every Linux has that clock.
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Without the lists of symbols that pprof would look up itself: each address of each stack anew.
fn stacks(report: &UnresolvedReport) -> Vec<Stack> {
    // Threads of one name are one: what they do is the same.
    let mut stacks: HashMap<(Vec<usize>, String), i64> = HashMap::new();
    for (sampled, count) in &report.data {
        let addresses: Vec<usize> = sampled.frames.iter().map(|frame| frame.ip).collect();
        let name = &sampled.thread_name[..sampled.thread_name_length.min(sampled.thread_name.len())];
        let thread = String::from_utf8_lossy(name).into_owned();
        *stacks.entry((addresses, thread)).or_default() += i64::try_from(*count).unwrap_or(i64::MAX);
    }
    stacks
        .into_iter()
        .map(|((addresses, thread), value)| Stack { addresses, thread: Some(thread), value })
        .collect()
}

fn start(hz: u32) -> Result<::pprof::ProfilerGuard<'static>, Error> {
    let hz = i32::try_from(hz.max(1)).unwrap_or(i32::MAX);
    ProfilerGuardBuilder::default().frequency(hz).build().map_err(|error| match error {
        ::pprof::Error::Running => Error::Busy,
        other => Error::Failed(other.to_string()),
    })
}
