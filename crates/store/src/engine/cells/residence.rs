//! Which cell a user and a device live in, and moves from one cell to another.
//!
//! A call that decides about an app's devices holds that app's lock ([`Residences::lock`]), so that two fronts never give
//! one user two homes. Reads need no lock.

use std::collections::{BTreeSet, HashMap};

use noroshi_types::{AppId, DeviceId, Timestamp};

use super::{cell_of, cell_or_null, number};
use crate::Error;
use crate::cells::{Assign, CellNum, Move, MoveStep, Population, Relocated, Relocation, Residence};
use crate::engine::device::id_of;
use crate::engine::record::{Record, unknown};
use crate::engine::session::{self, Session, values};

pub(crate) trait Residences: Session {
    /// Excludes other decisions about the app's residences until the transaction ends.
    fn lock(&self, app: AppId) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// A row of `cell_devices`.
#[derive(Debug, Clone)]
pub(crate) struct CellDevice {
    pub user: Option<String>,
    pub cell: CellNum,
    pub previous: Option<CellNum>,
    pub step: MoveStep,
}

/// Columns for [`CellDevice::of_row`].
pub(crate) const DEVICE_COLUMNS: &str = "\"user\", cell, previous, step";

impl CellDevice {
    pub(crate) fn of_row(row: &(impl Record + ?Sized), first: usize) -> Result<Self, Error> {
        Ok(Self {
            user: row.string_or_null(first)?,
            cell: cell_of(row, first + 1)?,
            previous: cell_or_null(row, first + 2)?,
            step: MoveStep::from_code(row.code(first + 3)?).ok_or_else(|| unknown("step of a move"))?,
        })
    }

    pub(crate) fn residence(&self, app: AppId) -> Residence {
        Residence { app, cell: self.cell, previous: self.previous, step: self.step }
    }

    /// The device once its user lives in `home`. The caller sets the user.
    fn moved_to(&self, home: CellNum) -> Result<Self, Error> {
        let leaving =
            |previous| Self { user: None, cell: home, previous: Some(previous), step: MoveStep::Leave };
        match (self.previous, self.step.is_away()) {
            _ if self.cell == home => Ok(Self { user: None, ..self.clone() }),
            (None, _) => Ok(leaving(self.cell)),
            // It never arrived in the cell it was moving to.
            (Some(previous), true) if previous == home => {
                Ok(Self { user: None, cell: home, previous: None, step: MoveStep::Settled })
            }
            (Some(previous), true) => Ok(leaving(previous)),
            (Some(_), false) => Err(Error::Conflict),
        }
    }
}

impl Residence {
    /// Which cells to ask for the device: while it is away from its cell it may arrive there at any moment.
    pub(crate) fn asked(&self) -> Vec<CellNum> {
        let previous = self.previous.filter(|_| self.step.is_away());
        std::iter::once(self.cell).chain(previous).collect()
    }
}

/// Assigns cells to devices that register. Holds what was read; [`Self::assign`] decides, and the engine writes
/// `new_homes` and `changed`.
pub(crate) struct Assignments<'d> {
    pub devices: HashMap<String, CellDevice>,
    /// The home of each user.
    pub homes: HashMap<String, CellNum>,
    pub new_homes: HashMap<String, CellNum>,
    pub changed: HashMap<&'d str, CellDevice>,
}

impl<'d> Assignments<'d> {
    pub(crate) fn new(devices: HashMap<String, CellDevice>, homes: HashMap<String, CellNum>) -> Self {
        Self { devices, homes, new_homes: HashMap::new(), changed: HashMap::new() }
    }

