//! Items of users' notification centres: a device's requests for its own user, and a provider's for support. A device
//! without a user has no items.

use noroshi_delivery::Delivery;
use noroshi_store::{Item, ItemPage};
use noroshi_types::{AppId, ItemCounts, ItemState, Label, NotificationId, UserId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::body;
use crate::error::Problem;
use crate::handler::user::user_id;
use crate::request::access::{Consumer, Devices, Provider, Read};
use crate::request::body::JsonBody;
use crate::request::page::{next, not_a_position, not_first, page_limit};
use crate::request::parameter::{Path, Query};
use crate::respond::{self, Answer};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ItemsQuery {
    state: Option<String>,
    category: Option<String>,
    after: Option<String>,
    limit: Option<usize>,
    /// Used by the credential check.
    #[serde(rename = "app")]
    _app: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CountsQuery {
    /// Used by the credential check.
    #[serde(rename = "app")]
    _app: Option<String>,
}

#[derive(Serialize)]
struct ItemsBody {
    items: Vec<ItemBody>,
    next: Option<String>,
}

#[derive(Serialize)]
struct ItemBody {
    id: String,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    category: Option<String>,
    created_at: String,
    changed_at: String,
    expires_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    notification: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Box<RawValue>>,
}

/// Unread items.
#[derive(Serialize)]
struct CountsBody {
    unread: u64,
    categories: serde_json::Map<String, serde_json::Value>,
}

#[derive(Serialize)]
struct ChangedBody {
    changed: u64,
    #[serde(flatten)]
    counts: CountsBody,
}

impl From<&ItemCounts> for CountsBody {
    fn from(counts: &ItemCounts) -> Self {
        let listed = counts.listed().map(|(name, count)| (name.to_string(), count.into()));
        Self { unread: counts.total, categories: listed.collect() }
    }
}

/// `GET /v1/me/items`
pub(crate) async fn own(consumer: Consumer, Query(query): Query<ItemsQuery>) -> Answer {
    let Consumer { device, delivery, .. } = consumer;
    list(&delivery, device.app, device.user, query).await
}

/// `GET /v1/me/items/counts`
pub(crate) async fn own_counts(consumer: Consumer, Query(_): Query<CountsQuery>) -> Answer {
    let Consumer { device, delivery, .. } = consumer;
    counts(&delivery, device.app, device.user).await
}

/// `PATCH /v1/me/items`: durable when the response is sent.
pub(crate) async fn change(consumer: Consumer, JsonBody(body): JsonBody) -> Answer {
    let (action, which) = body::item_change(&body)?;
    let Consumer { device, delivery, .. } = consumer;
    let changed = match &device.user {
        Some(user) => delivery.items.change(device.app, user, action, which).await?,
        None => Default::default(),
    };
    let counts = CountsBody::from(&changed.unread);
    respond::ok(&ChangedBody { changed: changed.ids.len() as u64, counts })
}

/// `GET /v1/users/{user}/items`
pub(crate) async fn of_user(
    provider: Provider<Read>,
    Path(user): Path<String>,
    Query(query): Query<ItemsQuery>,
) -> Answer {
    list(&provider.delivery, provider.app, Some(user_id(&user)?), query).await
}

/// `GET /v1/users/{user}/items/counts`
pub(crate) async fn counts_of_user(
    provider: Provider<Read>,
    Path(user): Path<String>,
    Query(_): Query<CountsQuery>,
) -> Answer {
    counts(&provider.delivery, provider.app, Some(user_id(&user)?)).await
}

/// `DELETE /v1/users/{user}/items`
pub(crate) async fn delete_of_user(provider: Provider<Devices>, Path(user): Path<String>) -> Answer {
    let deleted = provider.delivery.items.delete(provider.app, &user_id(&user)?).await?;
    respond::field("deleted", deleted)
}

async fn list(delivery: &Delivery, app: AppId, user: Option<UserId>, query: ItemsQuery) -> Answer {
    let limit = page_limit(query.limit)?;
    let states = states(query.state.as_deref())?;
    let category = query.category.as_deref().map(Label::parse).transpose();
    let category = category.map_err(|invalid| Problem::parameter("category", invalid.0))?;
    let position = |text: String| NotificationId::parse(&text).map_err(|_| not_a_position());
    let after = not_first(query.after).map(position).transpose()?;
    let now = delivery.clock().now();
    let items = match user {
        Some(user) => {
            let asked = ItemPage { app, user, states, category, after, limit, now };
            delivery.store().items(asked).await?
        }
        None => Vec::new(),
    };
    let next = next(&items, limit, |item| item.id.to_string());
    let items = items.into_iter().map(shown).collect::<Result<_, _>>()?;
    respond::ok(&ItemsBody { items, next })
}

/// The first and the last state of a filter.
fn states(name: Option<&str>) -> Result<(ItemState, ItemState), Problem> {
    match name {
        None => Ok((ItemState::Unread, ItemState::Read)),
        Some("all") => Ok((ItemState::Unread, ItemState::Archived)),
        Some(name) => match ItemState::named(name) {
            Some(state) => Ok((state, state)),
            None => {
                let rule = "must be \"unread\", \"read\", \"archived\" or \"all\"";
                Err(Problem::parameter("state", rule))
            }
        },
    }
}

async fn counts(delivery: &Delivery, app: AppId, user: Option<UserId>) -> Answer {
    let counts = match user {
        Some(user) => {
            let now = delivery.clock().now();
            delivery.store().item_counts(app, vec![user], now).await?.into_iter().next().unwrap_or_default()
        }
        None => ItemCounts::default(),
    };
    respond::ok(&CountsBody::from(&counts))
}

fn shown(item: Item) -> Result<ItemBody, Problem> {
    Ok(ItemBody {
        id: item.id.to_string(),
        state: item.state.as_str(),
        category: item.category.map(|category| category.to_string()),
        created_at: item.created_at.to_string(),
        changed_at: item.changed_at.to_string(),
        expires_at: item.expires_at.to_string(),
        notification: respond::raw(item.notification.as_ref())?,
        data: respond::raw(item.data.as_ref())?,
    })
}
