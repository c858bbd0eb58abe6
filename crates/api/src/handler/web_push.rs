//! The Web Push resource (RFC 8030, the push service's side): what others post to an endpoint that a device gave them.
//! No API key: the address is the permission, and a bound endpoint wants the sender's signature too (RFC 8292).
//!
//! What comes is encrypted for the device (RFC 8291) and passed through unread, as the `data` of a notification to
//! that one device: from there on it is a notification like every other. The order here is from cheap to dear: the
//! address's tag, its row, the signature, the paces, the headers, and only then the body.

mod fields;
mod receipt;

use axum::extract::{Request, State as Shared};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use noroshi_auth::{Permit, VapidRefused, verify_vapid};
use noroshi_store::Endpoint;
use noroshi_types::{DeviceId, JsonText, Push, Target, Urgency, When, limits};
use serde::Serialize;

use self::fields::{Fields, one};
use crate::access::seen;
use crate::error::{Code, Problem};
use crate::extract::{Bound, Path, read_body};
use crate::respond;
use crate::state::{Api, State};

pub(crate) use self::receipt::receipt;

const TTL: HeaderName = HeaderName::from_static("ttl");
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");
/// 4 KiB arrive at once, or with a sender's second packet.
const BODY_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);

/// What the device gets as `data`.
#[derive(Serialize)]
struct DataBody<'a> {
    web_push: MessageBody<'a>,
}

#[derive(Serialize)]
struct MessageBody<'a> {
    endpoint: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_encoding: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    encryption: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    crypto_key: Option<&'a str>,
    /// Base64url without padding; empty where nothing was posted.
    body: String,
}

#[derive(Serialize)]
struct Discovery {
    unifiedpush: Version,
}

#[derive(Serialize)]
struct Version {
    version: u8,
}

/// `GET /push/{token}`: UnifiedPush's discovery. It says that the endpoint is there, and of whom nothing.
pub(crate) async fn discover(
    Shared(api): Shared<Api>,
    Path(token): Path<String>,
) -> Result<Response, Problem> {
    endpoint(&api, &token).await?;
    Ok(respond::json(StatusCode::OK, &Discovery { unifiedpush: Version { version: 1 } }))
}

/// `POST /push/{token}`
pub(crate) async fn post(Shared(api): Shared<Api>, Path(token): Path<String>, request: Request) -> Response {
    let answered = take(&api, &token, request).await;
    if let Err(refused) = &answered {
        api.metrics.web_push_refused(refused.problem.code());
    }
    answered.unwrap_or_else(IntoResponse::into_response)
}

/// `DELETE /push/message/{token}`: takes back what the device has not confirmed.
pub(crate) async fn cancel(
    Shared(api): Shared<Api>,
    Path(token): Path<String>,
) -> Result<StatusCode, Refused> {
    let unknown = || Problem::not_found("message");
    let (app, id) = api.auth.permitted(Permit::Cancel, &token).ok_or_else(unknown)?;
    let _work = api.load.pace.begin(app).ok_or_else(Refused::busy)?;
    match api.delivery.cancel(app, id).await {
        Ok(_) => Ok(StatusCode::NO_CONTENT),
        Err(noroshi_delivery::Error::Store(noroshi_store::Error::NotFound)) => Err(unknown().into()),
        Err(error) => Err(Problem::from(error).into()),
    }
}

/// A problem and when to come back.
pub(crate) struct Refused {
    problem: Problem,
    after: Option<std::time::Duration>,
}

impl Refused {
    fn busy() -> Self {
        let detail = "too many requests for this app are in work; try again";
        let problem = Problem::new(Code::TooManyRequests, detail);
        Self { problem, after: Some(std::time::Duration::from_secs(1)) }
    }
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Self { problem, after: None }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let challenged = self.problem.code() == Code::Unauthorized;
        let mut response = self.problem.into_response();
        if challenged {
            // Not an API key's.
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("vapid"));
        }
        if let Some(after) = self.after {
            // Whole seconds, and not one too early.
            let seconds = after.as_millis().div_ceil(1_000).max(1);
            let value = HeaderValue::from_str(&seconds.to_string());
            response.headers_mut().extend(value.ok().map(|value| (header::RETRY_AFTER, value)));
        }
        response
    }
}

async fn take(api: &Api, token: &str, request: Request) -> Result<Response, Refused> {
    let endpoint = endpoint(api, token).await?;
    let (parts, body) = request.into_parts();
    seen(&parts, endpoint.app);
    let _work = api.load.pace.begin(endpoint.app).ok_or_else(Refused::busy)?;
    // Before the paces, so that somebody who cannot sign does not use up the right sender's allowance.
    signed(api, &endpoint, &parts.headers)?;
    let paced = api.load.pace.take(endpoint.id, endpoint.app, api.config.web_push, api.now());
    paced.map_err(|after| {
        let detail = "the endpoint, or all of its app together, get more messages than they may";
        Refused { problem: Problem::new(Code::TooManyRequests, detail), after: Some(after) }
    })?;
    let fields = Fields::read(&parts.headers)?;
    let bound = Bound { bytes_max: limits::WEB_PUSH_BYTES_MAX, timeout: Some(BODY_TIMEOUT) };
    let body = read_body(Request::from_parts(parts, body), api, bound).await?;
    let request = request_for(&endpoint, &fields, &body)?;
    drop(body);
    let receipt = api.delivery.publish(endpoint.app, request, None).await.map_err(Problem::from)?;
    api.metrics.web_push_accepted(fields.urgency);
    let mut response = accepted(api, &endpoint, &fields, receipt.id)?;
    response.extensions_mut().insert(receipt.id);
    Ok(response)
}

