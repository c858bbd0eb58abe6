//! Live Activities: the newest state of each, the devices that take part, and who has which state.
//!
//! An update is no queue entry. It raises the activity's *version*, and marks the activity's *slices* due: each holds up
//! to [`noroshi_types::limits::ACTIVITY_SLICE_DEVICES`] devices. A sender takes slices under a lease, reads the newest
//! state, and finishes each slice with the version that it sent. However many updates come meanwhile, one entry of a
//! slice waits.
//!
//! A device that could not be reached, or that joined later, is *behind*: it gets the newest state without the others of
//! its slice. A slice whose process was killed is taken again after its lease; opening a store of one node ends all
//! leases.
//!
//! The store does not interpret `spec`, `target` and `state`: delivery does.

use std::time::Duration;

use noroshi_types::{
    ActivityId, AppId, DeviceId, DeviceNum, JsonText, Outcome, PushToken, Timestamp, TokenKey, UserId,
};

use crate::{Error, Idempotency, InvalidToken, PushRecord, SuspectToken};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewActivity {
    pub app: AppId,
    pub id: ActivityId,
    pub spec: JsonText,
    pub target: JsonText,
    pub state: JsonText,
    /// A device that changes its user afterwards takes no part.
    pub of_users: bool,
    /// Any device of the app may join.
    pub joinable: bool,
    pub expires_at: Timestamp,
    pub idempotency: Option<Idempotency>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatedActivity {
    pub activity: Activity,
    /// An earlier request with the same idempotency key created it.
    pub replayed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Activity {
    /// The store's number: greater ones were created later.
    pub num: u64,
    pub app: AppId,
    pub id: ActivityId,
    /// Of the state: 1 at first.
    pub version: u64,
    pub spec: JsonText,
    /// `None`: it was not read.
    pub target: Option<JsonText>,
    pub state: JsonText,
    pub of_users: bool,
    pub joinable: bool,
    /// Those that take part.
    pub devices: u64,
    /// Where the collection of the target's devices continues; `None`: it is complete.
    pub cursor: Option<u64>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub expires_at: Timestamp,
    pub ended_at: Option<Timestamp>,
}

/// A new state of an activity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActivityChange {
    pub app: AppId,
    pub id: ActivityId,
    /// The version that the new state was made from.
    pub from: u64,
    pub state: JsonText,
    /// The activity ends with this state, and is removed at this time.
    pub forget_at: Option<Timestamp>,
}

/// How far an activity has come.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ActivityProgress {
    /// Devices in slices that have the newest version.
    pub current: u64,
    /// Devices that lack it and are to get it.
    pub waiting: u64,
    /// Pushes by outcome and reason, which is empty without one.
    pub counts: Vec<(Outcome, String, u64)>,
}

/// A device that takes part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActivityMember {
    pub num: DeviceNum,
    /// The version with which a push started the activity on the device; 0: none did.
    pub started: u64,
    /// The newest version that was sent to the device's slice; 0: none.
    pub version: u64,
    pub sent_at: Option<Timestamp>,
    /// The device waits for the newest version.
    pub waits: bool,
    /// When it is sent at the earliest.
    pub due_at: Option<Timestamp>,
    /// Of the start, or of the last failure.
    pub outcome: Option<Outcome>,
    pub reason: Option<String>,
    pub at: Option<Timestamp>,
    /// The device has a token of this activity.
    pub has_token: bool,
    pub has_start_token: bool,
    pub has_fcm_token: bool,
    /// The device changed its user, and takes no part any more.
    pub is_of_another_user: bool,
    /// Attempts at pushes to the device, each as in [`PushRecord::attempts`] and with those of other devices.
    pub attempts: Vec<Vec<u8>>,
}

/// Asks for slices that are due.
#[derive(Debug, Clone)]
pub struct TakeSlices {
    pub now: Timestamp,
    pub lease: Duration,
    /// The process that takes them.
    pub holder: u64,
    pub slices_max: usize,
    /// Takes no slices of these apps.
    pub busy: Vec<AppId>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TakenSlices {
    pub slices: Vec<Slice>,
    /// Each once, without targets.
    pub activities: Vec<Activity>,
    /// When the next slice is due.
    pub next_due: Option<Timestamp>,
}

/// Devices of an activity that are updated together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    pub id: u64,
    /// [`Activity::num`].
    pub activity: u64,
    /// The newest version that was sent; 0: none.
    pub version: u64,
    pub members: u64,
    /// 0 at first, then the value of [`SettledSlice::attempt`].
    pub attempt: u32,
    /// Takes since the last one that was finished: more than one if processes crashed.
    pub takes: u32,
    /// Identifies this take.
    pub take: u64,
}

/// A device of a slice, in its current state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActivityRecipient {
    pub num: DeviceNum,
    pub platform: Option<String>,
    /// The version with which a push started the activity on the device; 0: none did.
    pub started: u64,
    /// The device's token of this activity.
    pub token: Option<ActivityToken>,
    /// Starts activities of this type, or of any type.
    pub start: Option<ActivityToken>,
    /// The device's FCM token, whether it is the main one or not.
    pub fcm: Option<ActivityToken>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActivityToken {
    pub key: TokenKey,
    pub token: PushToken,
    pub registered_at: Timestamp,
    pub suspect: bool,
    pub expires_at: Option<Timestamp>,
}

