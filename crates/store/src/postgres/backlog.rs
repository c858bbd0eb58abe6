//! Reading what devices have not confirmed: inbox rows and stored topic messages, merged by id.
//!
//! Everything here is for many devices at once: a few statements in one transaction that sees one state, however
//! many ask. First the numbers of what belongs on each page, then each message of those once, which all pages
//! share. Ids of a topic increase with its offsets, so inbox and logs merge by number alone.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use noroshi_types::{
    AppId, DeviceNum, Epoch, JsonText, Message, Position, Timestamp, Topic, TopicPosition, Urgency, When,
    limits,
};
use tokio_postgres::Row;

use super::topic::TopicNum;
use super::transaction::{Failed, Tx, Values};
use crate::ids::{self, Ids, Num};
use crate::row::Standing;
use crate::{Backlog, BacklogPage, Error, Head, Outstanding, Recover};

const PAGE: usize = limits::BACKLOG_PAGE;
/// One more tells that there is more.
const PAGE_AND_ONE: i64 = PAGE as i64 + 1;

/// A topic's row.
#[derive(Debug, Clone)]
pub(super) struct TopicRow {
    pub num: TopicNum,
    pub topic: Topic,
    epoch: Epoch,
    /// The last offset given out.
    pub head: u64,
    /// The last offset that got a row in the log.
    stored: u64,
    trimmed_offset: u64,
    trimmed_num: Num,
    retained: Option<Num>,
    retained_expires_at: Timestamp,
}

/// Of `topics t`.
const TOPIC_COLUMNS: &str = "t.num, t.name, t.epoch, t.head, t.stored, t.trimmed_offset, t.trimmed_num, t.retained, \
     coalesce(t.retained_expires_at, 0)";

fn topic_of(row: &Row) -> Arc<TopicRow> {
    Arc::new(TopicRow {
        num: row.get(0),
        topic: Topic::from_trusted(row.get(1)),
        epoch: Epoch(row.get::<_, i64>(2) as u32),
        head: row.get::<_, i64>(3) as u64,
        stored: row.get::<_, i64>(4) as u64,
        trimmed_offset: row.get::<_, i64>(5) as u64,
        trimmed_num: row.get(6),
        retained: row.get(7),
        retained_expires_at: Timestamp(row.get::<_, i64>(8) as u64),
    })
}

impl TopicRow {
    pub(super) fn head(&self, complete: bool) -> Head {
        let position = Position { epoch: self.epoch, offset: self.head };
        Head { topic: self.topic.clone(), position, complete }
    }

    fn retained(&self, after: Num, now: Timestamp) -> Option<Num> {
        self.retained.filter(|num| *num > after && self.retained_expires_at > now)
    }
}

/// The head of a topic that nobody ever used.
pub(super) fn unused_head(topic: &Topic, complete: bool) -> Head {
    Head { topic: topic.clone(), position: Position { epoch: Epoch(0), offset: 0 }, complete }
}

/// Topics by their numbers.
pub(super) async fn topics(
    tx: &Tx,
    nums: HashSet<TopicNum>,
) -> Result<HashMap<TopicNum, Arc<TopicRow>>, Failed> {
    let nums: Vec<_> = nums.into_iter().collect();
    if nums.is_empty() {
        return Ok(HashMap::new());
    }
    let sql = format!("SELECT {TOPIC_COLUMNS} FROM topics t WHERE t.num = ANY($1)");
    Ok(tx.query(&sql, &[&nums]).await?.iter().map(|row| (row.get(0), topic_of(row))).collect())
}

