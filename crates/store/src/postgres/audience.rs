//! Pages of audiences, as [`crate::engine::audience`] describes them.

use noroshi_types::{AppId, Condition, TokenKey, Topic};
use tokio_postgres::types::ToSql;

use super::transaction::{Failed, Tx};
use crate::engine::audience::{self, Windows};
use crate::engine::device::{member_columns, member_of};
use crate::engine::push_token::Pushed;
use crate::engine::record::Record;
use crate::{Audience, AudiencePage, Error};

pub(crate) async fn page(
    tx: &Tx,
    app: AppId,
    of: &Audience,
    after: u64,
    limit: usize,
    token: Option<&TokenKey>,
) -> Result<AudiencePage, Failed> {
    let (after, limit) = (after as i64, limit.max(1));
    match of {
        Audience::Everyone => audience::everyone(tx, app, after, limit, token).await,
        Audience::Topic(topic) => audience::of_topic(tx, app, topic, after, limit, token).await,
        Audience::Condition(condition) => of_condition(tx, app, condition, after, limit, token).await,
        Audience::Upload(campaign) => audience::of_upload(tx, app, *campaign, after, limit, token).await,
    }
}

async fn of_condition(
    tx: &Tx,
    app: AppId,
    condition: &Condition,
    after: i64,
    limit: usize,
    token: Option<&TokenKey>,
) -> Result<AudiencePage, Failed> {
    let (selected, next) = numbers(tx, app, condition, after, limit).await?;
    let pushed = Pushed::new(token, '$', 2);
    let sql = format!(
        "SELECT {} FROM devices d{} WHERE d.num = ANY($1) ORDER BY d.num",
        member_columns(&pushed),
        pushed.join()
    );
    let own = pushed.values();
    let values: Vec<&(dyn ToSql + Sync)> =
        std::iter::once(&selected as _).chain(own.iter().map(|value| value as _)).collect();
    let rows = tx.query(&sql, &values).await?;
    let members = rows.iter().map(member_of).collect::<Result<_, Error>>()?;
    Ok(AudiencePage { members, unknown: 0, next })
}

/// The next devices that a condition selects, at most `limit`, in order, and where the next page starts.
pub(super) async fn numbers(
    tx: &Tx,
    app: AppId,
    condition: &Condition,
    after: i64,
    limit: usize,
) -> Result<(Vec<i64>, Option<u64>), Failed> {
    let mut windows = Windows::new(limit);
    for (bit, devices) in subscribers(tx, app, &condition.topics(), after, limit).await?.iter().enumerate() {
        windows.add(devices, 1 << bit);
    }
    if condition.matches_none() {
        let sql = "SELECT num FROM devices WHERE app = $1 AND num > $2 ORDER BY num LIMIT $3";
        let rows = tx.query(sql, &[&i64::from(app.0), &after, &(limit as i64)]).await?;
        windows.add(&rows.iter().map(|row| row.int(0)).collect::<Result<Vec<_>, _>>()?, 0);
    }
    Ok(windows.select(condition))
}

/// The next subscribers of each topic, in order.
async fn subscribers(
    tx: &Tx,
    app: AppId,
    topics: &[&Topic],
    after: i64,
    limit: usize,
) -> Result<Vec<Vec<i64>>, Failed> {
    let names: Vec<&str> = topics.iter().map(|topic| topic.as_str()).collect();
    let sql = "SELECT named.place, s.device FROM unnest($2::text[]) WITH ORDINALITY AS named (name, place)
               JOIN topics t ON t.app = $1 AND t.name = named.name
               CROSS JOIN LATERAL (
                   SELECT device FROM subscriptions
                   WHERE topic = t.num AND named = 1 AND device > $3 ORDER BY device LIMIT $4) s
               ORDER BY s.device";
    let rows = tx.query(sql, &[&i64::from(app.0), &names, &after, &(limit as i64)]).await?;
    let mut found = vec![Vec::new(); topics.len()];
    for row in rows {
        if let Some(devices) =
            usize::try_from(row.get::<_, i64>(0) - 1).ok().and_then(|place| found.get_mut(place))
        {
            devices.push(row.get(1));
        }
    }
    Ok(found)
}
