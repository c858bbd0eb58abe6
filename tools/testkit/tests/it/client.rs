//! An HTTP/2 client with one connection that trusts the fakes' authority.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use noroshi_testkit::{ClientCertificate, Fakes, Service};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::Value;
use tokio::net::TcpStream;

pub(crate) type Headers = Vec<(String, String)>;

pub(crate) struct Client {
    sender: SendRequest<Full<Bytes>>,
    origin: String,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) fn reason(&self) -> &str {
        self.body["reason"].as_str().unwrap_or_default()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }
}

pub(crate) fn tls(
    fakes: &Fakes,
    client: Option<&ClientCertificate>,
    alpn: &str,
) -> Arc<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(fakes.ca().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match client {
        Some(client) => {
            let chain = vec![CertificateDer::from_pem_slice(client.certificate.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(client.private_key.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    Arc::new(config)
}

impl Client {
    pub(crate) async fn connect(fakes: &Fakes, service: Service) -> Self {
        Self::try_connect(fakes, service, None).await.unwrap()
    }

    pub(crate) async fn try_connect(
        fakes: &Fakes,
        service: Service,
        certificate: Option<&ClientCertificate>,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let tcp = TcpStream::connect(fakes.address(service)).await?;
        let connector = tokio_rustls::TlsConnector::from(tls(fakes, certificate, "h2"));
        let stream = connector.connect(ServerName::try_from("localhost")?, tcp).await?;
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self { sender, origin: fakes.origin(service) })
    }

    /// Sends without waiting for the answer.
    pub(crate) fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &Headers,
        body: impl Into<Bytes>,
    ) -> impl Future<Output = hyper::Result<Answer>> + Send + 'static {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.origin));
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let response = self.sender.send_request(request.body(Full::new(body.into())).unwrap());
        async {
            let (head, body) = response.await?.into_parts();
            let body = body.collect().await?.to_bytes();
            let body = serde_json::from_slice(&body).unwrap_or_default();
            Ok(Answer { status: head.status.as_u16(), headers: head.headers, body })
        }
    }

    pub(crate) async fn post(&mut self, path: &str, headers: &Headers, body: impl Into<Bytes>) -> Answer {
        self.send("POST", path, headers, body).await.unwrap()
    }
}

/// The same headers with one replaced, added, or (without a value) removed.
pub(crate) fn with(headers: &Headers, name: &str, value: Option<&str>) -> Headers {
    let mut changed: Headers = headers.iter().filter(|(other, _)| other != name).cloned().collect();
    changed.extend(value.map(|value| (name.to_owned(), value.to_owned())));
    changed
}
