//! What a front over several cells keeps: which cell a user and a device live in, what it accepted for cells that
//! have not taken it yet, and which apps each cell was told of.
//!
//! A user has one home; a device lives where its user does. While either moves, the cell it leaves is remembered
//! beside the one it goes to, and both are asked. What is accepted is one message with a part for each cell concerned;
//! a part *waits* until its cell has taken it, refused it, or its time is over. Not a part of [`crate::Store`]: only a
//! front asks for it, beside the apps and keys that every store keeps.

use std::collections::{BTreeMap, BTreeSet};

use noroshi_types::{AppId, AppName, DeviceId, NotificationId, Target, Timestamp, TraceContext, UserId};

use crate::{Error, Idempotency};

/// The store's number of a cell; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CellNum(pub u32);

/// A cell, and what was said of it while the front ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellRecord {
    pub num: CellNum,
    pub name: String,
    /// None: as configured.
    pub weight: Option<u32>,
    /// Takes no new users and devices.
    pub draining: bool,
}

/// What is none stays.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CellChange {
    /// The inner none: as configured again.
    pub weight: Option<Option<u32>>,
    pub draining: Option<bool>,
}

/// Who lives in a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Population {
    pub cell: CellNum,
    pub devices: u64,
    pub users: u64,
    /// Those of the devices that have no user.
    pub alone: u64,
    /// Devices on their way to another cell.
    pub leaving: u64,
}

/// A device that registers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assign {
    pub device: DeviceId,
    /// None: as before.
    pub user: Option<UserId>,
    /// Where it goes if nothing is known of it nor of its user.
    pub fresh: CellNum,
}

/// Where a device lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Residence {
    pub app: AppId,
    pub cell: CellNum,
    /// It has not left this one entirely.
    pub previous: Option<CellNum>,
    pub step: MoveStep,
}

impl Residence {
    /// The cell that knows it now.
    pub fn present(&self) -> CellNum {
        self.previous.filter(|_| self.step.is_away()).unwrap_or(self.cell)
    }
}

impl Residence {
    /// Which cells to ask for the device: it may come to its cell at any moment while it is away from it.
    pub(crate) fn asked(&self) -> Vec<CellNum> {
        let previous = self.previous.filter(|_| self.step.is_away());
        std::iter::once(self.cell).chain(previous).collect()
    }
}

/// A device's row.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    pub(crate) user: Option<String>,
    pub(crate) cell: CellNum,
    pub(crate) previous: Option<CellNum>,
    pub(crate) step: MoveStep,
}

impl Kept {
    /// What becomes of the device if its user lives in `home`; its user is the caller's to say.
    pub(crate) fn going(&self, home: CellNum) -> Result<Self, Error> {
        let leaving =
            |previous| Self { user: None, cell: home, previous: Some(previous), step: MoveStep::Leave };
        match (self.previous, self.step.is_away()) {
            _ if self.cell == home => Ok(Self { user: None, ..self.clone() }),
            (None, _) => Ok(leaving(self.cell)),
            // It never came to the cell it was on its way to.
            (Some(previous), true) if previous == home => {
                Ok(Self { user: None, cell: home, previous: None, step: MoveStep::Settled })
            }
            (Some(previous), true) => Ok(leaving(previous)),
            (Some(_), false) => Err(Error::Conflict),
        }
    }
}

/// The target of each cell's part; none where it is the message's own.
#[derive(Debug, Default)]
pub(crate) struct Split {
    pub(crate) parts: BTreeMap<CellNum, Option<String>>,
    /// Named and living nowhere.
    pub(crate) unknown: u64,
}

impl Split {
    pub(crate) fn everywhere(cells: &[CellNum]) -> Self {
        Self { parts: cells.iter().map(|cell| (*cell, None)).collect(), unknown: 0 }
    }

    /// Who was named, with the cells to ask; `kind` is the field of `to`.
    pub(crate) fn of<'a>(
        kind: &str,
        named: impl Iterator<Item = (&'a str, Vec<CellNum>)>,
    ) -> Result<Self, Error> {
        let mut by_cell: BTreeMap<CellNum, Vec<&str>> = BTreeMap::new();
        let mut split = Self::default();
        for (name, cells) in named {
            split.unknown += u64::from(cells.is_empty());
            for cell in cells.into_iter().collect::<BTreeSet<_>>() {
                by_cell.entry(cell).or_default().push(name);
            }
        }
        for (cell, names) in by_cell {
            let names = serde_json::to_string(&names)
                .map_err(|error| Error::Engine(format!("names cannot be written: {error}")))?;
            split.parts.insert(cell, Some(format!("{{\"{kind}\":{names}}}")));
        }
        Ok(split)
    }
}

