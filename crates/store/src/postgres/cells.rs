//! [`Cells`] for PostgreSQL. [`crate::engine::cells`] has what both engines share.

mod outbox;
mod residence;

use std::sync::Arc;

use noroshi_types::{AppId, AppName, DeviceId, NotificationId, Timestamp, UserId};

use super::Postgres;
use super::transaction::Tx;
use crate::Error;
use crate::cells::{
    Assign, CellChange, CellNum, CellRecord, Cells, Depth, Move, MoveStep, NewMessage, Part, PartEnd,
    Population, Relayed, Relocated, Relocation, Residence, Taken, Wanted,
};
use crate::engine::cells::{self, number, outbox as messages, residence as places};

#[async_trait::async_trait]
impl Cells for Postgres {
    async fn enrol(&self, names: Vec<String>) -> Result<Vec<CellRecord>, Error> {
        let enrol = async |tx: Tx, names: Vec<String>| cells::enrol(&tx, &names).await;
        self.write_with(names, enrol).await
    }

    async fn adjust(&self, cell: CellNum, change: CellChange) -> Result<CellRecord, Error> {
        self.write(move |tx| async move { cells::adjust(&tx, cell, change).await }).await
    }

    async fn populations(&self) -> Result<Vec<Population>, Error> {
        self.read(async |tx: Tx| places::populations(&tx).await).await
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
        // A name that occurs twice is answered twice.
        Ok(names.iter().map(|name| found.get(*name).cloned().unwrap_or_default()).collect())
    }

    async fn forget_device(&self, app: AppId, device: &DeviceId) -> Result<(), Error> {
        let forget = move |tx, device| async move { places::forget(&tx, app, &device).await };
        self.write_with(device.clone(), forget).await
    }

    async fn relocate(
        &self,
        who: Relocation,
        to: CellNum,
        now: Timestamp,
        asked_until: Timestamp,
    ) -> Result<Relocated, Error> {
        let relocate = move |tx, who| async move { places::relocate(&tx, &who, to, now, asked_until).await };
        self.write_with(who, relocate).await
    }

    async fn moves(
        &self,
        from: CellNum,
        step: MoveStep,
        after: Option<(AppId, DeviceId)>,
        limit: usize,
    ) -> Result<Vec<Move>, Error> {
        self.read(async |tx: Tx| places::moves(&tx, from, step, after.as_ref(), limit).await).await
    }

    async fn advance(
        &self,
        app: AppId,
        device: &DeviceId,
        from: MoveStep,
        to: MoveStep,
    ) -> Result<(), Error> {
        let advance = move |tx, device| async move { places::advance(&tx, app, &device, from, to).await };
        self.write_with(device.clone(), advance).await
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
        self.read(async |tx: Tx| messages::waits_before(&tx, cell, app, num).await).await
    }

    async fn end(&self, cell: CellNum, ended: Vec<(u64, PartEnd)>) -> Result<(), Error> {
        let ended = Arc::new(ended);
        self.write(move |tx| outbox::end(tx, cell, ended.clone())).await
    }

    async fn relayed(&self, app: AppId, id: NotificationId) -> Result<Option<Relayed>, Error> {
        let found = self.read(async |tx: Tx| messages::relayed(&tx, id).await).await?;
        Ok(found.filter(|found| found.app == app))
    }

    async fn relayed_as(&self, cell: CellNum, remote: NotificationId) -> Result<Option<Relayed>, Error> {
        self.read(async |tx: Tx| messages::relayed_as(&tx, cell, remote).await).await
    }

    async fn cancel_relayed(&self, app: AppId, id: NotificationId) -> Result<Option<Relayed>, Error> {
        self.write(move |tx| async move { messages::cancel(&tx, app, id).await }).await
    }

    async fn cancelling(
        &self,
        cell: CellNum,
        limit: usize,
    ) -> Result<Vec<(u64, AppId, NotificationId)>, Error> {
        self.read(async |tx: Tx| messages::cancelling(&tx, cell, limit).await).await
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
        self.read(async |tx: Tx| messages::depths(&tx).await).await
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
        self.read(async |tx: Tx| cells::provisioned(&tx, cell).await).await
    }

    async fn set_provisioned(
        &self,
        cell: CellNum,
        app: AppName,
        digest: Option<[u8; 32]>,
    ) -> Result<(), Error> {
        let set = move |tx, app| async move { cells::set_provisioned(&tx, cell, &app, digest).await };
        self.write_with(app, set).await
    }
}
