//! Everything that survives a crash: apps and keys, devices and their subscriptions, inboxes, topic logs, notifications
//! and their outcomes, items of users, push work, and campaigns.
//!
//! ```text
//!                 callers
//!                    │  traits and their types: app … usage (one file per trait)
//!                    ▼
//!                  calls       tables: which function each method runs, in which transaction
//!        ┌───────────┴───────────┐
//!        ▼                       ▼
//!     sqlite                  postgres
//!     a writer thread         a task that accepts under the order lock,
//!     and reader threads      and transactions on a pool of connections
//!        └───────────┬───────────┘
//!                    ▼
//!                 engine      rules, codecs, columns and row mapping that both engines share
//! ```
//!
//! Reading order: [`app`], [`device`], [`revocation`], [`notification`], [`lookup`], [`item`], [`trace`], [`session`], [`topic`], [`maintenance`],
//! [`credential`], [`endpoint`], [`push`], [`channel`], [`campaign`], [`definition`], [`share`], [`activity`], [`preferences`], [`person`], [`series`], then `calls`, `engine`, [`sqlite`]
//! and [`postgres`]. [`migrate`] copies a SQLite store to PostgreSQL.
//!
//! Promises of every method: what a call reports as done is on stable storage, unless the method says otherwise; a call
//! that fails has changed nothing; a call names its tenant and never sees rows of another (except [`lookup`]); all futures are cancel-safe in
//! the sense that dropping one neither undoes nor repeats the work, it only loses the answer.
//!
//! # A third store
//!
//! A new engine is a module next to [`sqlite`] with a type that implements
//!
//! - [`Notifications`] and [`Usages`];
//! - [`Store`] itself, and its other traits, including [`Cells`], by the tables of `calls`: the engine is named in
//!   `calls!`, has a function for each row that says `own`, and rules in `run!` and `apply!` for its transactions;
//! - for an SQL database, `engine::session::Session`, `engine::cells::residence::Residences` and
//!   `engine::record::Record`. Every row that says `shared` then works without further code, and `engine` maps the rows
//!   of all tables.
//!
//! It has a file for its schema with its own folder in `migrations/`. What both engines decide in the same way is in
//! `engine`; an engine only determines how rows are read, written and locked. The contract is `tests/it/conformance`: a
//! test file next to `tests/it/sqlite.rs` calls `conformance_tests!` and `cells_tests!` with an expression that opens a
//! fresh store. Every test of the two must pass unchanged.

pub mod activity;
pub mod app;
mod calls;
pub mod campaign;
pub mod cells;
pub mod channel;
pub mod credential;
pub mod definition;
pub mod device;
pub mod draft;
mod draft_state;
pub mod endpoint;
mod engine;
mod ids;
pub mod item;
pub mod listing;
pub mod lookup;
pub mod maintenance;
mod metrics;
pub mod migrate;
pub mod notification;
pub mod person;
pub mod postgres;
pub mod preferences;
pub mod push;
mod removal;
pub mod revocation;
pub mod series;
pub mod session;
pub mod share;
pub mod sqlite;
mod statement_log;
pub mod topic;
pub mod trace;
pub mod usage;
mod work;

