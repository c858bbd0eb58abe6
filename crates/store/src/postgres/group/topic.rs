//! The offsets that a group's messages get in topics, the rows added to logs, and the rows that leave them.

use std::collections::{BTreeMap, HashMap};

use noroshi_types::{Epoch, Position, Request, Timestamp};

use super::reading::TopicRow;
use crate::Accept;
use crate::engine::accept::is_stored;
use crate::engine::notification::Standing;
use crate::ids::Num;
use crate::postgres::columns::columns;

/// Removes older messages with the same collapse keys. The provider asked for that, so the log stays complete.
pub(super) const COLLAPSE: &str = "WITH gone AS (
         DELETE FROM topic_log l USING unnest($1::bigint[], $2::text[]) u (topic, key)
         WHERE l.topic = u.topic AND l.collapse_key = u.key RETURNING l.topic, l.num),
     replaced AS (UPDATE notifications n SET standing = 2 FROM gone WHERE n.num = gone.num)
     UPDATE topics t SET log_rows = log_rows - g.rows
     FROM (SELECT topic, count(*) AS rows FROM gone GROUP BY topic) g WHERE t.num = g.topic";

pub(super) const INSERT: &str = "INSERT INTO topic_log (topic, topic_offset, num, collapse_key)
     SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[])";

/// Updates heads and row counts, and clears the marks of unused topics. A topic without a new stored message keeps its last
/// stored offset.
pub(super) const ADVANCE: &str = "UPDATE topics t
     SET head = u.head, stored = coalesce(u.stored, t.stored), log_rows = t.log_rows + u.added, unused_since = 0
     FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) u (topic, head, stored, added)
     WHERE t.num = u.topic";

pub(super) const RETAIN: &str = "UPDATE topics t SET retained = u.num, retained_expires_at = u.expires_at
     FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) u (topic, num, expires_at) WHERE t.num = u.topic";

/// Trims logs to the newest `$2` rows.
pub(super) const TRIM: &str = "WITH gone AS (
         DELETE FROM topic_log l USING (
             SELECT o.topic, o.topic_offset FROM topics t CROSS JOIN LATERAL (
                 SELECT r.topic, r.topic_offset FROM topic_log r WHERE r.topic = t.num
                 ORDER BY r.topic_offset LIMIT greatest(t.log_rows - $2, 0)) o
             WHERE t.num = ANY($1) AND t.log_rows > $2) v
         WHERE l.topic = v.topic AND l.topic_offset = v.topic_offset RETURNING l.topic, l.topic_offset, l.num),
     replaced AS (UPDATE notifications n SET standing = 2 FROM gone WHERE n.num = gone.num)
     UPDATE topics t SET log_rows = log_rows - g.rows, trimmed_offset = greatest(trimmed_offset, g.topic_offset),
                         trimmed_num = greatest(trimmed_num, g.num)
     FROM (SELECT topic, count(*) AS rows, max(topic_offset) AS topic_offset, max(num) AS num FROM gone GROUP BY topic) g
     WHERE t.num = g.topic";

/// The changes of a topic.
struct Change {
    head: i64,
    /// The last offset that got a row in the log.
    stored: Option<i64>,
    /// Rows added to its log.
    added: i64,
    /// Number and expiry of the retained message.
    retained: Option<(Num, i64)>,
}

struct LogRow<'a> {
    topic: i64,
    offset: i64,
    num: Num,
    key: Option<&'a str>,
    /// Index of its notification in the group.
    place: usize,
    /// A later message of the group replaced it: it is not written.
    gone: bool,
}

/// The place that a message got in its topic.
pub(super) struct Published {
    pub topic: i64,
    pub position: Position,
    pub standing: Standing,
}

/// The topics of a group.
#[derive(Default)]
pub(super) struct Topics<'a> {
    changes: BTreeMap<i64, Change>,
    rows: Vec<LogRow<'a>>,
    /// Index of the latest row of a key.
    keys: HashMap<(i64, &'a str), usize>,
}

columns! {
    /// Columns of [`INSERT`].
    LogColumns<'a> { topics: i64, offsets: i64, nums: Num, keys: Option<&'a str> }
}

/// Columns of all statements.
#[derive(Default)]
pub(super) struct TopicColumns<'a> {
    pub collapsing: (Vec<i64>, Vec<&'a str>),
    pub log: LogColumns<'a>,
    pub advancing: (Vec<i64>, Vec<i64>, Vec<Option<i64>>, Vec<i64>),
    pub retaining: (Vec<i64>, Vec<Num>, Vec<i64>),
}

impl<'a> Topics<'a> {
    /// Gives a message the next offset, a row in the log if it is stored, and the place of the retained message if
    /// the request retains it.
    pub(super) fn publish(
        &mut self,
        place: usize,
        num: Num,
        accept: &'a Accept,
        topic: TopicRow,
    ) -> Published {
        let Accept { request, now, .. } = accept;
        let change = self.changes.entry(topic.num).or_insert(Change {
            head: topic.head,
            stored: None,
            added: 0,
            retained: None,
        });
        change.head += 1;
        let offset = change.head;
        if request.retain {
            change.retained = Some((num, expiry(request, *now)));
        }
        let stored = is_stored(accept);
        if stored {
            change.stored = Some(offset);
            change.added += 1;
            let key = request.collapse_key.as_deref();
            if let Some(key) = key
                && let Some(before) = self.keys.insert((topic.num, key), self.rows.len())
            {
                self.rows[before].gone = true;
                change.added -= 1;
            }
            self.rows.push(LogRow { topic: topic.num, offset, num, key, place, gone: false });
        }
        Published {
            topic: topic.num,
            position: Position { epoch: Epoch(topic.epoch), offset: offset as u64 },
            standing: if stored { Standing::Kept } else { Standing::Nothing },
        }
    }

    /// Indices of messages that a later one of the group replaced.
    pub(super) fn replaced(&self) -> impl Iterator<Item = usize> {
        self.rows.iter().filter(|row| row.gone).map(|row| row.place)
    }

    pub(super) fn finish(self) -> TopicColumns<'a> {
        let mut columns = TopicColumns::default();
        let mut keys: Vec<(i64, &str)> = self.keys.into_keys().collect();
        keys.sort_unstable();
        columns.collapsing = keys.into_iter().unzip();
        for row in self.rows.into_iter().filter(|row| !row.gone) {
            columns.log.push_row((row.topic, row.offset, row.num, row.key));
        }
        for (topic, change) in self.changes {
            columns.advancing.extend([(topic, change.head, change.stored, change.added)]);
            columns.retaining.extend(change.retained.map(|(num, expires_at)| (topic, num, expires_at)));
        }
        columns
    }
}

fn expiry(request: &Request, now: Timestamp) -> i64 {
    request.expires_at(now).0 as i64
}
