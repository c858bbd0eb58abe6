//! Notifications as rows: what was asked, and where each stands.

use std::sync::Arc;

use noroshi_types::{
    AppId, DeviceId, Epoch, JsonText, Message, NotificationId, Outcome, Position, Timestamp, Topic,
    TopicPosition, TraceContext, Urgency, When,
};
use rusqlite::{Connection, OptionalExtension, Row};

use super::campaign::CampaignNum;
use super::ids::{Ids, Num};
use super::push::queue::{self, CancelledWork};
use super::topic::{self, TopicNum};
use super::writer::Write;
use super::{device, device_list, inbox};
use super::{opening, outcome};
use crate::notification::RequestSummary;
use crate::row::{self, TARGETS, TO_CAMPAIGN, push_text, state_of, target_of};
pub(super) use crate::row::{Standing, message_of, push_mode};
use crate::{Accept, Cancelled, Departed, Error, NewCampaign, NotificationState, Trace, TraceStep, Work};

/// Its place in a topic, as stored.
pub(super) struct Place {
    pub topic: TopicNum,
    pub offset: u64,
}

pub(super) fn insert(
    w: &Write<'_>,
    num: Num,
    accept: &Accept,
    campaign: CampaignNum,
    place: Option<Place>,
    standing: Standing,
) -> Result<(), Error> {
    let Accept { app, request, now, .. } = accept;
    let keep_until = row::keep_until(accept, w.options.trace_retention);
    let (target, target_text) = target_of(&request.target);
    let mut statement = w.db.prepare_cached(
        "INSERT INTO notifications (num, app, created_at, expires_at, keep_until, delivery, urgency, target,
                                    target_text, targets, topic, topic_offset, collapse_key, retain, notification,
                                    data, push, standing, campaign, trace)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, nullif(?19, 0), ?20)",
    )?;
    statement.execute(rusqlite::params![
        num,
        app.0,
        now.0 as i64,
        request.expires_at(*now).0 as i64,
        keep_until.0 as i64,
        request.when as u8,
        request.urgency as u8,
        target,
        target_text,
        request.target.named_count().map(|count| count as i64),
        place.as_ref().map(|place| place.topic),
        place.as_ref().map(|place| place.offset as i64),
        request.collapse_key,
        request.retain,
        request.notification.as_ref().map(JsonText::as_str),
        request.data.as_ref().map(JsonText::as_str),
        push_text(&request.push, request.waits_for_use),
        standing as u8,
        campaign,
        request.trace.map(TraceContext::to_stored),
    ])?;
    Ok(())
}

/// The notification under which outcomes of a campaign or a variant of it are recorded: kept until the campaign has ended, and
/// the retention from then on.
pub(super) fn insert_for_campaign(
    db: &Connection,
    num: Num,
    new: &NewCampaign,
    (notification, data): (&Option<JsonText>, &Option<JsonText>),
    now: Timestamp,
) -> Result<(), Error> {
    let mut statement = db.prepare_cached(
        "INSERT INTO notifications (num, app, created_at, expires_at, keep_until, delivery, urgency, target, retain,
                                    notification, data, push, standing)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 0, ?9, ?10, ?11, 0)",
    )?;
    statement.execute(rusqlite::params![
        num,
        new.app.0,
        now.0 as i64,
        new.expires_at.0 as i64,
        i64::MAX,
        // Nothing is kept of what only push services are asked for.
        new.when.unwrap_or(When::Connected) as u8,
        new.urgency as u8,
        TO_CAMPAIGN,
        notification.as_ref().map(JsonText::as_str),
        data.as_ref().map(JsonText::as_str),
        push_text(&new.push, false),
    ])?;
    Ok(())
}

/// Whether it is one that [`insert_for_campaign`] made.
pub(super) fn is_campaign(db: &Connection, num: Num) -> Result<bool, Error> {
    let sql = "SELECT 1 FROM notifications WHERE num = ?1 AND target = ?2";
    Ok(db.prepare_cached(sql)?.exists((num, TO_CAMPAIGN))?)
}

