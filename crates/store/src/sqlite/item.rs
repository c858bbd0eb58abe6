//! Items of users' notification centres, as [`crate::engine::item`] reads them.

use std::collections::BTreeSet;

use noroshi_types::{AppId, ItemCounts, Label, Target, Timestamp, UserId};

use super::reader::Read;
use super::statement::ready;
use super::writer::Write;
use crate::engine::device::user_of;
use crate::engine::item;
use crate::engine::preferences;
use crate::engine::record::Record;
use crate::ids::{Num, place};
use crate::{Accept, ChangedItems, Error, Item, ItemChange, ItemPage, WhichItems};

/// Writes the items of a notification. Returns the users that got one.
pub(super) fn write(w: &Write<'_>, num: Num, accept: &Accept) -> Result<Vec<UserId>, Error> {
    let Some(content) = item::content(num, accept) else { return Ok(Vec::new()) };
    let users = wanting(w, accept, users_of(w, accept)?)?;
    if users.is_empty() {
        return Ok(users);
    }
    let sql = "INSERT INTO item_contents (num, app, created_at, expires_at, category, notification, data)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    w.db.run(sql, content)?;
    let rows_max = i64::from(w.options.item_rows.max(1));
    let newest = "SELECT rank FROM items WHERE app = ?1 AND user = ?2 ORDER BY num DESC LIMIT 1";
    let add = "INSERT INTO items (app, user, num, rank, state, changed_at) VALUES (?1, ?2, ?3, ?4, 1, ?5)";
    // Two for each new one, so that a lower limit takes effect with time.
    let evict = "DELETE FROM items WHERE app = ?1 AND user = ?2 AND rank <= ?3 AND num IN (
                     SELECT num FROM items WHERE app = ?1 AND user = ?2 ORDER BY num LIMIT 2)";
    let (app, now) = (accept.app.0, accept.now.0 as i64);
    for user in &users {
        let user = user.as_str();
        let rank = w.db.first(newest, (app, user), |row| row.int(0))?.unwrap_or(0) + 1;
        w.db.run(add, (app, user, num, rank, now))?;
        if rank > rows_max {
            w.db.run(evict, (app, user, rank - rows_max))?;
        }
    }
    Ok(users)
}

/// The users whose preferences allow the item.
fn wanting(w: &Write<'_>, accept: &Accept, mut users: Vec<UserId>) -> Result<Vec<UserId>, Error> {
    let sql = "SELECT body FROM user_preferences WHERE app = ?1 AND user = ?2";
    let mut refusing = BTreeSet::new();
    for user in &users {
        let own = w.db.first(sql, (accept.app.0, user.as_str()), |row| preferences::of_column(row, 0))?;
        if !preferences::wants_item(own.flatten().as_ref(), accept.request.category.as_ref()) {
            refusing.insert(user.clone());
        }
    }
    users.retain(|user| !refusing.contains(user));
    Ok(users)
}

/// The users that the request names.
fn users_of(w: &Write<'_>, accept: &Accept) -> Result<Vec<UserId>, Error> {
    match &accept.request.target {
        Target::Users(users) => Ok(users.clone()),
        Target::Devices(devices) => {
            let sql = "SELECT user FROM devices WHERE app = ?1 AND id = ?2";
            let mut users = BTreeSet::new();
            for device in devices {
                let user = w.db.first(sql, (accept.app.0, device.as_str()), |row| user_of(row, 0))?;
                users.extend(user.flatten());
            }
            Ok(users.into_iter().collect())
        }
        Target::Topic(_) | Target::Condition(_) | Target::Everyone => Ok(Vec::new()),
    }
}

pub(crate) fn list(read: Read<'_>, asked: &ItemPage) -> Result<Vec<Item>, Error> {
    ready(item::list(read.db, read.ids, asked))
}

pub(crate) fn counts(
    read: Read<'_>,
    app: AppId,
    users: &[UserId],
    now: Timestamp,
) -> Result<Vec<ItemCounts>, Error> {
    users.iter().map(|user| ready(item::counts(read.db, app, user, now))).collect()
}

pub(crate) fn change(w: &Write<'_>, change: &ItemChange) -> Result<ChangedItems, Error> {
    let ItemChange { app, user, action, which, now } = change;
    let ((first, last), to) = (action.from(), action.to());
    let (first, last, to) = (first as i64, last as i64, to as i64);
    let (tenant, name, at) = (app.0, user.as_str(), now.0 as i64);
    let mut changed = Vec::new();
    match which {
        WhichItems::Ids(ids) => {
            let sql = "UPDATE items SET state = ?4, changed_at = ?5
                       WHERE app = ?1 AND user = ?2 AND num = ?3 AND state >= ?6 AND state <= ?7";
            for id in ids {
                let Some(num) = w.ids.num(*id) else { continue };
                if w.db.run(sql, (tenant, name, num, to, at, first, last))? > 0 {
                    changed.push(*id);
                }
            }
        }
        WhichItems::UpTo { last: item, category } => {
            let sql = "UPDATE items SET state = ?4, changed_at = ?5
                       WHERE app = ?1 AND user = ?2 AND num <= ?3 AND state >= ?6 AND state <= ?7
                           AND (?8 IS NULL OR ?8 = (SELECT category FROM item_contents c WHERE c.num = items.num))
                       RETURNING num";
            let category = category.as_ref().map(Label::as_str);
            let values = (tenant, name, place(*item), to, at, first, last, category);
            let mut nums = w.db.all(sql, values, |row| row.int(0))?;
            nums.sort_unstable();
            changed.extend(nums.into_iter().map(|num| w.ids.id(num)));
        }
    }
    Ok(ChangedItems { ids: changed, unread: ready(item::counts(w.db, *app, user, *now))? })
}
