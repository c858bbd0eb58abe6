//! What must survive a crash: apps and keys, devices and their subscriptions, inboxes, topic logs,
//! notifications and what became of them, what is on its way to push services, and campaigns.
//!
//! ```text
//!              ┌ Apps · Devices · Notifications · Sessions · Topics · Maintenance ┐
//!   callers ──►│ Credentials · Endpoints · PushQueue · Campaigns · Definitions ·  │
//!              │ Usages · Shares                                                  │
//!              └──────────────┬───────────────────────────────────────────────────┘
//!                             ▼
//!            sqlite: one writer thread (group commit) + a pool of reader threads
//! ```
//!
//! Reading order: [`app`], [`device`], [`revocation`], [`notification`], [`session`], [`topic`], [`maintenance`],
//! [`credential`], [`endpoint`], [`push`], [`campaign`], [`definition`], [`share`], then [`sqlite`]. `tests/it/conformance` holds every promise made here as a test that any
//! implementation has to pass.
//!
//! Promises that hold for every method: what a call reports as done is on stable storage, unless the
//! method says otherwise; a call that fails has changed nothing; a call names the tenant it acts
//! for and never sees another's rows; all futures are cancel-safe in the sense that dropping one
//! neither undoes nor repeats the work, it only forgets the answer.

pub mod app;
pub mod campaign;
pub mod cells;
pub mod credential;
pub mod definition;
mod departed;
pub mod device;
mod device_list;
pub mod endpoint;
mod ids;
pub mod maintenance;
mod metrics;
pub mod migrate;
pub mod notification;
pub mod postgres;
mod purge;
pub mod push;
pub mod revocation;
mod row;
pub mod session;
pub mod share;
pub mod sqlite;
pub mod topic;
pub mod usage;

pub use app::{App, AppSettings, Apps, Before, Key, KeyHash, NewKey};
pub use campaign::{
    Campaign, CampaignState, Campaigns, CreatedCampaign, NewCampaign, NewVariant, UploadLine, VariantNum,
    VariantSums,
};
pub use cells::Cells;
pub use credential::{Credentials, NewCredential, StoredCredential};
pub use definition::{Definition, DefinitionKind, Definitions, NewDefinition};
pub use departed::{DEPARTED_DEVICES_MAX, DEPARTED_PARTS_MAX, Departed, DepartedPart};
pub use device::{Attributes, Device, DeviceChange, DeviceFilter, Devices, Registration, Suspect};
pub use endpoint::{Endpoint, EndpointHash, Endpoints, NewEndpoint, VapidKey};
pub use maintenance::{Maintenance, Place, Pruned};
pub use notification::{
    Accept, Accepted, Cancelled, Done, Gate, Idempotency, NotificationState, Notifications, OfCampaign,
    OutcomePart, RequestSummary, State, Trace, TraceStep,
};
pub use postgres::{Postgres, PostgresError, PostgresOptions};
pub use push::{
    Again, Audience, AudienceMember, AudiencePage, BATCH_RECIPIENTS_MAX, Batch, Finished, FinishedCounts,
    Invalidation, Lease, NewBatch, PushContent, PushPart, PushQueue, PushRecipient, Renewal, SENDER_ENDED,
    SetAside, TAKES_MAX, Take, Taken, TokenGone, TokenSuspect, Walk, Walks, Work,
};
pub use revocation::{Issued, Revocation};
pub use session::{
    Ack, Acked, Backlog, BacklogPage, FirstCall, Head, InboxPage, InboxPlace, InboxRange, KEPT_ENDED,
    LoggedIn, Login, LoginRefused, Outstanding, Recheck, Rechecked, Recover, Sessions,
};
pub use share::{
    JoinShares, Leave, LeaveShares, MemberState, SettleShares, Share, ShareGroup, ShareMember, ShareNum,
    Shares,
};
pub use sqlite::{OpenError, Options, Sqlite};
pub use topic::{LogPage, RetainedPage, RetainedScan, TopicState, Topics, TopicsSince, WantedTopic};
pub use usage::{Subscribing, Usages};

/// Everything a node keeps.
pub trait Store:
    Apps
    + Devices
    + Notifications
    + Sessions
    + Topics
    + Maintenance
    + Credentials
    + Endpoints
    + PushQueue
    + Campaigns
    + Definitions
    + Usages
    + Shares
{
}
impl<T> Store for T where
    T: Apps
        + Devices
        + Notifications
        + Sessions
        + Topics
        + Maintenance
        + Credentials
        + Endpoints
        + PushQueue
        + Campaigns
        + Definitions
        + Usages
        + Shares
{
}

/// Why the store did not do it, by what the caller does next.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// A bounded queue is full: tell the client to come back.
    #[error("the store has more work than it can take now")]
    Overloaded,
    /// No space left: nothing was changed; reads go on.
    #[error("the disk is full")]
    Full,
    /// Such a thing exists already.
    #[error("it exists already")]
    Exists,
    #[error("it does not exist")]
    NotFound,
    /// Its state does not allow it.
    #[error("it is in another state")]
    Conflict,
    /// The same idempotency key came with another body.
    #[error("the idempotency key was used with another request")]
    IdempotencyConflict,
    /// A bound of `types::limits` would be passed; the text names it.
    #[error("{0}")]
    Limit(String),
    /// The app JWT that asks for it was revoked.
    #[error("the token was revoked")]
    Revoked,
    /// The caller's own [`Gate`] let it not pass: nothing was changed.
    #[error("its caller refused it")]
    Refused,
    /// The engine failed. The text is for the log, never for a client.
    #[error("the store failed: {0}")]
    Engine(String),
    /// The store is shutting down.
    #[error("the store is closed")]
    Closed,
}
