//! What a front over several cells stores: which cell a user and a device live in, messages until their cells have
//! taken them, and which apps each cell was provisioned with.
//!
//! A user has one home; a device lives where its user lives. During a move both the previous and the new cell are
//! asked. An accepted message has one part for each cell concerned; a part *waits* until its cell has taken or
//! refused it, or until it expires. Only a front uses this trait, besides apps and keys, so it is not part of
//! [`crate::Store`].

use noroshi_types::{AppId, AppName, DeviceId, NotificationId, Target, Timestamp, TraceContext, UserId};

use crate::{Error, Idempotency};

/// The store's number of a cell, which is never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CellNum(pub u32);

/// A cell, and the settings that operators changed at run time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellRecord {
    pub num: CellNum,
    pub name: String,
    /// `None`: the configured weight.
    pub weight: Option<u32>,
    /// The cell gets no new users and devices.
    pub draining: bool,
}

/// Fields that are `None` stay unchanged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CellChange {
    /// `Some(None)`: the configured weight again.
    pub weight: Option<Option<u32>>,
    pub draining: Option<bool>,
}

/// How many live in a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Population {
    pub cell: CellNum,
    pub devices: u64,
    pub users: u64,
    /// Devices without a user, included in `devices`.
    pub alone: u64,
    /// Devices that are moving to another cell.
    pub leaving: u64,
}

/// A device that registers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assign {
    pub device: DeviceId,
    /// `None`: unchanged.
    pub user: Option<UserId>,
    /// The cell for a device of which neither the device nor its user is known.
    pub fresh: CellNum,
}

/// The cell that a device lives in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Residence {
    pub app: AppId,
    pub cell: CellNum,
    /// The cell that the device has not left entirely.
    pub previous: Option<CellNum>,
    pub step: MoveStep,
}

impl Residence {
    /// The cell that currently has the device.
    pub fn present(&self) -> CellNum {
        self.previous.filter(|_| self.step.is_away()).unwrap_or(self.cell)
    }
}

/// The progress of a device's move from its previous cell to its cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum MoveStep {
    /// The device lives in one cell.
    Settled = 0,
    /// The device's session in the previous cell must be closed.
    Tell = 1,
    /// The session was closed; the device has not registered in its new cell.
    Told = 2,
    /// The device registered: its pending messages are transferred from the previous cell, then it is removed there.
    Arrived = 3,
    /// The device belongs to another user: it is only removed from the previous cell.
    Leave = 4,
}

impl MoveStep {
    pub fn from_code(code: u8) -> Option<Self> {
        [Self::Settled, Self::Tell, Self::Told, Self::Arrived, Self::Leave]
            .into_iter()
            .find(|step| *step as u8 == code)
    }

    /// The device is still only in the previous cell.
    pub fn is_away(self) -> bool {
        matches!(self, Self::Tell | Self::Told)
    }
}

/// What to move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Relocation {
    Device(AppId, DeviceId),
    /// With all devices of the user.
    User(AppId, UserId),
    /// At most `limit` residents of `from`: users with their devices first, then devices without a user.
    Some {
        from: CellNum,
        limit: usize,
    },
}

/// How many start to move.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Relocated {
    pub users: u64,
    /// Devices without a user, included in `devices`.
    pub alone: u64,
    pub devices: u64,
}

/// A device that is moving.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    pub app: AppId,
    pub device: DeviceId,
    pub from: CellNum,
    pub to: CellNum,
    pub step: MoveStep,
    /// When the move was decided.
    pub since: Timestamp,
}

/// A validated request to forward to cells.
#[derive(Debug, Clone)]
pub struct NewMessage {
    pub id: NotificationId,
    pub app: AppId,
    pub target: Target,
    /// `to` as JSON, the same for every cell. Users and devices are split by cell instead.
    pub to: Box<str>,
    /// The rest of the request: a JSON object without `to`.
    pub body: Box<str>,
    /// What status requests return: a JSON object.
    pub summary: Box<str>,
    pub expires_at: Timestamp,
    /// The provider's trace context, if there is one.
    pub trace: Option<TraceContext>,
    pub idempotency: Option<Idempotency>,
    /// The cells that get a message without named users or devices.
    pub everywhere: std::sync::Arc<[CellNum]>,
    /// Cells whose outbox is full: a message for one of them is [`Error::Overloaded`].
    pub full: std::sync::Arc<[CellNum]>,
}

