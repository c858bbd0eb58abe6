//! What became of a notification, as callers ask for it, and cancelling one.

use noroshi_types::{AppId, DeviceNum, NotificationId, Timestamp};

use super::backlog::MESSAGE_COLUMNS;
use super::transaction::{Failed, Tx, Values};
use super::{Postgres, campaign_row, campaign_sum, inbox, outcome, push_queue, topic_log};
use crate::engine::broadcast;
use crate::engine::campaign::CampaignNum;
use crate::engine::notification::{STATE_COLUMNS, Standing, notification_state};
use crate::engine::outcome::NO_SUMS;
use crate::engine::push::Done;
use crate::engine::record::Record;
use crate::engine::{item, opened};
use crate::ids::Num;
use crate::{Cancelled, Error, NotificationState};

pub(super) async fn state(
    store: &Postgres,
    app: AppId,
    id: NotificationId,
    now: Timestamp,
) -> Result<Option<NotificationState>, Error> {
    let Some(num) = store.context.ids.num(id) else { return Ok(None) };
    let sql = format!(
        "SELECT {MESSAGE_COLUMNS}, {STATE_COLUMNS}
         FROM notifications n LEFT JOIN topics t ON t.num = n.topic WHERE n.num = $1 AND n.app = $2"
    );
    let read = async |tx: Tx| {
        let (nums, app) = ([num], i64::from(app.0));
        let values: Values<'_> = &[&num, &app];
        let (found, sums, opened) =
            tokio::try_join!(tx.query_opt(&sql, values), outcome::sums(&tx, &nums), opened::count(&tx, num))?;
        let Some(row) = found else { return Ok(None) };
        let sums = sums.get(&num).copied().unwrap_or(NO_SUMS);
        Ok(Some(notification_state(&row, tx.ids(), sums, opened, now)?))
    };
    store.read(read).await
}

/// Removes everything not acknowledged yet. The standing changes only if something was removed.
pub(super) async fn cancel(
    store: &Postgres,
    app: AppId,
    id: NotificationId,
    now: Timestamp,
) -> Result<Cancelled, Error> {
    let num = store.context.ids.num(id).ok_or(Error::NotFound)?;
    store.write(move |tx| cancel_in(tx, app, (num, id), now)).await
}

async fn cancel_in(
    tx: Tx,
    app: AppId,
    (num, id): (Num, NotificationId),
    now: Timestamp,
) -> Result<Cancelled, Failed> {
    // Not locked: accepting and pruning lock topics before notifications.
    let sql = "SELECT topic, topic_offset, standing FROM notifications WHERE num = $1 AND app = $2";
    let found = tx.query_opt(sql, &[&num, &i64::from(app.0)]).await?;
    let had_items = item::cancel(&tx, app, num, now).await?;
    let Some(row) = found else {
        return if had_items { Ok(Cancelled::default()) } else { Err(Error::NotFound.into()) };
    };
    let (topic, standing): (_, _) = (row.int_or_null(0)?, Standing::from_code(row.code(2)?));
    let mut changed = false;
    if let Some(topic) = topic {
        changed = topic_log::cancel(&tx, topic, num).await?;
    }
    // Locks in the order of `push::claim`: queue, inboxes, campaigns.
    let work = push_queue::cancel(&tx, num).await?;
    let removed = match topic {
        None if standing == Standing::Kept => remove_from_inboxes(&tx, num).await?,
        _ => Vec::new(),
    };
    let nums: Vec<CampaignNum> = work.campaigns.keys().copied().collect();
    let done = end_campaigns(&tx, &nums, now).await?;
    campaign_sum::count(&tx, work.counts(num)).await?;
    let broadcasts = broadcast::cancel_notification(&tx, id, now).await?;
    if changed || !removed.is_empty() || work.any || broadcasts {
        tx.execute("UPDATE notifications SET standing = 4 WHERE num = $1", &[&num]).await?;
    }
    let (result, parts) = work.result((app, num, id), removed, done, now);
    outcome::add(&tx, &parts).await?;
    Ok(result)
}

/// Removes a notification from inboxes. Returns their devices, sorted.
async fn remove_from_inboxes(tx: &Tx, num: Num) -> Result<Vec<DeviceNum>, Failed> {
    let parts = outcome::parts(tx, &[num]).await?;
    let devices = outcome::outstanding_devices(parts.iter());
    let devices: Vec<i64> = devices.iter().map(|device| device.0 as i64).collect();
    let removed = inbox::remove(tx, &devices, &vec![num; devices.len()]).await?;
    let mut removed: Vec<DeviceNum> = removed.into_iter().map(|(device, _)| device).collect();
    removed.sort_unstable();
    Ok(removed)
}

/// Ends those of the campaigns whose last batch was removed.
async fn end_campaigns(tx: &Tx, nums: &[CampaignNum], now: Timestamp) -> Result<Done, Failed> {
    if nums.is_empty() {
        return Ok(Vec::new());
    }
    campaign_row::hold_open(tx, nums).await?;
    campaign_row::settle(tx, nums, now).await
}
