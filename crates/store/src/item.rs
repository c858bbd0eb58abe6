//! Items of users' notification centres: lists, counts and changes of state. [`crate::Notifications::accept`] writes them.

use noroshi_types::{
    AppId, ItemAction, ItemCounts, ItemState, JsonText, Label, NotificationId, Timestamp, UserId,
};

use crate::Error;

/// An entry of a user's notification centre.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// That of its notification.
    pub id: NotificationId,
    pub state: ItemState,
    /// When the state changed last.
    pub changed_at: Timestamp,
    pub category: Option<Label>,
    pub created_at: Timestamp,
    /// It is not listed from then on.
    pub expires_at: Timestamp,
    pub notification: Option<JsonText>,
    pub data: Option<JsonText>,
}

/// Asks for a page of a user's items.
#[derive(Debug, Clone)]
pub struct ItemPage {
    pub app: AppId,
    pub user: UserId,
    /// First and last state.
    pub states: (ItemState, ItemState),
    /// `None`: all, also those of no category.
    pub category: Option<Label>,
    /// Only items older than this one, which need not exist.
    pub after: Option<NotificationId>,
    pub limit: usize,
    pub now: Timestamp,
}

/// Changes items of one user.
#[derive(Debug, Clone)]
pub struct ItemChange {
    pub app: AppId,
    pub user: UserId,
    pub action: ItemAction,
    pub which: WhichItems,
    pub now: Timestamp,
}

#[derive(Debug, Clone)]
pub enum WhichItems {
    /// Ids that are not the user's are ignored.
    Ids(Vec<NotificationId>),
    /// This item, which need not exist, and all older ones, of one category or of all.
    UpTo { last: NotificationId, category: Option<Label> },
}

/// The result of an [`ItemChange`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangedItems {
    /// Those that changed.
    pub ids: Vec<NotificationId>,
    /// In the same transaction.
    pub unread: ItemCounts,
}

/// A user has at most [`crate::sqlite::Options::item_rows`] items: when that many newer ones were written, an item is
/// removed. Expired items are neither listed nor counted; [`crate::Maintenance::prune`] removes them.
#[async_trait::async_trait]
pub trait Items: Send + Sync {
    /// Newest first.
    async fn items(&self, asked: ItemPage) -> Result<Vec<Item>, Error>;

    /// The unread items of users, in the order of `users`, from one consistent read.
    async fn item_counts(
        &self,
        app: AppId,
        users: Vec<UserId>,
        now: Timestamp,
    ) -> Result<Vec<ItemCounts>, Error>;

    /// Changes the items that are in one of the action's states; the others stay as they are.
    async fn change_items(&self, change: ItemChange) -> Result<ChangedItems, Error>;

    /// Deletes the items of a user. Returns how many.
    async fn delete_items(&self, app: AppId, user: &UserId) -> Result<u64, Error>;
}
