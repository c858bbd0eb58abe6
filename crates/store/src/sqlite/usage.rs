//! [`Usages`] for SQLite.

use std::collections::BTreeSet;

use noroshi_types::{AppId, DeviceId, Quota, Timestamp, Topic, limits};
use rusqlite::Connection;

use super::Sqlite;
use super::statement::Statements;
use crate::engine::record::Record;
use crate::{CampaignState, DefinitionKind, Error, Subscribing, Usages};

#[async_trait::async_trait]
impl Usages for Sqlite {
    async fn usage(&self, app: AppId, of: &[Quota], now: Timestamp) -> Result<Vec<(Quota, u64)>, Error> {
        let mut counted = Vec::with_capacity(of.len());
        // Separate reads: a long read occupies only one reader, and the writer can truncate the log between two
        // reads.
        for quota in of.iter().copied().filter(|quota| Quota::STORED.contains(quota)) {
            counted.push((quota, self.read(move |db| count(db, app, quota, now)).await?));
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
        self.read(move |db| {
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
        self.read(move |db| {
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

fn count(db: &Connection, app: AppId, quota: Quota, now: Timestamp) -> Result<u64, Error> {
    let sql = match quota {
        Quota::Devices => "SELECT count(*) FROM devices WHERE app = ?1 AND ?2 = ?2",
        Quota::Topics => "SELECT count(*) FROM topics WHERE app = ?1 AND name <> ?2",
        // Devices first: an inbox is found by its device, not by its app.
        Quota::InboxRows => {
            "SELECT count(*) FROM devices d CROSS JOIN inbox i ON i.device = d.num WHERE d.app = ?1 AND ?2 = ?2"
        }
        Quota::InboxBytes => {
            "SELECT coalesce(sum(coalesce(octet_length(n.notification), 0) + coalesce(octet_length(n.data), 0)), 0)
             FROM devices d CROSS JOIN inbox i ON i.device = d.num CROSS JOIN notifications n ON n.num = i.num
             WHERE d.app = ?1 AND ?2 = ?2"
        }
        Quota::RetainedBytes => {
            "SELECT coalesce(sum(coalesce(octet_length(n.notification), 0) + coalesce(octet_length(n.data), 0)), 0)
             FROM topics t CROSS JOIN notifications n ON n.num = t.retained WHERE t.app = ?1 AND ?2 = ?2"
        }
        Quota::Campaigns => "SELECT count(*) FROM campaigns WHERE app = ?1 AND state IN (?2, ?3, ?4)",
        Quota::Endpoints => {
            "SELECT count(*) FROM devices d CROSS JOIN endpoints e ON e.device = d.num
             WHERE d.app = ?1 AND (e.expires_at IS NULL OR e.expires_at > ?2)"
        }
        Quota::Experiments => {
            "SELECT count(*) FROM definitions WHERE app = ?1 AND kind = ?2 AND archived_at IS NULL"
        }
        _ => return Ok(0),
    };
    let count = match quota {
        Quota::Topics => db.int(sql, (app.0, limits::EVERYONE_TOPIC))?,
        Quota::Campaigns => {
            let [scheduled, running, paused] =
                [CampaignState::Scheduled, CampaignState::Running, CampaignState::Paused]
                    .map(|state| state as u8);
            db.int(sql, (app.0, scheduled, running, paused))?
        }
        Quota::Experiments => db.int(sql, (app.0, DefinitionKind::Experiment as u8))?,
        _ => db.int(sql, (app.0, now.0 as i64))?,
    };
    Ok(u64::try_from(count).unwrap_or(0))
}
