//! A push service on hyper and rustls: records requests and answers as the test decides.

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio::net::TcpListener;

type Reply = Pin<Box<dyn Future<Output = http::Response<Full<Bytes>>> + Send>>;
type Say = dyn Fn(Received) -> Reply + Send + Sync;

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) id: u32,
    pub(crate) authorization: String,
    /// The number of earlier requests on this connection.
    pub(crate) before: usize,
    /// The number of those without an answer.
    pub(crate) unanswered: usize,
}

#[derive(Default)]
pub(crate) struct Log {
    /// In the order of their arrival.
    pub(crate) received: Mutex<Vec<Received>>,
    pub(crate) connections: AtomicUsize,
    pub(crate) connections_open: AtomicUsize,
    pub(crate) connections_open_max: AtomicUsize,
    /// Over all connections.
    pub(crate) streams_max: AtomicUsize,
}

impl Log {
    pub(crate) fn ids(&self) -> Vec<u32> {
        self.received.lock().iter().map(|received| received.id).collect()
    }

    pub(crate) fn times_received(&self) -> HashMap<u32, usize> {
        self.ids().into_iter().fold(HashMap::new(), |mut times, id| {
            *times.entry(id).or_default() += 1;
            times
        })
    }
}

pub(crate) struct Options {
    pub(crate) streams: u32,
    /// Further connections are reset after they are accepted.
    pub(crate) connections: usize,
    pub(crate) http1: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { streams: 1_000, connections: usize::MAX, http1: false }
    }
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) ca: CertificateDer<'static>,
    pub(crate) log: Arc<Log>,
}

impl Server {
    pub(crate) fn origin(&self) -> String {
        format!("https://{}", self.address)
    }

    pub(crate) async fn start<F, R>(options: Options, say: F) -> Self
    where
        F: Fn(Received) -> R + Send + Sync + 'static,
        R: Future<Output = http::Response<Full<Bytes>>> + Send + 'static,
    {
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("parameters");
        let certificate = params.self_signed(&key).expect("a certificate").der().clone();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], PrivatePkcs8KeyDer::from(key.serialize_der()).into())
            .expect("a pair");
        tls.alpn_protocols = vec![if options.http1 { b"http/1.1".to_vec() } else { b"h2".to_vec() }];
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let log = Arc::new(Log::default());
        let say: Arc<Say> = Arc::new(move |received| Box::pin(say(received)));
        tokio::spawn(accept(listener, acceptor, options, log.clone(), say));
        Self { address, ca: certificate, log }
    }
}

async fn accept(
    listener: TcpListener,
    acceptor: tokio_rustls::TlsAcceptor,
    options: Options,
    log: Arc<Log>,
    say: Arc<Say>,
) {
    while let Ok((socket, _)) = listener.accept().await {
        log.connections.fetch_add(1, Ordering::SeqCst);
        if log.connections_open.load(Ordering::SeqCst) >= options.connections {
            socket.set_zero_linger().expect("a socket");
            continue;
        }
        let open = log.connections_open.fetch_add(1, Ordering::SeqCst) + 1;
        log.connections_open_max.fetch_max(open, Ordering::SeqCst);
        let (acceptor, log, say) = (acceptor.clone(), log.clone(), say.clone());
        let (http1, streams) = (options.http1, options.streams);
        tokio::spawn(async move {
            if let Ok(stream) = acceptor.accept(socket).await {
                let (before, open) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
                let service = service_fn(|request| {
                    answer(request, before.clone(), open.clone(), log.clone(), say.clone())
                });
                let io = TokioIo::new(stream);
                let _ = match http1 {
                    true => hyper::server::conn::http1::Builder::new().serve_connection(io, service).await,
                    false => {
                        let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                        builder.max_concurrent_streams(streams).serve_connection(io, service).await
                    }
                };
            }
            log.connections_open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

async fn answer(
    request: http::Request<Incoming>,
    before: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
    log: Arc<Log>,
    say: Arc<Say>,
) -> Result<http::Response<Full<Bytes>>, Infallible> {
    let unanswered = open.fetch_add(1, Ordering::SeqCst);
    log.streams_max.fetch_max(unanswered + 1, Ordering::SeqCst);
    let authorization = request.headers().get("authorization");
    let authorization = authorization.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let before = before.fetch_add(1, Ordering::SeqCst);
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let id: uuid::Uuid = std::str::from_utf8(&body).unwrap_or_default().parse().unwrap_or_default();
    let received = Received { id: id.as_u128() as u32, authorization, before, unanswered };
    log.received.lock().push(received.clone());
    let response = say(received).await;
    open.fetch_sub(1, Ordering::SeqCst);
    Ok(response)
}

pub(crate) fn status(status: u16) -> http::Response<Full<Bytes>> {
    http::Response::builder().status(status).body(Full::default()).expect("a response")
}

pub(crate) async fn accept_all(_: Received) -> http::Response<Full<Bytes>> {
    status(200)
}
