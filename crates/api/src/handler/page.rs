//! The OpenAPI documents and the documentation page, both built in. The page loads nothing from elsewhere, which its content
//! security policy enforces.

use axum::response::{IntoResponse, Redirect, Response};
use http::header;

use crate::document;

/// `GET /`
pub(crate) async fn root() -> Redirect {
    Redirect::temporary("/docs")
}

/// `GET /openapi.json` of the public listener
pub(crate) async fn openapi() -> Response {
    document_response(document::public())
}

/// `GET /openapi.json` of the admin listener
pub(crate) async fn admin_openapi() -> Response {
    document_response(document::admin())
}

/// `GET /openapi.json` of the console
pub(crate) async fn console_openapi() -> Response {
    document_response(document::CONSOLE)
}

fn document_response(text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-cache")], text).into_response()
}

/// `GET /docs`
pub(crate) async fn docs() -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, document::PAGE_POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    (headers, document::page()).into_response()
}
