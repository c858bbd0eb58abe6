//! Log-ins in batches: one read for all of them, and one write for those whose device has to be
//! made or changed first.

use std::collections::HashSet;
use std::rc::Rc;
use std::sync::Arc;

use noroshi_types::{AppId, DeviceId, DeviceNum, Message, NotificationId, Timestamp, Topic, UserId, limits};
use rusqlite::{Connection, OptionalExtension};

use super::backlog::{self, Reading, Source};
use super::ids;
use super::writer::Write;
use super::{Sqlite, ack, device, inbox, maintenance, opening, revocation};
use crate::{
    Ack, Acked, Backlog, BacklogPage, Error, FirstCall, InboxPage, InboxRange, LoggedIn, Login, LoginRefused,
    Outstanding, Place, Recheck, Rechecked, Recover, Registration, Sessions,
};

#[async_trait::async_trait]
impl Sessions for Sqlite {
    fn inbox_rows(&self) -> u32 {
        self.inbox_rows
    }

    async fn log_in(&self, logins: Vec<Login>) -> Result<Vec<Result<LoggedIn, LoginRefused>>, Error> {
        let ids = Arc::clone(&self.ids);
        let logins = Arc::new(logins);
        let asked = Arc::clone(&logins);
        let first = self
            .read(move |db| {
                let (as_of, mut reading) = (maintenance::place(db)?, Reading::new(db, &ids));
                asked
                    .iter()
                    .map(|login| read_login(db, &mut reading, login, as_of))
                    .collect::<Result<Vec<_>, Error>>()
            })
            .await?;
        if first.iter().all(|answer| !matches!(answer, Answer::Change)) {
            return Ok(first.into_iter().map(Answer::settled).collect());
        }
        let wanting: Vec<usize> = first
            .iter()
            .enumerate()
            .filter(|(_, answer)| matches!(answer, Answer::Change))
            .map(|(i, _)| i)
            .collect();
        let second = self.change_and_read(logins, wanting).await?;
        let mut second = second.into_iter();
        let answers = first.into_iter().map(|answer| match answer {
            Answer::Change => second.next().map_or(Err(LoginRefused::Revoked), Answer::settled),
            answer => answer.settled(),
        });
        Ok(answers.collect())
    }

    async fn recheck(&self, checks: Vec<Recheck>) -> Result<Vec<Rechecked>, Error> {
        self.read(move |db| checks.iter().map(|check| recheck(db, check)).collect()).await
    }

    async fn keep_session(&self, device: DeviceNum, kept: Option<Vec<u8>>) -> Result<(), Error> {
        self.write(1, move |w| {
            let sql = "UPDATE devices SET kept = ?2 WHERE num = ?1
                       AND (?2 IS NULL OR kept IS NULL OR substr(kept, 1, 1) <> X'FF')";
            w.db.prepare_cached(sql)?.execute((device.0 as i64, &kept))?;
            Ok(())
        })
        .await
    }

    async fn backlog(&self, asked: Backlog) -> Result<BacklogPage, Error> {
        let ids = Arc::clone(&self.ids);
        self.read(move |db| backlog::next_page(db, &ids, &asked)).await
    }

    async fn recover(&self, asked: Recover) -> Result<BacklogPage, Error> {
        let ids = Arc::clone(&self.ids);
        self.read(move |db| backlog::recover(db, &ids, &asked)).await
    }

    async fn outstanding(&self, asked: Outstanding) -> Result<Vec<Arc<Message>>, Error> {
        let ids = Arc::clone(&self.ids);
        self.read(move |db| backlog::outstanding(db, &ids, &asked)).await
    }

    async fn ack(&self, acks: Vec<Ack>, now: Timestamp) -> Result<Vec<Acked>, Error> {
        let rows = acks.iter().map(|ack| ack.ids.len()).sum();
        self.write(rows, move |w| ack::ack(w, &acks, now)).await
    }

    async fn open(
        &self,
        device: DeviceNum,
        ids: Vec<NotificationId>,
        now: Timestamp,
    ) -> Result<Vec<NotificationId>, Error> {
        self.write(ids.len(), move |w| opening::open(w, device, &ids, now)).await
    }

