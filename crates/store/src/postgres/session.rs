//! Log-ins in batches: a handful of statements for all of them, and one transaction that writes for those whose
//! device has to be made or changed first.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use noroshi_types::{AppId, DeviceId, DeviceNum, Message, NotificationId, Timestamp, Topic, UserId, limits};
use tokio_postgres::Row;

use super::backlog::{self, Source, TopicRow, Want};
use super::device::{Keys, Wanted};
use super::topic::TopicNum;
use super::transaction::{Failed, Tx, Values};
use super::{Postgres, ack, first_call, inbox, opening, revocation};
use crate::{
    Ack, Acked, Backlog, BacklogPage, Error, FirstCall, InboxPage, InboxRange, LoggedIn, Login, LoginRefused,
    Outstanding, Place, Recheck, Rechecked, Recover, Registration, Revocation, Sessions, ids,
};

#[async_trait::async_trait]
impl Sessions for Postgres {
    fn inbox_rows(&self) -> u32 {
        self.options.inbox_rows
    }

    async fn log_in(&self, logins: Vec<Login>) -> Result<Vec<Result<LoggedIn, LoginRefused>>, Error> {
        let all: Vec<&Login> = logins.iter().collect();
        let mut answers = self.read(async |tx: Tx| read_logins(&tx, self, &all).await).await?;
        let wanting: Vec<usize> = (0..answers.len()).filter(|&i| answers[i].is_change()).collect();
        if !wanting.is_empty() {
            // A refusal for its limits shows when it is read again.
            self.register_all(wanting.iter().map(|&i| wanted(&logins[i])).collect()).await?;
            let again: Vec<&Login> = wanting.iter().map(|&i| &logins[i]).collect();
            let second = self.read(async |tx: Tx| read_logins(&tx, self, &again).await).await?;
            for (i, answer) in wanting.into_iter().zip(second) {
                answers[i] = answer;
            }
        }
        Ok(answers.into_iter().map(Answer::settled).collect())
    }

    async fn recheck(&self, checks: Vec<Recheck>) -> Result<Vec<Rechecked>, Error> {
        self.read(async |tx: Tx| recheck(&tx, &checks).await).await
    }

    async fn keep_session(&self, device: DeviceNum, kept: Option<Vec<u8>>) -> Result<(), Error> {
        self.write(move |tx| {
            let kept = kept.clone();
            async move {
                let sql = "UPDATE devices SET kept = $2 WHERE num = $1
                           AND ($2::bytea IS NULL OR kept IS NULL OR substr(kept, 1, 1) <> '\\xff'::bytea)";
                tx.execute(sql, &[&(device.0 as i64), &kept]).await?;
                Ok(())
            }
        })
        .await
    }

    async fn backlog(&self, asked: Backlog) -> Result<BacklogPage, Error> {
        self.read(async |tx: Tx| backlog::next_page(&tx, &self.ids, &asked).await).await
    }

    async fn recover(&self, asked: Recover) -> Result<BacklogPage, Error> {
        self.read(async |tx: Tx| backlog::recover(&tx, &self.ids, &asked).await).await
    }

    async fn outstanding(&self, asked: Outstanding) -> Result<Vec<Arc<Message>>, Error> {
        self.read(async |tx: Tx| backlog::outstanding(&tx, &self.ids, &asked).await).await
    }

    async fn ack(&self, acks: Vec<Ack>, now: Timestamp) -> Result<Vec<Acked>, Error> {
        let (ids, acks) = (Arc::clone(&self.ids), Arc::new(acks));
        self.write(move |tx| ack::ack(tx, Arc::clone(&ids), Arc::clone(&acks), now)).await
    }

    async fn open(
        &self,
        device: DeviceNum,
        opened: Vec<NotificationId>,
        now: Timestamp,
    ) -> Result<Vec<NotificationId>, Error> {
        let (ids, opened) = (Arc::clone(&self.ids), Arc::new(opened));
        self.write(move |tx| opening::open(tx, Arc::clone(&ids), device, Arc::clone(&opened), now)).await
    }