    pub(crate) fn assign(&mut self, app: AppId, one: &'d Assign) -> Result<Residence, Error> {
        let before = self.devices.get(one.device.as_str());
        let named = one.user.as_ref().map(|user| user.as_str());
        let user = named.or(before.and_then(|before| before.user.as_deref())).map(str::to_owned);
        let home = user.as_ref().and_then(|user| self.homes.get(user).copied());
        // A user without a home gets that of the first device.
        let home = home.or(before.map(|before| before.cell)).unwrap_or(one.fresh);
        if let Some(user) = &user
            && self.homes.insert(user.clone(), home).is_none()
        {
            self.new_homes.insert(user.clone(), home);
        }
        let moved = match before {
            None => CellDevice { user: None, cell: home, previous: None, step: MoveStep::Settled },
            Some(before) => before.moved_to(home)?,
        };
        let moved = CellDevice { user, ..moved };
        let residence = moved.residence(app);
        self.devices.insert(one.device.as_str().to_owned(), moved.clone());
        self.changed.insert(one.device.as_str(), moved);
        Ok(residence)
    }
}

async fn device<S: Session>(session: &S, app: AppId, device: &str) -> Result<Option<CellDevice>, S::Error> {
    let sql = format!("SELECT {DEVICE_COLUMNS} FROM cell_devices WHERE app = $1 AND device = $2");
    session::first(session, &sql, &values![app, device], |row| CellDevice::of_row(row, 0)).await
}

async fn home<S: Session>(session: &S, app: AppId, user: &str) -> Result<Option<CellNum>, S::Error> {
    let sql = "SELECT cell FROM cell_users WHERE app = $1 AND \"user\" = $2 AND until = 0";
    session::first(session, sql, &values![app, user], |row| cell_of(row, 0)).await
}

