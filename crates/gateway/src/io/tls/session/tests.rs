//! The session against rustls' own client over a wire in memory, which can be as slow and as narrow as
//! a test wants.

use std::collections::VecDeque;
use std::path::PathBuf;

use rustls::client::Resumption;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, SupportedProtocolVersion};
use rustls_pki_types::ServerName;

use super::*;
use crate::io::tls::Acceptor;

const VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];

/// The server's side of a connection.
struct Wire {
    to_server: VecDeque<u8>,
    to_client: VecDeque<u8>,
    /// Bytes of one read.
    step: usize,
    /// Bytes that are taken for the client before it must read.
    room: usize,
    ended: bool,
}

impl Read for Wire {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.to_server.is_empty() && !self.ended {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let count = into.len().min(self.step);
        self.to_server.read(&mut into[..count])
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(self.room.saturating_sub(self.to_client.len()));
        if count == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.to_client.extend(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A certificate in files, and a client that trusts it.
struct Site {
    acceptor: Acceptor,
    certificate: PathBuf,
    key: PathBuf,
    client: ClientConfig,
    roots: RootCertStore,
    _folder: tempfile::TempDir,
}

impl Site {
    fn new(version: &'static SupportedProtocolVersion) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (certificate, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("made");
        std::fs::write(&certificate, made.cert.pem()).expect("written");
        std::fs::write(&key, made.signing_key.serialize_pem()).expect("written");
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).expect("a root");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_root_certificates(roots.clone())
            .with_no_client_auth();
        client.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        client.resumption = Resumption::in_memory_sessions(8);
        let acceptor = Acceptor::open(&certificate, &key).expect("usable");
        Self { acceptor, certificate, key, client, roots, _folder: folder }
    }

    fn reload(&self) {
        self.acceptor.reload(&self.certificate, &self.key).expect("usable");
    }

    /// Before the handshake.
    fn dial(&self) -> Pair {
        let name = ServerName::try_from("localhost").expect("a name");
        Pair {
            client: ClientConnection::new(Arc::new(self.client.clone()), name).expect("a client"),
            server: self.acceptor.session().expect("a session"),
            wire: Wire {
                to_server: VecDeque::new(),
                to_client: VecDeque::new(),
                step: usize::MAX,
                room: 1 << 20,
                ended: false,
            },
            into: 64 << 10,
        }
    }

    /// After it.
    fn connect(&self) -> Pair {
        let mut pair = self.dial();
        pair.shake_hands();
        pair
    }
}

struct Pair {
    client: ClientConnection,
    server: TlsSession,
    wire: Wire,
    /// The length of the buffer the server reads into.
    into: usize,
}

impl Pair {
    fn client_writes(&mut self, bytes: &[u8]) {
        self.client.writer().write_all(bytes).expect("buffered");
        self.client_sends();
    }

    fn client_sends(&mut self) {
        while self.client.wants_write() {
            self.client.write_tls(&mut self.wire.to_server).expect("room");
        }
    }

    /// All plaintext that came to the client.
    fn client_reads(&mut self) -> Vec<u8> {
        let mut plaintext = Vec::new();
        while !self.wire.to_client.is_empty() {
            self.client.read_tls(&mut self.wire.to_client).expect("room");
            let state = self.client.process_new_packets().expect("understood");
            let start = plaintext.len();
            plaintext.resize(start + state.plaintext_bytes_to_read(), 0);
            self.client.reader().read_exact(&mut plaintext[start..]).expect("it is there");
        }
        self.client_sends();
        plaintext
    }

