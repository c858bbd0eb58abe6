//! Topics: offsets, logs and retained messages.
//!
//! A topic's row is made when it is first published or durably subscribed to, and stays: its epoch
//! is the epoch of all its offsets.

use std::sync::Arc;

use noroshi_types::{AppId, Epoch, Message, Position, Request, Timestamp, Topic, When};
use rusqlite::{Connection, OptionalExtension, Row};

use super::Sqlite;
use super::backlog::Reading;
use super::ids::{self, Num};
use super::notification::{self, Standing};
use super::writer::Write;
use crate::{
    Error, LogPage, Place, RetainedPage, RetainedScan, TopicState, Topics, TopicsSince, WantedTopic,
};

/// A topic's number inside the store.
pub(super) type TopicNum = i64;

#[async_trait::async_trait]
impl Topics for Sqlite {
    async fn topic(&self, app: AppId, topic: &Topic) -> Result<TopicState, Error> {
        let topic = topic.clone();
        self.read(move |db| {
            let sql = format!("SELECT {STATE_COLUMNS} FROM topics t WHERE app = ?1 AND name = ?2");
            let state = db.prepare_cached(&sql)?.query_row((app.0, topic.as_str()), state_of).optional()?;
            let unused =
                || TopicState { topic, subscribers: 0, position: None, log_rows: 0, retained: false };
            Ok(state.unwrap_or_else(unused))
        })
        .await
    }

