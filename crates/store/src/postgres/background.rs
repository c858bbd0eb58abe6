//! Background writes: notifications of which only the trace is kept, and outcomes.
//!
//! One task writes everything that has gathered with a few statements. A server crash may lose recent writes, so the
//! task does not wait for the disk. Outcomes may be known here before another node has written their notification;
//! those of recent notifications are retried a few times.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use noroshi_supervision::Heartbeat;

use super::group::{NOTED, NotificationSource, Rows};
use super::queue::Queued;
use super::transaction::{Failed, Tx};
use super::{Postgres, campaign_sum, outcome};
use crate::Accept;
use crate::engine::campaign::{CampaignNum, Count};
use crate::engine::notification::Standing;
use crate::engine::outcome::Part;
use crate::ids::Num;

/// A background write.
pub(super) enum BackgroundWrite {
    Note(Num, Accept),
    Record(Vec<Part>),
}

/// Rows that may wait; further ones are dropped.
pub(super) const ROWS_MAX: usize = 65_536;
/// Calls that may wait.
pub(super) const CALLS_MAX: usize = 16_384;
/// Limits of one transaction.
const GROUP_ROWS: usize = 8_192;
const GROUP_CALLS: usize = 4_096;
/// The minimum time between two small groups. Many nodes with few messages each would otherwise write a transaction per
/// message; nobody waits for these writes. Larger groups follow one another at once.
const SMALL_EVERY: Duration = Duration::from_millis(50);
const SMALL_CALLS: usize = GROUP_CALLS / 16;
/// How long outcomes of unknown notifications are retried.
const UNMATCHED_RETRY: Duration = Duration::from_secs(2);
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// The maximum number of such parts.
const UNMATCHED_MAX: usize = 16_384;

/// The task.
pub(super) struct BackgroundWriter {
    pub store: Postgres,
    pub queued: Queued<BackgroundWrite>,
    pub pulse: Heartbeat,
}

/// Parts without a notification, and since when.
type Unmatched = Vec<(Instant, Part)>;

impl BackgroundWriter {
    /// Runs until the queue is closed and empty.
    pub(super) async fn run(mut self) {
        let mut late: Unmatched = Vec::new();
        loop {
            let group = self.queued.group(GROUP_CALLS, GROUP_ROWS);
            let group = match late.is_empty() {
                true => group.await,
                // A pause without new writes is one more attempt.
                false => tokio::time::timeout(RETRY_PAUSE, group).await.unwrap_or_else(|_| Some(Vec::new())),
            };
            let Some(group) = group else { return };
            // The write has its own timeouts, so the task only reports that it continues, never that it works.
            self.pulse.working();
            self.pulse.waiting();
            let (began, is_small) = (Instant::now(), group.len() < SMALL_CALLS);
            late = self.write(group, late).await;
            if is_small {
                tokio::time::sleep(SMALL_EVERY.saturating_sub(began.elapsed())).await;
            }
        }
    }

    /// Writes a group and the late parts. Returns parts whose notification still does not exist.
    async fn write(&self, group: Vec<BackgroundWrite>, late: Unmatched) -> Unmatched {
        let (mut notes, mut parts, now) = (Vec::new(), late, Instant::now());
        for one in group {
            match one {
                BackgroundWrite::Note(num, accept) => notes.push((num, accept)),
                BackgroundWrite::Record(new) => parts.extend(new.into_iter().map(|part| (now, part))),
            }
        }
        let count = notes.len() + parts.len();
        let (notes, parts) = (Arc::new(notes), Arc::new(parts));
        let read = Arc::clone(&parts);
        let written = self.store.write_here(move |tx| write(tx, Arc::clone(&notes), Arc::clone(&read))).await;
        match written {
            Ok(known) => {
                let parts = Arc::try_unwrap(parts).unwrap_or_else(|parts| parts.to_vec());
                let missing = parts.into_iter().filter(|(since, part)| {
                    !known.contains_key(&part.num) && now.duration_since(*since) < UNMATCHED_RETRY
                });
                missing.take(UNMATCHED_MAX).collect()
            }
            Err(error) => {
                self.store.metrics.dropped_behind.inc_by(count as u64);
                tracing::debug!(%error, count, "traces and outcomes were not written");
                Vec::new()
            }
        }
    }
}

/// Existing notifications of the parts, with the campaign that counts them, or 0.
type Known = HashMap<Num, CampaignNum>;

async fn write(
    tx: Tx,
    notes: Arc<Vec<(Num, Accept)>>,
    parts: Arc<Vec<(Instant, Part)>>,
) -> Result<Known, Failed> {
    tx.execute("SET LOCAL synchronous_commit = off", &[]).await?;
    if !notes.is_empty() {
        let mut rows = Rows::default();
        for (num, accept) in &*notes {
            let source = NotificationSource { campaign: 0, place: None, standing: Standing::Nothing };
            rows.add(*num, accept, &tx.context().options, source);
        }
        tx.execute(NOTED, &rows.values()).await?;
    }
    if parts.is_empty() {
        return Ok(Known::new());
    }
    let mut nums: Vec<Num> = parts.iter().map(|(_, part)| part.num).collect();
    nums.sort_unstable();
    nums.dedup();
    let sql = "SELECT n.num, coalesce((SELECT c.num FROM campaigns c WHERE c.num = n.campaign), 0)
               FROM notifications n WHERE n.num = ANY($1)";
    let known: Known = tx.query(sql, &[&nums]).await?.iter().map(|row| (row.get(0), row.get(1))).collect();
    let found: Vec<Part> = parts
        .iter()
        .filter(|(_, part)| known.contains_key(&part.num))
        .map(|(_, part)| part.clone())
        .collect();
    outcome::add(&tx, &found).await?;
    let counts = found.iter().filter_map(|part| {
        let campaign = known.get(&part.num).copied().filter(|campaign| *campaign != 0)?;
        Some(Count { campaign, num: Some(part.num), outcome: part.outcome, reason: None, count: part.count })
    });
    campaign_sum::count(&tx, counts).await?;
    Ok(known)
}
