//! TLS by rustls behind one small type, so that what is inside can change without anyone else.
//!
//! [`TlsSession`] has non-blocking reads and writes over whatever socket it is given; it owns no
//! socket. [`Acceptor`] holds the certificate in use and swaps it on reload: open connections keep
//! what they began with.
//!
//! Invariant: plaintext is accepted only while no ciphertext waits, so a session holds at most one
//! record's worth of unsent bytes and the tail queue sees the truth about a slow peer.

use std::io::{self, IoSlice, Read, Write};
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::{ServerConfig, ServerConnection};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// Why a certificate cannot be used; the files are named.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the certificate file {path} cannot be read: {reason}")]
    Certificate { path: String, reason: String },
    #[error("the private key file {path} cannot be read: {reason}")]
    Key { path: String, reason: String },
    #[error("certificate and private key cannot be used together: {0}")]
    Pair(rustls::Error),
}

/// The certificate in use; clones share it.
#[derive(Clone)]
pub struct Acceptor(Arc<ArcSwap<ServerConfig>>);

impl std::fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Acceptor")
    }
}

impl Acceptor {
    /// Reads a certificate chain and its key, both PEM.
    pub fn open(certificate: &Path, key: &Path) -> Result<Self, Error> {
        Ok(Self(Arc::new(ArcSwap::from_pointee(server_config(certificate, key)?))))
    }

    /// Reads them again; on an error the former ones stay in use.
    pub fn reload(&self, certificate: &Path, key: &Path) -> Result<(), Error> {
        self.0.store(Arc::new(server_config(certificate, key)?));
        Ok(())
    }

    /// A session with the certificate in use now, for a connection that did not come by a listener of
    /// the gateway.
    pub fn session(&self) -> Result<TlsSession, rustls::Error> {
        TlsSession::new(self.config())
    }

    pub(crate) fn config(&self) -> Arc<ServerConfig> {
        self.0.load_full()
    }
}

fn server_config(certificate: &Path, key: &Path) -> Result<ServerConfig, Error> {
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
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(Error::Pair)?
        .with_no_client_auth()
        .with_single_cert(chain, private_key)
        .map_err(Error::Pair)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Resumption without state here: a reconnect storm costs no signature.
    config.ticketer = rustls::crypto::ring::Ticketer::new().map_err(Error::Pair)?;
    config.send_tls13_tickets = 1;
    Ok(config)
}

/// The TLS state of one connection.
pub struct TlsSession(ServerConnection);

impl TlsSession {
    pub(crate) fn new(config: Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        let mut connection = ServerConnection::new(config)?;
        connection.set_buffer_limit(Some(32 << 10)); // two records
        Ok(Self(connection))
    }

    pub fn is_handshaking(&self) -> bool {
        self.0.is_handshaking()
    }

    /// Plaintext into `into`; 0 is the end. Sends what the handshake has to say on the way.
    pub fn read(&mut self, io: &mut (impl Read + Write), into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // A transport that ends without close_notify is an end all the same: every message
                // inside has its own length.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                done => return done,
            }
            if self.0.read_tls(io)? == 0 {
                return Ok(0);
            }
            let processed = self.0.process_new_packets();
            // An alert, if it was an error: tried, not awaited.
            let flushed = self.flush(io);
            processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            flushed?;
        }
    }

    /// Takes plaintext as far as the socket takes ciphertext.
    pub fn write_vectored(&mut self, io: &mut impl Write, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if !self.flush(io)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let taken = self.0.writer().write_vectored(slices)?;
        self.flush(io)?;
        Ok(taken)
    }

    /// True when no ciphertext waits.
    pub fn flush(&mut self, io: &mut impl Write) -> io::Result<bool> {
        while self.0.wants_write() {
            match self.0.write_tls(io) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Says that nothing more will be written (RFC 8446 §6.1).
    pub fn close(&mut self, io: &mut impl Write) {
        self.0.send_close_notify();
        // The transport's own end follows and says the same.
        let _ = self.flush(io);
    }
}
