//! Broadcast channels as rows, and what creates, binds and deletes them.
//!
//! The row of a channel is locked before its broadcasts are changed, so that `due_at` and the rows that wait agree.

use std::collections::HashSet;

use noroshi_types::{AppId, BroadcastState, Label, PushEnvironment, StoragePolicy, Timestamp, Topic, limits};

use super::record::{Record, invalid, unknown};
use super::session::{self, Session, Value, values};
use crate::{Channel, ChannelCounts, Claim, Error, NewChannel, Reserved};

/// Columns of `push_channels c` for [`channel_of`].
fn columns() -> String {
    let max = limits::BROADCASTS_WAITING_MAX;
    format!(
        "c.name, c.environment, c.bundle, c.policy, c.apple, c.topic, c.created_at,
         (SELECT count(*) FROM (SELECT 1 FROM broadcasts b WHERE b.channel = c.num AND b.state = 1 LIMIT {max}) AS w)"
    )
}

fn channel_of(row: &dyn Record) -> Result<Channel, Error> {
    Ok(Channel {
        name: label(row.text(0)?)?,
        environment: environment(row, 1)?,
        bundle: row.string(2)?,
        policy: policy(row, 3)?,
        apple: row.string_or_null(4)?,
        topic: row.text_or_null(5)?.map(Topic::from_trusted),
        created_at: row.time(6)?,
        waiting: row.count(7)?,
    })
}

pub(super) fn label(text: &str) -> Result<Label, Error> {
    Label::parse(text).map_err(|error| invalid("name of a channel", error))
}

pub(super) fn environment(row: &dyn Record, column: usize) -> Result<PushEnvironment, Error> {
    PushEnvironment::from_code(row.code(column)?).ok_or_else(|| unknown("push environment"))
}

pub(super) fn policy(row: &dyn Record, column: usize) -> Result<StoragePolicy, Error> {
    StoragePolicy::from_code(row.code(column)?).ok_or_else(|| unknown("storage policy"))
}

fn topic_text(topic: Option<&Topic>) -> Option<&str> {
    topic.map(Topic::as_str)
}

pub(crate) async fn reserve<S: Session>(
    session: &S,
    new: &NewChannel,
    claim: Claim,
    channels_max: usize,
    now: Timestamp,
) -> Result<Reserved, S::Error> {
    let NewChannel { app, name, environment, bundle, policy, topic } = new;
    let (app, name, environment) = (*app, name.as_str(), *environment as u8);
    // One creation at a time for each app, so that the limit holds.
    session::require_app(session, app, S::FOR_NO_KEY_UPDATE).await?;
    let topic = topic_text(topic.as_ref());
    let found = "SELECT num, apple, claimed_until FROM push_channels WHERE app = $1 AND name = $2";
    let found = session::first(session, found, &values![app, name], |row| {
        Ok((row.int(0)?, row.text_or_null(1)?.is_some(), row.time(2)?))
    })
    .await?;
    let claimed = Value::from(claim.by as i64);
    match found {
        Some((_, true, _)) => {
            let channel = find(session, app, &new.name).await?.ok_or(Error::NotFound)?;
            return Ok(Reserved::Exists(channel));
        }
        Some((_, false, until)) if until > now => return Ok(Reserved::Busy),
        Some((num, ..)) => {
            require_free(session, app, topic, environment, num).await?;
            let sql =
                "UPDATE push_channels SET environment = $2, bundle = $3, policy = $4, topic = $5, claim = $6,
                              claimed_until = $7, created_at = $8 WHERE num = $1";
            let values = values![num, environment, bundle, *policy as u8, topic];
            let rest = [claimed, claim.until.into(), now.into()];
            session.execute(sql, &[values.as_slice(), &rest].concat()).await?;
        }
        None => {
            let sql = "SELECT count(*) FROM push_channels WHERE app = $1 AND environment = $2";
            let count = session::one(session, sql, &values![app, environment], |row| row.count(0)).await?;
            if count >= channels_max as u64 {
                let text = format!("an app has at most {channels_max} channels in an environment");
                return Err(Error::Limit(text).into());
            }
            require_free(session, app, topic, environment, 0).await?;
            let sql = "INSERT INTO push_channels (app, name, environment, bundle, policy, topic, claim, claimed_until,
                                                  created_at, lease)
                       VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 0)";
            let values = values![app, name, environment, bundle, *policy as u8, topic];
            let rest = [claimed, claim.until.into(), now.into()];
            session.execute(sql, &[values.as_slice(), &rest].concat()).await?;
        }
    }
    Ok(Reserved::Claimed)
}

/// Fails with [`Error::Exists`] if a channel other than `num` has the topic in the environment.
async fn require_free<S: Session>(
    session: &S,
    app: AppId,
    topic: Option<&str>,
    environment: u8,
    num: i64,
) -> Result<(), S::Error> {
    let Some(topic) = topic else { return Ok(()) };
    let sql =
        "SELECT num FROM push_channels WHERE app = $1 AND topic = $2 AND environment = $3 AND num <> $4";
    match session::first(session, sql, &values![app, topic, environment, num], |row| row.int(0)).await? {
        Some(_) => Err(Error::Exists.into()),
        None => Ok(()),
    }
}

pub(crate) async fn complete<S: Session>(
    session: &S,
    app: AppId,
    name: &Label,
    claim: u64,
    apple: &String,
) -> Result<Channel, S::Error> {
    let sql = "UPDATE push_channels SET apple = $4, claim = 0, claimed_until = 0
               WHERE app = $1 AND name = $2 AND claim = $3 AND apple IS NULL";
    let changed = session.execute(sql, &values![app, name.as_str(), claim as i64, apple]).await?;
    match changed {
        0 => Err(Error::Conflict.into()),
        _ => Ok(find(session, app, name).await?.ok_or(Error::NotFound)?),
    }
}

