//! Reading what devices have not acknowledged: inbox rows and stored topic messages, merged by id.
//!
//! A [`Reading`] is one consistent read for a device or a batch of log-ins. It caches topics and messages, so that
//! what a batch shares (the topic `$everyone`, a message that all devices missed) is read once. Ids of a topic
//! increase with its offsets, so inbox and logs merge by id.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::rc::Rc;
use std::sync::Arc;

use noroshi_types::{AppId, DeviceNum, Message, Timestamp, Topic, When};
use rusqlite::CachedStatement;

use super::notification;
use super::reader::Read;
use super::statement::Db;
use crate::engine::backlog::{PAGE, TOPIC_COLUMNS, TopicRow, starts, unused_page};
use crate::engine::notification::Standing;
use crate::engine::record::Record;
use crate::engine::topic::TopicNum;
use crate::ids::{Ids, Num};
use crate::{Backlog, BacklogPage, Error, Outstanding, Recover};

/// A topic to read from a place: its messages with both a greater offset and a greater number.
pub(super) struct Source {
    pub topic: Rc<TopicRow>,
    pub offset: u64,
    pub num: Num,
}

pub(super) struct Reading<'c> {
    db: &'c Db,
    ids: &'c Ids,
    topics: HashMap<TopicNum, Rc<TopicRow>>,
    names: HashMap<(AppId, Topic), Option<TopicNum>>,
    messages: HashMap<Num, Option<Arc<Message>>>,
    /// Taken from the connection's cache once for a batch.
    subscriptions: Option<CachedStatement<'c>>,
}

impl<'c> Reading<'c> {
    pub(super) fn new(Read { db, ids }: Read<'c>) -> Self {
        let (topics, names, messages) = (HashMap::new(), HashMap::new(), HashMap::new());
        Self { db, ids, topics, names, messages, subscriptions: None }
    }

    pub(super) fn topic(&mut self, num: TopicNum) -> Result<Rc<TopicRow>, Error> {
        let vacant = match self.topics.entry(num) {
            Entry::Occupied(known) => return Ok(Rc::clone(known.get())),
            Entry::Vacant(vacant) => vacant,
        };
        let sql = format!("SELECT {TOPIC_COLUMNS} FROM topics t WHERE t.num = ?1");
        let topic = self.db.first(&sql, (num,), |row| TopicRow::of_row(row))?.ok_or(Error::NotFound)?;
        Ok(Rc::clone(vacant.insert(Rc::new(topic))))
    }

    /// `None` if the topic has no row.
    pub(super) fn topic_named(&mut self, app: AppId, topic: &Topic) -> Result<Option<Rc<TopicRow>>, Error> {
        let num = match self.names.entry((app, topic.clone())) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(vacant) => {
                let sql = "SELECT num FROM topics WHERE app = ?1 AND name = ?2";
                *vacant.insert(self.db.first(sql, (app.0, topic.as_str()), |row| row.int(0))?)
            }
        };
        num.map(|num| self.topic(num)).transpose()
    }

    pub(super) fn message(&mut self, num: Num) -> Result<Option<Arc<Message>>, Error> {
        match self.messages.entry(num) {
            Entry::Occupied(known) => Ok(known.get().clone()),
            Entry::Vacant(vacant) => {
                Ok(vacant.insert(notification::message(self.db, self.ids, num)?).clone())
            }
        }
    }

    /// The topic's retained message, if its number is greater than `after` and it has not expired.
    pub(super) fn retained(
        &mut self,
        topic: &TopicRow,
        after: Num,
        now: Timestamp,
    ) -> Result<Option<Arc<Message>>, Error> {
        match topic.retained(after, now) {
            Some(num) => self.message(num),
            None => Ok(None),
        }
    }

    /// The topics that a device durably subscribes to, `$everyone` among them, each read after the device's position.
    pub(super) fn subscriptions(&mut self, device: DeviceNum) -> Result<Vec<Source>, Error> {
        let mut statement = match self.subscriptions.take() {
            Some(statement) => statement,
            None => self.db.prepare_cached("SELECT topic, position FROM subscriptions WHERE device = ?1")?,
        };
        let mut rows = statement.query((device.0 as i64,))?;
        let mut sources = Vec::new();
        while let Some(row) = rows.next()? {
            sources.push(Source { topic: self.topic(row.int(0)?)?, offset: row.count(1)?, num: 0 });
        }
        drop(rows);
        self.subscriptions = Some(statement);
        Ok(sources)
    }

    /// The first messages of an inbox after `after` that have not expired, by number in this order.
    pub(super) fn inbox(
        &mut self,
        device: DeviceNum,
        after: Num,
        order: &str,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<Arc<Message>>, Error> {
        let sql = match order {
            "ASC" => "SELECT num FROM inbox WHERE device = ?1 AND num > ?2 ORDER BY num",
            _ => "SELECT num FROM inbox WHERE device = ?1 AND num > ?2 ORDER BY num DESC",
        };
        let mut statement = self.db.prepare_cached(sql)?;
        let mut rows = statement.query((device.0 as i64, after))?;
        let mut messages = Vec::new();
        while messages.len() < limit
            && let Some(row) = rows.next()?
        {
            messages.extend(self.message(row.int(0)?)?.filter(|message| message.expires_at > now));
        }
        Ok(messages)
    }

    /// Adds the oldest messages of a log after the source's place. Returns false if messages after it have left the
    /// log.
    fn log_after(
        &mut self,
        source: &Source,
        now: Timestamp,
        messages: &mut Vec<Arc<Message>>,
    ) -> Result<bool, Error> {
        let topic = &*source.topic;
        let mut complete = topic.is_complete_after(source.offset, source.num);
        if topic.stored <= source.offset {
            return Ok(complete);
        }
        // Both bounds always hold; the query uses the index of the more selective one.
        let mut statement = self.db.prepare_cached(match source.num {
            0 => "SELECT num FROM topic_log WHERE topic = ?1 AND topic_offset > ?2 AND num > ?3 ORDER BY topic_offset",
            _ => "SELECT num FROM topic_log WHERE topic = ?1 AND +topic_offset > ?2 AND num > ?3 ORDER BY num",
        })?;
        let mut rows = statement.query((topic.num, source.offset as i64, source.num))?;
        let mut found = 0;
        while found <= PAGE
            && let Some(row) = rows.next()?
        {
            match self.message(row.get(0)?)? {
                Some(message) if message.expires_at > now => {
                    messages.push(message);
                    found += 1;
                }
                _ => complete = false,
            }
        }
        Ok(complete)
    }

    /// A page of an inbox and logs, with a head for every source.
    pub(super) fn page(
        &mut self,
        device: Option<DeviceNum>,
        after: Num,
        sources: &[Source],
        now: Timestamp,
    ) -> Result<BacklogPage, Error> {
        let mut messages = match device {
            Some(device) => self.inbox(device, after, "ASC", PAGE + 1, now)?,
            None => Vec::new(),
        };
        let mut heads = Vec::with_capacity(sources.len());
        for source in sources {
            let complete = self.log_after(source, now, &mut messages)?;
            heads.push(source.topic.head(complete));
        }
        messages.sort_unstable_by_key(|message| message.id);
        let more = messages.len() > PAGE;
        messages.truncate(PAGE);
        Ok(BacklogPage { retained: Vec::new(), messages, heads, more })
    }

    /// Adds the retained messages of `topics` after `after` that the page does not have.
    pub(super) fn add_retained<'t>(
        &mut self,
        page: &mut BacklogPage,
        topics: impl Iterator<Item = &'t Rc<TopicRow>>,
        after: Num,
        now: Timestamp,
    ) -> Result<(), Error> {
        for topic in topics {
            if let Some(message) = self.retained(topic, after, now)?
                && page.messages.binary_search_by_key(&message.id, |known| known.id).is_err()
            {
                page.retained.push(message);
            }
        }
        page.retained.sort_unstable_by_key(|message| message.id);
        Ok(())
    }
}

