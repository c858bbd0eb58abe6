//! Lists of notifications and devices by what they are, for people who look for something.
//!
//! A list reads a bounded number of rows for each page, whatever its filter. So a page may be short, or empty, although
//! more follows: `next` tells. Notifications are listed as long as they are kept.

use noroshi_types::{
    AppId, CampaignId, DeviceId, DeviceNum, JsonText, Label, NotificationId, Outcome, PushService, Timestamp,
    TokenKind, Topic, Urgency, UserId, UtcDay, When,
};

use crate::{Device, Error, State, TraceStep};

/// The kinds of targets that a notification may have, by their stored code.
pub const TARGET_KINDS: [&str; 6] = ["users", "devices", "topic", "condition", "everyone", "campaign"];

/// Notifications that a page of a request reads at most: about 20 ms.
pub const NOTIFICATIONS_READ_MAX: usize = 20_000;
/// Devices that a page of a request reads at most: about 20 ms.
pub const DEVICES_READ_MAX: usize = 20_000;
/// How many entries of the table of days a page reads in place of one device, because they are narrow: a search by day
/// alone reads nothing else.
pub(crate) const DAYS_PER_ROW: usize = 10;
/// Devices of a user that a list of the user's notifications considers: the newest.
pub const USER_DEVICES_MAX: usize = 20;

/// Which notifications to list, newest first. Every condition must hold.
#[derive(Debug, Clone, Default)]
pub struct NotificationFilter {
    /// Accepted then or later.
    pub since: Option<Timestamp>,
    /// Accepted then or earlier.
    pub until: Option<Timestamp>,
    /// One of [`TARGET_KINDS`].
    pub target: Option<&'static str>,
    pub topic: Option<Topic>,
    pub campaign: Option<CampaignId>,
    pub category: Option<Label>,
    pub urgency: Option<Urgency>,
    pub recipient: Option<Recipient>,
    /// Only notifications before this one.
    pub before: Option<NotificationId>,
    pub limit: usize,
    /// Rows that the page may read, at least 1; [`NOTIFICATIONS_READ_MAX`] suits a request.
    pub rows_max: usize,
}

/// For whom a notification was: it names the user or the device, it is to a topic to which a device durably subscribed
/// before it, it waits in an inbox, or an outcome of a condition or a campaign lists a device. Not known are topics that a
/// device followed without a durable subscription, and subscriptions that have ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recipient {
    /// The user or one of its newest [`USER_DEVICES_MAX`] devices.
    User(UserId),
    Device(DeviceId),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedNotification {
    pub id: NotificationId,
    pub sent_at: Timestamp,
    pub expires_at: Timestamp,
    pub when: When,
    pub urgency: Urgency,
    /// One of [`TARGET_KINDS`].
    pub target: &'static str,
    /// The topic's name or the condition's text.
    pub target_text: Option<String>,
    /// How many users or devices the request names.
    pub targets: Option<u64>,
    pub notification: Option<JsonText>,
    pub category: Option<Label>,
    /// The campaign that published it.
    pub campaign: Option<CampaignId>,
    /// `None`: it has too many outcomes to sum them for a list.
    pub progress: Option<Progress>,
    /// Devices of the filter's recipient that the notification reached or waits for.
    pub recipients: Vec<ListedRecipient>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    pub state: State,
    /// In the order of [`Outcome::ALL`], without zeros.
    pub counts: Vec<(Outcome, u64)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedRecipient {
    pub device: DeviceId,
    /// The newest step. `None`: none is recorded, or the notification has too many outcomes to look for it.
    pub step: Option<TraceStep>,
    pub in_inbox: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NotificationPage {
    pub notifications: Vec<ListedNotification>,
    /// The last notification that was looked at, if there are more.
    pub next: Option<NotificationId>,
    /// When `next` was accepted: the list is complete back to then.
    pub searched_to: Option<Timestamp>,
}

/// Which devices to list, in order of their numbers. Every condition must hold.
#[derive(Debug, Clone, Default)]
pub struct DeviceSearch {
    pub user: Option<UserId>,
    pub platform: Option<String>,
    pub token: Option<TokenFilter>,
    pub seen: Option<SeenFilter>,
    /// Only devices after this one.
    pub after: Option<DeviceNum>,
    pub limit: usize,
    /// Rows that the page may read, at least 1; [`DEVICES_READ_MAX`] suits a request. A search by day alone reads ten
    /// times as many entries.
    pub rows_max: usize,
}

/// Which push tokens a device must have. Expired tokens do not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenFilter {
    /// No token at all.
    None,
    /// A token for which all of this holds.
    Some { service: Option<PushService>, kind: Option<TokenKind>, suspended: Option<bool> },
}

/// When a device was last seen ([`crate::Devices::record_seen`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeenFilter {
    /// It has no day.
    Never,
    /// It has a day: `from` or later, and before `before`.
    Days { from: UtcDay, before: UtcDay },
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DevicePage {
    pub devices: Vec<Device>,
    /// The last device that was looked at, if there may be more.
    pub next: Option<DeviceNum>,
}

#[async_trait::async_trait]
pub trait Listings: Send + Sync {
    /// A campaign that does not exist has no notifications.
    async fn list_notifications(
        &self,
        app: AppId,
        filter: NotificationFilter,
        now: Timestamp,
    ) -> Result<NotificationPage, Error>;
    async fn search_devices(
        &self,
        app: AppId,
        search: DeviceSearch,
        now: Timestamp,
    ) -> Result<DevicePage, Error>;
}