/// Topics by their names; those that nobody ever used are missing.
pub(super) async fn topics_named(
    tx: &Tx,
    names: HashSet<(AppId, &Topic)>,
) -> Result<HashMap<(AppId, Topic), Arc<TopicRow>>, Failed> {
    if names.is_empty() {
        return Ok(HashMap::new());
    }
    let (apps, names): (Vec<_>, Vec<_>) =
        names.into_iter().map(|(app, topic)| (i64::from(app.0), topic.as_str())).unzip();
    let sql = format!(
        "SELECT {TOPIC_COLUMNS}, t.app FROM unnest($1::bigint[], $2::text[]) AS asked (app, name)
         JOIN topics t ON t.app = asked.app AND t.name = asked.name"
    );
    let rows = tx.query(&sql, &[&apps, &names]).await?;
    let keyed = rows.iter().map(|row| {
        let topic = topic_of(row);
        ((AppId(row.get::<_, i64>(9) as u32), topic.topic.clone()), topic)
    });
    Ok(keyed.collect())
}

/// A topic to read behind a place: messages count whose offset and number are both greater.
#[derive(Debug)]
pub(super) struct Source {
    pub topic: Arc<TopicRow>,
    pub offset: u64,
    pub num: Num,
}

/// A page that is asked for.
#[derive(Debug)]
pub(super) struct Want {
    /// Whose inbox is read, behind `after`.
    pub device: Option<DeviceNum>,
    pub after: Num,
    pub sources: Vec<Source>,
    /// Retained messages of the sources are wanted too, those behind this place.
    pub retained: Option<Num>,
    pub now: Timestamp,
}

/// What was found for a page.
#[derive(Default)]
struct Found {
    nums: Vec<Num>,
    /// One for each source.
    complete: Vec<bool>,
}

/// Pages in order: inbox and logs with a head for every source, and retained messages that are not among the rest.
pub(super) async fn pages(tx: &Tx, ids: &Ids, wants: &[Want]) -> Result<Vec<BacklogPage>, Failed> {
    let (inboxes, logs) = tokio::try_join!(inbox_nums(tx, wants, PAGE_AND_ONE), logs(tx, wants))?;
    let (mut pages, mut chosen) = (Vec::with_capacity(wants.len()), HashSet::new());
    for ((want, inbox), mut found) in wants.iter().zip(inboxes).zip(logs) {
        found.nums.extend(inbox);
        found.nums.sort_unstable();
        let more = found.nums.len() > PAGE;
        found.nums.truncate(PAGE);
        let heads = want.sources.iter().zip(&found.complete);
        let heads = heads.map(|(source, complete)| source.topic.head(*complete)).collect();
        let retained = want.retained.map_or_else(Vec::new, |after| {
            let all = want.sources.iter().filter_map(|source| source.topic.retained(after, want.now));
            let mut rest: Vec<_> = all.filter(|num| found.nums.binary_search(num).is_err()).collect();
            rest.sort_unstable();
            rest
        });
        chosen.extend(found.nums.iter().chain(&retained));
        pages.push((found.nums, retained, BacklogPage { heads, more, ..BacklogPage::default() }));
    }
    let chosen: Vec<_> = chosen.into_iter().collect();
    let messages = messages(tx, ids, &chosen).await?;
    let of = |nums: Vec<Num>| nums.iter().filter_map(|num| messages.get(num).cloned()).collect();
    let filled = pages.into_iter().map(|(nums, retained, page)| BacklogPage {
        messages: of(nums),
        retained: of(retained),
        ..page
    });
    Ok(filled.collect())
}

/// For each page the oldest of the inbox that have not expired.
pub(super) async fn inbox_nums(tx: &Tx, wants: &[Want], limit: i64) -> Result<Vec<Vec<Num>>, Failed> {
    let mut found = vec![Vec::new(); wants.len()];
    let (mut places, mut devices) = (Vec::new(), Vec::new());
    let (mut afters, mut times) = (Vec::new(), Vec::new());
    for (i, want) in wants.iter().enumerate() {
        let Some(device) = want.device else { continue };
        places.push(i as i64);
        devices.push(device.0 as i64);
        afters.push(want.after);
        times.push(want.now.0 as i64);
    }
    if devices.is_empty() {
        return Ok(found);
    }
    let sql = "SELECT asked.place, rows.num
        FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) AS asked (place, device, after, now)
        CROSS JOIN LATERAL (
            SELECT i.num FROM inbox i JOIN notifications n ON n.num = i.num
            WHERE i.device = asked.device AND i.num > asked.after AND n.expires_at > asked.now
            ORDER BY i.num LIMIT $5) AS rows";
    for row in tx.query(sql, &[&places, &devices, &afters, &times, &limit]).await? {
        if let Some(found) = found.get_mut(row.get::<_, i64>(0) as usize) {
            found.push(row.get(1));
        }
    }
    Ok(found)
}

