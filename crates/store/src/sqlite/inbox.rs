//! Inboxes: one row for each notification that a device has not acknowledged.

use std::collections::HashMap;
use std::sync::Arc;

use noroshi_types::{AppId, DeviceId, DeviceNum, Message, Outcome, Timestamp, limits};

use super::backlog::Reading;
use super::reader::Read;
use super::room::Taken;
use super::statement::{Db, ready};
use super::writer::Write;
use super::{number, outcome, staged};
use crate::engine::inbox::Range;
use crate::engine::outcome::Part;
use crate::engine::record::Record;
use crate::ids::Num;
use crate::{Error, InboxPage, InboxRange, RemovedMessages, Work, engine};

/// Adds a notification to the inboxes of `devices` (sorted). Returns what it replaced or evicted. Rows without a
/// collapse key are staged: collapsing never looks for them.
pub(super) fn deliver(
    w: &mut Write<'_>,
    (app, num): (AppId, Num),
    collapse_key: Option<&str>,
    devices: &[DeviceNum],
    now: Timestamp,
) -> Result<RemovedMessages, Error> {
    let mut removed = RemovedRows::default();
    let is_staged = collapse_key.is_none() && w.staged.takes(devices.len(), w.options);
    let mut insert = w.db.prepare_cached(staged::INSERT)?;
    for &device in devices {
        if let Some(key) = collapse_key {
            collapse(w.db, device, key, &mut removed)?;
        }
        match is_staged {
            true => w.staged.add(device, num),
            false => drop(insert.execute((device.0 as i64, num, collapse_key))?),
        }
        match w.room.take(device) {
            Taken::Yes => {}
            Taken::Full => {
                let staged = w.staged.rows_of(device);
                make_room(w, device, staged, &mut removed)?;
            }
            Taken::Unknown => make_room(w, device, u32::from(is_staged), &mut removed)?,
        }
    }
    outcome::add(w.db, &Part::of(num, Outcome::Kept, now, devices.to_vec()))?;
    removed.record(w, app, now)
}

/// Writes a notification to the inboxes of some of its devices (sorted), at once. Keeps older rows with the same
/// collapse key. The caller records [`Outcome::Kept`].
pub(super) fn write(
    w: &mut Write<'_>,
    num: Num,
    collapse_key: Option<&str>,
    devices: &[DeviceNum],
    removed: &mut RemovedRows,
) -> Result<(), Error> {
    let mut insert = w.db.prepare_cached(staged::INSERT)?;
    for &device in devices {
        insert.execute((device.0 as i64, num, collapse_key))?;
        match w.room.take(device) {
            Taken::Yes => {}
            Taken::Full | Taken::Unknown => make_room(w, device, 0, removed)?,
        }
    }
    Ok(())
}

/// Removes the rows of a collapse key that are older than `num`.
pub(super) fn collapse_before(
    db: &Db,
    num: Num,
    key: &str,
    devices: &[DeviceNum],
    removed: &mut RemovedRows,
) -> Result<(), Error> {
    let mut statement = db.prepare_cached(
        "DELETE FROM inbox WHERE device = ?1 AND collapse_key = ?2 AND num < ?3 RETURNING num",
    )?;
    for &device in devices {
        let mut rows = statement.query((device.0 as i64, key, num))?;
        while let Some(row) = rows.next()? {
            removed.add(row.get(0)?, Outcome::Collapsed, device);
        }
    }
    Ok(())
}

/// Removes older rows with the same collapse key.
fn collapse(db: &Db, device: DeviceNum, key: &str, removed: &mut RemovedRows) -> Result<(), Error> {
    let mut statement =
        db.prepare_cached("DELETE FROM inbox WHERE device = ?1 AND collapse_key = ?2 RETURNING num")?;
    let mut rows = statement.query((device.0 as i64, key))?;
    while let Some(row) = rows.next()? {
        removed.add(row.get(0)?, Outcome::Collapsed, device);
    }
    Ok(())
}

