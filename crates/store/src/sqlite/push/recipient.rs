//! What a sender reads of a batch: the devices with their tokens, and the content to render.

use noroshi_types::{AppId, CampaignId, DeviceNum, JsonText, NotificationId, TokenKey};
use rusqlite::{OptionalExtension, ToSql, params_from_iter};

use crate::engine::device::{recipient_columns, recipient_of};
use crate::engine::notification::{content_of, own_columns};
use crate::engine::push_token::Pushed;
use crate::engine::record::Record;
use crate::sqlite::number;
use crate::sqlite::reader::Read;
use crate::{Error, PushContent, PushRecipient, Work};

pub(crate) fn find(
    Read { db, ids }: Read<'_>,
    app: AppId,
    work: Work,
    campaign: Option<CampaignId>,
    token: Option<&TokenKey>,
    devices: &[DeviceNum],
) -> Result<Vec<PushRecipient>, Error> {
    let campaign = match campaign {
        Some(campaign) => number::campaign(db, app, campaign)?,
        None => None,
    };
    // A message of a topic is addressed to the device, regardless of its user.
    let addressed_at = match work {
        Work::Campaign(_) => None,
        Work::Notification(id) => {
            let sql = "SELECT created_at FROM notifications WHERE num = ?1 AND topic IS NULL";
            db.first(sql, (ids.num(id),), |row| row.int(0))?
        }
    };
    let pushed = Pushed::new(token, '?', 3);
    let sql = format!(
        "SELECT {}, d.user_at FROM devices d{} WHERE d.num = ?1 AND d.app = ?2",
        recipient_columns(&pushed),
        pushed.join()
    );
    let own = pushed.values();
    let mut statement = db.prepare_cached(&sql)?;
    let mut line = db.prepare_cached("SELECT line FROM campaign_lines WHERE campaign = ?1 AND user = ?2")?;
    let mut found = Vec::with_capacity(devices.len());
    for device in devices {
        let (num, app) = (device.0 as i64, app.0);
        let values = [&num as &dyn ToSql, &app].into_iter().chain(own.iter().map(|value| value as _));
        let mut rows = statement.query(params_from_iter(values))?;
        let Some(row) = rows.next()? else { continue };
        let user_at = row.int_or_null(16)?;
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

pub(crate) fn content(
    Read { db, ids }: Read<'_>,
    app: AppId,
    id: NotificationId,
) -> Result<Option<PushContent>, Error> {
    let Some(num) = ids.num(id) else { return Ok(None) };
    let own = own_columns(|service| format!("push -> '{service}'"));
    let sql = format!(
        "SELECT notification, data, urgency, collapse_key, push ->> 'mode', push ->> 'after_ms', push ->> 'token',
                created_at, expires_at, trace, target, target_text,
                push ->> 'category', push ->> 'essential' = 1, delivery, {own}
         FROM notifications WHERE num = ?1 AND app = ?2"
    );
    db.first(&sql, (num, app.0), |row| content_of(row))
}
