//! The content of push work: a notification or the message of a campaign, with the campaign's state and variant.

use noroshi_types::{CampaignId, NotificationId};

use crate::ids::{Ids, Num};

/// What is rendered for the recipients of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Work {
    Notification(NotificationId),
    Campaign(CampaignId),
}

impl Work {
    /// The work of a queue row: its notification, or its campaign if `num` is 0. `None`: the campaign was deleted.
    pub(crate) fn of(ids: &Ids, num: Num, campaign: Option<CampaignId>) -> Option<Self> {
        match num {
            0 => campaign.map(Self::Campaign),
            num => Some(Self::Notification(ids.id(num))),
        }
    }
}

noroshi_types::names! {
    /// The values are stored.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum CampaignState {
        /// Under preparation: lines may be uploaded.
        Draft = 1 => "draft",
        /// Starts at its scheduled time.
        Scheduled = 2 => "scheduled",
        Running = 3 => "running",
        Paused = 4 => "paused",
        /// The whole audience was walked, and no batch is left.
        Done = 5 => "done",
        Aborted = 6 => "aborted",
    }
}

impl CampaignState {
    pub fn ended(self) -> bool {
        matches!(self, CampaignState::Done | CampaignState::Aborted)
    }
}

/// A variant of a campaign, by its position from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VariantNum(pub u8);

impl VariantNum {
    /// Instead of a variant, for devices that the draw left out of the experiment's audience, which they stay. No
    /// campaign has that many variants, so their outcomes are recorded under the campaign's own notification.
    pub const NO_VARIANT: Self = Self(u8::MAX);

    /// The stored code; 0 for `None`.
    pub(crate) fn code(variant: Option<Self>) -> u8 {
        variant.map_or(0, |VariantNum(place)| place)
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        (code > 0).then_some(Self(code))
    }
}
