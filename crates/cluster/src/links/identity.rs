//! The identity that all nodes of a cell share: an Ed25519 key derived from the cell's secret.
//!
//! Both sides of a link prove in the TLS 1.3 handshake that they have the private key, with raw public keys (RFC 7250)
//! instead of certificates: there is nothing to issue, to rotate by date, or to trust besides. A peer without the
//! secret cannot complete a handshake in either role, and a recorded one does not verify again: each signature covers
//! the randomness of both sides. There is no resumption and no early data.

use std::sync::Arc;

use noroshi_types::Invalid;
use ring::hkdf;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::{CryptoProvider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible,
    ServerConfig, SignatureScheme,
};

/// A private key in PKCS #8 (RFC 8410 §7) is this, and then the 32 bytes of the seed.
const PKCS8_PREFIX: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
/// A public key (RFC 8410 §4) is this, and then its 32 bytes.
const SPKI_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// The settings of both ends of a link.
pub(super) struct Identity {
    pub(super) client: Arc<ClientConfig>,
    pub(super) server: Arc<ServerConfig>,
}

impl Identity {
    pub(super) fn new(secret: &[u8; 32], scope: &str) -> Result<Self, Invalid> {
        let failed = |_| Invalid::new("the key of the cell's links cannot be derived");
        let seed = seed(secret, scope);
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| failed(()))?;
        let public: Vec<u8> = [&SPKI_PREFIX[..], pair.public_key().as_ref()].concat();
        let private = PrivatePkcs8KeyDer::from([&PKCS8_PREFIX[..], &seed[..]].concat());
        let signing = rustls::crypto::ring::sign::any_eddsa_type(&private).map_err(|_| failed(()))?;
        let key = Arc::new(CertifiedKey::new(vec![CertificateDer::from(public.clone())], signing));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let same = Arc::new(SameKey { public: public.into(), provider: provider.clone() });

        let client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|_| failed(()))?;
        let client = client.dangerous().with_custom_certificate_verifier(same.clone());
        let mut client =
            client.with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(key.clone())));
        client.resumption = Resumption::disabled();
        client.enable_sni = false;

        let server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|_| failed(()))?;
        let server = server.with_client_cert_verifier(same);
        let mut server = server.with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(key)));
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        Ok(Self { client: Arc::new(client), server: Arc::new(server) })
    }
}

/// HKDF-SHA256 (RFC 5869).
fn seed(secret: &[u8; 32], scope: &str) -> [u8; 32] {
    let mut seed = [0; 32];
    let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"noroshi links");
    let key = salt.extract(secret);
    let info = [b"ed25519 v1 ".as_slice(), scope.as_bytes()];
    key.expand(&info, hkdf::HKDF_SHA256)
        .and_then(|material| material.fill(&mut seed))
        .expect("HKDF-SHA256 expands to 32 bytes");
    seed
}

/// Accepts exactly the public key of the cell.
#[derive(Debug)]
struct SameKey {
    public: SubjectPublicKeyInfoDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl SameKey {
    fn check(&self, presented: &CertificateDer<'_>) -> Result<(), Error> {
        match presented.as_ref() == self.public.as_ref() {
            true => Ok(()),
            false => Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)),
        }
    }

    fn check_signature(
        &self,
        message: &[u8],
        presented: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check(presented)?;
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(message, &self.public, signed, algorithms)
    }
}

impl ServerCertVerifier for SameKey {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::PeerIncompatible(PeerIncompatible::Tls12NotOffered))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        presented: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, presented, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for SameKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::PeerIncompatible(PeerIncompatible::Tls12NotOffered))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        presented: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, presented, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_by_secret_and_scope_and_are_stable_across_versions() {
        let first = seed(&[1; 32], "noroshi");
        assert_eq!(first, seed(&[1; 32], "noroshi"));
        assert_ne!(first, seed(&[2; 32], "noroshi"));
        assert_ne!(first, seed(&[1; 32], "other"));
        assert!(Identity::new(&[1; 32], "noroshi").is_ok());
    }
}
