//! Test servers with configured answers, and a certificate authority.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use noroshi_egress::{Config, Egress, Resolver};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// Far more than anything here takes.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// Resolves the given names and no others.
pub(crate) fn hosts(names: &[(&'static str, &[&'static str])]) -> Resolver {
    let names: Vec<(&str, Vec<IpAddr>)> = names
        .iter()
        .map(|(name, addresses)| (*name, addresses.iter().map(|text| ip(text)).collect()))
        .collect();
    Resolver::new(move |asked| match names.iter().find(|(name, _)| *name == asked) {
        Some((_, addresses)) => Ok(addresses.clone()),
        None => Err(std::io::Error::other("no such name")),
    })
}

pub(crate) fn egress(change: impl FnOnce(&mut Config)) -> Egress {
    let mut config = Config { connect_timeout: LONG, resolver: hosts(&[]), ..Config::default() };
    change(&mut config);
    Egress::new(config).expect("egress")
}

/// Reaches this machine, which it resolves as `near.example`.
pub(crate) fn open_egress(change: impl FnOnce(&mut Config)) -> Egress {
    egress(|config| {
        config.allow = vec!["127.0.0.0/8".parse().expect("a network")];
        config.resolver = hosts(&[("near.example", &["127.0.0.1"])]);
        change(config);
    })
}

/// A server that counts connections.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    came: Arc<AtomicUsize>,
}

impl Server {
    /// Runs `serve` on each connection.
    pub(crate) async fn start<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self::at(ip("127.0.0.1"), 0, serve).await
    }

    pub(crate) async fn at<F>(
        host: IpAddr,
        port: u16,
        serve: impl Fn(TcpStream) -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind((host, port)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let came = Arc::new(AtomicUsize::new(0));
        let count = came.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream));
            }
        });
        Self { address, came }
    }

    /// Sends `text` on each connection and keeps it open.
    pub(crate) async fn saying(text: &'static str) -> Self {
        Self::start(move |mut stream| async move {
            stream.write_all(text.as_bytes()).await.expect("written");
            let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
        })
        .await
    }

    /// Accepts connections and stays silent.
    pub(crate) async fn silent() -> Self {
        Self::saying("").await
    }

    /// Answers the first request on each connection with `answer` and closes.
    pub(crate) async fn answering(answer: String) -> Self {
        Self::start(move |mut stream| {
            let answer = answer.clone();
            async move {
                read_head(&mut stream).await;
                // A client that does not need the rest closes first.
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        })
        .await
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn came(&self) -> usize {
        self.came.load(Ordering::SeqCst)
    }
}

/// Everything up to an empty line, and nothing after it.
pub(crate) async fn read_head(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(head).expect("text")
}

/// A certificate authority for tests.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

pub(crate) struct Issued {
    pub(crate) certificate: rcgen::Certificate,
    pub(crate) key: KeyPair,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut parameters = CertificateParams::new(Vec::new()).expect("parameters");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(parameters, KeyPair::generate().expect("a key")).expect("issued"))
    }

    pub(crate) fn certificate(&self) -> CertificateDer<'static> {
        self.0.der().clone()
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(crate) fn issue(&self, name: &str) -> Issued {
        let key = KeyPair::generate().expect("a key");
        let parameters = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        let certificate = parameters.signed_by(&key, &self.0).expect("issued");
        Issued { certificate, key }
    }

    /// A server's TLS as `name`; with `clients`, it requires certificates of that authority.
    pub(crate) fn acceptor(&self, name: &str, alpn: &[&[u8]], clients: bool) -> TlsAcceptor {
        let Issued { certificate, key } = self.issue(name);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .expect("versions");
        let builder = match clients {
            false => builder.with_no_client_auth(),
            true => {
                let mut roots = rustls::RootCertStore::empty();
                roots.add(self.certificate()).expect("added");
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder.with_client_cert_verifier(verifier.expect("a verifier"))
            }
        };
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        let mut config = builder.with_single_cert(vec![certificate.der().clone()], key).expect("a pair");
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }

    /// Sends, over TLS, how many certificates the client presented.
    pub(crate) async fn server(&self, name: &str, alpn: &[&[u8]], clients: bool) -> Server {
        let acceptor = self.acceptor(name, alpn, clients);
        Server::start(move |stream| greet(acceptor.clone(), stream)).await
    }
}

pub(crate) async fn greet(acceptor: TlsAcceptor, stream: TcpStream) {
    let Ok(mut stream) = acceptor.accept(stream).await else { return };
    let shown = stream.get_ref().1.peer_certificates().map_or(0, <[_]>::len);
    stream.write_all(format!("hello {shown}").as_bytes()).await.expect("written");
    let _ = stream.read(&mut [0; 1]).await;
}
