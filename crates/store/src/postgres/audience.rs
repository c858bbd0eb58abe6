//! Audiences in pages by device number, each page at the cost of what it looks at.
//!
//! A condition is looked through in windows: the next devices of every topic named (and of the whole app,
//! where the condition holds without any subscription). Up to the nearest end of those parts that are not
//! exhausted all is known, so there the condition can be decided.

use std::collections::BTreeMap;

use noroshi_types::{AppId, CampaignId, Condition, DeviceNum, Topic, UserId};
use tokio_postgres::Row;

use super::campaign;
use super::push::queue;
use super::transaction::{Failed, Tx};
use crate::device::tags_of;
use crate::{Attributes, Audience, AudienceMember, AudiencePage, Error};

/// Of `devices d`.
const COLUMNS: &str = r#"d.num, d."user", d.platform, d.locale, d.timezone, d.app_version, d.tags, d.push_service,
                         d.push_suspect_at IS NOT NULL"#;

fn member_of(row: &Row) -> Result<AudienceMember, Failed> {
    let user = row.get::<_, Option<&str>>(1).map(UserId::parse).transpose();
    Ok(AudienceMember {
        num: DeviceNum(row.get::<_, i64>(0) as u64),
        user: user.map_err(|error| Error::Engine(format!("a stored device: {error}")))?,
        attributes: attributes_of(row, 2)?,
        service: row.get::<_, Option<i64>>(7).and_then(queue::service_of),
        suspect: row.get(8),
    })
}

/// Of platform, locale, timezone, app version and tags, from the column `first` on.
pub(super) fn attributes_of(row: &Row, first: usize) -> Result<Attributes, Failed> {
    Ok(Attributes {
        platform: row.get(first),
        locale: row.get(first + 1),
        timezone: row.get(first + 2),
        app_version: row.get(first + 3),
        tags: tags_of(row.get(first + 4))?,
    })
}

pub(super) async fn page(
    tx: Tx,
    app: AppId,
    audience: &Audience,
    after: i64,
    limit: usize,
) -> Result<AudiencePage, Failed> {
    match audience {
        Audience::Topic(topic) if !topic.is_everyone() => of_topic(&tx, app, topic, after, limit).await,
        Audience::Everyone | Audience::Topic(_) => everyone(&tx, app, after, limit).await,
        Audience::Condition(condition) => of_condition(&tx, app, condition, after, limit).await,
        Audience::Upload(campaign) => of_upload(&tx, app, *campaign, after, limit).await,
    }
}

fn full_or_last(rows: &[Row], limit: usize) -> Result<AudiencePage, Failed> {
    let members = rows.iter().map(member_of).collect::<Result<Vec<_>, Failed>>()?;
    let next = members.last().filter(|_| members.len() >= limit).map(|last| last.num.0);
    Ok(AudiencePage { members, unknown: 0, next })
}

async fn everyone(tx: &Tx, app: AppId, after: i64, limit: usize) -> Result<AudiencePage, Failed> {
    let sql =
        format!("SELECT {COLUMNS} FROM devices d WHERE d.app = $1 AND d.num > $2 ORDER BY d.num LIMIT $3");
    let rows = tx.query(&sql, &[&i64::from(app.0), &after, &(limit as i64)]).await?;
    full_or_last(&rows, limit)
}

async fn of_topic(
    tx: &Tx,
    app: AppId,
    topic: &Topic,
    after: i64,
    limit: usize,
) -> Result<AudiencePage, Failed> {
    let sql = format!(
        "SELECT {COLUMNS} FROM (
             SELECT device FROM subscriptions
             WHERE topic = (SELECT num FROM topics WHERE app = $1 AND name = $2) AND named = 1 AND device > $3
             ORDER BY device LIMIT $4) s JOIN devices d ON d.num = s.device
         ORDER BY d.num"
    );
    let rows = tx.query(&sql, &[&i64::from(app.0), &topic.as_str(), &after, &(limit as i64)]).await?;
    full_or_last(&rows, limit)
}

async fn of_condition(
    tx: &Tx,
    app: AppId,
    condition: &Condition,
    after: i64,
    limit: usize,
) -> Result<AudiencePage, Failed> {
    let topics = condition.topics();
    let mut seen: BTreeMap<i64, u32> = BTreeMap::new();
    let mut horizon = i64::MAX;
    let mut look = |devices: &[i64], bits: u32| {
        if devices.len() >= limit {
            horizon = horizon.min(devices.last().copied().unwrap_or(i64::MAX));
        }
        for device in devices {
            *seen.entry(*device).or_default() |= bits;
        }
    };
    for (bit, devices) in subscribers(tx, app, &topics, after, limit).await?.iter().enumerate() {
        look(devices, 1 << bit);
    }
    if condition.matches_none() {
        let sql = "SELECT num FROM devices WHERE app = $1 AND num > $2 ORDER BY num LIMIT $3";
        let rows = tx.query(sql, &[&i64::from(app.0), &after, &(limit as i64)]).await?;
        look(&rows.iter().map(|row| row.get(0)).collect::<Vec<_>>(), 0);
    }
    let mut next = (horizon < i64::MAX).then_some(horizon as u64);
    let mut meant = Vec::new();
    for (device, bits) in seen.range(..=horizon) {
        let subscribed = |topic: &Topic| topics.binary_search(&topic).is_ok_and(|bit| bits & (1 << bit) != 0);
        if condition.matches(subscribed) {
            meant.push(*device);
        }
        if meant.len() >= limit {
            next = Some(*device as u64);
            break;
        }
    }
    let sql = format!("SELECT {COLUMNS} FROM devices d WHERE d.num = ANY($1) ORDER BY d.num");
    let rows = tx.query(&sql, &[&meant]).await?;
    let members = rows.iter().map(member_of).collect::<Result<_, Failed>>()?;
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

/// The cursor is the place of the last line that was looked at.
async fn of_upload(
    tx: &Tx,
    app: AppId,
    id: CampaignId,
    after: i64,
    limit: usize,
) -> Result<AudiencePage, Failed> {
    let Some(campaign) = campaign::number(tx, app, id).await? else { return Ok(AudiencePage::default()) };
    let sql = format!(
        r#"SELECT {COLUMNS}, l.seq, l.lines FROM (
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
            // The rest of the lines is the next page's.
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
