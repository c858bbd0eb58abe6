//! Reading what devices have not acknowledged: inbox rows and stored topic messages, merged by id.
//!
//! All functions read for many devices at once, with a few statements in one consistent transaction: first the
//! numbers of each page's messages, then each message once, shared by all pages. Ids of a topic increase with its
//! offsets, so inbox and logs merge by number.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use noroshi_types::{AppId, DeviceNum, Message, Timestamp, Topic, When};
use tokio_postgres::Row;

use super::transaction::{Failed, Tx, Values};
use crate::engine::backlog::{PAGE, TOPIC_COLUMNS, TopicRow, starts, unused_page};
use crate::engine::notification::{Standing, message_of_row};
use crate::engine::record::Record;
use crate::engine::topic::TopicNum;
use crate::ids::Num;
use crate::{Backlog, BacklogPage, Outstanding, Recover};

/// One more row than a page has shows that there is more.
const PAGE_AND_ONE: i64 = PAGE as i64 + 1;

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
    let rows = tx.query(&sql, &[&nums]).await?;
    rows.iter().map(|row| Ok((row.int(0)?, Arc::new(TopicRow::of_row(row)?)))).collect()
}

/// Topics by their names, without those that have no row.
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
        let topic = Arc::new(TopicRow::of_row(row)?);
        Ok(((row.app(9)?, topic.topic.clone()), topic))
    });
    keyed.collect()
}

/// A topic to read from a place: its messages with both a greater offset and a greater number.
#[derive(Debug)]
pub(super) struct Source {
    pub topic: Arc<TopicRow>,
    pub offset: u64,
    pub num: Num,
}

