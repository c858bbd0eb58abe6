//! Durable subscriptions. Every device subscribes to `$everyone`, which is neither counted nor listed.

use noroshi_types::{AppId, DeviceId, Timestamp, Topic};

use super::columns::columns;
use super::transaction::{Failed, Tx};

columns! {
    /// Subscriptions that one statement adds.
    NewRows { apps: i64, devices: String, topics: String, named: i64, since: Option<i64> }
}

impl NewRows {
    pub(super) fn push(&mut self, app: AppId, device: &DeviceId, topic: &Topic, now: Timestamp) {
        let (device, name) = (device.as_str().to_owned(), topic.as_str().to_owned());
        let is_named = !topic.is_everyone();
        let since = is_named.then_some(now.0 as i64);
        self.push_row((app.0.into(), device, name, is_named.into(), since));
    }

    /// The statement of [`NewRows::insert`]. A subscription starts at its topic's current position. A message that is
    /// being accepted at this moment comes after it, because its offset is invisible before its commit.
    pub(super) const INSERT: &str = "INSERT INTO subscriptions (device, topic, position, named, since)
         SELECT d.num, t.num, t.head, new.named, new.since
         FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::bigint[])
              AS new (app, device, topic, named, since)
         JOIN devices d ON d.app = new.app AND d.id = new.device
         JOIN topics t ON t.app = new.app AND t.name = new.topic
         ON CONFLICT (device, topic) DO NOTHING";

    /// Adds missing subscriptions. The devices and topics have to exist.
    pub(super) async fn insert(&self, tx: &Tx) -> Result<(), Failed> {
        if !self.apps.is_empty() {
            tx.execute(Self::INSERT, &self.values()).await?;
        }
        Ok(())
    }
}
