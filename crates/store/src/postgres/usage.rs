//! [`Usages`] for PostgreSQL.

use std::collections::BTreeSet;

use noroshi_types::{AppId, DeviceId, Quota, Timestamp, Topic};

use super::Postgres;
use super::transaction::Tx;
use crate::engine::usage;
use crate::{Error, Subscribing, Usages};

const UNKNOWN_TOPICS: &str = "SELECT u.name FROM unnest($2::text[]) u (name)
    WHERE NOT EXISTS (SELECT 1 FROM topics t WHERE t.app = $1 AND t.name = u.name)";
const UNKNOWN_DEVICES: &str = "SELECT u.id FROM unnest($2::text[]) u (id)
    WHERE NOT EXISTS (SELECT 1 FROM devices d WHERE d.app = $1 AND d.id = u.id)";

/// Index, subscriptions, and how many of the requested topics are among them.
const SUBSCRIBING: &str = "SELECT u.place,
        (SELECT count(*) FROM subscriptions s WHERE s.device = d.num AND s.named = 1),
        (SELECT count(*) FROM unnest($3::bigint[], $4::text[]) w (place, name)
         JOIN topics t ON t.app = $1 AND t.name = w.name
         JOIN subscriptions s ON s.topic = t.num AND s.device = d.num AND s.named = 1
         WHERE w.place = u.place)
    FROM unnest($2::text[]) WITH ORDINALITY u (id, place) JOIN devices d ON d.app = $1 AND d.id = u.id";

#[async_trait::async_trait]
impl Usages for Postgres {
    async fn usage(&self, app: AppId, of: &[Quota], now: Timestamp) -> Result<Vec<(Quota, u64)>, Error> {
        let mut counted = Vec::with_capacity(of.len());
        for quota in of.iter().copied().filter(|quota| Quota::STORED.contains(quota)) {
            let count =
                self.read(move |tx: Tx| async move { usage::count(&tx, app, quota, now).await }).await?;
            counted.push((quota, count));
        }
        Ok(counted)
    }

    async fn unknown_topics(&self, app: AppId, topics: &[Topic]) -> Result<Vec<Topic>, Error> {
        let topics: BTreeSet<&Topic> = topics.iter().collect();
        let unknown =
            self.unknown(UNKNOWN_TOPICS, app, topics.iter().map(|topic| topic.as_str()).collect()).await?;
        Ok(topics.into_iter().filter(|topic| unknown.contains(topic.as_str())).cloned().collect())
    }

    async fn unknown_devices(&self, app: AppId, devices: &[DeviceId]) -> Result<Vec<DeviceId>, Error> {
        let devices: BTreeSet<&DeviceId> = devices.iter().collect();
        let unknown = self
            .unknown(UNKNOWN_DEVICES, app, devices.iter().map(|device| device.as_str()).collect())
            .await?;
        Ok(devices.into_iter().filter(|device| unknown.contains(device.as_str())).cloned().collect())
    }

    async fn subscribing(
        &self,
        app: AppId,
        wanted: &[(DeviceId, BTreeSet<Topic>)],
    ) -> Result<Vec<Subscribing>, Error> {
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let devices: Vec<&str> = wanted.iter().map(|(device, _)| device.as_str()).collect();
        let (mut places, mut topics) = (Vec::new(), Vec::new());
        for (place, (_, wanted)) in (1i64..).zip(wanted) {
            places.extend(wanted.iter().map(|_| place));
            topics.extend(wanted.iter().map(Topic::as_str));
        }
        let mut answers: Vec<Subscribing> =
            wanted.iter().map(|(_, topics)| Subscribing { present: 0, new: topics.len() as u64 }).collect();
        let rows = self
            .read(async |tx: Tx| {
                tx.query(SUBSCRIBING, &[&i64::from(app.0), &devices, &places, &topics]).await
            })
            .await?;
        for row in rows {
            if let Some(answer) = answers.get_mut(row.get::<_, i64>(0) as usize - 1) {
                answer.present = row.get::<_, i64>(1) as u64;
                answer.new = answer.new.saturating_sub(row.get::<_, i64>(2) as u64);
            }
        }
        Ok(answers)
    }
}

impl Postgres {
    async fn unknown(&self, sql: &str, app: AppId, names: Vec<&str>) -> Result<BTreeSet<String>, Error> {
        if names.is_empty() {
            return Ok(BTreeSet::new());
        }
        self.read(async |tx: Tx| {
            let rows = tx.query(sql, &[&i64::from(app.0), &names]).await?;
            Ok(rows.iter().map(|row| row.get(0)).collect())
        })
        .await
    }
}
