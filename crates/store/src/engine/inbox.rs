//! Ranges of an inbox. The engines read the messages of a range themselves.

use noroshi_types::{DeviceNum, Timestamp};

use super::device;
use super::session::{self, Session, values};
use crate::ids::{Ids, Num, numbers};
use crate::{Error, InboxPlace, InboxRange};

/// The selected part of an inbox.
pub(crate) struct Range {
    /// The numbers of the messages, oldest first.
    pub nums: Vec<Num>,
    /// How many messages of the time span come before the first of them.
    pub index: u64,
    /// How many messages the time span has.
    pub total: u64,
}

const FROM: &str = "FROM inbox i JOIN notifications n ON n.num = i.num
    WHERE i.device = $1 AND i.num BETWEEN $2 AND $3 AND n.expires_at > $4";

/// `None` if the message to start at is not in the inbox.
pub(crate) async fn range<S: Session>(
    session: &S,
    ids: &Ids,
    asked: &InboxRange,
) -> Result<Option<Range>, S::Error> {
    let device = device::number(session, asked.app, &asked.device).await?.ok_or(Error::NotFound)?;
    let (now, (since, until)) = (asked.now, numbers(asked.since, asked.until));
    let count = async |since: Num, until: Num| {
        let sql = format!("SELECT count(*) {FROM}");
        session::one(session, &sql, &values![device.0, since, until, now], |row| row.count(0)).await
    };
    if let InboxPlace::After(id) | InboxPlace::Before(id) = asked.place {
        let Some(num) = ids.num(id) else { return Ok(None) };
        if count(num, num).await? == 0 {
            return Ok(None);
        }
    }
    let Window { first, last, order } = Window::of(asked.place, ids, since, until);
    let sql = format!("SELECT i.num {FROM} ORDER BY i.num {order} LIMIT $5");
    let limit = i64::try_from(asked.limit).unwrap_or(i64::MAX);
    let values = values![device.0, first, last, now, limit];
    let mut nums: Vec<Num> = session.query(&sql, &values, |row| row.int(0)).await?;
    nums.sort_unstable();
    let index = match nums.first() {
        Some(first) if *first > since => count(since, *first - 1).await?,
        _ => 0,
    };
    Ok(Some(Range { nums, index, total: count(since, until).await? }))
}

/// How many messages of the inbox have not expired.
pub(crate) async fn unread<S: Session>(
    session: &S,
    device: DeviceNum,
    now: Timestamp,
) -> Result<u64, S::Error> {
    let sql = "SELECT count(*) FROM inbox i JOIN notifications n ON n.num = i.num
               WHERE i.device = $1 AND n.expires_at > $2";
    session::one(session, sql, &values![device.0, now], |row| row.count(0)).await
}

/// The numbers to read, both ends included, and the order in which to count off the limit.
struct Window {
    first: Num,
    last: Num,
    order: &'static str,
}

impl Window {
    /// Within `since` and `until`. The message that `place` names is in the inbox.
    fn of(place: InboxPlace, ids: &Ids, since: Num, until: Num) -> Self {
        let num = |id| ids.num(id).unwrap_or(0);
        let (first, last, order) = match place {
            InboxPlace::First => (since, until, "ASC"),
            InboxPlace::Last => (since, until, "DESC"),
            InboxPlace::After(id) => (since.max(num(id).saturating_add(1)), until, "ASC"),
            InboxPlace::Before(id) => (since, until.min(num(id) - 1), "DESC"),
        };
        Self { first, last, order }
    }
}
