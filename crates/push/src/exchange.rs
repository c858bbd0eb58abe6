//! The border between the pools and the services' folders: a request as a service's folder makes it, and
//! a response as it reads it. Pools know HTTP and nothing of a service; folders know a service and no socket.

use std::time::Duration;

use bytes::Bytes;
use noroshi_types::Timestamp;

use crate::push::Reason;

/// One request, without the pseudo-headers that the pool adds (`:method POST`, `:scheme https`, `:authority`).
#[derive(Debug, Clone, Default)]
pub struct Request {
    pub path: String,
    /// Names in lower case (RFC 9113 §8.2). `shared` values are the same for many requests and worth a
    /// place in HPACK's table.
    pub headers: Vec<Header>,
    pub body: Bytes,
}

#[derive(Debug, Clone)]
pub struct Header {
    pub name: &'static str,
    pub value: Bytes,
    pub shared: bool,
}

/// A response, whole: bodies of push services are small and bounded by the pool.
#[derive(Debug, Clone, Copy)]
pub struct Response<'a> {
    pub status: u16,
    pub retry_after: Option<Duration>,
    pub body: &'a [u8],
    pub now: Timestamp,
}

/// What a response means, by what the pool does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The answer for this push; the pool goes on.
    Answer(crate::Answer),
    /// The authorization was not taken: make a new one (the pool asks once) and send this push again.
    Unauthorized { reason: Reason },
    /// As `Unauthorized`, and this connection is of no more use: what is on it ends, nothing new starts.
    Wedged { reason: Reason },
    /// The credential itself is bad: every push will fail until an operator acts. The pool stops asking for
    /// a while, raises the alarm and answers `Later`.
    Broken { reason: Reason },
    /// The service as a whole is busy or out of order: slow down for `after` (none: by back-off), try this again.
    Overloaded { reason: Reason, after: Option<Duration> },
}
