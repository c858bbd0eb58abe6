//! Domain values that are always valid: every id, topic, message, policy and limit is checked at
//! construction, so other crates never check again.
//!
//! ```text
//!   id ─┐
//!   topic ─┬─ target ─┐
//!   json ──┼─ message ─┴─ request (what a provider sends)
//!   time ──┘            outcome (its result on one device)
//!   push (push services and device tokens)   broadcast (to a channel of APNs)
//!   experiment (assignment of variants)
//!   item (entries of a user's notification centre)
//!   preferences (what users and devices want to be notified of)   local_time (quiet hours, times of day)
//!   quota (limits of an app, token buckets)
//!   rule (access to topics)
//!   trace (W3C trace context)
//!   recent (a bounded map)
//!   close (why a connection ended)   limits (every limit, with its reason)
//!   names (enums whose variants have names: a macro for every crate)
//! ```
//!
//! Reading order: [`id`], [`topic`], [`message`], [`request`], [`outcome`], [`experiment`], [`close`],
//! [`limits`]. No IO, no clock, no randomness: time is an argument.

pub mod broadcast;
pub mod close;
pub mod condition;
pub mod experiment;
pub mod hash;
pub mod id;
pub mod item;
pub mod json;
pub mod limits;
pub mod local_time;
pub mod message;
mod names;
pub mod outcome;
pub mod percent;
pub mod preferences;
pub mod presence;
pub mod push;
pub mod quota;
pub mod recent;
pub mod request;
pub mod role;
pub mod rule;
pub mod scope;
pub mod time;
pub mod topic;
pub mod trace;

pub use broadcast::{Broadcast, BroadcastState, StoragePolicy};
pub use close::CloseReason;
pub use condition::Condition;
pub use experiment::{Subject, Variants};
pub use id::{
    ActivityId, AppId, AppName, BatchId, BroadcastId, CampaignId, CredentialId, DeviceId, DeviceNum,
    EndpointId, KeyId, Label, NotificationId, PersonId, SessionId, UserId,
};
pub use item::{ItemAction, ItemCounts, ItemEvent, ItemRequest, ItemState, ItemsNotice};
pub use json::JsonText;
pub use message::{Message, TopicPosition};
pub use outcome::Outcome;
pub use preferences::{Category, CategoryPreference, Channel, Channels, Preferences, QuietTime, Suppressed};
pub use presence::Presence;
pub use push::{Lane, PushEnvironment, PushService, PushToken, TokenKey, TokenKind};
pub use quota::Quota;
pub use recent::Recent;
pub use request::{OwnFields, Push, PushMode, Request, Target, Urgency, When};
pub use role::{Permission, Permissions, Role};
pub use rule::TopicRules;
pub use scope::{Scope, Scopes};
pub use time::{Timestamp, Ttl, UtcDay};
pub use topic::{Epoch, Position, Recovered, Since, Topic};
pub use trace::TraceContext;

/// Why a text is not a valid value. The message is public: it states the rule and the limit, but never the
/// value, which may be a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Invalid(pub std::borrow::Cow<'static, str>);

impl Invalid {
    pub fn new(rule: impl Into<std::borrow::Cow<'static, str>>) -> Self {
        Self(rule.into())
    }
}
