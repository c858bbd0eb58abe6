//! Topics as a backlog reads them: rows, heads, and from which offset a client recovers.

use noroshi_types::{Epoch, Position, Timestamp, Topic, limits};

use super::record::Record;
use super::topic::TopicNum;
use crate::ids::{self, Num};
use crate::{Backlog, BacklogPage, Error, Head, Recover};

/// Messages of a page.
pub(crate) const PAGE: usize = limits::BACKLOG_PAGE;

/// A topic's row.
#[derive(Debug, Clone)]
pub(crate) struct TopicRow {
    pub num: TopicNum,
    pub topic: Topic,
    pub epoch: Epoch,
    /// The last offset given out.
    pub head: u64,
    /// The last offset that got a row in the log.
    pub stored: u64,
    trimmed_offset: u64,
    trimmed_num: Num,
    retained: Option<Num>,
    retained_expires_at: Timestamp,
}

/// Columns of `topics t` for [`TopicRow::of_row`].
pub(crate) const TOPIC_COLUMNS: &str = "t.num, t.name, t.epoch, t.head, t.stored, t.trimmed_offset, t.trimmed_num, \
     t.retained, coalesce(t.retained_expires_at, 0)";

impl TopicRow {
    pub(crate) fn of_row(row: &(impl Record + ?Sized)) -> Result<Self, Error> {
        Ok(Self {
            num: row.int(0)?,
            topic: Topic::from_trusted(row.text(1)?),
            epoch: Epoch(row.int(2)? as u32),
            head: row.count(3)?,
            stored: row.count(4)?,
            trimmed_offset: row.count(5)?,
            trimmed_num: row.int(6)?,
            retained: row.int_or_null(7)?,
            retained_expires_at: row.time(8)?,
        })
    }

    pub(crate) fn head(&self, complete: bool) -> Head {
        let position = Position { epoch: self.epoch, offset: self.head };
        Head { topic: self.topic.clone(), position, complete }
    }

    /// No message after the offset or the number has left the log.
    pub(crate) fn is_complete_after(&self, offset: u64, num: Num) -> bool {
        self.trimmed_offset <= offset || self.trimmed_num <= num
    }

    /// The retained message, if its number is greater than `after` and it has not expired.
    pub(crate) fn retained(&self, after: Num, now: Timestamp) -> Option<Num> {
        self.retained.filter(|num| *num > after && self.retained_expires_at > now)
    }

    /// From which offset a client recovers that knows `since`, and whether its position belongs to this log. Without a
    /// position it recovers nothing: it starts at the present.
    pub(crate) fn recovers_from(&self, since: Option<Position>) -> (u64, bool) {
        let unused = Position { epoch: Epoch(0), offset: 0 };
        match since {
            None => (self.head, true),
            Some(since) if since == unused => (0, true),
            // An offset that was never given out belongs to another log, whatever its epoch says.
            Some(since) if since.epoch == self.epoch && since.offset <= self.head => (since.offset, true),
            Some(_) => (0, false),
        }
    }
}

/// The head of a topic without a row.
pub(crate) fn unused_head(topic: &Topic, complete: bool) -> Head {
    Head { topic: topic.clone(), position: Position { epoch: Epoch(0), offset: 0 }, complete }
}

/// The answer to a recovery of a topic without a row. A client with a position knows a log that no longer exists.
pub(crate) fn unused_page(asked: &Recover) -> BacklogPage {
    let complete = asked.since.is_none_or(|since| since.epoch == Epoch(0));
    BacklogPage { heads: vec![unused_head(&asked.topic, complete)], ..BacklogPage::default() }
}

/// The numbers after which the inbox and durable topics, and the session topics, are read.
pub(crate) fn starts(asked: &Backlog) -> (Num, Num) {
    let after = asked.after.map_or(0, ids::place);
    (after, asked.session_since.map_or(after, |since| ids::place(since).max(after)))
}
