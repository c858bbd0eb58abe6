//! Registration of devices, and their management by a provider.

use std::sync::Arc;

use axum::extract::State as Shared;
use http::{Extensions, HeaderMap, StatusCode};
use noroshi_delivery::Delivery;
use noroshi_store::{DeviceFilter, Registration};
use noroshi_types::{DeviceId, DeviceNum, UserId};
use serde::{Deserialize, Serialize};

use crate::address::{Addresses, ConnectBody};
use crate::body::{self, Registering};
use crate::connection::Peer;
use crate::error::{Code, Problem};
use crate::handler::listing::DeviceQuery;
use crate::handler::topic_rules;
use crate::registration::{TokenIssuer, draw_device_id, register_one};
use crate::request::access::{Devices, Provider, Read, Registrar, own_device};
use crate::request::body::JsonBody;
use crate::request::page::{next, not_a_position, not_first, page_limit};
use crate::request::parameter::{Path, Query};
use crate::respond::{self, Answer};
use crate::token_check;

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
struct RevokedBody {
    device: String,
    token_version: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    user: Option<String>,
    platform: Option<String>,
    token: Option<String>,
    service: Option<String>,
    kind: Option<String>,
    seen: Option<String>,
    seen_after: Option<String>,
    seen_before: Option<String>,
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
) -> Answer {
    let Registering { device: named, registration } =
        body::device(if body.is_empty() { b"{}" } else { &body })?;
    let device = match registrar {
        Registrar::Provider(app) => {
            let device = named.map_or_else(draw_device_id, Ok)?;
            token_check::by_provider(&delivery, &token_check::of_registration(&registration))?;
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
            delivery.seen.device(own.num);
            if registration.user.is_some() && registration.user != own.user {
                return Err(Problem::new(Code::Forbidden, "the credential is for another user").at("user"));
            }
            let tokens = token_check::of_registration(&registration);
            token_check::by_device(&delivery, identity.app, &tokens).await?;
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
pub(crate) async fn list(provider: Provider<Read>, Query(query): Query<ListQuery>) -> Answer {
    let limit = page_limit(query.limit)?;
    let user =
        query.user.map(|user| UserId::parse(&user).map_err(|invalid| Problem::from(invalid).at("user")));
    let after = not_first(query.after).map(|after| cursor(&after)).transpose()?;
    let user = user.transpose()?;
    let ListQuery { platform, token, service, kind, seen, seen_after, seen_before, .. } = query;
    let position = |num: DeviceNum| format!("{:016x}", num.0);
    let asked = DeviceQuery { platform, token, service, kind, seen, seen_after, seen_before };
    let (found, next) = match asked.page(&provider, user.as_ref(), after, limit).await? {
        Some(page) => (page.devices, page.next.map(position)),
        None => {
            let filter = DeviceFilter { user, after, limit };
            let found = provider.delivery.store().devices(provider.app, filter).await?;
            let next = next(&found, limit, |last| position(last.num));
            (found, next)
        }
    };
    let ids: Vec<DeviceId> = found.iter().map(|device| device.id.clone()).collect();
    let sessions = provider.delivery.sessions.of_devices(provider.app, &ids).await;
    let body = |(device, session)| respond::device::with_session(device, session);
    let devices = found.into_iter().zip(sessions).map(body).collect::<Result<Vec<_>, _>>()?;
    respond::page("devices", devices, next)
}

/// `GET /v1/devices/{device}`
pub(crate) async fn show(provider: Provider<Read>, Path(device): Path<String>) -> Answer {
    let found = provider.delivery.store().device(provider.app, &body::device_id(&device)?).await?;
    let device = found.ok_or_else(|| Problem::not_found("device"))?;
    let session = provider.delivery.sessions.of_device(provider.app, &device.id).await;
    let now = provider.delivery.clock().now();
    let endpoints = provider.delivery.store().endpoints(provider.app, &device.id, now).await?.len();
    let body = ShownBody { device: respond::device::with_session(device, session)?, endpoints };
    respond::ok(&body)
}

/// `DELETE /v1/devices/{device}`
pub(crate) async fn delete(
    provider: Provider<Devices>,
    Path(device): Path<String>,
) -> Result<StatusCode, Problem> {
    let deleted = provider.delivery.delete_device(provider.app, &body::device_id(&device)?).await;
    deleted.map_err(Problem::missing("device"))?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /v1/devices/{device}/revoke`
pub(crate) async fn revoke(provider: Provider<Devices>, Path(device): Path<String>) -> Answer {
    let device = body::device_id(&device)?;
    let token_version =
        provider.delivery.devices.revoke(provider.app, &device).await.map_err(Problem::missing("device"))?;
    respond::ok(&RevokedBody { device: device.to_string(), token_version })
}

/// The position of a page.
fn cursor(text: &str) -> Result<DeviceNum, Problem> {
    let is_valid = text.len() == 16 && text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'a'..=b'f'));
    let num = u64::from_str_radix(text, 16).ok().filter(|_| is_valid);
    num.map(DeviceNum).ok_or_else(not_a_position)
}