/// Asks for a page.
#[derive(Debug)]
pub(super) struct PageRequest {
    /// The inbox to read, after `after`.
    pub device: Option<DeviceNum>,
    pub after: Num,
    pub sources: Vec<Source>,
    /// Also return retained messages of the sources with numbers greater than this.
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

/// Pages in order: inbox and logs with a head for every source, and retained messages that are not among the
/// messages.
pub(super) async fn pages(tx: &Tx, requests: &[PageRequest]) -> Result<Vec<BacklogPage>, Failed> {
    let (inboxes, logs) = tokio::try_join!(inbox_nums(tx, requests, PAGE_AND_ONE), logs(tx, requests))?;
    let (mut pages, mut chosen) = (Vec::with_capacity(requests.len()), HashSet::new());
    for ((request, inbox), mut found) in requests.iter().zip(inboxes).zip(logs) {
        found.nums.extend(inbox);
        found.nums.sort_unstable();
        let more = found.nums.len() > PAGE;
        found.nums.truncate(PAGE);
        let heads = request.sources.iter().zip(&found.complete);
        let heads = heads.map(|(source, complete)| source.topic.head(*complete)).collect();
        let retained = request.retained.map_or_else(Vec::new, |after| {
            let all = request.sources.iter().filter_map(|source| source.topic.retained(after, request.now));
            let mut rest: Vec<_> = all.filter(|num| found.nums.binary_search(num).is_err()).collect();
            rest.sort_unstable();
            rest
        });
        chosen.extend(found.nums.iter().chain(&retained));
        pages.push((found.nums, retained, BacklogPage { heads, more, ..BacklogPage::default() }));
    }
    let chosen: Vec<_> = chosen.into_iter().collect();
    let messages = messages(tx, &chosen).await?;
    let of = |nums: Vec<Num>| nums.iter().filter_map(|num| messages.get(num).cloned()).collect();
    let filled = pages.into_iter().map(|(nums, retained, page)| BacklogPage {
        messages: of(nums),
        retained: of(retained),
        ..page
    });
    Ok(filled.collect())
}

/// The oldest inbox rows of each page that have not expired.
pub(super) async fn inbox_nums(
    tx: &Tx,
    requests: &[PageRequest],
    limit: i64,
) -> Result<Vec<Vec<Num>>, Failed> {
    let mut found = vec![Vec::new(); requests.len()];
    let asked = (0..).zip(requests).filter_map(|(place, request): (i64, _)| {
        Some((place, request.device?.0 as i64, request.after, request.now.0 as i64))
    });
    let (places, devices, afters, times): (Vec<_>, Vec<_>, Vec<_>, Vec<_>) = asked.collect();
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

/// A source with unread messages after `offset`.
struct Reading {
    request: usize,
    source: usize,
    offset: i64,
    /// Found so far.
    live: usize,
}

/// The oldest log rows of each page, and whether each log still has all messages that were stored after the place.
async fn logs(tx: &Tx, requests: &[PageRequest]) -> Result<Vec<Found>, Failed> {
    let mut found: Vec<Found> = requests.iter().map(|_| Found::default()).collect();
    let (mut by_offset, mut by_num) = (Vec::new(), Vec::new());
    for (request, asked) in requests.iter().enumerate() {
        for (source, Source { topic, offset, num }) in asked.sources.iter().enumerate() {
            found[request].complete.push(topic.is_complete_after(*offset, *num));
            if topic.stored > *offset {
                let reading = Reading { request, source, offset: *offset as i64, live: 0 };
                // Both bounds always hold; the query uses the index of the more selective one.
                if *num == 0 { by_offset.push(reading) } else { by_num.push(reading) }
            }
        }
    }
    // Only messages that expired before they were pruned lead to another round.
    while !by_offset.is_empty() || !by_num.is_empty() {
        let (first, second) = tokio::try_join!(
            read_logs(tx, BY_OFFSET, requests, &by_offset),
            read_logs(tx, BY_NUM, requests, &by_num)
        )?;
        by_offset = add_rows(requests, by_offset, &first, &mut found);
        by_num = add_rows(requests, by_num, &second, &mut found);
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

async fn read_logs(
    tx: &Tx,
    sql: &str,
    requests: &[PageRequest],
    readings: &[Reading],
) -> Result<Vec<Row>, Failed> {
    if readings.is_empty() {
        return Ok(Vec::new());
    }
    let asked = (0..).zip(readings).map(|(place, reading): (i64, _)| {
        let source = &requests[reading.request].sources[reading.source];
        (place, source.topic.num, reading.offset, source.num)
    });
    let (places, topics, offsets, nums): (Vec<_>, Vec<_>, Vec<_>, Vec<_>) = asked.collect();
    tx.query(sql, &[&places, &topics, &offsets, &nums, &PAGE_AND_ONE]).await
}

/// Adds rows to the results. Returns the readings that need another round.
fn add_rows(
    requests: &[PageRequest],
    readings: Vec<Reading>,
    rows: &[Row],
    found: &mut [Found],
) -> Vec<Reading> {
    let mut rows = rows.iter().peekable();
    let mut unfinished = Vec::new();
    for (place, mut reading) in readings.into_iter().enumerate() {
        let (now, found) = (requests[reading.request].now.0 as i64, &mut found[reading.request]);
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

/// Columns of `notifications n` and its topic `t`, which may have been removed, for [`message_of_row`].
pub(super) const MESSAGE_COLUMNS: &str = "n.num, n.app, n.delivery, n.urgency, n.notification, n.data, n.created_at, \
     n.expires_at, n.topic_offset, coalesce(t.name, n.target_text), coalesce(t.epoch, 0), coalesce(n.push::json ->> 'mode' = 'fallback', false), \
     coalesce(n.push::json ->> 'waits' = 'use', false), n.push::json ->> 'category', \
     coalesce(n.push::json ->> 'essential' = '1', false)";

/// The messages of notifications that still exist.
pub(super) async fn messages(tx: &Tx, nums: &[Num]) -> Result<HashMap<Num, Arc<Message>>, Failed> {
    if nums.is_empty() {
        return Ok(HashMap::new());
    }
    let sql = format!(
        "SELECT {MESSAGE_COLUMNS} FROM notifications n LEFT JOIN topics t ON t.num = n.topic WHERE n.num = ANY($1)"
    );
    let rows = tx.query(&sql, &[&nums]).await?;
    rows.iter().map(|row| Ok((row.int(0)?, Arc::new(message_of_row(row, 0, tx.ids())?)))).collect()
}

/// The messages of those notifications that still exist, in the order of the numbers.
pub(super) async fn messages_in_order(tx: &Tx, nums: &[Num]) -> Result<Vec<Arc<Message>>, Failed> {
    let found = messages(tx, nums).await?;
    Ok(nums.iter().filter_map(|num| found.get(num).cloned()).collect())
}

/// See [`Outstanding`].
pub(crate) async fn outstanding(tx: &Tx, asked: &Outstanding) -> Result<Vec<Arc<Message>>, Failed> {
    let named: Vec<Num> = asked.ids.iter().filter_map(|id| tx.ids().num(*id)).collect();
    let sql =
        "SELECT n.num FROM notifications n WHERE n.num = ANY($1) AND n.app = $2 AND n.expires_at > $3 AND (
                   EXISTS (SELECT 1 FROM inbox i WHERE i.device = $4 AND i.num = n.num)
                   OR n.topic IS NOT NULL AND n.standing = $5 AND n.delivery = $6
                   OR EXISTS (SELECT 1 FROM topics t WHERE t.num = n.topic AND t.retained = n.num))";
    let (app, now, device) = (i64::from(asked.app.0), asked.now.0 as i64, asked.device.0 as i64);
    let (kept, stored) = (Standing::Kept as i64, When::Stored as i64);
    let rows = tx.query(sql, &[&named, &app, &now, &device, &kept, &stored]).await?;
    let there: Vec<Num> = rows.iter().map(|row| row.get(0)).collect();
    let mut found = messages(tx, &there).await?;
    Ok(named.iter().filter_map(|num| found.remove(num)).collect())
}

/// The next page: see [`Backlog`].
pub(crate) async fn next_page(tx: &Tx, asked: &Backlog) -> Result<BacklogPage, Failed> {
    let (after, session_after) = starts(asked);
    let app = i64::from(asked.app.0);
    let device = asked.device.0 as i64;
    let sql = "SELECT s.topic, s.position FROM devices d JOIN subscriptions s ON s.device = d.num
               WHERE d.num = $1 AND d.app = $2";
    let names = asked.session_topics.iter().map(|topic| (asked.app, topic)).collect();
    let values: Values<'_> = &[&device, &app];
    let (rows, named) = tokio::try_join!(tx.query(sql, values), topics_named(tx, names))?;
    // Every device subscribes to `$everyone`: without a row there is no device.
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
    let request = PageRequest { device: Some(asked.device), after, sources, retained: None, now: asked.now };
    Ok(pages(tx, &[request]).await?.pop().unwrap_or_default())
}

/// The stored messages of a topic since a position: see [`Recover`].
pub(crate) async fn recover(tx: &Tx, asked: &Recover) -> Result<BacklogPage, Failed> {
    let found = topics_named(tx, HashSet::from([(asked.app, &asked.topic)])).await?.into_values().next();
    let Some(topic) = found else { return Ok(unused_page(asked)) };
    let (offset, known) = topic.recovers_from(asked.since);
    let sources = vec![Source { topic, offset, num: 0 }];
    let retained = asked.retained.then_some(0);
    let request = PageRequest { device: None, after: 0, sources, retained, now: asked.now };
    let mut page = pages(tx, &[request]).await?.pop().unwrap_or_default();
    page.heads.iter_mut().for_each(|head| head.complete &= known);
    Ok(page)
}