/// A source that is still to be read, behind `offset`.
struct Reading {
    want: usize,
    source: usize,
    offset: i64,
    /// Found so far.
    live: usize,
}

/// For each page the oldest of its logs, and which of them are complete: whether all that was stored behind the
/// place is still there.
async fn logs(tx: &Tx, wants: &[Want]) -> Result<Vec<Found>, Failed> {
    let mut found: Vec<Found> = wants.iter().map(|_| Found::default()).collect();
    let (mut by_offset, mut by_num) = (Vec::new(), Vec::new());
    for (want, asked) in wants.iter().enumerate() {
        for (source, Source { topic, offset, num }) in asked.sources.iter().enumerate() {
            found[want].complete.push(topic.trimmed_offset <= *offset || topic.trimmed_num <= *num);
            if topic.stored > *offset {
                let reading = Reading { want, source, offset: *offset as i64, live: 0 };
                // Both bounds hold for what is read; the index is chosen for the one that tells more.
                if *num == 0 { by_offset.push(reading) } else { by_num.push(reading) }
            }
        }
    }
    // Only what expired before it was pruned makes a second round.
    while !by_offset.is_empty() || !by_num.is_empty() {
        let (first, second) = tokio::try_join!(
            read_logs(tx, BY_OFFSET, wants, &by_offset),
            read_logs(tx, BY_NUM, wants, &by_num)
        )?;
        by_offset = take_in(wants, by_offset, &first, &mut found);
        by_num = take_in(wants, by_num, &second, &mut found);
    }
    Ok(found)
}

const BY_OFFSET: &str = "SELECT asked.place, log.num, log.topic_offset, n.expires_at
    FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) AS asked (place, topic, behind, after)
    CROSS JOIN LATERAL (
        SELECT l.num, l.topic_offset FROM topic_log l
        WHERE l.topic = asked.topic AND l.topic_offset > asked.behind AND l.num > asked.after
        ORDER BY l.topic_offset LIMIT $5) AS log
    LEFT JOIN notifications n ON n.num = log.num ORDER BY asked.place, log.num";

const BY_NUM: &str = "SELECT asked.place, log.num, log.topic_offset, n.expires_at
    FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) AS asked (place, topic, behind, after)
    CROSS JOIN LATERAL (
        SELECT l.num, l.topic_offset FROM topic_log l
        WHERE l.topic = asked.topic AND l.topic_offset + 0 > asked.behind AND l.num > asked.after
        ORDER BY l.num LIMIT $5) AS log
    LEFT JOIN notifications n ON n.num = log.num ORDER BY asked.place, log.num";

async fn read_logs(tx: &Tx, sql: &str, wants: &[Want], readings: &[Reading]) -> Result<Vec<Row>, Failed> {
    if readings.is_empty() {
        return Ok(Vec::new());
    }
    let places: Vec<_> = (0..readings.len() as i64).collect();
    let (mut topics, mut offsets, mut nums) = (Vec::new(), Vec::new(), Vec::new());
    for reading in readings {
        let source = &wants[reading.want].sources[reading.source];
        topics.push(source.topic.num);
        offsets.push(reading.offset);
        nums.push(source.num);
    }
    tx.query(sql, &[&places, &topics, &offsets, &nums, &PAGE_AND_ONE]).await
}

