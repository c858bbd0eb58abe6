//! Mail: requests that a shard carries out for its sessions, in the order in which they arrive.

use std::sync::Arc;

use bytes::Bytes;
use noroshi_types::{Condition, ItemsNotice, NotificationId, Position, Topic};

use crate::session::following::Change;
use crate::session::registry::{Address, Key};
use crate::wire::dispatch::Dispatch;

/// Why a shard does not get a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Undelivered {
    /// The mailbox is full: the shard reads the missed messages from the store.
    Full,
    /// The shard ended or is stuck.
    Gone,
}

/// Handled in the order in which it arrives.
pub(crate) enum Mail {
    Direct {
        dispatch: Arc<Dispatch>,
        to: Vec<Address>,
    },
    /// `deliveries`: an estimate of the number of recipients.
    Topic {
        dispatch: Arc<Dispatch>,
        key: Key,
        deliveries: usize,
    },
    Condition {
        dispatch: Arc<Dispatch>,
        audience: Arc<Audience>,
        deliveries: usize,
    },
    Subscribe {
        to: Address,
        topics: Vec<(Topic, Key)>,
    },
    Unsubscribe {
        to: Address,
        key: Key,
    },
    /// Everything kept of a topic up to here was offered.
    Offered {
        key: Key,
        position: Position,
    },
    /// A stanza of another account, if accounts may talk to each other.
    Stanza {
        to: Address,
        stanza: Bytes,
    },
    /// What the device follows has changed.
    Follow {
        to: Address,
        change: Box<Change>,
    },
    /// Items of a user were added or changed.
    Items {
        to: Vec<Address>,
        notice: Arc<ItemsNotice>,
    },
    /// Inboxes may have messages behind `since` that were not offered. None: messages that were held back while the
    /// devices were idle.
    Reread {
        to: Vec<Address>,
        since: Option<NotificationId>,
    },
}

impl Mail {
    pub(crate) fn dispatch(&self) -> Option<&Arc<Dispatch>> {
        match self {
            Mail::Direct { dispatch, .. }
            | Mail::Topic { dispatch, .. }
            | Mail::Condition { dispatch, .. } => Some(dispatch),
            Mail::Subscribe { .. }
            | Mail::Unsubscribe { .. }
            | Mail::Offered { .. }
            | Mail::Stanza { .. }
            | Mail::Follow { .. }
            | Mail::Items { .. }
            | Mail::Reread { .. } => None,
        }
    }
}

/// A condition with the keys of its topics, computed once for all shards.
pub(crate) struct Audience {
    pub(crate) condition: Condition,
    /// In the order of `Condition::topics`.
    pub(crate) topics: Vec<(Topic, Key)>,
    /// The key of the topic that every connection of the app receives.
    pub(crate) everyone: Key,
}
