//! Log-ins come in batches: a few statements for all of them, and one transaction that writes
//! for those whose device must be created or changed first.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock};

use noroshi_types::{AppId, DeviceId, Timestamp, Topic};
use tokio_postgres::Row;

use super::backlog::{self, MESSAGE_COLUMNS, PageRequest, Source};
use super::device::{COLUMN_COUNT, Keys, NewDevice, TOPIC_NAMES, device_with_topics};
use super::transaction::{Failed, Tx, Values};
use super::{Postgres, maintenance, revocation};
use crate::engine::backlog::{TopicRow, unused_head};
use crate::engine::device::COLUMNS;
use crate::engine::login::{self, Answer, Decision, LoginDevice, decide, rechecked, registration};
use crate::engine::notification::message_of_row;
use crate::engine::preferences::{self, OWN, own_of_row};
use crate::engine::record::Record;
use crate::engine::topic::TopicNum;
use crate::{Error, FirstCall, FirstRead, LoggedIn, Login, LoginRefused, Recheck, Rechecked, ids};

pub(crate) async fn log_in(
    store: &Postgres,
    logins: Vec<Login>,
) -> Result<Vec<Result<LoggedIn, LoginRefused>>, Error> {
    let all: Vec<&Login> = logins.iter().collect();
    let mut answers = store.read(async |tx: Tx| read_logins(&tx, &all).await).await?;
    let changing: Vec<usize> = (0..answers.len()).filter(|&i| answers[i].is_change()).collect();
    if !changing.is_empty() {
        // Refusals show when the devices are read again.
        store.register_all(changing.iter().map(|&i| wanted(&logins[i])).collect()).await?;
        let again: Vec<&Login> = changing.iter().map(|&i| &logins[i]).collect();
        let second = store.read(async |tx: Tx| read_logins(&tx, &again).await).await?;
        for (i, answer) in changing.into_iter().zip(second) {
            answers[i] = answer;
        }
    }
    Ok(answers.into_iter().map(Answer::settled).collect())
}

impl Postgres {
    pub(crate) fn inbox_rows(&self) -> u32 {
        self.context.options.inbox_rows
    }

    pub(crate) fn read_log_ins(&self, logins: Vec<Login>, done: Box<dyn FnOnce(FirstRead) + Send>) {
        done(FirstRead::Unread(logins));
    }
}

/// The registration that creates or changes the device of a log-in.
fn wanted(login: &Login) -> NewDevice {
    NewDevice { app: login.app, id: login.device.clone(), registration: registration(login), now: login.now }
}

/// A device, and its positions in the topics that it durably subscribes to, `$everyone` among them.
struct Known {
    device: LoginDevice,
    positions: Vec<(TopicNum, u64)>,
}

type Topics = HashMap<TopicNum, Arc<TopicRow>>;
type Named = HashMap<(AppId, Topic), Arc<TopicRow>>;

