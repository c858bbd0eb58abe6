//! Push tokens that push services invalidated, for backends that store tokens themselves: in pages, or as lines if `Accept`
//! requests them.

use axum::response::IntoResponse;
use http::{HeaderMap, header};
use noroshi_store::Invalidation;
use serde::Serialize;

use crate::error::Problem;
use crate::request::access::{Provider, Read};
use crate::request::page::{Page, next};
use crate::request::parameter::Query;
use crate::respond::{self, Answer, Lines};

#[derive(Serialize)]
struct InvalidationBody {
    /// A string, like all ids: beyond 2^53 a number is not interoperable in JSON (RFC 8259 §6).
    seq: String,
    at: String,
    device: String,
    service: &'static str,
    kind: &'static str,
    name: String,
    environment: &'static str,
    reason: String,
    removed: bool,
}

/// `GET /v1/push/invalidations`
pub(crate) async fn list(provider: Provider<Read>, Query(page): Query<Page>, headers: HeaderMap) -> Answer {
    let limit = page.limit()?;
    let after = after(page.after())?;
    let found = provider.delivery.store().invalidations(provider.app, after, limit).await?;
    if wants_lines(&headers) {
        let mut lines = Lines::with_capacity(found.len());
        for one in found {
            lines.push(&InvalidationBody::from(one))?;
        }
        return Ok(lines.into_response());
    }
    let next = next(&found, limit, |last| last.seq.to_string());
    respond::page("invalidations", found.into_iter().map(InvalidationBody::from).collect(), next)
}

fn after(after: Option<String>) -> Result<u64, Problem> {
    let invalid = |_| Problem::parameter("after", "must be the `next` or a `seq` of an earlier page");
    after.map_or(Ok(0), |text| text.parse().map_err(invalid))
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
            kind: one.key.kind().as_str(),
            name: one.key.name().to_owned(),
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
