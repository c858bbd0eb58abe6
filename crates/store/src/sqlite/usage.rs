//! [`Usages`] for SQLite.

use std::collections::BTreeSet;

use noroshi_types::{AppId, DeviceId, Quota, Timestamp, Topic};

use super::Sqlite;
use super::reader::Read;
use super::statement::ready;
use crate::engine::record::Record;
use crate::engine::usage;
use crate::{Error, Subscribing, Usages};

#[async_trait::async_trait]
impl Usages for Sqlite {
    async fn usage(&self, app: AppId, of: &[Quota], now: Timestamp) -> Result<Vec<(Quota, u64)>, Error> {
        let mut counted = Vec::with_capacity(of.len());
        // Separate reads: a long read occupies only one reader, and the writer can truncate the log between two
        // reads.
        for quota in of.iter().copied().filter(|quota| Quota::STORED.contains(quota)) {
            counted
                .push((quota, self.read(move |read| ready(usage::count(read.db, app, quota, now))).await?));
        }
        Ok(counted)
    }

    async fn unknown_topics(&self, app: AppId, topics: &[Topic]) -> Result<Vec<Topic>, Error> {
        let find = "SELECT 1 FROM topics WHERE app = ?1 AND name = ?2";
        self.unknown(find, app, topics, Topic::as_str).await
    }

    async fn unknown_devices(&self, app: AppId, devices: &[DeviceId]) -> Result<Vec<DeviceId>, Error> {
        let find = "SELECT 1 FROM devices WHERE app = ?1 AND id = ?2";
        self.unknown(find, app, devices, DeviceId::as_str).await
    }

    async fn subscribing(
        &self,
        app: AppId,
        wanted: &[(DeviceId, BTreeSet<Topic>)],
    ) -> Result<Vec<Subscribing>, Error> {
        let wanted = wanted.to_vec();
        self.read(move |Read { db, .. }| {
            let present =
                "SELECT d.num, (SELECT count(*) FROM subscriptions s WHERE s.device = d.num AND s.named = 1)
                           FROM devices d WHERE d.app = ?1 AND d.id = ?2";
            let find = "SELECT 1 FROM topics t JOIN subscriptions s ON s.topic = t.num AND s.device = ?3
                        WHERE t.app = ?1 AND t.name = ?2";
            let mut answers = Vec::with_capacity(wanted.len());
            for (device, topics) in wanted {
                let found =
                    db.first(present, (app.0, device.as_str()), |row| Ok((row.int(0)?, row.count(1)?)))?;
                let mut subscribing = Subscribing { present: 0, new: topics.len() as u64 };
                if let Some((num, present)) = found {
                    subscribing.present = present;
                    for topic in topics {
                        subscribing.new -= u64::from(db.has_row(find, (app.0, topic.as_str(), num))?);
                    }
                }
                answers.push(subscribing);
            }
            Ok(answers)
        })
        .await
    }
}

impl Sqlite {
    /// Those of the names, each once, for which `find` has no row.
    async fn unknown<T: Clone + Ord + Send + 'static>(
        &self,
        find: &'static str,
        app: AppId,
        names: &[T],
        text: fn(&T) -> &str,
    ) -> Result<Vec<T>, Error> {
        let names: BTreeSet<T> = names.iter().cloned().collect();
        self.read(move |Read { db, .. }| {
            let mut unknown = Vec::new();
            for name in names {
                if !db.has_row(find, (app.0, text(&name)))? {
                    unknown.push(name);
                }
            }
            Ok(unknown)
        })
        .await
    }
}
