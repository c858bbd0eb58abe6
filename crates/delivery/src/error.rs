//! Why a decision could not be carried out.
//!
//! Variants differ by what the caller does next. The text of a credential or quota error is public; the text of a store
//! error is for the log.

use std::time::Duration;

use noroshi_push::ChannelError;
use noroshi_types::{Label, Quota};

#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The store or the shards are behind: retry in a moment.
    #[error("the node has more work than it can take now")]
    Overloaded,
    /// A queue of the node had no room in time: retry after `after`, when the backlog is gone.
    #[error("the node has more work than it can take now")]
    NoRoom { after: Duration },
    /// The configuration has no key for push credentials, or push is not set up.
    #[error("the configuration has no key to seal push credentials with")]
    NoVault,
    /// The credential cannot be used; the text names field and rule.
    #[error(transparent)]
    Credential(noroshi_push::credential::Invalid),
    /// A node runs a program that does not know what is requested: retry after its upgrade. `field` requests it.
    #[error("{reason}")]
    OldNode { field: Option<&'static str>, reason: String },
    /// Another request is creating the channel, or its creation was interrupted: retry.
    #[error("the channel is being created")]
    ChannelBusy,
    /// A channel has the name, with another value of this field.
    #[error("the channel exists with another `{0}`")]
    ChannelDiffers(&'static str),
    /// The id at Apple belongs to the app's channel of this name.
    #[error("it is the channel \"{0}\" of the app")]
    ChannelKnown(Label),
    /// No channel is bound to the topic.
    #[error("no channel is bound to the topic")]
    NoChannel,
    /// APNs was asked about channels, and did not do it.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// The app has used up its quota: retry later.
    #[error(transparent)]
    OverQuota(#[from] OverQuota),
    #[error(transparent)]
    Store(#[from] noroshi_store::Error),
}

/// Why a quota refused a request, and when to retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the app's quota {} of {limit} is used up", .quota.as_str())]
pub struct OverQuota {
    pub quota: Quota,
    pub limit: u64,
    /// An earlier retry is refused again.
    pub after: Duration,
}

impl OverQuota {
    /// Whole seconds for `Retry-After` (RFC 9110 §10.2.3), at least one.
    pub fn after_s(&self) -> u64 {
        (self.after.as_millis() as u64).div_ceil(1_000).max(1)
    }
}
