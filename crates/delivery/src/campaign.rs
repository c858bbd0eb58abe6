//! Campaigns: one message to an audience of any size, at the hour and speed that was asked for.
//!
//! Reading order: [`spec`] (what is asked for), [`filter`], [`schedule`], [`template`] (pure decisions),
//! [`mod@line`] (what an upload says of one user), [`trial`] (variants of an experiment), `plan` (all of it compiled for sending), [`progress`]
//! (what is told).

pub(crate) mod book;
mod bucket;
pub mod count;
pub mod filter;
pub(crate) mod lifecycle;
pub mod line;
pub(crate) mod plan;
pub mod progress;
pub mod proportion;
pub mod report;
pub mod schedule;
pub mod spec;
pub mod template;
pub mod trial;

pub use count::Count;
pub use filter::{Filter, VersionRange};
pub use line::{Line, Own};
pub use progress::CampaignProgress;
pub use proportion::{Difference, Estimate, Share};
pub use report::{Report, VariantReport};
pub use schedule::{LocalTime, QuietHours};
pub use spec::{Audience, CampaignMessage, Spec, Variant};
pub use trial::{OwnMessage, Treatment, Trial};
