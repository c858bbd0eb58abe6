//! What a front over cells keeps: the trait, and the list of cells. `residence` holds who lives where, `outbox` what
//! cells have not taken yet.

mod outbox;
mod residence;

use noroshi_types::{AppId, AppName, DeviceId, NotificationId, Timestamp, UserId};
use rusqlite::{Connection, OptionalExtension, Row};

use super::Sqlite;
use crate::Error;
use crate::cells::{
    Assign, CellChange, CellNum, CellRecord, Cells, Depth, Move, MoveStep, NewMessage, Part, PartEnd,
    Population, Relayed, Relocated, Relocation, Residence, Taken, Wanted,
};

#[async_trait::async_trait]
impl Cells for Sqlite {
    async fn enrol(&self, names: Vec<String>) -> Result<Vec<CellRecord>, Error> {
        self.write(names.len(), move |w| {
            for name in &names {
                w.db.execute("INSERT OR IGNORE INTO cells (name) VALUES (?1)", (name,))?;
            }
            list(w.db)
        })
        .await
    }

    async fn adjust(&self, cell: CellNum, change: CellChange) -> Result<CellRecord, Error> {
        self.write(1, move |w| adjust(w.db, cell, change)).await
    }

    async fn populations(&self) -> Result<Vec<Population>, Error> {
        self.read(residence::populations).await
    }

    async fn assign(
        &self,
        app: AppId,
        devices: Vec<Assign>,
        now: Timestamp,
    ) -> Result<Vec<Result<Residence, Error>>, Error> {
        self.write(devices.len() * 2, move |w| {
            Ok(devices.into_iter().map(|one| residence::assign(w.db, app, &one, now)).collect())
        })
        .await
    }

    async fn arrived(&self, app: AppId, devices: Vec<(DeviceId, CellNum)>) -> Result<Vec<DeviceId>, Error> {
        self.write(devices.len(), move |w| residence::arrived(w.db, app, devices)).await
    }

    async fn residences(&self, apps: &[AppId], device: &DeviceId) -> Result<Vec<Residence>, Error> {
        let (apps, device) = (apps.to_vec(), device.clone());
        self.read(move |db| residence::of_device(db, &apps, &device)).await
    }

    async fn cells_of_users(
        &self,
        app: AppId,
        users: Vec<UserId>,
        now: Timestamp,
    ) -> Result<Vec<Vec<CellNum>>, Error> {
        self.read(move |db| users.iter().map(|user| residence::of_user(db, app, user, now)).collect()).await
    }

    async fn forget_device(&self, app: AppId, device: &DeviceId) -> Result<(), Error> {
        let device = device.clone();
        self.write(1, move |w| residence::forget(w.db, app, &device)).await
    }

    async fn relocate(
        &self,
        who: Relocation,
        to: CellNum,
        now: Timestamp,
        asked_until: Timestamp,
    ) -> Result<Relocated, Error> {
        let rows = if let Relocation::Some { limit, .. } = &who { limit * 3 } else { 3 };
        self.write(rows, move |w| residence::relocate(w.db, &who, to, now, asked_until)).await
    }

    async fn moves(
        &self,
        from: CellNum,
        step: MoveStep,
        after: Option<(AppId, DeviceId)>,
        limit: usize,
    ) -> Result<Vec<Move>, Error> {
        self.read(move |db| residence::moves(db, from, step, after.as_ref(), limit)).await
    }

    async fn advance(
        &self,
        app: AppId,
        device: &DeviceId,
        from: MoveStep,
        to: MoveStep,
    ) -> Result<(), Error> {
        let device = device.clone();
        self.write(1, move |w| residence::advance(w.db, app, &device, from, to)).await
    }

    async fn keep(
        &self,
        messages: Vec<NewMessage>,
        now: Timestamp,
    ) -> Result<Vec<Result<Taken, Error>>, Error> {
        self.write(messages.len() * 4, move |w| outbox::take(w.db, &messages, now)).await
    }

