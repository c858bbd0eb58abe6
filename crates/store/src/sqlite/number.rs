//! Looks up the numbers that the store gives to devices and campaigns.

use noroshi_types::{AppId, CampaignId, DeviceId, DeviceNum};

use super::statement::{Db, ready};
use crate::engine::campaign::CampaignNum;
use crate::{Error, engine};

pub(super) fn device(db: &Db, app: AppId, device: &DeviceId) -> Result<Option<DeviceNum>, Error> {
    ready(engine::device::number(db, app, device))
}

pub(super) fn campaign(db: &Db, app: AppId, id: CampaignId) -> Result<Option<CampaignNum>, Error> {
    ready(engine::campaign::number(db, app, id))
}
