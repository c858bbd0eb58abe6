//! Finds out whose token a log-in or a renewal brings, for every protocol.
//!
//! The caller passes a closure that goes on with the answer. It runs at once where the check takes microseconds. A token
//! that needs a public key goes to the pool of `auth`; its answer comes by the mailbox, and the closure runs in that later
//! turn. The shard drops the answer if the connection has ended.
//!
//! While the pool verifies the token of a log-in, the connection is in [`Phase::LoggingIn`], so the shard keeps what the
//! client sends early. An XMPP connection stays in its phase: its conversation keeps early stanzas itself and continues
//! the negotiation after the answer.
//!
//! A shard has at most [`VERIFYING_MAX`] verifications under way. It refuses further ones and advises the client to retry.

use noroshi_auth::Refused;
use noroshi_types::CloseReason;

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
