//! Responses that several handlers send: JSON, and lines of JSON for batches.

use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use noroshi_types::{JsonText, Message};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::error::Problem;

pub(crate) mod device;
pub(crate) mod preferences;
pub(crate) mod push_token;
pub(crate) mod warning;

/// A JSON response.
pub fn json(status: StatusCode, body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(bytes) => (status, [(header::CONTENT_TYPE, "application/json")], bytes).into_response(),
        Err(error) => Problem::internal(error).into_response(),
    }
}

/// A response, or the reason why there is none.
pub(crate) type Answer = Result<Response, Problem>;

/// `200` with a JSON body.
pub(crate) fn ok(body: &impl Serialize) -> Answer {
    Ok(json(StatusCode::OK, body))
}

/// `200` with a JSON object of one field.
pub(crate) fn field(name: &'static str, value: impl Serialize) -> Answer {
    ok(&Field { name, value })
}

/// `200` with a page of a list. `next`: the position of the next page.
pub(crate) fn page(name: &'static str, items: Vec<impl Serialize>, next: Option<String>) -> Answer {
    ok(&Page { list: Field { name, value: items }, next })
}

#[derive(Serialize)]
struct Page<T> {
    #[serde(flatten)]
    list: Field<T>,
    next: Option<String>,
}

struct Field<T> {
    name: &'static str,
    value: T,
}

impl<T: Serialize> Serialize for Field<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map([(self.name, &self.value)])
    }
}

/// Valid JSON, copied as it is.
pub(crate) fn raw(text: Option<&JsonText>) -> Result<Option<Box<RawValue>>, Problem> {
    text.map(|text| RawValue::from_string(text.as_str().to_owned())).transpose().map_err(Problem::internal)
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

    /// A line with one field.
    pub(crate) fn push_field(&mut self, name: &'static str, value: impl Serialize) -> Result<(), Problem> {
        self.push(&Field { name, value })
    }

    pub fn push_problem(&mut self, problem: &Problem) -> Result<(), Problem> {
        self.push_field("error", problem.body())
    }
}

impl IntoResponse for Lines {
    fn into_response(self) -> Response {
        ([(header::CONTENT_TYPE, "application/x-ndjson")], self.0).into_response()
    }
}
