//! Looks up the numbers that the store gives to devices and campaigns.

use noroshi_types::{AppId, CampaignId, DeviceId, DeviceNum};
use rusqlite::Connection;

use super::statement::Statements;
use crate::Error;
use crate::engine::campaign::CampaignNum;
use crate::engine::record::Record;

pub(super) fn device(db: &Connection, app: AppId, device: &DeviceId) -> Result<Option<DeviceNum>, Error> {
    let sql = "SELECT num FROM devices WHERE app = ?1 AND id = ?2";
    db.first(sql, (app.0, device.as_str()), |row| row.device(0))
}

pub(super) fn campaign(db: &Connection, app: AppId, id: CampaignId) -> Result<Option<CampaignNum>, Error> {
    let sql = "SELECT num FROM campaigns WHERE id = ?1 AND app = ?2";
    db.first(sql, (id.as_bytes(), app.0), |row| row.int(0))
}
