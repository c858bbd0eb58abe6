//! What a connection holds of its session.
//!
//! Empty until the log-in, and again after the session ended. The shard attaches and detaches
//! ([`crate::session::registry`]); fan-out sees it as a recipient. A connection that is live owns no [`CatchUp`].

use std::sync::Arc;

use noroshi_delivery::quota::Permit;
use noroshi_types::{NotificationId, Timestamp};
use smallvec::SmallVec;

use crate::session::catch_up::CatchUp;
use crate::session::following::{Change, Following};
use crate::session::registry::Session;
use crate::session::topic_index::Subscription;

pub(crate) struct Attachment {
    pub(crate) session: Option<Arc<Session>>,
    /// Counts for the app's quota of connections, from the log-in on.
    pub(crate) permit: Option<Permit>,
    pub(crate) catch_up: Option<Box<CatchUp>>,
    /// `None` for the nearly all devices without preferences.
    pub(crate) following: Option<Box<Following>>,
    /// Most devices have `$everyone` and few more: those fit inside.
    pub(crate) topics: SmallVec<[Subscription; 4]>,
    /// Pages brought every message up to here; the same ones may still arrive live.
    pub(crate) watermark: NotificationId,
    /// Messages accepted up to here existed when the log-in was read: a page brought them, or they had been acknowledged.
    pub(crate) as_of: NotificationId,
    /// The session that ended, while its device's acknowledgements still count.
    pub(crate) leaving: Option<Arc<Session>>,
    /// When the token expires.
    pub(crate) expires_at: Timestamp,
}

impl Attachment {
    /// What the device follows has changed.
    pub(crate) fn take_change(&mut self, change: Change) {
        match change {
            Change::Followed(_) if self.session.is_none() => {}
            Change::Followed(followed) => {
                self.following = Following::replace(self.following.take(), followed);
            }
            Change::Capped { category, day } => {
                if let Some(following) = &mut self.following {
                    following.cap(category, day);
                }
            }
        }
    }
}

impl Default for Attachment {
    fn default() -> Self {
        Self {
            session: None,
            permit: None,
            catch_up: None,
            following: None,
            topics: SmallVec::new(),
            watermark: NotificationId::from_bytes([0; 16]),
            as_of: NotificationId::from_bytes([0; 16]),
            leaving: None,
            expires_at: Timestamp(u64::MAX),
        }
    }
}
