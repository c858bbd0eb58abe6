//! What a front over cells keeps: the trait, and the list of cells. `residence` holds who lives where, `outbox` what
//! cells have not taken yet.

mod outbox;
mod residence;

use std::sync::Arc;

use noroshi_types::{AppId, AppName, DeviceId, NotificationId, Timestamp, UserId};
use tokio_postgres::Row;

use super::Postgres;
use super::transaction::{Failed, Tx};
use crate::Error;
use crate::cells::{
    Assign, CellChange, CellNum, CellRecord, Cells, Depth, Move, MoveStep, NewMessage, Part, PartEnd,
    Population, Relayed, Relocated, Relocation, Residence, Taken, Wanted,
};

#[async_trait::async_trait]
impl Cells for Postgres {
    async fn enrol(&self, names: Vec<String>) -> Result<Vec<CellRecord>, Error> {
        let names = Arc::new(names);
        self.write(move |tx| enrol(tx, names.clone())).await
    }

    async fn adjust(&self, cell: CellNum, change: CellChange) -> Result<CellRecord, Error> {
        self.write(move |tx| adjust(tx, cell, change)).await
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
        let devices = Arc::new(devices);
        self.write(move |tx| residence::assign(tx, app, devices.clone(), now)).await
    }

    async fn arrived(&self, app: AppId, devices: Vec<(DeviceId, CellNum)>) -> Result<Vec<DeviceId>, Error> {
        let devices = Arc::new(devices);
        self.write(move |tx| residence::arrived(tx, app, devices.clone())).await
    }

    async fn residences(&self, apps: &[AppId], device: &DeviceId) -> Result<Vec<Residence>, Error> {
        self.read(|tx| residence::of_device(tx, apps, device)).await
    }

    async fn cells_of_users(
        &self,
        app: AppId,
        users: Vec<UserId>,
        now: Timestamp,
    ) -> Result<Vec<Vec<CellNum>>, Error> {
        let names: Vec<&str> = users.iter().map(UserId::as_str).collect();
        let found = self.read(async |tx: Tx| residence::of_users(&tx, app, &names, now).await).await?;
        // One that is named twice is answered twice.
        Ok(names.iter().map(|name| found.get(*name).cloned().unwrap_or_default()).collect())
    }

    async fn forget_device(&self, app: AppId, device: &DeviceId) -> Result<(), Error> {
        let device = device.clone();
        self.write(move |tx| residence::forget(tx, app, device.clone())).await
    }

    async fn relocate(
        &self,
        who: Relocation,
        to: CellNum,
        now: Timestamp,
        asked_until: Timestamp,
    ) -> Result<Relocated, Error> {
        self.write(move |tx| residence::relocate(tx, who.clone(), to, now, asked_until)).await
    }

    async fn moves(
        &self,
        from: CellNum,
        step: MoveStep,
        after: Option<(AppId, DeviceId)>,
        limit: usize,
    ) -> Result<Vec<Move>, Error> {
        self.read(|tx| residence::moves(tx, from, step, after.as_ref(), limit)).await
    }

    async fn advance(
        &self,
        app: AppId,
        device: &DeviceId,
        from: MoveStep,
        to: MoveStep,
    ) -> Result<(), Error> {
        let device = device.clone();
        self.write(move |tx| residence::advance(tx, app, device.clone(), from, to)).await
    }

    async fn keep(
        &self,
        messages: Vec<NewMessage>,
        now: Timestamp,
    ) -> Result<Vec<Result<Taken, Error>>, Error> {
        let messages = Arc::new(messages);
        self.write(move |tx| outbox::keep(tx, messages.clone(), now)).await
    }

    async fn waiting(
        &self,
        cell: CellNum,
        wanted: Wanted,
        rows_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<Part>, Error> {
        self.read(|tx| outbox::waiting(tx, cell, &wanted, rows_max, bytes_max)).await
    }

    async fn newest(&self) -> Result<u64, Error> {
        self.write(outbox::newest).await
    }

    async fn waits_before(&self, cell: CellNum, app: AppId, num: u64) -> Result<bool, Error> {
        self.read(async |tx| {
            let sql = "SELECT EXISTS (SELECT 1 FROM cell_parts AS p JOIN cell_messages AS m ON m.num = p.num
                                      WHERE p.cell = $1 AND p.state = 0 AND p.num < $2 AND m.app = $3)";
            let (num, app) = (num as i64, i64::from(app.0));
            Ok(tx.query_one(sql, &[&number(cell), &num, &app]).await?.get(0))
        })
        .await
    }

    async fn end(&self, cell: CellNum, ended: Vec<(u64, PartEnd)>) -> Result<(), Error> {
        let ended = Arc::new(ended);
        self.write(move |tx| outbox::end(tx, cell, ended.clone())).await
    }

    async fn relayed(&self, app: AppId, id: NotificationId) -> Result<Option<Relayed>, Error> {
        let found = self.read(|tx| outbox::relayed(tx, id)).await?;
        Ok(found.filter(|found| found.app == app))
    }

