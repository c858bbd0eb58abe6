//! Campaigns: one message to an audience of any size, at a given time and rate.
//!
//! Reading order: [`spec`] (the request), `audience`, [`filter`], [`schedule`], [`template`] (pure decisions),
//! [`upload`] (the recipients of an uploaded audience), [`trial`] (variants of an experiment), `plan` (everything
//! compiled for sending), [`progress`] and [`report`] (what operators see), `lifecycle` (the component: create, start,
//! pause, abort). [`crate::push`] sends campaigns.

mod audience;
pub mod count;
pub(crate) mod done;
pub mod estimate;
pub(crate) mod latency;
mod lifecycle;
mod pacer;
pub(crate) mod plan;
pub mod progress;
pub mod proportion;
pub mod report;
pub mod schedule;
pub mod spec;
pub(crate) mod tracker;
pub mod trial;
pub mod upload;

pub use crate::{filter, template};

pub use crate::filter::{Filter, VersionRange};
pub use count::Count;
pub(crate) use lifecycle::Campaigns;
pub use lifecycle::{Busy, Starting, Written};
pub use progress::CampaignProgress;
pub use proportion::{Difference, Estimate, Share};
pub use report::{Report, VariantReport};
pub use spec::{Audience, CampaignMessage, Spec};
pub use trial::{OwnMessage, Treatment, Trial};
pub use upload::{Line, Own};