/// The next page: see [`Backlog`].
pub(crate) fn next_page(read: Read<'_>, asked: &Backlog) -> Result<BacklogPage, Error> {
    let mut reading = Reading::new(read);
    let (after, session_after) = starts(asked);
    let sql = "SELECT 1 FROM devices WHERE num = ?1 AND app = ?2";
    if !read.db.has_row(sql, (asked.device.0 as i64, asked.app.0))? {
        return Ok(BacklogPage::default());
    }
    let mut sources = reading.subscriptions(asked.device)?;
    for source in &mut sources {
        source.num = after;
    }
    for topic in &asked.session_topics {
        if let Some(topic) = reading.topic_named(asked.app, topic)?
            && sources.iter().all(|known| known.topic.num != topic.num)
        {
            sources.push(Source { topic, offset: 0, num: session_after });
        }
    }
    reading.page(Some(asked.device), after, &sources, asked.now)
}

/// See [`Outstanding`].
pub(crate) fn outstanding(
    Read { db, ids }: Read<'_>,
    asked: &Outstanding,
) -> Result<Vec<Arc<Message>>, Error> {
    let mut statement = db.prepare_cached(
        "SELECT 1 FROM notifications n WHERE n.num = ?1 AND n.app = ?2 AND n.expires_at > ?3 AND (
             EXISTS (SELECT 1 FROM inbox i WHERE i.device = ?4 AND i.num = n.num)
             OR n.topic IS NOT NULL AND n.standing = ?5 AND n.delivery = ?6
             OR EXISTS (SELECT 1 FROM topics t WHERE t.num = n.topic AND t.retained = n.num))",
    )?;
    let mut messages = Vec::new();
    for num in asked.ids.iter().filter_map(|id| ids.num(*id)) {
        let (now, device) = (asked.now.0 as i64, asked.device.0 as i64);
        let (kept, stored) = (Standing::Kept as u8, When::Stored as u8);
        if statement.exists((num, asked.app.0, now, device, kept, stored))? {
            messages.extend(notification::message(db, ids, num)?);
        }
    }
    Ok(messages)
}

/// The stored messages of a topic since a position: see [`Recover`].
pub(crate) fn recover(read: Read<'_>, asked: &Recover) -> Result<BacklogPage, Error> {
    let mut reading = Reading::new(read);
    let Some(topic) = reading.topic_named(asked.app, &asked.topic)? else { return Ok(unused_page(asked)) };
    let (offset, known) = topic.recovers_from(asked.since);
    let source = Source { topic: Rc::clone(&topic), offset, num: 0 };
    let mut page = reading.page(None, 0, &[source], asked.now)?;
    page.heads.iter_mut().for_each(|head| head.complete &= known);
    if asked.retained {
        reading.add_retained(&mut page, std::iter::once(&topic), 0, asked.now)?;
    }
    Ok(page)
}
