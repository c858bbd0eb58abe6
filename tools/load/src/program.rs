//! Programs that a measurement starts. They are stopped and their folders removed when their owner is
//! dropped, or by [`abandon`] after a signal. Their output goes to a log in their folder.

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

/// The signals that stop a program: gracefully, and immediately.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signals {
    pub(crate) stop: Signal,
    pub(crate) end: Signal,
}

impl Signals {
    pub(crate) const USUAL: Self = Self { stop: Signal::TERM, end: Signal::KILL };
}

/// A program with its own folder.
pub(crate) struct Owned {
    started: Arc<Mutex<Started>>,
    folder: PathBuf,
}

struct Started {
    /// Its parent is the measuring program.
    child: Child,
    folder: PathBuf,
    /// As started, for a restart.
    command: Command,
    signals: Signals,
    /// Stopped, with its folder removed.
    is_cleared: bool,
    is_asked_to_stop: bool,
}

/// Programs that were started and not removed. [`abandon`] locks it until the exit. A program's lock may be
/// taken while this one is held, not vice versa.
static STARTED: Mutex<Vec<Arc<Mutex<Started>>>> = Mutex::new(Vec::new());

/// Folders of other started programs, which end on their own: [`abandon`] removes them too.
static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Ends this process during a measurement, and removes started servers and folders, which destructors would
/// do otherwise. Workers and the floor end on their own.
#[allow(clippy::exit)] // called for a signal, in parallel to the measuring thread
pub fn abandon(exit_code: i32) -> ! {
    let all = lock(&STARTED);
    // Nodes before their engines, and all of them before the first one is waited for.
    for started in all.iter().rev() {
        let mut started = lock(started);
        let end = started.signals.end; // neither devices nor data need a graceful end
        started.signal(end);
    }
    all.iter().rev().for_each(|started| lock(started).clear_away());
    for folder in lock(&FOLDERS).iter() {
        let _ = fs::remove_dir_all(folder); // it may be removed already
    }
    // `all` is still locked, so the measuring thread neither starts a program nor reports a failure.
    std::process::exit(exit_code)
}

/// Replaces this process with another command of this executable, which ends when the measuring process is
/// killed. Returns only on failure.
pub(crate) fn run_bound(words: &[OsString]) -> Error {
    let program = std::env::current_exe().map_err(Error::system("own executable"));
    // Preserved across exec: PR_SET_PDEATHSIG(2const).
    match program.and_then(|program| Process::end_with_parent(Signal::TERM).map(|()| program)) {
        Ok(program) => Error::system("own executable")(Command::new(program).args(words).exec()),
        Err(error) => error,
    }
}

/// Registers a folder that [`abandon`] removes if its owner cannot.
pub(crate) fn remember_folder(path: PathBuf) {
    lock(&FOLDERS).push(path);
}

/// The guarded values are consistent between any two statements, so a panic elsewhere leaves them usable.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Owned {
    /// Creates `folder` and starts the program that `prepare` configures; removes the folder on failure.
    pub(crate) fn start(
        folder: &Path,
        signals: Signals,
        prepare: impl FnOnce() -> Result<Command, Error>,
    ) -> Result<Self, Error> {
        let mut all = lock(&STARTED);
        let started = match spawn(folder, signals, prepare) {
            Ok(started) => Arc::new(Mutex::new(started)),
            Err(error) => {
                let _ = fs::remove_dir_all(folder); // the failure to start is the error to report
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

    /// Stops and restarts the program on the same folder.
    pub(crate) fn restart(&self) -> Result<(), Error> {
        lock(&self.started).restart()
    }

    /// Asks the program to stop gracefully, without waiting.
    pub(crate) fn ask_to_stop(&self) {
        let mut started = lock(&self.started);
        let stop = started.signals.stop;
        started.is_asked_to_stop = true;
        started.signal(stop);
    }

    /// Or killed; until it restarts.
    pub(crate) fn is_asked_to_stop(&self) -> bool {
        lock(&self.started).is_asked_to_stop
    }

    /// Kills the program with SIGKILL as part of a measurement, and waits for its end.
    pub(crate) fn kill(&self) {
        let mut started = lock(&self.started);
        started.is_asked_to_stop = true;
        started.signal(Signal::KILL);
        let _ = started.child.wait(); // killed on purpose
    }

    /// The exit status, if it has exited.
    pub(crate) fn exited(&self) -> Option<String> {
        lock(&self.started).child.try_wait().ok().flatten().map(|status| status.to_string())
    }

    /// The end of its log.
    pub(crate) fn log_end(&self) -> String {
        let log = fs::read(self.folder.join(LOG)).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
    }

    /// Waits until `is_ready`; fails if the program exits or `timeout` passes.
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
                return Err(Error::Start { why: format!("it exited with {status}"), log: self.log_end() });
            }
            if clock::now_ns() > deadline_ns {
                let why = format!("it was not ready after {} s", timeout.as_secs());
                return Err(Error::Start { why, log: self.log_end() });
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
    let folder = folder.to_owned();
    Ok(Started { child, folder, command, signals, is_cleared: false, is_asked_to_stop: false })
}

impl Started {
    fn restart(&mut self) -> Result<(), Error> {
        self.stop();
        self.child = self.command.spawn().map_err(Error::system("starting a server"))?;
        self.is_asked_to_stop = false;
        Ok(())
    }

    /// Does nothing if it has exited: its pid may have been reused.
    fn signal(&mut self, signal: Signal) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process(Pid::from_child(&self.child), signal); // it may have exited since
        }
    }

    /// Stops it gracefully and waits; kills it after a timeout.
    fn stop(&mut self) {
        self.signal(self.signals.stop);
        let deadline_ns = clock::now_ns() + clock::ns(STOP_TIMEOUT);
        while matches!(self.child.try_wait(), Ok(None)) {
            if clock::now_ns() > deadline_ns {
                eprintln!("a server did not stop within {} s and is killed", STOP_TIMEOUT.as_secs());
                self.signal(self.signals.end);
                let _ = self.child.wait(); // stopped on purpose
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
