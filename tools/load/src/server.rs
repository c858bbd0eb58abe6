//! What a node that is started here needs: its command, a free port, a folder, secrets, a certificate.

use std::collections::BTreeSet;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};

use crate::Error;
use crate::http::{Client, Origin, Request};
use crate::program::{Owned, remember_folder};
use crate::tls::{self, OwnCertificate};

pub(crate) const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Below the kernel's ephemeral ports, so that connections of the devices do not take it.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

pub(crate) const READYZ: Request<'static> =
    Request { method: "GET", path: "/readyz", key: "", content_type: "text/plain" };

/// A node of `program` or of our own executable, bound to this process; ignores a noroshi.toml in the current folder.
pub(crate) fn serve(
    program: Option<&Path>,
    folder: &Path,
    (http, admin): (u16, u16),
    (key, jwt_secret): (&str, &str),
    settings: &[String],
) -> Result<Command, Error> {
    let program = match program {
        // The node's working folder is another one.
        Some(program) => std::path::absolute(program).map_err(Error::system("--program"))?,
        None => std::env::current_exe().map_err(Error::system("own executable"))?,
    };
    let mut command = Command::new(program);
    command
        .args(["bench", "bound", "serve", "--dev", "--data"])
        .arg(folder.join("data"))
        .args(["--http", &format!("127.0.0.1:{http}"), "--admin", &format!("127.0.0.1:{admin}")])
        .args(settings.iter().flat_map(|setting| ["--set", setting]))
        .env("NOROSHI_DEV_KEY", key)
        .env("NOROSHI_DEV_JWT_SECRET", jwt_secret)
        .current_dir(folder);
    Ok(command)
}

/// Waits until a node is ready.
pub(crate) fn wait_until_ready(started: &Owned, admin: &Origin) -> Result<(), Error> {
    let mut client = Client::new(admin.clone())?;
    started.wait_until(START_TIMEOUT, || {
        client.request(READYZ, b"").is_ok_and(|response| response.status == 200)
    })
}

/// Enables TLS with a generated certificate, which `origin` then trusts.
pub(crate) fn speak_tls(command: &mut Command, folder: &Path, origin: &mut Origin) -> Result<(), Error> {
    let own = OwnCertificate::make(folder)?;
    command.arg("--tls-cert").arg(own.certificate).arg("--tls-key").arg(own.key);
    origin.host = format!("{}:{}", tls::OWN_NAME, origin.address.port());
    origin.trust = Some(own.trust);
    Ok(())
}

/// Whether the folder is in memory, so that writes are cheaper than in production; `None` if unknown.
pub(crate) fn in_memory(folder: &Path) -> Option<bool> {
    let mounts = fs::read_to_string("/proc/mounts").ok()?;
    Some(matches!(file_system(&mounts, folder)?, "tmpfs" | "ramfs"))
}

/// The file system of `path`: that of the longest mount point above it.
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

/// Set to 0, the allocator does without huge pages of 2 MiB. An idle node then has 14 MiB of heap instead of 34 (with
/// two shards; with one 6 instead of 26), at the price of more misses of the translation cache under load. Dozens of
/// processes on one machine need the memory.
pub(crate) const SMALL_PAGES: (&str, &str) = ("MIMALLOC_ALLOW_THP", "0");

/// Ports that were returned before: their programs may not listen yet.
static PORTS_TAKEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A port of 127.0.0.1 without listener.
pub(crate) fn free_port() -> Result<u16, Error> {
    let mut last = std::io::Error::from(std::io::ErrorKind::AddrInUse);
    for _ in 0..100 {
        let [a, b, ..] = random_bytes()?;
        let port = PORTS.start + u16::from_be_bytes([a, b]) % (PORTS.end - PORTS.start);
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(_) if !PORTS_TAKEN.lock().unwrap_or_else(PoisonError::into_inner).insert(port) => {}
            Ok(_) => return Ok(port),
            Err(error) => last = error,
        }
    }
    Err(Error::System { what: "a free port from 20000 to 31999", source: last })
}

/// Creates a folder in the system's temporary one; the caller removes it.
pub(crate) fn temporary_folder() -> Result<PathBuf, Error> {
    let path = std::env::temp_dir().join(format!("noroshi-bench-{}", random_hex(8)?));
    match fs::create_dir_all(&path) {
        Ok(()) => {
            remember_folder(path.clone());
            Ok(path)
        }
        Err(source) => Err(Error::Folder { path, source }),
    }
}

/// A random number.
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

/// `bytes` random bytes, at most 32, in hexadecimal.
pub(crate) fn random_hex(bytes: usize) -> Result<String, Error> {
    Ok(random_bytes()?.iter().take(bytes).map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_system_is_that_of_the_nearest_mount() {
        let mounts = "/dev/vda / ext4 rw 0 0\ntmpfs /fast tmpfs rw 0 0\n/dev/vdb /fast/disk xfs rw 0 0\n";
        for (path, kind) in
            [("/slow/a", "ext4"), ("/fast/a", "tmpfs"), ("/fast/disk/a", "xfs"), ("/faster", "ext4")]
        {
            assert_eq!(file_system(mounts, Path::new(path)), Some(kind), "{path}");
        }
        assert_eq!(file_system("", Path::new("/")), None);
    }

    #[test]
    fn ports_and_secrets_are_random() {
        assert!(PORTS.contains(&free_port().unwrap()));
        assert_eq!(random_hex(16).unwrap().len(), 32);
        assert_ne!(random_hex(16).unwrap(), random_hex(16).unwrap());
    }
}
