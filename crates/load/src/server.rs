//! The server that is measured: one that runs already, or one started here from our own executable on a
//! folder and ports of its own, stopped and cleared away when it is dropped, or by [`abandon`] where a signal
//! ends the measurement.

use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};
use rustix::process::{Pid, Signal, kill_process};

use crate::args::Common;
use crate::http::{Client, Origin, Request};
use crate::process::Process;
use crate::tls::{self, OwnCertificate, Trust};
use crate::{Error, clock};

const START_TIMEOUT: Duration = Duration::from_secs(30);
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);
/// Below the ports that the kernel gives to outgoing connections: those of the devices must not take it.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
const LOG: &str = "server.log";
const LOG_LINES_SHOWN: usize = 20;

pub(crate) struct Server {
    pub(crate) origin: Origin,
    pub(crate) key: String,
    pub(crate) jwt_secret: String,
    /// None where it is not known: then there are no figures of CPU and memory.
    pub(crate) process: Option<Process>,
    /// None where it is not known.
    pub(crate) admin: Option<Origin>,
    started: Option<Arc<Mutex<Started>>>,
    /// Of the one that was started here.
    folder: Option<PathBuf>,
}

struct Started {
    /// Its parent is the program that measures.
    child: Child,
    folder: PathBuf,
    /// As it was started, and can be again.
    command: Command,
    /// Stopped, and its folder gone.
    is_cleared: bool,
}

/// What was started here and is not cleared away. Held while one starts and to the end by [`abandon`]; the
/// lock of a server may be taken under it, not the other way round.
static STARTED: Mutex<Vec<Arc<Mutex<Started>>>> = Mutex::new(Vec::new());

