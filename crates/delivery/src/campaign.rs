//! Campaigns: one message to an audience of any size, at the hour and speed that was asked for.
//!
//! Reading order: [`spec`] (what is asked for), [`filter`], [`schedule`], [`template`] (pure decisions),
//! [`mod@line`] (what an upload says of one user), `plan` (all of it compiled for sending), [`progress`]
//! (what is told).

pub(crate) mod book;
mod bucket;
pub mod count;
pub mod filter;
pub(crate) mod lifecycle;
pub mod line;
pub(crate) mod plan;
pub mod progress;
pub mod schedule;
pub mod spec;
pub mod template;

pub use count::Count;
pub use filter::{Filter, VersionRange};
pub use line::{Line, Own};
pub use progress::CampaignProgress;
pub use schedule::{LocalTime, QuietHours};
pub use spec::{Audience, CampaignMessage, Spec, Variant};