/// How far a device is on its way from its previous cell to its cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum MoveStep {
    /// It lives in one cell.
    Settled = 0,
    /// Its session in the previous cell has to be ended.
    Tell = 1,
    /// It was told, and has not come to its new cell.
    Told = 2,
    /// It came: what waits for it in the previous cell is carried over, then it is removed there.
    Arrived = 3,
    /// It is another user's now: it is only removed there.
    Leave = 4,
}

impl MoveStep {
    pub fn from_code(code: u8) -> Option<Self> {
        [Self::Settled, Self::Tell, Self::Told, Self::Arrived, Self::Leave]
            .into_iter()
            .find(|step| *step as u8 == code)
    }

    /// It is still only in the previous cell.
    pub fn is_away(self) -> bool {
        matches!(self, Self::Tell | Self::Told)
    }
}

/// Who shall move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Relocation {
    Device(AppId, DeviceId),
    /// With all its devices.
    User(AppId, UserId),
    /// At most `limit` of those who live in `from`: users with their devices first, then devices without a user.
    Some {
        from: CellNum,
        limit: usize,
    },
}

/// How many will move.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Relocated {
    pub users: u64,
    /// Those of the devices that have no user.
    pub alone: u64,
    pub devices: u64,
}

/// A device on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    pub app: AppId,
    pub device: DeviceId,
    pub from: CellNum,
    pub to: CellNum,
    pub step: MoveStep,
    /// When it was decided.
    pub since: Timestamp,
}

/// A checked request as it is kept for cells.
#[derive(Debug, Clone)]
pub struct NewMessage {
    pub id: NotificationId,
    pub app: AppId,
    pub target: Target,
    /// `to` as JSON, where every cell gets the same; users and devices are written for each cell.
    pub to: Box<str>,
    /// The rest of the request: a JSON object without `to`.
    pub body: Box<str>,
    /// What is told of it: a JSON object.
    pub summary: Box<str>,
    pub expires_at: Timestamp,
    /// Of whose trace it is a part, if its provider traces.
    pub trace: Option<TraceContext>,
    pub idempotency: Option<Idempotency>,
    /// Who is asked for what names no users or devices.
    pub everywhere: std::sync::Arc<[CellNum]>,
    /// Cells that hold as much as they may: a message that concerns one of them is [`Error::Overloaded`].
    pub full: std::sync::Arc<[CellNum]>,
}

/// The answer to a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    pub id: NotificationId,
    /// None for topics, conditions and everyone.
    pub targets: Option<u64>,
    /// Those that have a part of it; empty for a repetition.
    pub cells: Vec<CellNum>,
    /// The same key came before.
    pub replayed: bool,
}

/// Which of the parts that wait for a cell are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// Those of one app with a greater number than `after`.
    Of { app: AppId, after: u64 },
    /// Those of all apps but these, with a greater number than `after`.
    Others { apart: Vec<AppId>, after: u64 },
}

impl Wanted {
    pub const ALL: Self = Self::Others { apart: Vec::new(), after: 0 };

    /// As columns: the one app, the apps left out, and the number.
    pub(crate) fn columns(&self) -> (Option<i64>, Vec<i64>, i64) {
        match self {
            Self::Of { app, after } => (Some(i64::from(app.0)), Vec::new(), *after as i64),
            Self::Others { apart, after } => {
                (None, apart.iter().map(|app| i64::from(app.0)).collect(), *after as i64)
            }
        }
    }
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
    /// The message's.
    pub trace: Option<TraceContext>,
}

/// What became of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartEnd {
    /// The cell's own id.
    Forwarded(NotificationId),
    /// For good: the code of its problem.
    Refused(String),
    Expired,
}

/// A part's state as it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum PartState {
    Waiting = 0,
    Forwarded = 1,
    Refused = 2,
    Expired = 3,
    /// Before it was forwarded.
    Cancelled = 4,
    /// Forwarded; its cell is still to be told.
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
    /// Named users and devices that live nowhere.
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
    /// Why it was refused.
    pub reason: Option<String>,
}

/// What waits for a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Depth {
    pub cell: CellNum,
    pub parts: u64,
    pub oldest: Option<Timestamp>,
}

/// Assignments, the outbox, and what cells know of apps.
#[async_trait::async_trait]
pub trait Cells: Send + Sync {
    /// Every cell that was ever named, the new ones among them.
    async fn enrol(&self, names: Vec<String>) -> Result<Vec<CellRecord>, Error>;
    /// [`Error::NotFound`] if there is no such cell.
    async fn adjust(&self, cell: CellNum, change: CellChange) -> Result<CellRecord, Error>;
    async fn populations(&self) -> Result<Vec<Population>, Error>;

