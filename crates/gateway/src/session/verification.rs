//! Requests that wait for the verification of a token.
//!
//! A token that needs a public key goes to the pool of `auth`; its answer reaches the shard in a later turn, together
//! with the [`Pending`] request, which the shard then continues. The shard drops the answer if the connection has
//! ended.
//!
//! A shard has at most [`VERIFYING_MAX`] verifications in progress. It refuses further ones and advises the client to
//! retry.

use noroshi_auth::Refused;
use noroshi_types::CloseReason;

use crate::session::request::BoxedRequest;

/// Verifications of one shard in progress: the pool's whole queue, and results that the shard has not handled yet. Apps
/// share the pool's queue; a smaller bound here would let one app take the places of the others.
pub(crate) const VERIFYING_MAX: usize = noroshi_auth::VERIFICATIONS_MAX + 1_024;

/// The close reason of a log-in that is refused.
pub(crate) fn close_reason(refused: &Refused) -> CloseReason {
    match refused {
        Refused::Expired => CloseReason::Expired,
        Refused::TooManyFailures { .. } => CloseReason::RateLimited,
        Refused::Busy => CloseReason::Overloaded,
        _ => CloseReason::Unauthorized,
    }
}

/// The token of an HTTP request that opens a connection, and the app that the request names.
#[derive(Default)]
pub(crate) struct Credentials {
    pub(crate) token: Option<String>,
    pub(crate) app: Option<String>,
}

/// Continues when the token is verified.
pub(crate) enum Pending {
    LogIn(BoxedRequest),
    Renewal { number: u64, request: BoxedRequest },
}
