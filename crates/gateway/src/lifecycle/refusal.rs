//! Refusals in HTTP in the format of the API: a problem document with a stable code, and the request's id.
//!
//! Each closes its connection. Every code is in `protocol::http::REFUSALS`, from which the API's page of errors is
//! generated.

use noroshi_protocol::http::{self, Head};

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
