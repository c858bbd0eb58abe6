//! [`Topics`] for PostgreSQL, and the creation of topics.
//!
//! A topic's row is created when the topic is first published or durably subscribed to, and is never removed: its epoch
//! is the epoch of all its offsets.

use std::sync::Arc;

use noroshi_types::{AppId, Message, Timestamp, Topic};

use super::transaction::{Failed, Tx};
use super::{Postgres, backlog};
use crate::engine::topic::{self, draw_epoch};
use crate::{
    Error, LogPage, Place, RetainedFilter, RetainedPage, RetainedScan, TopicState, Topics, TopicsSince,
};

#[async_trait::async_trait]
impl Topics for Postgres {
    async fn topic(&self, app: AppId, topic: &Topic) -> Result<TopicState, Error> {
        self.read(async |tx: Tx| topic::state(&tx, app, topic).await).await
    }

    async fn topics(
        &self,
        app: AppId,
        after: Option<&Topic>,
        limit: usize,
    ) -> Result<Vec<TopicState>, Error> {
        self.read(async |tx: Tx| topic::states(&tx, app, after, limit).await).await
    }

    async fn retained(
        &self,
        app: AppId,
        topic: &Topic,
        now: Timestamp,
    ) -> Result<Option<Arc<Message>>, Error> {
        let (app, name, now) = (i64::from(app.0), topic.as_str(), now.0 as i64);
        self.read(async |tx: Tx| {
            let sql = "SELECT retained FROM topics
                       WHERE app = $1 AND name = $2 AND retained IS NOT NULL AND retained_expires_at > $3";
            let Some(row) = tx.query_opt(sql, &[&app, &name, &now]).await? else { return Ok(None) };
            let num = row.get(0);
            Ok(backlog::messages(&tx, &self.ids, &[num]).await?.remove(&num))
        })
        .await
    }

    async fn retained_page(&self, scan: RetainedScan, wanted: RetainedFilter) -> Result<RetainedPage, Error> {
        let RetainedScan { app, from, until, topics_max, messages_max, now } = scan;
        let (app, now, topics_max) = (i64::from(app.0), now.0 as i64, topics_max.max(1) as i64);
        let below = if until.is_some() { "name < $3" } else { "$3::text IS NULL" };
        let sql = format!(
            "SELECT name, CASE WHEN retained_expires_at > $4 THEN retained END FROM topics
             WHERE app = $1 AND name >= $2 AND {below} ORDER BY name LIMIT $5"
        );
        self.read(async |tx: Tx| {
            let rows = tx.query(&sql, &[&app, &from, &until, &now, &topics_max]).await?;
            let (mut page, mut nums) = (RetainedPage::default(), Vec::new());
            for row in &rows {
                page.topics += 1;
                let (name, retained): (&str, Option<i64>) = (row.get(0), row.get(1));
                nums.extend(retained.filter(|_| name != "$everyone" && wanted(name)));
                if page.topics as i64 == topics_max || nums.len() >= messages_max {
                    page.next = Some(RetainedPage::after(name));
                    break;
                }
            }
            let mut messages = backlog::messages(&tx, &self.ids, &nums).await?;
            page.messages = nums.iter().filter_map(|num| messages.remove(num)).collect();
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
        let (app, rows_max) = (i64::from(app.0), rows_max.max(1) as i64);
        self.read(async |tx: Tx| {
            let sql = "SELECT l.num, t.app = $2 AND t.name <> '$everyone' FROM (
                           SELECT num, topic FROM topic_log WHERE num > $1 ORDER BY num LIMIT $3) l
                       JOIN topics t ON t.num = l.topic ORDER BY l.num";
            let rows = tx.query(sql, &[&since.0, &app, &rows_max]).await?;
            let nums: Vec<_> = rows.iter().filter(|row| row.get(1)).map(|row| row.get(0)).collect();
            let mut messages = backlog::messages(&tx, &self.ids, &nums).await?;
            let messages = nums.iter().filter_map(|num| messages.remove(num));
            let next = rows.last().filter(|_| rows.len() as i64 == rows_max).map(|row| Place(row.get(0)));
            Ok(LogPage { messages: messages.filter(|message| message.expires_at > now).collect(), next })
        })
        .await
    }

    async fn delete_retained(&self, app: AppId, topic: &Topic) -> Result<bool, Error> {
        let delete = move |tx, topic| async move { topic::delete_retained(&tx, app, &topic).await };
        self.write_with(topic.clone(), delete).await
    }

    async fn topics_since(&self, since: Place, rows_max: usize) -> Result<TopicsSince, Error> {
        self.read(async |tx: Tx| topic::since(&tx, "topic_log", since, rows_max).await).await
    }
}

/// Creates the rows of topics that have none, with one statement. Concurrent calls that create the same topics wait for
/// each other, so topics are created in one order.
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
     WHERE NOT EXISTS (SELECT 1 FROM topics t WHERE t.app = new.app AND t.name = new.name)
     ORDER BY new.app, new.name ON CONFLICT (app, name) DO NOTHING";
