//! Responses that several handlers send: JSON, and lines of JSON for batches.

use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use noroshi_types::Message;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::error::Problem;

pub(crate) mod device;

/// A JSON response.
pub fn json(status: StatusCode, body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(bytes) => (status, [(header::CONTENT_TYPE, "application/json")], bytes).into_response(),
        Err(error) => Problem::internal(error).into_response(),
    }
}

/// A message as devices receive it over a connection.
pub(crate) fn message(message: &Message) -> Result<Box<RawValue>, Problem> {
    let bytes = noroshi_protocol::native::message_json(message);
    let text = String::from_utf8(bytes).map_err(Problem::internal)?;
    RawValue::from_string(text).map_err(Problem::internal)
}

/// The response to a batch: one line for each line of the request, in order.
pub struct Lines(Vec<u8>);

impl Lines {
    /// 100 bytes hold a receipt, or a device and most of its token.
    pub fn with_capacity(lines: usize) -> Self {
        Self(Vec::with_capacity(lines * 100))
    }

    pub fn push(&mut self, line: &impl Serialize) -> Result<(), Problem> {
        serde_json::to_writer(&mut self.0, line).map_err(Problem::internal)?;
        self.0.push(b'\n');
        Ok(())
    }

    pub fn push_problem(&mut self, problem: &Problem) -> Result<(), Problem> {
        #[derive(Serialize)]
        struct Line<T> {
            error: T,
        }
        self.push(&Line { error: problem.body() })
    }
}

impl IntoResponse for Lines {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, "application/x-ndjson")], self.0).into_response()
    }
}
