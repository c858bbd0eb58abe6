//! The devices that a campaign addresses, before its filter.
//!
//! [`Audience`] is part of the request; `Audience::stored` translates it for the store, which walks it page by page.

use noroshi_store::Audience as Stored;
use noroshi_types::{CampaignId, Condition, Topic};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Audience {
    Everyone,
    Topic(Topic),
    Condition(Condition),
    /// The users that are uploaded after the campaign was created.
    Upload,
    /// Every device of the app that the filter lets through.
    Devices,
}

impl Audience {
    pub fn as_str(&self) -> &'static str {
        match self {
            Audience::Everyone => "everyone",
            Audience::Topic(_) => "topic",
            Audience::Condition(_) => "condition",
            Audience::Upload => "upload",
            Audience::Devices => "devices",
        }
    }

    /// The audience as the store walks it. The caller applies the campaign's filter.
    pub(crate) fn stored(&self, campaign: CampaignId) -> Stored {
        match self {
            Audience::Everyone | Audience::Devices => Stored::Everyone,
            Audience::Topic(topic) => Stored::Topic(topic.clone()),
            Audience::Condition(condition) => Stored::Condition(condition.clone()),
            Audience::Upload => Stored::Upload(campaign),
        }
    }
}
