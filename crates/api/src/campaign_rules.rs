//! Which campaigns need more than the permission to publish.

/// Which campaigns need the approval of a second person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CampaignRules {
    /// Those with more recipients. 0: none.
    pub large: u64,
    /// Also those that an API key starts.
    pub keys_need_approval: bool,
}

impl Default for CampaignRules {
    fn default() -> Self {
        Self { large: 10_000, keys_need_approval: false }
    }
}
