//! The Web Push resource, as a push service implements it (RFC 8030): application servers post to endpoints that devices gave
//! them. They need no API key: the endpoint's address is the permission, and a bound endpoint also requires the sender's
//! signature (RFC 8292).
//!
//! A message is encrypted for the device (RFC 8291). It becomes the `data` of an ordinary notification to that device. Checks
//! run from cheap to expensive: tag of the address, row, signature, rate limits, headers, and then the body.

mod fields;
mod receipt;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use axum::extract::{Request, State as Shared};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use noroshi_auth::Auth;
use noroshi_auth::{Permit, VapidRefused, verify_vapid};
use noroshi_delivery::Delivery;
use noroshi_store::Endpoint;
use noroshi_types::{DeviceId, JsonText, Push, Target, Timestamp, Urgency, When, limits};
use serde::Serialize;

use self::fields::{Fields, one};
use crate::error::{Code, Problem};
use crate::metrics::Metrics;
use crate::rate_limit::{RateLimiter, RateLimits};
use crate::request::body::{BodyReader, Bound};
use crate::request::caller::record_app;
use crate::request::parameter::Path;
use crate::respond::{self, Answer};

pub(crate) use self::receipt::receipt;

const TTL: HeaderName = HeaderName::from_static("ttl");
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");
/// 4 KiB arrive in one or two packets.
const BODY_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);

/// Accepts messages at Web Push endpoints.
pub struct WebPush {
    pub(crate) auth: Arc<Auth>,
    pub(crate) delivery: Arc<Delivery>,
    pub(crate) bodies: Arc<BodyReader>,
    pub(crate) limiter: Arc<RateLimiter>,
    pub(crate) limits: RateLimits,
    pub(crate) metrics: Metrics,
    /// False while the node stops.
    pub(crate) ready: Arc<AtomicBool>,
}

/// What the device receives as `data`.
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
    /// Base64url without padding; empty without a body.
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

/// `GET /push/{token}`: UnifiedPush discovery. Shows that the endpoint exists, but not whose it is.
pub(crate) async fn discover(Shared(web_push): Shared<Arc<WebPush>>, Path(token): Path<String>) -> Answer {
    web_push.endpoint(&token).await?;
    respond::ok(&Discovery { unifiedpush: Version { version: 1 } })
}

/// `POST /push/{token}`
pub(crate) async fn post(
    Shared(web_push): Shared<Arc<WebPush>>,
    Path(token): Path<String>,
    request: Request,
) -> Response {
    let answered = web_push.accept(&token, request).await;
    if let Err(refused) = &answered {
        web_push.metrics.web_push_refused(refused.problem.code());
    }
    answered.unwrap_or_else(IntoResponse::into_response)
}

/// `DELETE /push/message/{token}`: cancels the message if the device has not acknowledged it.
pub(crate) async fn cancel(
    Shared(web_push): Shared<Arc<WebPush>>,
    Path(token): Path<String>,
) -> Result<StatusCode, Refused> {
    let unknown = || Problem::not_found("message");
    let (app, id) = web_push.auth.permitted(Permit::Cancel, &token).ok_or_else(unknown)?;
    let _request = web_push.limiter.begin_request(app).ok_or_else(Refused::busy)?;
    match web_push.delivery.publisher.cancel(app, id).await {
        Ok(_) => Ok(StatusCode::NO_CONTENT),
        Err(noroshi_delivery::Error::Store(noroshi_store::Error::NotFound)) => Err(unknown().into()),
        Err(error) => Err(Problem::from(error).into()),
    }
}

/// A problem, and when to retry.
pub(crate) struct Refused {
    problem: Problem,
    after: Option<std::time::Duration>,
}

impl Refused {
    fn busy() -> Self {
        let detail = "too many requests for this app are in progress; try again";
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
            // The credential is a signature, not an API key.
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("vapid"));
        }
        if let Some(after) = self.after {
            // Whole seconds, rounded up.
            let seconds = after.as_millis().div_ceil(1_000).max(1);
            let value = HeaderValue::from_str(&seconds.to_string());
            response.headers_mut().extend(value.ok().map(|value| (header::RETRY_AFTER, value)));
        }
        response
    }
}