/// Those that are to be read further.
fn take_in(wants: &[Want], readings: Vec<Reading>, rows: &[Row], found: &mut [Found]) -> Vec<Reading> {
    let mut rows = rows.iter().peekable();
    let mut unfinished = Vec::new();
    for (place, mut reading) in readings.into_iter().enumerate() {
        let (now, found) = (wants[reading.want].now.0 as i64, &mut found[reading.want]);
        let mut read = 0;
        while let Some(row) = rows.next_if(|row| row.get::<_, i64>(0) == place as i64) {
            read += 1;
            reading.offset = row.get(2);
            if reading.live > PAGE {
                continue;
            }
            match row.get::<_, Option<i64>>(3) {
                Some(expires_at) if expires_at > now => {
                    found.nums.push(row.get(1));
                    reading.live += 1;
                }
                _ => found.complete[reading.source] = false,
            }
        }
        if read == PAGE_AND_ONE && reading.live <= PAGE {
            unfinished.push(reading);
        }
    }
    unfinished
}

/// Of `notifications n` and its topic `t`.
pub(super) const MESSAGE_COLUMNS: &str = "n.num, n.app, n.delivery, n.urgency, n.notification, n.data, n.created_at, \
     n.expires_at, n.topic_offset, t.name, t.epoch, coalesce(n.push::json ->> 'mode' = 'fallback', false), \
     coalesce(n.push::json ->> 'waits' = 'use', false)";

pub(super) fn message_of(row: &Row, ids: &Ids) -> Result<Message, Error> {
    message_from(row, 0, ids)
}

/// Of [`MESSAGE_COLUMNS`] from column `first` on.
pub(super) fn message_from(row: &Row, first: usize, ids: &Ids) -> Result<Message, Error> {
    let unknown = |what: &str| Error::Engine(format!("a stored {what} is not known to this program"));
    let text = |column| row.get::<_, Option<String>>(first + column).map(JsonText::from_valid);
    let topic = row.get::<_, Option<&str>>(first + 9).map(Topic::from_trusted);
    let place = row.get::<_, Option<i64>>(first + 8).zip(row.get::<_, Option<i64>>(first + 10));
    let position = |(offset, epoch)| Position { epoch: Epoch(epoch as u32), offset: offset as u64 };
    Ok(Message {
        id: ids.id(row.get(first)),
        app: AppId(row.get::<_, i64>(first + 1) as u32),
        when: When::from_code(row.get::<_, i64>(first + 2) as u8).ok_or_else(|| unknown("delivery"))?,
        urgency: Urgency::from_code(row.get::<_, i64>(first + 3) as u8).ok_or_else(|| unknown("urgency"))?,
        topic: topic.zip(place.map(position)).map(|(topic, position)| TopicPosition { topic, position }),
        notification: text(4),
        data: text(5),
        sent_at: Timestamp(row.get::<_, i64>(first + 6) as u64),
        expires_at: Timestamp(row.get::<_, i64>(first + 7) as u64),
        push_waits: row.get(first + 11),
        waits_for_use: row.get(first + 12),
    })
}

/// The messages of notifications that are still known.
pub(super) async fn messages(tx: &Tx, ids: &Ids, nums: &[Num]) -> Result<HashMap<Num, Arc<Message>>, Failed> {
    if nums.is_empty() {
        return Ok(HashMap::new());
    }
    let sql = format!(
        "SELECT {MESSAGE_COLUMNS} FROM notifications n LEFT JOIN topics t ON t.num = n.topic WHERE n.num = ANY($1)"
    );
    let rows = tx.query(&sql, &[&nums]).await?;
    rows.iter().map(|row| Ok((row.get(0), Arc::new(message_of(row, ids)?)))).collect()
}

