//! Topics: their rows as callers see them, and pages of topics.

use noroshi_types::{AppId, Epoch, Position, Topic};

use super::record::Record;
use super::session::{self, Session, values};
use crate::{Error, Place, TopicState, TopicsSince, ids};

/// A topic's number inside the store.
pub(crate) type TopicNum = i64;

/// Every device subscribes to `$everyone`; the subscribers of other topics are in the index.
const STATE_COLUMNS: &str = "t.name, t.epoch, t.head, t.log_rows, t.retained IS NOT NULL,
    CASE t.name WHEN '$everyone' THEN (SELECT count(*) FROM devices d WHERE d.app = t.app)
    ELSE (SELECT count(*) FROM subscriptions s WHERE s.topic = t.num AND s.named = 1) END";

fn state_of(row: &dyn Record) -> Result<TopicState, Error> {
    let (epoch, offset) = (Epoch(row.int(1)? as u32), row.count(2)?);
    Ok(TopicState {
        topic: Topic::from_trusted(row.text(0)?),
        subscribers: row.count(5)?,
        position: (offset > 0).then_some(Position { epoch, offset }),
        log_rows: row.count(3)?,
        retained: row.flag(4)?,
    })
}

pub(crate) async fn state<S: Session>(
    session: &S,
    app: AppId,
    topic: &Topic,
) -> Result<TopicState, S::Error> {
    let sql = format!("SELECT {STATE_COLUMNS} FROM topics t WHERE app = $1 AND name = $2");
    let found = session::first(session, &sql, &values![app, topic.as_str()], state_of).await?;
    Ok(found.unwrap_or_else(|| TopicState {
        topic: topic.clone(),
        subscribers: 0,
        position: None,
        log_rows: 0,
        retained: false,
    }))
}

pub(crate) async fn states<S: Session>(
    session: &S,
    app: AppId,
    after: &str,
    limit: usize,
) -> Result<Vec<TopicState>, S::Error> {
    let sql = format!(
        "SELECT {STATE_COLUMNS} FROM topics t WHERE app = $1 AND name > $2 AND name <> '$everyone'
         ORDER BY name LIMIT $3"
    );
    session.query(&sql, &values![app, after, limit], state_of).await
}

pub(crate) async fn delete_retained<S: Session>(
    session: &S,
    app: AppId,
    topic: &Topic,
) -> Result<bool, S::Error> {
    let sql = "UPDATE topics SET retained = NULL, retained_expires_at = NULL
               WHERE app = $1 AND name = $2 AND retained IS NOT NULL";
    Ok(session.execute(sql, &values![app, topic.as_str()]).await? > 0)
}

pub(crate) async fn since<S: Session>(
    session: &S,
    since: Place,
    rows_max: usize,
) -> Result<TopicsSince, S::Error> {
    let rows_max = rows_max.max(1) as i64;
    let values = values![since.0, rows_max];
    let log = S::TOPIC_LOG_BY_AGE;
    let page = format!("SELECT num, topic FROM {log} WHERE num > $1 ORDER BY num LIMIT $2");
    let sql = format!("SELECT count(*), max(num) FROM ({page}) AS page");
    let extent = session::one(session, &sql, &values, |row| Ok((row.int(0)?, row.int_or_null(1)?)));
    let sql = format!("SELECT app, name FROM topics WHERE num IN (SELECT topic FROM ({page}) AS page)");
    let topics = session.query(&sql, &values, |row| Ok((row.app(0)?, Topic::from_trusted(row.text(1)?))));
    // One round trip to PostgreSQL.
    let ((rows, last), topics) = futures_util::try_join!(extent, topics)?;
    Ok(TopicsSince { topics, next: last.filter(|_| rows == rows_max).map(Place) })
}

/// The epoch of a new topic. A topic without a row has epoch 0.
pub(crate) fn draw_epoch() -> u32 {
    (ids::random_bits() as u32).max(1)
}
