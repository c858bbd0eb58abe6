//! TLS: the same service, another transport; the certificate can be changed while it runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use noroshi_gateway::{Config, Io, Listener, Speaks, tls};
use noroshi_protocol::ws::{Opcode, push_masked_frame};
use noroshi_types::When;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;

use tokio::io::AsyncReadExt;

use crate::node::{Node, PATIENCE, plain, user};

/// A new certificate for `localhost` in `folder`; its DER.
pub(crate) fn certificate(folder: &Path) -> (PathBuf, PathBuf, CertificateDer<'static>) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let (certificate, key) = (folder.join("cert.pem"), folder.join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).expect("written");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("written");
    (certificate, key, made.cert.der().clone())
}

pub(crate) fn secure(acceptor: tls::Acceptor) -> Config {
    let mut config = plain();
    let address = "127.0.0.1:0".parse().expect("an address");
    config.listeners.push(Listener { speaks: Speaks::Http, address, tls: Some(acceptor) });
    config
}

pub(crate) type Secure = StreamOwned<ClientConnection, TcpStream>;

fn client(trusted: &CertificateDer<'static>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).expect("a root");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
}

/// Connects and sends the TLS hello, no more.
fn begin(node: &Node, client: &Arc<ClientConfig>) -> std::io::Result<Secure> {
    let name = ServerName::try_from("localhost").expect("a name");
    let connection = ClientConnection::new(client.clone(), name).expect("a client");
    let socket = TcpStream::connect(node.gateway.local_addrs()[1])?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut stream = StreamOwned::new(connection, socket);
    stream.conn.write_tls(&mut stream.sock)?;
    Ok(stream)
}

fn finish(stream: &mut Secure) -> std::io::Result<()> {
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(())
}

fn dial_as(node: &Node, client: &Arc<ClientConfig>) -> std::io::Result<Secure> {
    let mut stream = begin(node, client)?;
    finish(&mut stream)?;
    Ok(stream)
}

fn dial(node: &Node, trusted: &CertificateDer<'static>) -> std::io::Result<Secure> {
    dial_as(node, &client(trusted))
}

/// The protocol that a client negotiates when it offers these, and the answer it gets until the end.
pub(crate) fn alpn(
    node: &Node,
    trusted: &CertificateDer<'static>,
    offered: Vec<Vec<u8>>,
    request: &[u8],
) -> (Option<Vec<u8>>, String) {
    let mut client = ClientConfig::clone(&client(trusted));
    client.alpn_protocols = offered;
    let mut stream = dial_as(node, &Arc::new(client)).expect("a handshake");
    let agreed = stream.conn.alpn_protocol().map(<[u8]>::to_vec);
    stream.write_all(request).expect("sent");
    let mut answer = Vec::new();
    // Closed with or without a close alert.
    let _ = stream.read_to_end(&mut answer);
    (agreed, String::from_utf8_lossy(&answer).into_owned())
}

/// A client that asks the API, which read the request's head.
pub(crate) async fn ask_api(node: &Arc<Node>, trusted: &CertificateDer<'static>) -> (Secure, Io) {
    const HEAD: &[u8] = b"GET /v1/me HTTP/1.1\r\n\r\n";
    let (dialing, trust) = (node.clone(), trusted.clone());
    let dialled = tokio::task::spawn_blocking(move || {
        let mut stream = dial(&dialing, &trust).expect("a handshake");
        stream.write_all(HEAD).expect("sent");
        stream
    });
    let stream = dialled.await.expect("no panic");
    let mut io = node.next_handover().await.into_io().expect("a stream");
    io.read_exact(&mut [0; HEAD.len()]).await.expect("read");
    (stream, io)
}

