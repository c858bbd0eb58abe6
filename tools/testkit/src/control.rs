//! The control port: access to the fakes for tests in other languages, as JSON over HTTP/1.1 on loopback.
//!
//! ```text
//!   GET    /info                                origins, the authority, credentials for Noroshi's API
//!   GET    /counts                              by service
//!   GET    /received?service=…&token=…&limit=…  newest last
//!   DELETE /received                            clear requests and counts
//!   POST   /behave     a Change                 204, or 400 with the reason
//!   POST   /tokens     NewDevices               {"push_tokens":[…]}
//!   POST   /certificate                         a client certificate for APNs
//!   POST   /revoke                              revoke all access tokens
//! ```

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::Service;
use crate::form::unescape;
use crate::record::Received;
use crate::shared::Shared;

/// Enough for 100,000 token scripts.
const BODY_BYTES_MAX: usize = 32 * 1_024 * 1_024;

/// Status and body; `None`: 204.
type Answer = Result<Option<Value>, (StatusCode, String)>;

pub(crate) async fn answer(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let answer = match Limited::new(body, BODY_BYTES_MAX).collect().await {
        Ok(body) => route(&shared, &head, &body.to_bytes()),
        Err(_) => Err((StatusCode::PAYLOAD_TOO_LARGE, "the body is too large or incomplete".to_owned())),
    };
    let (status, body) = match answer {
        Ok(Some(body)) => (StatusCode::OK, body.to_string()),
        Ok(None) => (StatusCode::NO_CONTENT, String::new()),
        Err((status, why)) => (status, json!({ "error": why }).to_string()),
    };
    let response = Response::builder().status(status).header("content-type", "application/json");
    Ok(response.body(Full::new(body.into())).expect("a known status and header are a response"))
}

fn route(shared: &Shared, head: &http::request::Parts, body: &[u8]) -> Answer {
    match (&head.method, head.uri.path()) {
        (&Method::GET, "/info") => Ok(Some(shared.info())),
        (&Method::GET, "/counts") => Ok(Some(counts(shared))),
        (&Method::GET, "/received") => received(shared, head.uri.query().unwrap_or_default()).map(Some),
        (&Method::DELETE, "/received") => {
            shared.clear();
            Ok(None)
        }
        (&Method::POST, "/behave") => shared.behave(read(body)?).map(|()| None).map_err(bad),
        (&Method::POST, "/tokens") => {
            let new: crate::tokens::NewDevices = read(body)?;
            let made = shared.make_devices(&new).map_err(bad)?;
            Ok(Some(json!({ "push_tokens": made })))
        }
        (&Method::POST, "/certificate") => {
            let made = shared.client_certificate().map_err(|error| bad(error.to_string()))?;
            Ok(Some(json!({"certificate": made.certificate, "private_key": made.private_key})))
        }
        (&Method::POST, "/revoke") => {
            shared.revoke_access_tokens();
            Ok(None)
        }
        _ => Err((StatusCode::NOT_FOUND, "see the documentation of the control port".to_owned())),
    }
}

fn bad(why: String) -> (StatusCode, String) {
    (StatusCode::BAD_REQUEST, why)
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, (StatusCode, String)> {
    serde_json::from_slice(body).map_err(|error| bad(error.to_string()))
}

fn counts(shared: &Shared) -> Value {
    let counts = Service::ALL.into_iter();
    let counts = counts.map(|service| (service.as_str().to_owned(), json!(shared.counts(service))));
    Value::Object(counts.collect())
}

fn received(shared: &Shared, query: &str) -> Result<Value, (StatusCode, String)> {
    let (mut service, mut token, mut limit) = (None, None, usize::MAX);
    for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        let value = unescape(value).ok_or_else(|| bad(format!("invalid percent-encoding of {name}")))?;
        match name {
            "service" => {
                let named = Service::parse(&value).ok_or_else(|| bad(format!("unknown service {value}")))?;
                service = Some(named);
            }
            "token" => token = Some(value),
            "limit" => limit = value.parse().map_err(|_| bad("limit must be a number".to_owned()))?,
            _ => return Err(bad(format!("unknown parameter {name}"))),
        }
    }
    let mut found: Vec<Received> = Vec::new();
    for fake in shared.fakes.iter().filter(|fake| service.is_none_or(|service| service == fake.service)) {
        let record = fake.record.lock();
        let wanted = record
            .newest
            .iter()
            .filter(|received| token.as_ref().is_none_or(|token| received.token == *token));
        found.extend(wanted.cloned());
    }
    found.sort_by_key(|received| received.at_ms);
    let from = found.len().saturating_sub(limit);
    Ok(json!({ "received": &found[from..] }))
}
