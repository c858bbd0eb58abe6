//! Preferences: a device's requests for its own and for those of its user, and a provider's for any user or device of the
//! app.

use http::StatusCode;
use noroshi_delivery::{Delivery, Error};
use noroshi_store::Preferring;
use noroshi_types::{AppId, Preferences, UserId};

use crate::body;
use crate::error::{Code, Problem};
use crate::handler::user::user_id;
use crate::request::access::{Consumer, Devices, Provider, Read};
use crate::request::body::JsonBody;
use crate::request::parameter::Path;
use crate::respond::preferences::PreferencesBody;
use crate::respond::{self, Answer};

/// `GET /v1/me/preferences`
pub(crate) async fn own(consumer: Consumer) -> Answer {
    let Consumer { device, delivery, .. } = consumer;
    show(&delivery, device.app, &Preferring::Device(device.id)).await
}

/// `PUT /v1/me/preferences`: durable when the response is sent.
pub(crate) async fn set_own(consumer: Consumer, JsonBody(body): JsonBody) -> Answer {
    let Consumer { device, delivery, .. } = consumer;
    replace(&delivery, device.app, Preferring::Device(device.id), &body, Problem::gone).await
}

/// `DELETE /v1/me/preferences`
pub(crate) async fn clear_own(consumer: Consumer) -> Result<StatusCode, Problem> {
    let Consumer { device, delivery, .. } = consumer;
    clear(&delivery, device.app, Preferring::Device(device.id)).await.map_err(Problem::gone)
}

/// `GET /v1/me/user/preferences`
pub(crate) async fn of_own_user(consumer: Consumer) -> Answer {
    let user = own_user(consumer.device.user)?;
    show(&consumer.delivery, consumer.device.app, &user).await
}

/// `PUT /v1/me/user/preferences`: durable when the response is sent.
pub(crate) async fn set_of_own_user(consumer: Consumer, JsonBody(body): JsonBody) -> Answer {
    let user = own_user(consumer.device.user)?;
    replace(&consumer.delivery, consumer.device.app, user, &body, Problem::from).await
}

/// `DELETE /v1/me/user/preferences`
pub(crate) async fn clear_of_own_user(consumer: Consumer) -> Result<StatusCode, Problem> {
    let user = own_user(consumer.device.user)?;
    clear(&consumer.delivery, consumer.device.app, user).await.map_err(Problem::from)
}

/// `GET /v1/users/{user}/preferences`
pub(crate) async fn of_user(provider: Provider<Read>, Path(user): Path<String>) -> Answer {
    show(&provider.delivery, provider.app, &Preferring::User(user_id(&user)?)).await
}

/// `PUT /v1/users/{user}/preferences`: the user may be unknown.
pub(crate) async fn set_of_user(
    provider: Provider<Devices>,
    Path(user): Path<String>,
    JsonBody(body): JsonBody,
) -> Answer {
    let of = Preferring::User(user_id(&user)?);
    replace(&provider.delivery, provider.app, of, &body, Problem::from).await
}

/// `DELETE /v1/users/{user}/preferences`
pub(crate) async fn clear_of_user(
    provider: Provider<Devices>,
    Path(user): Path<String>,
) -> Result<StatusCode, Problem> {
    let of = Preferring::User(user_id(&user)?);
    clear(&provider.delivery, provider.app, of).await.map_err(Problem::from)
}

/// `GET /v1/devices/{device}/preferences`
pub(crate) async fn of_device(provider: Provider<Read>, Path(device): Path<String>) -> Answer {
    let device = body::device_id(&device)?;
    let found = provider.delivery.store().device(provider.app, &device).await?;
    let device = found.ok_or_else(|| Problem::not_found(DEVICE))?.id;
    show(&provider.delivery, provider.app, &Preferring::Device(device)).await
}

/// `PUT /v1/devices/{device}/preferences`: durable when the response is sent.
pub(crate) async fn set_of_device(
    provider: Provider<Devices>,
    Path(device): Path<String>,
    JsonBody(body): JsonBody,
) -> Answer {
    let of = Preferring::Device(body::device_id(&device)?);
    replace(&provider.delivery, provider.app, of, &body, Problem::missing(DEVICE)).await
}

/// `DELETE /v1/devices/{device}/preferences`
pub(crate) async fn clear_of_device(
    provider: Provider<Devices>,
    Path(device): Path<String>,
) -> Result<StatusCode, Problem> {
    let of = Preferring::Device(body::device_id(&device)?);
    clear(&provider.delivery, provider.app, of).await.map_err(Problem::missing(DEVICE))
}

const DEVICE: &str = "device";

fn own_user(user: Option<UserId>) -> Result<Preferring, Problem> {
    let missing = || Problem::new(Code::NotFound, "the device has no user; register it with one");
    user.map(Preferring::User).ok_or_else(missing)
}

async fn show(delivery: &Delivery, app: AppId, of: &Preferring) -> Answer {
    let found = delivery.store().preferences(app, of).await?;
    respond::ok(&shown(found.as_ref()))
}

/// `refused`: what a failure of the store means.
async fn replace(
    delivery: &Delivery,
    app: AppId,
    of: Preferring,
    body: &[u8],
    refused: impl Fn(Error) -> Problem,
) -> Answer {
    let preferences = body::preferences(body)?;
    let response = respond::ok(&shown(preferences.as_ref()))?;
    delivery.preferences.set(app, of, preferences).await.map_err(refused)?;
    Ok(response)
}

async fn clear(delivery: &Delivery, app: AppId, of: Preferring) -> Result<StatusCode, Error> {
    delivery.preferences.set(app, of, None).await.map(|()| StatusCode::NO_CONTENT)
}

fn shown(preferences: Option<&Preferences>) -> PreferencesBody {
    preferences.map(PreferencesBody::from).unwrap_or_default()
}
