//! `/v1/me`: requests of a device for itself. Every request except the first call ([`crate::first_call`]) reads the device, so
//! a revoked token, or that of a deleted device, stops working at once.

use std::sync::Arc;

use axum::extract::State as Shared;
use http::{Extensions, HeaderMap, StatusCode};
use noroshi_store::{Device, DeviceChange, Preferring};
use noroshi_types::{Topic, limits};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::body;
use crate::connection::Peer;
use crate::error::{Code, Problem};
use crate::first_call::FirstCallService;
use crate::handler::topic_rules;
use crate::request::access::{Consumer, FirstCaller};
use crate::request::body::JsonBody;
use crate::request::parameter::{Path, Query};
use crate::respond::{self, Answer};
use crate::token_check;

/// Default number of messages in a response.
const INBOX_PAGE_DEFAULT: usize = 100;

#[derive(Serialize)]
struct InboxBody {
    messages: Vec<Box<RawValue>>,
    total: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct InboxQuery {
    limit: Option<usize>,
    /// Used by the credential check.
    #[serde(rename = "app")]
    _app: Option<String>,
}

/// `GET /v1/me`: the first call of an app. From memory if the cached device is current.
pub(crate) async fn show(
    Shared(first_calls): Shared<Arc<FirstCallService>>,
    caller: FirstCaller,
    headers: HeaderMap,
    extensions: Extensions,
) -> Answer {
    let answer = first_calls.answer(&caller.identity, &headers, extensions.get::<Peer>()).await?;
    Ok(answer.respond(&headers))
}

/// `PATCH /v1/me`
pub(crate) async fn change(
    Shared(first_calls): Shared<Arc<FirstCallService>>,
    consumer: Consumer,
    headers: HeaderMap,
    extensions: Extensions,
    JsonBody(body): JsonBody,
) -> Answer {
    let change = body::device_change(&body)?;
    // The credential determines the user. A device that changed its user could read another user's inbox.
    if change.user.as_ref().is_some_and(|user| *user != consumer.device.user) {
        return Err(Problem::new(
            Code::Forbidden,
            "a device cannot change its user; register it with an API key",
        )
        .at("user"));
    }
    if let Some(Some(token)) = &change.push_token {
        let token = vec![(token, "push_token".to_owned())];
        token_check::by_device(&consumer.delivery, consumer.device.app, &token).await?;
    }
    update(&consumer, DeviceChange { user: None, ..change }).await?;
    let answer = first_calls.answer(&consumer.identity, &headers, extensions.get::<Peer>()).await?;
    Ok(answer.whole())
}

/// `DELETE /v1/me`
pub(crate) async fn delete(consumer: Consumer) -> Result<StatusCode, Problem> {
    consumer.delivery.delete_device(consumer.device.app, &consumer.device.id).await.map_err(Problem::gone)?;
    Ok(StatusCode::NO_CONTENT)
}

/// `PUT /v1/me/topics/{topic}`
pub(crate) async fn subscribe(consumer: Consumer, Path(name): Path<String>) -> Result<StatusCode, Problem> {
    let Consumer { device, identity, delivery } = consumer;
    let topic = topic(&name)?;
    let holder = topic_rules::holder(&device, identity.claims);
    let (topics, place) = (std::slice::from_ref(&topic), |_| "topic".to_owned());
    topic_rules::permit(&delivery, &holder, topics, place).await?;
    delivery.devices.subscribe(device.app, &device.id, &topic).await.map_err(Problem::gone)?;
    topic_rules::keep(&delivery, &holder, topics, place).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `DELETE /v1/me/topics/{topic}`: succeeds also without a subscription.
pub(crate) async fn unsubscribe(consumer: Consumer, Path(name): Path<String>) -> Result<StatusCode, Problem> {
    // Includes topics that topic rules allow only to MQTT clients.
    let topic = Topic::parse_any(&name).map_err(|invalid| Problem::from(invalid).at("topic"))?;
    let Consumer { device, delivery, .. } = consumer;
    delivery.devices.unsubscribe(device.app, &device.id, &topic).await.map_err(Problem::gone)?;
    Ok(StatusCode::NO_CONTENT)
}

/// `PUT /v1/me/push-token`
pub(crate) async fn set_push_token(
    consumer: Consumer,
    JsonBody(body): JsonBody,
) -> Result<StatusCode, Problem> {
    let token = body::push_token(&body)?;
    token_check::by_device(&consumer.delivery, consumer.device.app, &vec![(&token, String::new())]).await?;
    let change = DeviceChange { push_token: Some(Some(token)), ..DeviceChange::default() };
    update(&consumer, change).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `PUT /v1/me/presence`: sets the presence of the open connection. Fails without one.
pub(crate) async fn set_presence(consumer: Consumer, JsonBody(body): JsonBody) -> Answer {
    let presence = body::presence(&body)?;
    match consumer.delivery.sessions.set_presence(consumer.device.app, &consumer.device.id, presence).await {
        true => respond::field("presence", presence.as_str()),
        false => Err(Problem::new(
            Code::NotConnected,
            "the device has no open connection; a new connection is active",
        )),
    }
}

/// `GET /v1/me/inbox`
pub(crate) async fn inbox(consumer: Consumer, Query(query): Query<InboxQuery>) -> Answer {
    let limit = query.limit.unwrap_or(INBOX_PAGE_DEFAULT);
    if !(1..=limits::INBOX_PAGE_MAX).contains(&limit) {
        let rule = format!("must be 1 to {}", limits::INBOX_PAGE_MAX);
        return Err(Problem::parameter("limit", rule));
    }
    let Consumer { device, delivery, .. } = consumer;
    let (messages, total) =
        delivery.store().inbox(device.app, &device.id, limit, delivery.clock().now()).await?;
    let messages = messages.iter().map(|message| respond::message(message)).collect::<Result<_, _>>()?;
    respond::ok(&InboxBody { messages, total })
}

/// `POST /v1/me/inbox/ack`: durable when the response is sent.
pub(crate) async fn ack(consumer: Consumer, JsonBody(body): JsonBody) -> Answer {
    let ids = body::ids(&body)?;
    let Consumer { device, delivery, .. } = &consumer;
    let acked = delivery.acks.ack_now(device.app, device.num, ids).await?;
    respond::field("acked", acked)
}

/// `POST /v1/me/opened`: durable when the response is sent. Does not acknowledge messages.
pub(crate) async fn open(consumer: Consumer, JsonBody(body): JsonBody) -> Answer {
    let ids = body::ids(&body)?;
    let Consumer { device, delivery, .. } = &consumer;
    let opened = delivery.devices.open(device.app, device.num, ids).await?;
    respond::field("opened", opened)
}

fn topic(name: &str) -> Result<Topic, Problem> {
    Topic::parse_subscription(name).map_err(|invalid| Problem::from(invalid).at("topic"))
}

async fn update(consumer: &Consumer, change: DeviceChange) -> Result<Device, Problem> {
    let Consumer { device, delivery, .. } = consumer;
    let moves = change.timezone.is_some();
    let updated =
        delivery.store().update_device(device.app, &device.id, change, delivery.clock().now()).await;
    delivery.freshness.device_changed(device.app, &device.id);
    if moves {
        // Quiet hours may follow its clock.
        delivery.preferences.changed(device.app, Preferring::Device(device.id.clone()));
    }
    updated.map_err(Problem::gone)
}
