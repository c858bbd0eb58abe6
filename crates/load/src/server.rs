//! The server that is measured: one that runs already, or one started here from our own executable on a
//! folder and ports of its own, stopped and cleared away when it is dropped.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
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
const LOG_LINES_SHOWN: usize = 20;

pub(crate) struct Server {
    pub(crate) origin: Origin,
    pub(crate) key: String,
    pub(crate) jwt_secret: String,
    /// None where it is not known: then there are no figures of CPU and memory.
    pub(crate) process: Option<Process>,
    /// None where it is not known.
    pub(crate) admin: Option<Origin>,
    started: Option<Started>,
}

struct Started {
    /// Its parent is the program that measures.
    child: Child,
    folder: PathBuf,
    /// As it was started, and can be again.
    command: Command,
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
        })
    }

    fn start(common: &Common) -> Result<Self, Error> {
        let parent = common.data.clone().unwrap_or_else(std::env::temp_dir);
        let folder = parent.join(format!("noroshi-bench-{}", random_hex(8)?));
        let folder_error = |source| Error::Folder { path: folder.clone(), source };
        fs::create_dir_all(&folder).map_err(folder_error)?;
        let log = fs::File::create(folder.join("server.log")).map_err(folder_error)?;
        let log_too = log.try_clone().map_err(folder_error)?;
        let program = std::env::current_exe().map_err(Error::system("own executable"))?;
        let (key, jwt_secret) = (random_hex(16)?, random_hex(32)?);
        let (http, admin) = (free_port()?, free_port()?);
        let mut command = Command::new(program);
        command
            .args(["serve", "--dev", "--data"])
            .arg(folder.join("data"))
            .args(["--http", &format!("127.0.0.1:{http}"), "--admin", &format!("127.0.0.1:{admin}")])
            .args(common.set.iter().flat_map(|setting| ["--set", setting]))
            .env("NOROSHI_DEV_KEY", &key)
            .env("NOROSHI_DEV_JWT_SECRET", &jwt_secret)
            .current_dir(&folder) // a noroshi.toml in the caller's folder is not meant
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(log_too);
        let mut origin = Origin::parse(&format!("http://127.0.0.1:{http}"))?;
        let own = if common.tls { OwnCertificate::make(&folder).map(Some) } else { Ok(None) };
        let child = own.and_then(|own| {
            if let Some(own) = own {
                command.arg("--tls-cert").arg(own.certificate).arg("--tls-key").arg(own.key);
                origin.host = format!("{}:{http}", tls::OWN_NAME);
                origin.trust = Some(own.trust);
            }
            command.spawn().map_err(Error::system("starting the server"))
        });
        let child = match child {
            Ok(child) => child,
            Err(error) => {
                let _ = fs::remove_dir_all(&folder); // the failure to start is the news
                return Err(error);
            }
        };
        let admin = Origin::parse(&format!("http://127.0.0.1:{admin}"))?;
        let mut server = Self {
            origin,
            key,
            jwt_secret,
            process: Some(Process { pid: child.id() }),
            admin: Some(admin),
            started: Some(Started { child, folder, command }),
        };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// Whether it was started here.
    pub(crate) fn is_own(&self) -> bool {
        self.started.is_some()
    }

    /// Starts its own server again on the same data, with fresh memory.
    pub(crate) fn restart(&mut self) -> Result<(), Error> {
        let Some(started) = &mut self.started else { return Ok(()) };
        started.stop();
        started.child = started.command.spawn().map_err(Error::system("starting the server"))?;
        self.process = Some(Process { pid: started.child.id() });
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
        let started = self.started.as_mut()?;
        started.child.try_wait().ok().flatten().map(|status| status.to_string())
    }

    /// The end of its log, if it was started here.
    pub(crate) fn last_words(&self) -> String {
        let Some(started) = &self.started else { return String::new() };
        let log = fs::read(started.folder.join("server.log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
    }

    /// Named in the report.
    pub(crate) fn describe(&self) -> String {
        match &self.started {
            Some(started) => format!("started here, data in {}", started.folder.display()),
            None => self.origin.url(),
        }
    }

    /// Whether writing to its data folder costs what it costs in production; none if that is not known.
    pub(crate) fn data_in_memory(&self) -> Option<bool> {
        let mounts = fs::read_to_string("/proc/mounts").ok()?;
        Some(matches!(file_system(&mounts, &self.started.as_ref()?.folder)?, "tmpfs" | "ramfs"))
    }
}

impl Started {
    /// Asks it to end and waits; kills it if it does not.
    fn stop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM); // it may be gone already
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
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(mut started) = self.started.take() else { return };
        started.stop();
        if let Err(error) = fs::remove_dir_all(&started.folder) {
            eprintln!("cannot remove {}: {error}", started.folder.display());
        }
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
        let mounts = "/dev/vda / ext4 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n/dev/vdb /tmp/disk xfs rw 0 0\n";
        for (path, kind) in
            [("/home/a", "ext4"), ("/tmp/a", "tmpfs"), ("/tmp/disk/a", "xfs"), ("/tmpfile", "ext4")]
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
