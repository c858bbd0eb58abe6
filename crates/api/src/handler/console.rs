//! The files of the console. They are public: what the page shows comes from the API, which needs a session.

use axum::response::{IntoResponse, Redirect, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use noroshi_console::{Asset, asset};

use crate::error::{Code, Problem};
use crate::request::parameter::Path;

/// The page loads nothing from elsewhere, runs no inline script, and is shown in no frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; \
                      connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; \
                      frame-ancestors 'none'; require-trusted-types-for 'script'";

/// `GET /console`
pub(crate) async fn root() -> Redirect {
    Redirect::permanent("/console/")
}

/// `GET /console/`
pub(crate) async fn page(headers: HeaderMap) -> Response {
    respond("", &headers)
}

/// `GET /console/{path}`
pub(crate) async fn file(Path(path): Path<String>, headers: HeaderMap) -> Response {
    if path == "api" || path.starts_with("api/") {
        return Problem::new(Code::NotFound, "unknown path; see openapi.json").into_response();
    }
    respond(&path, &headers)
}

fn respond(path: &str, request: &HeaderMap) -> Response {
    let Some(asset) = asset(path) else {
        return Problem::new(Code::NotFound, "the console has no such file").into_response();
    };
    let fresh = request.get_all(header::IF_NONE_MATCH).iter().any(|value| {
        let tags = value.to_str().unwrap_or_default();
        tags.split(',').any(|tag| tag.trim().trim_start_matches("W/") == asset.etag)
    });
    let compressed = accepts_gzip(request).then(|| asset.gzip()).flatten();
    let mut response = match fresh {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => compressed.unwrap_or(asset.bytes).into_response(),
    };
    describe(asset, response.headers_mut());
    if !fresh && compressed.is_some() {
        response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

fn describe(asset: &Asset, headers: &mut HeaderMap) {
    let mut set = |name, value| drop(headers.insert(name, HeaderValue::from_static(value)));
    set(header::CONTENT_TYPE, asset.media_type);
    let cache = if asset.is_immutable { "public, max-age=31536000, immutable" } else { "no-cache" };
    set(header::CACHE_CONTROL, cache);
    set(header::VARY, "Accept-Encoding");
    set(header::CONTENT_SECURITY_POLICY, POLICY);
    set(header::REFERRER_POLICY, "no-referrer");
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    headers.insert(header::ETAG, HeaderValue::from_str(&asset.etag).expect("base64url in quotes"));
}

/// RFC 9110 §12.5.3, reduced to one coding: `gzip` is listed with a weight other than 0.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|coding| {
        let (name, weight) = coding.split_once(";").unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").map_or(1.0, |q| q.parse().unwrap_or(0.0));
        name.trim().eq_ignore_ascii_case("gzip") && weight > 0.0
    })
}

/// What a front has no devices, credentials or definitions for.
pub(crate) async fn at_a_front() -> Problem {
    Problem::new(Code::NotAtAFront, "a front has no devices of its own: use the console of a cell")
}
