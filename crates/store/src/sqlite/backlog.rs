//! Reading what devices have not confirmed: inbox rows and stored topic messages, merged by id.
//!
//! A [`Reading`] is one consistent read, for one device or a whole batch of log-ins. It remembers
//! the topics and messages it has seen, so that what a batch shares (everyone's topic, the message
//! all of them missed) is read and built once. Ids of a topic increase with its offsets, so inbox
//! and logs merge by id alone.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::rc::Rc;
use std::sync::Arc;

use noroshi_types::{AppId, DeviceNum, Epoch, Message, Position, Timestamp, Topic, When, limits};
use rusqlite::{Connection, OptionalExtension};

use super::ids::{self, Ids, Num};
use super::notification::{self, Standing};
use super::topic::TopicNum;
use crate::{Backlog, BacklogPage, Error, Head, Outstanding, Recover};

const PAGE: usize = limits::BACKLOG_PAGE;

/// A topic's row.
#[derive(Debug, Clone)]
pub(super) struct TopicRow {
    pub num: TopicNum,
    pub topic: Topic,
    pub epoch: Epoch,
    /// The last offset given out.
    pub head: u64,
    /// The last offset that got a row in the log.
    stored: u64,
    trimmed_offset: u64,
    trimmed_num: Num,
    retained: Option<Num>,
}

/// A topic to read behind a place: messages count whose offset and number are both greater.
pub(super) struct Source {
    pub topic: Rc<TopicRow>,
    pub offset: u64,
    pub num: Num,
}

pub(super) struct Reading<'c> {
    db: &'c Connection,
    ids: &'c Ids,
    topics: HashMap<TopicNum, Rc<TopicRow>>,
    names: HashMap<(AppId, Topic), Option<TopicNum>>,
    messages: HashMap<Num, Option<Arc<Message>>>,
}

impl<'c> Reading<'c> {
    pub(super) fn new(db: &'c Connection, ids: &'c Ids) -> Self {
        Self { db, ids, topics: HashMap::new(), names: HashMap::new(), messages: HashMap::new() }
    }

    pub(super) fn topic(&mut self, num: TopicNum) -> Result<Rc<TopicRow>, Error> {
        let vacant = match self.topics.entry(num) {
            Entry::Occupied(known) => return Ok(Rc::clone(known.get())),
            Entry::Vacant(vacant) => vacant,
        };
        let mut statement = self.db.prepare_cached(
            "SELECT name, epoch, head, stored, trimmed_offset, trimmed_num, retained FROM topics WHERE num = ?1",
        )?;
        let topic = statement.query_row((num,), |row| {
            Ok(TopicRow {
                num,
                topic: Topic::from_trusted(row.get_ref(0)?.as_str()?),
                epoch: Epoch(row.get(1)?),
                head: row.get::<_, i64>(2)? as u64,
                stored: row.get::<_, i64>(3)? as u64,
                trimmed_offset: row.get::<_, i64>(4)? as u64,
                trimmed_num: row.get(5)?,
                retained: row.get(6)?,
            })
        })?;
        Ok(Rc::clone(vacant.insert(Rc::new(topic))))
    }

