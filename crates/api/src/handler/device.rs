//! Registration of devices, and their management by a provider.

use std::sync::Arc;

use axum::extract::State as Shared;
use axum::response::Response;
use http::{Extensions, HeaderMap, StatusCode};
use noroshi_delivery::Delivery;
use noroshi_store::{DeviceFilter, Registration};
use noroshi_types::{DeviceId, DeviceNum, UserId};
use serde::{Deserialize, Serialize};

use crate::address::{Addresses, ConnectBody};
use crate::body::{self, Registering};
use crate::connection::Peer;
use crate::error::{Code, Problem};
use crate::handler::topic_rules;
use crate::registration::{TokenIssuer, draw_device_id, register_one};
use crate::request::access::{Devices, Provider, Read, Registrar, own_device};
use crate::request::body::JsonBody;
use crate::request::page::page_limit;
use crate::request::parameter::{Path, Query};
use crate::respond;

#[derive(Serialize)]
struct RegisteredBody<'a> {
    device: String,
    token: String,
    expires_at: String,
    connect: ConnectBody<'a>,
}

/// A single device, with related data.
#[derive(Serialize)]
struct ShownBody {
    #[serde(flatten)]
    device: respond::device::DeviceBody,
    /// Number of Web Push endpoints.
    endpoints: usize,
}

#[derive(Serialize)]
struct DevicesBody {
    devices: Vec<respond::device::DeviceBody>,
    next: Option<String>,
}

#[derive(Serialize)]
struct RevokedBody {
    device: String,
    token_version: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    user: Option<String>,
    after: Option<String>,
    limit: Option<usize>,
}

/// `POST /v1/devices`: creates or updates a device; 201 for both.
pub(crate) async fn register(
    Shared(delivery): Shared<Arc<Delivery>>,
    Shared(addresses): Shared<Arc<Addresses>>,
    Shared(tokens): Shared<TokenIssuer>,
    registrar: Registrar,
    headers: HeaderMap,
    extensions: Extensions,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let Registering { device: named, registration } =
        body::device(if body.is_empty() { b"{}" } else { &body })?;
    let device = match registrar {
        Registrar::Provider(app) => {
            let device = named.map_or_else(draw_device_id, Ok)?;
            let registration = Registration { device: Some(device), ..registration };
            register_one(&delivery, app, registration).await?
        }
        Registrar::Consumer(identity) => {
            if named.is_some_and(|device| device != identity.device) {
                return Err(
                    Problem::new(Code::Forbidden, "the credential is for another device").at("device")
                );
            }
            let own = own_device(&delivery, &identity).await?;
            if registration.user.is_some() && registration.user != own.user {
                return Err(Problem::new(Code::Forbidden, "the credential is for another user").at("user"));
            }
            let holder = topic_rules::holder(&own, identity.claims.clone());
            let place = |index| format!("topics[{index}]");
            topic_rules::permit(&delivery, &holder, &registration.topics, place).await?;
            let topics = registration.topics.clone();
            // With its user, so that the registration detects a revocation in between.
            let (user, issued) = (registration.user.or(identity.user), identity.issued);
            let registration = Registration { device: Some(own.id), user, issued, ..registration };
            let device = register_one(&delivery, identity.app, registration).await?;
            topic_rules::keep(&delivery, &holder, &topics, place).await?;
            device
        }
    };
    let (token, expires_at) = tokens.issue(&device, delivery.clock().now());
    let base = addresses.device_base(None, &headers, extensions.get::<Peer>());
    let body = RegisteredBody {
        device: device.id.to_string(),
        token,
        expires_at: expires_at.to_string(),
        connect: addresses.connect(&base),
    };
    Ok(respond::json(StatusCode::CREATED, &body))
}

/// `GET /v1/devices`
pub(crate) async fn list(
    Shared(delivery): Shared<Arc<Delivery>>,
    provider: Provider<Read>,
    Query(query): Query<ListQuery>,
) -> Result<Response, Problem> {
    let limit = page_limit(query.limit)?;
    let user =
        query.user.map(|user| UserId::parse(&user).map_err(|invalid| Problem::from(invalid).at("user")));
    let after = query.after.filter(|after| !after.is_empty()).map(|after| cursor(&after)).transpose()?;
    let filter = DeviceFilter { user: user.transpose()?, after, limit };
    let found = delivery.store().devices(provider.app, filter).await?;
    let next = found.last().filter(|_| found.len() == limit).map(|last| format!("{:016x}", last.num.0));
    let ids: Vec<DeviceId> = found.iter().map(|device| device.id.clone()).collect();
    let sessions = delivery.sessions.of_devices(provider.app, &ids).await;
    let body = |(device, session)| respond::device::with_session(device, session);
    let devices = found.into_iter().zip(sessions).map(body).collect::<Result<_, _>>()?;
    Ok(respond::json(StatusCode::OK, &DevicesBody { devices, next }))
}

/// `GET /v1/devices/{device}`
pub(crate) async fn show(
    Shared(delivery): Shared<Arc<Delivery>>,
    provider: Provider<Read>,
    Path(device): Path<String>,
) -> Result<Response, Problem> {
    let found = delivery.store().device(provider.app, &body::device_id(&device)?).await?;
    let device = found.ok_or_else(|| Problem::not_found("device"))?;
    let session = delivery.sessions.of_device(provider.app, &device.id).await;
    let endpoints = delivery.store().endpoints(provider.app, &device.id, delivery.clock().now()).await?.len();
    let body = ShownBody { device: respond::device::with_session(device, session)?, endpoints };
    Ok(respond::json(StatusCode::OK, &body))
}

/// `DELETE /v1/devices/{device}`
pub(crate) async fn delete(
    Shared(delivery): Shared<Arc<Delivery>>,
    provider: Provider<Devices>,
    Path(device): Path<String>,
) -> Result<StatusCode, Problem> {
    delivery.delete_device(provider.app, &body::device_id(&device)?).await.map_err(no_device)?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /v1/devices/{device}/revoke`
pub(crate) async fn revoke(
    Shared(delivery): Shared<Arc<Delivery>>,
    provider: Provider<Devices>,
    Path(device): Path<String>,
) -> Result<Response, Problem> {
    let device = body::device_id(&device)?;
    let token_version = delivery.devices.revoke(provider.app, &device).await.map_err(no_device)?;
    Ok(respond::json(StatusCode::OK, &RevokedBody { device: device.to_string(), token_version }))
}

pub(crate) fn no_device(error: noroshi_delivery::Error) -> Problem {
    match error {
        noroshi_delivery::Error::Store(noroshi_store::Error::NotFound) => Problem::not_found("device"),
        error => error.into(),
    }
}

/// The position of a page.
fn cursor(text: &str) -> Result<DeviceNum, Problem> {
    let is_valid = text.len() == 16 && text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'a'..=b'f'));
    let num = u64::from_str_radix(text, 16).ok().filter(|_| is_valid);
    num.map(DeviceNum).ok_or_else(|| Problem::parameter("after", "must be the `next` of an earlier page"))
}
