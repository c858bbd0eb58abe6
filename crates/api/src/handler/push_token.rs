//! The push tokens of a device: requests of the device for itself, and of its provider.

use axum::extract::FromRequestParts;
use http::StatusCode;
use http::request::Parts;
use noroshi_delivery::{Delivery, Error as Failure};
use noroshi_store::{Device, DeviceChange, TokenChange};
use noroshi_types::TokenKey;

use crate::body;
use crate::error::Problem;
use crate::request::access::{Consumer, Devices, Provider};
use crate::request::body::JsonBody;
use crate::request::parameter::Path;
use crate::respond::{self, Answer};
use crate::token_check;

/// `{kind}`, or `{kind}/{name}`, at the end of a path.
pub(crate) struct Key(TokenKey);

/// The device, and `{kind}` or `{kind}/{name}` at the end of a path.
pub(crate) struct DeviceKey(String, TokenKey);

impl<S: Send + Sync> FromRequestParts<S> for Key {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Path(segments) = Path::<Vec<String>>::from_request_parts(parts, state).await?;
        key(&segments).map(Self)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for DeviceKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Path(segments) = Path::<Vec<String>>::from_request_parts(parts, state).await?;
        let (device, rest) = segments.split_first().ok_or_else(|| Problem::not_found("device"))?;
        Ok(Self(device.clone(), key(rest)?))
    }
}

fn key(segments: &[String]) -> Result<TokenKey, Problem> {
    let text = |index: usize| segments.get(index).map_or("", String::as_str);
    body::token_key(text(0), text(1))
}

/// `GET /v1/me/push-tokens`
pub(crate) async fn own(consumer: Consumer) -> Answer {
    respond::ok(&respond::push_token::registered(&consumer.device)?)
}

/// `PUT /v1/me/push-tokens/{kind}`, `PUT /v1/me/push-tokens/{kind}/{name}`
pub(crate) async fn set_own(
    consumer: Consumer,
    Key(key): Key,
    JsonBody(body): JsonBody,
) -> Result<StatusCode, Problem> {
    let Consumer { device, delivery, .. } = consumer;
    let new = TokenChange::Set(body::token_of_path(&body, key, delivery.clock().now())?);
    token_check::by_device(&delivery, device.app, &token_check::of_change(&new)).await?;
    change(&delivery, &device, new).await.map_err(Problem::gone)
}

/// `DELETE /v1/me/push-tokens/{kind}`, `DELETE /v1/me/push-tokens/{kind}/{name}`
pub(crate) async fn remove_own(consumer: Consumer, Key(key): Key) -> Result<StatusCode, Problem> {
    let Consumer { device, delivery, .. } = consumer;
    change(&delivery, &device, TokenChange::Remove(key)).await.map_err(Problem::missing("push token"))
}

/// `GET /v1/devices/{device}/push-tokens`
pub(crate) async fn list(provider: Provider<Devices>, Path(device): Path<String>) -> Answer {
    respond::ok(&respond::push_token::registered(&found(&provider, &device).await?)?)
}

/// `PUT /v1/devices/{device}/push-tokens/{kind}`, and with `/{name}`
pub(crate) async fn set(
    provider: Provider<Devices>,
    DeviceKey(device, key): DeviceKey,
    JsonBody(body): JsonBody,
) -> Result<StatusCode, Problem> {
    let device = found(&provider, &device).await?;
    let new = TokenChange::Set(body::token_of_path(&body, key, provider.delivery.clock().now())?);
    token_check::by_provider(&provider.delivery, &token_check::of_change(&new))?;
    change(&provider.delivery, &device, new).await.map_err(Problem::missing("device"))
}

/// `DELETE /v1/devices/{device}/push-tokens/{kind}`, and with `/{name}`
pub(crate) async fn remove(
    provider: Provider<Devices>,
    DeviceKey(device, key): DeviceKey,
) -> Result<StatusCode, Problem> {
    let device = found(&provider, &device).await?;
    let removed = change(&provider.delivery, &device, TokenChange::Remove(key)).await;
    removed.map_err(Problem::missing("push token"))
}

async fn found(provider: &Provider<Devices>, device: &str) -> Result<Device, Problem> {
    let found = provider.delivery.store().device(provider.app, &body::device_id(device)?).await?;
    found.ok_or_else(|| Problem::not_found("device"))
}

async fn change(delivery: &Delivery, device: &Device, change: TokenChange) -> Result<StatusCode, Failure> {
    let key = if let TokenChange::Set(new) = &change { Some(new.key.clone()) } else { None };
    let change = DeviceChange { push_tokens: vec![change], ..DeviceChange::default() };
    let changed =
        delivery.store().update_device(device.app, &device.id, change, delivery.clock().now()).await;
    delivery.freshness.device_changed(device.app, &device.id);
    changed?;
    if let Some(key) = key {
        // Before the answer: after a crash in between, the device registers its token again.
        delivery.activities.joined(device.app, device.num, &key).await?;
    }
    Ok(StatusCode::NO_CONTENT)
}
