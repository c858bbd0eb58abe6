//! Pages of audiences, by device number; each page costs what it examines.

use noroshi_types::{AppId, CampaignId, Condition, Topic};
use rusqlite::Connection;

use super::number;
use super::reader::Read;
use super::statement::Statements;
use crate::engine::audience::{Windows, page_of};
use crate::engine::device::{MEMBER_COLUMNS, member_of};
use crate::engine::record::Record;
use crate::{Audience, AudiencePage, Error};

pub(crate) fn page(
    Read { db, .. }: Read<'_>,
    app: AppId,
    audience: &Audience,
    after: u64,
    limit: usize,
) -> Result<AudiencePage, Error> {
    let (after, limit) = (after as i64, limit.max(1));
    match audience {
        Audience::Everyone => everyone(db, app, after, limit),
        Audience::Topic(topic) => of_topic(db, app, topic, after, limit),
        Audience::Condition(condition) => of_condition(db, app, condition, after, limit),
        Audience::Upload(campaign) => of_upload(db, app, *campaign, after, limit),
    }
}

fn everyone(db: &Connection, app: AppId, after: i64, limit: usize) -> Result<AudiencePage, Error> {
    let sql = format!(
        "SELECT {MEMBER_COLUMNS} FROM devices d WHERE d.app = ?1 AND d.num > ?2 ORDER BY d.num LIMIT ?3"
    );
    Ok(page_of(db.all(&sql, (app.0, after, limit as i64), |row| member_of(row))?, limit))
}

fn of_topic(
    db: &Connection,
    app: AppId,
    topic: &Topic,
    after: i64,
    limit: usize,
) -> Result<AudiencePage, Error> {
    if topic.is_everyone() {
        return everyone(db, app, after, limit);
    }
    let sql = format!(
        "SELECT {MEMBER_COLUMNS} FROM subscriptions s CROSS JOIN devices d ON d.num = s.device
         WHERE s.topic = (SELECT num FROM topics WHERE app = ?1 AND name = ?2) AND s.named = 1 AND s.device > ?3
         ORDER BY s.device LIMIT ?4"
    );
    let values = (app.0, topic.as_str(), after, limit as i64);
    Ok(page_of(db.all(&sql, values, |row| member_of(row))?, limit))
}

fn of_condition(
    db: &Connection,
    app: AppId,
    condition: &Condition,
    after: i64,
    limit: usize,
) -> Result<AudiencePage, Error> {
    let mut windows = Windows::new(limit);
    let subscribers = "SELECT device FROM subscriptions
         WHERE topic = (SELECT num FROM topics WHERE app = ?1 AND name = ?2) AND named = 1 AND device > ?3
         ORDER BY device LIMIT ?4";
    for (bit, topic) in condition.topics().iter().enumerate() {
        let values = (app.0, topic.as_str(), after, limit as i64);
        windows.add(&db.all(subscribers, values, |row| row.int(0))?, 1 << bit);
    }
    if condition.matches_none() {
        let sql = "SELECT num FROM devices WHERE app = ?1 AND num > ?2 ORDER BY num LIMIT ?3";
        windows.add(&db.all(sql, (app.0, after, limit as i64), |row| row.int(0))?, 0);
    }
    let (selected, next) = windows.select(condition);
    let sql = format!("SELECT {MEMBER_COLUMNS} FROM devices d WHERE d.num = ?1");
    let mut page = AudiencePage { next, ..AudiencePage::default() };
    for device in selected {
        page.members.extend(db.first(&sql, (device,), |row| member_of(row))?);
    }
    Ok(page)
}

/// The cursor is the sequence number of the last line that was read.
fn of_upload(
    db: &Connection,
    app: AppId,
    id: CampaignId,
    after: i64,
    limit: usize,
) -> Result<AudiencePage, Error> {
    let Some(campaign) = number::campaign(db, app, id)? else { return Ok(AudiencePage::default()) };
    let mut lines = db.prepare_cached(
        "SELECT seq, user FROM campaign_lines WHERE campaign = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3",
    )?;
    let sql =
        format!("SELECT {MEMBER_COLUMNS} FROM devices d WHERE d.app = ?1 AND d.user = ?2 ORDER BY d.num");
    let mut page = AudiencePage::default();
    let mut lines = lines.query((campaign, after, limit as i64))?;
    let mut read = 0;
    while let Some(line) = lines.next()? {
        let members = db.all(&sql, (app.0, line.text(1)?), |row| member_of(row))?;
        page.unknown += u64::from(members.is_empty());
        page.members.extend(members);
        read += 1;
        if read == limit || page.members.len() >= limit {
            page.next = Some(line.count(0)?);
            break;
        }
    }
    Ok(page)
}
