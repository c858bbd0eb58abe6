//! The Web Push endpoints of a device, for the device itself (`/v1/me/endpoints`) and for its backend. Messages to them
//! arrive in [`mod@super::web_push`].

use std::sync::Arc;

use axum::extract::State as Shared;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{Extensions, HeaderMap, StatusCode};
use noroshi_auth::Auth;
use noroshi_store::{Endpoint, NewEndpoint};
use noroshi_types::{DeviceId, EndpointId, Quota};
use serde::Serialize;

use crate::address::Addresses;
use crate::body::{self, EndpointRequest};
use crate::connection::Peer;
use crate::error::Problem;
use crate::request::access::{Consumer, Devices, Needs, Provider, Read};
use crate::request::body::JsonBody;
use crate::request::parameter::Path;
use crate::respond::{self, Answer};

#[derive(Serialize)]
struct EndpointBody {
    id: String,
    /// Only in the response that creates it: the URL is the permission to post, and not stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    label: Option<String>,
    vapid_key: Option<String>,
    idle_urgency: &'static str,
    created_at: String,
    expires_at: Option<String>,
}

/// `POST /v1/me/endpoints`
pub(crate) async fn create(
    Shared(auth): Shared<Arc<Auth>>,
    Shared(addresses): Shared<Arc<Addresses>>,
    consumer: Consumer,
    headers: HeaderMap,
    extensions: Extensions,
    JsonBody(body): JsonBody,
) -> Answer {
    let EndpointRequest { vapid_key, label, idle_urgency, expires_in } =
        body::endpoint(if body.is_empty() { b"{}" } else { &body })?;
    let token = auth.draw_endpoint()?;
    let hash =
        auth.endpoint(&token).ok_or_else(|| Problem::internal("a new endpoint token has an invalid tag"))?;
    let base = addresses.api_base(&headers, extensions.get::<Peer>());
    let url = format!("{base}/push/{token}");
    let now = consumer.delivery.clock().now();
    let new = NewEndpoint {
        app: consumer.device.app,
        device: consumer.device.id,
        hash,
        base,
        vapid_key,
        label,
        idle_urgency,
        expires_at: expires_in.map(|span| now.saturating_add(span)),
    };
    let held = consumer.delivery.usage.admit_one(new.app, Quota::Endpoints).await?;
    // The device may have been deleted after its credential was checked.
    let made = consumer.delivery.store().create_endpoint(new, now).await.map_err(Problem::gone)?;
    held.settle();
    let body = EndpointBody { url: Some(url), ..EndpointBody::from(made) };
    Ok(respond::json(StatusCode::CREATED, &body))
}

/// `GET /v1/me/endpoints`
pub(crate) async fn list(consumer: Consumer) -> Answer {
    let device = &consumer.device;
    let found =
        consumer.delivery.store().endpoints(device.app, &device.id, consumer.delivery.clock().now()).await?;
    respond::field("endpoints", found.into_iter().map(EndpointBody::from).collect::<Vec<_>>())
}

/// `DELETE /v1/me/endpoints/{id}`: later posts get 410.
pub(crate) async fn delete(consumer: Consumer, Path(id): Path<String>) -> Result<StatusCode, Problem> {
    let id = id.parse().map(EndpointId).map_err(|_| Problem::not_found("endpoint"))?;
    let device = &consumer.device;
    let deleted = consumer.delivery.store().delete_endpoint(device.app, &device.id, id).await;
    deleted.map_err(Problem::missing("endpoint"))?;
    Ok(StatusCode::NO_CONTENT)
}

/// `GET /v1/devices/{device}/endpoints`
pub(crate) async fn of_device(provider: Provider<Read>, Path(device): Path<String>) -> Answer {
    let device = found(&provider, &device).await?;
    let now = provider.delivery.clock().now();
    let found = provider.delivery.store().endpoints(provider.app, &device, now).await?;
    respond::field("endpoints", found.into_iter().map(EndpointBody::from).collect::<Vec<_>>())
}

/// `DELETE /v1/devices/{device}/endpoints/{id}`: later posts get 410.
pub(crate) async fn revoke(
    provider: Provider<Devices>,
    Path((device, id)): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    let device = found(&provider, &device).await?;
    let id = id.parse().map(EndpointId).map_err(|_| Problem::not_found("endpoint"))?;
    let deleted = provider.delivery.store().delete_endpoint(provider.app, &device, id).await;
    deleted.map_err(Problem::missing("endpoint"))?;
    Ok(StatusCode::NO_CONTENT)
}

async fn found<N: Needs>(provider: &Provider<N>, device: &str) -> Result<DeviceId, Problem> {
    let found = provider.delivery.store().device(provider.app, &body::device_id(device)?).await?;
    found.map(|device| device.id).ok_or_else(|| Problem::not_found("device"))
}

impl From<Endpoint> for EndpointBody {
    fn from(endpoint: Endpoint) -> Self {
        Self {
            id: endpoint.id.0.to_string(),
            url: None,
            label: endpoint.label,
            vapid_key: endpoint.vapid_key.map(|key| URL_SAFE_NO_PAD.encode(key)),
            idle_urgency: endpoint.idle_urgency.as_str(),
            created_at: endpoint.created_at.to_string(),
            expires_at: endpoint.expires_at.map(|at| at.to_string()),
        }
    }
}
