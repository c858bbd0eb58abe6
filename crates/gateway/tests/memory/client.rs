//! Clients whose memory is not counted: what grows with their number is the gateway's.
//!
//! A client is made, used and dropped on the test's thread, and only inside [`uncounted`].

use std::cell::Cell;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion};

thread_local! {
    static IS_CLIENT: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread works for a client now.
pub(crate) fn is_client() -> bool {
    IS_CLIENT.get()
}

pub(crate) fn uncounted<R>(work: impl FnOnce() -> R) -> R {
    IS_CLIENT.set(true);
    let result = work();
    IS_CLIENT.set(false);
    result
}

/// A certificate, and what trusts it.
pub(crate) struct Trust {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    roots: RootCertStore,
}

impl Trust {
    pub(crate) fn new(folder: &Path) -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("made");
        let (certificate, key) = (folder.join("cert.pem"), folder.join("key.pem"));
        std::fs::write(&certificate, made.cert.pem()).expect("written");
        std::fs::write(&key, made.signing_key.serialize_pem()).expect("written");
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).expect("a root");
        Self { certificate, key, roots }
    }

    pub(crate) fn client(&self, version: &'static SupportedProtocolVersion) -> Arc<ClientConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_root_certificates(self.roots.clone())
            .with_no_client_auth();
        Arc::new(config)
    }
}

pub(crate) struct Client {
    stream: Stream,
    /// Of its session, where it polls.
    pub(crate) path: String,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Client {
    pub(crate) fn dial(address: SocketAddr, tls: Option<&Arc<ClientConfig>>) -> Self {
        let socket = TcpStream::connect(address).expect("connected");
        let stream = match tls {
            None => Stream::Plain(socket),
            Some(config) => {
                let name = ServerName::try_from("localhost").expect("a name");
                let connection = ClientConnection::new(config.clone(), name).expect("a client");
                Stream::Tls(Box::new(StreamOwned::new(connection, socket)))
            }
        };
        Self { stream, path: String::new() }
    }

    /// Reads up to what ends with `end`: text.
    pub(crate) fn hear_until(&mut self, end: &str) -> String {
        let (mut heard, mut piece) = (Vec::new(), [0; 4_096]);
        while !heard.ends_with(end.as_bytes()) {
            let count = self.read(&mut piece).expect("more");
            assert!(count > 0, "ended: {}", String::from_utf8_lossy(&heard));
            heard.extend_from_slice(&piece[..count]);
        }
        String::from_utf8(heard).expect("text")
    }

    /// An HTTP request of a session that polls.
    pub(crate) fn ask(&mut self, method: &str, body: &str) {
        let Self { path, .. } = &self;
        let bytes = body.len();
        let request =
            format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {bytes}\r\n\r\n{body}");
        self.write_all(request.as_bytes()).expect("sent");
    }

    /// Reads up to what ends with `end`, and forgets it.
    pub(crate) fn read_until(&mut self, end: &[u8]) {
        let (mut heard, mut piece) = (Vec::new(), [0; 4_096]);
        while !heard.windows(end.len()).any(|window| window == end) {
            let count = self.read(&mut piece).expect("more");
            assert!(count > 0, "ended: {}", String::from_utf8_lossy(&heard));
            // What was looked at once is not looked at again, but for what may be half of the end.
            heard.drain(..heard.len().saturating_sub(end.len()));
            heard.extend_from_slice(&piece[..count]);
        }
    }
}

impl Read for Client {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match &mut self.stream {
            Stream::Plain(socket) => socket.read(into),
            Stream::Tls(stream) => stream.read(into),
        }
    }
}

impl Write for Client {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.stream {
            Stream::Plain(socket) => socket.write(bytes),
            Stream::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.stream {
            Stream::Plain(socket) => socket.flush(),
            Stream::Tls(stream) => stream.flush(),
        }
    }
}
