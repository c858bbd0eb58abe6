//! `Idempotency-Key`, and the hash that identifies repetitions of a request.

use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue};
use noroshi_store::Idempotency;
use noroshi_types::limits;
use ring::digest;

use crate::error::Problem;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Marks the response if it repeats an earlier one.
pub fn mark_replayed(mut response: Response, is_replayed: bool) -> Response {
    if is_replayed {
        response.headers_mut().insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    }
    response
}

/// None if the request has no key.
pub fn idempotency(headers: &HeaderMap, body: &[u8]) -> Result<Option<Idempotency>, Problem> {
    let key = idempotency_key(headers)?;
    Ok(key.map(|key| Idempotency { key: key.into(), body_hash: body_hash(body) }))
}

/// None if the request has no such header.
pub fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let Some(value) = headers.get(&IDEMPOTENCY_KEY) else { return Ok(None) };
    let key = value.to_str().unwrap_or_default();
    let visible = key.bytes().all(|b| b.is_ascii_graphic());
    match visible && (1..=limits::IDEMPOTENCY_KEY_BYTES_MAX).contains(&key.len()) {
        true => Ok(Some(key)),
        false => {
            let rule = format!(
                "the key must be 1 to {} visible ASCII characters",
                limits::IDEMPOTENCY_KEY_BYTES_MAX
            );
            Err(Problem::parameter("Idempotency-Key", rule))
        }
    }
}

pub fn body_hash(body: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest::digest(&digest::SHA256, body).as_ref());
    hash
}
