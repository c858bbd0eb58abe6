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

pub(crate) enum Client {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Client {
    pub(crate) fn dial(address: SocketAddr, tls: Option<&Arc<ClientConfig>>) -> Self {
        let socket = TcpStream::connect(address).expect("connected");
        let Some(config) = tls else { return Client::Plain(socket) };
        let name = ServerName::try_from("localhost").expect("a name");
        let connection = ClientConnection::new(config.clone(), name).expect("a client");
        Client::Tls(Box::new(StreamOwned::new(connection, socket)))
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
        match self {
            Client::Plain(socket) => socket.read(into),
            Client::Tls(stream) => stream.read(into),
        }
    }
}

impl Write for Client {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Client::Plain(socket) => socket.write(bytes),
            Client::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Client::Plain(socket) => socket.flush(),
            Client::Tls(stream) => stream.flush(),
        }
    }
}