/// See [`Outstanding`].
pub(super) async fn outstanding(
    tx: &Tx,
    ids: &Ids,
    asked: &Outstanding,
) -> Result<Vec<Arc<Message>>, Failed> {
    let named: Vec<Num> = asked.ids.iter().filter_map(|id| ids.num(*id)).collect();
    let sql =
        "SELECT n.num FROM notifications n WHERE n.num = ANY($1) AND n.app = $2 AND n.expires_at > $3 AND (
                   EXISTS (SELECT 1 FROM inbox i WHERE i.device = $4 AND i.num = n.num)
                   OR n.topic IS NOT NULL AND n.standing = $5 AND n.delivery = $6
                   OR EXISTS (SELECT 1 FROM topics t WHERE t.num = n.topic AND t.retained = n.num))";
    let (app, now, device) = (i64::from(asked.app.0), asked.now.0 as i64, asked.device.0 as i64);
    let (kept, stored) = (Standing::Kept as i64, When::Stored as i64);
    let rows = tx.query(sql, &[&named, &app, &now, &device, &kept, &stored]).await?;
    let there: Vec<Num> = rows.iter().map(|row| row.get(0)).collect();
    let mut found = messages(tx, ids, &there).await?;
    Ok(named.iter().filter_map(|num| found.remove(num)).collect())
}

/// A later page: see [`Backlog`].
pub(super) async fn next_page(tx: &Tx, ids: &Ids, asked: &Backlog) -> Result<BacklogPage, Failed> {
    let after = asked.after.map_or(0, ids::place);
    let session_after = asked.session_since.map_or(after, |since| ids::place(since).max(after));
    let app = i64::from(asked.app.0);
    let device = asked.device.0 as i64;
    let sql = "SELECT s.topic, s.position FROM devices d JOIN subscriptions s ON s.device = d.num
               WHERE d.num = $1 AND d.app = $2";
    let names = asked.session_topics.iter().map(|topic| (asked.app, topic)).collect();
    let values: Values<'_> = &[&device, &app];
    let (rows, named) = tokio::try_join!(tx.query(sql, values), topics_named(tx, names))?;
    // Every device subscribes to $everyone: without a row there is no device.
    if rows.is_empty() {
        return Ok(BacklogPage::default());
    }
    let known = topics(tx, rows.iter().map(|row| row.get(0)).collect()).await?;
    let mut sources = Vec::with_capacity(rows.len() + named.len());
    for row in &rows {
        let Some(topic) = known.get(&row.get(0)) else { continue };
        sources.push(Source { topic: Arc::clone(topic), offset: row.get::<_, i64>(1) as u64, num: after });
    }
    let session = named.into_values().filter(|topic| !known.contains_key(&topic.num));
    sources.extend(session.map(|topic| Source { topic, offset: 0, num: session_after }));
    let want = Want { device: Some(asked.device), after, sources, retained: None, now: asked.now };
    Ok(pages(tx, ids, &[want]).await?.pop().unwrap_or_default())
}

/// The stored messages of a topic since a position: see [`Recover`].
pub(super) async fn recover(tx: &Tx, ids: &Ids, asked: &Recover) -> Result<BacklogPage, Failed> {
    let found = topics_named(tx, HashSet::from([(asked.app, &asked.topic)])).await?.into_values().next();
    let Some(topic) = found else {
        // A client that knows a position knows a log that is no more.
        let complete = asked.since.is_none_or(|since| since.epoch == Epoch(0));
        let heads = vec![unused_head(&asked.topic, complete)];
        return Ok(BacklogPage { heads, ..BacklogPage::default() });
    };
    let before_all = Position { epoch: Epoch(0), offset: 0 };
    // An offset that was never given out is of another log, whatever its epoch says. Without one nothing is behind
    // the place asked for: the present.
    let known = asked.since.is_none_or(|since| {
        since == before_all || (since.epoch == topic.epoch && since.offset <= topic.head)
    });
    let offset = match asked.since {
        None => topic.head,
        Some(since) if known => since.offset,
        Some(_) => 0,
    };
    let sources = vec![Source { topic, offset, num: 0 }];
    let retained = asked.retained.then_some(0);
    let want = Want { device: None, after: 0, sources, retained, now: asked.now };
    let mut page = pages(tx, ids, &[want]).await?.pop().unwrap_or_default();
    page.heads.iter_mut().for_each(|head| head.complete &= known);
    Ok(page)
}
