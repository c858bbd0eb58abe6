//! Items that a group writes: the content of a notification once, and a row for each of its users.

use noroshi_types::UserId;

use crate::Accept;
use crate::engine::item;
use crate::ids::Num;
use crate::postgres::columns::columns;

pub(super) const CONTENTS: &str =
    "INSERT INTO item_contents (num, app, created_at, expires_at, category, notification, data)
     SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::text[], $7::text[])";

/// Ranks continue after the user's newest item. The order lock admits one group at a time.
pub(super) const INSERT: &str = "INSERT INTO items (app, \"user\", num, rank, state, changed_at)
     SELECT u.app, u.name, u.num,
         coalesce((SELECT i.rank FROM items i WHERE i.app = u.app AND i.\"user\" = u.name
                   ORDER BY i.num DESC LIMIT 1), 0)
             + row_number() OVER (PARTITION BY u.app, u.name ORDER BY u.num),
         1, u.at
     FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[]) u (app, name, num, at)";

/// Two for each new item, so that a lower limit takes effect with time. A row that a change has locked is left to the
/// next group.
pub(super) const EVICT: &str = "DELETE FROM items i USING (
         SELECT o.app, o.\"user\", o.num
         FROM (SELECT g.app, g.name, count(*) AS added FROM unnest($1::bigint[], $2::text[]) g (app, name)
               GROUP BY g.app, g.name) u
         CROSS JOIN LATERAL (
             SELECT n.rank FROM items n WHERE n.app = u.app AND n.\"user\" = u.name
             ORDER BY n.num DESC LIMIT 1) newest
         CROSS JOIN LATERAL (
             SELECT l.app, l.\"user\", l.num, l.rank FROM items l WHERE l.app = u.app AND l.\"user\" = u.name
             ORDER BY l.num LIMIT u.added * 2 FOR UPDATE SKIP LOCKED) o
         WHERE o.rank <= newest.rank - $3) gone
     WHERE i.app = gone.app AND i.\"user\" = gone.\"user\" AND i.num = gone.num";

columns! {
    /// Columns of `item_contents`.
    Contents<'a> {
        nums: Num, apps: i64, created: i64, expires: i64, categories: Option<&'a str>,
        notifications: Option<&'a str>, datas: Option<&'a str>,
    }
}

columns! {
    /// Columns of `items`.
    Rows { apps: i64, users: String, nums: Num, times: i64 }
}

/// The items of a group.
#[derive(Default)]
pub(super) struct Items<'a> {
    pub contents: Contents<'a>,
    pub rows: Rows,
}

impl<'a> Items<'a> {
    /// Adds the items of a notification for these users, and returns them.
    pub(super) fn add(&mut self, num: Num, accept: &'a Accept, users: &[UserId]) -> Vec<UserId> {
        let Some(content) = item::content(num, accept) else { return Vec::new() };
        if !users.is_empty() {
            self.contents.push_row(content);
        }
        let (app, now) = (i64::from(accept.app.0), accept.now.0 as i64);
        for user in users {
            self.rows.push_row((app, user.as_str().to_owned(), num, now));
        }
        users.to_vec()
    }
}