/// The results of a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettledSlice {
    pub slice: u64,
    pub take: u64,
    pub activity: u64,
    /// The version that was sent.
    pub version: u64,
    /// The activity ended with this version: the tokens of the devices that got it are removed.
    pub ended: bool,
    /// Devices on which the activity was started.
    pub started: Vec<DeviceNum>,
    /// Devices that stay behind until `due_at`.
    pub again: Vec<DeviceNum>,
    pub due_at: Option<Timestamp>,
    pub attempt: u32,
    /// Failures.
    pub parts: Vec<(Outcome, Option<&'static str>, Vec<DeviceNum>)>,
    /// All outcomes, for the sums of the activity.
    pub counts: Vec<(Outcome, Option<&'static str>, u64)>,
    /// Attempts that a push service accepted, and the others. A slice keeps its newest
    /// [`noroshi_types::limits::ACTIVITY_SLICE_RECORDS`] of each.
    pub accepted: Option<Box<PushRecord>>,
    pub failed: Option<Box<PushRecord>>,
}

/// What a push service reported about tokens of one kind and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenReport {
    pub app: AppId,
    pub key: TokenKey,
    pub gone: Vec<InvalidToken>,
    pub suspects: Vec<SuspectToken>,
}

/// Names whose devices take part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Names {
    Users(Vec<UserId>),
    Devices(Vec<DeviceId>),
}

/// What became of a device that reported its token of an activity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Joined {
    /// The app has no such activity.
    NoActivity,
    /// The activity is not for this device.
    NotInvited,
    /// The device has the newest state.
    Current,
    /// The newest state is due for the device.
    Behind,
}

#[async_trait::async_trait]
pub trait Activities: Send + Sync {
    /// Fails with [`Error::Exists`] if the app has an activity of this id, with [`Error::IdempotencyConflict`] if the key
    /// was used with another body, and with [`Error::Limit`] if the app has too many activities. A key is remembered as
    /// long as its activity.
    async fn create_activity(&self, activity: NewActivity, now: Timestamp) -> Result<CreatedActivity, Error>;

    /// With its target.
    async fn activity(&self, app: AppId, id: &ActivityId) -> Result<Option<Activity>, Error>;

    async fn activity_progress(&self, num: u64) -> Result<ActivityProgress, Error>;

    /// `attributes` is the type of the activity's attributes, by which a start token may be named.
    async fn activity_member(
        &self,
        activity: u64,
        device: &DeviceId,
        attributes: &str,
    ) -> Result<Option<ActivityMember>, Error>;

    /// The newest first, without targets: those with numbers before `before`.
    async fn activities(&self, app: AppId, before: Option<u64>, limit: usize)
    -> Result<Vec<Activity>, Error>;

    /// Sets a new state and marks all slices due. Fails with [`Error::NotFound`] if there is no such activity, and with
    /// [`Error::Conflict`] if it ended or its version is not [`ActivityChange::from`]. Returns it without its target.
    async fn change_activity(&self, change: ActivityChange, now: Timestamp) -> Result<Activity, Error>;

    /// Activities whose devices are not all collected, the oldest first, with their targets.
    async fn activities_to_collect(&self, limit: usize) -> Result<Vec<Activity>, Error>;

    /// The devices of the app with these names.
    async fn named_devices(&self, app: AppId, names: Names) -> Result<Vec<DeviceNum>, Error>;

    /// Adds devices and moves the cursor, in one commit; `next` is `None` at the end. Returns false without writing if
    /// the activity is gone or no longer at `cursor`. Devices that take part already are left alone. Collection ends at
    /// [`noroshi_types::limits::ACTIVITY_DEVICES_MAX`] devices.
    async fn add_activity_devices(
        &self,
        activity: u64,
        cursor: u64,
        next: Option<u64>,
        devices: Vec<DeviceNum>,
        now: Timestamp,
    ) -> Result<bool, Error>;

    /// A device reported its token of an activity.
    async fn join_activity(
        &self,
        app: AppId,
        id: &ActivityId,
        device: DeviceNum,
        now: Timestamp,
    ) -> Result<Joined, Error>;

    /// Leases slices that are due, the longest due first.
    async fn take_slices(&self, take: TakeSlices) -> Result<TakenSlices, Error>;

    /// Renews leases of the holder that have not ended.
    async fn renew_slices(
        &self,
        holder: u64,
        slices: Vec<u64>,
        lease: Duration,
        now: Timestamp,
    ) -> Result<(), Error>;

    /// The devices of a slice that are to get version `version`, by number: all of them if the slice has an older one,
    /// otherwise those that are behind. Leaves out devices that joined after the take, were deleted, or changed their
    /// user.
    async fn slice_recipients(
        &self,
        activity: Activity,
        slice: Slice,
        attributes: String,
    ) -> Result<Vec<ActivityRecipient>, Error>;

    /// Ends takes in one commit. A slice is due again at once if its activity has a newer version by now. Ignores slices
    /// that another process has taken meanwhile. Returns when the first of them is due again.
    async fn settle_slices(
        &self,
        holder: u64,
        settled: Vec<SettledSlice>,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, Error>;

    /// Removes and suspends tokens as [`crate::PushQueue::finish`] does, and returns how many of each.
    async fn invalidate_tokens(&self, reports: Vec<TokenReport>, now: Timestamp)
    -> Result<(u64, u64), Error>;

    /// Activities that have not ended although their time is over.
    async fn expired_activities(
        &self,
        now: Timestamp,
        limit: usize,
    ) -> Result<Vec<(AppId, ActivityId)>, Error>;

    /// Removes about `rows_max` rows of activities whose retention is over. Returns how many, and whether there may be
    /// more.
    async fn prune_activities(&self, now: Timestamp, rows_max: usize) -> Result<(u64, bool), Error>;
}
