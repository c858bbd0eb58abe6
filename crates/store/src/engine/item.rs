//! Items of users' notification centres. The content of an item is one row for all users of its notification; a user's
//! row has only the state. All rows of a user are few (`item_rows`), so a filter reads them in the order of their numbers.

use std::time::{Duration, Instant};

use noroshi_types::{AppId, ItemCounts, ItemState, Label, Timestamp, UserId};

use super::record::{Record, unknown};
use super::session::{Session, values};
use crate::ids::{Ids, Num, place};
use crate::{Accept, Error, Item, ItemPage};

/// For how long one commit removes rows. Others wait for SQLite's writer meanwhile.
const SLICE: Duration = Duration::from_millis(20);
/// Rows that one statement removes between two looks at the clock.
const CHUNK: usize = 200;
/// Rows that one commit deletes for a user: about 20 ms.
pub(crate) const DELETED_ROWS: usize = 1_000;

/// The row of `item_contents`: number, app, creation, expiry, category, notification and data.
pub(crate) type Content<'a> = (Num, i64, i64, i64, Option<&'a str>, Option<&'a str>, Option<&'a str>);

/// `None` for a request without items.
pub(crate) fn content(num: Num, accept: &Accept) -> Option<Content<'_>> {
    let Accept { app, request, now, .. } = accept;
    let item = request.item.as_ref()?;
    let expires_at = now.saturating_add(item.retention);
    Some((
        num,
        i64::from(app.0),
        now.0 as i64,
        expires_at.0 as i64,
        item.category.as_ref().map(Label::as_str),
        request.notification.as_ref().map(|text| text.as_str()),
        request.data.as_ref().map(|text| text.as_str()),
    ))
}

/// A page of a user's items, newest first.
pub(crate) async fn list<S: Session>(
    session: &S,
    ids: &Ids,
    asked: &ItemPage,
) -> Result<Vec<Item>, S::Error> {
    let sql = format!(
        "SELECT i.num, i.state, i.changed_at, c.category, c.created_at, c.expires_at, c.notification, c.data
         FROM items AS i {} item_contents AS c ON c.num = i.num
         WHERE i.app = $1 AND i.\"user\" = $2 AND i.num < $3 AND i.state >= $4 AND i.state <= $5
             AND c.expires_at > $6 AND (CAST($7 AS TEXT) IS NULL OR c.category = $7)
         ORDER BY i.num DESC LIMIT $8",
        S::ORDERED_JOIN
    );
    let before = asked.after.map_or(Num::MAX, place);
    let (first, last) = asked.states;
    let category = asked.category.as_ref().map(Label::as_str);
    let values = values![
        asked.app,
        asked.user.as_str(),
        before,
        first as u8,
        last as u8,
        asked.now,
        category,
        asked.limit
    ];
    session.query(&sql, &values, |row| item_of(row, ids)).await
}

fn item_of(row: &dyn Record, ids: &Ids) -> Result<Item, Error> {
    Ok(Item {
        id: ids.id(row.int(0)?),
        state: ItemState::from_code(row.code(1)?).ok_or_else(|| unknown("state of an item"))?,
        changed_at: row.time(2)?,
        category: category_of(row, 3)?,
        created_at: row.time(4)?,
        expires_at: row.time(5)?,
        notification: row.json_or_null(6)?,
        data: row.json_or_null(7)?,
    })
}

/// `None` too for a name that only a newer program accepts.
pub(crate) fn category_of(row: &(impl Record + ?Sized), column: usize) -> Result<Option<Label>, Error> {
    Ok(row.text_or_null(column)?.and_then(|name| Label::parse(name).ok()))
}

/// The unread items of a user.
pub(crate) async fn counts<S: Session>(
    session: &S,
    app: AppId,
    user: &UserId,
    now: Timestamp,
) -> Result<ItemCounts, S::Error> {
    let sql = format!(
        "SELECT c.category FROM items AS i {} item_contents AS c ON c.num = i.num
         WHERE i.app = $1 AND i.\"user\" = $2 AND i.state = 1 AND c.expires_at > $3",
        S::ORDERED_JOIN
    );
    let mut counts = ItemCounts::default();
    let rows = session.query(&sql, &values![app, user.as_str(), now], |row| category_of(row, 0)).await?;
    rows.into_iter().for_each(|category| counts.add(category, 1));
    Ok(counts)
}

/// Deletes items of a user, at most [`DELETED_ROWS`]. Returns how many.
pub(crate) async fn delete<S: Session>(session: &S, app: AppId, user: &UserId) -> Result<u64, S::Error> {
    let sql = "DELETE FROM items WHERE app = $1 AND \"user\" = $2 AND num IN (
                   SELECT num FROM items WHERE app = $1 AND \"user\" = $2 LIMIT $3)";
    session.execute(sql, &values![app, user.as_str(), DELETED_ROWS]).await
}

/// The items of a cancelled notification are in no list and no count from now on. They are removed as expired ones.
/// Returns whether there were any, also for a notification of which nothing else is kept.
pub(crate) async fn cancel<S: Session>(
    session: &S,
    app: AppId,
    num: Num,
    now: Timestamp,
) -> Result<bool, S::Error> {
    let sql = "UPDATE item_contents SET expires_at = $3 WHERE num = $1 AND app = $2 AND expires_at > $3";
    Ok(session.execute(sql, &values![num, app, now]).await? > 0)
}

/// Removes expired items for some milliseconds, at most about `rows_max`. Returns how many, and whether there may be
/// more.
pub(crate) async fn prune<S: Session>(
    session: &S,
    now: Timestamp,
    rows_max: usize,
) -> Result<(u64, bool), S::Error> {
    let (started, mut left) = (Instant::now(), rows_max);
    let expired = "SELECT num FROM item_contents WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2";
    let nums = session.query(expired, &values![now, CHUNK], |row| row.int(0)).await?;
    let sql = "DELETE FROM items WHERE num = $1 AND (app, \"user\") IN (
                   SELECT app, \"user\" FROM items WHERE num = $1 LIMIT $2)";
    for num in &nums {
        loop {
            let limit = left.min(CHUNK);
            let rows = session.execute(sql, &values![*num, limit]).await? as usize;
            left -= rows.min(left);
            // Every call makes progress, however slow the disk is.
            let is_over = left == 0 || started.elapsed() >= SLICE;
            if rows == limit && is_over {
                return Ok(((rows_max - left) as u64, true));
            }
            if rows < limit {
                break;
            }
        }
        session.execute("DELETE FROM item_contents WHERE num = $1", &values![*num]).await?;
        if left == 0 || started.elapsed() >= SLICE {
            return Ok(((rows_max - left) as u64, true));
        }
    }
    Ok(((rows_max - left) as u64, nums.len() == CHUNK))
}
