//! [`Cells`] for SQLite. [`crate::engine::cells`] has what both engines share.

mod outbox;
mod residence;

use noroshi_types::{AppId, AppName, DeviceId, NotificationId, Timestamp, UserId};

use super::Sqlite;
use super::statement::{Statements, ready};
use crate::Error;
use crate::cells::{
    Assign, CellChange, CellNum, CellRecord, Cells, Depth, Move, MoveStep, NewMessage, Part, PartEnd,
    Population, Relayed, Relocated, Relocation, Residence, Taken, Wanted,
};
use crate::engine::cells::{self, outbox as messages, residence as places};

#[async_trait::async_trait]
impl Cells for Sqlite {
    async fn enrol(&self, names: Vec<String>) -> Result<Vec<CellRecord>, Error> {
        self.write(names.len(), move |w| ready(cells::enrol(w.db, &names))).await
    }

    async fn adjust(&self, cell: CellNum, change: CellChange) -> Result<CellRecord, Error> {
        self.write(1, move |w| ready(cells::adjust(w.db, cell, change))).await
    }

    async fn populations(&self) -> Result<Vec<Population>, Error> {
        self.read(|db| ready(places::populations(db))).await
    }

    async fn assign(
        &self,
        app: AppId,
        devices: Vec<Assign>,
        now: Timestamp,
    ) -> Result<Vec<Result<Residence, Error>>, Error> {
        self.write(devices.len() * 2, move |w| residence::assign(w.db, app, &devices, now)).await
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
        self.write(1, move |w| ready(places::forget(w.db, app, &device))).await
    }

    async fn relocate(
        &self,
        who: Relocation,
        to: CellNum,
        now: Timestamp,
        asked_until: Timestamp,
    ) -> Result<Relocated, Error> {
        let rows = if let Relocation::Some { limit, .. } = &who { limit * 3 } else { 3 };
        self.write(rows, move |w| ready(places::relocate(w.db, &who, to, now, asked_until))).await
    }

    async fn moves(
        &self,
        from: CellNum,
        step: MoveStep,
        after: Option<(AppId, DeviceId)>,
        limit: usize,
    ) -> Result<Vec<Move>, Error> {
        self.read(move |db| ready(places::moves(db, from, step, after.as_ref(), limit))).await
    }

    async fn advance(
        &self,
        app: AppId,
        device: &DeviceId,
        from: MoveStep,
        to: MoveStep,
    ) -> Result<(), Error> {
        let device = device.clone();
        self.write(1, move |w| ready(places::advance(w.db, app, &device, from, to))).await
    }

    async fn keep(
        &self,
        messages: Vec<NewMessage>,
        now: Timestamp,
    ) -> Result<Vec<Result<Taken, Error>>, Error> {
        self.write(messages.len() * 4, move |w| outbox::keep(w.db, &messages, now)).await
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
        self.read(|db| ready(messages::newest(db))).await
    }

    async fn waits_before(&self, cell: CellNum, app: AppId, num: u64) -> Result<bool, Error> {
        self.read(move |db| ready(messages::waits_before(db, cell, app, num))).await
    }

    async fn end(&self, cell: CellNum, ended: Vec<(u64, PartEnd)>) -> Result<(), Error> {
        self.write(ended.len() * 2, move |w| outbox::end(w.db, cell, &ended)).await
    }

    async fn relayed(&self, app: AppId, id: NotificationId) -> Result<Option<Relayed>, Error> {
        self.read(move |db| Ok(ready(messages::relayed(db, id))?.filter(|found| found.app == app))).await
    }

    async fn relayed_as(&self, cell: CellNum, remote: NotificationId) -> Result<Option<Relayed>, Error> {
        self.read(move |db| ready(messages::relayed_as(db, cell, remote))).await
    }

    async fn cancel_relayed(&self, app: AppId, id: NotificationId) -> Result<Option<Relayed>, Error> {
        self.write(8, move |w| ready(messages::cancel(w.db, app, id))).await
    }

    async fn cancelling(
        &self,
        cell: CellNum,
        limit: usize,
    ) -> Result<Vec<(u64, AppId, NotificationId)>, Error> {
        self.read(move |db| ready(messages::cancelling(db, cell, limit))).await
    }

    async fn cancelled(&self, cell: CellNum, nums: Vec<u64>) -> Result<(), Error> {
        self.write(nums.len(), move |w| {
            let sql = "UPDATE cell_parts SET state = 1 WHERE num = ?1 AND cell = ?2 AND state = 5";
            nums.iter().try_for_each(|num| w.db.run(sql, (*num as i64, cell.0)).map(drop))
        })
        .await
    }

    async fn depths(&self) -> Result<Vec<Depth>, Error> {
        self.read(|db| ready(messages::depths(db))).await
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
        self.read(move |db| ready(cells::provisioned(db, cell))).await
    }

    async fn set_provisioned(
        &self,
        cell: CellNum,
        app: AppName,
        digest: Option<[u8; 32]>,
    ) -> Result<(), Error> {
        self.write(1, move |w| ready(cells::set_provisioned(w.db, cell, &app, digest))).await
    }
}
