//! Topics: their rows, what is told of them, and retained messages.
//!
//! A topic's row is made when it is first published or durably subscribed to, and stays: its epoch
//! is the epoch of all its offsets.

use std::sync::Arc;

use noroshi_types::{AppId, Epoch, Message, Position, Timestamp, Topic};
use tokio_postgres::Row;

use super::Postgres;
use super::backlog;
use super::transaction::{Failed, Tx, Values};
use crate::ids;
use crate::{
    Error, LogPage, Place, RetainedPage, RetainedScan, TopicState, Topics, TopicsSince, WantedTopic,
};

/// A topic's number inside the store.
pub(super) type TopicNum = i64;

#[async_trait::async_trait]
impl Topics for Postgres {
    async fn topic(&self, app: AppId, topic: &Topic) -> Result<TopicState, Error> {
        let unused =
            TopicState { topic: topic.clone(), subscribers: 0, position: None, log_rows: 0, retained: false };
        let sql = format!("SELECT {STATE_COLUMNS} FROM topics t WHERE app = $1 AND name = $2");
        let (app, name) = (i64::from(app.0), topic.as_str());
        let state = self
            .read(async |tx: Tx| Ok(tx.query_opt(&sql, &[&app, &name]).await?.map(|row| state_of(&row))))
            .await?;
        Ok(state.unwrap_or(unused))
    }

    async fn topics(
        &self,
        app: AppId,
        after: Option<&Topic>,
        limit: usize,
    ) -> Result<Vec<TopicState>, Error> {
        let sql = format!(
            "SELECT {STATE_COLUMNS} FROM topics t WHERE app = $1 AND name > $2 AND name <> '$everyone'
             ORDER BY name LIMIT $3"
        );
        let (app, after, limit) = (i64::from(app.0), after.map_or("", Topic::as_str), limit as i64);
        self.read(async |tx: Tx| {
            Ok(tx.query(&sql, &[&app, &after, &limit]).await?.iter().map(state_of).collect())
        })
        .await
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

    async fn retained_page(&self, scan: RetainedScan, wanted: WantedTopic) -> Result<RetainedPage, Error> {
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
                    page.next = Some(RetainedPage::behind(name));
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
        let topic = topic.clone();
        self.write(move |tx| {
            let topic = topic.clone();
            async move {
                let sql = "UPDATE topics SET retained = NULL, retained_expires_at = NULL
                           WHERE app = $1 AND name = $2 AND retained IS NOT NULL";
                Ok(tx.execute(sql, &[&i64::from(app.0), &topic.as_str()]).await? > 0)
            }
        })
        .await
    }

    async fn topics_since(&self, since: Place, rows_max: usize) -> Result<TopicsSince, Error> {
        let rows_max = rows_max.max(1) as i64;
        let page = "SELECT num, topic FROM topic_log WHERE num > $1 ORDER BY num LIMIT $2";
        let end = format!("SELECT count(*), max(num) FROM ({page}) AS page");
        let topics =
            format!("SELECT app, name FROM topics WHERE num IN (SELECT topic FROM ({page}) AS page)");
        let topic_of =
            |row: &Row| (AppId(row.get::<_, i64>(0) as u32), Topic::from_trusted(row.get::<_, &str>(1)));
        self.read(async |tx: Tx| {
            let values: Values<'_> = &[&since.0, &rows_max];
            let (end, topics) = tokio::try_join!(tx.query_one(&end, values), tx.query(&topics, values))?;
            let next = end.get::<_, Option<i64>>(1).filter(|_| end.get::<_, i64>(0) == rows_max);
            Ok(TopicsSince { topics: topics.iter().map(topic_of).collect(), next: next.map(Place) })
        })
        .await
    }
}

/// Everyone's subscribers are all devices; of other topics the index lists them.
const STATE_COLUMNS: &str = "t.name, t.epoch, t.head, t.log_rows, t.retained IS NOT NULL,
    CASE t.name WHEN '$everyone' THEN (SELECT count(*) FROM devices d WHERE d.app = t.app)
    ELSE (SELECT count(*) FROM subscriptions s WHERE s.topic = t.num AND s.named = 1) END";

fn state_of(row: &Row) -> TopicState {
    let offset = row.get::<_, i64>(2) as u64;
    let epoch = Epoch(row.get::<_, i64>(1) as u32);
    TopicState {
        topic: Topic::from_trusted(row.get::<_, &str>(0)),
        subscribers: row.get::<_, i64>(5) as u64,
        position: (offset > 0).then_some(Position { epoch, offset }),
        log_rows: row.get::<_, i64>(3) as u64,
        retained: row.get(4),
    }
}

/// Makes the rows of topics that nobody used before, by one statement. Whoever makes the same at the same time
/// waits for the other, so they are made in one order.
pub(super) async fn make<'t>(
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
    // 0 is the epoch of a topic without a row.
    let epochs: Vec<_> = topics.iter().map(|_| i64::from((ids::random_bits() as u32).max(1))).collect();
    tx.execute(MAKE, &[&apps, &names, &epochs]).await?;
    Ok(())
}

/// What [`make`] runs.
pub(super) const MAKE: &str = "INSERT INTO topics (app, name, epoch)
     SELECT new.app, new.name, new.epoch FROM unnest($1::bigint[], $2::text[], $3::bigint[]) AS new (app, name, epoch)
     WHERE NOT EXISTS (SELECT 1 FROM topics t WHERE t.app = new.app AND t.name = new.name)
     ORDER BY new.app, new.name ON CONFLICT (app, name) DO NOTHING";
