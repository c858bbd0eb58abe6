//! Starts installed PostgreSQL and Redis programs on their own ports and folders. PostgreSQL is durable
//! (`fsync`); Redis stores nothing on disk, since its data may be lost.
//!
//! `setpriv` of util-linux starts both, so that they end with the measurement however it ends, and so that
//! PostgreSQL, which refuses to run as root, runs as its system user. `nice` starts them first if they share the cores
//! with many nodes ([`Priority`]).

use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Signal, getuid};

use crate::Error;
use crate::program::{Owned, Signals};
use crate::redis::Redis;
use crate::server::{START_TIMEOUT, free_port};

/// The system user of Debian's package and most others.
const POSTGRES_USER: &str = "postgres";

/// The share of the cores that engines get.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Priority {
    #[default]
    Usual,
    /// Ten times the share of another process, if this user may give it. With a hundred busy processes on two cores,
    /// Redis otherwise answers after seconds, and nodes lose their leases.
    First,
}

impl Priority {
    /// setpriority(2): a step of 1 is worth a factor of 1.25.
    const NICE: &str = "-10";

    fn command(self, program: &Path) -> Result<Command, Error> {
        if self == Self::Usual {
            return Ok(Command::new(program));
        }
        // Without the right to do so it warns and starts the program all the same.
        let mut command = Command::new(find("nice")?);
        command.args(["-n", Self::NICE]).arg(program);
        Ok(command)
    }
}

fn missing(program: &str) -> Error {
    Error::Usage(format!(
        "{program} is not installed: scripts/setup engines installs PostgreSQL and Redis, or use --postgres and --redis"
    ))
}

/// Searches PATH, and the folders of Debian's PostgreSQL versions.
fn find(program: &str) -> Result<PathBuf, Error> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let versions = (14..30).rev().map(|version| PathBuf::from(format!("/usr/lib/postgresql/{version}/bin")));
    let mut places = std::env::split_paths(&path).chain(versions).map(|folder| folder.join(program));
    places.find(|place| place.is_file()).ok_or_else(|| missing(program))
}

/// Runs `program` as `user`, bound to the lifetime of this process.
fn bound(user: Option<&User>, death: &str, program: &Path, priority: Priority) -> Result<Command, Error> {
    let mut command = priority.command(&find("setpriv")?)?;
    if let Some(User { uid, gid }) = user {
        command.args([format!("--reuid={uid}"), format!("--regid={gid}"), "--clear-groups".to_owned()]);
    }
    command.arg(format!("--pdeathsig={death}")).arg("--").arg(program);
    Ok(command)
}

struct User {
    uid: u32,
    gid: u32,
}

impl User {
    /// passwd(5): name, password, uid, gid and more, separated by colons.
    fn find(name: &str) -> Option<Self> {
        let passwd = std::fs::read_to_string("/etc/passwd").ok()?;
        let mut fields =
            passwd.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?.split(':').skip(1);
        Some(Self { uid: fields.next()?.parse().ok()?, gid: fields.next()?.parse().ok()? })
    }
}

/// `settings` have the form `key=value`.
pub(crate) fn postgres(
    folder: &Path,
    settings: &[String],
    priority: Priority,
) -> Result<(Owned, String), Error> {
    let user = match getuid().is_root() {
        true => Some(User::find(POSTGRES_USER).ok_or_else(|| missing("the system user postgres"))?),
        false => None,
    };
    let (server, is_ready) = (find("postgres")?, find("pg_isready")?);
    let port = free_port()?;
    let data = folder.join("data");
    // "Immediate" is like a power failure, but without orphans; "fast" ends sessions.
    let signals = Signals { stop: Signal::INT, end: Signal::QUIT };
    let started = Owned::start(folder, signals, || {
        if let Some(User { uid, gid }) = &user {
            chown(folder, Some(*uid), Some(*gid))
                .map_err(|source| Error::Folder { path: folder.to_owned(), source })?;
        }
        initialize(folder, &data, user.as_ref())?;
        let mut command = bound(user.as_ref(), "QUIT", &server, priority)?;
        command.arg("-D").arg(&data).args(["-p", &port.to_string()]).current_dir(folder);
        let defaults = [
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "max_connections=500",
            "shared_buffers=512MB",
            "max_wal_size=4GB",
        ];
        let all = defaults.into_iter().chain(settings.iter().map(String::as_str));
        command.args(all.flat_map(|setting| ["-c", setting]));
        Ok(command)
    })?;
    started.wait_until(START_TIMEOUT, || {
        let mut ask = Command::new(&is_ready);
        ask.args(["-q", "-h", "127.0.0.1", "-p", &port.to_string()]);
        ask.status().is_ok_and(|status| status.success())
    })?;
    Ok((started, format!("postgres://noroshi@127.0.0.1:{port}/postgres")))
}

fn initialize(folder: &Path, data: &Path, user: Option<&User>) -> Result<(), Error> {
    let mut command = bound(user, "KILL", &find("initdb")?, Priority::Usual)?;
    command.arg("-D").arg(data).current_dir(folder).stdin(Stdio::null());
    // The files are temporary: initial data need not survive a power failure.
    command.args(["--auth=trust", "--username=noroshi", "--encoding=UTF8", "--no-locale", "--no-sync"]);
    let output = command.output().map_err(Error::system("starting initdb"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(Error::Start {
            why: "initdb failed".to_owned(),
            log: String::from_utf8_lossy(&output.stderr).into_owned(),
        }),
    }
}

pub(super) fn redis(folder: &Path, priority: Priority) -> Result<(Owned, String), Error> {
    let server = find("redis-server")?;
    let port = free_port()?;
    let started = Owned::start(folder, Signals::USUAL, || {
        let mut command = bound(None, "KILL", &server, priority)?;
        command.args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
        ]);
        command.arg("--dir").arg(folder).current_dir(folder);
        Ok(command)
    })?;
    let url = format!("redis://127.0.0.1:{port}");
    started.wait_until(START_TIMEOUT, || Redis::open(&url).and_then(|mut redis| redis.ping()).is_ok())?;
    Ok((started, url))
}