fn read_until(stream: &mut Secure, end: &str) -> String {
    let mut text = Vec::new();
    let mut byte = [0; 1];
    while !text.ends_with(end.as_bytes()) {
        stream.read_exact(&mut byte).expect("more");
        text.push(byte[0]);
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// The API read the beginning of a request; the rest of its record waits in the TLS session, with the first frames.
#[tokio::test(flavor = "multi_thread")]
async fn a_tls_connection_is_taken_back_wherever_reading_stopped() {
    let folder = tempfile::tempdir().expect("a folder");
    let (certificate, key, trusted) = certificate(folder.path());
    let node = Arc::new(Node::start(secure(tls::Acceptor::open(&certificate, &key).expect("usable"))).await);
    node.device("d1", "u1", &[]).await;
    let mut next = b"GET /v1/connect HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        .to_vec();
    let head_bytes = next.len();
    let connect = json!({"t": "connect", "token": node.token("d1")}).to_string();
    for text in [&*connect, r#"{"t":"ping"}"#] {
        push_masked_frame(&mut next, Opcode::Text, text.as_bytes(), [1, 2, 3, 4]);
    }
    let whole = next.len();
    for read_bytes in [0, 1, 10, head_bytes - 1, head_bytes, head_bytes + 3, whole - 1, whole] {
        let (mut stream, mut io) = ask_api(&node, &trusted).await;
        stream.write_all(&next).expect("sent");
        let mut read = vec![0; read_bytes];
        io.read_exact(&mut read).await.expect("read");
        assert!(node.gateway.take_back(io, read).is_ok());
        let heard = tokio::task::spawn_blocking(move || {
            let heard = read_until(&mut stream, r#"{"t":"pong"}"#);
            // The connection continues under the same keys.
            let mut ping = Vec::new();
            push_masked_frame(&mut ping, Opcode::Text, br#"{"t":"ping"}"#, [4, 3, 2, 1]);
            stream.write_all(&ping).expect("sent");
            read_until(&mut stream, r#"{"t":"pong"}"#);
            heard
        });
        let heard = tokio::time::timeout(PATIENCE, heard).await.expect("in time").expect("no panic");
        assert!(
            heard.starts_with("HTTP/1.1 101 ") && heard.contains(r#""t":"ready""#),
            "{read_bytes}: {heard}"
        );
    }
    node.until_sessions(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tls_event_stream_receives_and_other_requests_reach_the_api() {
    let folder = tempfile::tempdir().expect("a folder");
    let (certificate, key, trusted) = certificate(folder.path());
    let node = Arc::new(Node::start(secure(tls::Acceptor::open(&certificate, &key).expect("usable"))).await);
    node.device("d1", "u1", &[]).await;
    let (dialing, token, trust) = (node.clone(), node.token("d1"), trusted.clone());
    let mut stream = tokio::task::spawn_blocking(move || {
        let mut stream = dial(&dialing, &trust).expect("a handshake");
        write!(stream, "GET /v1/events?token={token} HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
        read_until(&mut stream, "retry: ");
        stream
    })
    .await
    .expect("no panic");
    let large = format!("\"{}\"", "x".repeat(100_000));
    node.publish(user("u1"), When::Connected, &large).await;
    node.publish(user("u1"), When::Connected, "7").await;
    let heard = tokio::task::spawn_blocking(move || {
        (
            read_until(&mut stream, "\n\nevent: msg"),
            read_until(&mut stream, "\n\nevent: msg"),
            read_until(&mut stream, "\n\n"),
        )
    });
    let (_, first, second) = heard.await.expect("no panic");
    assert!(first.contains(&large) && second.contains(r#""data":7"#), "{second}");
    let (mut other, mut io) = ask_api(&node, &trusted).await;
    let answered = tokio::task::spawn_blocking(move || {
        let mut answer = String::new();
        other.read_to_string(&mut answer).map(|_| answer)
    });
    tokio::io::AsyncWriteExt::write_all(&mut io, &[b'y'; 300_000]).await.expect("written");
    tokio::io::AsyncWriteExt::shutdown(&mut io).await.expect("ended");
    assert_eq!(answered.await.expect("no panic").expect("a clean end").len(), 300_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_changes_the_certificate_for_new_connections() {
    let folder = tempfile::tempdir().expect("a folder");
    let (certificate_file, key_file, old) = certificate(folder.path());
    let acceptor = tls::Acceptor::open(&certificate_file, &key_file).expect("usable");
    let node = Arc::new(Node::start(secure(acceptor.clone())).await);
    let dialing = |trusted: &CertificateDer<'static>| {
        let (node, trusted) = (node.clone(), trusted.clone());
        tokio::task::spawn_blocking(move || dial(&node, &trusted).map(drop))
    };
    dialing(&old).await.expect("no panic").expect("trusted");
    let (_, _, new) = certificate(folder.path());
    dialing(&new).await.expect("no panic").expect_err("not yet");
    acceptor.reload(&certificate_file, &key_file).expect("usable");
    dialing(&new).await.expect("no panic").expect("trusted");
    dialing(&old).await.expect("no panic").expect_err("no longer");
    // What cannot be used leaves the former in use.
    std::fs::write(&key_file, "no key").expect("written");
    let error = acceptor.reload(&certificate_file, &key_file).expect_err("no key");
    assert!(error.to_string().contains("key.pem"), "{error}");
    dialing(&new).await.expect("no panic").expect("still trusted");
}

#[tokio::test(flavor = "multi_thread")]
async fn handshakes_that_never_finish_are_ended_and_disturb_nobody() {
    let folder = tempfile::tempdir().expect("a folder");
    let (certificate_file, key_file, _) = certificate(folder.path());
    let acceptor = tls::Acceptor::open(&certificate_file, &key_file).expect("usable");
    let node = Node::start(Config { head_timeout: Duration::from_millis(500), ..secure(acceptor) }).await;
    node.device("d1", "u1", &[]).await;
    let mut client = node.connect("d1").await;
    let mut sockets = Vec::new();
    for n in 0..60 {
        let mut socket = TcpStream::connect(node.gateway.local_addrs()[1]).expect("connected");
        // Nothing, the start of a hello, and what is no TLS at all.
        let start: &[u8] =
            [b"".as_slice(), &[0x16, 0x03, 0x01, 0x02, 0x00, 0x01], b"GET / HTTP/1.1\r\n\r\n"][n % 3];
        socket.write_all(start).expect("sent");
        sockets.push(socket);
    }
    node.publish(user("u1"), When::Connected, "1").await;
    assert_eq!(client.next_data().await, json!(1));
    node.until("all are gone", |node| node.gateway.connections() == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_handshakes_is_worked_off_and_messages_pass_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let (certificate_file, key_file, trusted) = certificate(folder.path());
    let acceptor = tls::Acceptor::open(&certificate_file, &key_file).expect("usable");
    let node = Arc::new(Node::start(secure(acceptor)).await);
    node.device("d1", "u1", &[]).await;
    let mut heard = node.connect("d1").await;
    let storming = node.clone();
    // More than a turn of both shards may cost, so that most have to wait.
    let storm = tokio::task::spawn_blocking(move || {
        let client = client(&trusted);
        let mut streams: Vec<Secure> =
            (0..300).map(|_| begin(&storming, &client).expect("connected")).collect();
        // Some leave while they wait, and their places are taken by others.
        streams.drain(..100);
        streams.extend((0..50).map(|_| begin(&storming, &client).expect("connected")));
        for stream in &mut streams {
            finish(stream).expect("a handshake");
            stream.write_all(b"GET /v1/me HTTP/1.1\r\n\r\n").expect("sent");
        }
        streams
    });
    for n in 0..20 {
        node.publish(user("u1"), When::Connected, &n.to_string()).await;
        assert_eq!(heard.next_data().await, json!(n));
    }
    let streams = storm.await.expect("no panic");
    node.until("all are served", |node| node.handed_over.lock().expect("no panic").len() == streams.len())
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resumed_connection_needs_no_signature_even_after_a_reload() {
    let folder = tempfile::tempdir().expect("a folder");
    let (certificate_file, key_file, trusted) = certificate(folder.path());
    let acceptor = tls::Acceptor::open(&certificate_file, &key_file).expect("usable");
    let node = Arc::new(Node::start(secure(acceptor.clone())).await);
    node.device("d1", "u1", &[]).await;
    let returning = client(&trusted);
    let come = || {
        let (node, token, returning) = (node.clone(), node.token("d1"), returning.clone());
        tokio::task::spawn_blocking(move || {
            let mut stream = dial_as(&node, &returning).expect("a handshake");
            write!(stream, "GET /v1/events?token={token} HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
            // The ticket comes before the answer.
            read_until(&mut stream, "retry: ");
            stream.conn.handshake_kind()
        })
    };
    assert_eq!(come().await.expect("no panic"), Some(HandshakeKind::Full));
    assert_eq!(come().await.expect("no panic"), Some(HandshakeKind::Resumed));
    acceptor.reload(&certificate_file, &key_file).expect("usable");
    assert_eq!(come().await.expect("no panic"), Some(HandshakeKind::Resumed));
}