    async fn inbox(
        &self,
        app: AppId,
        device: &DeviceId,
        limit: usize,
        now: Timestamp,
    ) -> Result<(Vec<Arc<Message>>, u64), Error> {
        self.read(async |tx: Tx| inbox(&tx, self, app, device, limit, now).await).await
    }

    async fn inbox_range(&self, asked: InboxRange) -> Result<Option<InboxPage>, Error> {
        self.read(async |tx: Tx| inbox::range(&tx, &self.ids, &asked).await).await
    }

    async fn first_call(
        &self,
        app: AppId,
        device: &DeviceId,
        newest: usize,
        now: Timestamp,
    ) -> Result<Option<FirstCall>, Error> {
        self.ask(async |tx: Tx| first_call::first_call(&tx, &self.ids, app, device, newest, now).await).await
    }
}

/// What a read says of a log-in.
enum Answer {
    Settled(Result<Box<LoggedIn>, LoginRefused>),
    /// The device has to be made or changed first.
    Change,
}

impl Answer {
    fn is_change(&self) -> bool {
        matches!(self, Self::Change)
    }

    /// A device that still needs a change after it was changed was deleted in between.
    fn settled(self) -> Result<LoggedIn, LoginRefused> {
        match self {
            Self::Settled(result) => result.map(|logged_in| *logged_in),
            Self::Change => Err(LoginRefused::Revoked),
        }
    }
}

/// How the device of a log-in is to be.
fn wanted(login: &Login) -> Wanted {
    let registration = Registration {
        device: Some(login.device.clone()),
        user: login.user.clone(),
        topics: login.topics.clone(),
        issued: login.issued,
        ..Registration::default()
    };
    Wanted { app: login.app, id: login.device.clone(), registration, now: login.now }
}

/// A device as a log-in finds it.
struct Known {
    num: DeviceNum,
    user: Option<UserId>,
    token_version: u32,
    revision: u64,
    kept: Option<Vec<u8>>,
    /// Where it stands in the topics it durably subscribes to, `$everyone` with them.
    positions: Vec<(TopicNum, u64)>,
}

/// What is decided of a log-in before its page is read.
enum Decision {
    Refused(LoginRefused),
    Change,
    /// With the session topics that it does not durably subscribe to.
    Read(Known, Vec<Topic>),
}

type Topics = HashMap<TopicNum, Arc<TopicRow>>;
type Named = HashMap<(AppId, Topic), Arc<TopicRow>>;

