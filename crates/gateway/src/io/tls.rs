//! TLS by rustls behind one small type, so that the library can change without its callers.
//!
//! [`TlsSession`] reads and writes without blocking over the socket it is passed; it owns none. [`Acceptor`] holds the
//! certificate in use and swaps it on reload: open connections keep theirs, and earlier tickets stay valid, so that a
//! renewed certificate does not force every device into a full handshake.
//!
//! Invariant: early data (0-RTT) is never accepted, since it can be replayed.

use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::crypto::hash::HashAlgorithm;
use rustls::server::{NoServerSessionStorage, ProducesTickets};
use rustls::{ServerConfig, SupportedCipherSuite};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::wire::Speaks;

mod scratch;
mod session;

pub use session::TlsSession;

/// Why a certificate cannot be used; names the files.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the certificate file {path} cannot be read: {reason}")]
    Certificate { path: String, reason: String },
    #[error("the private key file {path} cannot be read: {reason}")]
    Key { path: String, reason: String },
    #[error("certificate and private key cannot be used together: {0}")]
    Pair(rustls::Error),
}

/// The certificate in use, shared by clones.
#[derive(Clone)]
pub struct Acceptor {
    in_use: Arc<ArcSwap<ByProtocol>>,
    http2: bool,
}

/// The same certificate for listeners of different protocols (RFC 7301): a connection to one must not be redirected to
/// another.
struct ByProtocol {
    http: Arc<ServerConfig>,
    mqtt: Arc<ServerConfig>,
    xmpp: Arc<ServerConfig>,
}

impl ByProtocol {
    pub(crate) fn new(mut http: ServerConfig, http2: bool) -> Self {
        let (mut xmpp, mqtt) = (http.clone(), http.clone());
        xmpp.alpn_protocols = vec![b"xmpp-client".to_vec()]; // XEP-0368 §3
        if http2 {
            http.alpn_protocols.insert(0, b"h2".to_vec()); // RFC 9113 §3.2
        }
        Self { http: Arc::new(http), mqtt: Arc::new(mqtt), xmpp: Arc::new(xmpp) }
    }
}

impl std::fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Acceptor")
    }
}

impl Acceptor {
    /// Reads a certificate chain and its key, both PEM.
    pub fn open(certificate: &Path, key: &Path) -> Result<Self, Error> {
        let ticketer = rustls::crypto::ring::Ticketer::new().map_err(Error::Pair)?;
        let by_protocol = ByProtocol::new(server_config(certificate, key, ticketer)?, false);
        Ok(Self { in_use: Arc::new(ArcSwap::from_pointee(by_protocol)), http2: false })
    }

    /// Offers HTTP/2 on HTTP listeners.
    #[must_use]
    pub fn with_http2(self) -> Self {
        let http = ServerConfig::clone(&self.in_use.load().mqtt);
        Self { in_use: Arc::new(ArcSwap::from_pointee(ByProtocol::new(http, true))), http2: true }
    }

    /// Reads them again; on an error the former ones stay in use.
    pub fn reload(&self, certificate: &Path, key: &Path) -> Result<(), Error> {
        let ticketer = self.in_use.load().http.ticketer.clone();
        self.in_use.store(Arc::new(ByProtocol::new(server_config(certificate, key, ticketer)?, self.http2)));
        Ok(())
    }

    /// A session with the current certificate, for a connection that did not arrive by a listener of the gateway.
    pub fn session(&self) -> Result<TlsSession, rustls::Error> {
        TlsSession::new(self.config(Speaks::Http))
    }

    pub(crate) fn config(&self, speaks: Speaks) -> Arc<ServerConfig> {
        let by_protocol = self.in_use.load();
        match speaks {
            Speaks::Http => by_protocol.http.clone(),
            Speaks::Xmpp => by_protocol.xmpp.clone(),
            // Clients of other protocols name none.
            _ => by_protocol.mqtt.clone(),
        }
    }
}

fn server_config(
    certificate: &Path,
    key: &Path,
    ticketer: Arc<dyn ProducesTickets>,
) -> Result<ServerConfig, Error> {
    let wrong_certificate =
        |reason: String| Error::Certificate { path: certificate.display().to_string(), reason };
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| wrong_certificate(error.to_string()))?;
    if chain.is_empty() {
        return Err(wrong_certificate("it holds no certificate".to_owned()));
    }
    let private_key = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| Error::Key { path: key.display().to_string(), reason: error.to_string() })?;
    let mut provider = rustls::crypto::ring::default_provider();
    provider.cipher_suites.sort_by_key(has_sha384);
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .map_err(Error::Pair)?
        .with_no_client_auth()
        .with_single_cert(chain, private_key)
        .map_err(Error::Pair)?;
    config.ignore_client_order = true;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Stateless resumption: a reconnect storm costs no signature, and nothing is stored for clients that do not return.
    config.ticketer = ticketer;
    config.send_tls13_tickets = 1;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(config)
}

/// Suites with SHA-256 come first: CPUs have instructions for it and seldom for SHA-384, which took a tenth of
/// the CPU of handshakes.
fn has_sha384(suite: &SupportedCipherSuite) -> bool {
    let common = match suite {
        SupportedCipherSuite::Tls12(suite) => &suite.common,
        SupportedCipherSuite::Tls13(suite) => &suite.common,
    };
    common.hash_provider.algorithm() == HashAlgorithm::SHA384
}