pub(super) fn set_standing(db: &Connection, num: Num, standing: Standing) -> Result<(), Error> {
    let mut statement = db.prepare_cached("UPDATE notifications SET standing = ?2 WHERE num = ?1")?;
    statement.execute((num, standing as u8))?;
    Ok(())
}

/// Columns of a message, from `notifications n` and its topic `t`.
const MESSAGE_COLUMNS: &str =
    "n.num, n.app, n.delivery, n.urgency, n.notification, n.data, n.created_at, n.expires_at,
                               n.topic_offset, t.name, t.epoch, n.push ->> 'mode' = 'fallback', n.push ->> 'waits' = 'use'";

fn message_of_row(row: &Row<'_>, ids: &Ids) -> Result<Message, Error> {
    let unknown = |what: &str| Error::Engine(format!("a stored {what} is not known to this program"));
    let text = |column| row.get::<_, Option<String>>(column).map(|text| text.map(JsonText::from_valid));
    let topic = match row.get::<_, Option<i64>>(8)? {
        Some(offset) => Some(TopicPosition {
            topic: Topic::from_trusted(row.get_ref(9)?.as_str().map_err(rusqlite::Error::from)?),
            position: Position { epoch: Epoch(row.get(10)?), offset: offset as u64 },
        }),
        None => None,
    };
    Ok(Message {
        id: ids.id(row.get(0)?),
        app: AppId(row.get(1)?),
        when: When::from_code(row.get(2)?).ok_or_else(|| unknown("delivery"))?,
        urgency: Urgency::from_code(row.get(3)?).ok_or_else(|| unknown("urgency"))?,
        topic,
        notification: text(4)?,
        data: text(5)?,
        sent_at: Timestamp(row.get::<_, i64>(6)? as u64),
        expires_at: Timestamp(row.get::<_, i64>(7)? as u64),
        push_waits: row.get::<_, Option<bool>>(11)?.unwrap_or(false),
        waits_for_use: row.get::<_, Option<bool>>(12)?.unwrap_or(false),
    })
}

/// The message of a notification that is still known.
pub(super) fn message(db: &Connection, ids: &Ids, num: Num) -> Result<Option<Arc<Message>>, Error> {
    let mut statement = db.prepare_cached(&format!(
        "SELECT {MESSAGE_COLUMNS} FROM notifications n LEFT JOIN topics t ON t.num = n.topic WHERE n.num = ?1"
    ))?;
    let found = statement.query_row((num,), |row| Ok(message_of_row(row, ids))).optional()?;
    Ok(found.transpose()?.map(Arc::new))
}

pub(super) fn state(
    db: &Connection,
    ids: &Ids,
    app: AppId,
    id: NotificationId,
    now: Timestamp,
) -> Result<Option<NotificationState>, Error> {
    let Some(num) = ids.num(id) else { return Ok(None) };
    let mut statement = db.prepare_cached(&format!(
        "SELECT {MESSAGE_COLUMNS}, n.target, n.target_text, n.targets, n.collapse_key, n.retain, n.standing, n.trace
         FROM notifications n LEFT JOIN topics t ON t.num = n.topic WHERE n.num = ?1 AND n.app = ?2"
    ))?;
    let found = statement.query_row((num, app.0), |row| {
        let request = RequestSummary {
            target: TARGETS.get(usize::from(row.get::<_, u8>(13)?)).copied().unwrap_or("unknown"),
            target_text: row.get(14)?,
            targets: row.get::<_, Option<i64>>(15)?.map(|count| count as u64),
            collapse_key: row.get(16)?,
            retain: row.get(17)?,
            trace: row::trace_of(row.get_ref(19)?.as_blob_or_null()?),
        };
        Ok((message_of_row(row, ids), request, Standing::from_code(row.get(18)?)))
    });
    let Some((message, request, standing)) = found.optional()? else { return Ok(None) };
    let message = message?;
    let mut sums = outcome::sums(db, num)?;
    sums[Outcome::Opened as usize] = opening::sum(db, num)?;
    let state = state_of(standing, &sums, message.topic.is_some(), message.expires_at <= now);
    let counts = Outcome::ALL.into_iter().map(|outcome| (outcome, sums[outcome as usize]));
    let counts = counts.filter(|(_, count)| *count > 0).collect();
    Ok(Some(NotificationState { message: Arc::new(message), request, state, counts }))
}

