//! What a sender reads of a batch: the devices with their tokens, and the content to render.

use noroshi_types::{AppId, CampaignId, DeviceNum, NotificationId, TokenKey};
use tokio_postgres::types::ToSql;

use crate::engine::campaign;
use crate::engine::device::{recipient_columns, recipient_of};
use crate::engine::notification::{content_of, own_columns};
use crate::engine::push_token::Pushed;
use crate::engine::record::Record;
use crate::postgres::transaction::{Failed, Tx};
use crate::{PushContent, PushRecipient, Work};

pub(crate) async fn find(
    tx: &Tx,
    app: AppId,
    work: Work,
    campaign: Option<CampaignId>,
    token: Option<&TokenKey>,
    devices: &[DeviceNum],
) -> Result<Vec<PushRecipient>, Failed> {
    // A message of a topic is addressed to the device, regardless of its user.
    let addressed_at = async {
        let Work::Notification(id) = work else { return Ok(None) };
        let sql = "SELECT created_at FROM notifications WHERE num = $1 AND topic IS NULL";
        Ok::<_, Failed>(tx.query_opt(sql, &[&tx.ids().num(id)]).await?.map(|row| row.get(0)))
    };
    let campaign = async {
        match campaign {
            Some(campaign) => campaign::number(tx, app, campaign).await,
            None => Ok(None),
        }
    };
    let (addressed_at, campaign): (Option<i64>, Option<i64>) = tokio::try_join!(addressed_at, campaign)?;
    let asked: Vec<i64> = devices.iter().map(|device| device.0 as i64).collect();
    let pushed = Pushed::new(token, '$', 5);
    let sql = format!(
        "SELECT {}, l.line
         FROM unnest($1::bigint[]) WITH ORDINALITY AS asked (num, place)
         JOIN devices d ON d.num = asked.num{}
         LEFT JOIN campaign_lines l ON l.campaign = $3 AND l.\"user\" = d.\"user\"
         WHERE d.app = $2 AND (d.user_at IS NULL OR $4::bigint IS NULL OR d.user_at <= $4)
         ORDER BY asked.place",
        recipient_columns(&pushed),
        pushed.join()
    );
    let (app, own) = (i64::from(app.0), pushed.values());
    let values: [&(dyn ToSql + Sync); 4] = [&asked, &app, &campaign, &addressed_at];
    let values: Vec<_> = values.into_iter().chain(own.iter().map(|value| value as _)).collect();
    let rows = tx.query(&sql, &values).await?;
    rows.iter().map(|row| Ok(PushRecipient { line: row.json_or_null(16)?, ..recipient_of(row)? })).collect()
}

pub(crate) async fn content(tx: &Tx, app: AppId, id: NotificationId) -> Result<Option<PushContent>, Failed> {
    let own = own_columns(|service| format!("(push::json -> '{service}')::text"));
    let sql = format!(
        "SELECT notification, data, urgency, collapse_key, push::json ->> 'mode',
                (push::json ->> 'after_ms')::bigint, push::json ->> 'token', created_at, expires_at, trace, target, target_text,
                push::json ->> 'category', coalesce(push::json ->> 'essential' = '1', false), delivery, {own}
         FROM notifications WHERE num = $1 AND app = $2"
    );
    let found = tx.query_opt(&sql, &[&tx.ids().num(id), &i64::from(app.0)]).await?;
    Ok(found.map(|row| content_of(&row)).transpose()?)
}
