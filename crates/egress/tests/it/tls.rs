//! TLS: trust, negotiation, and client certificates.

use std::time::Duration;

use noroshi_egress::{ConfigError, Error, Identity, Tls, read_ca_file};
use tokio::io::AsyncReadExt;

use crate::server::{Authority, Server, open_egress};

#[tokio::test]
async fn only_a_trusted_certificate_for_the_name_is_accepted() {
    let authority = Authority::new();
    let near = authority.server("near.example", &[], false).await;
    let numbered = authority.server("127.0.0.1", &[], false).await;
    let other = authority.server("other.example", &[], false).await;
    let stranger = Authority::new().server("near.example", &[], false).await;
    let egress = open_egress(|config| config.ca = vec![authority.certificate()]);
    egress.connect(true, "near.example", near.port(), Tls::default()).await.expect("trusted");
    egress.connect(true, "near.example.", near.port(), Tls::default()).await.expect("trusted");
    egress.connect(true, "127.0.0.1", numbered.port(), Tls::default()).await.expect("trusted");
    for (host, server) in [("near.example", &other), ("127.0.0.1", &near), ("near.example", &stranger)] {
        let error = egress.connect(true, host, server.port(), Tls::default()).await.expect_err(host);
        assert!(matches!(error, Error::Tls { .. }), "{error:?}");
    }
    let without = open_egress(|_| {});
    let error =
        without.connect(true, "near.example", near.port(), Tls::default()).await.expect_err("unknown");
    assert!(matches!(&error, Error::Tls { reason, .. } if reason.contains("UnknownIssuer")), "{error:?}");
}

#[tokio::test]
async fn the_server_chooses_an_offered_protocol() {
    let authority = Authority::new();
    let egress = open_egress(|config| config.ca = vec![authority.certificate()]);
    let both = authority.server("near.example", &[b"h2", b"http/1.1"], false).await;
    let none = authority.server("near.example", &[], false).await;
    let connect = |server: &Server, offered: &[&[u8]]| {
        let (port, tls) = (server.port(), Tls::alpn(offered));
        let egress = &egress;
        async move { egress.connect(true, "near.example", port, tls).await.map(|connected| connected.alpn) }
    };
    assert_eq!(connect(&both, &[b"h2"]).await, Ok(Some(b"h2".to_vec())));
    assert_eq!(connect(&both, &[b"http/1.1"]).await, Ok(Some(b"http/1.1".to_vec())));
    assert_eq!(connect(&none, &[b"h2"]).await, Ok(None));
    // RFC 7301 §3.2: a server without a common protocol reports it.
    assert!(matches!(connect(&both, &[b"h3"]).await, Err(Error::Tls { .. })));
}

#[tokio::test]
async fn a_configured_client_certificate_is_presented() {
    let authority = Authority::new();
    let server = authority.server("near.example", &[b"h2"], true).await;
    let egress = open_egress(|config| config.ca = vec![authority.certificate()]);
    let issued = authority.issue("client.example");
    let identity =
        Identity::from_pem(issued.certificate.pem().as_bytes(), issued.key.serialize_pem().as_bytes());
    let identity = Some(identity.expect("an identity"));
    for _ in 0..2 {
        let tls = Tls { identity: identity.clone(), ..Tls::alpn(&[b"h2"]) };
        let mut connected =
            egress.connect(true, "near.example", server.port(), tls).await.expect("connected");
        let mut text = [0; 7];
        connected.stream.read_exact(&mut text).await.expect("read");
        assert_eq!(&text, b"hello 1");
    }
    // With TLS 1.3 the rejection arrives after the client has finished (RFC 8446 §4.4.2.4).
    if let Ok(mut connected) = egress.connect(true, "near.example", server.port(), Tls::default()).await {
        assert!(connected.stream.read_u8().await.is_err());
    }
}

#[test]
fn an_identity_is_a_certificate_with_its_own_key() {
    let authority = Authority::new();
    let (one, two) = (authority.issue("one.example"), authority.issue("two.example"));
    let (certificate, key) = (one.certificate.pem(), one.key.serialize_pem());
    let together = format!("{certificate}{key}");
    assert!(Identity::from_pem(together.as_bytes(), together.as_bytes()).is_ok());
    let other_key = two.key.serialize_pem();
    for (certificate, key) in [
        (certificate.as_str(), other_key.as_str()),
        ("", key.as_str()),
        (certificate.as_str(), ""),
        ("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n", key.as_str()),
    ] {
        let error = Identity::from_pem(certificate.as_bytes(), key.as_bytes()).expect_err("no identity");
        assert!(matches!(error, ConfigError::Identity(_)), "{error:?}");
    }
}

#[tokio::test]
async fn a_server_that_does_not_speak_tls_is_an_error_or_a_timeout() {
    let egress = open_egress(|config| config.connect_timeout = Duration::from_millis(100));
    let plain = Server::saying("220 mail.example ESMTP\r\n").await;
    let error = egress.connect(true, "near.example", plain.port(), Tls::default()).await;
    assert!(matches!(error, Err(Error::Tls { .. } | Error::Timeout { .. })), "{error:?}");
    let silent = Server::silent().await;
    let error = egress.connect(true, "near.example", silent.port(), Tls::default()).await;
    assert!(matches!(error, Err(Error::Timeout { .. })), "{error:?}");
}

#[test]
fn a_ca_file_holds_certificates() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ca.pem");
    let check = |content: &str| {
        std::fs::write(&path, content).expect("written");
        read_ca_file(&path).map(|certificates| certificates.len()).map_err(|error| error.to_string())
    };
    let (one, two) = (Authority::new().pem(), Authority::new().pem());
    assert_eq!(check(&format!("# ours\n{one}{two}")), Ok(2));
    for bad in ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        let error = check(bad).expect_err(bad);
        assert!(error.contains("ca.pem"), "{error}");
    }
    assert!(read_ca_file(&folder.path().join("absent")).is_err());
}
