//! What a device says and understands, bytes in and bytes out: one speech for each [`Dialect`], behind the same
//! three calls. It holds nothing while the device is idle but what an unfinished frame takes; what all
//! devices of a worker need comes with each [`Turn`]. [`crate::device`] owns the socket.
//!
//! ```text
//!   begin ──► first bytes      hear(bytes, Turn) ──► answers, counts, a later stage, or the end
//!   WebSocket ─┬─ native        Events      Mqtt      Xmpp
//!              ├─ socket_io
//!              └─ frames
//! ```

mod events;
mod frames;
mod mqtt;
mod native;
mod socket_io;
mod websocket;
mod xmpp;

use noroshi_protocol::ws::Inflater;

use crate::device::{Ended, Reading, Stage};
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

/// Who logs in, and where.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Login<'a> {
    pub(crate) host: &'a str,
    pub(crate) name: &'a str,
    pub(crate) secret: Option<&'a str>,
    /// Subscribed to, for as long as the connection lasts.
    pub(crate) topic: Option<&'a str>,
}

impl<'a> Login<'a> {
    /// For protocols in which Noroshi is the only server.
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

/// What a speech may use and change while it is its turn.
pub(crate) struct Turn<'a> {
    pub(crate) dialect: &'a Dialect,
    pub(crate) topic: Option<&'a str>,
    pub(crate) stamp: &'a StampFinder,
    pub(crate) seen: &'a mut Seen,
    /// To send.
    pub(crate) out: &'a mut Vec<u8>,
    /// Ids to ack with one frame, empty between turns.
    pub(crate) acks: &'a mut Vec<u8>,
    pub(crate) inflater: &'a mut Inflater,
    pub(crate) stage: &'a mut Stage,
    /// Messages since the device connected.
    pub(crate) received: &'a mut u32,
    pub(crate) reading: Reading,
}

impl Turn<'_> {
    /// A message came, `bytes` long.
    fn message(&mut self, stamp_ns: Option<u64>, bytes: usize) {
        *self.received += 1;
        if self.reading == Reading::Eager {
            self.seen.message(*self.received, stamp_ns, bytes);
        }
    }
}

impl Speech {
    /// How a connection begins, with the first bytes to send.
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

    /// For a connection on which nothing is said.
    pub(crate) fn silent() -> Self {
        Self::Events(Events::default())
    }

    /// Takes what the server said.
    pub(crate) fn hear(&mut self, bytes: &mut [u8], turn: &mut Turn<'_>) -> Result<(), Ended> {
        match self {
            Speech::WebSocket(speech) => speech.hear(bytes, turn),
            Speech::Events(speech) => speech.hear(bytes, turn),
            Speech::Mqtt(speech) => speech.hear(bytes, turn),
            Speech::Xmpp(speech) => speech.hear(bytes, turn),
        }
    }

    /// Appends what publishes `text` to everybody, as another server wants it.
    pub(crate) fn say(&self, text: &str, dialect: &Dialect, topic: Option<&str>, out: &mut Vec<u8>) {
        let topic = topic.unwrap_or_default();
        match (self, dialect) {
            (Speech::Mqtt(_), _) => mqtt::push_publish(out, topic, text),
            (Speech::Xmpp(_), Dialect::Xmpp(of)) => xmpp::push_publish(out, of, topic, text),
            (Speech::WebSocket(_) | Speech::Events(_) | Speech::Xmpp(_), _) => {
                websocket::push_text(out, text.as_bytes());
            }
        }
    }
}

/// Why an upgrade or a stream was refused by HTTP; none until the answer is complete.
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
