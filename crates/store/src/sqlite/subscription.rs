//! Durable subscriptions. Every device subscribes to `$everyone`, which is neither counted nor listed.

use noroshi_types::{AppId, DeviceNum, Timestamp, Topic};

use super::statement::Db;
use super::topic;
use crate::Error;
use crate::engine::device::check_topics;
use crate::engine::record::Record;

/// Subscribes from the topic's current position; false if the device was subscribed already.
pub(super) fn add(
    db: &Db,
    app: AppId,
    device: DeviceNum,
    topic: &Topic,
    now: Timestamp,
) -> Result<bool, Error> {
    let num = topic::find_or_create(db, app, topic)?;
    let sql = "INSERT OR IGNORE INTO subscriptions (device, topic, position, named, since)
               SELECT ?1, num, head, ?3, CASE WHEN ?3 THEN ?4 END FROM topics WHERE num = ?2";
    Ok(db.run(sql, (device.0 as i64, num, !topic.is_everyone(), now.0 as i64))? > 0)
}

/// True if there was a subscription. The one to `$everyone` cannot be removed.
pub(super) fn remove(db: &Db, app: AppId, device: DeviceNum, topic: &Topic) -> Result<bool, Error> {
    let sql = "DELETE FROM subscriptions WHERE device = ?1 AND named = 1
                   AND topic = (SELECT num FROM topics WHERE app = ?2 AND name = ?3)";
    Ok(db.run(sql, (device.0 as i64, app.0, topic.as_str()))? > 0)
}

/// The topics of a device, sorted, without `$everyone`.
pub(super) fn topics(db: &Db, device: DeviceNum) -> Result<Vec<Topic>, Error> {
    let sql = "SELECT t.name FROM subscriptions s JOIN topics t ON t.num = s.topic
               WHERE s.device = ?1 AND s.named = 1 ORDER BY t.name";
    db.all(sql, (device.0 as i64,), |row| Ok(Topic::from_trusted(row.text(0)?)))
}

/// Fails if the device may not subscribe to these topics too.
pub(super) fn check_room(db: &Db, device: DeviceNum, more: &[Topic]) -> Result<(), Error> {
    let sql = "SELECT count(*) FROM subscriptions WHERE device = ?1 AND named = 1";
    let held = db.int(sql, (device.0 as i64,))? as usize;
    if check_topics(held + more.len()).is_ok() {
        return Ok(());
    }
    // Some may be known: the names decide.
    let known = topics(db, device)?;
    check_topics(known.len() + more.iter().filter(|topic| known.binary_search(topic).is_err()).count())
}