/// What was never given out is not known; what was and is not there any more is gone.
async fn endpoint(api: &State, token: &str) -> Result<Endpoint, Problem> {
    let gone =
        || Problem::new(Code::EndpointGone, "the endpoint was deleted, or its time is over: forget it");
    let hash = api.auth.endpoint(token).ok_or_else(|| Problem::not_found("endpoint"))?;
    let found = api.delivery.store().endpoint(&hash, api.now()).await?.ok_or_else(gone)?;
    // The rows of a deleted app go after it.
    if api.auth.has_app(found.app) { Ok(found) } else { Err(gone()) }
}

/// RFC 8292 §4.2: a message to a bound endpoint needs its sender's signature; one to another endpoint needs none.
///
/// It verifies on the API's thread, unlike device tokens. A stranger cannot make it do so: the request needs the
/// endpoint's secret address and the key that the endpoint is bound to. One P-256 verification takes some 50 µs, of the
/// order of the store read before it, and no shard runs it.
fn signed(api: &State, endpoint: &Endpoint, headers: &HeaderMap) -> Result<(), Problem> {
    let Some(key) = &endpoint.vapid_key else { return Ok(()) };
    let authorization = one(headers, header::AUTHORIZATION.as_str())?;
    let crypto_key = one(headers, "crypto-key")?;
    verify_vapid(authorization, crypto_key, key, &endpoint.base, api.now()).map_err(|refused| {
        let code = if refused == VapidRefused::Missing { Code::Unauthorized } else { Code::Forbidden };
        Problem::new(code, refused.to_string())
    })
}

fn request_for(endpoint: &Endpoint, fields: &Fields, body: &[u8]) -> Result<noroshi_types::Request, Problem> {
    let message = MessageBody {
        endpoint: endpoint.id.0.to_string(),
        content_encoding: fields.content_encoding.as_deref(),
        encryption: fields.encryption.as_deref(),
        crypto_key: fields.crypto_key.as_deref(),
        body: URL_SAFE_NO_PAD.encode(body),
    };
    let data = serde_json::to_string(&DataBody { web_push: message }).map_err(Problem::internal)?;
    Ok(noroshi_types::Request {
        target: Target::Devices(vec![DeviceId::clone(&endpoint.device)]),
        when: when(endpoint, fields),
        ttl: fields.ttl,
        urgency: fields.urgency,
        waits_for_use: waits(endpoint, fields.urgency),
        // A topic is the endpoint's own: no other's messages are replaced.
        collapse_key: fields.topic.as_ref().map(|topic| format!("webpush:{}:{topic}", endpoint.id.0).into()),
        retain: false,
        notification: None,
        data: Some(JsonText::from_valid(data)),
        push: Push::default(),
        trace: None,
    })
}

/// RFC 8030 §5.3: a device that is idle hears at once what is as urgent as it wants then.
fn waits(endpoint: &Endpoint, urgency: Urgency) -> bool {
    urgency < endpoint.idle_urgency
}

/// RFC 8030 §5.2: without time to live it is now or never.
fn when(endpoint: &Endpoint, fields: &Fields) -> When {
    match fields.ttl.duration().is_zero() {
        false => When::Stored,
        true if waits(endpoint, fields.urgency) => When::Active,
        true => When::Connected,
    }
}

/// 201, or 202 where a receipt follows (RFC 8030 §5, §5.1).
fn accepted(
    api: &State,
    endpoint: &Endpoint,
    fields: &Fields,
    id: noroshi_types::NotificationId,
) -> Result<Response, Problem> {
    let base = &endpoint.base;
    let permit = |permit| api.auth.permit(permit, endpoint.app, id);
    let mut headers = HeaderMap::new();
    let mut add = |name: HeaderName, value: String| {
        HeaderValue::from_str(&value)
            .map(|value| drop(headers.insert(name, value)))
            .map_err(Problem::internal)
    };
    add(header::LOCATION, format!("{base}/push/message/{}", permit(Permit::Cancel)))?;
    add(TTL, fields.ttl.duration().as_secs().to_string())?;
    if !fields.receipt {
        return Ok((StatusCode::CREATED, headers).into_response());
    }
    let to = format!("{base}/push/receipt/{}", permit(Permit::Receipt));
    add(header::LINK, format!("<{to}>; rel=\"urn:ietf:params:push:receipt\""))?;
    add(PREFERENCE_APPLIED, "respond-async".to_owned())?;
    Ok((StatusCode::ACCEPTED, headers).into_response())
}
