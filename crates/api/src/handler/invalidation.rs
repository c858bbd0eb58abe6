//! Push tokens that push services invalidated, for backends that store tokens themselves: in pages, or as lines if `Accept`
//! requests them.

use std::sync::Arc;

use axum::extract::State as Shared;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, header};
use noroshi_delivery::Delivery;
use noroshi_store::Invalidation;
use serde::{Deserialize, Serialize};

use crate::error::Problem;
use crate::request::access::{Provider, Read};
use crate::request::page::page_limit;
use crate::request::parameter::Query;
use crate::respond::{self, Lines};

#[derive(Serialize)]
struct InvalidationBody {
    /// A string, like all ids: beyond 2^53 a number is not interoperable in JSON (RFC 8259 §6).
    seq: String,
    at: String,
    device: String,
    service: &'static str,
    environment: &'static str,
    reason: String,
    removed: bool,
}

#[derive(Serialize)]
struct InvalidationsBody {
    invalidations: Vec<InvalidationBody>,
    next: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Page {
    after: Option<String>,
    limit: Option<usize>,
}

/// `GET /v1/push/invalidations`
pub(crate) async fn list(
    Shared(delivery): Shared<Arc<Delivery>>,
    provider: Provider<Read>,
    Query(page): Query<Page>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let limit = page_limit(page.limit)?;
    let found = delivery.store().invalidations(provider.app, after(page.after)?, limit).await?;
    if wants_lines(&headers) {
        let mut lines = Lines::with_capacity(found.len());
        for one in found {
            lines.push(&InvalidationBody::from(one))?;
        }
        return Ok(lines.into_response());
    }
    let next = found.last().filter(|_| found.len() == limit).map(|last| last.seq.to_string());
    let invalidations = found.into_iter().map(InvalidationBody::from).collect();
    Ok(respond::json(StatusCode::OK, &InvalidationsBody { invalidations, next }))
}

/// An empty `after` is the first page, which suits scripts.
fn after(after: Option<String>) -> Result<u64, Problem> {
    let Some(text) = after.filter(|after| !after.is_empty()) else { return Ok(0) };
    text.parse().map_err(|_| Problem::parameter("after", "must be the `next` or a `seq` of an earlier page"))
}

/// RFC 9110 §12.5.1, reduced to two formats: lines if `Accept` names them but not JSON.
fn wants_lines(headers: &HeaderMap) -> bool {
    let accepted: Vec<&str> =
        headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
    let names = |name: &str| {
        let mut ranges = accepted.iter().flat_map(|value| value.split(','));
        ranges.any(|range| range.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(name))
    };
    names("application/x-ndjson") && !names("application/json")
}

impl From<Invalidation> for InvalidationBody {
    fn from(one: Invalidation) -> Self {
        Self {
            seq: one.seq.to_string(),
            at: one.at.to_string(),
            device: one.device.to_string(),
            service: one.service.as_str(),
            environment: one.environment.as_str(),
            reason: one.reason,
            removed: one.removed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    #[test]
    fn lines_are_sent_if_accept_names_them_but_not_json() {
        let check = |accept: &str, expected: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, HeaderValue::from_str(accept).expect("a header"));
            assert_eq!(wants_lines(&headers), expected, "{accept}");
        };
        assert!(!wants_lines(&HeaderMap::new()));
        check("*/*", false);
        check("application/x-ndjson", true);
        check("text/plain, Application/X-NDJSON;q=0.9", true);
        check("application/json, application/x-ndjson", false);
    }
}
