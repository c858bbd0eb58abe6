//! The measured server: a running one, or one started here from our own executable, with its own folder and
//! ports ([`crate::program`]).

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ring::rand::{SecureRandom, SystemRandom};

use crate::Error;
use crate::args::{Common, Protocol, Speech};
use crate::http::{Client, Origin, Request};
use crate::process::Process;
use crate::program::{Owned, Signals, remember_folder};
use crate::tls::{self, OwnCertificate, Trust};

pub(crate) const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Below the kernel's ephemeral ports, so that connections of the devices do not take it.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

const READYZ: Request<'static> =
    Request { method: "GET", path: "/readyz", key: "", content_type: "text/plain" };

pub(crate) struct Server {
    pub(crate) origin: Origin,
    /// The protocol of the devices.
    pub(crate) protocol: Protocol,
    pub(crate) xmpp_domain: String,
    /// The devices' address, if it is not `origin`.
    pub(crate) devices: Option<Origin>,
    pub(crate) key: String,
    pub(crate) jwt_secret: String,
    /// `None` if unknown: then there are no CPU and memory figures.
    pub(crate) process: Option<Process>,
    /// `None` if unknown.
    pub(crate) admin: Option<Origin>,
    /// Set for a started server.
    started: Option<Owned>,
}

impl Server {
    /// Finds the server of `common`, or starts one, and waits until it is ready.
    pub(crate) fn open(common: &Common, speech: &Speech) -> Result<Self, Error> {
        match &common.server {
            Some(url) => Self::attach(common, url, speech),
            None => Self::start(common, speech),
        }
    }

    fn attach(common: &Common, url: &str, speech: &Speech) -> Result<Self, Error> {
        let process = common.pid.map(Process::running).transpose()?;
        let admin = common.admin.as_deref().map(Origin::parse).transpose()?;
        if let Some(admin) = &admin {
            Client::new(admin.clone())?.expect_success(READYZ, b"")?;
        }
        let mut origin = Origin::parse(url)?;
        if let Some(path) = &common.ca {
            let trust = origin.trust.as_mut();
            *trust.ok_or_else(|| Error::Usage("--ca requires a --server with https://…".into()))? =
                Trust::read(path)?;
        }
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let devices = speech.address().map(|address| origin.beside(address)).transpose()?;
        Ok(Self {
            origin,
            protocol: speech.protocol(),
            xmpp_domain: speech.xmpp_domain().to_owned(),
            devices,
            key: text(&common.key),
            jwt_secret: text(&common.jwt_secret),
            process,
            admin,
            started: None,
        })
    }

    fn start(common: &Common, speech: &Speech) -> Result<Self, Error> {
        let protocol = speech.protocol();
        let parent = common.data.clone().unwrap_or_else(std::env::temp_dir);
        let folder = parent.join(format!("noroshi-bench-{}", random_hex(8)?));
        let (key, jwt_secret) = (random_hex(16)?, random_hex(32)?);
        let (http, admin) = (free_port()?, free_port()?);
        let mut origin = Origin::parse(&format!("http://127.0.0.1:{http}"))?;
        let admin_origin = Origin::parse(&format!("http://127.0.0.1:{admin}"))?;
        let mut command = serve(&folder, (http, admin), (&key, &jwt_secret), &common.set)?;
        let own_address = protocol.has_own_address().then(free_port).transpose()?;
        let own_address = own_address.map(|port| format!("127.0.0.1:{port}"));
        if let Some(address) = &own_address {
            // --mqtt, or --mqtts if everything uses TLS.
            let secure = if common.tls { "s" } else { "" };
            command.args([&format!("--{}{secure}", protocol.as_str()), address]);
        }
        let started = Owned::start(&folder, Signals::USUAL, || {
            if common.tls {
                speak_tls(&mut command, &folder, &mut origin)?;
            }
            Ok(command)
        })?;
        let devices = own_address.map(|address| origin.beside(&address)).transpose()?;
        let server = Self {
            origin,
            protocol,
            xmpp_domain: speech.xmpp_domain().to_owned(),
            devices,
            key,
            jwt_secret,
            process: Some(started.process()),
            admin: Some(admin_origin),
            started: Some(started),
        };
        server.wait_until_ready()?;
        Ok(server)
    }

    /// The token of a started server's admin address.
    pub(crate) fn operator_token(&self) -> Option<String> {
        let path = self.started.as_ref()?.folder().join("data").join("operator.token");
        fs::read_to_string(path).ok().map(|token| token.trim().to_owned())
    }

    /// Whether it was started here.
    pub(crate) fn is_own(&self) -> bool {
        self.started.is_some()
    }

    /// Restarts a started server on the same data, with fresh memory.
    pub(crate) fn restart(&mut self) -> Result<(), Error> {
        let Some(started) = &self.started else { return Ok(()) };
        started.restart()?;
        self.process = Some(started.process());
        self.wait_until_ready()
    }

    fn wait_until_ready(&self) -> Result<(), Error> {
        match (&self.started, &self.admin) {
            (Some(started), Some(admin)) => wait_until_ready(started, admin),
            _ => Ok(()),
        }
    }

    /// The exit status of a started server that has exited.
    pub(crate) fn exited(&self) -> Option<String> {
        self.started.as_ref()?.exited()
    }

    /// The end of a started server's log.
    pub(crate) fn log_end(&self) -> String {
        self.started.as_ref().map(Owned::log_end).unwrap_or_default()
    }

    /// The description for the report.
    pub(crate) fn describe(&self) -> String {
        match &self.started {
            Some(started) => format!("started here, data in {}", started.folder().display()),
            None => self.origin.url(),
        }
    }

    /// Whether the data folder is in memory, so that writes are cheaper than in production; `None` if
    /// unknown.
    pub(crate) fn data_in_memory(&self) -> Option<bool> {
        let mounts = fs::read_to_string("/proc/mounts").ok()?;
        Some(matches!(file_system(&mounts, self.started.as_ref()?.folder())?, "tmpfs" | "ramfs"))
    }
}

/// A node of our own executable, bound to this process; ignores a noroshi.toml in the current folder.
pub(crate) fn serve(
    folder: &Path,
    (http, admin): (u16, u16),
    (key, jwt_secret): (&str, &str),
    settings: &[String],
) -> Result<Command, Error> {
    let program = std::env::current_exe().map_err(Error::system("own executable"))?;
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
fn speak_tls(command: &mut Command, folder: &Path, origin: &mut Origin) -> Result<(), Error> {
    let own = OwnCertificate::make(folder)?;
    command.arg("--tls-cert").arg(own.certificate).arg("--tls-key").arg(own.key);
    origin.host = format!("{}:{}", tls::OWN_NAME, origin.address.port());
    origin.trust = Some(own.trust);
    Ok(())
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

/// A port of 127.0.0.1 without listener.
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
