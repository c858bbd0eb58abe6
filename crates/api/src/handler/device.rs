//! Devices: registering them, and looking after them as a provider.

use axum::extract::State as Shared;
use axum::response::Response;
use http::{Extensions, HeaderMap, StatusCode, header};
use noroshi_delivery::Session;
use noroshi_store::{Device, DeviceFilter, Registration};
use noroshi_types::{DeviceId, DeviceNum, Presence, Topic, UserId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::access::{Devices, Provider, Read, Registrar, own_device};
use crate::body::{self, Registering};
use crate::connect::ConnectBody;
use crate::error::{Code, Problem};
use crate::extract::{JsonBody, Path, Query};
use crate::handler::topic::page_limit;
use crate::handler::topic_rules;
use crate::registration::{draw_device_id, issue, register_one};
use crate::respond;
use crate::state::{Api, Peer, State};

#[derive(Serialize)]
struct RegisteredBody<'a> {
    device: String,
    token: String,
    expires_at: String,
    connect: ConnectBody<'a>,
}

/// A device as it is kept.
#[derive(Serialize)]
pub(crate) struct DeviceBody {
    device: String,
    user: Option<String>,
    platform: Option<String>,
    locale: Option<String>,
    timezone: Option<String>,
    app_version: Option<String>,
    tags: std::collections::BTreeMap<String, String>,
    topics: Vec<String>,
    push_token: Option<Box<RawValue>>,
    /// The push token is set aside.
    push_suspect: Option<SuspectBody>,
    presence: &'static str,
    created_at: String,
}

#[derive(Serialize)]
struct SuspectBody {
    at: String,
    /// In the push service's word.
    reason: String,
}

/// One device, with what is kept beside it.
#[derive(Serialize)]
struct ShownBody {
    #[serde(flatten)]
    device: DeviceBody,
    /// How many Web Push endpoints it has.
    endpoints: usize,
}

