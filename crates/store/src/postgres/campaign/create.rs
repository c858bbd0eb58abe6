//! How campaigns begin: their row, the notification under which their outcomes are recorded, and the idempotency key
//! that makes one of them however often it comes.

use noroshi_types::{AppId, CampaignId, JsonText, Timestamp, When, limits};

use super::{CampaignNum, find, id_of, variant};
use crate::ids::{self, Ids, Num};
use crate::postgres::Postgres;
use crate::postgres::transaction::{Failed, Tx};
use crate::row::{TO_CAMPAIGN, push_text};
use crate::{Campaign, CampaignState, CreatedCampaign, Error, Idempotency, NewCampaign};

/// The campaign that the same idempotency key made; none if that was deleted.
pub(super) async fn created_before(
    tx: &Tx,
    ids: &Ids,
    app: AppId,
    idempotency: &Idempotency,
    now: Timestamp,
) -> Result<Option<Campaign>, Failed> {
    let sql = "SELECT i.body_hash, c.id, n.target FROM idempotency i
               LEFT JOIN campaigns c ON c.app = i.app AND c.notification = i.num
               LEFT JOIN notifications n ON n.num = i.num
               WHERE i.app = $1 AND i.key = $2 AND i.expires_at > $3";
    let found = tx.query_opt(sql, &[&i64::from(app.0), &&*idempotency.key, &(now.0 as i64)]).await?;
    let Some(row) = found else { return Ok(None) };
    let same_body = row.get::<_, &[u8]>(0) == idempotency.body_hash;
    match (row.get::<_, Option<&[u8]>>(1), row.get::<_, Option<i64>>(2)) {
        _ if !same_body => Err(Error::IdempotencyConflict.into()),
        (Some(id), _) => find(tx.clone(), ids, app, id_of(id)?, now).await,
        (None, Some(target)) if target == i64::from(TO_CAMPAIGN) => Ok(None),
        // A notification's.
        (None, _) => Err(Error::IdempotencyConflict.into()),
    }
}

pub(super) async fn create(
    tx: Tx,
    store: Postgres,
    new: NewCampaign,
    now: Timestamp,
) -> Result<CreatedCampaign, Failed> {
    let app = i64::from(new.app.0);
    tx.query_opt("SELECT 1 FROM apps WHERE id = $1 FOR KEY SHARE", &[&app]).await?.ok_or(Error::NotFound)?;
    let num = store.loose.next(now);
    if let Some(idempotency) = &new.idempotency
        && let Some(campaign) = remember(&tx, &store, new.app, idempotency, num, now).await?
    {
        return Ok(CreatedCampaign { campaign, replayed: true });
    }
    insert_notification(&tx, num, &new, ((&new.notification, &new.data), None), now).await?;
    let mut random = [0; 10];
    random[..8].copy_from_slice(&ids::random_bits().to_le_bytes());
    random[8..].copy_from_slice(&ids::random_bits().to_le_bytes()[..2]);
    let id = CampaignId(uuid::Builder::from_unix_timestamp_millis(now.0, &random).into_uuid());
    let started = (new.state == CampaignState::Running).then_some(now.0 as i64);
    let made = tx.query_one(
        "INSERT INTO campaigns (id, app, state, created_at, started_at, notification, cursor, walked, recipients,
                                uploaded, lines, spec)
         VALUES ($1, $2, $3, $4, $5, $6, 0, 0, 0, 0, 0, $7) RETURNING num",
        &[
            &id.as_bytes().as_slice(),
            &app,
            &(new.state as i64),
            &(now.0 as i64),
            &started,
            &num,
            &new.spec.as_str(),
        ],
    )
    .await?;
    variant::make(&tx, &store, made.get(0), &new, now).await?;
    let campaign = find(tx, &store.ids, new.app, id, now).await?.ok_or(Error::NotFound)?;
    Ok(CreatedCampaign { campaign, replayed: false })
}

/// Writes the key down for the campaign that `num` is the notification of, or finds the one that it made. Of two
/// that come with it at once the second waits for the first, at the row of the key.
async fn remember(
    tx: &Tx,
    store: &Postgres,
    app: AppId,
    idempotency: &Idempotency,
    num: Num,
    now: Timestamp,
) -> Result<Option<Campaign>, Failed> {
    if let Some(campaign) = created_before(tx, &store.ids, app, idempotency, now).await? {
        return Ok(Some(campaign));
    }
    // A key that is taken and did not conflict is of a campaign that was deleted.
    let written = tx
        .execute(
            "INSERT INTO idempotency AS i (app, key, body_hash, num, expires_at) VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT (app, key) DO UPDATE
             SET body_hash = excluded.body_hash, num = excluded.num, expires_at = excluded.expires_at
             WHERE i.expires_at <= $6
                OR NOT EXISTS (SELECT 1 FROM campaigns c WHERE c.app = i.app AND c.notification = i.num)
                   AND EXISTS (SELECT 1 FROM notifications n WHERE n.num = i.num AND n.target = $7)",
            &[
                &i64::from(app.0),
                &&*idempotency.key,
                &idempotency.body_hash.as_slice(),
                &num,
                &(now.saturating_add(limits::IDEMPOTENCY_WINDOW).0 as i64),
                &(now.0 as i64),
                &i64::from(TO_CAMPAIGN),
            ],
        )
        .await?;
    match written {
        0 => Ok(created_before(tx, &store.ids, app, idempotency, now)
            .await?
            .map(Some)
            .ok_or(Error::IdempotencyConflict)?),
        _ => Ok(None),
    }
}

/// The notification under which outcomes of a campaign or a variant of it are recorded: kept until the campaign has ended, and
/// the retention from then on.
pub(super) async fn insert_notification(
    tx: &Tx,
    num: Num,
    new: &NewCampaign,
    ((notification, data), campaign): ((&Option<JsonText>, &Option<JsonText>), Option<CampaignNum>),
    now: Timestamp,
) -> Result<(), Failed> {
    tx.execute(
        "INSERT INTO notifications (num, app, created_at, expires_at, keep_until, delivery, urgency, target, retain,
                                    notification, data, push, standing, campaign)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0, $9, $10, $11, 0, $12)",
        &[
            &num,
            &i64::from(new.app.0),
            &(now.0 as i64),
            &(new.expires_at.0 as i64),
            &i64::MAX,
            // Nothing is kept of what only push services are asked for.
            &(new.when.unwrap_or(When::Connected) as i64),
            &(new.urgency as i64),
            &i64::from(TO_CAMPAIGN),
            &notification.as_ref().map(JsonText::as_str),
            &data.as_ref().map(JsonText::as_str),
            &push_text(&new.push, false),
            &campaign,
        ],
    )
    .await?;
    Ok(())
}
