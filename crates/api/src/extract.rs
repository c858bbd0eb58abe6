//! What handlers take from a request besides its credentials: the body within its bounds, path and query.
//!
//! A body is read only after the credential was accepted (handlers name it last), never beyond its
//! limit, and the sum of all bodies in memory is bounded.

use std::time::Duration;

use axum::extract::{FromRequest, FromRequestParts, Request};
use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{HeaderMap, header};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;

use crate::arriving::Late;
use crate::coding::{Coding, decoded};
use crate::error::{Code, Problem};
use crate::link::Link;
use crate::state::{Api, Share, State};

/// The text of a JSON body.
pub struct JsonBody(pub Body);

/// The text of a body of newline-delimited JSON.
pub struct NdjsonBody(pub Body);

/// A body in memory, counted for as long as it is there.
pub struct Body {
    bytes: Bytes,
    _share: Share,
}

/// How much of a body there may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    pub(crate) bytes_max: usize,
    /// How long it may take, if less than `Timing` allows every body.
    pub(crate) timeout: Option<Duration>,
}

impl Bound {
    fn usual(state: &State) -> Self {
        Self { bytes_max: state.config.limits.body_bytes, timeout: None }
    }
}

/// Decoded path parameters.
pub struct Path<T>(pub T);

/// Query parameters; those not known are refused like unknown fields.
pub struct Query<T>(pub T);

impl std::ops::Deref for Body {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl FromRequest<Api> for JsonBody {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        media_type(request.headers(), "application/json", |essence| {
            essence == "application/json"
                || (essence.starts_with("application/") && essence.ends_with("+json"))
        })?;
        read_encoded(request, api).await.map(Self)
    }
}

impl FromRequest<Api> for NdjsonBody {
    type Rejection = Problem;

    async fn from_request(request: Request, api: &Api) -> Result<Self, Problem> {
        const ACCEPTED: [&str; 4] =
            ["application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"];
        media_type(request.headers(), "application/x-ndjson", |essence| ACCEPTED.contains(&essence))?;
        read_encoded(request, api).await.map(Self)
    }
}

impl<T: DeserializeOwned + Send> FromRequestParts<Api> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        match axum::extract::Path::from_request_parts(parts, api).await {
            Ok(axum::extract::Path(path)) => Ok(Self(path)),
            Err(_) => Err(Problem::new(Code::InvalidParameter, "the path is not percent-encoded UTF-8")),
        }
    }
}

impl<T: DeserializeOwned + Send> FromRequestParts<Api> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        match axum::extract::Query::from_request_parts(parts, api).await {
            Ok(axum::extract::Query(query)) => Ok(Self(query)),
            Err(rejection) => {
                let text = rejection.body_text();
                let rule = text.split_once(": ").map_or(&*text, |(_, rule)| rule);
                Err(Problem::new(Code::InvalidParameter, without_input(rule)))
            }
        }
    }
}

/// A refusal of a query without what the client wrote: it may have put a credential there, and answers end up in the logs
/// of clients and proxies.
fn without_input(rule: &str) -> String {
    for (word, said) in [
        ("unknown field", "a parameter is not known"),
        ("unknown variant", "a parameter has a value that is not known"),
        ("invalid value", "a parameter has a wrong value"),
        ("invalid type", "a parameter has a wrong value"),
    ] {
        if !rule.contains(word) {
            continue;
        }
        // The client's own text comes before the last one.
        return match rule.rsplit_once(", expected ") {
            Some((_, expected)) => format!("{said}: expected {expected}"),
            None => said.to_owned(),
        };
    }
    rule.to_owned()
}

/// What `curl -d` and Python's `urllib` say of a body when nobody told them what it is.
const UNTOLD: &str = "application/x-www-form-urlencoded";

/// A body without a content type, or with one that only says that nobody chose it, is taken for the
/// right one: whether it is JSON shows when it is read.
fn media_type(
    headers: &HeaderMap,
    expected: &'static str,
    fits: impl Fn(&str) -> bool,
) -> Result<(), Problem> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let text = value.to_str().unwrap_or_default();
    let essence = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence == UNTOLD || fits(&essence) {
        true => Ok(()),
        false => Err(Problem::new(
            Code::UnsupportedMediaType,
            format!("the header Content-Type has to be {expected}, or absent"),
        )),
    }
}

/// A body that the client may have compressed.
async fn read_encoded(request: Request, state: &State) -> Result<Body, Problem> {
    let (coding, bound) = (Coding::of(request.headers())?, Bound::usual(state));
    let mut body = read_body(request, state, bound).await?;
    // An empty one is none: clients send the header with requests that have no body.
    if coding == Coding::Identity || body.bytes.is_empty() {
        return Ok(body);
    }
    // What arrived is held for as long as it is read.
    let mut share = state.body_share();
    match decoded(&body.bytes, coding, bound.bytes_max, state, &mut share).await {
        Ok(bytes) => body = Body { bytes, _share: share },
        Err(problem) => {
            state.metrics.body_refused(problem.code());
            return Err(problem);
        }
    }
    Ok(body)
}

pub(crate) async fn read_body(request: Request, state: &State, bound: Bound) -> Result<Body, Problem> {
    let link = request.extensions().get::<Link>().cloned();
    let read = read_bounded(request, state, bound.bytes_max);
    let result = match bound.timeout {
        None => read.await,
        Some(allowed) => tokio::time::timeout(allowed, read).await.unwrap_or_else(|_| {
            // The answer says that the connection ends.
            link.inspect(Link::body_was_late);
            let detail = format!("a body has to arrive within {} s", allowed.as_secs_f32());
            Err(Problem::new(Code::BodyTimeout, detail))
        }),
    };
    if let Err(problem) = &result {
        state.metrics.body_refused(problem.code());
    }
    result
}

async fn read_bounded(request: Request, state: &State, bytes_max: usize) -> Result<Body, Problem> {
    let too_large = || Problem::new(Code::BodyTooLarge, format!("a body is at most {bytes_max} bytes long"));
    let declared =
        request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    let declared: usize = declared.unwrap_or(0);
    if declared > bytes_max {
        return Err(too_large());
    }
    // Counted as it arrives: what was declared costs nothing before.
    let mut share = state.body_share();
    let mut whole = BytesMut::new();
    let mut body = request.into_body();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(broken)?;
        let Ok(data) = frame.into_data() else { continue };
        if whole.len() + data.len() > bytes_max {
            return Err(too_large());
        }
        if !share.grow(data.len(), state.config.bodies_bytes_max) {
            return Err(Problem::new(
                Code::Overloaded,
                "the node holds as many request bodies as it can; try again",
            ));
        }
        whole.extend_from_slice(&data);
    }
    Ok(Body { bytes: whole.freeze(), _share: share })
}

fn broken(error: axum::Error) -> Problem {
    match error.into_inner().downcast_ref::<Late>() {
        Some(late) => Problem::new(Code::BodyTimeout, late.to_string()),
        None => Problem::new(Code::InvalidJson, "the body ended before it was complete"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_query_is_not_repeated() {
        let check = |rule: &str, expected: &str| assert_eq!(without_input(rule), expected, "{rule}");
        check(
            "nd1.a: unknown field `nd1.a`, expected `after` or `limit`",
            "a parameter is not known: expected `after` or `limit`",
        );
        check(
            "x: unknown field `a`, expected ``, expected `after`",
            "a parameter is not known: expected `after`",
        );
        check("x: unknown field `a`, there are no fields", "a parameter is not known");
        check("limit: invalid digit found in string", "limit: invalid digit found in string");
        check("duplicate field `after`", "duplicate field `after`");
    }
}
