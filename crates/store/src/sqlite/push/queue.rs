//! Rows of the push queue.

use std::collections::BTreeMap;

use noroshi_types::{AppId, BatchId, CampaignId, DeviceNum, Lane, Outcome, PushService, Timestamp};
use rusqlite::Connection;

pub(in crate::sqlite) use crate::row::Fallback;
use crate::sqlite::campaign::{self, CampaignNum};
use crate::sqlite::device_list;
use crate::sqlite::ids::Num;
use crate::sqlite::variant;
use crate::sqlite::writer::Write;
use crate::{BATCH_RECIPIENTS_MAX, Error, Lease, Renewal, VariantNum};

/// What the rows of one piece of work have in common.
#[derive(Debug, Clone, Copy)]
pub(in crate::sqlite) struct Entry {
    pub app: AppId,
    pub lane: Lane,
    /// None: to be published.
    pub service: Option<PushService>,
    /// 0: of none.
    pub campaign: CampaignNum,
    /// 0: the campaign's message.
    pub num: Num,
    /// Of the campaign's experiment: drawn for all of a row that is written. None: nobody was drawn for yet, or it is
    /// what rows of a batch that ended have in common.
    pub variant: Option<VariantNum>,
    pub due_at: Timestamp,
    pub attempt: u32,
    pub fallback: Fallback,
}

/// One batch; `recipients` must be sorted. Nothing is written for nobody.
pub(in crate::sqlite) fn insert(
    db: &Connection,
    entry: &Entry,
    recipients: &[DeviceNum],
) -> Result<(), Error> {
    if recipients.is_empty() {
        return Ok(());
    }
    let mut statement = db.prepare_cached(
        "INSERT INTO push_queue (app, lane, service, campaign, num, variant, due_at, attempt, fallback,
                                 leased_until, recipients)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 0, ?10)",
    )?;
    statement.execute((
        entry.app.0,
        entry.lane as u8,
        service_code(entry.service),
        entry.campaign,
        entry.num,
        VariantNum::code(entry.variant),
        entry.due_at.0 as i64,
        entry.attempt,
        entry.fallback as u8,
        device_list::encode(recipients),
    ))?;
    Ok(())
}

/// As many batches as it takes; `recipients` must be sorted.
pub(super) fn pack(db: &Connection, entry: &Entry, recipients: &[DeviceNum]) -> Result<(), Error> {
    recipients.chunks(BATCH_RECIPIENTS_MAX).try_for_each(|batch| insert(db, entry, batch))
}

pub(super) fn service_code(service: Option<PushService>) -> u8 {
    service.map_or(0, |service| service as u8)
}

pub(in crate::sqlite) fn sorted(mut devices: Vec<DeviceNum>) -> Vec<DeviceNum> {
    devices.sort_unstable();
    devices.dedup();
    devices
}

pub(super) fn renew(
    db: &Connection,
    leases: &[Lease],
    until: Timestamp,
    why: Renewal,
) -> Result<Vec<BatchId>, Error> {
    let mut statement = db.prepare_cached(
        "UPDATE push_queue SET leased_until = ?3, takes = max(takes + ?4, 0)
         WHERE id = ?1 AND leased_until = ?2 AND leased_until > 0",
    )?;
    let mut renewed = Vec::with_capacity(leases.len());
    for lease in leases {
        if statement.execute((lease.batch.0 as i64, lease.until.0 as i64, until.0 as i64, why.takes()))? > 0 {
            renewed.push(lease.batch);
        }
    }
    Ok(renewed)
}

/// Nobody of an earlier run is still at work. What runs may have ended with lapses at the next take, which spreads it.
pub(in crate::sqlite) fn void_leases(db: &Connection) -> rusqlite::Result<()> {
    db.execute("UPDATE push_queue SET leased_until = takes > 1 WHERE leased_until > 0", ())?;
    Ok(())
}

/// What [`cancel`] found of a notification's work.
pub(in crate::sqlite) struct CancelledWork {
    /// Whom the batches were for that nobody had taken; sorted.
    pub unsent: Vec<DeviceNum>,
    /// There was any, also a walk, or batches under way whose retries are not wanted from now on.
    pub any: bool,
    /// Campaigns that ended with it.
    pub done: Vec<(AppId, CampaignId)>,
}

/// Removes the work of a notification that is not under way, and its walk. A campaign it belongs to counts
/// that.
pub(in crate::sqlite) fn cancel(w: &Write<'_>, num: Num, now: Timestamp) -> Result<CancelledWork, Error> {
    let db = w.db;
    let walks = db.prepare_cached("DELETE FROM push_walks WHERE num = ?1")?.execute((num,))?;
    let any = walks > 0
        || db.prepare_cached("SELECT 1 FROM push_queue WHERE num = ?1 AND num > 0")?.exists((num,))?;
    let mut statement = db.prepare_cached(
        "DELETE FROM push_queue WHERE num = ?1 AND num > 0 AND leased_until = 0 RETURNING recipients, campaign",
    )?;
    let mut rows = statement.query((num,))?;
    let (mut devices, mut campaigns) = (Vec::new(), BTreeMap::new());
    while let Some(row) = rows.next()? {
        let before = devices.len();
        devices.extend(device_list::decode(row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?));
        *campaigns.entry(row.get::<_, CampaignNum>(1)?).or_insert(0) += (devices.len() - before) as u64;
    }
    let mut done = Vec::new();
    for (campaign, count) in campaigns.into_iter().filter(|(campaign, _)| *campaign != 0) {
        campaign::count(db, campaign, Outcome::Cancelled, None, count)?;
        variant::count(db, num, Outcome::Cancelled, None, count)?;
        done.extend(campaign::settle(w, campaign, now)?);
    }
    Ok(CancelledWork { unsent: sorted(devices), any, done })
}

/// Whether a confirmation of the notification would spare somebody a push, where nothing but
/// `push_confirmed` would tell.
pub(in crate::sqlite) fn waits_for_confirmation(db: &Connection, num: Num) -> Result<bool, Error> {
    let mut statement = db.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM push_queue WHERE num = ?1 AND num > 0 AND fallback = 3)
             OR EXISTS (SELECT 1 FROM push_walks WHERE num = ?1 AND fallback = 3)",
    )?;
    Ok(statement.query_row((num,), |row| row.get(0))?)
}

/// Writes a confirmation; false if there was one, or the device is of another app.
pub(in crate::sqlite) fn confirm(db: &Connection, num: Num, device: DeviceNum) -> Result<bool, Error> {
    let mut statement = db.prepare_cached(
        "INSERT OR IGNORE INTO push_confirmed (num, device)
         SELECT n.num, d.num FROM notifications n JOIN devices d ON d.app = n.app WHERE n.num = ?1 AND d.num = ?2",
    )?;
    Ok(statement.execute((num, device.0 as i64))? > 0)
}