/// The answer to a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    pub id: NotificationId,
    /// `None` for topics, conditions and everyone.
    pub targets: Option<u64>,
    /// The cells that have a part of it; empty for a replay.
    pub cells: Vec<CellNum>,
    /// An earlier request had the same idempotency key.
    pub replayed: bool,
}

/// Selects waiting parts of a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// Parts of one app with a number greater than `after`.
    Of { app: AppId, after: u64 },
    /// Parts of all other apps with a number greater than `after`.
    Others { apart: Vec<AppId>, after: u64 },
}

impl Wanted {
    pub const ALL: Self = Self::Others { apart: Vec::new(), after: 0 };
}

/// A part that waits for its cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Grows in the order of acceptance.
    pub num: u64,
    pub id: NotificationId,
    pub app: AppId,
    pub to: String,
    pub body: String,
    pub expires_at: Timestamp,
    /// The trace context of the message.
    pub trace: Option<TraceContext>,
}

/// How a part ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartEnd {
    /// With the cell's own id.
    Forwarded(NotificationId),
    /// Rejected permanently, with the problem's code.
    Refused(String),
    Expired,
}

/// The state of a part, as callers see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum PartState {
    Waiting = 0,
    Forwarded = 1,
    Refused = 2,
    Expired = 3,
    /// Cancelled before it was forwarded.
    Cancelled = 4,
    /// Forwarded, and not yet cancelled in its cell.
    Cancelling = 5,
}

impl PartState {
    pub fn from_code(code: u8) -> Option<Self> {
        [Self::Waiting, Self::Forwarded, Self::Refused, Self::Expired, Self::Cancelled, Self::Cancelling]
            .into_iter()
            .find(|state| *state as u8 == code)
    }
}

/// A message with its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relayed {
    pub id: NotificationId,
    pub app: AppId,
    pub summary: String,
    pub targets: Option<u64>,
    /// Named users and devices without a cell.
    pub unknown: u64,
    pub accepted_at: Timestamp,
    pub expires_at: Timestamp,
    pub trace: Option<TraceContext>,
    pub cancelled: bool,
    pub parts: Vec<RelayedPart>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayedPart {
    pub cell: CellNum,
    pub state: PartState,
    /// The cell's own id.
    pub remote: Option<NotificationId>,
    /// Why the cell refused it.
    pub reason: Option<String>,
}

/// The outbox of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Depth {
    pub cell: CellNum,
    pub parts: u64,
    pub oldest: Option<Timestamp>,
}

/// Residences, the outbox, and which apps cells know.
#[async_trait::async_trait]
pub trait Cells: Send + Sync {
    /// Returns every cell that was ever named, including these.
    async fn enrol(&self, names: Vec<String>) -> Result<Vec<CellRecord>, Error>;
    /// [`Error::NotFound`] if there is no such cell.
    async fn adjust(&self, cell: CellNum, change: CellChange) -> Result<CellRecord, Error>;
    async fn populations(&self) -> Result<Vec<Population>, Error>;

    /// Returns where each device lives, and decides it for unknown devices; in one commit. A device that gets another
    /// user moves to that user's cell. [`Error::Conflict`] for a device that is being removed from its previous cell.
    async fn assign(
        &self,
        app: AppId,
        devices: Vec<Assign>,
        now: Timestamp,
    ) -> Result<Vec<Result<Residence, Error>>, Error>;
    /// Devices have registered in these cells. Returns those that live elsewhere by now, which have to register
    /// there.
    async fn arrived(&self, app: AppId, devices: Vec<(DeviceId, CellNum)>) -> Result<Vec<DeviceId>, Error>;
    /// Returns where the device of this id lives in each of `apps`, ordered by app, without the apps in which it is
    /// unknown. Costs one lookup per app, whatever other apps have a device of the same id.
    async fn residences(&self, apps: &[AppId], device: &DeviceId) -> Result<Vec<Residence>, Error>;
    /// The cells to ask for each user, in order; empty for an unknown user.
    async fn cells_of_users(
        &self,
        app: AppId,
        users: Vec<UserId>,
        now: Timestamp,
    ) -> Result<Vec<Vec<CellNum>>, Error>;
    /// Removes a device that was deleted in its cell.
    async fn forget_device(&self, app: AppId, device: &DeviceId) -> Result<(), Error>;

