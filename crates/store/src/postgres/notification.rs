//! Notifications as rows: where each stands, and what is not confirmed yet taken back.

use std::sync::Arc;

use noroshi_types::{AppId, DeviceId, DeviceNum, NotificationId, Outcome, Timestamp};

use super::backlog::{self, MESSAGE_COLUMNS};
use super::outcome::{self, Part};
use super::push::queue::{self, CancelledWork};
use super::transaction::{Failed, Tx};
use super::{Postgres, inbox, opening, topic_log};
use crate::ids::Num;
use crate::notification::RequestSummary;
use crate::row::{Standing, TARGETS, state_of, trace_of};
use crate::{Cancelled, Departed, Error, NotificationState, Trace, TraceStep, Work, device_list};

fn standing_of(code: i64) -> Standing {
    Standing::from_code(u8::try_from(code).unwrap_or(0))
}

pub(super) async fn state(
    store: &Postgres,
    app: AppId,
    id: NotificationId,
    now: Timestamp,
) -> Result<Option<NotificationState>, Error> {
    let Some(num) = store.ids.num(id) else { return Ok(None) };
    let sql = format!(
        "SELECT {MESSAGE_COLUMNS}, n.target, n.target_text, n.targets, n.collapse_key, n.retain, n.standing, n.trace
         FROM notifications n LEFT JOIN topics t ON t.num = n.topic WHERE n.num = $1 AND n.app = $2"
    );
    let sql = &sql;
    store
        .read(|tx| async move {
            let app = i64::from(app.0);
            let values: [&(dyn tokio_postgres::types::ToSql + Sync); 2] = [&num, &app];
            let nums = [num];
            let (found, sums, opened) = tokio::try_join!(
                tx.query_opt(sql, &values),
                outcome::sums(&tx, &nums),
                opening::sum(&tx, num)
            )?;
            let Some(row) = found else { return Ok(None) };
            let message = backlog::message_of(&row, &store.ids)?;
            let target = usize::try_from(row.get::<_, i64>(13)).unwrap_or(usize::MAX);
            let request = RequestSummary {
                target: TARGETS.get(target).copied().unwrap_or("unknown"),
                target_text: row.get(14),
                targets: row.get::<_, Option<i64>>(15).map(|count| count as u64),
                collapse_key: row.get(16),
                retain: row.get::<_, i64>(17) != 0,
                trace: trace_of(row.get(19)),
            };
            let mut sums = sums.get(&num).copied().unwrap_or([0; Outcome::ALL.len() + 1]);
            sums[Outcome::Opened as usize] = opened;
            let standing = standing_of(row.get(18));
            let state = state_of(standing, &sums, message.topic.is_some(), message.expires_at <= now);
            let counts = Outcome::ALL.into_iter().map(|outcome| (outcome, sums[outcome as usize]));
            let counts = counts.filter(|(_, count)| *count > 0).collect();
            Ok(Some(NotificationState { message: Arc::new(message), request, state, counts }))
        })
        .await
}

pub(super) async fn trace(
    store: &Postgres,
    app: AppId,
    id: NotificationId,
    device: &DeviceId,
) -> Result<Option<Trace>, Error> {
    let Some(num) = store.ids.num(id) else { return Ok(None) };
    let sql = "SELECT d.num, EXISTS (SELECT 1 FROM inbox i WHERE i.device = d.num AND i.num = n.num),
                      EXISTS (SELECT 1 FROM subscriptions s WHERE s.device = d.num AND s.topic = n.topic),
                      n.trace
               FROM notifications n JOIN devices d ON d.app = n.app AND d.id = $3 WHERE n.num = $1 AND n.app = $2";
    store
        .read(|tx| async move {
            let (app, device) = (i64::from(app.0), device.as_str());
            let Some(row) = tx.query_opt(sql, &[&num, &app, &device]).await? else { return Ok(None) };
            let device = DeviceNum(row.get::<_, i64>(0) as u64);
            let mut steps = Vec::new();
            for part in outcome::parts(&tx, &[num]).await? {
                if device_list::decode(&part.devices).any(|listed| listed == device) {
                    steps.push(TraceStep { at: part.at, outcome: part.outcome, reason: part.reason });
                }
            }
            steps.extend(opening::step(&tx, num, device).await?);
            steps.sort_by_key(|step| (step.at, step.outcome as u8));
            Ok(Some(Trace {
                steps,
                in_inbox: row.get(1),
                subscribed: row.get(2),
                trace: trace_of(row.get(3)),
            }))
        })
        .await
}

/// Removes what is not confirmed yet. What nothing is left of stays as it ended.
pub(super) async fn cancel(
    store: &Postgres,
    app: AppId,
    id: NotificationId,
    now: Timestamp,
) -> Result<Cancelled, Error> {
    let num = store.ids.num(id).ok_or(Error::NotFound)?;
    let keep_until = now.saturating_add(store.options.trace_retention);
    store.write(move |tx| cancel_in(tx, app, (num, id), now, keep_until)).await
}

async fn cancel_in(
    tx: Tx,
    app: AppId,
    (num, id): (Num, NotificationId),
    now: Timestamp,
    keep_until: Timestamp,
) -> Result<Cancelled, Failed> {
    // Not locked: its group and prune lock topics before notifications.
    let sql = "SELECT topic, topic_offset, standing FROM notifications WHERE num = $1 AND app = $2";
    let row = tx.query_opt(sql, &[&num, &i64::from(app.0)]).await?.ok_or(Error::NotFound)?;
    let (topic, standing): (Option<i64>, _) = (row.get(0), standing_of(row.get(2)));
    let mut changed = false;
    if let Some(topic) = topic {
        changed = topic_log::take_back(&tx, topic, num).await?;
    }
    // Locks in the order of `push::claim`: queue, inboxes, campaigns.
    let work = queue::cancel(&tx, num).await?;
    let removed = match topic {
        None if standing == Standing::Kept => take_back(&tx, num).await?,
        _ => Vec::new(),
    };
    let done = work.count(&tx, now, keep_until).await?;
    let CancelledWork { mut unsent, any: any_push, .. } = work;
    let not_pushed = unsent.len() as u64;
    // Both lists are sorted; who is in both is recorded once.
    unsent.retain(|device| removed.binary_search(device).is_err());
    let removed_count = removed.len() as u64;
    if changed || removed_count > 0 || any_push {
        tx.execute("UPDATE notifications SET standing = 4 WHERE num = $1", &[&num]).await?;
    }
    let mut departed = Departed::default();
    for devices in [&removed, &unsent] {
        departed.add(Some(Work::Notification(id)), Outcome::Cancelled, now, devices);
    }
    let cancelled = |devices| Part::of(num, Outcome::Cancelled, now, devices);
    outcome::add(&tx, &[cancelled(removed), cancelled(unsent)]).await?;
    Ok(Cancelled { removed: removed_count, not_pushed, departed, done })
}

/// Takes a notification out of inboxes; of which devices, sorted.
async fn take_back(tx: &Tx, num: Num) -> Result<Vec<DeviceNum>, Failed> {
    let parts = outcome::parts(tx, &[num]).await?;
    let devices = outcome::outstanding_devices(parts.iter());
    let devices: Vec<i64> = devices.iter().map(|device| device.0 as i64).collect();
    let removed = inbox::remove(tx, &devices, &vec![num; devices.len()]).await?;
    let mut removed: Vec<DeviceNum> = removed.into_iter().map(|(device, _)| device).collect();
    removed.sort_unstable();
    Ok(removed)
}
