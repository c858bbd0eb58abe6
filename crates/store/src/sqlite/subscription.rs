//! Durable subscriptions. Every device has one to `$everyone`, which is not counted or listed.

use noroshi_types::{AppId, DeviceNum, Topic};
use rusqlite::Connection;

use super::topic;
use crate::Error;
use crate::device::check_topics;

/// Subscribes from the topic's present position; false if it was subscribed already.
pub(super) fn add(db: &Connection, app: AppId, device: DeviceNum, topic: &Topic) -> Result<bool, Error> {
    let num = topic::find_or_make(db, app, topic)?;
    let mut statement = db.prepare_cached(
        "INSERT OR IGNORE INTO subscriptions (device, topic, position, named)
         SELECT ?1, num, head, ?3 FROM topics WHERE num = ?2",
    )?;
    Ok(statement.execute((device.0 as i64, num, !topic.is_everyone()))? > 0)
}

/// True if there was one. That to `$everyone` stays.
pub(super) fn remove(db: &Connection, app: AppId, device: DeviceNum, topic: &Topic) -> Result<bool, Error> {
    let mut statement = db.prepare_cached(
        "DELETE FROM subscriptions
         WHERE device = ?1 AND named = 1 AND topic = (SELECT num FROM topics WHERE app = ?2 AND name = ?3)",
    )?;
    Ok(statement.execute((device.0 as i64, app.0, topic.as_str()))? > 0)
}

/// The topics a device subscribes to, sorted, without `$everyone`.
pub(super) fn topics(db: &Connection, device: DeviceNum) -> Result<Vec<Topic>, Error> {
    let mut statement = db.prepare_cached(
        "SELECT t.name FROM subscriptions s JOIN topics t ON t.num = s.topic
         WHERE s.device = ?1 AND s.named = 1 ORDER BY t.name",
    )?;
    let mut rows = statement.query((device.0 as i64,))?;
    let mut topics = Vec::new();
    while let Some(row) = rows.next()? {
        topics.push(Topic::from_trusted(row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?));
    }
    Ok(topics)
}

/// Whether the device may subscribe to these too.
pub(super) fn check_room(db: &Connection, device: DeviceNum, more: &[Topic]) -> Result<(), Error> {
    let known = topics(db, device)?;
    check_topics(known.len() + more.iter().filter(|topic| known.binary_search(topic).is_err()).count())
}