    /// Where each device lives, decided now where nothing is known; in one commit. A device that changes its user
    /// goes where that one lives. [`Error::Conflict`] for a device that is just being removed from its last cell.
    async fn assign(
        &self,
        app: AppId,
        devices: Vec<Assign>,
        now: Timestamp,
    ) -> Result<Vec<Result<Residence, Error>>, Error>;
    /// Devices have registered in these cells, to which they were on their way. Those that live elsewhere by now: they
    /// have to register there.
    async fn arrived(&self, app: AppId, devices: Vec<(DeviceId, CellNum)>) -> Result<Vec<DeviceId>, Error>;
    /// Where the device of this id lives in each of `apps`, in order of the apps; those in which it lives nowhere
    /// are missing. One look-up for each app: devices of other apps with the same id cost nothing.
    async fn residences(&self, apps: &[AppId], device: &DeviceId) -> Result<Vec<Residence>, Error>;
    /// The cells to ask for each user, in order; none if the user lives nowhere.
    async fn cells_of_users(
        &self,
        app: AppId,
        users: Vec<UserId>,
        now: Timestamp,
    ) -> Result<Vec<Vec<CellNum>>, Error>;
    /// The device was deleted in its cell.
    async fn forget_device(&self, app: AppId, device: &DeviceId) -> Result<(), Error>;

    /// Decides that somebody moves. Whoever is on the way, or is there, is left out. Where a user lived is asked
    /// until `asked_until`, or until the last of its devices has left.
    async fn relocate(
        &self,
        who: Relocation,
        to: CellNum,
        now: Timestamp,
        asked_until: Timestamp,
    ) -> Result<Relocated, Error>;
    /// Devices at this step that leave `from`, behind `after` in the order of app and id.
    async fn moves(
        &self,
        from: CellNum,
        step: MoveStep,
        after: Option<(AppId, DeviceId)>,
        limit: usize,
    ) -> Result<Vec<Move>, Error>;
    /// Puts it from one step to the next; done already if it is at another.
    async fn advance(&self, app: AppId, device: &DeviceId, from: MoveStep, to: MoveStep)
    -> Result<(), Error>;

    /// All in one commit, answers in order. [`Error::NotFound`] for an app that was deleted.
    async fn keep(
        &self,
        messages: Vec<NewMessage>,
        now: Timestamp,
    ) -> Result<Vec<Result<Taken, Error>>, Error>;
    /// The parts that wait for the cell and are `wanted`, oldest first; at least one if there is any, whatever its size.
    async fn waiting(
        &self,
        cell: CellNum,
        wanted: Wanted,
        rows_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<Part>, Error>;
    /// The number of the newest part; 0 before there was any. What is kept with a smaller one is seen by whoever asks
    /// afterwards, and what is kept with a greater one was decided afterwards.
    async fn newest(&self) -> Result<u64, Error>;
    /// Whether a message of the app that was accepted before `num` waits for the cell.
    async fn waits_before(&self, cell: CellNum, app: AppId, num: u64) -> Result<bool, Error>;
    /// What became of parts. One that was cancelled while it was under way is to be cancelled at its cell.
    async fn end(&self, cell: CellNum, ended: Vec<(u64, PartEnd)>) -> Result<(), Error>;
    async fn relayed(&self, app: AppId, id: NotificationId) -> Result<Option<Relayed>, Error>;
    /// By the id that the cell gave it.
    async fn relayed_as(&self, cell: CellNum, remote: NotificationId) -> Result<Option<Relayed>, Error>;
    /// Parts that wait go; those forwarded are to be cancelled at their cells. None: unknown.
    async fn cancel_relayed(&self, app: AppId, id: NotificationId) -> Result<Option<Relayed>, Error>;
    /// What is to be cancelled at the cell: message, app and the cell's own id.
    async fn cancelling(
        &self,
        cell: CellNum,
        limit: usize,
    ) -> Result<Vec<(u64, AppId, NotificationId)>, Error>;
    /// The cell was told.
    async fn cancelled(&self, cell: CellNum, nums: Vec<u64>) -> Result<(), Error>;
    /// Of every cell for which something waits.
    async fn depths(&self) -> Result<Vec<Depth>, Error>;
    /// Ends what expired before `expired`, forgets messages accepted before `forgotten` for which nothing waits, and
    /// idempotency keys and places of users that are over. At most `rows_max` of each kind; true: there is more.
    async fn prune_relayed(
        &self,
        now: Timestamp,
        expired: Timestamp,
        forgotten: Timestamp,
        rows_max: usize,
    ) -> Result<bool, Error>;

    /// Apps that the cell was told of, with the digest of what it was told.
    async fn provisioned(&self, cell: CellNum) -> Result<Vec<(AppName, [u8; 32])>, Error>;
    /// None: the cell has it no more.
    async fn set_provisioned(
        &self,
        cell: CellNum,
        app: AppName,
        digest: Option<[u8; 32]>,
    ) -> Result<(), Error>;
}
