//! What a sender reads of a batch: its devices with their tokens, and what to render.

use std::time::Duration;

use noroshi_types::{
    AppId, CampaignId, DeviceId, DeviceNum, JsonText, NotificationId, Push, Timestamp, Urgency, UserId,
};
use tokio_postgres::Row;

use crate::device::token_of;
use crate::ids::{Ids, Num};
use crate::postgres::transaction::{Failed, Tx};
use crate::postgres::{audience, campaign};
use crate::{Error, PushContent, PushRecipient, Work, row};

pub(super) async fn find(
    tx: Tx,
    ids: &Ids,
    app: AppId,
    work: Work,
    campaign: Option<CampaignId>,
    devices: &[DeviceNum],
) -> Result<Vec<PushRecipient>, Failed> {
    // A topic's message is the device's, whoever uses it.
    let addressed_at = async {
        let Work::Notification(id) = work else { return Ok(None) };
        let sql = "SELECT created_at FROM notifications WHERE num = $1 AND topic IS NULL";
        Ok::<_, Failed>(tx.query_opt(sql, &[&ids.num(id)]).await?.map(|row| row.get(0)))
    };
    let campaign = async {
        match campaign {
            Some(campaign) => campaign::number(&tx, app, campaign).await,
            None => Ok(None),
        }
    };
    let (addressed_at, campaign): (Option<i64>, Option<i64>) = tokio::try_join!(addressed_at, campaign)?;
    let asked: Vec<i64> = devices.iter().map(|device| device.0 as i64).collect();
    let rows = tx
        .query(
            r#"SELECT d.num, d.id, d."user", d.platform, d.locale, d.timezone, d.app_version, d.tags, d.push_token,
                      d.push_service, d.push_environment, d.push_token_at, d.push_suspect_at IS NOT NULL, l.line
               FROM unnest($1::bigint[]) WITH ORDINALITY AS asked (num, place)
               JOIN devices d ON d.num = asked.num
               LEFT JOIN campaign_lines l ON l.campaign = $3 AND l."user" = d."user"
               WHERE d.app = $2 AND (d.user_at IS NULL OR $4::bigint IS NULL OR d.user_at <= $4)
               ORDER BY asked.place"#,
            &[&asked, &i64::from(app.0), &campaign, &addressed_at],
        )
        .await?;
    rows.iter().map(recipient_of).collect()
}

fn recipient_of(row: &Row) -> Result<PushRecipient, Failed> {
    let wrong = |error| Error::Engine(format!("a stored device: {error}"));
    let code = |column| row.get::<_, Option<i64>>(column).and_then(|code| u8::try_from(code).ok());
    Ok(PushRecipient {
        num: DeviceNum(row.get::<_, i64>(0) as u64),
        id: DeviceId::parse(row.get(1)).map_err(wrong)?,
        user: row.get::<_, Option<&str>>(2).map(UserId::parse).transpose().map_err(wrong)?,
        attributes: audience::attributes_of(row, 3)?,
        token: token_of(row.get(8), code(9), code(10)),
        token_at: Timestamp(row.get::<_, Option<i64>>(11).unwrap_or(0) as u64),
        suspect: row.get(12),
        line: row.get::<_, Option<String>>(13).map(JsonText::from_valid),
    })
}

pub(super) async fn content(
    tx: Tx,
    ids: &Ids,
    app: AppId,
    id: NotificationId,
) -> Result<Option<PushContent>, Failed> {
    let num: Option<Num> = ids.num(id);
    let sql = "SELECT notification, data, urgency, collapse_key, created_at, expires_at, push::json ->> 'mode',
                      (push::json ->> 'after_ms')::bigint, (push::json -> 'apns')::text, (push::json -> 'fcm')::text,
                      (push::json -> 'webpush')::text, trace
               FROM notifications WHERE num = $1 AND app = $2";
    let Some(found) = tx.query_opt(sql, &[&num, &i64::from(app.0)]).await? else { return Ok(None) };
    let json = |column| found.get::<_, Option<String>>(column).map(JsonText::from_valid);
    Ok(Some(PushContent {
        notification: json(0),
        data: json(1),
        urgency: u8::try_from(found.get::<_, i64>(2)).ok().and_then(Urgency::from_code).unwrap_or_default(),
        collapse_key: found.get::<_, Option<String>>(3).map(String::into_boxed_str),
        push: Push {
            mode: row::push_mode(found.get(6)),
            after: Duration::from_millis(found.get::<_, Option<i64>>(7).unwrap_or(0) as u64),
            apns: json(8),
            fcm: json(9),
            webpush: json(10),
        },
        sent_at: Timestamp(found.get::<_, i64>(4) as u64),
        expires_at: Timestamp(found.get::<_, i64>(5) as u64),
        trace: row::trace_of(found.get(11)),
    }))
}
