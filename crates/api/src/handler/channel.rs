//! Broadcast channels of APNs: managed with the scope `admin`, given broadcasts with `publish`, shown with `read`.

use http::{HeaderMap, StatusCode};
use noroshi_delivery::push::ListedChannel;
use noroshi_store::{BroadcastsOf, Channel, PushRecord, StoredBroadcast};
use noroshi_types::{BroadcastId, Label, PushEnvironment};
use serde::{Deserialize, Serialize};

use crate::body;
use crate::error::{Code, Problem};
use crate::handler::attempt::{AttemptBody, attempts};
use crate::request::access::{Admin, Provider, Publish, Read};
use crate::request::body::JsonBody;
use crate::request::idempotency::{idempotency, mark_replayed};
use crate::request::page::{Page, next};
use crate::request::parameter::{Path, Query};
use crate::respond::{self, Answer};

/// The newest broadcasts that `GET /v1/push/channels/{name}` shows.
const SHOWN: usize = 20;

#[derive(Serialize)]
struct ChannelBody {
    name: String,
    environment: &'static str,
    bundle_id: String,
    storage: &'static str,
    /// Null: reserved, and not known to exist at Apple.
    apns_id: Option<String>,
    topic: Option<String>,
    waiting: u64,
    created_at: String,
    /// Only of one channel.
    #[serde(skip_serializing_if = "Option::is_none")]
    broadcasts: Option<Vec<BroadcastBody>>,
}

/// A broadcast, also in the state of its notification.
#[derive(Serialize)]
pub(crate) struct BroadcastBody {
    id: String,
    channel: String,
    notification: Option<String>,
    state: &'static str,
    reason: Option<String>,
    attempts: u32,
    priority: u8,
    replaceable: bool,
    accepted_at: String,
    expires_at: String,
    ended_at: Option<String>,
    /// Only of one broadcast.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    requests: Vec<AttemptBody>,
}

