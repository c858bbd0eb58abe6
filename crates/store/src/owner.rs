//! To which app something belongs that is only known by its number or id. Nothing else in the store is looked up across
//! apps: a caller shows what it learns to people of that app only.

use noroshi_types::{AppId, CampaignId, DeviceId, DeviceNum, NotificationId, Topic, UserId};

use crate::Error;

/// Keys of one read: what [`crate::Owners::owners`] looks up at most is up to the caller.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owned {
    pub notifications: Vec<NotificationId>,
    pub devices: Vec<DeviceNum>,
    pub campaigns: Vec<CampaignId>,
}

/// Those that exist, in any order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    pub notifications: Vec<OwnedNotification>,
    pub devices: Vec<OwnedDevice>,
    pub campaigns: Vec<(CampaignId, AppId)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedNotification {
    pub id: NotificationId,
    pub app: AppId,
    /// Of a notification to a topic.
    pub topic: Option<Topic>,
    /// The campaign that published it.
    pub campaign: Option<CampaignId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedDevice {
    pub num: DeviceNum,
    pub app: AppId,
    pub id: DeviceId,
    pub user: Option<UserId>,
}

#[async_trait::async_trait]
pub trait Owners: Send + Sync {
    /// Notifications are found as long as they are kept.
    async fn owners(&self, of: Owned) -> Result<Found, Error>;
}
