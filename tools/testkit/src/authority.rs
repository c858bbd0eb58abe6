//! The certificate authority of the fakes: it signs the servers' certificate, and client certificates for
//! APNs' older way of authentication. Providers must trust its certificate.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use crate::keys::{Error, key_error, read, write};

const NAME: &str = "Noroshi development push services";
const CERTIFICATE_FILE: &str = "ca.pem";
const KEY_FILE: &str = "ca-key.pem";

pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
    der: CertificateDer<'static>,
    /// The file with the certificate, if it is stored.
    pub(crate) path: Option<PathBuf>,
}

/// A client certificate and its key, PEM.
#[derive(Debug, Clone)]
pub struct ClientCertificate {
    pub certificate: String,
    pub private_key: String,
    pub(crate) fingerprint: [u8; 32],
}

impl Authority {
    pub(crate) fn generate() -> Result<Self, Error> {
        let failed = key_error("the authority's certificate");
        let key = KeyPair::generate().map_err(|error| failed(&error))?;
        let parameters = parameters()?;
        let certificate = parameters.self_signed(&key).map_err(|error| failed(&error))?;
        let (pem, der) = (certificate.pem(), certificate.der().clone());
        Ok(Self { issuer: Issuer::new(parameters, key), pem, der, path: None })
    }

    /// Opens the one stored in `folder`, which must exist; creates and stores a new one if there is none.
    pub(crate) fn open(folder: &Path) -> Result<Self, Error> {
        let failed = key_error("the authority's certificate");
        let (path, key_path) = (folder.join(CERTIFICATE_FILE), folder.join(KEY_FILE));
        let mut authority = if path.exists() && key_path.exists() {
            let pem = read(&path)?;
            let key = KeyPair::from_pem(&read(&key_path)?).map_err(|error| failed(&error))?;
            let der = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| failed(&error))?;
            Self { issuer: Issuer::new(parameters()?, key), pem, der, path: None }
        } else {
            let made = Self::generate()?;
            write(&path, &made.pem)?;
            write(&key_path, &made.issuer.key().serialize_pem())?;
            made
        };
        authority.path = Some(path);
        Ok(authority)
    }

    /// TLS configuration of a fake. Only APNs requests a client certificate, and it is optional.
    pub(crate) fn server_config(&self, clients: bool, alpn: &[&[u8]]) -> Result<Arc<ServerConfig>, Error> {
        let failed = key_error("the servers' certificate");
        let key = KeyPair::generate().map_err(|error| failed(&error))?;
        let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
        let mut parameters = CertificateParams::new(names).map_err(|error| failed(&error))?;
        parameters.distinguished_name.push(DnType::CommonName, "localhost");
        parameters.use_authority_key_identifier_extension = true;
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = parameters.signed_by(&key, &self.issuer).map_err(|error| failed(&error))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(&error))?;
        let builder = if clients {
            let mut roots = RootCertStore::empty();
            roots.add(self.der.clone()).map_err(|error| failed(&error))?;
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()
                .map_err(|error| failed(&error))?;
            builder.with_client_cert_verifier(verifier)
        } else {
            builder.with_no_client_auth()
        };
        let chain = vec![certificate.der().clone(), self.der.clone()];
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        let mut config = builder.with_single_cert(chain, key.into()).map_err(|error| failed(&error))?;
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        Ok(Arc::new(config))
    }

    pub(crate) fn client(&self, name: &str) -> Result<ClientCertificate, Error> {
        let failed = key_error("a client's certificate");
        let key = KeyPair::generate().map_err(|error| failed(&error))?;
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, format!("Apple Push Services: {name}"));
        parameters.use_authority_key_identifier_extension = true;
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = parameters.signed_by(&key, &self.issuer).map_err(|error| failed(&error))?;
        Ok(ClientCertificate {
            fingerprint: fingerprint(certificate.der()),
            certificate: certificate.pem(),
            private_key: key.serialize_pem(),
        })
    }
}

/// SHA-256 of a certificate.
pub(crate) fn fingerprint(der: &[u8]) -> [u8; 32] {
    let digest = ring::digest::digest(&ring::digest::SHA256, der);
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

fn parameters() -> Result<CertificateParams, Error> {
    let failed = key_error("the authority's certificate");
    let mut parameters = CertificateParams::new(Vec::new()).map_err(|error| failed(&error))?;
    parameters.distinguished_name.push(DnType::CommonName, NAME);
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.key_usages =
        vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    Ok(parameters)
}
