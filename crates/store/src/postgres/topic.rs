//! Pages of topics, and the creation of topics.
//!
//! A topic's row is created when the topic is first published or durably subscribed to: its epoch is the epoch of all its
//! offsets. It is removed when nothing has needed the topic for a while (`engine::unused_topic`).

use std::sync::Arc;

use noroshi_types::{AppId, Message, Timestamp, Topic};

use super::backlog;
use super::transaction::{Failed, Tx};
use crate::engine::topic::draw_epoch;
use crate::{LogPage, Place, RetainedFilter, RetainedPage, RetainedScan};

pub(crate) async fn retained(
    tx: &Tx,
    app: AppId,
    topic: &Topic,
    now: Timestamp,
) -> Result<Option<Arc<Message>>, Failed> {
    let sql = "SELECT retained FROM topics
               WHERE app = $1 AND name = $2 AND retained IS NOT NULL AND retained_expires_at > $3";
    let found = tx.query_opt(sql, &[&i64::from(app.0), &topic.as_str(), &(now.0 as i64)]).await?;
    let Some(row) = found else { return Ok(None) };
    Ok(backlog::messages_in_order(tx, &[row.get(0)]).await?.pop())
}

pub(crate) async fn retained_page(
    tx: &Tx,
    scan: &RetainedScan,
    wanted: &RetainedFilter,
) -> Result<RetainedPage, Failed> {
    let RetainedScan { app, from, until, topics_max, messages_max, now } = scan;
    let (app, now, topics_max) = (i64::from(app.0), now.0 as i64, (*topics_max).max(1) as i64);
    let below = if until.is_some() { "name < $3" } else { "$3::text IS NULL" };
    let sql = format!(
        "SELECT name, CASE WHEN retained_expires_at > $4 THEN retained END FROM topics
         WHERE app = $1 AND name >= $2 AND {below} ORDER BY name LIMIT $5"
    );
    let rows = tx.query(&sql, &[&app, from, until, &now, &topics_max]).await?;
    let (mut page, mut nums) = (RetainedPage::default(), Vec::new());
    for row in &rows {
        page.topics += 1;
        let (name, retained): (&str, Option<i64>) = (row.get(0), row.get(1));
        nums.extend(retained.filter(|_| name != "$everyone" && wanted(name)));
        if page.topics as i64 == topics_max || nums.len() >= *messages_max {
            page.next = Some(RetainedPage::after(name));
            break;
        }
    }
    page.messages = backlog::messages_in_order(tx, &nums).await?;
    Ok(page)
}

pub(crate) async fn log_page(
    tx: &Tx,
    app: AppId,
    since: Place,
    rows_max: usize,
    now: Timestamp,
) -> Result<LogPage, Failed> {
    let rows_max = rows_max.max(1) as i64;
    let sql = "SELECT l.num, t.app = $2 AND t.name <> '$everyone' FROM (
                   SELECT num, topic FROM topic_log WHERE num > $1 ORDER BY num LIMIT $3) l
               JOIN topics t ON t.num = l.topic ORDER BY l.num";
    let rows = tx.query(sql, &[&since.0, &i64::from(app.0), &rows_max]).await?;
    let nums: Vec<_> = rows.iter().filter(|row| row.get(1)).map(|row| row.get(0)).collect();
    let mut messages = backlog::messages_in_order(tx, &nums).await?;
    messages.retain(|message| message.expires_at > now);
    let next = rows.last().filter(|_| rows.len() as i64 == rows_max).map(|row| Place(row.get(0)));
    Ok(LogPage { messages, next })
}

/// Creates the rows of topics that have none, with one statement, and clears the marks of unused ones. Concurrent calls
/// that create the same topics wait for each other, so topics are created in one order. From then on until the
/// transaction ends the topics are not removed.
pub(super) async fn create<'t>(
    tx: &Tx,
    topics: impl IntoIterator<Item = (AppId, &'t Topic)>,
) -> Result<(), Failed> {
    let mut topics: Vec<_> = topics.into_iter().collect();
    topics.sort_unstable();
    topics.dedup();
    if topics.is_empty() {
        return Ok(());
    }
    let apps: Vec<_> = topics.iter().map(|(app, _)| i64::from(app.0)).collect();
    let names: Vec<_> = topics.iter().map(|(_, topic)| topic.as_str()).collect();
    let epochs: Vec<_> = topics.iter().map(|_| i64::from(draw_epoch())).collect();
    tx.execute(CREATE, &[&apps, &names, &epochs]).await?;
    Ok(())
}

/// The statement of [`create`].
pub(super) const CREATE: &str = "INSERT INTO topics (app, name, epoch)
     SELECT new.app, new.name, new.epoch FROM unnest($1::bigint[], $2::text[], $3::bigint[]) AS new (app, name, epoch)
     WHERE NOT EXISTS (
         SELECT 1 FROM topics t WHERE t.app = new.app AND t.name = new.name AND t.unused_since = 0)
     ORDER BY new.app, new.name
     ON CONFLICT (app, name) DO UPDATE SET unused_since = 0 WHERE topics.unused_since > 0";
