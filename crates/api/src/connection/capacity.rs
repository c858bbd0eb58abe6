//! The response for a connection or stream that the pool rejects.

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, header};

use crate::error::{Code, Problem};
use crate::request_id;

/// `503`, readable by web pages of any origin.
pub(crate) fn no_capacity(headers: &HeaderMap) -> Response {
    let problem = Problem::new(Code::Overloaded, "all connections are in use; try again");
    let mut response = problem.into_response();
    response.headers_mut().insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    response.headers_mut().insert(request_id::HEADER, request_id::of(headers));
    response
}