pub use activity::{
    Activities, Activity, ActivityChange, ActivityMember, ActivityProgress, ActivityRecipient, ActivityToken,
    CreatedActivity, Joined, Names, NewActivity, SettledSlice, Slice, TakeSlices, TakenSlices, TokenReport,
};
pub use app::{App, AppSettings, Apps, Before, Key, KeyHash, NewKey};
pub use campaign::{
    Campaign, Campaigns, CreatedCampaign, NewCampaign, NewVariant, UploadLine, VariantSums, Waiting,
    WaitingStep,
};
pub use cells::Cells;
pub use channel::{
    BROADCAST_TAKES_MAX, BroadcastsOf, Channel, ChannelCounts, Channels, Claim, DueBroadcast,
    FinishedBroadcast, NewBroadcast, NewChannel, Reserved, StoredBroadcast, TakenBroadcasts, Then,
};
pub use credential::{Credentials, NewCredential, RotatedCredential, StoredCredential};
pub use definition::{Definition, DefinitionKind, Definitions, NewDefinition};
pub use device::{
    Attributes, Device, DeviceChange, DeviceFilter, DeviceToken, Devices, NewToken, Registration, Suspect,
    TokenChange,
};
pub use draft::{CampaignDrafts, CampaignFilter, CampaignPage, StartDraft, Unready};
pub use draft_state::{DraftState, NewDraft, Uploader};
pub use endpoint::{Endpoint, EndpointHash, Endpoints, NewEndpoint, VapidKey};
pub use item::{ChangedItems, Item, ItemChange, ItemPage, Items, WhichItems};
pub use listing::{
    DEVICES_READ_MAX, DevicePage, DeviceSearch, ListedNotification, ListedRecipient, Listings,
    NOTIFICATIONS_READ_MAX, NotificationFilter, NotificationPage, Progress, Recipient, SeenFilter,
    TARGET_KINDS, TokenFilter, USER_DEVICES_MAX,
};
pub use lookup::{Found, FoundDevice, FoundNotification, LookupKeys, Lookups};
pub use maintenance::{Maintenance, Place, Pruned};
pub use notification::{
    Accept, Accepted, Cancelled, Done, Gate, Idempotency, NotificationState, Notifications, OfCampaign,
    OutcomePart, RequestSummary, State,
};
pub use person::{
    AuditEntry, AuditFilter, Audited, AuditedBy, NewPerson, NewPersonSession, NewTicket, OpenId, People,
    Person, PersonChange, PersonLogin, PersonSession, Ticket, TicketPurpose, TokenHash, TotpChange,
};
pub use postgres::{Postgres, PostgresError, PostgresOptions};
pub use preferences::{Counted, DayCount, Followed, OwnPreferences, PreferenceStore, Preferring};
pub use push::{
    AbandonedBatch, Again, Audience, AudienceMember, AudiencePage, BATCH_RECIPIENTS_MAX, Batch, Fallback,
    Finished, FinishedCounts, InvalidToken, Invalidation, Lease, NewBatch, PushContent, PushPart, PushQueue,
    PushRecipient, PushRecord, Renewal, Rest, RestoreTokens, SENDER_ENDED, SuspectToken, TAKES_MAX, Take,
    Taken, Walk, Walks,
};
pub use removal::{REMOVED_DEVICES_MAX, REMOVED_PARTS_MAX, RemovedMessages, RemovedPart};
pub use revocation::{Issued, Revocation};
pub use series::{SeriesBound, SeriesRange, SeriesRow, SeriesStore};
pub use session::{
    Ack, Acked, Backlog, BacklogPage, ENDED_STATE_PREFIX, FirstCall, FirstRead, Head, InboxPage, InboxPlace,
    InboxRange, LoggedIn, Login, LoginRefused, Outstanding, Recheck, Rechecked, Recover, Sessions,
};
pub use share::{
    JoinShares, Leave, LeaveShares, MemberState, SettleShares, Share, ShareGroup, ShareMember, ShareNum,
    Shares,
};
pub use sqlite::{OpenError, Options, Sqlite};
pub use topic::{LogPage, RetainedFilter, RetainedPage, RetainedScan, TopicState, Topics, TopicsSince};
pub use trace::{
    PendingPush, PushStage, Subscribed, Trace, TraceStep, TracedCampaign, TracedDevice, TracedNotification,
    TracedTarget,
};
pub use usage::{Subscribing, Usages};
pub use work::{CampaignState, VariantNum, Work};

/// Everything that a node stores.
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
    + Channels
    + Campaigns
    + CampaignDrafts
    + Definitions
    + Usages
    + Shares
    + Activities
    + Items
    + Listings
    + Lookups
    + PreferenceStore
    + People
    + SeriesStore
{
}
impl Store for Sqlite {}
impl Store for Postgres {}

/// Why a call failed, by what the caller does next.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// A bounded queue is full: the client should retry later.
    #[error("the store is overloaded")]
    Overloaded,
    /// No space left. Nothing was changed; reads still work.
    #[error("the disk is full")]
    Full,
    #[error("already exists")]
    Exists,
    #[error("not found")]
    NotFound,
    /// The current state does not allow the call.
    #[error("the current state does not allow this")]
    Conflict,
    /// The idempotency key was used with another body.
    #[error("the idempotency key was used with another request")]
    IdempotencyConflict,
    /// A limit of `types::limits` would be exceeded; the text names it.
    #[error("{0}")]
    Limit(String),
    /// The app JWT of the request was revoked.
    #[error("the token was revoked")]
    Revoked,
    /// The caller's own [`Gate`] refused the notification. Nothing was changed.
    #[error("refused by the caller's gate")]
    Refused,
    /// The engine failed. The text is for the log, not for clients.
    #[error("the store failed: {0}")]
    Engine(String),
    /// The store is shutting down.
    #[error("the store is closed")]
    Closed,
}