    /// None if nobody ever used it.
    pub(super) fn topic_named(&mut self, app: AppId, topic: &Topic) -> Result<Option<Rc<TopicRow>>, Error> {
        let num = match self.names.entry((app, topic.clone())) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(vacant) => {
                let mut statement =
                    self.db.prepare_cached("SELECT num FROM topics WHERE app = ?1 AND name = ?2")?;
                let num = statement.query_row((app.0, topic.as_str()), |row| row.get(0)).optional()?;
                *vacant.insert(num)
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

    /// The topic's retained message, unless it has expired.
    pub(super) fn retained(
        &mut self,
        topic: &TopicRow,
        now: Timestamp,
    ) -> Result<Option<Arc<Message>>, Error> {
        let Some(num) = topic.retained else { return Ok(None) };
        Ok(self.message(num)?.filter(|message| message.expires_at > now))
    }

    /// The topics a device durably subscribes to, `$everyone` with them, each read behind the
    /// device's position.
    pub(super) fn subscriptions(&mut self, device: DeviceNum) -> Result<Vec<Source>, Error> {
        let mut statement =
            self.db.prepare_cached("SELECT topic, position FROM subscriptions WHERE device = ?1")?;
        let mut rows = statement.query((device.0 as i64,))?;
        let mut sources = Vec::new();
        while let Some(row) = rows.next()? {
            let topic = self.topic(row.get(0)?)?;
            sources.push(Source { topic, offset: row.get::<_, i64>(1)? as u64, num: 0 });
        }
        Ok(sources)
    }

    /// The oldest messages of an inbox behind `after` that have not expired.
    pub(super) fn inbox_after(
        &mut self,
        device: DeviceNum,
        after: Num,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<Arc<Message>>, Error> {
        let mut statement =
            self.db.prepare_cached("SELECT num FROM inbox WHERE device = ?1 AND num > ?2 ORDER BY num")?;
        let mut rows = statement.query((device.0 as i64, after))?;
        let mut messages = Vec::new();
        while messages.len() < limit
            && let Some(row) = rows.next()?
        {
            messages.extend(self.message(row.get(0)?)?.filter(|message| message.expires_at > now));
        }
        Ok(messages)
    }

    /// The newest messages of an inbox that have not expired, newest first.
    pub(super) fn inbox_newest(
        &mut self,
        device: DeviceNum,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<Arc<Message>>, Error> {
        let mut statement =
            self.db.prepare_cached("SELECT num FROM inbox WHERE device = ?1 ORDER BY num DESC")?;
        let mut rows = statement.query((device.0 as i64,))?;
        let mut messages = Vec::new();
        while messages.len() < limit
            && let Some(row) = rows.next()?
        {
            messages.extend(self.message(row.get(0)?)?.filter(|message| message.expires_at > now));
        }
        Ok(messages)
    }

    /// Adds the oldest messages of a log behind the source's place; false if some behind it are no
    /// longer there.
    fn log_after(
        &mut self,
        source: &Source,
        now: Timestamp,
        messages: &mut Vec<Arc<Message>>,
    ) -> Result<bool, Error> {
        let topic = &*source.topic;
        let mut complete = topic.trimmed_offset <= source.offset || topic.trimmed_num <= source.num;
        if topic.stored <= source.offset {
            return Ok(complete);
        }
        // Both bounds hold for what is read; the index is chosen for the one that tells more.
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

    /// A page of an inbox and of logs, with a head for every source.
    pub(super) fn page(
        &mut self,
        device: Option<DeviceNum>,
        after: Num,
        sources: &[Source],
        now: Timestamp,
    ) -> Result<BacklogPage, Error> {
        let mut messages = match device {
            Some(device) => self.inbox_after(device, after, PAGE + 1, now)?,
            None => Vec::new(),
        };
        let mut heads = Vec::with_capacity(sources.len());
        for source in sources {
            let complete = self.log_after(source, now, &mut messages)?;
            heads.push(head_of(&source.topic, complete));
        }
        messages.sort_unstable_by_key(|message| message.id);
        let more = messages.len() > PAGE;
        messages.truncate(PAGE);
        Ok(BacklogPage { retained: Vec::new(), messages, heads, more })
    }

    /// Adds the retained messages of `topics` behind `after`, those that the page has already left
    /// out.
    pub(super) fn add_retained<'t>(
        &mut self,
        page: &mut BacklogPage,
        topics: impl Iterator<Item = &'t Rc<TopicRow>>,
        after: Num,
        now: Timestamp,
    ) -> Result<(), Error> {
        for topic in topics.filter(|topic| topic.retained.is_some_and(|num| num > after)) {
            if let Some(message) = self.retained(topic, now)?
                && page.messages.binary_search_by_key(&message.id, |known| known.id).is_err()
            {
                page.retained.push(message);
            }
        }
        page.retained.sort_unstable_by_key(|message| message.id);
        Ok(())
    }
}

pub(super) fn head_of(topic: &TopicRow, complete: bool) -> Head {
    Head {
        topic: topic.topic.clone(),
        position: Position { epoch: topic.epoch, offset: topic.head },
        complete,
    }
}

/// The head of a topic that nobody ever used.
pub(super) fn unused_head(topic: &Topic, complete: bool) -> Head {
    Head { topic: topic.clone(), position: Position { epoch: Epoch(0), offset: 0 }, complete }
}

/// A later page: see [`Backlog`].
pub(super) fn next_page(db: &Connection, ids: &Ids, asked: &Backlog) -> Result<BacklogPage, Error> {
    let mut reading = Reading::new(db, ids);
    let after = asked.after.map_or(0, ids::place);
    let session_after = asked.session_since.map_or(after, |since| ids::place(since).max(after));
    let mut statement = db.prepare_cached("SELECT 1 FROM devices WHERE num = ?1 AND app = ?2")?;
    if !statement.exists((asked.device.0 as i64, asked.app.0))? {
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
pub(super) fn outstanding(
    db: &Connection,
    ids: &Ids,
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
pub(super) fn recover(db: &Connection, ids: &Ids, asked: &Recover) -> Result<BacklogPage, Error> {
    let mut reading = Reading::new(db, ids);
    let Some(topic) = reading.topic_named(asked.app, &asked.topic)? else {
        // A client that knows a position knows a log that is no more.
        let complete = asked.since.is_none_or(|since| since.epoch == Epoch(0));
        return Ok(BacklogPage {
            heads: vec![unused_head(&asked.topic, complete)],
            ..BacklogPage::default()
        });
    };
    let mut page = match asked.since {
        None => BacklogPage { heads: vec![head_of(&topic, true)], ..BacklogPage::default() },
        Some(since) => {
            let before_all = since == Position { epoch: Epoch(0), offset: 0 };
            // An offset that was never given out is of another log, whatever its epoch says.
            let known = before_all || (since.epoch == topic.epoch && since.offset <= topic.head);
            let offset = if known { since.offset } else { 0 };
            let source = Source { topic: Rc::clone(&topic), offset, num: 0 };
            let mut page = reading.page(None, 0, &[source], asked.now)?;
            page.heads.iter_mut().for_each(|head| head.complete &= known);
            page
        }
    };
    if asked.retained {
        reading.add_retained(&mut page, std::iter::once(&topic), 0, asked.now)?;
    }
    Ok(page)
}
