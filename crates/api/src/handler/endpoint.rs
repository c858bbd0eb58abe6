//! `/v1/me/endpoints`: the Web Push endpoints of a device. Messages to them arrive in [`mod@super::web_push`].

use std::sync::Arc;

use axum::extract::State as Shared;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{Extensions, HeaderMap, StatusCode};
use noroshi_auth::Auth;
use noroshi_delivery::Delivery;
use noroshi_store::{Endpoint, NewEndpoint};
use noroshi_types::{EndpointId, Quota};
use serde::Serialize;

use crate::address::Addresses;
use crate::body::{self, EndpointRequest};
use crate::connection::Peer;
use crate::error::Problem;
use crate::request::access::Consumer;
use crate::request::body::JsonBody;
use crate::request::parameter::Path;
use crate::respond;

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

#[derive(Serialize)]
struct EndpointsBody {
    endpoints: Vec<EndpointBody>,
}

/// `POST /v1/me/endpoints`
pub(crate) async fn create(
    Shared(auth): Shared<Arc<Auth>>,
    Shared(delivery): Shared<Arc<Delivery>>,
    Shared(addresses): Shared<Arc<Addresses>>,
    consumer: Consumer,
    headers: HeaderMap,
    extensions: Extensions,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let EndpointRequest { vapid_key, label, idle_urgency, expires_in } =
        body::endpoint(if body.is_empty() { b"{}" } else { &body })?;
    let token = auth.draw_endpoint()?;
    let hash =
        auth.endpoint(&token).ok_or_else(|| Problem::internal("a new endpoint token has an invalid tag"))?;
    let base = addresses.api_base(&headers, extensions.get::<Peer>());
    let url = format!("{base}/push/{token}");
    let now = delivery.clock().now();
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
    let held = delivery.usage.admit_one(new.app, Quota::Endpoints).await?;
    let made = delivery.store().create_endpoint(new, now).await.map_err(|error| match error {
        // The device was deleted after its credential was checked.
        noroshi_store::Error::NotFound => Problem::revoked(),
        error => error.into(),
    })?;
    held.settle();
    let body = EndpointBody { url: Some(url), ..EndpointBody::from(made) };
    Ok(respond::json(StatusCode::CREATED, &body))
}

/// `GET /v1/me/endpoints`
pub(crate) async fn list(
    Shared(delivery): Shared<Arc<Delivery>>,
    consumer: Consumer,
) -> Result<Response, Problem> {
    let device = &consumer.device;
    let found = delivery.store().endpoints(device.app, &device.id, delivery.clock().now()).await?;
    let endpoints = found.into_iter().map(EndpointBody::from).collect();
    Ok(respond::json(StatusCode::OK, &EndpointsBody { endpoints }))
}

/// `DELETE /v1/me/endpoints/{id}`: later posts get 410.
pub(crate) async fn delete(
    Shared(delivery): Shared<Arc<Delivery>>,
    consumer: Consumer,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let id = id.parse().map(EndpointId).map_err(|_| Problem::not_found("endpoint"))?;
    let device = &consumer.device;
    let deleted = delivery.store().delete_endpoint(device.app, &device.id, id).await;
    deleted.map_err(|error| match error {
        noroshi_store::Error::NotFound => Problem::not_found("endpoint"),
        error => error.into(),
    })?;
    Ok(StatusCode::NO_CONTENT)
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