    async fn inbox(
        &self,
        app: AppId,
        device: &DeviceId,
        limit: usize,
        now: Timestamp,
    ) -> Result<(Vec<Arc<Message>>, u64), Error> {
        let (ids, device) = (Arc::clone(&self.ids), device.clone());
        self.read(move |db| inbox::list(db, &ids, app, &device, limit, now)).await
    }

    async fn inbox_range(&self, asked: InboxRange) -> Result<Option<InboxPage>, Error> {
        let ids = Arc::clone(&self.ids);
        self.read(move |db| inbox::range(db, &ids, &asked)).await
    }

    async fn first_call(
        &self,
        app: AppId,
        device: &DeviceId,
        newest: usize,
        now: Timestamp,
    ) -> Result<Option<FirstCall>, Error> {
        let (ids, device) = (Arc::clone(&self.ids), device.clone());
        self.read(move |db| {
            let Some(device) = device::load(db, app, &device)? else { return Ok(None) };
            inbox::first_call(db, &ids, device, newest, now).map(Some)
        })
        .await
    }
}

impl Sqlite {
    async fn change_and_read(
        &self,
        logins: Arc<Vec<Login>>,
        wanting: Vec<usize>,
    ) -> Result<Vec<Answer>, Error> {
        let ids = Arc::clone(&self.ids);
        let changes = Arc::clone(&logins);
        let topics = wanting.iter().filter_map(|&i| logins.get(i)).map(|login| login.topics.len());
        let rows = wanting.len() * 2 + topics.sum::<usize>();
        let wanting = self
            .write(rows, move |w| {
                for login in wanting.iter().filter_map(|&i| changes.get(i)) {
                    change(w, login)?;
                }
                Ok(wanting)
            })
            .await?;
        self.read(move |db| {
            let (as_of, mut reading) = (maintenance::place(db)?, Reading::new(db, &ids));
            let wanting = wanting.iter().filter_map(|&i| logins.get(i));
            wanting.map(|login| read_login(db, &mut reading, login, as_of)).collect()
        })
        .await
    }
}

/// What a read says of a log-in.
enum Answer {
    Settled(Box<Result<LoggedIn, LoginRefused>>),
    /// The device has to be made or changed first.
    Change,
}

impl Answer {
    /// A device that still needs a change after it was changed was deleted in between.
    fn settled(self) -> Result<LoggedIn, LoginRefused> {
        match self {
            Answer::Settled(result) => *result,
            Answer::Change => Err(LoginRefused::Revoked),
        }
    }
}

/// Makes or changes the device of a log-in. A refusal for its limits shows when it is read again.
fn change(w: &Write<'_>, login: &Login) -> Result<(), Error> {
    let registration = Registration {
        device: Some(login.device.clone()),
        user: login.user.clone(),
        topics: login.topics.clone(),
        issued: login.issued,
        ..Registration::default()
    };
    match device::register(w, login.app, registration, login.now)? {
        Ok(_) | Err(Error::Limit(_) | Error::Revoked) => Ok(()),
        Err(error) => Err(error),
    }
}

fn recheck(db: &Connection, check: &Recheck) -> Result<Rechecked, Error> {
    let mut statement = db.prepare_cached(
        "SELECT revision, EXISTS (SELECT 1 FROM inbox WHERE device = ?1 AND num > ?2) FROM devices WHERE num = ?1",
    )?;
    let found = statement
        .query_row((check.device.0 as i64, check.since.0), |row| Ok((row.get::<_, i64>(0)?, row.get(1)?)))
        .optional()?;
    Ok(match found {
        Some((revision, _)) if check.revision.is_some_and(|known| known != revision as u64) => {
            Rechecked::Changed
        }
        Some((_, true)) => Rechecked::Newer,
        Some((_, false)) => Rechecked::Same,
        None => Rechecked::Changed,
    })
}

