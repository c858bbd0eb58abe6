//! TLS by rustls on ring: the public roots (Mozilla's, compiled in) and those that an operator adds. The certificate is
//! always verified against the name; no option disables this.

use std::path::Path;
use std::sync::Arc;

use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use url::Host;

use crate::target::Target;
use crate::{ConfigError, Error};

/// What the client offers besides the server's name.
#[derive(Debug, Clone, Default)]
pub struct Tls {
    /// Protocols by preference (RFC 7301), such as `b"h2"`. [`crate::Connected::alpn`] is the server's choice; the
    /// caller decides whether none is acceptable.
    pub alpn: Vec<Vec<u8>>,
    pub identity: Option<Identity>,
}

impl Tls {
    pub fn alpn(protocols: &[&[u8]]) -> Self {
        Self { alpn: protocols.iter().map(|protocol| protocol.to_vec()).collect(), identity: None }
    }
}

/// A client certificate with its key; clones share it.
#[derive(Clone)]
pub struct Identity(Arc<CertifiedKey>);

impl Identity {
    /// The chain begins with the certificate of `key`; this is verified.
    pub fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, ConfigError> {
        if chain.is_empty() {
            return Err(ConfigError::Identity("no certificate".to_owned()));
        }
        let certified = CertifiedKey::from_der(chain, key, &rustls::crypto::ring::default_provider());
        certified.map(|key| Self(Arc::new(key))).map_err(|error| ConfigError::Identity(error.to_string()))
    }

    /// Both in PEM, possibly in the same text.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self, ConfigError> {
        let chain = CertificateDer::pem_slice_iter(chain)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| ConfigError::Identity(format!("certificate: {error}")))?;
        let key = PrivateKeyDer::from_pem_slice(key)
            .map_err(|error| ConfigError::Identity(format!("private key: {error}")))?;
        Self::new(chain, key)
    }
}

/// From an already verified pair.
impl From<Arc<CertifiedKey>> for Identity {
    fn from(key: Arc<CertifiedKey>) -> Self {
        Self(key)
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Identity")
    }
}

/// Reads the certificates of a PEM file, at least one.
pub fn read_ca_file(path: &Path) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let failed = |reason: String| ConfigError::CaFile { path: path.display().to_string(), reason };
    let certificates = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| failed(error.to_string()))?;
    if certificates.is_empty() {
        return Err(failed("it holds no certificate".to_owned()));
    }
    roots(&certificates).map_err(|error| failed(error.to_string()))?;
    Ok(certificates)
}

fn roots(extra: &[CertificateDer<'static>]) -> Result<RootCertStore, rustls::Error> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    extra.iter().try_for_each(|certificate| roots.add(certificate.clone()))?;
    Ok(roots)
}

/// Adds TLS to connections.
pub(crate) struct Client {
    provider: Arc<CryptoProvider>,
    verifier: Arc<WebPkiServerVerifier>,
    /// For connections without a client certificate; caches sessions for resumption.
    anonymous: ClientConfig,
}

impl Client {
    pub(crate) fn new(extra: &[CertificateDer<'static>]) -> Result<Self, ConfigError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let roots = Arc::new(roots(extra).map_err(ConfigError::Ca)?);
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone())
            .build()
            .map_err(|error| ConfigError::Tls(rustls::Error::General(error.to_string())))?;
        let anonymous = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(ConfigError::Tls)?
            .with_webpki_verifier(verifier.clone())
            .with_no_client_auth();
        Ok(Self { provider, verifier, anonymous })
    }

    /// Without a timeout. Cancel-safe.
    pub(crate) async fn handshake<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        target: &Target,
        tls: Tls,
        stream: S,
    ) -> Result<TlsStream<S>, Error> {
        let failed = |reason: String| Error::Tls { host: target.host.to_string(), reason };
        let name = match &target.host {
            Host::Domain(name) => {
                ServerName::try_from(name.clone()).map_err(|error| failed(error.to_string()))?
            }
            Host::Ipv4(address) => ServerName::from(std::net::IpAddr::from(*address)),
            Host::Ipv6(address) => ServerName::from(std::net::IpAddr::from(*address)),
        };
        let config = self.config(tls).map_err(|error| failed(error.to_string()))?;
        TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await
            .map_err(|error| failed(error.to_string()))
    }

    fn config(&self, tls: Tls) -> Result<ClientConfig, rustls::Error> {
        let mut config = match tls.identity {
            None => self.anonymous.clone(),
            Some(Identity(certified)) => {
                let mut config = ClientConfig::builder_with_provider(self.provider.clone())
                    .with_safe_default_protocol_versions()?
                    .with_webpki_verifier(self.verifier.clone())
                    .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
                // A session is bound to its client certificate, so identities share none.
                config.resumption = Resumption::disabled();
                config
            }
        };
        config.alpn_protocols = tls.alpn;
        Ok(config)
    }
}