#[derive(Serialize)]
struct DevicesBody {
    devices: Vec<DeviceBody>,
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

/// `POST /v1/devices`: a device that is new, or one brought up to date; 201 for both.
pub(crate) async fn register(
    Shared(api): Shared<Api>,
    registrar: Registrar,
    headers: HeaderMap,
    extensions: Extensions,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let Registering { device: named, registration } =
        body::device(if body.is_empty() { b"{}" } else { &body })?;
    let (app, device) = match registrar {
        Registrar::Provider(app) => {
            let device = named.map_or_else(draw_device_id, Ok)?;
            let registration = Registration { device: Some(device), ..registration };
            (app, register_one(&api, app, registration).await?)
        }
        Registrar::Consumer(identity) => {
            if named.is_some_and(|device| device != identity.device) {
                return Err(
                    Problem::new(Code::Forbidden, "the credential is for another device").at("device")
                );
            }
            let own = own_device(&api, &identity).await?;
            if registration.user.is_some() && registration.user != own.user {
                return Err(Problem::new(Code::Forbidden, "the credential is for another user").at("user"));
            }
            let holder = topic_rules::holder(&own, identity.claims.clone());
            let place = |index| format!("topics[{index}]");
            topic_rules::permit(&api, &holder, &registration.topics, place).await?;
            let topics = registration.topics.clone();
            // With its user, so that a revocation that comes in between is seen with the registration.
            let (user, issued) = (registration.user.or(identity.user), identity.issued);
            let registration = Registration { device: Some(own.id), user, issued, ..registration };
            let device = register_one(&api, identity.app, registration).await?;
            topic_rules::keep(&api, &holder, &topics, place).await?;
            (identity.app, device)
        }
    };
    let (token, expires_at) = issue(&api, app, &device);
    let body = RegisteredBody {
        device: device.id.to_string(),
        token,
        expires_at: expires_at.to_string(),
        connect: connect(&api, &headers, extensions.get::<Peer>()),
    };
    Ok(respond::json(StatusCode::CREATED, &body))
}

/// `GET /v1/devices`
pub(crate) async fn list(
    Shared(api): Shared<Api>,
    provider: Provider<Read>,
    Query(query): Query<ListQuery>,
) -> Result<Response, Problem> {
    let limit = page_limit(query.limit)?;
    let user =
        query.user.map(|user| UserId::parse(&user).map_err(|invalid| Problem::from(invalid).at("user")));
    let after = query.after.filter(|after| !after.is_empty()).map(|after| cursor(&after)).transpose()?;
    let filter = DeviceFilter { user: user.transpose()?, after, limit };
    let found = api.delivery.store().devices(provider.app, filter).await?;
    let next = found.last().filter(|_| found.len() == limit).map(|last| format!("{:016x}", last.num.0));
    let ids: Vec<DeviceId> = found.iter().map(|device| device.id.clone()).collect();
    let sessions = api.delivery.device_sessions(provider.app, &ids).await;
    let body = |(device, session)| device_body(device, session);
    let devices = found.into_iter().zip(sessions).map(body).collect::<Result<_, _>>()?;
    Ok(respond::json(StatusCode::OK, &DevicesBody { devices, next }))
}

/// `GET /v1/devices/{device}`
pub(crate) async fn show(
    Shared(api): Shared<Api>,
    provider: Provider<Read>,
    Path(device): Path<String>,
) -> Result<Response, Problem> {
    let found = api.delivery.store().device(provider.app, &body::device_id(&device)?).await?;
    let device = found.ok_or_else(|| Problem::not_found("device"))?;
    let session = api.delivery.session(provider.app, &device.id).await;
    let endpoints = api.delivery.store().endpoints(provider.app, &device.id, api.now()).await?.len();
    let body = ShownBody { device: device_body(device, session)?, endpoints };
    Ok(respond::json(StatusCode::OK, &body))
}

/// `DELETE /v1/devices/{device}`
pub(crate) async fn delete(
    Shared(api): Shared<Api>,
    provider: Provider<Devices>,
    Path(device): Path<String>,
) -> Result<StatusCode, Problem> {
    api.delivery.delete_device(provider.app, &body::device_id(&device)?).await.map_err(no_device)?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /v1/devices/{device}/revoke`
pub(crate) async fn revoke(
    Shared(api): Shared<Api>,
    provider: Provider<Devices>,
    Path(device): Path<String>,
) -> Result<Response, Problem> {
    let device = body::device_id(&device)?;
    let token_version = api.delivery.revoke_tokens(provider.app, &device).await.map_err(no_device)?;
    Ok(respond::json(StatusCode::OK, &RevokedBody { device: device.to_string(), token_version }))
}

pub(crate) fn no_device(error: noroshi_delivery::Error) -> Problem {
    match error {
        noroshi_delivery::Error::Store(noroshi_store::Error::NotFound) => Problem::not_found("device"),
        error => error.into(),
    }
}

pub(crate) fn device_body(device: Device, session: Option<Session>) -> Result<DeviceBody, Problem> {
    shown_device(device, session.map_or(Presence::Offline, |session| session.presence))
}

pub(crate) fn shown_device(device: Device, presence: Presence) -> Result<DeviceBody, Problem> {
    let push_token = device.push_token.map(|token| RawValue::from_string(token.json.as_str().to_owned()));
    Ok(DeviceBody {
        device: device.id.to_string(),
        user: device.user.map(|user| user.to_string()),
        platform: device.attributes.platform,
        locale: device.attributes.locale,
        timezone: device.attributes.timezone,
        app_version: device.attributes.app_version,
        tags: device.attributes.tags,
        topics: device.topics.iter().map(Topic::to_string).collect(),
        push_token: push_token.transpose().map_err(Problem::internal)?,
        push_suspect: device
            .push_suspect
            .map(|suspect| SuspectBody { at: suspect.at.to_string(), reason: suspect.reason }),
        presence: presence.as_str(),
        created_at: device.created_at.to_string(),
    })
}

/// The configured address, one of the cluster's gateways, or the one that this request came to.
fn connect<'a>(api: &'a State, headers: &HeaderMap, peer: Option<&Peer>) -> ConnectBody<'a> {
    let of_the_cluster = || api.nodes.as_ref().and_then(|nodes| nodes.gateway());
    let base = api.config.public_url.clone().or_else(of_the_cluster);
    ConnectBody::of_service(&base.unwrap_or_else(|| address_asked(headers, peer)), &api.config)
}

/// The base URL at which this request came.
pub(crate) fn address_asked(headers: &HeaderMap, peer: Option<&Peer>) -> String {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or("localhost");
    let scheme = if peer.is_some_and(|peer| peer.secure) { "https" } else { "http" };
    format!("{scheme}://{host}")
}

/// A place in the list, as an earlier page named it.
fn cursor(text: &str) -> Result<DeviceNum, Problem> {
    let given_out = text.len() == 16 && text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'a'..=b'f'));
    let num = u64::from_str_radix(text, 16).ok().filter(|_| given_out);
    num.map(DeviceNum).ok_or_else(|| Problem::parameter("after", "it is the `next` of an earlier page"))
}
