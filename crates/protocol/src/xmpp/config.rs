//! The configuration that a node's conversations share, and the properties of a connection before its first
//! byte.

use super::xml::Limits;

/// How elements are framed on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// One XML document (RFC 6120).
    Stream,
    /// One element per WebSocket text frame (RFC 7395): sent bytes include the frame header.
    WebSocket,
}

/// The encryption of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Security {
    /// TLS, from the start or by now.
    Encrypted,
    /// No TLS. Log-ins require [`Config::allow_plaintext`].
    Plaintext,
    /// No TLS yet; STARTTLS is offered, and required unless [`Config::allow_plaintext`].
    StartTls,
}

#[derive(Debug, Clone)]
pub struct Config {
    /// In lower case.
    pub domain: Box<str>,
    /// The PubSub service's address.
    pub pubsub: Box<str>,
    pub xml: Limits,
    /// Permits log-ins without TLS: for loopback and tests (otherwise RFC 6120 §13.8.3 forbids PLAIN).
    pub allow_plaintext: bool,
    /// Whether keys or tokens can be found by device name, as SCRAM requires.
    pub scram: bool,
    /// Failed log-ins before the stream is closed; RFC 6120 §6.4.5 recommends 2 to 5.
    pub attempts_max: u8,
    /// Limit of elements that are buffered until a log-in is answered.
    pub early_max: usize,
    pub early_bytes_max: usize,
    /// How long a session may be resumed; 0: never (XEP-0198 §5).
    pub resume_max_s: u32,
    /// The preferred address for a resumption, `host:port`.
    pub resume_location: Option<Box<str>>,
    /// Prefix of the ids of resumable sessions; identifies the node for routing.
    pub resume_prefix: Box<str>,
    /// Limits of unacknowledged stanzas and of the bytes kept to resend them.
    pub unacked_max: usize,
    pub unacked_bytes_max: usize,
    /// How long a client may exceed twice `unacked_max` without acknowledging before its stream ends.
    pub unacked_timeout_ms: u32,
    /// In-band registration (XEP-0077).
    pub registration: bool,
    /// Secret for the salts of unknown names, so that they look like those of known names.
    pub decoy: [u8; 32],
}

impl Config {
    pub fn new(domain: &str) -> Self {
        let domain = domain.to_lowercase();
        Self {
            pubsub: format!("pubsub.{domain}").into(),
            domain: domain.into(),
            xml: Limits::default(),
            allow_plaintext: false,
            scram: false,
            attempts_max: 3,
            early_max: 64,
            early_bytes_max: noroshi_types::limits::EARLY_BYTES,
            resume_max_s: 300,
            resume_location: None,
            resume_prefix: "".into(),
            unacked_max: noroshi_types::limits::ACK_IDS_MAX,
            unacked_bytes_max: noroshi_types::limits::SEND_QUEUE_SOFT_BYTES,
            unacked_timeout_ms: 20_000,
            registration: false,
            decoy: [0; 32],
        }
    }
}

/// The environment of a call.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub config: &'a Config,
    /// Fills a buffer with unpredictable bytes.
    pub random: &'a dyn Fn(&mut [u8]),
    /// From a monotonic clock, modulo 2^32.
    pub now_ms: u32,
}

impl Context<'_> {
    pub(super) fn token<const BYTES: usize>(&self) -> String {
        let mut bytes = [0; BYTES];
        (self.random)(&mut bytes);
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
