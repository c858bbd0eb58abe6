//! What all conversations of a node share, and what is known of one before its first byte.

use super::xml::Limits;

/// How elements are cut on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// One XML document (RFC 6120).
    Stream,
    /// One WebSocket text frame an element (RFC 7395): bytes that are sent include the frame's header.
    WebSocket,
}

/// What protects the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Security {
    /// TLS, from the start or by now.
    Encrypted,
    /// No TLS here. Log-ins are only offered where [`Config::allow_plaintext`] says so.
    Plaintext,
    /// No TLS yet, and STARTTLS is offered; required unless [`Config::allow_plaintext`].
    StartTls,
}

#[derive(Debug, Clone)]
pub struct Config {
    /// In lower case.
    pub domain: Box<str>,
    /// The PubSub service's address.
    pub pubsub: Box<str>,
    pub xml: Limits,
    /// Log-ins without TLS: for loopback and tests (RFC 6120 §13.8.3 forbids PLAIN there otherwise).
    pub allow_plaintext: bool,
    /// Whether keys or tokens can be found by a device's name, which SCRAM needs.
    pub scram: bool,
    /// Failed log-ins after which the stream ends; RFC 6120 §6.4.5 recommends 2 to 5.
    pub attempts_max: u8,
    /// Elements that may wait for the answer to a log-in.
    pub early_max: usize,
    pub early_bytes_max: usize,
    /// How long a session may be resumed; 0 is never (XEP-0198 §5).
    pub resume_max_s: u32,
    /// Where to resume, `host:port`.
    pub resume_location: Option<Box<str>>,
    /// Begins the ids of resumable sessions: names the node to whoever routes by it.
    pub resume_prefix: Box<str>,
    /// Stanzas sent and not confirmed; of each, what is kept to be sent again.
    pub unacked_max: usize,
    pub unacked_bytes_max: usize,
    /// How long a client may stay over twice `unacked_max` without confirming anything; then its stream ends.
    pub unacked_patience_ms: u32,
    /// In-band registration (XEP-0077).
    pub registration: bool,
    /// Makes salts for names nobody has, so that they look like others.
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
            unacked_patience_ms: 20_000,
            registration: false,
            decoy: [0; 32],
        }
    }
}

/// What a call needs besides its input.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub config: &'a Config,
    /// Fills a buffer with what nobody can guess.
    pub random: &'a dyn Fn(&mut [u8]),
    /// By a clock that never goes back, modulo 2^32.
    pub now_ms: u32,
}

impl Context<'_> {
    pub(super) fn token<const BYTES: usize>(&self) -> String {
        let mut bytes = [0; BYTES];
        (self.random)(&mut bytes);
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}
