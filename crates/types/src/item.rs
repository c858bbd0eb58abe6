//! Items: the notifications that a user's notification centre lists, with their state.
//!
//! An item belongs to a user, not to a device, and outlives the delivery of its notification. Storage is in `store`,
//! reports to connected devices are in `delivery`.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{Label, NotificationId, limits};

/// A request for an item of each user that the notification names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemRequest {
    pub category: Option<Label>,
    /// How long the item is listed, whatever the notification's ttl.
    pub retention: Duration,
}

impl Default for ItemRequest {
    fn default() -> Self {
        Self { category: None, retention: limits::ITEM_RETENTION }
    }
}

crate::names! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum ItemState {
        Unread = 1 => "unread",
        Read = 2 => "read",
        /// Read, and hidden from the default list.
        Archived = 3 => "archived",
    }
}

crate::names! {
    /// What a device does with items. An item in another state than the action's first one does not change.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ItemAction {
        Read => "read",
        Unread => "unread",
        Archive => "archive",
        Unarchive => "unarchive",
    }
}

impl ItemAction {
    /// The states that change, first and last.
    pub fn from(self) -> (ItemState, ItemState) {
        match self {
            Self::Read => (ItemState::Unread, ItemState::Unread),
            Self::Unread => (ItemState::Read, ItemState::Read),
            Self::Archive => (ItemState::Unread, ItemState::Read),
            Self::Unarchive => (ItemState::Archived, ItemState::Archived),
        }
    }

    /// The state afterwards.
    pub fn to(self) -> ItemState {
        match self {
            Self::Read | Self::Unarchive => ItemState::Read,
            Self::Unread => ItemState::Unread,
            Self::Archive => ItemState::Archived,
        }
    }

    /// What connected devices are notified of.
    pub fn event(self) -> ItemEvent {
        match self {
            Self::Read => ItemEvent::Read,
            Self::Unread => ItemEvent::Unread,
            Self::Archive => ItemEvent::Archived,
            Self::Unarchive => ItemEvent::Unarchived,
        }
    }
}

crate::names! {
    /// What happened to items of a user.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ItemEvent {
        Added = 1 => "added",
        Read = 2 => "read",
        Unread = 3 => "unread",
        Archived = 4 => "archived",
        Unarchived = 5 => "unarchived",
        /// All of the user's items were deleted.
        Deleted = 6 => "deleted",
    }
}

/// How many items of a user are unread.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ItemCounts {
    /// With those of no category.
    pub total: u64,
    pub categories: BTreeMap<Label, u64>,
}

impl ItemCounts {
    pub fn add(&mut self, category: Option<Label>, count: u64) {
        self.total += count;
        if let Some(category) = category {
            *self.categories.entry(category).or_default() += count;
        }
    }

    /// The categories that an answer lists: the first [`limits::ITEM_CATEGORIES_MAX`] by name.
    pub fn listed(&self) -> impl Iterator<Item = (&Label, u64)> {
        let categories = self.categories.iter().map(|(name, count)| (name, *count));
        categories.take(limits::ITEM_CATEGORIES_MAX)
    }
}

/// What happened to a user's items, for the user's connected devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemsNotice {
    pub event: ItemEvent,
    /// At most [`limits::ITEM_IDS_MAX`].
    pub ids: Vec<NotificationId>,
    /// Other items changed too.
    pub more: bool,
    /// After the change.
    pub unread: ItemCounts,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_leaves_items_in_its_own_state_alone() {
        for action in ItemAction::ALL {
            let (first, last) = action.from();
            assert!(first <= last && !(first..=last).contains(&action.to()), "{action:?}");
        }
    }

    #[test]
    fn counts_without_a_category_are_in_the_total_only() {
        let mut counts = ItemCounts::default();
        let orders = Label::parse("orders").expect("a name");
        counts.add(None, 2);
        counts.add(Some(orders.clone()), 3);
        counts.add(Some(orders.clone()), 1);
        assert_eq!((counts.total, counts.listed().collect::<Vec<_>>()), (6, vec![(&orders, 4)]));
        for number in 0..limits::ITEM_CATEGORIES_MAX {
            counts.add(Label::parse(&format!("c{number}")).ok(), 1);
        }
        assert_eq!(counts.listed().count(), limits::ITEM_CATEGORIES_MAX);
    }
}
