//! Inboxes: a row for every notification a device has not confirmed.
//!
//! A device keeps its newest `Options::inbox_rows` rows, and up to [`limits::inbox_slack`] more. To
//! count them for every row written would cost a walk through the inbox each time; [`Room`]
//! remembers how many rows a device can take without counting again.

use std::collections::HashMap;
use std::sync::Arc;

use noroshi_types::{AppId, DeviceId, DeviceNum, Message, Outcome, Timestamp, limits};
use rusqlite::Connection;

use super::backlog::Reading;
use super::ids::{self, Ids, Num};
use super::writer::Write;
use super::{device, outcome};
use crate::{Departed, Device, Error, FirstCall, InboxPage, InboxPlace, InboxRange, Work};

/// Devices remembered: 16 bytes each, 4 MiB.
const ROOM_DEVICES: usize = 1 << 18;

/// How many rows each device can take before its inbox has to be counted again. A lower bound: rows
/// that leave, and an operation that is undone, only make more room.
#[derive(Default)]
pub(super) struct Room(HashMap<DeviceNum, u32>);

impl Room {
    /// Takes one place, if there is one for sure.
    fn take(&mut self, device: DeviceNum) -> bool {
        match self.0.get_mut(&device) {
            Some(left) if *left > 0 => {
                *left -= 1;
                true
            }
            _ => false,
        }
    }

    /// After rows came back that were counted as gone.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    fn note(&mut self, device: DeviceNum, left: u32) {
        if self.0.len() >= ROOM_DEVICES {
            self.0.clear();
        }
        self.0.insert(device, left);
    }
}

/// Puts a notification into the inboxes of `devices` (sorted); what that pushed out.
pub(super) fn deliver(
    w: &mut Write<'_>,
    num: Num,
    collapse_key: Option<&str>,
    devices: &[DeviceNum],
    now: Timestamp,
) -> Result<Departed, Error> {
    let mut left = Departures::default();
    let mut insert =
        w.db.prepare_cached("INSERT INTO inbox (device, num, collapse_key) VALUES (?1, ?2, ?3)")?;
    for &device in devices {
        if let Some(key) = collapse_key {
            collapse(w.db, device, key, &mut left)?;
        }
        insert.execute((device.0 as i64, num, collapse_key))?;
        if !w.room.take(device) {
            make_room(w, device, &mut left)?;
        }
    }
    outcome::add(w.db, num, Outcome::Kept, now, devices, devices.len() as u64)?;
    left.record(w, now)
}

/// Removes the older rows of the key.
fn collapse(db: &Connection, device: DeviceNum, key: &str, left: &mut Departures) -> Result<(), Error> {
    let mut statement =
        db.prepare_cached("DELETE FROM inbox WHERE device = ?1 AND collapse_key = ?2 RETURNING num")?;
    let mut rows = statement.query((device.0 as i64, key))?;
    while let Some(row) = rows.next()? {
        left.add(row.get(0)?, Outcome::Collapsed, device);
    }
    Ok(())
}

/// Counts an inbox that just got a row. One that is above the limit and its slack loses its oldest rows.
fn make_room(w: &mut Write<'_>, device: DeviceNum, left: &mut Departures) -> Result<(), Error> {
    let rows = count(w.db, device)?;
    let rows_max = w.options.inbox_rows.max(1);
    let slack = limits::inbox_slack(rows_max);
    if let Some(room) = (rows_max + slack).checked_sub(rows) {
        w.room.note(device, room);
        return Ok(());
    }
    let mut statement = w.db.prepare_cached(
        "DELETE FROM inbox WHERE device = ?1
         AND num IN (SELECT num FROM inbox WHERE device = ?1 ORDER BY num LIMIT ?2) RETURNING num",
    )?;
    let mut evicted = statement.query((device.0 as i64, rows - rows_max))?;
    while let Some(row) = evicted.next()? {
        left.add(row.get(0)?, Outcome::Evicted, device);
    }
    w.room.note(device, slack);
    Ok(())
}

fn count(db: &Connection, device: DeviceNum) -> Result<u32, Error> {
    let mut statement = db.prepare_cached("SELECT count(*) FROM inbox WHERE device = ?1")?;
    Ok(statement.query_row((device.0 as i64,), |row| row.get(0))?)
}

/// Rows that left because of others, by notification.
#[derive(Default)]
struct Departures(HashMap<(Num, u8), (Outcome, Vec<DeviceNum>)>);

impl Departures {
    fn add(&mut self, num: Num, outcome: Outcome, device: DeviceNum) {
        self.0.entry((num, outcome as u8)).or_insert_with(|| (outcome, Vec::new())).1.push(device);
    }

    /// Devices were visited in order, so each list is sorted.
    fn record(self, w: &Write<'_>, now: Timestamp) -> Result<Departed, Error> {
        let mut departed = Departed::default();
        for ((num, _), (outcome, devices)) in self.0 {
            outcome::add(w.db, num, outcome, now, &devices, devices.len() as u64)?;
            departed.add(Some(Work::Notification(w.ids.id(num))), outcome, now, &devices);
        }
        Ok(departed)
    }
}

/// Removes the row of a notification from one inbox; true if there was one.
pub(super) fn remove(db: &Connection, device: DeviceNum, num: Num) -> Result<bool, Error> {
    let mut statement = db.prepare_cached("DELETE FROM inbox WHERE device = ?1 AND num = ?2")?;
    Ok(statement.execute((device.0 as i64, num))? > 0)
}

