//! Items of users' notification centres, as [`crate::engine::item`] reads them. The rows are written in groups
//! ([`super::group`]).

use noroshi_types::{AppId, ItemCounts, Label, Timestamp, UserId};

use super::transaction::{Failed, Tx};
use crate::engine::item;
use crate::engine::record::Record;
use crate::ids::{Num, place};
use crate::{ChangedItems, Item, ItemChange, ItemPage, WhichItems};

pub(crate) async fn list(tx: &Tx, asked: &ItemPage) -> Result<Vec<Item>, Failed> {
    item::list(tx, tx.ids(), asked).await
}

const COUNTS: &str = "SELECT u.place, n.category, n.count
     FROM unnest($2::text[]) WITH ORDINALITY AS u (name, place)
     CROSS JOIN LATERAL (
         SELECT c.category, count(*) AS count FROM items i JOIN item_contents c ON c.num = i.num
         WHERE i.app = $1 AND i.\"user\" = u.name AND i.state = 1 AND c.expires_at > $3
         GROUP BY c.category) AS n";

pub(crate) async fn counts(
    tx: &Tx,
    app: AppId,
    users: &[UserId],
    now: Timestamp,
) -> Result<Vec<ItemCounts>, Failed> {
    let names: Vec<&str> = users.iter().map(UserId::as_str).collect();
    let mut counts = vec![ItemCounts::default(); users.len()];
    for row in tx.query(COUNTS, &[&i64::from(app.0), &names, &(now.0 as i64)]).await? {
        let place = usize::try_from(row.int(0)? - 1).unwrap_or(usize::MAX);
        if let Some(counts) = counts.get_mut(place) {
            counts.add(item::category_of(&row, 1)?, row.count(2)?);
        }
    }
    Ok(counts)
}

/// Two changes of a user lock rows in the same order.
macro_rules! change {
    ($which:literal) => {
        concat!(
            "WITH asked AS (
                 SELECT i.num FROM items i
                 WHERE i.app = $1 AND i.\"user\" = $2 AND i.state >= $3 AND i.state <= $4 AND ",
            $which,
            " ORDER BY i.num FOR UPDATE)
             UPDATE items i SET state = $5, changed_at = $6 FROM asked
             WHERE i.app = $1 AND i.\"user\" = $2 AND i.num = asked.num RETURNING i.num"
        )
    };
}
const CHANGE_NAMED: &str = change!("i.num = ANY($7::bigint[])");
const CHANGE_UP_TO: &str = change!(
    "i.num <= $7 AND ($8::text IS NULL
         OR $8::text = (SELECT c.category FROM item_contents c WHERE c.num = i.num))"
);

pub(crate) async fn change(tx: &Tx, change: &ItemChange) -> Result<ChangedItems, Failed> {
    let ItemChange { app, user, action, which, now } = change;
    let ids = tx.ids();
    let ((first, last), to) = (action.from(), action.to());
    let (first, last, to) = (first as i64, last as i64, to as i64);
    let (tenant, name, at) = (i64::from(app.0), user.as_str(), now.0 as i64);
    let rows = match which {
        WhichItems::Ids(asked) => {
            let nums: Vec<Num> = asked.iter().filter_map(|id| ids.num(*id)).collect();
            tx.query(CHANGE_NAMED, &[&tenant, &name, &first, &last, &to, &at, &nums]).await?
        }
        WhichItems::UpTo { last: item, category } => {
            let (item, category) = (place(*item), category.as_ref().map(Label::as_str));
            tx.query(CHANGE_UP_TO, &[&tenant, &name, &first, &last, &to, &at, &item, &category]).await?
        }
    };
    let mut changed: Vec<Num> = rows.iter().map(|row| row.get(0)).collect();
    changed.sort_unstable();
    let unread = item::counts(tx, *app, user, *now).await?;
    Ok(ChangedItems { ids: changed.into_iter().map(|num| ids.id(num)).collect(), unread })
}
