//! What became of a notification, as callers ask for it, and cancelling one.

use noroshi_types::{AppId, NotificationId, Timestamp};

use super::notification::{self, MESSAGE_COLUMNS};
use super::reader::Read;
use super::statement::ready;
use super::writer::Write;
use super::{campaign_row, inbox, outcome, push_queue, topic};
use crate::engine::notification::{STATE_COLUMNS, Standing, notification_state};
use crate::engine::opened;
use crate::engine::record::Record;
use crate::engine::topic::TopicNum;
use crate::{Cancelled, Error, NotificationState};

pub(super) fn state(
    Read { db, ids }: Read<'_>,
    app: AppId,
    id: NotificationId,
    now: Timestamp,
) -> Result<Option<NotificationState>, Error> {
    let Some(num) = ids.num(id) else { return Ok(None) };
    let sql = format!(
        "SELECT {MESSAGE_COLUMNS}, {STATE_COLUMNS}
         FROM notifications n LEFT JOIN topics t ON t.num = n.topic WHERE n.num = ?1 AND n.app = ?2"
    );
    db.first(&sql, (num, app.0), |row| {
        notification_state(row, ids, outcome::sums(db, num)?, ready(opened::count(db, num))?, now)
    })
}

/// Removes everything not acknowledged yet. The standing changes only if something was removed.
pub(super) fn cancel(
    w: &Write<'_>,
    app: AppId,
    id: NotificationId,
    now: Timestamp,
) -> Result<Cancelled, Error> {
    let num = w.ids.num(id).ok_or(Error::NotFound)?;
    let sql = "SELECT topic, topic_offset, standing FROM notifications WHERE num = ?1 AND app = ?2";
    let found = w.db.first(sql, (num, app.0), |row| {
        Ok((row.int_or_null(0)?, row.int_or_null(1)?, Standing::from_code(row.code(2)?)))
    })?;
    let (topic, offset, standing): (Option<TopicNum>, _, _) = found.ok_or(Error::NotFound)?;
    let mut removed = Vec::new();
    let mut changed = false;
    if let (Some(topic), Some(offset)) = (topic, offset) {
        changed = topic::remove_from_log(w.db, topic, offset, num)? | topic::unretain(w.db, topic, num)?;
    } else if standing == Standing::Kept {
        let devices = outcome::outstanding_devices(w.db, num)?;
        removed = inbox::remove_from(w.db, &devices, num, usize::MAX)?;
    }
    let work = push_queue::cancel(w.db, num)?;
    let mut done = Vec::new();
    for count in work.counts(num) {
        campaign_row::count(w.db, &count)?;
        done.extend(campaign_row::settle(w, count.campaign, now)?);
    }
    if changed || !removed.is_empty() || work.any {
        notification::set_standing(w.db, num, Standing::Cancelled)?;
    }
    let (result, parts) = work.result((num, id), removed, done, now);
    for part in &parts {
        outcome::add(w.db, part)?;
    }
    Ok(result)
}