#[derive(Serialize)]
struct ListedBody {
    apns_id: String,
    name: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeleteQuery {
    #[serde(default)]
    forget: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AppleQuery {
    environment: Option<String>,
}

impl AppleQuery {
    fn environment(&self) -> Result<PushEnvironment, Problem> {
        match self.environment.as_deref() {
            None => Ok(PushEnvironment::Production),
            Some(text) => PushEnvironment::named(text)
                .ok_or_else(|| Problem::parameter("environment", "must be \"production\" or \"sandbox\"")),
        }
    }
}

/// `POST /v1/push/channels`
pub(crate) async fn create(provider: Provider<Admin>, JsonBody(body): JsonBody) -> Answer {
    let spec = body::channel(&body)?;
    let created = provider.delivery.push.channels()?.create(provider.app, spec).await;
    let (channel, created) = created.map_err(|error| match error {
        noroshi_delivery::Error::Store(noroshi_store::Error::Exists) => taken(),
        error => error.into(),
    })?;
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    if created {
        let (app, name) = (Some(provider.app), channel.name.as_str());
        provider.delivery.context.outcomes.configured(app, ("channel", "made"), Some(name));
    }
    Ok(respond::json(status, &ChannelBody::from(channel)))
}

/// `GET /v1/push/channels`
pub(crate) async fn list(provider: Provider<Read>, Query(page): Query<Page>) -> Answer {
    let limit = page.limit()?;
    let after = page.after().map(|after| label(&after, "after")).transpose()?;
    let found = provider.delivery.store().channels(provider.app, after, limit).await?;
    let next = next(&found, limit, |last| last.name.to_string());
    respond::page("channels", found.into_iter().map(ChannelBody::from).collect(), next)
}

/// `GET /v1/push/channels/{name}`
pub(crate) async fn show(provider: Provider<Read>, Path(name): Path<String>) -> Answer {
    let (store, name) = (provider.delivery.store(), label(&name, "name")?);
    let channel = store.channel(provider.app, &name).await?.ok_or_else(|| Problem::not_found("channel"))?;
    let broadcasts = store.broadcasts(provider.app, BroadcastsOf::Channel(name), SHOWN).await;
    let broadcasts = broadcasts.map_err(Problem::missing("channel"))?;
    let broadcasts = Some(broadcasts.into_iter().map(BroadcastBody::from).collect());
    respond::ok(&ChannelBody { broadcasts, ..ChannelBody::from(channel) })
}

/// `PATCH /v1/push/channels/{name}`
pub(crate) async fn change(
    provider: Provider<Admin>,
    Path(name): Path<String>,
    JsonBody(body): JsonBody,
) -> Answer {
    let name = label(&name, "name")?;
    let topic = body::channel_change(&body)?;
    let bound = provider.delivery.store().bind_channel(provider.app, &name, topic).await;
    let channel = bound.map_err(|error| match error {
        noroshi_store::Error::Exists => taken(),
        error => Problem::missing("channel")(error),
    })?;
    let app = Some(provider.app);
    provider.delivery.context.outcomes.configured(app, ("channel", "changed"), Some(name.as_str()));
    respond::ok(&ChannelBody::from(channel))
}

/// `DELETE /v1/push/channels/{name}`
pub(crate) async fn delete(
    provider: Provider<Admin>,
    Path(name): Path<String>,
    Query(query): Query<DeleteQuery>,
) -> Result<StatusCode, Problem> {
    let name = label(&name, "name")?;
    let deleted = provider.delivery.push.channels()?.delete(provider.app, &name, query.forget).await;
    deleted.map_err(Problem::missing("channel"))?;
    let app = Some(provider.app);
    provider.delivery.context.outcomes.configured(app, ("channel", "removed"), Some(name.as_str()));
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /v1/push/channels/{name}/broadcasts`
pub(crate) async fn broadcast(
    provider: Provider<Publish>,
    Path(name): Path<String>,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Answer {
    let name = label(&name, "name")?;
    let idempotency = idempotency(&headers, &body)?;
    let broadcast = body::broadcast(&body, provider.delivery.clock().now())?;
    let channels = provider.delivery.push.channels()?;
    let accepted = channels.broadcast(provider.app, name, broadcast, idempotency).await;
    let (stored, replayed) = accepted.map_err(Problem::missing("channel"))?;
    let response = respond::json(StatusCode::ACCEPTED, &BroadcastBody::from(stored));
    Ok(mark_replayed(response, replayed))
}

/// `GET /v1/push/broadcasts/{id}`
pub(crate) async fn show_broadcast(provider: Provider<Read>, Path(id): Path<String>) -> Answer {
    let id = BroadcastId::parse(&id).map_err(|invalid| Problem::from(invalid).at("id"))?;
    let store = provider.delivery.store();
    let found = store.stored_broadcast(provider.app, id).await?;
    let body = BroadcastBody::from(found.ok_or_else(|| Problem::not_found("broadcast"))?);
    let rows = store.broadcast_attempts(provider.app, id).await?;
    respond::ok(&BroadcastBody { requests: attempts(&rows, PushRecord::NO_DEVICE), ..body })
}

/// `GET /v1/push/apns-channels`
pub(crate) async fn list_apple(provider: Provider<Admin>, Query(query): Query<AppleQuery>) -> Answer {
    let listed = provider.delivery.push.channels()?.listed(provider.app, query.environment()?).await?;
    let body = |ListedChannel { apple, name }| ListedBody {
        apns_id: apple,
        name: name.map(|name| name.to_string()),
    };
    respond::field("channels", listed.into_iter().map(body).collect::<Vec<_>>())
}

/// `DELETE /v1/push/apns-channels/{id}`
pub(crate) async fn delete_apple(
    provider: Provider<Admin>,
    Path(id): Path<String>,
    Query(query): Query<AppleQuery>,
) -> Result<StatusCode, Problem> {
    let id = body::channel_id(&id)?;
    let channels = provider.delivery.push.channels()?;
    channels.delete_unknown(provider.app, query.environment()?, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The topic of a request has another channel.
fn taken() -> Problem {
    let detail = "the topic has another channel in this environment; unbind that one first";
    Problem::new(Code::AlreadyExists, detail).at("topic")
}

fn label(text: &str, parameter: &str) -> Result<Label, Problem> {
    Label::parse(text).map_err(|invalid| Problem::from(invalid).at(parameter))
}

impl From<Channel> for ChannelBody {
    fn from(channel: Channel) -> Self {
        let Channel { name, environment, bundle, policy, apple, topic, created_at, waiting } = channel;
        Self {
            name: name.to_string(),
            environment: environment.as_str(),
            bundle_id: bundle,
            storage: policy.as_str(),
            apns_id: apple,
            topic: topic.map(|topic| topic.to_string()),
            waiting,
            created_at: created_at.to_string(),
            broadcasts: None,
        }
    }
}

impl From<StoredBroadcast> for BroadcastBody {
    fn from(stored: StoredBroadcast) -> Self {
        Self {
            id: stored.id.to_string(),
            channel: stored.channel.to_string(),
            notification: stored.notification.map(|id| id.to_string()),
            state: stored.state.as_str(),
            reason: stored.reason,
            attempts: stored.attempts,
            priority: stored.priority,
            replaceable: stored.replaceable,
            accepted_at: stored.accepted_at.to_string(),
            expires_at: stored.expires_at.to_string(),
            ended_at: stored.ended_at.map(|at| at.to_string()),
            requests: Vec::new(),
        }
    }
}
