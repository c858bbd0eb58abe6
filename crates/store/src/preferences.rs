//! Preferences of users and devices, and the daily caps that some of them set.

use noroshi_types::{AppId, DeviceId, DeviceNum, Label, Preferences, UserId};

use crate::Error;

/// Whose preferences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Preferring {
    User(UserId),
    Device(DeviceId),
}

/// The preferences that concern a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnPreferences {
    /// Its user's.
    pub user: Option<Preferences>,
    pub device: Option<Preferences>,
}

impl OwnPreferences {
    /// What the device follows.
    pub fn merged(self) -> Option<Preferences> {
        Preferences::merged(self.user, self.device)
    }
}

/// What a device follows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Followed {
    pub preferences: Option<Preferences>,
    /// The device's; `None` also without preferences.
    pub timezone: Option<String>,
    /// The counts of its daily caps, in no order; empty if the preferences cap nothing. Those of other days than the
    /// present one may be among them.
    pub counts: Vec<DayCount>,
}

/// The notifications of a category that interrupted a device on one day.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DayCount {
    pub category: Label,
    /// As in [`Counted::day`].
    pub day: u32,
    /// As in [`Counted::id`].
    pub ids: Vec<[u8; 16]>,
}

/// Counts a notification for a device's daily cap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counted {
    pub device: DeviceNum,
    pub category: Label,
    /// The day of its acceptance, by the device's calendar, since 1970.
    pub day: u32,
    /// That of the notification, or of a campaign that has none.
    pub id: [u8; 16],
    /// The cap.
    pub max: u32,
}

#[async_trait::async_trait]
pub trait PreferenceStore: Send + Sync {
    /// `None` without preferences; also if there is no such device.
    async fn preferences(&self, app: AppId, of: &Preferring) -> Result<Option<Preferences>, Error>;

    /// Replaces the preferences; `None` removes them. [`Error::NotFound`] if there is no such device. A user need not
    /// exist. The revision of the devices grows ([`crate::LoggedIn::revision`]).
    async fn set_preferences(
        &self,
        app: AppId,
        of: &Preferring,
        preferences: Option<Preferences>,
    ) -> Result<(), Error>;

    /// What devices follow, in the order of `devices`. Nothing for a device that does not exist.
    async fn followed_preferences(&self, app: AppId, devices: Vec<DeviceId>) -> Result<Vec<Followed>, Error>;

    /// Counts notifications, each once, up to the cap of its device and category. Returns for each whether it is among
    /// those that were counted, now or earlier.
    async fn count_for_caps(&self, counted: Vec<Counted>) -> Result<Vec<bool>, Error>;
}