pub(crate) async fn set_home<S: Session>(
    session: &S,
    app: AppId,
    user: &str,
    cell: CellNum,
) -> Result<(), S::Error> {
    let sql = "INSERT INTO cell_users (app, \"user\", cell, until) VALUES ($1, $2, $3, 0)
               ON CONFLICT (app, \"user\", cell) DO UPDATE SET until = 0";
    session.execute(sql, &values![app, user, cell]).await?;
    Ok(())
}

pub(crate) async fn forget<S: Residences>(
    session: &S,
    app: AppId,
    device: &DeviceId,
) -> Result<(), S::Error> {
    session.lock(app).await?;
    let sql = "DELETE FROM cell_devices WHERE app = $1 AND device = $2 AND previous IS NULL";
    session.execute(sql, &values![app, device.as_str()]).await?;
    // The previous cell still has to remove the device.
    let sql = "UPDATE cell_devices SET step = 4 WHERE app = $1 AND device = $2";
    session.execute(sql, &values![app, device.as_str()]).await?;
    Ok(())
}

pub(crate) async fn populations<S: Session>(session: &S) -> Result<Vec<Population>, S::Error> {
    let sql = "SELECT num, (SELECT count(*) FROM cell_devices WHERE cell = cells.num),
                   (SELECT count(*) FROM cell_users WHERE cell = cells.num AND until = 0),
                   (SELECT count(*) FROM cell_devices WHERE cell = cells.num AND \"user\" IS NULL),
                   (SELECT count(*) FROM cell_devices WHERE previous = cells.num)
               FROM cells ORDER BY num";
    let population_of = |row: &dyn Record| {
        Ok(Population {
            cell: cell_of(row, 0)?,
            devices: row.count(1)?,
            users: row.count(2)?,
            alone: row.count(3)?,
            leaving: row.count(4)?,
        })
    };
    session.query(sql, &[], population_of).await
}

type Named = Vec<(AppId, String)>;

pub(crate) async fn relocate<S: Residences>(
    session: &S,
    who: &Relocation,
    to: CellNum,
    now: Timestamp,
    asked_until: Timestamp,
) -> Result<Relocated, S::Error> {
    let (users, devices) = match who {
        Relocation::Device(app, id) => {
            session.lock(*app).await?;
            let known = device(session, *app, id.as_str()).await?.ok_or(Error::NotFound)?;
            match known.user {
                // All devices of a user live in the same cell.
                Some(user) => (vec![(*app, user)], Vec::new()),
                None => (Vec::new(), vec![(*app, id.as_str().to_owned())]),
            }
        }
        Relocation::User(app, user) => {
            session.lock(*app).await?;
            home(session, *app, user.as_str()).await?.ok_or(Error::NotFound)?;
            (vec![(*app, user.as_str().to_owned())], Vec::new())
        }
        Relocation::Some { from, limit } => locked_residents(session, *from, *limit).await?,
    };
    let mut moved = Relocated::default();
    for (app, user) in &users {
        move_user(session, (*app, user), to, now, asked_until, &mut moved).await?;
    }
    for (app, device) in &devices {
        moved.alone += start_move(session, BY_DEVICE, (*app, device), to, now).await?;
    }
    moved.devices += moved.alone;
    Ok(moved)
}

/// Users of a cell, and devices without a user. Their apps are locked in order, so that two callers cannot wait for each
/// other; apps without residents of the cell are not locked.
async fn locked_residents<S: Residences>(
    session: &S,
    from: CellNum,
    limit: usize,
) -> Result<(Named, Named), S::Error> {
    let (users, devices) = residents(session, from, limit).await?;
    let apps: BTreeSet<AppId> = users.iter().chain(&devices).map(|(app, _)| *app).collect();
    for app in &apps {
        session.lock(*app).await?;
    }
    let (mut users, mut devices) = residents(session, from, limit).await?;
    users.retain(|(app, _)| apps.contains(app));
    devices.retain(|(app, _)| apps.contains(app));
    Ok((users, devices))
}

async fn residents<S: Session>(session: &S, from: CellNum, limit: usize) -> Result<(Named, Named), S::Error> {
    let named = |row: &dyn Record| Ok((row.app(0)?, row.string(1)?));
    let sql =
        "SELECT app, \"user\" FROM cell_users WHERE cell = $1 AND until = 0 ORDER BY app, \"user\" LIMIT $2";
    let users: Named = session.query(sql, &values![from, limit], named).await?;
    let rest = limit.saturating_sub(users.len());
    let sql = "SELECT app, device FROM cell_devices WHERE cell = $1 AND \"user\" IS NULL AND previous IS NULL
               ORDER BY app, device LIMIT $2";
    let devices = session.query(sql, &values![from, rest], named).await?;
    Ok((users, devices))
}

async fn move_user<S: Session>(
    session: &S,
    (app, user): (AppId, &str),
    to: CellNum,
    now: Timestamp,
    asked_until: Timestamp,
    moved: &mut Relocated,
) -> Result<(), S::Error> {
    if home(session, app, user).await? == Some(to) {
        return Ok(());
    }
    let sql = "UPDATE cell_users SET until = $3 WHERE app = $1 AND \"user\" = $2 AND until = 0";
    session.execute(sql, &values![app, user, asked_until]).await?;
    set_home(session, app, user, to).await?;
    moved.users += 1;
    moved.devices += start_move(session, BY_USER, (app, user), to, now).await?;
    remove_former_homes(session, app, user).await
}

/// Devices of a user, by their index: SQLite would scan all devices of the app for a condition on both columns.
const BY_USER: &str = "device IN (SELECT device FROM cell_devices WHERE app = $1 AND \"user\" = $2)";
const BY_DEVICE: &str = "device = $2";

/// How many devices start to move. A device that is still in `to` stays there; one that has not arrived yet moves to
/// `to` from the cell it is in.
async fn start_move<S: Session>(
    session: &S,
    chosen: &str,
    (app, name): (AppId, &str),
    to: CellNum,
    now: Timestamp,
) -> Result<u64, S::Error> {
    let sql = format!(
        "UPDATE cell_devices SET
             cell = $3,
             previous = CASE WHEN previous IS NULL THEN cell WHEN previous = $3 THEN NULL ELSE previous END,
             step = CASE WHEN previous IS NULL THEN 1 WHEN previous = $3 THEN 0 ELSE step END,
             moved_at = CASE WHEN previous IS NULL THEN $4 ELSE moved_at END
         WHERE app = $1 AND {chosen} AND cell <> $3 AND (previous IS NULL OR step IN (1, 2))"
    );
    session.execute(&sql, &values![app, name, to, now]).await
}

/// Forgets the cells that a user left once none of the user's devices is in them.
async fn remove_former_homes<S: Session>(session: &S, app: AppId, user: &str) -> Result<(), S::Error> {
    let sql = "DELETE FROM cell_users WHERE app = $1 AND \"user\" = $2 AND until > 0 AND NOT EXISTS (
                   SELECT 1 FROM cell_devices AS d WHERE d.app = $1 AND d.\"user\" = $2
                       AND (d.cell = cell_users.cell OR d.previous = cell_users.cell))";
    session.execute(sql, &values![app, user]).await?;
    Ok(())
}

pub(crate) async fn moves<S: Session>(
    session: &S,
    from: CellNum,
    step: MoveStep,
    after: Option<&(AppId, DeviceId)>,
    limit: usize,
) -> Result<Vec<Move>, S::Error> {
    let sql = "SELECT app, device, cell, coalesce(moved_at, 0) FROM cell_devices
               WHERE previous = $1 AND step = $2 AND (app, device) > ($3, $4) ORDER BY app, device LIMIT $5";
    let (app, device) = after.map_or((0, ""), |(app, device)| (app.0, device.as_str()));
    let values = values![from, step as u8, app, device, limit];
    let rows = session
        .query(sql, &values, |row| Ok((row.app(0)?, id_of(row, 1)?, cell_of(row, 2)?, row.time(3)?)))
        .await?;
    let moves = rows.into_iter().map(|(app, device, to, since)| Move { app, device, from, to, step, since });
    Ok(moves.collect())
}

pub(crate) async fn advance<S: Residences>(
    session: &S,
    app: AppId,
    device: &DeviceId,
    from: MoveStep,
    to: MoveStep,
) -> Result<(), S::Error> {
    session.lock(app).await?;
    let previous = if to == MoveStep::Settled { "NULL" } else { "previous" };
    let sql = format!(
        "UPDATE cell_devices SET step = $4, previous = {previous}
         WHERE app = $1 AND device = $2 AND step = $3 RETURNING \"user\""
    );
    let values = values![app, device.as_str(), from as u8, to as u8];
    let found = session::first(session, &sql, &values, |row| row.string_or_null(0)).await?;
    match found.flatten() {
        Some(user) if to == MoveStep::Settled => {
            session.execute(FOLLOW, &values![app, device.as_str()]).await?;
            remove_former_homes(session, app, &user).await
        }
        _ => Ok(()),
    }
}

/// Starts the next move of a device whose user moved again in the meantime.
const FOLLOW: &str = "UPDATE cell_devices AS d SET previous = d.cell, cell = u.cell, step = 1
     FROM cell_users AS u WHERE d.app = $1 AND d.device = $2 AND d.step = 0
         AND u.app = d.app AND u.\"user\" = d.\"user\" AND u.until = 0 AND u.cell <> d.cell";

/// Names, users, cells, previous cells and steps.
pub(crate) type Columns<'a> = (Vec<&'a str>, Vec<Option<&'a str>>, Vec<i64>, Vec<Option<i64>>, Vec<i64>);

pub(crate) fn columns<'a>(changed: &'a HashMap<&'a str, CellDevice>) -> Columns<'a> {
    let devices = || changed.values();
    (
        changed.keys().copied().collect(),
        devices().map(|one| one.user.as_deref()).collect(),
        devices().map(|one| number(one.cell)).collect(),
        devices().map(|one| one.previous.map(number)).collect(),
        devices().map(|one| one.step as i64).collect(),
    )
}