/// Folders of others that were started here, which end by themselves: removed by [`abandon`] too.
static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Ends this process amid a measurement, without a server or a folder of its own left behind: those that
/// are dropped on the usual way are not. Workers and the floor end by themselves.
#[allow(clippy::exit)] // called for a signal, beside the thread that measures
pub fn abandon(exit_code: i32) -> ! {
    let all = lock(&STARTED);
    for started in all.iter() {
        let mut started = lock(started);
        let _ = started.child.kill(); // its devices need no farewell, nor its data; it may be gone already
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

/// What these locks guard is whole between any two statements, so a panic elsewhere leaves it usable.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    /// Finds the server of `common`, or starts one, and waits until it takes traffic.
    pub(crate) fn open(common: &Common) -> Result<Self, Error> {
        match &common.server {
            Some(url) => Self::attach(common, url),
            None => Self::start(common),
        }
    }

    fn attach(common: &Common, url: &str) -> Result<Self, Error> {
        let process = common.pid.map(Process::running).transpose()?;
        let admin = common.admin.as_deref().map(Origin::parse).transpose()?;
        if let Some(admin) = &admin {
            Client::new(admin.clone())?.expect_success(readyz(), b"")?;
        }
        let mut origin = Origin::parse(url)?;
        if let Some(path) = &common.ca {
            let trust = origin.trust.as_mut();
            *trust.ok_or_else(|| Error::Usage("--ca is for a --server that is https://…".into()))? =
                Trust::read(path)?;
        }
        let said = |value: &Option<String>| value.clone().unwrap_or_default();
        Ok(Self {
            origin,
            key: said(&common.key),
            jwt_secret: said(&common.jwt_secret),
            process,
            admin,
            started: None,
            folder: None,
        })
    }

    fn start(common: &Common) -> Result<Self, Error> {
        let parent = common.data.clone().unwrap_or_else(std::env::temp_dir);
        let folder = parent.join(format!("noroshi-bench-{}", random_hex(8)?));
        let program = std::env::current_exe().map_err(Error::system("own executable"))?;
        let (key, jwt_secret) = (random_hex(16)?, random_hex(32)?);
        let (http, admin) = (free_port()?, free_port()?);
        let mut origin = Origin::parse(&format!("http://127.0.0.1:{http}"))?;
        let admin_origin = Origin::parse(&format!("http://127.0.0.1:{admin}"))?;
        let mut command = Command::new(program);
        command
            .args(["bench", "bound", "serve", "--dev", "--data"])
            .arg(folder.join("data"))
            .args(["--http", &format!("127.0.0.1:{http}"), "--admin", &format!("127.0.0.1:{admin}")])
            .args(common.set.iter().flat_map(|setting| ["--set", setting]))
            .env("NOROSHI_DEV_KEY", &key)
            .env("NOROSHI_DEV_JWT_SECRET", &jwt_secret)
            .current_dir(&folder) // a noroshi.toml in the caller's folder is not meant
            .stdin(Stdio::null());
        let mut all = lock(&STARTED);
        let started = match spawn(command, &folder, &mut origin, common.tls) {
            Ok(started) => started,
            Err(error) => {
                let _ = fs::remove_dir_all(&folder); // the failure to start is the news
                return Err(error);
            }
        };
        let process = Process { pid: started.child.id() };
        let started = Arc::new(Mutex::new(started));
        all.push(started.clone());
        drop(all);
        let mut server = Self {
            origin,
            key,
            jwt_secret,
            process: Some(process),
            admin: Some(admin_origin),
            started: Some(started),
            folder: Some(folder),
        };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// What its admin address asks for, if it was started here.
    pub(crate) fn operator_token(&self) -> Option<String> {
        let path = self.folder.as_ref()?.join("data").join("operator.token");
        fs::read_to_string(path).ok().map(|token| token.trim().to_owned())
    }

    /// Whether it was started here.
    pub(crate) fn is_own(&self) -> bool {
        self.started.is_some()
    }

    /// Starts its own server again on the same data, with fresh memory.
    pub(crate) fn restart(&mut self) -> Result<(), Error> {
        let Some(started) = &self.started else { return Ok(()) };
        self.process = Some(lock(started).restart()?);
        self.wait_until_ready()
    }

    fn wait_until_ready(&mut self) -> Result<(), Error> {
        let Some(admin) = &self.admin else { return Ok(()) };
        let deadline_ns = clock::now_ns() + clock::ns(START_TIMEOUT);
        let mut client = Client::new(admin.clone())?;
        loop {
            if client.request(readyz(), b"").is_ok_and(|response| response.status == 200) {
                return Ok(());
            }
            if let Some(status) = self.exited() {
                return Err(Error::Start { why: format!("it ended with {status}"), log: self.last_words() });
            }
            if clock::now_ns() > deadline_ns {
                let why = format!("it is not ready after {} s", START_TIMEOUT.as_secs());
                return Err(Error::Start { why, log: self.last_words() });
            }
            std::thread::sleep(POLL);
        }
    }

    /// How it ended, if it was started here and did.
    pub(crate) fn exited(&mut self) -> Option<String> {
        let mut started = lock(self.started.as_ref()?);
        started.child.try_wait().ok().flatten().map(|status| status.to_string())
    }

    /// The end of its log, if it was started here.
    pub(crate) fn last_words(&self) -> String {
        let Some(folder) = &self.folder else { return String::new() };
        let log = fs::read(folder.join(LOG)).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
    }

    /// Named in the report.
    pub(crate) fn describe(&self) -> String {
        match &self.folder {
            Some(folder) => format!("started here, data in {}", folder.display()),
            None => self.origin.url(),
        }
    }

    /// Whether writing to its data folder costs what it costs in production; none if that is not known.
    pub(crate) fn data_in_memory(&self) -> Option<bool> {
        let mounts = fs::read_to_string("/proc/mounts").ok()?;
        Some(matches!(file_system(&mounts, self.folder.as_ref()?)?, "tmpfs" | "ramfs"))
    }
}

/// Makes the folder and starts the server on it, with a certificate made for it if it is to speak TLS, which
/// `origin` then says.
fn spawn(mut command: Command, folder: &Path, origin: &mut Origin, tls: bool) -> Result<Started, Error> {
    let folder_error = |source| Error::Folder { path: folder.to_owned(), source };
    fs::create_dir_all(folder).map_err(folder_error)?;
    let log = fs::File::create(folder.join(LOG)).map_err(folder_error)?;
    let log_too = log.try_clone().map_err(folder_error)?;
    command.stdout(log).stderr(log_too);
    if tls {
        let own = OwnCertificate::make(folder)?;
        command.arg("--tls-cert").arg(own.certificate).arg("--tls-key").arg(own.key);
        origin.host = format!("{}:{}", tls::OWN_NAME, origin.address.port());
        origin.trust = Some(own.trust);
    }
    let child = command.spawn().map_err(Error::system("starting the server"))?;
    Ok(Started { child, folder: folder.to_owned(), command, is_cleared: false })
}

impl Started {
    fn restart(&mut self) -> Result<Process, Error> {
        self.stop();
        self.child = self.command.spawn().map_err(Error::system("starting the server"))?;
        Ok(Process { pid: self.child.id() })
    }

    /// Asks it to end and waits; kills it if it does not.
    fn stop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return; // its number may be another process's by now
        }
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM); // it may be gone since
        let deadline_ns = clock::now_ns() + clock::ns(STOP_TIMEOUT);
        while matches!(self.child.try_wait(), Ok(None)) {
            if clock::now_ns() > deadline_ns {
                eprintln!("the server did not stop within {} s and is killed", STOP_TIMEOUT.as_secs());
                let _ = self.child.kill();
                let _ = self.child.wait();
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

impl Drop for Server {
    fn drop(&mut self) {
        let Some(started) = self.started.take() else { return };
        lock(&started).clear_away();
        lock(&STARTED).retain(|other| !Arc::ptr_eq(other, &started));
    }
}

fn readyz() -> Request<'static> {
    Request { method: "GET", path: "/readyz", key: "", content_type: "text/plain" }
}

/// The file system that `path` is on: that of the longest mount point above it.
fn file_system<'a>(mounts: &'a str, path: &Path) -> Option<&'a str> {
    let mounted = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    mounted
        .filter(|(point, _)| path.starts_with(point))
        .max_by_key(|(point, _)| point.len())
        .map(|(_, kind)| kind)
}