pub(crate) async fn abandon<S: Session>(
    session: &S,
    app: AppId,
    name: &Label,
    claim: u64,
) -> Result<(), S::Error> {
    let sql = "DELETE FROM push_channels WHERE app = $1 AND name = $2 AND claim = $3 AND apple IS NULL";
    session.execute(sql, &values![app, name.as_str(), claim as i64]).await.map(drop)
}

pub(crate) async fn find<S: Session>(
    session: &S,
    app: AppId,
    name: &Label,
) -> Result<Option<Channel>, S::Error> {
    let sql = format!("SELECT {} FROM push_channels c WHERE c.app = $1 AND c.name = $2", columns());
    session::first(session, &sql, &values![app, name.as_str()], channel_of).await
}

pub(crate) async fn list<S: Session>(
    session: &S,
    app: AppId,
    after: Option<&Label>,
    limit: usize,
) -> Result<Vec<Channel>, S::Error> {
    let sql = format!(
        "SELECT {} FROM push_channels c WHERE c.app = $1 AND c.name > $2 ORDER BY c.name LIMIT $3",
        columns()
    );
    session.query(&sql, &values![app, after.map_or("", Label::as_str), limit], channel_of).await
}

pub(crate) async fn of_topic<S: Session>(
    session: &S,
    app: AppId,
    topic: &Topic,
) -> Result<Vec<Channel>, S::Error> {
    let sql = format!(
        "SELECT {} FROM push_channels c WHERE c.app = $1 AND c.topic = $2 ORDER BY c.environment",
        columns()
    );
    session.query(&sql, &values![app, topic.as_str()], channel_of).await
}

/// Reads the app's channels: at most [`limits::CHANNELS_MAX`] in each environment.
pub(crate) async fn known<S: Session>(
    session: &S,
    app: AppId,
    apple: &[String],
) -> Result<Vec<(String, Label)>, S::Error> {
    let wanted: HashSet<&str> = apple.iter().map(String::as_str).collect();
    let sql = "SELECT apple, name FROM push_channels WHERE app = $1 AND name > '' AND apple IS NOT NULL";
    let found = session.query(sql, &values![app], |row| Ok((row.string(0)?, label(row.text(1)?)?))).await?;
    Ok(found.into_iter().filter(|(id, _)| wanted.contains(id.as_str())).collect())
}

pub(crate) async fn bind<S: Session>(
    session: &S,
    app: AppId,
    name: &Label,
    topic: Option<&Topic>,
) -> Result<Channel, S::Error> {
    session::require_app(session, app, S::FOR_NO_KEY_UPDATE).await?;
    let sql = "SELECT num, environment FROM push_channels WHERE app = $1 AND name = $2";
    let found = session::first(session, sql, &values![app, name.as_str()], |row| {
        Ok((row.int(0)?, environment(row, 1)?))
    })
    .await?;
    let (num, environment) = found.ok_or(Error::NotFound)?;
    let topic = topic_text(topic);
    require_free(session, app, topic, environment as u8, num).await?;
    session.execute("UPDATE push_channels SET topic = $2 WHERE num = $1", &values![num, topic]).await?;
    Ok(find(session, app, name).await?.ok_or(Error::NotFound)?)
}

pub(crate) async fn delete<S: Session>(
    session: &S,
    app: AppId,
    name: &Label,
    now: Timestamp,
) -> Result<(), S::Error> {
    let num = lock_named(session, app, name).await?.ok_or(Error::NotFound)?.num;
    end_waiting(session, num, BroadcastState::Cancelled, "TRUE", now).await?;
    session.execute("DELETE FROM push_channels WHERE num = $1", &values![num]).await.map(drop)
}

/// A channel whose row is locked until the transaction ends.
pub(super) struct Locked {
    pub num: i64,
    pub is_complete: bool,
}

pub(super) async fn lock_named<S: Session>(
    session: &S,
    app: AppId,
    name: &Label,
) -> Result<Option<Locked>, S::Error> {
    let sql =
        format!("SELECT num, apple FROM push_channels WHERE app = $1 AND name = $2 {}", S::FOR_NO_KEY_UPDATE);
    session::first(session, &sql, &values![app, name.as_str()], |row| {
        Ok(Locked { num: row.int(0)?, is_complete: row.text_or_null(1)?.is_some() })
    })
    .await
}

pub(crate) async fn counts<S: Session>(session: &S) -> Result<ChannelCounts, S::Error> {
    let sql = "SELECT (SELECT count(*) FROM push_channels),
                      (SELECT count(*) FROM push_channels WHERE due_at IS NOT NULL)";
    let counts = |row: &dyn Record| Ok(ChannelCounts { channels: row.count(0)?, waiting: row.count(1)? });
    session::one(session, sql, &[], counts).await
}

/// Ends the channel's broadcasts that wait and meet the condition on `b`, which may use the time as `$3`.
pub(super) async fn end_waiting<S: Session>(
    session: &S,
    channel: i64,
    state: BroadcastState,
    condition: &str,
    now: Timestamp,
) -> Result<u64, S::Error> {
    let sql = format!(
        "UPDATE broadcasts SET state = $2, ended_at = $3, payload = '' WHERE num IN (
             SELECT b.num FROM broadcasts b WHERE b.channel = $1 AND b.state = 1 AND {condition})"
    );
    session.execute(&sql, &values![channel, state as u8, now]).await
}
