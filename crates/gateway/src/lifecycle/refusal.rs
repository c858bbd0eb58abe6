//! Refusals in HTTP, in the form of the API's own: a problem with a stable code, and the request's id.
//!
//! Each is the last word on its connection. Every code is in `protocol::http::REFUSALS`, from which the
//! API's page of errors is made.

use noroshi_protocol::http::{self, Head};
use noroshi_types::CloseReason;

use crate::shard::Shard;

/// An id of this node, for a request that has none.
pub(crate) fn drawn_id(number: u64) -> String {
    format!("{number:016x}")
}

/// The client's own id where it may be logged, as the API takes it.
pub(crate) fn request_id<'a>(head: &Head<'a>) -> Option<&'a str> {
    let (id, token) = (head.header("x-request-id")?, head.query_value("token"));
    let of_query = token.iter().map(|token| token.as_bytes());
    let credentials: Vec<_> = head.header_bytes("authorization").chain(of_query).collect();
    http::is_request_id(id.as_bytes(), &credentials).then_some(id)
}

impl Shard {
    /// Answers with a problem; the connection ends for `reason`.
    pub(crate) fn answer_problem(
        &mut self,
        slot: u32,
        status: u16,
        code: &str,
        detail: &str,
        headers: &[(&str, &str)],
        reason: CloseReason,
    ) {
        debug_assert!(
            http::REFUSALS.iter().any(|refusal| (refusal.code, refusal.status) == (code, status)),
            "{status} {code} is in no table"
        );
        let given =
            self.connection(slot).and_then(|connection| connection.opening.as_mut()?.request_id.take());
        let id = given.map_or_else(|| drawn_id(self.shared.next_number()), String::from);
        tracing::debug!(request = id, status, code, "a request was refused");
        let mut all = vec![("X-Request-Id", id.as_str()), ("Access-Control-Allow-Origin", "*")];
        all.push(("Access-Control-Expose-Headers", "Retry-After, WWW-Authenticate, X-Request-Id"));
        all.extend_from_slice(headers);
        let mut answer = Vec::new();
        http::push_problem(&mut answer, status, code, detail, &all);
        self.answer(slot, answer, reason);
    }
}