    /// Starts moves, except for devices that are moving to `to` or live there. A user's previous cell is asked until
    /// `asked_until`, or until the last of the user's devices has left it.
    async fn relocate(
        &self,
        who: Relocation,
        to: CellNum,
        now: Timestamp,
        asked_until: Timestamp,
    ) -> Result<Relocated, Error>;
    /// Devices at this step that leave `from`, after `after`, ordered by app and id.
    async fn moves(
        &self,
        from: CellNum,
        step: MoveStep,
        after: Option<(AppId, DeviceId)>,
        limit: usize,
    ) -> Result<Vec<Move>, Error>;
    /// Moves the device from one step to the next; does nothing if it is at another step.
    async fn advance(&self, app: AppId, device: &DeviceId, from: MoveStep, to: MoveStep)
    -> Result<(), Error>;

    /// Keeps messages in one commit; answers in order. [`Error::NotFound`] for a deleted app.
    async fn keep(
        &self,
        messages: Vec<NewMessage>,
        now: Timestamp,
    ) -> Result<Vec<Result<Taken, Error>>, Error>;
    /// The `wanted` waiting parts of the cell, oldest first; at least one if there is any, whatever its size.
    async fn waiting(
        &self,
        cell: CellNum,
        wanted: Wanted,
        rows_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<Part>, Error>;
    /// The number of the newest part; 0 before the first. A later read sees every part with a smaller number, and a
    /// part with a greater number was routed after this call.
    async fn newest(&self) -> Result<u64, Error>;
    /// Whether a message of the app that was accepted before `num` waits for the cell.
    async fn waits_before(&self, cell: CellNum, app: AppId, num: u64) -> Result<bool, Error>;
    /// Ends parts. The caller must then cancel, in its cell, a part that was cancelled while it was being forwarded.
    async fn end(&self, cell: CellNum, ended: Vec<(u64, PartEnd)>) -> Result<(), Error>;
    async fn relayed(&self, app: AppId, id: NotificationId) -> Result<Option<Relayed>, Error>;
    /// By the id that the cell assigned.
    async fn relayed_as(&self, cell: CellNum, remote: NotificationId) -> Result<Option<Relayed>, Error>;
    /// Removes waiting parts; the caller must cancel forwarded ones in their cells. `None`: unknown.
    async fn cancel_relayed(&self, app: AppId, id: NotificationId) -> Result<Option<Relayed>, Error>;
    /// Parts to cancel in the cell: number, app and the cell's own id.
    async fn cancelling(
        &self,
        cell: CellNum,
        limit: usize,
    ) -> Result<Vec<(u64, AppId, NotificationId)>, Error>;
    /// The cell has cancelled these.
    async fn cancelled(&self, cell: CellNum, nums: Vec<u64>) -> Result<(), Error>;
    /// Every cell with waiting parts.
    async fn depths(&self) -> Result<Vec<Depth>, Error>;
    /// Ends parts that expired before `expired`; forgets messages accepted before `forgotten` without waiting parts,
    /// outdated idempotency keys and former homes of users. At most `rows_max` of each kind; true if there may be
    /// more.
    async fn prune_relayed(
        &self,
        now: Timestamp,
        expired: Timestamp,
        forgotten: Timestamp,
        rows_max: usize,
    ) -> Result<bool, Error>;

    /// The apps that the cell was provisioned with, each with the digest of the last transfer.
    async fn provisioned(&self, cell: CellNum) -> Result<Vec<(AppName, [u8; 32])>, Error>;
    /// `None`: the cell no longer has the app.
    async fn set_provisioned(
        &self,
        cell: CellNum,
        app: AppName,
        digest: Option<[u8; 32]>,
    ) -> Result<(), Error>;
}
