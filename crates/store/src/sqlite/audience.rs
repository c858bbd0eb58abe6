//! Pages of audiences, as [`crate::engine::audience`] describes them.

use noroshi_types::{AppId, Condition, TokenKey};

use super::reader::Read;
use super::statement::{Db, ready};
use crate::engine::audience::{self, Windows};
use crate::engine::device::{member_columns, member_of};
use crate::engine::push_token::Pushed;
use crate::engine::record::Record;
use crate::engine::session::values;
use crate::{Audience, AudiencePage, Error};

pub(crate) fn page(
    Read { db, .. }: Read<'_>,
    app: AppId,
    of: &Audience,
    after: u64,
    limit: usize,
    token: Option<&TokenKey>,
) -> Result<AudiencePage, Error> {
    let (after, limit) = (after as i64, limit.max(1));
    match of {
        Audience::Everyone => ready(audience::everyone(db, app, after, limit, token)),
        Audience::Topic(topic) => ready(audience::of_topic(db, app, topic, after, limit, token)),
        Audience::Condition(condition) => of_condition(db, app, condition, after, limit, token),
        Audience::Upload(campaign) => ready(audience::of_upload(db, app, *campaign, after, limit, token)),
    }
}

fn of_condition(
    db: &Db,
    app: AppId,
    condition: &Condition,
    after: i64,
    limit: usize,
    token: Option<&TokenKey>,
) -> Result<AudiencePage, Error> {
    let (selected, next) = numbers(db, app, condition, after, limit)?;
    let pushed = Pushed::new(token, '$', 2);
    let sql = format!("SELECT {} FROM devices d{} WHERE d.num = $1", member_columns(&pushed), pushed.join());
    let mut page = AudiencePage { next, ..AudiencePage::default() };
    for device in selected {
        let values = [&values![device], &pushed.values()[..]].concat();
        page.members.extend(db.all_shared(&sql, &values, |row| member_of(row))?);
    }
    Ok(page)
}

/// The next devices that a condition selects, at most `limit`, in order, and where the next page starts.
pub(super) fn numbers(
    db: &Db,
    app: AppId,
    condition: &Condition,
    after: i64,
    limit: usize,
) -> Result<(Vec<i64>, Option<u64>), Error> {
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
    Ok(windows.select(condition))
}