    /// All plaintext that came to the server; the error that is no `WouldBlock`, if there was one.
    fn server_reads(&mut self) -> (Vec<u8>, Option<io::Result<()>>) {
        let (mut plaintext, mut into) = (Vec::new(), vec![0; self.into]);
        loop {
            match self.server.read(&mut self.wire, &mut into) {
                Ok(0) => return (plaintext, Some(Ok(()))),
                Ok(count) => plaintext.extend_from_slice(&into[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return (plaintext, None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return (plaintext, Some(Err(error))),
            }
        }
    }

    fn server_hears(&mut self) -> Vec<u8> {
        let (plaintext, end) = self.server_reads();
        assert!(end.is_none(), "ended: {end:?}");
        plaintext
    }

    fn server_writes(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.server.write_vectored(&mut self.wire, &[IoSlice::new(bytes)])
    }

    fn shake_hands(&mut self) {
        while self.client.is_handshaking() || self.server.is_handshaking() {
            self.client_sends();
            assert!(self.server_hears().is_empty(), "nothing was said");
            self.server.flush(&mut self.wire).expect("open");
            self.client_reads();
        }
        self.settle();
    }

    /// Delivers what is still on the way: tickets.
    fn settle(&mut self) {
        self.client_sends();
        self.server_hears();
        assert!(self.server.flush(&mut self.wire).expect("open"));
        self.client_reads();
    }

    /// Asserts that the server has no buffers, as an idle session has none. The caller has flushed all output before.
    fn assert_idle(&self) {
        assert_eq!(self.server.incomplete.capacity(), 0);
        assert!(self.server.unread.is_empty() && self.server.unsent.is_empty());
    }
}

fn numbered(len: usize) -> Vec<u8> {
    (0..len).map(|n| u8::try_from(n % 251).expect("small")).collect()
}

#[test]
fn the_server_prefers_suites_with_sha_256_and_accepts_the_others() {
    for version in VERSIONS {
        let mut site = Site::new(version);
        let chosen = |pair: &Pair| pair.client.negotiated_cipher_suite().expect("negotiated");
        // The client prefers AES-256 with SHA-384.
        assert!(!crate::io::tls::has_sha384(&chosen(&site.connect())), "{version:?}");
        let mut only = rustls::crypto::ring::default_provider();
        only.cipher_suites.retain(crate::io::tls::has_sha384);
        site.client = ClientConfig::builder_with_provider(Arc::new(only))
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_root_certificates(site.roots.clone())
            .with_no_client_auth();
        assert!(crate::io::tls::has_sha384(&chosen(&site.connect())), "{version:?}");
    }
}

#[test]
fn both_sides_receive_pieces_of_any_size() {
    for version in VERSIONS {
        let site = Site::new(version);
        for (step, into) in [(1, 64 << 10), (1, 1), (7, 3), (usize::MAX, 1), (usize::MAX, 64 << 10)] {
            let mut pair = site.dial();
            (pair.wire.step, pair.into) = (step, into);
            pair.shake_hands();
            assert_eq!(pair.client.protocol_version(), Some(version.version));
            assert_eq!(pair.client.alpn_protocol(), Some(&b"http/1.1"[..]));
            let said = numbered(20_000);
            for part in said.chunks(10_000) {
                pair.client_writes(part);
            }
            assert_eq!(pair.server_hears(), said, "{step} bytes a read into {into}");
            assert_eq!(pair.server_writes(b"heard").expect("taken"), 5);
            assert_eq!(pair.client_reads(), b"heard");
            pair.assert_idle();
        }
    }
}

#[test]
fn incomplete_records_are_kept_and_then_freed() {
    let site = Site::new(&TLS13);
    let mut pair = site.connect();
    pair.client_writes(b"hello");
    let last = pair.wire.to_server.pop_back().expect("a record");
    assert!(pair.server_hears().is_empty());
    assert!(!pair.server.incomplete.is_empty());
    // Writing continues meanwhile.
    pair.server_writes(b"still here").expect("taken");
    assert_eq!(pair.client_reads(), b"still here");
    pair.wire.to_server.push_back(last);
    assert_eq!(pair.server_hears(), b"hello");
    pair.assert_idle();
}

#[test]
fn large_messages_pass_a_narrow_socket_both_ways() {
    for version in VERSIONS {
        let site = Site::new(version);
        let mut pair = site.connect();
        let large = numbered(1 << 20);
        pair.wire.room = 10_000;
        let (mut taken, mut heard) = (0, Vec::new());
        while heard.len() < large.len() {
            match pair.server_writes(&large[taken..]) {
                Ok(count) => taken += count,
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
            assert!(pair.server.unsent.len() <= RECORD_BYTES_MAX);
            heard.extend(pair.client_reads());
            pair.server.flush(&mut pair.wire).expect("open");
        }
        assert!(heard == large);
        let mut heard = Vec::new();
        for part in large.chunks(60_000) {
            pair.client_writes(part);
            heard.extend(pair.server_hears());
        }
        assert!(heard == large);
        pair.assert_idle();
    }
}

#[test]
fn several_slices_are_one_record_and_long_ones_are_cut() {
    let site = Site::new(&TLS13);
    let mut pair = site.connect();
    let write = |pair: &mut Pair, slices: &[&[u8]]| {
        let slices: Vec<IoSlice<'_>> = slices.iter().map(|slice| IoSlice::new(slice)).collect();
        pair.server.write_vectored(&mut pair.wire, &slices).expect("taken")
    };
    assert_eq!(write(&mut pair, &[b"one", b"", b"two", b"three"]), 11);
    // Header, content type and tag (RFC 8446 §5.2).
    assert_eq!(pair.wire.to_client.len(), 11 + 5 + 1 + 16);
    assert_eq!(pair.client_reads(), b"onetwothree");
    let large = numbered(40_000);
    assert_eq!(write(&mut pair, &[b"", &large]), RECORD_PLAINTEXT_MAX);
    assert_eq!(write(&mut pair, &[&large[..10_000], &large]), RECORD_PLAINTEXT_MAX);
    assert_eq!(pair.client_reads().len(), 2 * RECORD_PLAINTEXT_MAX);
    assert_eq!(write(&mut pair, &[]), 0);
    assert_eq!(write(&mut pair, &[b""]), 0);
    assert!(pair.wire.to_client.is_empty());
}

#[test]
fn keys_change_on_demand_and_the_change_is_answered() {
    let site = Site::new(&TLS13);
    let mut pair = site.connect();
    for n in 0..100 {
        pair.client.refresh_traffic_keys().expect("TLS 1.3");
        pair.client_writes(b"with new keys");
        assert_eq!(pair.server_hears(), b"with new keys", "change {n}");
        // Before the next message, as RFC 8446 §4.6.3 wants it: the client would not understand the
        // message without.
        pair.server_writes(b"with new keys too").expect("taken");
        assert_eq!(pair.client_reads(), b"with new keys too");
        pair.assert_idle();
    }
}

#[test]
fn keys_that_change_for_nothing_end_the_connection() {
    let site = Site::new(&TLS13);
    let mut pair = site.connect();
    for _ in 0..100 {
        pair.client.refresh_traffic_keys().expect("TLS 1.3");
        pair.client_sends();
    }
    let (_, end) = pair.server_reads();
    let error = end.expect("an end").expect_err("a failure");
    assert!(error.to_string().contains("TooManyKeyUpdateRequests"), "{error}");
    assert_eq!(pair.server_writes(b"x").expect_err("failed").kind(), io::ErrorKind::BrokenPipe);
}

#[test]
fn both_sides_can_close() {
    for version in VERSIONS {
        let site = Site::new(version);
        let mut pair = site.connect();
        pair.client_writes(b"last words");
        pair.client.send_close_notify();
        pair.client_sends();
        pair.wire.to_server.extend([0x17, 0x03, 0x03, 0xff, 0xff]);
        let (heard, end) = pair.server_reads();
        assert_eq!(heard, b"last words");
        end.expect("an end").expect("a clean one, whatever follows");
        // It may still be answered.
        pair.server_writes(b"an answer").expect("taken");
        assert_eq!(pair.client_reads(), b"an answer");
        pair.server.close(&mut pair.wire);
        pair.server.close(&mut pair.wire);
        assert_eq!(pair.client_reads(), b"");
        assert_eq!(pair.client.reader().read(&mut [0]).expect("a clean end"), 0);
        assert_eq!(pair.server_writes(b"x").expect_err("ended").kind(), io::ErrorKind::BrokenPipe);
    }
}

#[test]
fn a_close_notify_that_does_not_fit_is_sent_later() {
    let site = Site::new(&TLS13);
    let mut pair = site.connect();
    pair.wire.room = 3;
    pair.server_writes(b"cut short").expect("taken");
    pair.server.close(&mut pair.wire);
    pair.wire.room = 1 << 20;
    assert!(pair.server.flush(&mut pair.wire).expect("open"));
    assert_eq!(pair.client_reads(), b"cut short");
    assert_eq!(pair.client.reader().read(&mut [0]).expect("a clean end"), 0);
    pair.assert_idle();
}

#[test]
fn a_transport_that_ends_without_close_notify_is_an_end() {
    let site = Site::new(&TLS13);
    let mut pair = site.connect();
    pair.client_writes(b"whole");
    pair.client_writes(b"cut");
    pair.wire.to_server.pop_back();
    pair.wire.ended = true;
    let (heard, end) = pair.server_reads();
    assert_eq!(heard, b"whole");
    end.expect("an end").expect("no failure");
    pair.server_writes(b"x").expect("the other direction is open");
    // The same in the middle of a handshake.
    let mut pair = site.dial();
    pair.client_sends();
    pair.wire.to_server.pop_back();
    pair.wire.ended = true;
    pair.server_reads().1.expect("an end").expect("no failure");
    assert_eq!(pair.server_writes(b"x").expect_err("too early").kind(), io::ErrorKind::NotConnected);
    pair.server.close(&mut pair.wire);
}

#[test]
fn a_violation_is_answered_with_an_alert() {
    let site = Site::new(&TLS13);
    let hello_of_length = |length: u8| [[0x16, 3, 1, 0, 4, 1, 0, length, 0].as_slice(), &[0; 9]].concat();
    let endless: Vec<u8> = [[0x16, 3, 1, 0, 4, 1, 0, 0xff, 0].as_slice()]
        .into_iter()
        .chain(std::iter::repeat_n([0x16, 3, 1, 0, 1, 0].as_slice(), 10_000))
        .flatten()
        .copied()
        .collect();
    for (input, wanted) in [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(), "InvalidContentType"),
        (vec![0x16, 3, 1, 0, 0], "InvalidEmptyPayload"),
        (vec![0x16, 3, 1, 0xff, 0xff], "MessageTooLarge"),
        (vec![0x16, 7, 7, 0, 1, 0], "UnknownProtocolVersion"),
        (vec![0x17, 3, 3, 0, 1, 0], "Message"),
        (hello_of_length(0), "MissingData"),
        (endless, "HandshakePayloadTooLarge"),
    ] {
        for step in [1, usize::MAX] {
            let mut pair = site.dial();
            pair.wire.step = step;
            pair.wire.to_server.extend(&input);
            let (heard, end) = pair.server_reads();
            assert!(heard.is_empty());
            let error = end.unwrap_or_else(|| panic!("{wanted}: no end")).expect_err("a failure");
            assert!(format!("{error:?}").contains(wanted), "{wanted}: {error:?}");
            pair.assert_idle();
            let again = pair.server_reads().1.expect("an end").expect_err("it stays so");
            assert_eq!(again.to_string(), error.to_string());
            pair.server.close(&mut pair.wire);
        }
    }
}

#[test]
fn a_forged_record_is_answered_with_an_alert_behind_earlier_plaintext() {
    for version in VERSIONS {
        let site = Site::new(version);
        let mut pair = site.connect();
        pair.client_writes(b"genuine");
        pair.client_writes(b"forged");
        *pair.wire.to_server.back_mut().expect("a record") ^= 1;
        let (heard, end) = pair.server_reads();
        assert_eq!(heard, b"genuine");
        end.expect("an end").expect_err("a failure");
        pair.client.read_tls(&mut pair.wire.to_client).expect("an alert");
        let told = pair.client.process_new_packets().expect_err("an alert");
        assert_eq!(told, rustls::Error::AlertReceived(rustls::AlertDescription::BadRecordMac));
    }
}

#[test]
fn a_slow_handshake_holds_only_received_bytes() {
    let site = Site::new(&TLS13);
    let mut pair = site.dial();
    // A record of the largest length, one byte at a time: memory grows only with the bytes that arrived.
    pair.wire.to_server.extend([0x16, 3, 1, 0x40, 0]);
    for n in 5..1_000 {
        pair.wire.to_server.push_back(0);
        assert!(pair.server_hears().is_empty());
        assert_eq!(pair.server.incomplete.len(), n + 1);
        assert!(pair.server.incomplete.capacity() <= 2 * (n + 1), "at {n}");
    }
}

#[test]
fn a_hello_in_many_records_is_understood() {
    for version in VERSIONS {
        let mut site = Site::new(version);
        site.client.max_fragment_size = Some(40);
        for step in [1, 50, usize::MAX] {
            let mut pair = site.dial();
            pair.wire.step = step;
            pair.shake_hands();
            pair.client_writes(&numbered(1_000));
            assert_eq!(pair.server_hears(), numbered(1_000));
            pair.assert_idle();
        }
    }
}

#[test]
fn resumption_needs_no_signature_even_after_a_reload() {
    for version in VERSIONS {
        let mut site = Site::new(version);
        let kind = |site: &Site| site.connect().client.handshake_kind();
        assert_eq!(kind(&site), Some(HandshakeKind::Full));
        assert_eq!(kind(&site), Some(HandshakeKind::Resumed));
        site.reload();
        assert_eq!(kind(&site), Some(HandshakeKind::Resumed));
        // Another process cannot read the tickets of this one.
        site.acceptor = Acceptor::open(&site.certificate, &site.key).expect("usable");
        assert_eq!(kind(&site), Some(HandshakeKind::Full));
    }
}

#[test]
fn records_without_plaintext_do_not_keep_the_reader() {
    let mut pair = Site::new(&TLS13).connect();
    for _ in 0..5 {
        pair.client.refresh_traffic_keys().expect("after the handshake");
        pair.client_sends();
    }
    let all = pair.wire.to_server.len();
    pair.wire.step = all / 5;
    let mut reads = 0;
    while !pair.wire.to_server.is_empty() {
        let error = pair.server.read(&mut pair.wire, &mut [0; 64]).expect_err("no plaintext");
        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
        reads += 1;
        assert_eq!(pair.wire.to_server.len(), all - reads * (all / 5), "one step a call");
    }
    pair.wire.step = usize::MAX;
    pair.client_writes(b"still here");
    assert_eq!(pair.server_hears(), b"still here");
}
