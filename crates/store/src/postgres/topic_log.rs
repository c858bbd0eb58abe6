//! Messages that leave the logs of topics because they expired or were cancelled. Topics are locked before their logs, in
//! the order of their numbers, as in all other calls.

use super::transaction::{Failed, Tx};
use crate::ids::Num;

/// Locks topics.
pub(super) const LOCK: &str = "SELECT num FROM topics WHERE num = ANY($1) ORDER BY num FOR NO KEY UPDATE";

/// Removes notifications, by topic and number, from the logs, which are incomplete for subscribers before them.
pub(super) const REMOVE: &str = "WITH gone AS (
         DELETE FROM topic_log l USING unnest($1::bigint[], $2::bigint[]) u (topic, num)
         WHERE l.topic = u.topic AND l.num = u.num RETURNING l.topic, l.topic_offset, l.num)
     UPDATE topics t SET log_rows = log_rows - g.rows, trimmed_offset = greatest(trimmed_offset, g.topic_offset),
                         trimmed_num = greatest(trimmed_num, g.num)
     FROM (SELECT topic, count(*) AS rows, max(topic_offset) AS topic_offset, max(num) AS num FROM gone GROUP BY topic) g
     WHERE t.num = g.topic RETURNING g.rows";

/// Removes a message from a topic's log, and clears it as the retained message; true if it was either.
pub(super) async fn cancel(tx: &Tx, topic: i64, num: Num) -> Result<bool, Failed> {
    tx.query(LOCK, &[&vec![topic]]).await?;
    let removed = tx.query(REMOVE, &[&vec![topic], &vec![num]]).await?;
    let sql =
        "UPDATE topics SET retained = NULL, retained_expires_at = NULL WHERE num = $1 AND retained = $2";
    let unretained = tx.execute(sql, &[&topic, &num]).await?;
    Ok(!removed.is_empty() || unretained > 0)
}

/// Removes many. Returns how many were there.
pub(super) async fn remove(tx: &Tx, topics: &[i64], nums: &[Num]) -> Result<u64, Failed> {
    if nums.is_empty() {
        return Ok(0);
    }
    tx.query(LOCK, &[&topics]).await?;
    let rows = tx.query(REMOVE, &[&topics, &nums]).await?;
    Ok(rows.iter().map(|row| row.get::<_, i64>(0) as u64).sum())
}
