//! What admission and drain know: counts of clients, connections without a credential, the drain. The shard admits and closes.
//!
//! May use: everything below it ([`crate::wire`], [`crate::io`], [`crate::session`], [`crate::fanout`],
//! [`crate::protocol`]). It decides from the facts that the shard passes, and changes no connection: the shard does.
//!
//! The node owns the [`drain`] and the counts of [`clients`]; a shard owns one [`Lifecycle`].

pub(crate) mod clients;
pub mod drain;
pub(crate) mod unauthenticated;

use noroshi_protocol::http::{self, Head};

use clients::Seats;
use drain::Round;
use unauthenticated::Unauthenticated;

/// How a connection was admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Admitted,
    /// Over the rate of connects, or over their number: a device gets a delay for its reconnect, and the API serves its
    /// requests.
    OverRate,
}

/// How often one shard looks for parked sessions that are due.
pub(crate) const PARKED_EVERY_MS: u64 = 1_000;

/// The lifecycle of one shard's connections, without the connections' own state.
#[derive(Default)]
pub(crate) struct Lifecycle {
    pub(crate) unauthenticated: Unauthenticated,
    pub(crate) seats: Seats,
    /// The current round of a drain, if one is in progress.
    pub(crate) round: Option<Round>,
    /// Connections that are removed when the handler is done.
    pub(crate) ended: Vec<u32>,
    /// When parked sessions are due next.
    parked_due_ms: u64,
}

impl Lifecycle {
    /// Whether it is time to look for parked sessions that are due.
    pub(crate) fn is_parked_due(&mut self, now_ms: u64) -> bool {
        let is_due = now_ms >= self.parked_due_ms;
        if is_due {
            self.parked_due_ms = now_ms + PARKED_EVERY_MS;
        }
        is_due
    }
}

/// An id of this node, for a request without one.
pub(crate) fn drawn_id(number: u64) -> String {
    format!("{number:016x}")
}

/// The client's own id, if it may be logged, with the API's rules.
pub(crate) fn request_id<'a>(head: &Head<'a>) -> Option<&'a str> {
    let (id, token) = (head.header("x-request-id")?, head.query_value("token"));
    let of_query = token.iter().map(|token| token.as_bytes());
    let credentials: Vec<_> = head.header_bytes("authorization").chain(of_query).collect();
    http::is_request_id(id.as_bytes(), &credentials).then_some(id)
}
