//! Log-ins come in batches: one read for all of them, and one write for those whose device
//! must be created or changed first.

use std::rc::Rc;
use std::sync::{Arc, LazyLock};

use noroshi_types::{AppId, DeviceId, DeviceNum, Timestamp, Topic, UserId};
use rusqlite::{Row, Statement};

use super::backlog::{Reading, Source};
use super::reader::Read;
use super::statement::{Db, ready};
use super::writer::Write;
use super::{Sqlite, device, maintenance, revocation};
use crate::engine::backlog::unused_head;
use crate::engine::login::{
    Answer, COLUMN_COUNT, COLUMNS, Decision, LoginDevice, decide, rechecked, registration,
};
use crate::engine::preferences::{self, OWN, own_of_row};
use crate::engine::record::Record;
use crate::ids;
use crate::metrics::Held;
use crate::revocation::Subject;
use crate::{
    BacklogPage, Error, FirstCall, FirstRead, LoggedIn, Login, LoginRefused, Place, Recheck, Rechecked,
    Revocation,
};

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
        self.read(move |read| read_all(read, which.iter().filter_map(|&i| logins.get(i)))).await
    }

    pub(crate) fn read_log_ins(&self, logins: Vec<Login>, done: Box<dyn FnOnce(FirstRead) + Send>) {
        let work = move |read: Read<'_>| Ok((read_all(read, logins.iter())?, logins));
        self.readers.read_then(work, move |result| {
            done(match result {
                Ok((answers, logins)) if answers.iter().any(Answer::is_change) => FirstRead::Unread(logins),
                Ok((answers, _)) => FirstRead::Answered(answers.into_iter().map(Answer::settled).collect()),
                Err(error) => FirstRead::Failed(error),
            });
        });
    }

    async fn change_and_read(
        &self,
        logins: Arc<Vec<Login>>,
        which: Vec<usize>,
    ) -> Result<Vec<Answer>, Error> {
        let changes = Arc::clone(&logins);
        let rows = |i: &usize| 2 + logins.get(*i).map_or(0, |login| login.topics.len());
        let work = move |w: &mut Write<'_>, i: usize| {
            w.held.set(Held::Sessions);
            changes.get(i).map_or(Ok(()), |login| change(w, login)).map(|()| i)
        };
        let which = self.write_each(which, rows, work).await?;
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

fn read_all<'l>(read: Read<'_>, logins: impl Iterator<Item = &'l Login>) -> Result<Vec<Answer>, Error> {
    let (as_of, mut reading) = (maintenance::place(read)?, Reading::new(read));
    let mut devices = read.db.prepare_cached(&DEVICE)?;
    logins.map(|login| read_login(read.db, &mut devices, &mut reading, login, as_of)).collect()
}

/// One statement for what five would read. `?1` the app, `?2` the device, `?3` the user of the token, `?4` the number
/// after which the inbox is read.
static DEVICE: LazyLock<String> = LazyLock::new(|| {
    let (device, user) = (Subject::Device as u8, Subject::User as u8);
    format!(
        "SELECT {}, EXISTS (SELECT 1 FROM inbox WHERE device = d.num AND num > ?4),
             (SELECT revoked_at FROM revocations WHERE app = ?1 AND kind = {device} AND id = ?2),
             (SELECT revoked_at FROM revocations WHERE app = ?1 AND kind = {user} AND id = coalesce(?3, d.user))
         FROM devices d WHERE d.app = ?1 AND d.id = ?2",
        *COLUMNS
    )
});

/// A row of [`DEVICE`].
struct Found {
    device: LoginDevice,
    has_inbox: bool,
    revoked: Revocation,
}

impl Found {
    fn of_row(row: &Row<'_>) -> Result<Self, Error> {
        let revoked = Revocation {
            device: row.time_or_null(COLUMN_COUNT + 1)?,
            user: row.time_or_null(COLUMN_COUNT + 2)?,
        };
        Ok(Self { device: LoginDevice::of_row(row, 0)?, has_inbox: row.flag(COLUMN_COUNT)?, revoked })
    }
}

fn read_login(
    db: &Db,
    devices: &mut Statement<'_>,
    reading: &mut Reading<'_>,
    login: &Login,
    as_of: Place,
) -> Result<Answer, Error> {
    let after = login.resume.map_or(0, ids::place);
    let user = login.user.as_ref().map(UserId::as_str);
    let mut rows = devices.query((login.app.0, login.device.as_str(), user, after))?;
    let found = rows.next()?.map(Found::of_row).transpose()?;
    drop(rows);
    let revoked = match &found {
        Some(found) => found.revoked,
        None => revocation::load(db, login.app, &login.device, login.user.as_ref())?,
    };
    let durable = match &found {
        Some(found) => reading.subscriptions(found.device.num)?,
        None => Vec::new(),
    };
    let topics = durable.iter().map(|source| &source.topic.topic);
    let session = match decide(login, found.as_ref().map(|found| &found.device), revoked, topics) {
        Decision::Refused(why) => return Ok(Answer::Settled(Err(why))),
        Decision::Change => return Ok(Answer::Change),
        Decision::Read(session) => session,
    };
    let Found { device, has_inbox, .. } = found.ok_or(Error::NotFound)?;
    let LoginDevice { num, user, token_version, revision, kept, mut followed } = device;
    ready(preferences::add_counts(db, std::iter::once((num, &mut followed))))?;
    let (topics, page) = first_page(reading, has_inbox.then_some(num), durable, session, login)?;
    let logged_in =
        LoggedIn { num, user, token_version, revoked, topics, page, revision, as_of, kept, followed };
    Ok(Answer::Settled(Ok(Box::new(logged_in))))
}

/// The first page of a device's backlog, with the retained messages and heads of all its topics, and the topics'
/// names. `inbox`: the device, unless its inbox is empty.
fn first_page(
    reading: &mut Reading<'_>,
    inbox: Option<DeviceNum>,
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
    let mut page = reading.page(inbox, after, &sources, login.now)?;
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
    let sql = "SELECT count(*) FROM items i CROSS JOIN item_contents c ON c.num = i.num
               WHERE i.app = ?1 AND i.user = ?2 AND i.state = 1 AND c.expires_at > ?3";
    let unread_items = match &device.user {
        Some(user) => read.db.first(sql, (app.0, user.as_str(), now.0 as i64), |row| row.count(0))?,
        None => None,
    };
    let unread_items = unread_items.unwrap_or_default();
    let sql = format!("SELECT {OWN} FROM devices d WHERE d.num = ?1");
    let preferences = read.db.first(&sql, (device.num.0 as i64,), |row| own_of_row(row, 0))?;
    let preferences = preferences.unwrap_or_default();
    Ok(Some(FirstCall { device, unread, newest, unread_items, preferences, expires_at }))
}
