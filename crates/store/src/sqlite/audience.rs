//! Pages of audiences, as [`crate::engine::audience`] describes them.

use noroshi_types::{AppId, Condition};

use super::reader::Read;
use super::statement::{Db, ready};
use crate::engine::audience::{self, Windows};
use crate::engine::device::{MEMBER_COLUMNS, member_of};
use crate::engine::record::Record;
use crate::{Audience, AudiencePage, Error};

pub(crate) fn page(
    Read { db, .. }: Read<'_>,
    app: AppId,
    of: &Audience,
    after: u64,
    limit: usize,
) -> Result<AudiencePage, Error> {
    let (after, limit) = (after as i64, limit.max(1));
    match of {
        Audience::Everyone => ready(audience::everyone(db, app, after, limit)),
        Audience::Topic(topic) => ready(audience::of_topic(db, app, topic, after, limit)),
        Audience::Condition(condition) => of_condition(db, app, condition, after, limit),
        Audience::Upload(campaign) => ready(audience::of_upload(db, app, *campaign, after, limit)),
    }
}

fn of_condition(
    db: &Db,
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