/// Removes the rows of a notification from the inboxes of `devices`, at most `rows_max`; those that
/// had one.
pub(super) fn remove_from(
    db: &Connection,
    devices: &[DeviceNum],
    num: Num,
    rows_max: usize,
) -> Result<Vec<DeviceNum>, Error> {
    let mut removed = Vec::new();
    for &device in devices {
        if removed.len() == rows_max {
            break;
        }
        if remove(db, device, num)? {
            removed.push(device);
        }
    }
    Ok(removed)
}

/// Removes everything from one inbox and records why.
pub(super) fn empty(db: &Connection, device: DeviceNum, why: Outcome, now: Timestamp) -> Result<(), Error> {
    let mut statement = db.prepare_cached("DELETE FROM inbox WHERE device = ?1 RETURNING num")?;
    let rows = statement.query_map((device.0 as i64,), |row| row.get(0))?;
    let nums = rows.collect::<rusqlite::Result<Vec<Num>>>()?;
    for num in nums {
        outcome::add(db, num, why, now, &[device], 1)?;
    }
    Ok(())
}

/// The oldest `limit` messages that have not expired, and how many there are in all.
pub(super) fn list(
    db: &Connection,
    ids: &Ids,
    app: AppId,
    device: &DeviceId,
    limit: usize,
    now: Timestamp,
) -> Result<(Vec<Arc<Message>>, u64), Error> {
    let device = device::number(db, app, device)?.ok_or(Error::NotFound)?;
    let messages = Reading::new(db, ids).inbox_after(device, 0, limit, now)?;
    let mut statement = db.prepare_cached(
        "SELECT count(*) FROM inbox i JOIN notifications n ON n.num = i.num WHERE i.device = ?1 AND n.expires_at > ?2",
    )?;
    let total: i64 = statement.query_row((device.0 as i64, now.0 as i64), |row| row.get(0))?;
    Ok((messages, total as u64))
}

/// Part of an inbox; none if it is to begin at a message that is not in it.
pub(super) fn range(db: &Connection, ids: &Ids, asked: &InboxRange) -> Result<Option<InboxPage>, Error> {
    let device = device::number(db, asked.app, &asked.device)?.ok_or(Error::NotFound)?.0 as i64;
    let (now, (since, until)) = (asked.now.0 as i64, ids::numbers(asked.since, asked.until));
    let of = "FROM inbox i JOIN notifications n ON n.num = i.num
              WHERE i.device = ?1 AND i.num BETWEEN ?2 AND ?3 AND n.expires_at > ?4";
    let count = |since: Num, until: Num| -> Result<u64, Error> {
        let mut statement = db.prepare_cached(&format!("SELECT count(*) {of}"))?;
        let count: i64 = statement.query_row((device, since, until, now), |row| row.get(0))?;
        Ok(count as u64)
    };
    let (first, last, order) = match asked.place {
        InboxPlace::First => (since, until, "ASC"),
        InboxPlace::Last => (since, until, "DESC"),
        InboxPlace::After(id) | InboxPlace::Before(id) => match ids.num(id) {
            Some(num) if count(num, num)? > 0 => match asked.place {
                InboxPlace::After(_) => (since.max(num.saturating_add(1)), until, "ASC"),
                _ => (since, until.min(num - 1), "DESC"),
            },
            _ => return Ok(None),
        },
    };
    let mut statement = db.prepare_cached(&format!("SELECT i.num {of} ORDER BY i.num {order} LIMIT ?5"))?;
    let limit = i64::try_from(asked.limit).unwrap_or(i64::MAX);
    let rows = statement.query_map((device, first, last, now, limit), |row| row.get(0))?;
    let mut nums = rows.collect::<rusqlite::Result<Vec<Num>>>()?;
    nums.sort_unstable();
    let mut reading = Reading::new(db, ids);
    let messages = nums.iter().map(|num| reading.message(*num)).collect::<Result<Vec<_>, _>>()?;
    let index = match nums.first() {
        Some(first) if *first > since => count(since, *first - 1)?,
        _ => 0,
    };
    Ok(Some(InboxPage {
        messages: messages.into_iter().flatten().collect(),
        index,
        total: count(since, until)?,
    }))
}

/// What the inbox of a device holds, with its newest messages.
pub(super) fn first_call(
    db: &Connection,
    ids: &Ids,
    device: Device,
    newest: usize,
    now: Timestamp,
) -> Result<FirstCall, Error> {
    let num = device.num.0 as i64;
    let mut statement = db.prepare_cached(
        "SELECT count(*), min(n.expires_at) FROM inbox i JOIN notifications n ON n.num = i.num
         WHERE i.device = ?1 AND n.expires_at > ?2",
    )?;
    let (unread, expires_at) = statement.query_row((num, now.0 as i64), |row| {
        Ok((row.get::<_, i64>(0)? as u64, row.get::<_, Option<i64>>(1)?.map(|at| Timestamp(at as u64))))
    })?;
    let newest = match unread {
        0 => Vec::new(),
        _ => Reading::new(db, ids).inbox_newest(device.num, newest, now)?,
    };
    Ok(FirstCall { device, unread, newest, expires_at })
}