pub(super) fn trace(
    db: &Connection,
    ids: &Ids,
    app: AppId,
    id: NotificationId,
    device: &DeviceId,
) -> Result<Option<Trace>, Error> {
    let Some(num) = ids.num(id) else { return Ok(None) };
    let mut statement =
        db.prepare_cached("SELECT topic, trace FROM notifications WHERE num = ?1 AND app = ?2")?;
    let found = statement.query_row((num, app.0), |row| {
        Ok((row.get::<_, Option<TopicNum>>(0)?, row::trace_of(row.get_ref(1)?.as_blob_or_null()?)))
    });
    let (Some((topic, trace)), Some(device)) = (found.optional()?, device::number(db, app, device)?) else {
        return Ok(None);
    };
    let mut steps = Vec::new();
    outcome::each_part(db, num, |part| {
        if device_list::decode(part.devices).any(|listed| listed == device) {
            let reason = part.reason.map(str::to_owned);
            steps.push(TraceStep { at: part.at, outcome: part.outcome, reason });
        }
    })?;
    steps.extend(opening::step(db, num, device)?);
    steps.sort_by_key(|step| (step.at, step.outcome as u8));
    let exists = |sql, other: i64| db.prepare_cached(sql)?.exists((device.0 as i64, other));
    Ok(Some(Trace {
        steps,
        in_inbox: exists("SELECT 1 FROM inbox WHERE device = ?1 AND num = ?2", num)?,
        subscribed: match topic {
            Some(topic) => exists("SELECT 1 FROM subscriptions WHERE device = ?1 AND topic = ?2", topic)?,
            None => false,
        },
        trace,
    }))
}

/// Removes what is not confirmed yet. What nothing is left of stays as it ended.
pub(super) fn cancel(
    w: &Write<'_>,
    app: AppId,
    id: NotificationId,
    now: Timestamp,
) -> Result<Cancelled, Error> {
    let num = w.ids.num(id).ok_or(Error::NotFound)?;
    let mut find = w.db.prepare_cached(
        "SELECT topic, topic_offset, standing FROM notifications WHERE num = ?1 AND app = ?2",
    )?;
    let found = find.query_row((num, app.0), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).optional()?;
    let (topic, offset, standing): (Option<TopicNum>, Option<i64>, u8) = found.ok_or(Error::NotFound)?;
    let mut removed = Vec::new();
    let mut changed = false;
    if let (Some(topic), Some(offset)) = (topic, offset) {
        changed = topic::remove_from_log(w.db, topic, offset, num)? | topic::unretain(w.db, topic, num)?;
    } else if Standing::from_code(standing) == Standing::Kept {
        let devices = outcome::outstanding_devices(w.db, num)?;
        removed = inbox::remove_from(w.db, &devices, num, usize::MAX)?;
    }
    let CancelledWork { mut unsent, any: any_push, done } = queue::cancel(w, num, now)?;
    let not_pushed = unsent.len() as u64;
    // Both lists are sorted; who is in both is recorded once.
    unsent.retain(|device| removed.binary_search(device).is_err());
    let mut departed = Departed::default();
    for devices in [&removed, &unsent] {
        outcome::add(w.db, num, Outcome::Cancelled, now, devices, devices.len() as u64)?;
        departed.add(Some(Work::Notification(id)), Outcome::Cancelled, now, devices);
    }
    if changed || !removed.is_empty() || any_push {
        set_standing(w.db, num, Standing::Cancelled)?;
    }
    Ok(Cancelled { removed: removed.len() as u64, not_pushed, departed, done })
}
