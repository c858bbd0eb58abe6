//! Programs that a measurement starts: stopped, and their folders cleared away, when their owner is dropped, or by
//! [`abandon`] where a signal ends the measurement. What they say goes to a log in their folder.

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::process::Process;
use crate::{Error, clock};

const STOP_TIMEOUT: Duration = Duration::from_secs(30);
pub(crate) const POLL: Duration = Duration::from_millis(20);
const LOG: &str = "server.log";
const LOG_LINES_SHOWN: usize = 20;

/// How a program is told to end, and how it is ended if that does not help or nobody waits for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signals {
    pub(crate) stop: Signal,
    pub(crate) end: Signal,
}

impl Signals {
    pub(crate) const USUAL: Self = Self { stop: Signal::TERM, end: Signal::KILL };
}

/// A program with a folder of its own.
pub(crate) struct Owned {
    started: Arc<Mutex<Started>>,
    folder: PathBuf,
}

struct Started {
    /// Its parent is the program that measures.
    child: Child,
    folder: PathBuf,
    /// As it was started, and can be again.
    command: Command,
    signals: Signals,
    /// Stopped, and its folder gone.
    is_cleared: bool,
}

/// What was started here and is not cleared away. Held while one starts and to the end by [`abandon`]; the
/// lock of a program may be taken under it, not the other way round.
static STARTED: Mutex<Vec<Arc<Mutex<Started>>>> = Mutex::new(Vec::new());

/// Folders of others that were started here, which end by themselves: removed by [`abandon`] too.
static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Ends this process amid a measurement, without a server or a folder of its own left behind: those that
/// are dropped on the usual way are not. Workers and the floor end by themselves.
#[allow(clippy::exit)] // called for a signal, beside the thread that measures
pub fn abandon(exit_code: i32) -> ! {
    let all = lock(&STARTED);
    // Nodes before the engines that they would miss.
    for started in all.iter().rev() {
        let mut started = lock(started);
        let end = started.signals.end; // its devices need no farewell, nor its data
        started.signal(end);
        started.clear_away();
    }
    for folder in lock(&FOLDERS).iter() {
        let _ = fs::remove_dir_all(folder); // it may be gone already
    }
    // `all` is still held, so whoever measures neither starts another nor reports that this one is gone.
    std::process::exit(exit_code)
}

/// Becomes another command of this executable, which ends when whoever measures is killed; an error if that
/// cannot be.
pub(crate) fn run_bound(words: &[OsString]) -> Error {
    let program = std::env::current_exe().map_err(Error::system("own executable"));
    // Kept when the program changes: PR_SET_PDEATHSIG(2const).
    match program.and_then(|program| Process::end_with_parent(Signal::TERM).map(|()| program)) {
        Ok(program) => Error::system("own executable")(Command::new(program).args(words).exec()),
        Err(error) => error,
    }
}

/// A folder that is removed by [`abandon`] if its owner cannot.
pub(crate) fn remember_folder(path: PathBuf) {
    lock(&FOLDERS).push(path);
}

/// What these locks guard is whole between any two statements, so a panic elsewhere leaves it usable.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Owned {
    /// Makes `folder` and starts the program that `prepare` completes; if that fails the folder is gone again.
    pub(crate) fn start(
        folder: &Path,
        signals: Signals,
        prepare: impl FnOnce() -> Result<Command, Error>,
    ) -> Result<Self, Error> {
        let mut all = lock(&STARTED);
        let started = match spawn(folder, signals, prepare) {
            Ok(started) => Arc::new(Mutex::new(started)),
            Err(error) => {
                let _ = fs::remove_dir_all(folder); // the failure to start is the news
                return Err(error);
            }
        };
        all.push(started.clone());
        Ok(Self { started, folder: folder.to_owned() })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn process(&self) -> Process {
        Process { pid: lock(&self.started).child.id() }
    }

    /// Stopped and started again as it was, on the same folder.
    pub(crate) fn restart(&self) -> Result<(), Error> {
        lock(&self.started).restart()
    }

    /// SIGKILL as part of a measurement; it is gone afterwards.
    pub(crate) fn kill(&self) {
        let mut started = lock(&self.started);
        started.signal(Signal::KILL);
        let _ = started.child.wait(); // its end was asked for
    }

    /// How it ended, if it did.
    pub(crate) fn exited(&self) -> Option<String> {
        lock(&self.started).child.try_wait().ok().flatten().map(|status| status.to_string())
    }

    /// The end of its log.
    pub(crate) fn last_words(&self) -> String {
        let log = fs::read(self.folder.join(LOG)).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
    }

    /// Waits until `is_ready`; an error if it ends or takes longer than `timeout`.
    pub(crate) fn wait_until(
        &self,
        timeout: Duration,
        mut is_ready: impl FnMut() -> bool,
    ) -> Result<(), Error> {
        let deadline_ns = clock::now_ns() + clock::ns(timeout);
        loop {
            if is_ready() {
                return Ok(());
            }
            if let Some(status) = self.exited() {
                return Err(Error::Start { why: format!("it ended with {status}"), log: self.last_words() });
            }
            if clock::now_ns() > deadline_ns {
                let why = format!("it is not ready after {} s", timeout.as_secs());
                return Err(Error::Start { why, log: self.last_words() });
            }
            std::thread::sleep(POLL);
        }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        lock(&self.started).clear_away();
        lock(&STARTED).retain(|other| !Arc::ptr_eq(other, &self.started));
    }
}

fn spawn(
    folder: &Path,
    signals: Signals,
    prepare: impl FnOnce() -> Result<Command, Error>,
) -> Result<Started, Error> {
    let folder_error = |source| Error::Folder { path: folder.to_owned(), source };
    fs::create_dir_all(folder).map_err(folder_error)?;
    let mut command = prepare()?;
    let log = fs::File::create(folder.join(LOG)).map_err(folder_error)?;
    let log_too = log.try_clone().map_err(folder_error)?;
    command.stdin(Stdio::null()).stdout(log).stderr(log_too);
    let child = command.spawn().map_err(Error::system("starting a server"))?;
    Ok(Started { child, folder: folder.to_owned(), command, signals, is_cleared: false })
}

impl Started {
    fn restart(&mut self) -> Result<(), Error> {
        self.stop();
        self.child = self.command.spawn().map_err(Error::system("starting a server"))?;
        Ok(())
    }

    /// Nothing happens to one that has ended: its number may be another process's by now.
    fn signal(&mut self, signal: Signal) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process(Pid::from_child(&self.child), signal); // it may be gone since
        }
    }

    /// Asks it to end and waits; kills it if it does not.
    fn stop(&mut self) {
        self.signal(self.signals.stop);
        let deadline_ns = clock::now_ns() + clock::ns(STOP_TIMEOUT);
        while matches!(self.child.try_wait(), Ok(None)) {
            if clock::now_ns() > deadline_ns {
                eprintln!("a server did not stop within {} s and is killed", STOP_TIMEOUT.as_secs());
                self.signal(self.signals.end);
                let _ = self.child.wait(); // its end was asked for
                break;
            }
            std::thread::sleep(POLL);
        }
    }

    fn clear_away(&mut self) {
        if std::mem::replace(&mut self.is_cleared, true) {
            return;
        }
        self.stop();
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            eprintln!("cannot remove {}: {error}", self.folder.display());
        }
    }
}
