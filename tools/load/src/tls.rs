//! TLS of devices and providers: trusted certificates, one client configuration per worker, and the session
//! tickets for resumption. A started server gets a generated certificate.
//!
//! Invariant: a ticket is used once (RFC 8446 §C.4), by the device that received it, and each device has only
//! its newest. Call [`Connector::turn_of`] before creating or reading a session.

use std::collections::HashMap;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::client::{ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, NamedGroup, RootCertStore};
use serde::{Deserialize, Serialize};

use crate::Error;

/// More devices than a process can have: 65,536 × about 1 KiB = 64 MiB.
const TICKETS_MAX: usize = 1 << 16;
/// The name in generated certificates.
pub(crate) const OWN_NAME: &str = "localhost";

/// The trusted certificates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Trust {
    /// Those signed by public authorities.
    Public,
    /// These, and those that they signed; DER.
    Only(Vec<Vec<u8>>),
}

impl Trust {
    /// The certificates of a PEM file.
    pub(crate) fn read(path: &Path) -> Result<Self, Error> {
        let rule = |why: String| Error::Usage(format!("--ca {}: {why}", path.display()));
        let certificates = CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| rule(error.to_string()))?;
        match certificates.is_empty() {
            true => Err(rule("it contains no certificate".to_owned())),
            false => Ok(Self::Only(certificates.iter().map(|certificate| certificate.to_vec()).collect())),
        }
    }

    fn roots(&self) -> Result<RootCertStore, Error> {
        let Self::Only(certificates) = self else {
            return Ok(RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()));
        };
        let mut roots = RootCertStore::empty();
        for certificate in certificates {
            let added = roots.add(CertificateDer::from_slice(certificate));
            added.map_err(|error| Error::Usage(format!("a trusted certificate is invalid: {error}")))?;
        }
        Ok(roots)
    }
}

/// Creates sessions with one server; clones share configuration and tickets.
#[derive(Debug, Clone)]
pub(crate) struct Connector {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    tickets: Arc<Tickets>,
}

impl Connector {
    /// For a server named `host`, with or without a port.
    pub(crate) fn new(trust: &Trust, host: &str) -> Result<Self, Error> {
        let bare = host.rsplit_once(':').map_or(host, |(bare, _)| bare);
        let bare = bare.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(bare)
            .map_err(|_| Error::Usage(format!("{host} is not a valid server name for a certificate")))?;
        let tickets = Arc::new(Tickets::default());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::Usage(format!("TLS cannot be set up: {error}")))?
            .with_root_certificates(trust.roots()?)
            .with_no_client_auth();
        config.resumption = Resumption::store(tickets.clone());
        Ok(Self { config: Arc::new(config), name, tickets })
    }

    pub(crate) fn session(&self) -> io::Result<ClientConnection> {
        let mut session =
            ClientConnection::new(self.config.clone(), self.name.clone()).map_err(io::Error::other)?;
        // Requests are bounded elsewhere, and buffered completely during the handshake.
        session.set_buffer_limit(None);
        Ok(session)
    }

    /// Associates the following sessions with `device`.
    pub(crate) fn turn_of(&self, device: usize) {
        self.tickets.pool().turn = device;
    }

    /// Whether the following sessions may be resumed.
    pub(crate) fn offer_tickets(&self, offer: bool) {
        self.tickets.pool().withheld = !offer;
    }
}

/// Counts of TLS handshakes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Handshakes {
    pub(crate) full: u64,
    pub(crate) resumed: u64,
}

impl Handshakes {
    /// `None`: without TLS.
    pub(crate) fn count(&mut self, kind: Option<HandshakeKind>) {
        match kind {
            Some(HandshakeKind::Resumed) => self.resumed += 1,
            Some(HandshakeKind::Full | HandshakeKind::FullWithHelloRetryRequest) => self.full += 1,
            None => {}
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.full += other.full;
        self.resumed += other.resumed;
    }

    pub(crate) fn total(self) -> u64 {
        self.full + self.resumed
    }
}

#[derive(Debug, Default)]
struct Tickets(Mutex<Pool>);

/// The tickets for one server, since a worker has only one.
#[derive(Debug, Default)]
struct Pool {
    group: Option<NamedGroup>,
    /// The current device.
    turn: usize,
    /// By device; those of TLS 1.2 are reusable.
    sessions: HashMap<usize, Tls12ClientSessionValue>,
    tickets: HashMap<usize, Tls13ClientSessionValue>,
    /// Stored but not used.
    withheld: bool,
}

impl Tickets {
    /// A pool is consistent between any two statements, so a panic elsewhere leaves it usable.
    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientSessionStore for Tickets {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.pool().group = Some(group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.pool().group
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        let mut pool = self.pool();
        let turn = pool.turn;
        if pool.sessions.len() < TICKETS_MAX {
            pool.sessions.insert(turn, value);
        }
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        let pool = self.pool();
        pool.sessions.get(&pool.turn).filter(|_| !pool.withheld).cloned()
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        let mut pool = self.pool();
        let turn = pool.turn;
        pool.sessions.remove(&turn);
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        let mut pool = self.pool();
        let turn = pool.turn;
        if pool.tickets.len() < TICKETS_MAX {
            pool.tickets.insert(turn, value);
        }
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        let mut pool = self.pool();
        let turn = pool.turn;
        if pool.withheld { None } else { pool.tickets.remove(&turn) }
    }
}

/// A self-signed certificate for [`OWN_NAME`], and its key.
pub(crate) struct OwnCertificate {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    pub(crate) trust: Trust,
}

impl OwnCertificate {
    /// Creates both and writes them into the existing `folder`.
    pub(crate) fn make(folder: &Path) -> Result<Self, Error> {
        let failed = |error: rcgen::Error| Error::System {
            what: "making a certificate",
            source: io::Error::other(error),
        };
        let made = rcgen::generate_simple_self_signed([OWN_NAME.to_owned()]).map_err(failed)?;
        let (certificate, key) = (folder.join("certificate.pem"), folder.join("key.pem"));
        for (path, pem) in [(&certificate, made.cert.pem()), (&key, made.signing_key.serialize_pem())] {
            let mut options = std::fs::File::options();
            let file = options.write(true).create_new(true).mode(0o600).open(path);
            file.and_then(|mut file| file.write_all(pem.as_bytes()))
                .map_err(|source| Error::Folder { path: path.clone(), source })?;
        }
        Ok(Self { certificate, key, trust: Trust::Only(vec![made.cert.der().to_vec()]) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_name_is_the_host_without_port() {
        for host in ["example.org", "example.org:8443", "127.0.0.1:443", "[::1]:443"] {
            assert!(Connector::new(&Trust::Public, host).is_ok(), "{host}");
        }
        assert!(matches!(Connector::new(&Trust::Public, "no host:1"), Err(Error::Usage(_))));
        assert!(Connector::new(&Trust::Only(vec![b"none".to_vec()]), "a").is_err());
    }

    #[test]
    fn trusted_file_must_contain_a_certificate() {
        let path = std::env::temp_dir().join(format!("noroshi-load-ca-{}.pem", std::process::id()));
        assert!(Trust::read(&path).unwrap_err().to_string().contains("--ca"));
        std::fs::write(&path, "nothing").unwrap();
        let error = Trust::read(&path).unwrap_err();
        std::fs::remove_file(&path).unwrap();
        assert!(error.to_string().contains("no certificate"), "{error}");
    }
}