    async fn topics(
        &self,
        app: AppId,
        after: Option<&Topic>,
        limit: usize,
    ) -> Result<Vec<TopicState>, Error> {
        let after = after.cloned();
        self.read(move |db| {
            let sql = format!(
                "SELECT {STATE_COLUMNS} FROM topics t WHERE app = ?1 AND name > ?2 AND name <> ?3
                 ORDER BY name LIMIT ?4"
            );
            let after = after.as_ref().map_or("", Topic::as_str);
            let everyone = Topic::everyone();
            let mut statement = db.prepare_cached(&sql)?;
            let rows = statement.query_map((app.0, after, everyone.as_str(), limit as i64), state_of)?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
        .await
    }

    async fn retained(
        &self,
        app: AppId,
        topic: &Topic,
        now: Timestamp,
    ) -> Result<Option<Arc<Message>>, Error> {
        let (ids, topic) = (Arc::clone(&self.ids), topic.clone());
        self.read(move |db| {
            let mut reading = Reading::new(db, &ids);
            match reading.topic_named(app, &topic)? {
                Some(topic) => reading.retained(&topic, now),
                None => Ok(None),
            }
        })
        .await
    }

    async fn retained_page(&self, scan: RetainedScan, wanted: WantedTopic) -> Result<RetainedPage, Error> {
        let ids = Arc::clone(&self.ids);
        self.read(move |db| {
            let RetainedScan { app, from, until, topics_max, messages_max, now } = scan;
            let below = if until.is_some() { "name < ?3" } else { "?3 IS NULL" };
            let sql = format!(
                "SELECT name, retained, retained_expires_at > ?4 FROM topics
                 WHERE app = ?1 AND name >= ?2 AND {below} ORDER BY name"
            );
            let mut statement = db.prepare_cached(&sql)?;
            let mut rows = statement.query((app.0, &from, &until, now.0 as i64))?;
            let mut page = RetainedPage::default();
            while let Some(row) = rows.next()? {
                page.topics += 1;
                let name = row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?;
                let retained = row.get::<_, Option<Num>>(1)?.filter(|_| matches!(row.get(2), Ok(Some(true))));
                if let Some(num) = retained
                    && name != Topic::everyone().as_str()
                    && wanted(name)
                {
                    page.messages.extend(notification::message(db, &ids, num)?);
                }
                if page.topics >= topics_max || page.messages.len() >= messages_max {
                    page.next = Some(RetainedPage::behind(name));
                    break;
                }
            }
            Ok(page)
        })
        .await
    }

    async fn log_page(
        &self,
        app: AppId,
        since: Place,
        rows_max: usize,
        now: Timestamp,
    ) -> Result<LogPage, Error> {
        let (ids, rows_max) = (Arc::clone(&self.ids), rows_max.max(1));
        self.read(move |db| {
            let sql = "SELECT l.num, t.app = ?2 AND t.name <> ?3 FROM topic_log l INDEXED BY topic_log_by_age
                       JOIN topics t ON t.num = l.topic WHERE l.num > ?1 ORDER BY l.num LIMIT ?4";
            let everyone = Topic::everyone();
            let mut statement = db.prepare_cached(sql)?;
            let mut rows = statement.query((since.0, app.0, everyone.as_str(), rows_max as i64))?;
            let (mut page, mut last, mut count) = (LogPage::default(), None, 0);
            while let Some(row) = rows.next()? {
                (last, count) = (Some(Place(row.get(0)?)), count + 1);
                if row.get(1)? {
                    let message = notification::message(db, &ids, row.get(0)?)?;
                    page.messages.extend(message.filter(|message| message.expires_at > now));
                }
            }
            page.next = last.filter(|_| count == rows_max);
            Ok(page)
        })
        .await
    }

    async fn delete_retained(&self, app: AppId, topic: &Topic) -> Result<bool, Error> {
        let topic = topic.clone();
        self.write(1, move |w| {
            let sql = "UPDATE topics SET retained = NULL, retained_expires_at = NULL
                       WHERE app = ?1 AND name = ?2 AND retained IS NOT NULL";
            Ok(w.db.prepare_cached(sql)?.execute((app.0, topic.as_str()))? > 0)
        })
        .await
    }

    async fn topics_since(&self, since: Place, rows_max: usize) -> Result<TopicsSince, Error> {
        let rows_max = rows_max.max(1) as i64;
        let page = "SELECT num, topic FROM topic_log INDEXED BY topic_log_by_age WHERE num > ?1 ORDER BY num LIMIT ?2";
        self.read(move |db| {
            let end = format!("SELECT count(*), max(num) FROM ({page})");
            let values = (since.0, rows_max);
            let (rows, last): (i64, Option<i64>) =
                db.prepare_cached(&end)?.query_row(values, |row| Ok((row.get(0)?, row.get(1)?)))?;
            let topics = format!("SELECT app, name FROM topics WHERE num IN (SELECT topic FROM ({page}))");
            let mut statement = db.prepare_cached(&topics)?;
            let topics = statement.query_map(values, |row| {
                Ok((AppId(row.get(0)?), Topic::from_trusted(row.get_ref(1)?.as_str()?)))
            })?;
            let next = last.filter(|_| rows == rows_max).map(Place);
            Ok(TopicsSince { topics: topics.collect::<rusqlite::Result<_>>()?, next })
        })
        .await
    }
}

/// Everyone's subscribers are all devices; of other topics the index lists them.
const STATE_COLUMNS: &str = "t.name, t.epoch, t.head, t.log_rows, t.retained IS NOT NULL,
    CASE t.name WHEN '$everyone' THEN (SELECT count(*) FROM devices d WHERE d.app = t.app)
    ELSE (SELECT count(*) FROM subscriptions s WHERE s.topic = t.num AND s.named = 1) END";

fn state_of(row: &Row<'_>) -> rusqlite::Result<TopicState> {
    let offset = row.get::<_, i64>(2)? as u64;
    let epoch = Epoch(row.get(1)?);
    Ok(TopicState {
        topic: Topic::from_trusted(row.get_ref(0)?.as_str()?),
        subscribers: row.get::<_, i64>(5)? as u64,
        position: (offset > 0).then_some(Position { epoch, offset }),
        log_rows: row.get::<_, i64>(3)? as u64,
        retained: row.get(4)?,
    })
}

/// The topic's number; its row is made if nobody used it before.
pub(super) fn find_or_make(db: &Connection, app: AppId, topic: &Topic) -> Result<TopicNum, Error> {
    let mut find = db.prepare_cached("SELECT num FROM topics WHERE app = ?1 AND name = ?2")?;
    if let Some(num) = find.query_row((app.0, topic.as_str()), |row| row.get(0)).optional()? {
        return Ok(num);
    }
    // 0 is the epoch of a topic without a row.
    let epoch = (ids::random_bits() as u32).max(1);
    let mut make = db.prepare_cached("INSERT INTO topics (app, name, epoch) VALUES (?1, ?2, ?3)")?;
    make.execute((app.0, topic.as_str(), epoch))?;
    Ok(db.last_insert_rowid())
}

/// Where a message got its place.
pub(super) struct Published {
    pub topic: TopicNum,
    pub position: Position,
    pub standing: Standing,
}

/// Gives a message the next offset, a row in the log if it is to last, and the place of the retained
/// message if it wants that.
pub(super) fn publish(
    w: &Write<'_>,
    app: AppId,
    topic: &Topic,
    num: Num,
    request: &Request,
    now: Timestamp,
) -> Result<Published, Error> {
    let topic = find_or_make(w.db, app, topic)?;
    let mut advance =
        w.db.prepare_cached("UPDATE topics SET head = head + 1 WHERE num = ?1 RETURNING epoch, head")?;
    let (epoch, offset) = advance.query_row((topic,), |row| Ok((row.get(0)?, row.get::<_, i64>(1)?)))?;
    let lasts = request.when == When::Stored && !request.ttl.duration().is_zero();
    if lasts {
        append(w, topic, offset, num, request.collapse_key.as_deref())?;
    }
    if request.retain {
        let sql = "UPDATE topics SET retained = ?2, retained_expires_at = ?3 WHERE num = ?1";
        w.db.prepare_cached(sql)?.execute((topic, num, request.expires_at(now).0 as i64))?;
    }
    let standing = if lasts { Standing::Kept } else { Standing::Nothing };
    Ok(Published { topic, position: Position { epoch: Epoch(epoch), offset: offset as u64 }, standing })
}

fn append(
    w: &Write<'_>,
    topic: TopicNum,
    offset: i64,
    num: Num,
    collapse_key: Option<&str>,
) -> Result<(), Error> {
    if let Some(key) = collapse_key {
        collapse(w.db, topic, key)?;
    }
    w.db.prepare_cached(
        "INSERT INTO topic_log (topic, topic_offset, num, collapse_key) VALUES (?1, ?2, ?3, ?4)",
    )?
    .execute((topic, offset, num, collapse_key))?;
    let sql = "UPDATE topics SET stored = ?2, log_rows = log_rows + 1 WHERE num = ?1 RETURNING log_rows";
    let rows: i64 = w.db.prepare_cached(sql)?.query_row((topic, offset), |row| row.get(0))?;
    for _ in (w.options.topic_log_rows.max(1) as i64)..rows {
        trim_oldest(w.db, topic)?;
    }
    Ok(())
}

/// Older messages of the key leave the log as the provider wished: nobody misses them.
fn collapse(db: &Connection, topic: TopicNum, key: &str) -> Result<(), Error> {
    let mut statement =
        db.prepare_cached("DELETE FROM topic_log WHERE topic = ?1 AND collapse_key = ?2 RETURNING num")?;
    let rows = statement.query_map((topic, key), |row| row.get(0))?;
    let nums = rows.collect::<rusqlite::Result<Vec<Num>>>()?;
    for &num in &nums {
        notification::set_standing(db, num, Standing::Replaced)?;
    }
    let mut count = db.prepare_cached("UPDATE topics SET log_rows = log_rows - ?2 WHERE num = ?1")?;
    count.execute((topic, nums.len() as i64))?;
    Ok(())
}

fn trim_oldest(db: &Connection, topic: TopicNum) -> Result<(), Error> {
    let sql = "SELECT topic_offset, num FROM topic_log WHERE topic = ?1 ORDER BY topic_offset LIMIT 1";
    let (offset, num): (i64, Num) =
        db.prepare_cached(sql)?.query_row((topic,), |row| Ok((row.get(0)?, row.get(1)?)))?;
    remove_from_log(db, topic, offset, num)?;
    notification::set_standing(db, num, Standing::Replaced)
}

/// Takes a message out of the log that some subscribers may now miss; true if it was there.
pub(super) fn remove_from_log(
    db: &Connection,
    topic: TopicNum,
    offset: i64,
    num: Num,
) -> Result<bool, Error> {
    let mut delete = db.prepare_cached("DELETE FROM topic_log WHERE topic = ?1 AND topic_offset = ?2")?;
    if delete.execute((topic, offset))? == 0 {
        return Ok(false);
    }
    db.prepare_cached(
        "UPDATE topics SET log_rows = log_rows - 1, trimmed_offset = max(trimmed_offset, ?2),
                           trimmed_num = max(trimmed_num, ?3)
         WHERE num = ?1",
    )?
    .execute((topic, offset, num))?;
    Ok(true)
}

/// True if it was the topic's retained message.
pub(super) fn unretain(db: &Connection, topic: TopicNum, num: Num) -> Result<bool, Error> {
    let sql =
        "UPDATE topics SET retained = NULL, retained_expires_at = NULL WHERE num = ?1 AND retained = ?2";
    Ok(db.prepare_cached(sql)?.execute((topic, num))? > 0)
}
