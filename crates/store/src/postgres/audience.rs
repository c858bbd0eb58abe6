//! Pages of audiences, by device number; each page costs what it examines.

use noroshi_types::{AppId, CampaignId, Condition, Topic};
use tokio_postgres::Row;

use super::campaign_row;
use super::transaction::{Failed, Tx};
use crate::engine::audience::{Windows, page_of};
use crate::engine::device::{MEMBER_COLUMNS, member_of};
use crate::engine::record::Record;
use crate::{Audience, AudienceMember, AudiencePage};

pub(crate) async fn page(
    tx: &Tx,
    app: AppId,
    audience: &Audience,
    after: u64,
    limit: usize,
) -> Result<AudiencePage, Failed> {
    let (after, limit) = (after as i64, limit.max(1));
    match audience {
        Audience::Topic(topic) if !topic.is_everyone() => of_topic(tx, app, topic, after, limit).await,
        Audience::Everyone | Audience::Topic(_) => everyone(tx, app, after, limit).await,
        Audience::Condition(condition) => of_condition(tx, app, condition, after, limit).await,
        Audience::Upload(campaign) => of_upload(tx, app, *campaign, after, limit).await,
    }
}

fn members(rows: &[Row]) -> Result<Vec<AudienceMember>, Failed> {
    rows.iter().map(|row| Ok(member_of(row)?)).collect()
}

async fn everyone(tx: &Tx, app: AppId, after: i64, limit: usize) -> Result<AudiencePage, Failed> {
    let sql = format!(
        "SELECT {MEMBER_COLUMNS} FROM devices d WHERE d.app = $1 AND d.num > $2 ORDER BY d.num LIMIT $3"
    );
    let rows = tx.query(&sql, &[&i64::from(app.0), &after, &(limit as i64)]).await?;
    Ok(page_of(members(&rows)?, limit))
}

async fn of_topic(
    tx: &Tx,
    app: AppId,
    topic: &Topic,
    after: i64,
    limit: usize,
) -> Result<AudiencePage, Failed> {
    let sql = format!(
        "SELECT {MEMBER_COLUMNS} FROM (
             SELECT device FROM subscriptions
             WHERE topic = (SELECT num FROM topics WHERE app = $1 AND name = $2) AND named = 1 AND device > $3
             ORDER BY device LIMIT $4) s JOIN devices d ON d.num = s.device
         ORDER BY d.num"
    );
    let rows = tx.query(&sql, &[&i64::from(app.0), &topic.as_str(), &after, &(limit as i64)]).await?;
    Ok(page_of(members(&rows)?, limit))
}

async fn of_condition(
    tx: &Tx,
    app: AppId,
    condition: &Condition,
    after: i64,
    limit: usize,
) -> Result<AudiencePage, Failed> {
    let mut windows = Windows::new(limit);
    for (bit, devices) in subscribers(tx, app, &condition.topics(), after, limit).await?.iter().enumerate() {
        windows.add(devices, 1 << bit);
    }
    if condition.matches_none() {
        let sql = "SELECT num FROM devices WHERE app = $1 AND num > $2 ORDER BY num LIMIT $3";
        let rows = tx.query(sql, &[&i64::from(app.0), &after, &(limit as i64)]).await?;
        windows.add(&rows.iter().map(|row| row.int(0)).collect::<Result<Vec<_>, _>>()?, 0);
    }
    let (selected, next) = windows.select(condition);
    let sql = format!("SELECT {MEMBER_COLUMNS} FROM devices d WHERE d.num = ANY($1) ORDER BY d.num");
    let members = members(&tx.query(&sql, &[&selected]).await?)?;
    Ok(AudiencePage { members, unknown: 0, next })
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

/// The cursor is the sequence number of the last line that was read.
async fn of_upload(
    tx: &Tx,
    app: AppId,
    id: CampaignId,
    after: i64,
    limit: usize,
) -> Result<AudiencePage, Failed> {
    let Some(campaign) = campaign_row::number(tx, app, id).await? else { return Ok(AudiencePage::default()) };
    let sql = format!(
        r#"SELECT {MEMBER_COLUMNS}, l.seq, l.lines FROM (
               SELECT seq, "user", count(*) OVER () AS lines FROM (
                   SELECT seq, "user" FROM campaign_lines WHERE campaign = $2 AND seq > $3 ORDER BY seq LIMIT $4) page) l
           LEFT JOIN devices d ON d.app = $1 AND d."user" = l."user"
           ORDER BY l.seq, d.num"#
    );
    let rows = tx.query(&sql, &[&i64::from(app.0), &campaign, &after, &(limit as i64)]).await?;
    let lines = rows.first().map_or(0, |row| row.get::<_, i64>(10)) as usize;
    let mut page = AudiencePage::default();
    let mut last = after;
    for row in &rows {
        let seq: i64 = row.get(9);
        if seq != last && page.members.len() >= limit {
            // The remaining lines belong to the next page.
            page.next = Some(last as u64);
            return Ok(page);
        }
        last = seq;
        match row.get::<_, Option<i64>>(0) {
            Some(_) => page.members.push(member_of(row)?),
            None => page.unknown += 1,
        }
    }
    let full = lines >= limit || page.members.len() >= limit;
    page.next = full.then_some(last as u64);
    Ok(page)
}
