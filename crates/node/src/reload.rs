//! Certificates of both addresses, and reading them again when the operator says so (SIGHUP). A certificate
//! that cannot be used never replaces one that can: the old one stays and the log says why.

use std::sync::Arc;

use noroshi_delivery::Delivery;
use noroshi_gateway::tls::{self, Acceptor};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::config::{Server, TlsFiles};

/// What is in use; none where an address speaks plain.
#[derive(Debug, Clone)]
pub(crate) struct Certificates {
    pub(crate) public: Option<Acceptor>,
    pub(crate) admin: Option<Acceptor>,
    files: Arc<[(&'static str, TlsFiles, Acceptor)]>,
}

impl Certificates {
    pub(crate) fn open(server: &Server) -> Result<Self, tls::Error> {
        let mut opened = Vec::new();
        let mut open =
            |name: &'static str, files: &Option<TlsFiles>| -> Result<Option<Acceptor>, tls::Error> {
                let Some(files) = files else { return Ok(None) };
                let acceptor = Acceptor::open(&files.cert, &files.key)?;
                let acceptor = if server.http2 { acceptor.with_http2() } else { acceptor };
                opened.push((name, files.clone(), acceptor.clone()));
                Ok(Some(acceptor))
            };
        let public = open("public", &server.tls)?;
        let admin = open("admin", &server.admin_tls)?;
        Ok(Self { public, admin, files: opened.into() })
    }

    fn reload(&self, delivery: &Delivery) {
        for (address, files, acceptor) in self.files.iter() {
            match acceptor.reload(&files.cert, &files.key) {
                Ok(()) => {
                    tracing::info!(address, cert = %files.cert.display(), "the certificate was read again");
                    delivery.configured(None, ("certificate", "read_again"), Some(address));
                }
                Err(error) => tracing::error!(address, %error, "the certificate in use stays"),
            }
        }
        if self.files.is_empty() {
            tracing::info!("SIGHUP: no certificate to read again");
        }
    }
}

/// SIGHUP, caught from the moment this is made: without it the signal ends the process.
pub(crate) struct Hangups(Signal);

impl Hangups {
    pub(crate) fn listen() -> std::io::Result<Self> {
        signal(SignalKind::hangup()).map(Self)
    }

    pub(crate) async fn run(
        mut self,
        certificates: Certificates,
        delivery: Arc<Delivery>,
        end: CancellationToken,
    ) {
        loop {
            tokio::select! {
                () = end.cancelled() => return,
                _ = self.0.recv() => certificates.reload(&delivery),
            }
        }
    }
}