    async fn waiting(
        &self,
        cell: CellNum,
        wanted: Wanted,
        rows_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<Part>, Error> {
        self.read(move |db| outbox::waiting(db, cell, &wanted, rows_max, bytes_max)).await
    }

    async fn newest(&self) -> Result<u64, Error> {
        self.read(outbox::newest).await
    }

    async fn waits_before(&self, cell: CellNum, app: AppId, num: u64) -> Result<bool, Error> {
        self.read(move |db| outbox::waits_before(db, cell, app, num)).await
    }

    async fn end(&self, cell: CellNum, ended: Vec<(u64, PartEnd)>) -> Result<(), Error> {
        self.write(ended.len() * 2, move |w| outbox::end(w.db, cell, &ended)).await
    }

    async fn relayed(&self, app: AppId, id: NotificationId) -> Result<Option<Relayed>, Error> {
        self.read(move |db| Ok(outbox::relayed(db, id)?.filter(|found| found.app == app))).await
    }

    async fn relayed_as(&self, cell: CellNum, remote: NotificationId) -> Result<Option<Relayed>, Error> {
        self.read(move |db| outbox::relayed_as(db, cell, remote)).await
    }

    async fn cancel_relayed(&self, app: AppId, id: NotificationId) -> Result<Option<Relayed>, Error> {
        self.write(8, move |w| outbox::cancel(w.db, app, id)).await
    }

    async fn cancelling(
        &self,
        cell: CellNum,
        limit: usize,
    ) -> Result<Vec<(u64, AppId, NotificationId)>, Error> {
        self.read(move |db| outbox::cancelling(db, cell, limit)).await
    }

    async fn cancelled(&self, cell: CellNum, nums: Vec<u64>) -> Result<(), Error> {
        self.write(nums.len(), move |w| outbox::cancelled(w.db, cell, &nums)).await
    }

    async fn depths(&self) -> Result<Vec<Depth>, Error> {
        self.read(outbox::depths).await
    }

    async fn prune_relayed(
        &self,
        now: Timestamp,
        expired: Timestamp,
        forgotten: Timestamp,
        rows_max: usize,
    ) -> Result<bool, Error> {
        self.write(rows_max, move |w| outbox::prune(w.db, now, expired, forgotten, rows_max)).await
    }

    async fn provisioned(&self, cell: CellNum) -> Result<Vec<(AppName, [u8; 32])>, Error> {
        self.read(move |db| {
            let mut statement =
                db.prepare_cached("SELECT app, digest FROM cell_apps WHERE cell = ?1 ORDER BY app")?;
            let rows = statement.query_map((cell.0,), |row| {
                Ok(AppName::parse(row.get_ref(0)?.as_str()?).map(|app| (app, row.get(1))))
            })?;
            rows.map(|row| {
                let (app, digest) = row?.map_err(|error| Error::Engine(format!("a stored app: {error}")))?;
                Ok((app, digest?))
            })
            .collect()
        })
        .await
    }

    async fn set_provisioned(
        &self,
        cell: CellNum,
        app: AppName,
        digest: Option<[u8; 32]>,
    ) -> Result<(), Error> {
        self.write(1, move |w| {
            match digest {
                Some(digest) => w.db.execute(
                    "INSERT OR REPLACE INTO cell_apps (cell, app, digest) VALUES (?1, ?2, ?3)",
                    (cell.0, app.as_str(), digest),
                )?,
                None => w
                    .db
                    .execute("DELETE FROM cell_apps WHERE cell = ?1 AND app = ?2", (cell.0, app.as_str()))?,
            };
            Ok(())
        })
        .await
    }
}

const COLUMNS: &str = "num, name, weight, draining";

fn record(row: &Row<'_>) -> rusqlite::Result<CellRecord> {
    Ok(CellRecord {
        num: CellNum(row.get(0)?),
        name: row.get(1)?,
        weight: row.get(2)?,
        draining: row.get(3)?,
    })
}

fn list(db: &Connection) -> Result<Vec<CellRecord>, Error> {
    let mut statement = db.prepare_cached(&format!("SELECT {COLUMNS} FROM cells ORDER BY num"))?;
    let rows = statement.query_map((), record)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn adjust(db: &Connection, cell: CellNum, change: CellChange) -> Result<CellRecord, Error> {
    if let Some(weight) = change.weight {
        db.execute("UPDATE cells SET weight = ?2 WHERE num = ?1", (cell.0, weight))?;
    }
    if let Some(draining) = change.draining {
        db.execute("UPDATE cells SET draining = ?2 WHERE num = ?1", (cell.0, draining))?;
    }
    let found =
        db.query_row(&format!("SELECT {COLUMNS} FROM cells WHERE num = ?1"), (cell.0,), record).optional()?;
    found.ok_or(Error::NotFound)
}