/// Round trips: devices and their positions; topics; numbers of messages; messages.
async fn read_logins(tx: &Tx, logins: &[&Login]) -> Result<Vec<Answer>, Failed> {
    let session_topics = session_topics(logins);
    let asked: Vec<_> = logins.iter().map(|login| (login.app, &login.device, login.user.as_ref())).collect();
    let (as_of, mut known, named, revoked) = tokio::try_join!(
        maintenance::place(tx),
        devices(tx, logins),
        backlog::topics_named(tx, session_topics),
        revocation::load(tx, &asked)
    )?;
    let topics = backlog::topics(tx, durable_topics(&known)).await?;

    let mut answers = Vec::with_capacity(logins.len());
    let (mut requests, mut readers) = (Vec::new(), Vec::new());
    for (i, login) in logins.iter().enumerate() {
        let found = known.remove(&i);
        let (device, positions) = found.as_ref().map(|found| (&found.device, &found.positions)).unzip();
        let durable = positions.into_iter().flatten().filter_map(|(num, _)| topics.get(num));
        match (decide(login, device, revoked[i], durable.map(|row| &row.topic)), found) {
            (Decision::Read(session), Some(found)) => {
                let (request, unused) = page_request(login, &found, session, &topics, &named);
                answers.push(Answer::Change);
                requests.push(request);
                readers.push((i, found.device, unused));
            }
            (Decision::Refused(why), _) => answers.push(Answer::Settled(Err(why))),
            (Decision::Change | Decision::Read(_), _) => answers.push(Answer::Change),
        }
    }
    let followed = readers.iter_mut().map(|(_, device, _)| (device.num, &mut device.followed));
    let (pages, ()) = tokio::try_join!(backlog::pages(tx, &requests), preferences::add_counts(tx, followed))?;
    for (((i, device, unused), request), mut page) in readers.into_iter().zip(requests).zip(pages) {
        page.heads.extend(unused.iter().map(|topic| unused_head(topic, true)));
        let topics =
            request.sources.into_iter().map(|source| source.topic.topic.clone()).chain(unused).collect();
        let LoginDevice { num, user, token_version, revision, kept, followed } = device;
        let revoked = revoked[i];
        let logged_in =
            LoggedIn { num, user, token_version, revoked, topics, page, revision, as_of, kept, followed };
        answers[i] = Answer::Settled(Ok(Box::new(logged_in)));
    }
    Ok(answers)
}

fn session_topics<'l>(logins: &[&'l Login]) -> HashSet<(AppId, &'l Topic)> {
    logins.iter().flat_map(|login| login.session_topics.iter().map(|topic| (login.app, topic))).collect()
}

fn durable_topics(known: &HashMap<usize, Known>) -> HashSet<TopicNum> {
    known.values().flat_map(|known| known.positions.iter().map(|(topic, _)| *topic)).collect()
}

/// The devices that exist, by their index in `logins`.
async fn devices(tx: &Tx, logins: &[&Login]) -> Result<HashMap<usize, Known>, Failed> {
    let keys = Keys::of(logins.iter().map(|login| (login.app, &login.device)));
    let values: Values<'_> = &[&keys.apps, &keys.ids];
    let (devices, positions) = tokio::try_join!(tx.query(&DEVICES, values), tx.query(POSITIONS, values))?;
    let place_of = |row: &Row| row.int(0).map(|place| (place - 1) as usize);
    let mut known = HashMap::with_capacity(devices.len());
    for row in &devices {
        known.insert(place_of(row)?, Known { device: LoginDevice::of_row(row, 1)?, positions: Vec::new() });
    }
    for row in &positions {
        if let Some(known) = known.get_mut(&place_of(row)?) {
            known.positions.push((row.int(1)?, row.count(2)?));
        }
    }
    Ok(known)
}

static DEVICES: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT asked.place, {} FROM unnest($1::bigint[], $2::text[]) WITH ORDINALITY AS asked (app, id, place)
         JOIN devices d ON d.app = asked.app AND d.id = asked.id",
        *login::COLUMNS
    )
});

const POSITIONS: &str = "SELECT asked.place, s.topic, s.position
    FROM unnest($1::bigint[], $2::text[]) WITH ORDINALITY AS asked (app, id, place)
    JOIN devices d ON d.app = asked.app AND d.id = asked.id
    JOIN subscriptions s ON s.device = d.num";

/// Asks for the first page of a log-in. Also returns its session topics that have no row.
fn page_request(
    login: &Login,
    known: &Known,
    session: Vec<Topic>,
    topics: &Topics,
    named: &Named,
) -> (PageRequest, Vec<Topic>) {
    let after = login.resume.map_or(0, ids::place);
    let durable = known.positions.iter().filter_map(|(num, position)| {
        Some(Source { topic: Arc::clone(topics.get(num)?), offset: *position, num: after })
    });
    let mut sources: Vec<Source> = durable.collect();
    let mut unused = Vec::new();
    for topic in session {
        let key = (login.app, topic);
        match named.get(&key) {
            // Without a position to resume from, a session starts at the present.
            Some(row) => {
                let offset = if login.resume.is_some() { 0 } else { row.head };
                sources.push(Source { topic: Arc::clone(row), offset, num: after });
            }
            None => unused.push(key.1),
        }
    }
    let device = Some(known.device.num);
    (PageRequest { device, after, sources, retained: Some(after), now: login.now }, unused)
}

