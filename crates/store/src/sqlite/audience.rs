//! Audiences in pages by device number, each page at the cost of what it looks at.
//!
//! A condition is looked through in windows: the next devices of every topic named (and of the whole app,
//! where the condition holds without any subscription). Up to the nearest end of those parts that are not
//! exhausted all is known, so there the condition can be decided.

use std::collections::BTreeMap;

use noroshi_types::{AppId, CampaignId, Condition, DeviceNum, PushService, Topic, UserId};
use rusqlite::{Connection, OptionalExtension, Row};

use super::{campaign, device};
use crate::{Audience, AudienceMember, AudiencePage, Error};

/// Of `devices d`.
const COLUMNS: &str =
    "d.num, d.user, d.platform, d.locale, d.timezone, d.app_version, d.tags, d.push_service,
                       d.push_suspect_at IS NOT NULL";

fn member_of(row: &Row<'_>) -> Result<AudienceMember, Error> {
    let user = row.get_ref(1)?.as_str_or_null().map_err(rusqlite::Error::from)?;
    let user = user.map(UserId::parse).transpose();
    Ok(AudienceMember {
        num: DeviceNum(row.get::<_, i64>(0)? as u64),
        user: user.map_err(|error| Error::Engine(format!("a stored device: {error}")))?,
        attributes: device::attributes_of(row, 2)?,
        service: row.get::<_, Option<u8>>(7)?.and_then(PushService::from_code),
        suspect: row.get(8)?,
    })
}

pub(super) fn page(
    db: &Connection,
    app: AppId,
    audience: &Audience,
    after: u64,
    limit: usize,
) -> Result<AudiencePage, Error> {
    match audience {
        Audience::Everyone => everyone(db, app, after, limit),
        Audience::Topic(topic) => of_topic(db, app, topic, after, limit),
        Audience::Condition(condition) => of_condition(db, app, condition, after, limit),
        Audience::Upload(campaign) => of_upload(db, app, *campaign, after, limit),
    }
}

fn full_or_last(members: Vec<AudienceMember>, limit: usize) -> AudiencePage {
    let next = members.last().filter(|_| members.len() >= limit).map(|last| last.num.0);
    AudiencePage { members, unknown: 0, next }
}

fn everyone(db: &Connection, app: AppId, after: u64, limit: usize) -> Result<AudiencePage, Error> {
    let sql =
        format!("SELECT {COLUMNS} FROM devices d WHERE d.app = ?1 AND d.num > ?2 ORDER BY d.num LIMIT ?3");
    let mut statement = db.prepare_cached(&sql)?;
    let rows = statement.query_map((app.0, after as i64, limit as i64), |row| Ok(member_of(row)))?;
    Ok(full_or_last(rows.map(|row| row?).collect::<Result<_, Error>>()?, limit))
}

fn of_topic(
    db: &Connection,
    app: AppId,
    topic: &Topic,
    after: u64,
    limit: usize,
) -> Result<AudiencePage, Error> {
    if topic.is_everyone() {
        return everyone(db, app, after, limit);
    }
    let sql = format!(
        "SELECT {COLUMNS} FROM subscriptions s CROSS JOIN devices d ON d.num = s.device
         WHERE s.topic = (SELECT num FROM topics WHERE app = ?1 AND name = ?2) AND s.named = 1 AND s.device > ?3
         ORDER BY s.device LIMIT ?4"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let values = (app.0, topic.as_str(), after as i64, limit as i64);
    let rows = statement.query_map(values, |row| Ok(member_of(row)))?;
    Ok(full_or_last(rows.map(|row| row?).collect::<Result<_, Error>>()?, limit))
}

fn of_condition(
    db: &Connection,
    app: AppId,
    condition: &Condition,
    after: u64,
    limit: usize,
) -> Result<AudiencePage, Error> {
    let topics = condition.topics();
    let mut seen: BTreeMap<u64, u32> = BTreeMap::new();
    let mut horizon = u64::MAX;
    let mut look = |devices: Vec<u64>, bits: u32| {
        if devices.len() >= limit {
            horizon = horizon.min(devices.last().copied().unwrap_or(u64::MAX));
        }
        for device in devices {
            *seen.entry(device).or_default() |= bits;
        }
    };
    for (bit, topic) in topics.iter().enumerate() {
        look(subscribers(db, app, topic, after, limit)?, 1 << bit);
    }
    if condition.matches_none() {
        let sql = "SELECT num FROM devices WHERE app = ?1 AND num > ?2 ORDER BY num LIMIT ?3";
        let mut statement = db.prepare_cached(sql)?;
        let rows = statement
            .query_map((app.0, after as i64, limit as i64), |row| Ok(row.get::<_, i64>(0)? as u64))?;
        look(rows.collect::<rusqlite::Result<_>>()?, 0);
    }
    let mut page = AudiencePage { next: (horizon < u64::MAX).then_some(horizon), ..AudiencePage::default() };
    let sql = format!("SELECT {COLUMNS} FROM devices d WHERE d.num = ?1");
    let mut find = db.prepare_cached(&sql)?;
    for (device, bits) in seen.range(..=horizon) {
        let subscribed = |topic: &Topic| topics.binary_search(&topic).is_ok_and(|bit| bits & (1 << bit) != 0);
        if !condition.matches(subscribed) {
            continue;
        }
        if let Some(member) = find.query_row((*device as i64,), |row| Ok(member_of(row))).optional()? {
            page.members.push(member?);
        }
        if page.members.len() >= limit {
            page.next = Some(*device);
            break;
        }
    }
    Ok(page)
}

fn subscribers(
    db: &Connection,
    app: AppId,
    topic: &Topic,
    after: u64,
    limit: usize,
) -> Result<Vec<u64>, Error> {
    let mut statement = db.prepare_cached(
        "SELECT device FROM subscriptions
         WHERE topic = (SELECT num FROM topics WHERE app = ?1 AND name = ?2) AND named = 1 AND device > ?3
         ORDER BY device LIMIT ?4",
    )?;
    let values = (app.0, topic.as_str(), after as i64, limit as i64);
    let rows = statement.query_map(values, |row| Ok(row.get::<_, i64>(0)? as u64))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// The cursor is the place of the last line that was looked at.
fn of_upload(
    db: &Connection,
    app: AppId,
    id: CampaignId,
    after: u64,
    limit: usize,
) -> Result<AudiencePage, Error> {
    let Some(campaign) = campaign::number(db, app, id)? else { return Ok(AudiencePage::default()) };
    let mut lines = db.prepare_cached(
        "SELECT seq, user FROM campaign_lines WHERE campaign = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3",
    )?;
    let sql = format!("SELECT {COLUMNS} FROM devices d WHERE d.app = ?1 AND d.user = ?2 ORDER BY d.num");
    let mut devices = db.prepare_cached(&sql)?;
    let mut page = AudiencePage::default();
    let mut lines = lines.query((campaign, after as i64, limit as i64))?;
    let mut read = 0;
    while let Some(line) = lines.next()? {
        let before = page.members.len();
        let user = line.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?;
        let mut rows = devices.query((app.0, user))?;
        while let Some(row) = rows.next()? {
            page.members.push(member_of(row)?);
        }
        page.unknown += u64::from(page.members.len() == before);
        read += 1;
        if read == limit || page.members.len() >= limit {
            page.next = Some(line.get::<_, i64>(0)? as u64);
            break;
        }
    }
    Ok(page)
}
