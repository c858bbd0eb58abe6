//! What became of a notification, as callers ask for it, and cancelling one.

use noroshi_types::{AppId, DeviceNum, NotificationId, Outcome, Timestamp};

use super::notification::{self, MESSAGE_COLUMNS};
use super::reader::Read;
use super::statement::ready;
use super::writer::Write;
use super::{campaign_row, inbox, outcome, push_queue, topic};
use crate::engine::broadcast;
use crate::engine::notification::{STATE_COLUMNS, Standing, notification_state};
use crate::engine::outcome::Part;
use crate::engine::push::sorted;
use crate::engine::record::Record;
use crate::engine::topic::TopicNum;
use crate::engine::{item, opened};
use crate::metrics::Held;
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

/// Inboxes that one commit of [`cancel`] looks into: about 10 ms.
pub(super) const CANCEL_PAGE: usize = 2_000;

/// How far a cancellation is. Dropping it half-way leaves a notification that a later call cancels for the other
/// devices.
#[derive(Debug, Default)]
pub(super) struct Cancelling {
    from: u64,
    /// The devices of earlier commits, sorted.
    removed: Vec<DeviceNum>,
}

/// A step of a cancellation.
pub(super) enum CancelStep {
    More(Cancelling),
    Done(Cancelled),
}

/// Removes everything not acknowledged yet, from at most [`CANCEL_PAGE`] inboxes at a time. The standing changes with
/// the last step, and only if something was removed.
pub(super) fn cancel(
    w: &Write<'_>,
    app: AppId,
    id: NotificationId,
    before: Cancelling,
    now: Timestamp,
) -> Result<CancelStep, Error> {
    w.held.set(Held::Cancel);
    let num = w.ids.num(id).ok_or(Error::NotFound)?;
    let sql = "SELECT topic, topic_offset, standing FROM notifications WHERE num = ?1 AND app = ?2";
    let found = w.db.first(sql, (num, app.0), |row| {
        Ok((row.int_or_null(0)?, row.int_or_null(1)?, Standing::from_code(row.code(2)?)))
    })?;
    let had_items = ready(item::cancel(w.db, app, num, now))?;
    let (topic, offset, standing): (Option<TopicNum>, _, _) = match found {
        Some(found) => found,
        None if had_items => return Ok(CancelStep::Done(Cancelled::default())),
        None => return Err(Error::NotFound),
    };
    let Cancelling { from, mut removed } = before;
    let recorded = removed.clone();
    let mut changed = false;
    if let (Some(topic), Some(offset)) = (topic, offset) {
        changed = topic::remove_from_log(w.db, topic, offset, num)? | topic::unretain(w.db, topic, num)?;
    } else if standing == Standing::Kept {
        let page = outcome::kept_page(w.db, num, from, CANCEL_PAGE)?;
        let of_page = sorted(inbox::remove_from(w.db, &page.devices, num)?);
        removed = sorted([removed, of_page.clone()].concat());
        if let Some(from) = page.next {
            outcome::add(w.db, &Part::of(num, Outcome::Cancelled, now, of_page))?;
            return Ok(CancelStep::More(Cancelling { from, removed }));
        }
    }
    let work = push_queue::cancel(w.db, num)?;
    let mut done = Vec::new();
    for count in work.counts(num) {
        campaign_row::count(w.db, &count)?;
        done.extend(campaign_row::settle(w, count.campaign, now)?);
    }
    let broadcasts = ready(broadcast::cancel_notification(w.db, id, now))?;
    if changed || !removed.is_empty() || work.any || broadcasts {
        notification::set_standing(w.db, num, Standing::Cancelled)?;
    }
    let (result, parts) = work.result((app, num, id), removed, done, now);
    for Part { mut devices, .. } in parts {
        devices.retain(|device| recorded.binary_search(device).is_err());
        outcome::add(w.db, &Part::of(num, Outcome::Cancelled, now, devices))?;
    }
    Ok(CancelStep::Done(result))
}
