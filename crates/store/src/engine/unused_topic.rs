//! Removes topics that nothing has needed for a while.
//!
//! ```text
//!   mark: every topic in turn, once an hour ─► unused_since ─► after the retention: look again, remove
//!   publish, subscribe ─► unused_since = 0
//! ```
//!
//! A topic is needed by a durable subscription, a row in its log, a retained message, and a broadcast channel. Everything
//! else names topics: shared subscriptions and rules by filters, preferences, conditions and campaigns by names. A
//! notification keeps the number and the offset of its place in a topic, and is read without the topic's row.
//!
//! A removed topic is created again by its next use, with another epoch and another number: numbers are not reused.
//!
//! Every use of a topic clears its mark first. In PostgreSQL this waits for a removal of the topic, and then creates the
//! topic again; a removal leaves out topics whose mark is being cleared. So only marked topics need locks. A transaction
//! that saw the topic without a mark has ended long before the retention has passed. Accepting takes no part in this: its
//! order lock and a removal exclude each other.

use std::time::{Duration, Instant};

use noroshi_types::Timestamp;

use super::clean_up::{self, TopicRound};
use super::session::{self, Session, values};
use super::topic::TopicNum;

/// From the end of a round to the next: topics are marked this much later at most, and an idle node has little to do.
const PAUSE: Duration = Duration::from_secs(3_600);
/// For how long one commit works. Others wait for SQLite's writer meanwhile.
const SLICE: Duration = Duration::from_millis(20);
/// Topics that one statement reads or removes between two looks at the clock: 10 to 30 µs each, and some reads of the disk
/// if they are not in memory.
pub(crate) const CHUNK: usize = 50;
/// Topics that one commit removes at most.
pub(crate) const REMOVED_MAX: usize = 200;

/// Nothing needs the topic `t`.
const IS_UNUSED: &str = "t.log_rows = 0 AND t.retained IS NULL AND t.name <> '$everyone'
     AND NOT EXISTS (SELECT 1 FROM subscriptions s WHERE s.topic = t.num AND s.named = 1)
     AND NOT EXISTS (SELECT 1 FROM topic_log l WHERE l.topic = t.num)
     AND NOT EXISTS (SELECT 1 FROM push_channels c WHERE c.app = t.app AND c.topic = t.name)";

/// Continues the round, and marks the unused ones among the next topics, at most `topics_max`.
pub(crate) async fn mark<S: Session>(session: &S, now: Timestamp, topics_max: usize) -> Result<(), S::Error> {
    let mut round = clean_up::topic_round(session).await?;
    // A round that ended in the future ended by a wrong clock.
    let is_recent = round.ended <= now && now < round.ended.saturating_add(PAUSE);
    if round.cursor == 0 && is_recent {
        return Ok(());
    }
    let (started, mut left) = (Instant::now(), topics_max.max(1));
    // Every call makes progress, however slow the disk is.
    loop {
        let limit = CHUNK.min(left);
        let (read, last) = chunk(session, round.cursor, limit).await?;
        if let Some(last) = last {
            mark_between(session, round.cursor, last, now).await?;
            round.cursor = last;
        }
        if read < limit as u64 {
            round = TopicRound { cursor: 0, ended: now };
            break;
        }
        left -= limit;
        if left == 0 || started.elapsed() >= SLICE {
            break;
        }
    }
    clean_up::set_topic_round(session, &round).await
}

/// How many topics follow, at most `limit`, and the last of them.
async fn chunk<S: Session>(
    session: &S,
    after: TopicNum,
    limit: usize,
) -> Result<(u64, Option<TopicNum>), S::Error> {
    let sql =
        "SELECT count(*), max(num) FROM (SELECT num FROM topics WHERE num > $1 ORDER BY num LIMIT $2) AS p";
    session::one(session, sql, &values![after, limit], |row| Ok((row.count(0)?, row.int_or_null(1)?))).await
}

async fn mark_between<S: Session>(
    session: &S,
    after: TopicNum,
    last: TopicNum,
    now: Timestamp,
) -> Result<(), S::Error> {
    // A locked topic is in use. A mark in the future is of a wrong clock.
    let sql = format!(
        "SELECT num FROM topics AS t WHERE num > $1 AND num <= $2 AND (unused_since = 0 OR unused_since > $3)
             AND {IS_UNUSED} ORDER BY num {}",
        S::FOR_UPDATE_SKIP_LOCKED
    );
    let unused = session.query(&sql, &values![after, last, now], |row| row.int(0)).await?;
    if !unused.is_empty() {
        let sql = format!(
            "UPDATE topics SET unused_since = $2 WHERE num IN (SELECT num FROM {} AS asked)",
            S::numbers("$1")
        );
        session.execute(&sql, &values![&list(&unused), now]).await?;
    }
    Ok(())
}

/// Topics that have been marked since `before` or longer, at most `limit`.
pub(crate) async fn marked<S: Session>(
    session: &S,
    before: Timestamp,
    limit: usize,
) -> Result<Vec<TopicNum>, S::Error> {
    let sql = "SELECT num FROM topics WHERE unused_since > 0 AND unused_since <= $1
               ORDER BY unused_since LIMIT $2";
    session.query(sql, &values![before, limit], |row| row.int(0)).await
}

/// What became of topics.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Settled {
    /// Topics that were removed, or lost their mark.
    pub settled: u64,
    pub removed: u64,
}

/// Removes those of the topics that are still marked and unused, and clears the mark of those that are needed again. In
/// PostgreSQL the caller keeps accepts out.
pub(crate) async fn settle<S: Session>(
    session: &S,
    topics: &[TopicNum],
    before: Timestamp,
) -> Result<Settled, S::Error> {
    let numbers = S::numbers("$1");
    // A locked topic is being used.
    let sql = format!(
        "SELECT num FROM topics WHERE num IN (SELECT num FROM {numbers} AS asked)
             AND unused_since > 0 AND unused_since <= $2 ORDER BY num {}",
        S::FOR_UPDATE_SKIP_LOCKED
    );
    let held = session.query(&sql, &values![&list(topics), before], |row| row.int(0)).await?;
    if held.is_empty() {
        return Ok(Settled::default());
    }
    // Separate statements: they see what was committed before the topics were locked.
    let held_list = list(&held);
    let sql =
        format!("DELETE FROM topics AS t WHERE num IN (SELECT num FROM {numbers} AS asked) AND {IS_UNUSED}");
    let removed = session.execute(&sql, &values![&held_list]).await?;
    if removed < held.len() as u64 {
        let sql =
            format!("UPDATE topics SET unused_since = 0 WHERE num IN (SELECT num FROM {numbers} AS asked)");
        session.execute(&sql, &values![&held_list]).await?;
    }
    Ok(Settled { settled: held.len() as u64, removed })
}

/// As a JSON array.
fn list(topics: &[TopicNum]) -> String {
    let numbers: Vec<String> = topics.iter().map(i64::to_string).collect();
    format!("[{}]", numbers.join(","))
}
