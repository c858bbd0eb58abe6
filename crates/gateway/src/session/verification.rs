//! What waits for a token to be verified.
//!
//! A token that needs a public key goes to the pool of `auth`; its answer reaches the shard in a later turn, together with
//! the [`Pending`] request, which the shard then continues. The shard drops the answer if the connection has ended.
//!
//! A shard has at most [`VERIFYING_MAX`] verifications under way. It refuses further ones and advises the client to retry.

use noroshi_auth::Refused;
use noroshi_protocol::mqtt::{Answer, OfferedWill};
use noroshi_protocol::socket_io;
use noroshi_types::CloseReason;
use noroshi_types::{NotificationId, Topic};

/// Verifications that one shard has out: the pool's whole queue and answers that the shard has not handled yet. The pool
/// shares its queue among apps; a smaller bound here would let one app take the room of the others.
pub(crate) const VERIFYING_MAX: usize = noroshi_auth::VERIFICATIONS_MAX + 1_024;

/// What ends the connection of a log-in that is refused.
pub(crate) fn close_reason(refused: &Refused) -> CloseReason {
    match refused {
        Refused::Expired => CloseReason::Expired,
        Refused::TooManyFailures { .. } => CloseReason::RateLimited,
        Refused::Busy => CloseReason::Overloaded,
        _ => CloseReason::Unauthorized,
    }
}

/// Continues when the token is verified.
pub(crate) enum Pending {
    LogIn(LogInRequest),
    Renewal { number: u64, request: RenewalRequest },
}

/// Who asks for a log-in, and what the protocol has to remember until the answer.
pub(crate) enum LogInRequest {
    Native,
    EventStream {
        topics: Vec<Topic>,
        resume: Option<NotificationId>,
    },
    /// `device`: what the client calls itself besides its token.
    Mqtt {
        device: Option<Box<str>>,
        will: Option<OfferedWill>,
    },
    SocketIo(Box<socket_io::LogIn>),
    Xmpp,
}

/// Who is told how a renewal ended.
pub(crate) enum RenewalRequest {
    Native,
    Mqtt { answer: Option<Answer> },
    SocketIo { reply: socket_io::Reply },
}

/// How many verifications a shard has under way.
#[derive(Default)]
pub(crate) struct Verifications(usize);

impl Verifications {
    pub(crate) fn is_full(&self) -> bool {
        self.0 == VERIFYING_MAX
    }

    pub(crate) fn begin(&mut self) {
        self.0 += 1;
    }

    pub(crate) fn end(&mut self) {
        self.0 -= 1;
    }
}