pub(crate) async fn recheck(tx: &Tx, checks: &[Recheck]) -> Result<Vec<Rechecked>, Failed> {
    let devices: Vec<_> = checks.iter().map(|check| check.device.0 as i64).collect();
    let since: Vec<_> = checks.iter().map(|check| check.since.0).collect();
    let sql = "SELECT d.revision,
                   EXISTS (SELECT 1 FROM inbox i WHERE i.device = asked.device AND i.num > asked.since)
               FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS asked (device, since, place)
               LEFT JOIN devices d ON d.num = asked.device ORDER BY asked.place";
    let rows = tx.query(sql, &[&devices, &since]).await?;
    let answers = checks.iter().zip(&rows);
    answers.map(|(check, row)| Ok(rechecked(check, row.count_or_null(0)?, row.flag(1)?))).collect()
}

/// The device with its inbox, with one statement: one round trip, and a consistent read without a transaction. The rows
/// are one per message, each with the device; one row for a device without messages.
pub(crate) async fn first_call(
    tx: &Tx,
    app: AppId,
    device: &DeviceId,
    newest: usize,
    now: Timestamp,
) -> Result<Option<FirstCall>, Failed> {
    let columns = &*COLUMNS;
    let sql = format!(
        "SELECT {columns}, subscribed.names, unread.count, unread.expires_at, unread_items.count, {OWN}, {MESSAGE_COLUMNS}
         FROM devices d
         CROSS JOIN LATERAL ({TOPIC_NAMES}) AS subscribed
         CROSS JOIN LATERAL (
             SELECT count(*) AS count, min(n.expires_at) AS expires_at
             FROM inbox i JOIN notifications n ON n.num = i.num
             WHERE i.device = d.num AND n.expires_at > $3) AS unread
         CROSS JOIN LATERAL (
             SELECT count(*) AS count FROM items i JOIN item_contents c ON c.num = i.num
             WHERE i.app = d.app AND i.\"user\" = d.\"user\" AND i.state = 1 AND c.expires_at > $3) AS unread_items
         LEFT JOIN LATERAL (
             SELECT n.* FROM inbox i JOIN notifications n ON n.num = i.num
             WHERE i.device = d.num AND n.expires_at > $3 ORDER BY i.num DESC LIMIT $4) AS n ON true
         LEFT JOIN topics t ON t.num = n.topic
         WHERE d.app = $1 AND d.id = $2 ORDER BY n.num DESC NULLS LAST"
    );
    let values: Values<'_> = &[&i64::from(app.0), &device.as_str(), &(now.0 as i64), &(newest as i64)];
    let rows = tx.query(&sql, values).await?;
    let Some(first) = rows.first() else { return Ok(None) };
    let device = device_with_topics(first)?;
    let mut messages = Vec::with_capacity(rows.len());
    for row in &rows {
        if row.int_or_null(COLUMN_COUNT + 6)?.is_some() {
            messages.push(Arc::new(message_of_row(row, COLUMN_COUNT + 6, tx.ids())?));
        }
    }
    Ok(Some(FirstCall {
        device,
        unread: first.count(COLUMN_COUNT + 1)?,
        newest: messages,
        unread_items: first.count(COLUMN_COUNT + 3)?,
        preferences: own_of_row(first, COLUMN_COUNT + 4)?,
        expires_at: first.time_or_null(COLUMN_COUNT + 2)?,
    }))
}