impl WebPush {
    async fn accept(&self, token: &str, request: Request) -> Result<Response, Refused> {
        let endpoint = self.endpoint(token).await?;
        let (parts, body) = request.into_parts();
        record_app(&parts, endpoint.app);
        let _request = self.limiter.begin_request(endpoint.app).ok_or_else(Refused::busy)?;
        let now = self.delivery.clock().now();
        // Before the rate limits, so that someone who cannot sign does not use up the sender's allowance.
        verify_signature(&endpoint, &parts.headers, now)?;
        let limited = self.limiter.take(endpoint.id, endpoint.app, self.limits, now);
        limited.map_err(|after| {
            let detail = "the endpoint or its app exceeds its message rate";
            Refused { problem: Problem::new(Code::TooManyRequests, detail), after: Some(after) }
        })?;
        let fields = Fields::read(&parts.headers)?;
        let bound = Bound { bytes_max: limits::WEB_PUSH_BYTES_MAX, timeout: Some(BODY_TIMEOUT) };
        let body = self.bodies.read(Request::from_parts(parts, body), bound).await?;
        let request = request_for(&endpoint, &fields, &body)?;
        drop(body);
        let receipt =
            self.delivery.publisher.publish(endpoint.app, request, None).await.map_err(Problem::from)?;
        self.metrics.web_push_accepted(fields.urgency);
        let mut response = self.accepted(&endpoint, &fields, receipt.id)?;
        response.extensions_mut().insert(receipt.id);
        Ok(response)
    }

    /// 404 for a token that was never issued, 410 for an endpoint that no longer exists.
    async fn endpoint(&self, token: &str) -> Result<Endpoint, Problem> {
        let gone = || Problem::new(Code::EndpointGone, "the endpoint was deleted or has expired");
        let hash = self.auth.endpoint(token).ok_or_else(|| Problem::not_found("endpoint"))?;
        let now = self.delivery.clock().now();
        let found = self.delivery.store().endpoint(&hash, now).await?.ok_or_else(gone)?;
        // The rows of a deleted app are deleted after it.
        if self.auth.has_app(found.app) { Ok(found) } else { Err(gone()) }
    }

    /// 201, or 202 where a receipt follows (RFC 8030 §5, §5.1).
    fn accepted(
        &self,
        endpoint: &Endpoint,
        fields: &Fields,
        id: noroshi_types::NotificationId,
    ) -> Result<Response, Problem> {
        let base = &endpoint.base;
        let permit = |permit| self.auth.permit(permit, endpoint.app, id);
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
}

/// RFC 8292 §4.2: a bound endpoint requires its sender's signature; others require none.
///
/// Verifies on the API's thread, unlike device tokens. A stranger cannot trigger it: the request needs the endpoint's secret
/// address and the key that the endpoint is bound to. One P-256 verification takes about 50 µs, like the store read before
/// it, and no shard runs it.
fn verify_signature(endpoint: &Endpoint, headers: &HeaderMap, now: Timestamp) -> Result<(), Problem> {
    let Some(key) = &endpoint.vapid_key else { return Ok(()) };
    let authorization = one(headers, header::AUTHORIZATION.as_str())?;
    let crypto_key = one(headers, "crypto-key")?;
    verify_vapid(authorization, crypto_key, key, &endpoint.base, now).map_err(|refused| {
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
        category: None,
        // Topics are per endpoint.
        collapse_key: fields.topic.as_ref().map(|topic| format!("webpush:{}:{topic}", endpoint.id.0).into()),
        retain: false,
        notification: None,
        data: Some(JsonText::from_valid(data)),
        push: Push::default(),
        item: None,
        trace: None,
    })
}

/// RFC 8030 §5.3: an idle device receives only messages of at least the urgency that its endpoint sets.
fn waits(endpoint: &Endpoint, urgency: Urgency) -> bool {
    urgency < endpoint.idle_urgency
}

/// RFC 8030 §5.2: with a TTL of 0, a message is delivered at once or not at all.
fn when(endpoint: &Endpoint, fields: &Fields) -> When {
    match fields.ttl.duration().is_zero() {
        false => When::Stored,
        true if waits(endpoint, fields.urgency) => When::Active,
        true => When::Connected,
    }
}