fn read_login(
    db: &Connection,
    reading: &mut Reading<'_>,
    login: &Login,
    as_of: Place,
) -> Result<Answer, Error> {
    let refused = |why| Ok(Answer::Settled(Box::new(Err(why))));
    if login.topics.len() + login.session_topics.len() > 2 * limits::TOPICS_PER_DEVICE_MAX {
        return refused(LoginRefused::TooManyTopics);
    }
    let mut statement = db.prepare_cached(
        "SELECT num, user, token_version, revision, kept FROM devices WHERE app = ?1 AND id = ?2",
    )?;
    let mut rows = statement.query((login.app.0, login.device.as_str()))?;
    let Some(row) = rows.next()? else {
        let revoked = revocation::load(db, login.app, &login.device, login.user.as_ref())?;
        return if !login.create || login.issued.is_revoked(revoked.latest(), login.now) {
            refused(LoginRefused::Revoked)
        } else if distinct(&login.topics, &login.session_topics) > limits::TOPICS_PER_DEVICE_MAX {
            refused(LoginRefused::TooManyTopics)
        } else {
            Ok(Answer::Change)
        };
    };
    let num = DeviceNum(row.get::<_, i64>(0)? as u64);
    let user = row.get_ref(1)?.as_str_or_null().map_err(rusqlite::Error::from)?;
    let token_version: u32 = row.get(2)?;
    let revision = row.get::<_, i64>(3)? as u64;
    let kept: Option<Vec<u8>> = row.get(4)?;
    if login.token_version.is_some_and(|version| version < token_version) {
        return refused(LoginRefused::Revoked);
    }
    let stored_user = user.map(UserId::parse).transpose();
    let stored_user = stored_user.map_err(|error| Error::Engine(format!("a stored user: {error}")))?;
    let of_user = login.user.as_ref().or(stored_user.as_ref());
    let revoked = revocation::load(db, login.app, &login.device, of_user)?;
    if login.issued.is_revoked(revoked.latest(), login.now) {
        return refused(LoginRefused::Revoked);
    }
    let durable = reading.subscriptions(num)?;
    let names: HashSet<&Topic> = durable.iter().map(|source| &source.topic.topic).collect();
    let is_new = |topic: &&Topic| !names.contains(topic) && !topic.is_everyone();
    let named: HashSet<&Topic> = login.topics.iter().chain(&login.session_topics).filter(is_new).collect();
    // $everyone is among the durable ones and does not count.
    if (durable.len() + named.len()).saturating_sub(1) > limits::TOPICS_PER_DEVICE_MAX {
        return refused(LoginRefused::TooManyTopics);
    }
    let other_user = login.user.is_some() && login.user != stored_user;
    if login.create && (other_user || login.topics.iter().any(|topic| is_new(&topic))) {
        return Ok(Answer::Change);
    }
    let user = stored_user;
    let session: Vec<Topic> =
        login.session_topics.iter().filter(is_new).collect::<HashSet<_>>().into_iter().cloned().collect();
    let (topics, page) = first_page(reading, num, durable, session, login)?;
    Ok(Answer::Settled(Box::new(Ok(LoggedIn {
        num,
        user,
        token_version,
        revoked,
        topics,
        page,
        revision,
        as_of,
        kept,
    }))))
}

fn distinct(a: &[Topic], b: &[Topic]) -> usize {
    a.iter().chain(b).filter(|topic| !topic.is_everyone()).collect::<HashSet<_>>().len()
}

/// The first page of a device's backlog with the retained messages and heads of all its topics, and
/// the names of those.
fn first_page(
    reading: &mut Reading<'_>,
    device: DeviceNum,
    mut sources: Vec<Source>,
    session: Vec<Topic>,
    login: &Login,
) -> Result<(Vec<Topic>, BacklogPage), Error> {
    let after = login.resume.map_or(0, ids::place);
    let mut unused = Vec::new();
    for topic in session {
        match reading.topic_named(login.app, &topic)? {
            // Without a place to resume from, a session hears a topic from the present on.
            Some(row) => {
                let offset = if login.resume.is_some() { 0 } else { row.head };
                sources.push(Source { topic: row, offset, num: 0 });
            }
            None => unused.push(topic),
        }
    }
    for source in &mut sources {
        source.num = after;
    }
    let mut page = reading.page(Some(device), after, &sources, login.now)?;
    let rows: Vec<Rc<_>> = sources.into_iter().map(|source| source.topic).collect();
    reading.add_retained(&mut page, rows.iter(), after, login.now)?;
    page.heads.extend(unused.iter().map(|topic| backlog::unused_head(topic, true)));
    let topics = rows.iter().map(|row| row.topic.clone()).chain(unused).collect();
    Ok((topics, page))
}
