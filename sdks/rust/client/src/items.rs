//! The notification centre of the user.

use http::Method;
use serde_json::{Map, Value, json};

use crate::client::Client;
use crate::error::Error;
use crate::pages::Pages;
use crate::protocol::{Call, Outcome};
use crate::types::{Item, ItemCounts, ItemState, Items, ItemsChanged};

/// Ids in a request.
const IDS_MAX: usize = 100;

/// Selects items. The default is all that are not archived.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use]
pub struct ItemsQuery {
    state: Option<String>,
    category: Option<String>,
    limit: Option<usize>,
    after: Option<String>,
}

impl ItemsQuery {
    /// All items that are not archived.
    pub fn new() -> Self {
        Self::default()
    }

    /// Items in this state.
    pub fn state(mut self, state: impl Into<ItemState>) -> Self {
        self.state = Some(state.into().to_string());
        self
    }

    /// Items in every state, also archived ones.
    pub fn all(mut self) -> Self {
        self.state = Some("all".to_owned());
        self
    }

    /// Items of a category.
    pub fn category(mut self, category: impl Into<String>) -> Self {
        self.category = Some(category.into());
        self
    }

    /// The size of a page, 1 to 1,000. Default: 100.
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Begins after this position: `next` of an earlier page.
    pub fn after(mut self, position: impl Into<String>) -> Self {
        self.after = Some(position.into());
        self
    }

    fn pairs(&self) -> Vec<(&'static str, String)> {
        let Self { state, category, limit, after } = self.clone();
        let limit = limit.map(|limit| limit.to_string());
        let pairs = [("state", state), ("category", category), ("limit", limit), ("after", after)];
        pairs.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

/// Selects items for a change.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Which {
    /// By their ids.
    Ids(Vec<String>),
    /// An item and all older ones: the newest that the user has seen, so that later ones stay unread.
    UpTo(String),
    /// An item and all older ones, of one category.
    UpToIn {
        /// The newest item.
        id: String,
        /// Of this category.
        category: String,
    },
}

impl Which {
    /// By their ids.
    pub fn ids<I: Into<String>>(ids: impl IntoIterator<Item = I>) -> Self {
        Self::Ids(ids.into_iter().map(Into::into).collect())
    }

    /// An item and all older ones.
    pub fn up_to(id: impl Into<String>) -> Self {
        Self::UpTo(id.into())
    }

    /// The bodies of the requests, without the action.
    fn bodies(self) -> Vec<Map<String, Value>> {
        let object = |value: Value| if let Value::Object(object) = value { object } else { Map::new() };
        match self {
            Self::Ids(ids) if ids.is_empty() => vec![object(json!({"ids": []}))],
            Self::Ids(ids) => ids.chunks(IDS_MAX).map(|part| object(json!({"ids": part}))).collect(),
            Self::UpTo(id) => vec![object(json!({"up_to": id}))],
            Self::UpToIn { id, category } => vec![object(json!({"up_to": id, "category": category}))],
        }
    }
}

impl Client {
    /// A page of the user's items, newest first.
    pub async fn list_items(&self, query: &ItemsQuery) -> Result<Items, Error> {
        let call = Call { query: query.pairs(), ..Call::new(Method::GET, "/v1/me/items") };
        self.read(call).await
    }

    /// The user's items, newest first.
    pub fn items(&self, query: ItemsQuery) -> Pages<Item> {
        let client = self.clone();
        Pages::new(query.after.clone(), move |after| {
            let (client, query) = (client.clone(), ItemsQuery { after, ..query.clone() });
            async move { client.list_items(&query).await.map(|page| (page.items, page.next)) }
        })
    }

    /// Reads the numbers of unread items.
    pub async fn item_counts(&self) -> Result<ItemCounts, Error> {
        match self.outcome(crate::protocol::Machine::read_counts).await? {
            Outcome::Counts(counts) => Ok(counts),
            _ => Err(Error::unexpected()),
        }
    }

    /// The numbers of unread items that the service reported last. None until there are any: after [`item_counts`](Self::item_counts)
    /// or with [`observe_unread`](Self::observe_unread).
    pub fn unread(&self) -> Option<ItemCounts> {
        self.shared().lock().machine.unread().cloned()
    }

    /// Marks unread items as read.
    pub async fn mark_read(&self, which: Which) -> Result<ItemsChanged, Error> {
        self.change_items("read", which).await
    }

    /// Marks read items as unread.
    pub async fn mark_unread(&self, which: Which) -> Result<ItemsChanged, Error> {
        self.change_items("unread", which).await
    }

    /// Archives items.
    pub async fn archive(&self, which: Which) -> Result<ItemsChanged, Error> {
        self.change_items("archive", which).await
    }

    /// Makes archived items read.
    pub async fn unarchive(&self, which: Which) -> Result<ItemsChanged, Error> {
        self.change_items("unarchive", which).await
    }

    /// More than 100 ids take several requests.
    async fn change_items(&self, action: &str, which: Which) -> Result<ItemsChanged, Error> {
        let mut total = 0;
        let mut last = None;
        for mut body in which.bodies() {
            body.insert("action".to_owned(), action.into());
            let body = Value::Object(body);
            let Outcome::Changed(changed) =
                self.outcome(|machine, now| machine.change_items(now, &body)).await?
            else {
                return Err(Error::unexpected());
            };
            total += changed.changed;
            last = Some(changed);
        }
        let mut last = last.ok_or_else(Error::unexpected)?;
        last.changed = total;
        Ok(last)
    }
}
