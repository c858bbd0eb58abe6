//! What a sender reads of a batch: its devices with their tokens, and what to render.

use std::time::Duration;

use noroshi_types::{
    AppId, CampaignId, DeviceId, DeviceNum, JsonText, NotificationId, Timestamp, Urgency, UserId,
};
use rusqlite::{Connection, OptionalExtension, Row};

use crate::device::token_of;
use crate::sqlite::ids::Ids;
use crate::sqlite::{campaign, device, notification};
use crate::{Error, PushContent, PushRecipient, Work, row};

pub(super) fn find(
    db: &Connection,
    ids: &Ids,
    app: AppId,
    work: Work,
    campaign: Option<CampaignId>,
    devices: &[DeviceNum],
) -> Result<Vec<PushRecipient>, Error> {
    let campaign = match campaign {
        Some(campaign) => campaign::number(db, app, campaign)?,
        None => None,
    };
    // A topic's message is the device's, whoever uses it.
    let addressed_at = match work {
        Work::Campaign(_) => None,
        Work::Notification(id) => {
            let sql = "SELECT created_at FROM notifications WHERE num = ?1 AND topic IS NULL";
            db.prepare_cached(sql)?.query_row((ids.num(id),), |row| row.get::<_, i64>(0)).optional()?
        }
    };
    let mut statement = db.prepare_cached(
        "SELECT num, id, user, platform, locale, timezone, app_version, tags, push_token, push_service,
                push_environment, push_token_at, push_suspect_at IS NOT NULL, user_at
         FROM devices WHERE num = ?1 AND app = ?2",
    )?;
    let mut line = db.prepare_cached("SELECT line FROM campaign_lines WHERE campaign = ?1 AND user = ?2")?;
    let mut found = Vec::with_capacity(devices.len());
    for device in devices {
        let mut rows = statement.query((device.0 as i64, app.0))?;
        let Some(row) = rows.next()? else { continue };
        let user_at: Option<i64> = row.get(13)?;
        if user_at.is_some() && addressed_at.is_some() && user_at > addressed_at {
            continue;
        }
        let mut recipient = recipient_of(row)?;
        if let (Some(campaign), Some(user)) = (campaign, &recipient.user) {
            let text = line.query_row((campaign, user.as_str()), |row| row.get::<_, String>(0)).optional()?;
            recipient.line = text.map(JsonText::from_valid);
        }
        found.push(recipient);
    }
    Ok(found)
}

fn recipient_of(row: &Row<'_>) -> Result<PushRecipient, Error> {
    let wrong = |error| Error::Engine(format!("a stored device: {error}"));
    let text = |column| row.get_ref(column)?.as_str_or_null().map_err(rusqlite::Error::from);
    Ok(PushRecipient {
        num: DeviceNum(row.get::<_, i64>(0)? as u64),
        id: DeviceId::parse(text(1)?.unwrap_or_default()).map_err(wrong)?,
        user: text(2)?.map(UserId::parse).transpose().map_err(wrong)?,
        attributes: device::attributes_of(row, 3)?,
        token: token_of(row.get(8)?, row.get(9)?, row.get(10)?),
        token_at: Timestamp(row.get::<_, Option<i64>>(11)?.unwrap_or(0) as u64),
        suspect: row.get(12)?,
        line: None,
    })
}

pub(super) fn content(
    db: &Connection,
    ids: &Ids,
    app: AppId,
    id: NotificationId,
) -> Result<Option<PushContent>, Error> {
    let Some(num) = ids.num(id) else { return Ok(None) };
    let mut statement = db.prepare_cached(
        "SELECT notification, data, urgency, collapse_key, push ->> 'mode', push ->> 'after_ms', push -> 'apns',
                push -> 'fcm', push -> 'webpush', created_at, expires_at, trace
         FROM notifications WHERE num = ?1 AND app = ?2",
    )?;
    let found = statement.query_row((num, app.0), |row| {
        let json = |column| row.get::<_, Option<String>>(column).map(|text| text.map(JsonText::from_valid));
        let mode: Option<String> = row.get(4)?;
        let after_ms: Option<i64> = row.get(5)?;
        Ok(PushContent {
            notification: json(0)?,
            data: json(1)?,
            urgency: Urgency::from_code(row.get(2)?).unwrap_or_default(),
            collapse_key: row.get::<_, Option<String>>(3)?.map(String::into_boxed_str),
            push: noroshi_types::Push {
                mode: notification::push_mode(mode.as_deref()),
                after: Duration::from_millis(after_ms.unwrap_or(0) as u64),
                apns: json(6)?,
                fcm: json(7)?,
                webpush: json(8)?,
            },
            sent_at: Timestamp(row.get::<_, i64>(9)? as u64),
            expires_at: Timestamp(row.get::<_, i64>(10)? as u64),
            trace: row::trace_of(row.get_ref(11)?.as_blob_or_null()?),
        })
    });
    Ok(found.optional()?)
}
