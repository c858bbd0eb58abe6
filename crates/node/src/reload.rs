//! Certificates of both addresses, and reloading them on SIGHUP. An invalid certificate never replaces a valid one: the old one
//! stays, and the log contains the reason.

use std::sync::Arc;

use noroshi_delivery::Delivery;
use noroshi_gateway::tls::{self, Acceptor};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::config::{Server, TlsFiles};

/// The certificates in use. None for an address without TLS.
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
                    tracing::info!(address, cert = %files.cert.display(), "certificate reloaded");
                    delivery.context.outcomes.configured(None, ("certificate", "read_again"), Some(address));
                }
                Err(error) => {
                    tracing::error!(address, %error, "certificate not reloaded; the current one stays in use")
                }
            }
        }
        if self.files.is_empty() {
            tracing::info!("SIGHUP: no certificate to reload");
        }
    }
}

/// Receives SIGHUP from its creation on. Otherwise the signal would end the process.
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