/// Round trips: devices and where they stand; topics; numbers of messages; messages.
async fn read_logins(tx: &Tx, store: &Postgres, logins: &[&Login]) -> Result<Vec<Answer>, Failed> {
    let session_topics = session_topics(logins);
    let asked: Vec<_> = logins.iter().map(|login| (login.app, &login.device, login.user.as_ref())).collect();
    let (as_of, mut known, named, revoked) = tokio::try_join!(
        place(tx),
        devices(tx, logins),
        backlog::topics_named(tx, session_topics),
        revocation::load(tx, &asked)
    )?;
    let topics = backlog::topics(tx, durable_topics(&known)).await?;

    let mut answers = Vec::with_capacity(logins.len());
    let (mut wants, mut readers) = (Vec::new(), Vec::new());
    for (i, login) in logins.iter().enumerate() {
        match decide(login, known.remove(&i), revoked[i], &topics) {
            Decision::Refused(why) => answers.push(Answer::Settled(Err(why))),
            Decision::Change => answers.push(Answer::Change),
            Decision::Read(known, session) => {
                let (want, unused) = want(login, &known, session, &topics, &named);
                answers.push(Answer::Change);
                wants.push(want);
                readers.push((i, known, unused));
            }
        }
    }
    let pages = backlog::pages(tx, &store.ids, &wants).await?;
    for (((i, known, unused), want), mut page) in readers.into_iter().zip(wants).zip(pages) {
        page.heads.extend(unused.iter().map(|topic| backlog::unused_head(topic, true)));
        let topics =
            want.sources.into_iter().map(|source| source.topic.topic.clone()).chain(unused).collect();
        let Known { num, user, token_version, revision, kept, .. } = known;
        let revoked = revoked[i];
        let logged_in = LoggedIn { num, user, token_version, revoked, topics, page, revision, as_of, kept };
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

/// The last commit that accepted something, as this transaction sees it.
async fn place(tx: &Tx) -> Result<Place, Failed> {
    Ok(Place(tx.query_one("SELECT last FROM accept_order", &[]).await?.get(0)))
}

/// The devices that exist, by their places in `logins`.
async fn devices(tx: &Tx, logins: &[&Login]) -> Result<HashMap<usize, Known>, Failed> {
    let keys = Keys::of(logins.iter().map(|login| (login.app, &login.device)));
    let values: Values<'_> = &[&keys.apps, &keys.ids];
    let (devices, positions) = tokio::try_join!(tx.query(DEVICES, values), tx.query(POSITIONS, values))?;
    let place_of = |row: &Row| (row.get::<_, i64>(0) - 1) as usize;
    let mut known = HashMap::with_capacity(devices.len());
    for row in &devices {
        let user = row.get::<_, Option<&str>>(2).map(UserId::parse).transpose();
        let found = Known {
            num: DeviceNum(row.get::<_, i64>(1) as u64),
            user: user.map_err(|error| Error::Engine(format!("a stored user: {error}")))?,
            token_version: row.get::<_, i64>(3) as u32,
            revision: row.get::<_, i64>(4) as u64,
            kept: row.get(5),
            positions: Vec::new(),
        };
        known.insert(place_of(row), found);
    }
    for row in &positions {
        if let Some(known) = known.get_mut(&place_of(row)) {
            known.positions.push((row.get(1), row.get::<_, i64>(2) as u64));
        }
    }
    Ok(known)
}

const DEVICES: &str = "SELECT asked.place, d.num, d.\"user\", d.token_version, d.revision, d.kept
    FROM unnest($1::bigint[], $2::text[]) WITH ORDINALITY AS asked (app, id, place)
    JOIN devices d ON d.app = asked.app AND d.id = asked.id";

const POSITIONS: &str = "SELECT asked.place, s.topic, s.position
    FROM unnest($1::bigint[], $2::text[]) WITH ORDINALITY AS asked (app, id, place)
    JOIN devices d ON d.app = asked.app AND d.id = asked.id
    JOIN subscriptions s ON s.device = d.num";

fn decide(login: &Login, known: Option<Known>, revoked: Revocation, topics: &Topics) -> Decision {
    if login.topics.len() + login.session_topics.len() > 2 * limits::TOPICS_PER_DEVICE_MAX {
        return Decision::Refused(LoginRefused::TooManyTopics);
    }
    if login.issued.is_revoked(revoked.latest(), login.now) {
        return Decision::Refused(LoginRefused::Revoked);
    }
    let Some(known) = known else {
        return if !login.create {
            Decision::Refused(LoginRefused::Revoked)
        } else if distinct(&login.topics, &login.session_topics) > limits::TOPICS_PER_DEVICE_MAX {
            Decision::Refused(LoginRefused::TooManyTopics)
        } else {
            Decision::Change
        };
    };
    if login.token_version.is_some_and(|version| version < known.token_version) {
        return Decision::Refused(LoginRefused::Revoked);
    }
    let durable = known.positions.iter().filter_map(|(num, _)| topics.get(num));
    let names: HashSet<&Topic> = durable.map(|row| &row.topic).collect();
    let is_new = |topic: &&Topic| !names.contains(topic) && !topic.is_everyone();
    let named: HashSet<&Topic> = login.topics.iter().chain(&login.session_topics).filter(is_new).collect();
    // $everyone is among the durable ones and does not count.
    if (names.len() + named.len()).saturating_sub(1) > limits::TOPICS_PER_DEVICE_MAX {
        return Decision::Refused(LoginRefused::TooManyTopics);
    }
    let other_user = login.user.is_some() && login.user != known.user;
    if login.create && (other_user || login.topics.iter().any(|topic| is_new(&topic))) {
        return Decision::Change;
    }
    let session: HashSet<&Topic> = login.session_topics.iter().filter(is_new).collect();
    let session = session.into_iter().cloned().collect();
    Decision::Read(known, session)
}

fn distinct(a: &[Topic], b: &[Topic]) -> usize {
    a.iter().chain(b).filter(|topic| !topic.is_everyone()).collect::<HashSet<_>>().len()
}

/// The first page of a log-in, and those of its session topics that nobody ever used.
fn want(
    login: &Login,
    known: &Known,
    session: Vec<Topic>,
    topics: &Topics,
    named: &Named,
) -> (Want, Vec<Topic>) {
    let after = login.resume.map_or(0, ids::place);
    let durable = known.positions.iter().filter_map(|(num, position)| {
        Some(Source { topic: Arc::clone(topics.get(num)?), offset: *position, num: after })
    });
    let mut sources: Vec<Source> = durable.collect();
    let mut unused = Vec::new();
    for topic in session {
        let key = (login.app, topic);
        match named.get(&key) {
            // Without a place to resume from, a session hears a topic from the present on.
            Some(row) => {
                let offset = if login.resume.is_some() { 0 } else { row.head };
                sources.push(Source { topic: Arc::clone(row), offset, num: after });
            }
            None => unused.push(key.1),
        }
    }
    let want = Want { device: Some(known.num), after, sources, retained: Some(after), now: login.now };
    (want, unused)
}

async fn recheck(tx: &Tx, checks: &[Recheck]) -> Result<Vec<Rechecked>, Failed> {
    let devices: Vec<_> = checks.iter().map(|check| check.device.0 as i64).collect();
    let since: Vec<_> = checks.iter().map(|check| check.since.0).collect();
    let sql = "SELECT d.revision,
                   EXISTS (SELECT 1 FROM inbox i WHERE i.device = asked.device AND i.num > asked.since)
               FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY AS asked (device, since, place)
               LEFT JOIN devices d ON d.num = asked.device ORDER BY asked.place";
    let rows = tx.query(sql, &[&devices, &since]).await?;
    let answers = checks.iter().zip(&rows).map(|(check, row)| {
        let revision = row.get::<_, Option<i64>>(0).map(|revision| revision as u64);
        match revision {
            None => Rechecked::Changed,
            Some(revision) if check.revision.is_some_and(|known| known != revision) => Rechecked::Changed,
            Some(_) if row.get(1) => Rechecked::Newer,
            Some(_) => Rechecked::Same,
        }
    });
    Ok(answers.collect())
}

/// The oldest `limit` messages that have not expired, and how many there are in all.
async fn inbox(
    tx: &Tx,
    store: &Postgres,
    app: AppId,
    device: &DeviceId,
    limit: usize,
    now: Timestamp,
) -> Result<(Vec<Arc<Message>>, u64), Failed> {
    let sql = "SELECT num FROM devices WHERE app = $1 AND id = $2";
    let num: i64 =
        tx.query_opt(sql, &[&i64::from(app.0), &device.as_str()]).await?.ok_or(Error::NotFound)?.get(0);
    let want =
        Want { device: Some(DeviceNum(num as u64)), after: 0, sources: Vec::new(), retained: None, now };
    let count = "SELECT count(*) FROM inbox i JOIN notifications n ON n.num = i.num
                 WHERE i.device = $1 AND n.expires_at > $2";
    let now = now.0 as i64;
    let (values, wants): (Values<'_>, _) = (&[&num, &now], [want]);
    let (total, nums) =
        tokio::try_join!(tx.query_one(count, values), backlog::inbox_nums(tx, &wants, limit as i64))?;
    let nums = nums.concat();
    let messages = backlog::messages(tx, &store.ids, &nums).await?;
    Ok((nums.iter().filter_map(|num| messages.get(num).cloned()).collect(), total.get::<_, i64>(0) as u64))
}
