//! The protocol of a device, bytes in and bytes out: one implementation per [`Dialect`], with the same three
//! operations. It holds nothing while the device is idle except an incomplete frame; resources that a
//! worker's devices share are passed with each [`Turn`]. [`crate::device`] owns the socket.
//!
//! ```text
//!   begin ──► first bytes      handle_bytes(bytes, Turn) ──► answers, counts, a later stage, or the end
//!   WebSocket ─┬─ native        Events      Mqtt      Xmpp
//!              ├─ socket_io
//!              └─ frames
//! ```

mod events;
pub(crate) mod mqtt;
pub(crate) mod native;
mod socket_io;
mod websocket;
mod xmpp;

use std::ops::ControlFlow;

use noroshi_protocol::ws::{Inflater, Opcode, push_masked_frame};

use crate::connection::{Ended, Reading, Stage};
use crate::dialect::Dialect;
use crate::http::Response;
use crate::payload::StampFinder;
use crate::seen::Seen;
use events::Events;
use mqtt::Mqtt;
use websocket::WebSocket;
use xmpp::Xmpp;

/// Data and notification of 4 KiB each, and a few fields.
const MESSAGE_BYTES_MAX: usize = 64 << 10;
const RESPONSE_BYTES_MAX: usize = 16 << 10;

/// Masks protect intermediaries (RFC 6455 §10.3); there are none in between.
pub(crate) const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// The credentials and the server of a log-in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Login<'a> {
    pub(crate) host: &'a str,
    pub(crate) name: &'a str,
    pub(crate) secret: Option<&'a str>,
    /// Subscribed until the connection ends.
    pub(crate) topic: Option<&'a str>,
}

impl<'a> Login<'a> {
    /// For protocols that only Noroshi implements.
    fn token(self) -> &'a str {
        self.secret.unwrap_or_default()
    }
}

pub(crate) enum Speech {
    WebSocket(WebSocket),
    Events(Events),
    Mqtt(Mqtt),
    Xmpp(Xmpp),
}

/// Resources that a protocol may use and change during its turn.
pub(crate) struct Turn<'a> {
    pub(crate) dialect: &'a Dialect,
    pub(crate) topic: Option<&'a str>,
    pub(crate) stamp: &'a StampFinder,
    pub(crate) seen: &'a mut Seen,
    /// Bytes to send.
    pub(crate) out: &'a mut Vec<u8>,
    /// Ids to ack with one frame, empty between turns unless the device holds them.
    pub(crate) acks: &'a mut Vec<u8>,
    pub(crate) holds_acks: bool,
    pub(crate) inflater: &'a mut Inflater,
    pub(crate) stage: &'a mut Stage,
    /// Messages since the device connected.
    pub(crate) received: &'a mut u32,
    pub(crate) reading: Reading,
}

impl Turn<'_> {
    /// Records a message of `bytes` bytes.
    fn message(&mut self, stamp_ns: Option<u64>, bytes: usize) {
        *self.received += 1;
        if self.reading == Reading::Eager {
            self.seen.message(*self.received, stamp_ns, bytes);
        }
    }
}

impl Speech {
    /// Starts a connection. Returns its state and the first bytes to send.
    pub(crate) fn begin(dialect: &Dialect, login: Login<'_>) -> (Self, Vec<u8>) {
        match dialect {
            Dialect::Native | Dialect::Deflated | Dialect::SocketIo | Dialect::Frames(_) => {
                let (speech, first) = WebSocket::begin(dialect, login);
                (Self::WebSocket(speech), first)
            }
            Dialect::Events => (Self::Events(Events::default()), events::request(login)),
            Dialect::Mqtt(of) => {
                let (speech, first) = Mqtt::begin(of, login);
                (Self::Mqtt(speech), first)
            }
            Dialect::Xmpp(of) => {
                let (speech, first) = Xmpp::begin(of, login);
                (Self::Xmpp(speech), first)
            }
        }
    }

    /// For a connection without application data.
    pub(crate) fn silent() -> Self {
        Self::Events(Events::default())
    }

    /// Handles received bytes.
    pub(crate) fn handle_bytes(&mut self, bytes: &mut [u8], turn: &mut Turn<'_>) -> Result<(), Ended> {
        match self {
            Speech::WebSocket(speech) => speech.handle_bytes(bytes, turn),
            Speech::Events(speech) => speech.handle_bytes(bytes, turn),
            Speech::Mqtt(speech) => speech.handle_bytes(bytes, turn),
            Speech::Xmpp(speech) => speech.handle_bytes(bytes, turn),
        }
    }

    /// Appends a message to all devices, for foreign servers.
    pub(crate) fn publish(&self, text: &str, dialect: &Dialect, topic: Option<&str>, out: &mut Vec<u8>) {
        let topic = topic.unwrap_or_default();
        match (self, dialect) {
            (Speech::Mqtt(_), _) => mqtt::push_publish(out, topic, text),
            (Speech::Xmpp(_), Dialect::Xmpp(of)) => xmpp::push_publish(out, of, topic, text),
            (Speech::WebSocket(_) | Speech::Events(_) | Speech::Xmpp(_), _) => {
                push_text(out, text.as_bytes());
            }
        }
    }
}

/// Stops a decoder at the first end of the connection, and keeps it.
fn proceed(heard: Result<(), Ended>, ended: &mut Option<Ended>) -> ControlFlow<()> {
    *ended = heard.err();
    match ended {
        Some(_) => ControlFlow::Break(()),
        None => ControlFlow::Continue(()),
    }
}

/// Appends a text frame of a WebSocket client.
fn push_text(out: &mut Vec<u8>, text: &[u8]) {
    push_masked_frame(out, Opcode::Text, text, MASK);
}

/// Why an upgrade or a stream request was rejected by HTTP; `None` until the response is complete.
fn refusal(bytes: &[u8], status: u16, head_len: usize) -> Option<Ended> {
    match Response::parse(bytes, false) {
        Ok(None) if bytes.len() < head_len + RESPONSE_BYTES_MAX => None,
        Ok(Some(response)) => Some(refused(status, response.problem_code(), response.retry_after_s)),
        Ok(None) | Err(_) => Some(refused(status, format!("HTTP {status}"), None)),
    }
}

fn refused(status: u16, reason: String, retry_after_s: Option<u64>) -> Ended {
    let after_ms = retry_after_s.map(|seconds| seconds.saturating_mul(1_000));
    Ended { reason, retry: matches!(status, 429 | 500..), after_ms }
}