/// Counts an inbox that just got a row, with `staged` rows that are not written yet. If it exceeds the limit and its
/// slack, its oldest rows are evicted: these are written, see [`super::staged::Staged::is_full`].
fn make_room(
    w: &mut Write<'_>,
    device: DeviceNum,
    staged: u32,
    removed: &mut RemovedRows,
) -> Result<(), Error> {
    let sql = "SELECT count(*) FROM inbox WHERE device = ?1";
    let rows = w.db.int(sql, (device.0 as i64,))? as u32 + staged;
    let rows_max = w.options.inbox_rows.max(1);
    let slack = limits::inbox_slack(rows_max);
    if let Some(room) = (rows_max + slack).checked_sub(rows) {
        w.room.set(device, room);
        return Ok(());
    }
    let mut statement = w.db.prepare_cached(
        "DELETE FROM inbox WHERE device = ?1
         AND num IN (SELECT num FROM inbox WHERE device = ?1 ORDER BY num LIMIT ?2) RETURNING num",
    )?;
    let mut evicted = statement.query((device.0 as i64, rows - rows_max))?;
    while let Some(row) = evicted.next()? {
        removed.add(row.get(0)?, Outcome::Evicted, device);
    }
    w.room.set(device, slack);
    Ok(())
}

/// Rows that a delivery removed, by notification.
#[derive(Default)]
pub(super) struct RemovedRows(HashMap<(Num, u8), (Outcome, Vec<DeviceNum>)>);

impl RemovedRows {
    fn add(&mut self, num: Num, outcome: Outcome, device: DeviceNum) {
        self.0.entry((num, outcome as u8)).or_insert_with(|| (outcome, Vec::new())).1.push(device);
    }

    /// Devices were visited in order, so each list is sorted. All are of one app.
    pub(super) fn record(self, w: &Write<'_>, app: AppId, now: Timestamp) -> Result<RemovedMessages, Error> {
        let mut departed = RemovedMessages::default();
        for ((num, _), (outcome, devices)) in self.0 {
            departed.add(app, Some(Work::Notification(w.ids.id(num))), outcome, now, &devices);
            outcome::add(w.db, &Part::of(num, outcome, now, devices))?;
        }
        Ok(departed)
    }
}

/// Removes the row of a notification from one inbox.
pub(super) const REMOVE: &str = "DELETE FROM inbox WHERE device = ?1 AND num = ?2";

/// Removes a notification from the inboxes of `devices`. Returns the devices that had it.
pub(super) fn remove_from(db: &Db, devices: &[DeviceNum], num: Num) -> Result<Vec<DeviceNum>, Error> {
    let mut removed = Vec::new();
    let mut remove = db.prepare_cached(REMOVE)?;
    for &device in devices {
        if remove.execute((device.0 as i64, num))? > 0 {
            removed.push(device);
        }
    }
    Ok(removed)
}

/// Removes all rows of an inbox and records them with this outcome.
pub(super) fn empty(db: &Db, device: DeviceNum, why: Outcome, now: Timestamp) -> Result<(), Error> {
    let sql = "DELETE FROM inbox WHERE device = ?1 RETURNING num";
    for num in db.all(sql, (device.0 as i64,), |row| row.int(0))? {
        outcome::add(db, &Part::of(num, why, now, vec![device]))?;
    }
    Ok(())
}

/// The oldest `limit` messages that have not expired, and how many there are in all.
pub(crate) fn list(
    read: Read<'_>,
    app: AppId,
    device: &DeviceId,
    limit: usize,
    now: Timestamp,
) -> Result<(Vec<Arc<Message>>, u64), Error> {
    let device = number::device(read.db, app, device)?.ok_or(Error::NotFound)?;
    let messages = Reading::new(read).inbox(device, 0, "ASC", limit, now)?;
    Ok((messages, ready(engine::inbox::unread(read.db, device, now))?))
}

/// Part of an inbox; `None` if the message to start at is not in it.
pub(crate) fn range(read: Read<'_>, asked: &InboxRange) -> Result<Option<InboxPage>, Error> {
    let Some(Range { nums, index, total }) = ready(engine::inbox::range(read.db, read.ids, asked))? else {
        return Ok(None);
    };
    let mut reading = Reading::new(read);
    let messages = nums.iter().map(|num| reading.message(*num)).collect::<Result<Vec<_>, _>>()?;
    Ok(Some(InboxPage { messages: messages.into_iter().flatten().collect(), index, total }))
}
