//! Sockets, providers and tickets against a TLS server in this process.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{HandshakeKind, ServerConfig, ServerConnection, StreamOwned};

use crate::http::{Client, Origin, Request};
use crate::socket::{Route, Socket};
use crate::tls::{Connector, OWN_NAME, OwnCertificate, Trust};

/// Answers every request with `ok` over HTTP; ends connections without close_notify.
fn start() -> (SocketAddr, Trust) {
    let number = std::process::id();
    let folder =
        std::env::temp_dir().join(format!("noroshi-load-tls-{number}-{:?}", std::thread::current().id()));
    std::fs::create_dir_all(&folder).unwrap();
    let own = OwnCertificate::make(&folder).unwrap();
    let certificate = CertificateDer::from_pem_file(&own.certificate).unwrap();
    let key = PrivateKeyDer::from_pem_file(&own.key).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    config.ticketer = rustls::crypto::ring::Ticketer::new().unwrap();
    config.send_tls13_tickets = 1;
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let session = ServerConnection::new(config.clone()).unwrap();
            let mut stream = StreamOwned::new(session, stream.unwrap());
            std::thread::spawn(move || {
                let mut bytes = [0; 1_024];
                while let Ok(1..) = stream.read(&mut bytes) {
                    if stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, own.trust)
}

/// Connects, sends one request, and returns the response with the kind of the handshake.
fn exchange(address: SocketAddr, connector: &Connector) -> (Vec<u8>, HandshakeKind) {
    let mut poll = Poll::new().unwrap();
    let mut events = Events::with_capacity(8);
    let route = Route { to: address, source: None, narrow: false, tls: Some(connector) };
    let mut socket = Socket::open(route).unwrap();
    socket.register(poll.registry(), Token(0)).unwrap();
    let (mut asked, mut answer) = (false, Vec::new());
    let deadline = Instant::now() + Duration::from_secs(30);
    while !(answer.ends_with(b"ok") && socket.has_ticket()) {
        assert!(Instant::now() < deadline, "no answer yet: {answer:?}");
        poll.poll(&mut events, Some(Duration::from_millis(100))).unwrap();
        socket.flush().unwrap();
        if !asked && events.iter().any(|event| event.is_writable()) {
            assert_eq!(socket.write(b"ask").unwrap(), 3, "taken while the handshake is under way");
            asked = true;
        }
        let mut bytes = [0; 7]; // reads a record in several steps
        while let Ok(len @ 1..) = socket.read(&mut bytes) {
            answer.extend_from_slice(&bytes[..len]);
        }
    }
    (answer, socket.handshake().unwrap())
}

#[test]
fn second_session_resumes_unless_tickets_are_withheld() {
    let (address, trust) = start();
    let connector = Connector::new(&trust, OWN_NAME).unwrap();
    for (device, offer, kind) in [
        (1, true, HandshakeKind::Full),
        (1, true, HandshakeKind::Resumed),
        (2, true, HandshakeKind::Full),
        (1, false, HandshakeKind::Full),
        (1, true, HandshakeKind::Resumed),
        (2, true, HandshakeKind::Resumed),
    ] {
        connector.turn_of(device);
        connector.offer_tickets(offer);
        let (answer, shaken) = exchange(address, &connector);
        assert!(answer.starts_with(b"HTTP/1.1 200"));
        assert_eq!(shaken, kind);
    }
}

#[test]
fn provider_uses_tls_and_trusts_only_configured_certificates() {
    let (address, trust) = start();
    let request = Request { method: "GET", path: "/", key: "k", content_type: "text/plain" };
    let origin = Origin { address, host: format!("{OWN_NAME}:{}", address.port()), trust: Some(trust) };
    let mut client = Client::new(origin.clone()).unwrap();
    for _ in 0..2 {
        assert_eq!(client.request(request, b"").unwrap().body, b"ok");
    }
    let mut stranger = Client::new(Origin { trust: Some(Trust::Public), ..origin }).unwrap();
    let error = stranger.request(request, b"").unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
}
