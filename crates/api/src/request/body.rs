//! Extractors for request bodies.
//!
//! Handlers take the body last, so it is read only after the credential was accepted. A body never exceeds its limit, and
//! the memory of all bodies is bounded.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRef, FromRequest, Request};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};
use http_body_util::BodyExt;

use super::coding::{self, Coding};
use crate::connection::{BodyTimeout, Handle};
use crate::error::{Code, Problem};
use crate::json;
use crate::load::{Quantity, Share};
use crate::metrics::Metrics;

/// The text of a JSON body.
pub struct JsonBody(pub Body);

/// The text of a body of newline-delimited JSON.
pub struct NdjsonBody(pub Body);

/// A body in memory, counted in the node's memory for bodies until dropped.
pub struct Body {
    bytes: Bytes,
    _share: Share,
}

/// Limits of one body.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    pub(crate) bytes_max: usize,
    /// If shorter than the deadlines of every body ([`Timing`](crate::Timing)).
    pub(crate) timeout: Option<Duration>,
}

/// Reads bodies within the node's limits.
pub struct BodyReader {
    pub(crate) memory: Quantity,
    pub(crate) bytes_max: usize,
    pub(crate) metrics: Metrics,
}

impl std::ops::Deref for Body {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<S> FromRequest<S> for JsonBody
where
    Arc<BodyReader>: FromRef<S>,
    S: Send + Sync,
{
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        media_type(request.headers(), "application/json", |essence| {
            essence == "application/json"
                || (essence.starts_with("application/") && essence.ends_with("+json"))
        })?;
        Arc::<BodyReader>::from_ref(state).read_encoded(request).await.map(Self)
    }
}

/// The JSON of a request whose caller is not known yet, parsed. Small, so that strangers occupy little memory.
pub(crate) struct SmallJson<T>(pub(crate) T);

const SMALL_BYTES_MAX: usize = 4 << 10;

impl<S, T: serde::de::DeserializeOwned> FromRequest<S> for SmallJson<T>
where
    Arc<BodyReader>: FromRef<S>,
    S: Send + Sync,
{
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        media_type(request.headers(), "application/json", |essence| essence == "application/json")?;
        let bound = Bound { bytes_max: SMALL_BYTES_MAX, timeout: None };
        let body = Arc::<BodyReader>::from_ref(state).read(request, bound).await?;
        json::parse(&body.bytes).map(Self)
    }
}

impl<S> FromRequest<S> for NdjsonBody
where
    Arc<BodyReader>: FromRef<S>,
    S: Send + Sync,
{
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        const ACCEPTED: [&str; 4] =
            ["application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"];
        media_type(request.headers(), "application/x-ndjson", |essence| ACCEPTED.contains(&essence))?;
        Arc::<BodyReader>::from_ref(state).read_encoded(request).await.map(Self)
    }
}

/// The default of `curl -d` and Python's `urllib`.
const FORM: &str = "application/x-www-form-urlencoded";

/// Accepts a body without a content type, or with a client's default: parsing shows whether it is JSON.
fn media_type(
    headers: &HeaderMap,
    expected: &'static str,
    fits: impl Fn(&str) -> bool,
) -> Result<(), Problem> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let text = value.to_str().unwrap_or_default();
    let essence = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence == FORM || fits(&essence) {
        true => Ok(()),
        false => Err(Problem::new(
            Code::UnsupportedMediaType,
            format!("the header Content-Type must be {expected}, or absent"),
        )),
    }
}

impl BodyReader {
    /// Reads a body and decompresses it if needed.
    async fn read_encoded(&self, request: Request) -> Result<Body, Problem> {
        let coding = Coding::of(request.headers())?;
        let body = self.read(request, Bound { bytes_max: self.bytes_max, timeout: None }).await?;
        // Some clients send the header with requests that have no body.
        if coding == Coding::Identity || body.bytes.is_empty() {
            return Ok(body);
        }
        // `body` stays counted until it is decompressed.
        let mut share = self.memory.share();
        match coding::decode(&body.bytes, coding, self.bytes_max, &mut share).await {
            Ok(bytes) => Ok(Body { bytes, _share: share }),
            Err(problem) => {
                self.metrics.body_refused(problem.code());
                Err(problem)
            }
        }
    }

    /// Reads a body as it was sent.
    pub(crate) async fn read(&self, request: Request, bound: Bound) -> Result<Body, Problem> {
        let handle = request.extensions().get::<Handle>().cloned();
        let read = self.read_bounded(request, bound.bytes_max);
        let result = match bound.timeout {
            None => read.await,
            Some(timeout) => tokio::time::timeout(timeout, read).await.unwrap_or_else(|_| {
                // Makes the response close the connection.
                handle.inspect(Handle::set_body_timed_out);
                let detail = format!("the body must arrive within {} s", timeout.as_secs_f32());
                Err(Problem::new(Code::BodyTimeout, detail))
            }),
        };
        if let Err(problem) = &result {
            self.metrics.body_refused(problem.code());
        }
        result
    }

    async fn read_bounded(&self, request: Request, bytes_max: usize) -> Result<Body, Problem> {
        let too_large =
            || Problem::new(Code::BodyTooLarge, format!("a body is at most {bytes_max} bytes long"));
        let declared =
            request.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let declared: usize = declared.unwrap_or(0);
        if declared > bytes_max {
            return Err(too_large());
        }
        // Counts bytes as they arrive: a declared length reserves nothing.
        let mut share = self.memory.share();
        let mut whole = BytesMut::new();
        let mut body = request.into_body();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(read_error)?;
            let Ok(data) = frame.into_data() else { continue };
            if whole.len() + data.len() > bytes_max {
                return Err(too_large());
            }
            if !share.grow(data.len()) {
                return Err(Problem::new(
                    Code::Overloaded,
                    "the node's memory for request bodies is full; try again",
                ));
            }
            whole.extend_from_slice(&data);
        }
        Ok(Body { bytes: whole.freeze(), _share: share })
    }
}

fn read_error(error: axum::Error) -> Problem {
    match error.into_inner().downcast_ref::<BodyTimeout>() {
        Some(timeout) => Problem::new(Code::BodyTimeout, timeout.to_string()),
        None => Problem::new(Code::InvalidJson, "the body ended before it was complete"),
    }
}
