//! Log-ins come in batches: one read for all of them, and one write for those whose device
//! must be created or changed first.

use std::rc::Rc;
use std::sync::Arc;

use noroshi_types::{AppId, DeviceId, DeviceNum, Timestamp, Topic};

use super::backlog::{Reading, Source};
use super::reader::Read;
use super::statement::Db;
use super::writer::Write;
use super::{Sqlite, device, maintenance, revocation};
use crate::engine::backlog::unused_head;
use crate::engine::login::{Answer, COLUMNS, Decision, LoginDevice, decide, rechecked, registration};
use crate::engine::record::Record;
use crate::ids;
use crate::metrics::Held;
use crate::{BacklogPage, Error, FirstCall, LoggedIn, Login, LoginRefused, Place, Recheck, Rechecked};

pub(crate) async fn log_in(
    store: &Sqlite,
    logins: Vec<Login>,
) -> Result<Vec<Result<LoggedIn, LoginRefused>>, Error> {
    let logins = Arc::new(logins);
    let mut answers = store.read_logins(Arc::clone(&logins), (0..logins.len()).collect()).await?;
    let changing: Vec<usize> = (0..answers.len()).filter(|&i| answers[i].is_change()).collect();
    if !changing.is_empty() {
        for (i, answer) in changing.clone().into_iter().zip(store.change_and_read(logins, changing).await?) {
            answers[i] = answer;
        }
    }
    Ok(answers.into_iter().map(Answer::settled).collect())
}

impl Sqlite {
    pub(crate) fn inbox_rows(&self) -> u32 {
        self.inbox_rows
    }

    /// Reads the log-ins with these indices, in order.
    async fn read_logins(&self, logins: Arc<Vec<Login>>, which: Vec<usize>) -> Result<Vec<Answer>, Error> {
        self.read(move |read| {
            let (as_of, mut reading) = (maintenance::place(read)?, Reading::new(read));
            let logins = which.iter().filter_map(|&i| logins.get(i));
            logins.map(|login| read_login(read.db, &mut reading, login, as_of)).collect()
        })
        .await
    }

    async fn change_and_read(
        &self,
        logins: Arc<Vec<Login>>,
        which: Vec<usize>,
    ) -> Result<Vec<Answer>, Error> {
        let changes = Arc::clone(&logins);
        let topics = which.iter().filter_map(|&i| logins.get(i)).map(|login| login.topics.len());
        let rows = which.len() * 2 + topics.sum::<usize>();
        let which = self
            .write(rows, move |w| {
                w.held.set(Held::Sessions);
                which.iter().filter_map(|&i| changes.get(i)).try_for_each(|login| change(w, login))?;
                Ok(which)
            })
            .await?;
        self.read_logins(logins, which).await
    }
}

/// Creates or changes the device of a log-in. Refusals show when the device is read again.
fn change(w: &Write<'_>, login: &Login) -> Result<(), Error> {
    match device::register(w, login.app, registration(login), login.now)? {
        Ok(_) | Err(Error::Limit(_) | Error::Revoked) => Ok(()),
        Err(error) => Err(error),
    }
}

pub(crate) fn recheck(read: Read<'_>, checks: &[Recheck]) -> Result<Vec<Rechecked>, Error> {
    checks.iter().map(|check| recheck_one(read.db, check)).collect()
}

fn recheck_one(db: &Db, check: &Recheck) -> Result<Rechecked, Error> {
    let sql = "SELECT revision, EXISTS (SELECT 1 FROM inbox WHERE device = ?1 AND num > ?2) FROM devices WHERE num = ?1";
    let found =
        db.first(sql, (check.device.0 as i64, check.since.0), |row| Ok((row.count(0)?, row.flag(1)?)))?;
    let (revision, newer) = found.unzip();
    Ok(rechecked(check, revision, newer.unwrap_or(false)))
}

fn read_login(db: &Db, reading: &mut Reading<'_>, login: &Login, as_of: Place) -> Result<Answer, Error> {
    let sql = format!("SELECT {COLUMNS} FROM devices d WHERE d.app = ?1 AND d.id = ?2");
    let found = db.first(&sql, (login.app.0, login.device.as_str()), |row| LoginDevice::of_row(row, 0))?;
    let user = login.user.as_ref().or(found.as_ref().and_then(|found| found.user.as_ref()));
    let revoked = revocation::load(db, login.app, &login.device, user)?;
    let durable = match &found {
        Some(found) => reading.subscriptions(found.num)?,
        None => Vec::new(),
    };
    let topics = durable.iter().map(|source| &source.topic.topic);
    let session = match decide(login, found.as_ref(), revoked, topics) {
        Decision::Refused(why) => return Ok(Answer::Settled(Err(why))),
        Decision::Change => return Ok(Answer::Change),
        Decision::Read(session) => session,
    };
    let LoginDevice { num, user, token_version, revision, kept } = found.ok_or(Error::NotFound)?;
    let (topics, page) = first_page(reading, num, durable, session, login)?;
    let logged_in = LoggedIn { num, user, token_version, revoked, topics, page, revision, as_of, kept };
    Ok(Answer::Settled(Ok(Box::new(logged_in))))
}

/// The first page of a device's backlog, with the retained messages and heads of all its topics, and the topics'
/// names.
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
            // Without a position to resume from, a session starts at the present.
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
    page.heads.extend(unused.iter().map(|topic| unused_head(topic, true)));
    let topics = rows.iter().map(|row| row.topic.clone()).chain(unused).collect();
    Ok((topics, page))
}

/// What an app shows first of a device: how many unread messages, and the newest of them.
pub(crate) fn first_call(
    read: Read<'_>,
    app: AppId,
    device: &DeviceId,
    newest: usize,
    now: Timestamp,
) -> Result<Option<FirstCall>, Error> {
    let Some(device) = device::load(read.db, app, device)? else { return Ok(None) };
    let sql = "SELECT count(*), min(n.expires_at) FROM inbox i JOIN notifications n ON n.num = i.num
               WHERE i.device = ?1 AND n.expires_at > ?2";
    let counted = read
        .db
        .first(sql, (device.num.0 as i64, now.0 as i64), |row| Ok((row.count(0)?, row.time_or_null(1)?)))?;
    let (unread, expires_at) = counted.unwrap_or_default();
    let newest = match unread {
        0 => Vec::new(),
        _ => Reading::new(read).inbox(device.num, 0, "DESC", newest, now)?,
    };
    Ok(Some(FirstCall { device, unread, newest, expires_at }))
}