/// A port of 127.0.0.1 that nobody listens on now.
pub(crate) fn free_port() -> Result<u16, Error> {
    let mut last = std::io::Error::from(std::io::ErrorKind::AddrInUse);
    for _ in 0..100 {
        let [a, b, ..] = random_bytes()?;
        let port = PORTS.start + u16::from_be_bytes([a, b]) % (PORTS.end - PORTS.start);
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(_) => return Ok(port),
            Err(error) => last = error,
        }
    }
    Err(Error::System { what: "a free port from 20000 to 31999", source: last })
}

/// A new folder in the system's temporary one; whoever asks removes it, or [`abandon`].
pub(crate) fn temporary_folder() -> Result<PathBuf, Error> {
    let path = std::env::temp_dir().join(format!("noroshi-bench-{}", random_hex(8)?));
    match fs::create_dir_all(&path) {
        Ok(()) => {
            lock(&FOLDERS).push(path.clone());
            Ok(path)
        }
        Err(source) => Err(Error::Folder { path, source }),
    }
}

/// A number of no meaning.
pub(crate) fn random_u32() -> Result<u32, Error> {
    let [a, b, c, d, ..] = random_bytes()?;
    Ok(u32::from_be_bytes([a, b, c, d]))
}

fn random_bytes() -> Result<[u8; 32], Error> {
    let mut bytes = [0; 32];
    let no_random = |_| Error::System { what: "randomness", source: std::io::ErrorKind::Other.into() };
    SystemRandom::new().fill(&mut bytes).map_err(no_random)?;
    Ok(bytes)
}

/// `bytes` random bytes, at most 32, as twice as many digits.
fn random_hex(bytes: usize) -> Result<String, Error> {
    Ok(random_bytes()?.iter().take(bytes).map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_system_is_that_of_the_nearest_mount() {
        let mounts = "/dev/vda / ext4 rw 0 0\ntmpfs /fast tmpfs rw 0 0\n/dev/vdb /fast/disk xfs rw 0 0\n";
        for (path, kind) in
            [("/slow/a", "ext4"), ("/fast/a", "tmpfs"), ("/fast/disk/a", "xfs"), ("/faster", "ext4")]
        {
            assert_eq!(file_system(mounts, Path::new(path)), Some(kind), "{path}");
        }
        assert_eq!(file_system("", Path::new("/")), None);
    }

    #[test]
    fn ports_and_secrets_are_drawn_anew() {
        assert!(PORTS.contains(&free_port().unwrap()));
        assert_eq!(random_hex(16).unwrap().len(), 32);
        assert_ne!(random_hex(16).unwrap(), random_hex(16).unwrap());
    }
}