    async fn relayed_as(&self, cell: CellNum, remote: NotificationId) -> Result<Option<Relayed>, Error> {
        self.read(|tx| outbox::relayed_as(tx, cell, remote)).await
    }

    async fn cancel_relayed(&self, app: AppId, id: NotificationId) -> Result<Option<Relayed>, Error> {
        self.write(move |tx| outbox::cancel(tx, app, id)).await
    }

    async fn cancelling(
        &self,
        cell: CellNum,
        limit: usize,
    ) -> Result<Vec<(u64, AppId, NotificationId)>, Error> {
        self.read(|tx| outbox::cancelling(tx, cell, limit)).await
    }

    async fn cancelled(&self, cell: CellNum, nums: Vec<u64>) -> Result<(), Error> {
        let nums: Vec<i64> = nums.into_iter().map(|num| num as i64).collect();
        self.write(move |tx| {
            let nums = nums.clone();
            async move {
                let sql = "UPDATE cell_parts SET state = 1 WHERE num = ANY ($1) AND cell = $2 AND state = 5";
                tx.execute(sql, &[&nums, &number(cell)]).await.map(drop)
            }
        })
        .await
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
        self.write(move |tx| outbox::prune(tx, now, expired, forgotten, rows_max)).await
    }

    async fn provisioned(&self, cell: CellNum) -> Result<Vec<(AppName, [u8; 32])>, Error> {
        self.read(async |tx| {
            let sql = "SELECT app, digest FROM cell_apps WHERE cell = $1 ORDER BY app";
            let rows = tx.query(sql, &[&number(cell)]).await?;
            let read = |row: &Row| {
                let app = AppName::parse(row.get(0)).map_err(|error| Error::Engine(error.to_string()))?;
                Ok((app, bytes(row, 1)?))
            };
            rows.iter().map(read).collect()
        })
        .await
    }

    async fn set_provisioned(
        &self,
        cell: CellNum,
        app: AppName,
        digest: Option<[u8; 32]>,
    ) -> Result<(), Error> {
        self.write(move |tx| set_provisioned(tx, cell, app.clone(), digest)).await
    }
}

/// As it is kept.
fn number(cell: CellNum) -> i64 {
    cell.0.into()
}

fn cell_of(number: i64) -> CellNum {
    CellNum(number as u32)
}

fn bytes<const N: usize>(row: &Row, column: usize) -> Result<[u8; N], Failed> {
    let bytes = <[u8; N]>::try_from(row.get::<_, &[u8]>(column));
    Ok(bytes.map_err(|_| Error::Engine("stored bytes are of another length".to_owned()))?)
}

const COLUMNS: &str = "num, name, weight, draining";

fn record(row: &Row) -> CellRecord {
    CellRecord {
        num: cell_of(row.get(0)),
        name: row.get(1),
        weight: row.get::<_, Option<i64>>(2).map(|weight| weight as u32),
        draining: row.get::<_, i64>(3) != 0,
    }
}

async fn enrol(tx: Tx, names: Arc<Vec<String>>) -> Result<Vec<CellRecord>, Failed> {
    if !names.is_empty() {
        let sql =
            "INSERT INTO cells (name) SELECT name FROM unnest($1::text[]) WITH ORDINALITY AS n (name, place)
                   ORDER BY place ON CONFLICT (name) DO NOTHING";
        tx.execute(sql, &[&*names]).await?;
    }
    let rows = tx.query(&format!("SELECT {COLUMNS} FROM cells ORDER BY num"), &[]).await?;
    Ok(rows.iter().map(record).collect())
}

async fn adjust(tx: Tx, cell: CellNum, change: CellChange) -> Result<CellRecord, Failed> {
    let sql = format!(
        "UPDATE cells SET weight = CASE WHEN $2 THEN $3 ELSE weight END, draining = coalesce($4, draining)
         WHERE num = $1 RETURNING {COLUMNS}"
    );
    let weight = change.weight.flatten().map(i64::from);
    let draining = change.draining.map(i64::from);
    let row = tx.query_opt(&sql, &[&number(cell), &change.weight.is_some(), &weight, &draining]).await?;
    Ok(record(&row.ok_or(Error::NotFound)?))
}

async fn set_provisioned(
    tx: Tx,
    cell: CellNum,
    app: AppName,
    digest: Option<[u8; 32]>,
) -> Result<(), Failed> {
    match digest {
        Some(digest) => {
            let sql = "INSERT INTO cell_apps (cell, app, digest) VALUES ($1, $2, $3)
                       ON CONFLICT (cell, app) DO UPDATE SET digest = $3";
            tx.execute(sql, &[&number(cell), &app.as_str(), &digest.as_slice()]).await.map(drop)
        }
        None => {
            let sql = "DELETE FROM cell_apps WHERE cell = $1 AND app = $2";
            tx.execute(sql, &[&number(cell), &app.as_str()]).await.map(drop)
        }
    }
}
