//! Pages of topics, and topics as accepting uses them: offsets, logs and retained messages.
//!
//! A topic's row is created when the topic is first published or durably subscribed to: its epoch is the epoch of all its
//! offsets. It is removed when nothing has needed the topic for a while (`engine::unused_topic`).

use std::sync::Arc;

use noroshi_types::{AppId, Epoch, Message, Position, Timestamp, Topic, limits};

use super::backlog::Reading;
use super::notification;
use super::reader::Read;
use super::statement::Db;
use super::writer::Write;
use crate::engine::accept::is_stored;
use crate::engine::notification::Standing;
use crate::engine::record::Record;
use crate::engine::topic::{TopicNum, draw_epoch};
use crate::ids::Num;
use crate::{Accept, Error, LogPage, Place, RetainedFilter, RetainedPage, RetainedScan};

pub(crate) fn retained(
    read: Read<'_>,
    app: AppId,
    topic: &Topic,
    now: Timestamp,
) -> Result<Option<Arc<Message>>, Error> {
    let mut reading = Reading::new(read);
    match reading.topic_named(app, topic)? {
        Some(topic) => reading.retained(&topic, 0, now),
        None => Ok(None),
    }
}

pub(crate) fn retained_page(
    Read { db, ids }: Read<'_>,
    scan: &RetainedScan,
    wanted: &RetainedFilter,
) -> Result<RetainedPage, Error> {
    let RetainedScan { app, from, until, topics_max, messages_max, now } = scan;
    let below = if until.is_some() { "name < ?3" } else { "?3 IS NULL" };
    let sql = format!(
        "SELECT name, retained, retained_expires_at > ?4 FROM topics
         WHERE app = ?1 AND name >= ?2 AND {below} ORDER BY name"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let mut rows = statement.query((app.0, from, until, now.0 as i64))?;
    let mut page = RetainedPage::default();
    while let Some(row) = rows.next()? {
        page.topics += 1;
        let name = row.text(0)?;
        let retained = row.int_or_null(1)?.filter(|_| matches!(row.flag(2), Ok(true)));
        if let Some(num) = retained
            && name != limits::EVERYONE_TOPIC
            && wanted(name)
        {
            page.messages.extend(notification::message(db, ids, num)?);
        }
        if page.topics >= *topics_max || page.messages.len() >= *messages_max {
            page.next = Some(RetainedPage::after(name));
            break;
        }
    }
    Ok(page)
}

pub(crate) fn log_page(
    Read { db, ids }: Read<'_>,
    app: AppId,
    since: Place,
    rows_max: usize,
    now: Timestamp,
) -> Result<LogPage, Error> {
    let rows_max = rows_max.max(1);
    let sql = "SELECT l.num, t.app = ?2 AND t.name <> ?3 FROM topic_log l INDEXED BY topic_log_by_age
               JOIN topics t ON t.num = l.topic WHERE l.num > ?1 ORDER BY l.num LIMIT ?4";
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query((since.0, app.0, limits::EVERYONE_TOPIC, rows_max as i64))?;
    let (mut page, mut last, mut count) = (LogPage::default(), None, 0);
    while let Some(row) = rows.next()? {
        (last, count) = (Some(Place(row.int(0)?)), count + 1);
        if row.flag(1)? {
            let message = notification::message(db, ids, row.int(0)?)?;
            page.messages.extend(message.filter(|message| message.expires_at > now));
        }
    }
    page.next = last.filter(|_| count == rows_max);
    Ok(page)
}

/// The topic's number; creates the topic's row on first use, and clears the mark of an unused topic.
pub(super) fn find_or_create(db: &Db, app: AppId, topic: &Topic) -> Result<TopicNum, Error> {
    let sql = "SELECT num, unused_since > 0 FROM topics WHERE app = ?1 AND name = ?2";
    if let Some((num, is_marked)) =
        db.first(sql, (app.0, topic.as_str()), |row| Ok((row.int(0)?, row.flag(1)?)))?
    {
        if is_marked {
            db.run("UPDATE topics SET unused_since = 0 WHERE num = ?1", (num,))?;
        }
        return Ok(num);
    }
    let sql = "INSERT INTO topics (app, name, epoch) VALUES (?1, ?2, ?3)";
    db.run(sql, (app.0, topic.as_str(), draw_epoch()))?;
    Ok(db.last_insert_rowid())
}

/// The place that a message got in its topic.
pub(super) struct Published {
    pub topic: TopicNum,
    pub position: Position,
    pub standing: Standing,
}

/// Gives a message the next offset, a row in the log if it is stored, and the place of the retained message if the request
/// retains it.
pub(super) fn publish(w: &Write<'_>, topic: &Topic, num: Num, accept: &Accept) -> Result<Published, Error> {
    let Accept { app, request, now, .. } = accept;
    let topic = find_or_create(w.db, *app, topic)?;
    let stored = is_stored(accept);
    let sql = "UPDATE topics SET head = head + 1, stored = CASE WHEN ?2 THEN head + 1 ELSE stored END,
                                 log_rows = log_rows + ?2
               WHERE num = ?1 RETURNING epoch, head, log_rows";
    let (epoch, offset, rows) =
        w.db.prepare_cached(sql)?
            .query_row((topic, stored), |row| Ok((row.get(0)?, row.get::<_, i64>(1)?, row.get(2)?)))?;
    if stored {
        append(w, topic, offset, rows, num, request.collapse_key.as_deref())?;
    }
    if request.retain {
        let sql = "UPDATE topics SET retained = ?2, retained_expires_at = ?3 WHERE num = ?1";
        w.db.run(sql, (topic, num, request.expires_at(*now).0 as i64))?;
    }
    let standing = if stored { Standing::Kept } else { Standing::Nothing };
    Ok(Published { topic, position: Position { epoch: Epoch(epoch), offset: offset as u64 }, standing })
}

/// Adds a row to a log that has `rows` rows with it.
fn append(
    w: &Write<'_>,
    topic: TopicNum,
    offset: i64,
    mut rows: i64,
    num: Num,
    collapse_key: Option<&str>,
) -> Result<(), Error> {
    if let Some(key) = collapse_key {
        rows -= collapse(w.db, topic, key)?;
    }
    let sql = "INSERT INTO topic_log (topic, topic_offset, num, collapse_key) VALUES (?1, ?2, ?3, ?4)";
    w.db.run(sql, (topic, offset, num, collapse_key))?;
    for _ in (w.options.topic_log_rows.max(1) as i64)..rows {
        trim_oldest(w.db, topic)?;
    }
    Ok(())
}

/// Removes older messages with the same collapse key, and returns how many. The provider asked for that, so the log
/// stays complete.
fn collapse(db: &Db, topic: TopicNum, key: &str) -> Result<i64, Error> {
    let sql = "DELETE FROM topic_log WHERE topic = ?1 AND collapse_key = ?2 RETURNING num";
    let nums = db.all(sql, (topic, key), |row| row.int(0))?;
    for &num in &nums {
        notification::set_standing(db, num, Standing::Replaced)?;
    }
    let count = nums.len() as i64;
    if count > 0 {
        db.run("UPDATE topics SET log_rows = log_rows - ?2 WHERE num = ?1", (topic, count))?;
    }
    Ok(count)
}

fn trim_oldest(db: &Db, topic: TopicNum) -> Result<(), Error> {
    let sql = "SELECT topic_offset, num FROM topic_log WHERE topic = ?1 ORDER BY topic_offset LIMIT 1";
    let (offset, num): (i64, Num) =
        db.prepare_cached(sql)?.query_row((topic,), |row| Ok((row.get(0)?, row.get(1)?)))?;
    remove_from_log(db, topic, offset, num)?;
    notification::set_standing(db, num, Standing::Replaced)
}

/// Removes a message from the log, which is incomplete for subscribers before it. True if it was there.
pub(super) fn remove_from_log(db: &Db, topic: TopicNum, offset: i64, num: Num) -> Result<bool, Error> {
    let sql = "DELETE FROM topic_log WHERE topic = ?1 AND topic_offset = ?2";
    if db.run(sql, (topic, offset))? == 0 {
        return Ok(false);
    }
    let sql = "UPDATE topics SET log_rows = log_rows - 1, trimmed_offset = max(trimmed_offset, ?2),
                                 trimmed_num = max(trimmed_num, ?3)
               WHERE num = ?1";
    db.run(sql, (topic, offset, num))?;
    Ok(true)
}

/// Clears the retained message; true if it was this one.
pub(super) fn unretain(db: &Db, topic: TopicNum, num: Num) -> Result<bool, Error> {
    let sql =
        "UPDATE topics SET retained = NULL, retained_expires_at = NULL WHERE num = ?1 AND retained = ?2";
    Ok(db.run(sql, (topic, num))? > 0)
}
