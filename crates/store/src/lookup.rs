//! What belongs to a notification or a device that is only known by its id or number. Nothing else in the store is looked
//! up across apps: a caller shows what it learns to people of that app only.

use noroshi_types::{AppId, CampaignId, DeviceId, DeviceNum, NotificationId, Topic, UserId};

use crate::Error;

/// Keys of one [`Lookups::lookup`]. The caller limits how many there are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LookupKeys {
    pub notifications: Vec<NotificationId>,
    pub devices: Vec<DeviceNum>,
}

/// Those that exist, in any order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    pub notifications: Vec<FoundNotification>,
    pub devices: Vec<FoundDevice>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundNotification {
    pub id: NotificationId,
    pub app: AppId,
    /// Of a notification to a topic.
    pub topic: Option<Topic>,
    /// The campaign that published it.
    pub campaign: Option<CampaignId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundDevice {
    pub num: DeviceNum,
    pub app: AppId,
    pub id: DeviceId,
    pub user: Option<UserId>,
}

#[async_trait::async_trait]
pub trait Lookups: Send + Sync {
    /// Notifications are found as long as they are kept.
    async fn lookup(&self, keys: LookupKeys) -> Result<Found, Error>;
}
