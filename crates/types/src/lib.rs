//! Values that cannot be wrong: every id, topic, message, policy and limit is checked when it is
//! made, so the crates behind it never check again.
//!
//! ```text
//!   id ─┐
//!   topic ─┬─ target ─┐
//!   json ──┼─ message ─┴─ request (what a provider asks for)
//!   time ──┘            outcome (what became of it on one device)
//!   push (push services, and where one finds a device)
//!   experiment (which variant is whose)
//!   quota (what an app may use, and token buckets)
//!   rule (which device may use which topic)
//!   trace (of which trace a request is a part)
//!   recent (a bounded map that evicts what was not used lately)
//!   close (why a connection ended)   limits (every bound, with its reason)
//! ```
//!
//! Reading order: [`id`], [`topic`], [`message`], [`request`], [`outcome`], [`experiment`], [`close`], [`limits`].
//! No IO, no clock, no randomness: time is an argument here.

pub mod close;
pub mod condition;
pub mod experiment;
pub mod hash;
pub mod id;
pub mod json;
pub mod limits;
pub mod message;
pub mod outcome;
pub mod percent;
pub mod presence;
pub mod push;
pub mod quota;
pub mod recent;
pub mod request;
pub mod rule;
pub mod scope;
pub mod time;
pub mod topic;
pub mod trace;

pub use close::CloseReason;
pub use condition::Condition;
pub use experiment::{Subject, Variants};
pub use id::{
    AppId, AppName, BatchId, CampaignId, CredentialId, DeviceId, DeviceNum, EndpointId, KeyId, Label,
    NotificationId, SessionId, UserId,
};
pub use json::JsonText;
pub use message::{Message, TopicPosition};
pub use outcome::Outcome;
pub use presence::Presence;
pub use push::{Lane, PushEnvironment, PushService, PushToken};
pub use quota::Quota;
pub use recent::Recent;
pub use request::{Push, PushMode, Request, Target, Urgency, When};
pub use rule::TopicRules;
pub use scope::{Scope, Scopes};
pub use time::{Timestamp, Ttl};
pub use topic::{Epoch, Position, Topic};
pub use trace::TraceContext;

/// Why a text was refused where a value was expected. The message is public: it names the rule and
/// the limit, never the value (which may be a secret).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Invalid(pub std::borrow::Cow<'static, str>);

impl Invalid {
    pub fn new(rule: impl Into<std::borrow::Cow<'static, str>>) -> Self {
        Self(rule.into())
    }
}
