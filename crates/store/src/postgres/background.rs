//! Background writes: notifications of which only the trace is kept, and outcomes.
//!
//! One task gathers writes for up to a second and stores them with a few statements: a transaction costs more than a
//! row, every node of the cell writes its own, and nobody waits for them. The first write after a quiet second starts
//! at once. A server crash may lose recent writes, so the task does not wait for the disk. Outcomes may be known here
//! before another node has written their notification; those of recent notifications are retried a few times.

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
    /// Boxed: many outcomes wait for each notification.
    Note(Num, Box<Accept>),
    Record(Vec<Part>),
}

impl BackgroundWrite {
    fn rows(&self) -> usize {
        match self {
            Self::Note(..) => 1,
            Self::Record(parts) => parts.len(),
        }
    }
}

/// Rows that may wait; further ones are dropped.
pub(super) const ROWS_MAX: usize = 65_536;
/// Calls that may wait.
pub(super) const CALLS_MAX: usize = 16_384;
/// Limits of one transaction.
const GROUP_ROWS: usize = 8_192;
const GROUP_CALLS: usize = 4_096;
/// The minimum time between two groups that are not full.
const GROUP_EVERY: Duration = Duration::from_secs(1);
/// The same with notifications in the group. Shorter: other nodes look for these before they write their outcomes.
const NOTES_EVERY: Duration = Duration::from_millis(100);
/// How often the task empties the queue while it gathers: in this time at most [`CALLS_MAX`] calls are recorded.
const GATHER_EVERY: Duration = Duration::from_millis(50);
/// Outcomes of a notification whose times differ by at most this become one row, with the earliest time. Each shard
/// reports its part of a fan-out on its own.
const SAME_TIME_MS: u64 = 50;
/// How long outcomes of unknown notifications are retried.
const UNMATCHED_RETRY: Duration = Duration::from_secs(3);
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
        let mut written: Option<Instant> = None;
        loop {
            let group = self.queued.group(GROUP_CALLS, GROUP_ROWS);
            let group = match late.is_empty() {
                true => group.await,
                // A pause without new writes is one more attempt.
                false => tokio::time::timeout(RETRY_PAUSE, group).await.unwrap_or_else(|_| Some(Vec::new())),
            };
            let Some(mut group) = group else { return };
            // The write has its own timeouts, so the task only reports that it continues, never that it works.
            self.pulse.working();
            self.pulse.waiting();
            if let Some(written) = written.filter(|_| !group.is_empty()) {
                self.gather(&mut group, written).await;
            }
            written = Some(Instant::now());
            late = self.write(group, late).await;
        }
    }

    /// Adds what is queued until the group is due, full, or the last one. `written`: when the last group was.
    async fn gather(&mut self, group: &mut Vec<BackgroundWrite>, written: Instant) {
        let has_notes =
            |new: &[BackgroundWrite]| new.iter().any(|one| matches!(one, BackgroundWrite::Note(..)));
        let mut every = if has_notes(group) { NOTES_EVERY } else { GROUP_EVERY };
        let mut count: usize = group.iter().map(BackgroundWrite::rows).sum();
        while let Some(left) = every.checked_sub(written.elapsed()).filter(|left| !left.is_zero())
            && group.len() < GROUP_CALLS
            && count < GROUP_ROWS
        {
            tokio::time::sleep(left.min(GATHER_EVERY)).await;
            let before = group.len();
            let is_open = self.queued.add_to(group, GROUP_CALLS, GROUP_ROWS - count);
            let new = &group[before..];
            count += new.iter().map(BackgroundWrite::rows).sum::<usize>();
            if has_notes(new) {
                every = NOTES_EVERY;
            }
            if !is_open {
                break;
            }
        }
    }

    /// Writes a group and the late parts. Returns parts whose notification still does not exist.
    async fn write(&self, group: Vec<BackgroundWrite>, late: Unmatched) -> Unmatched {
        let (mut notes, mut parts, now) = (Vec::new(), late, Instant::now());
        // The list keeps its memory from group to group: `late` is the rest of the one before.
        parts.reserve(group.iter().map(BackgroundWrite::rows).sum());
        for one in group {
            match one {
                BackgroundWrite::Note(num, accept) => notes.push((num, accept)),
                BackgroundWrite::Record(new) => parts.extend(new.into_iter().map(|part| (now, part))),
            }
        }
        merge(&mut parts);
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

/// Joins parts of the same notification, outcome and, within [`SAME_TIME_MS`], time. Leaves the parts in the order of
/// the table's index.
fn merge(parts: &mut Unmatched) {
    parts.sort_unstable_by_key(|(_, part)| (part.num, part.outcome as u8, part.at));
    parts.dedup_by(|(since, part), (first, kept)| {
        let is_same = (part.num, part.outcome, part.reason) == (kept.num, kept.outcome, kept.reason)
            && part.at.0 - kept.at.0 <= SAME_TIME_MS;
        if is_same {
            kept.devices.append(&mut part.devices);
            kept.count += part.count;
            *first = (*since).min(*first);
        }
        is_same
    });
    for (_, part) in parts.iter_mut().filter(|(_, part)| !part.devices.is_sorted()) {
        part.devices.sort_unstable();
    }
}

/// Existing notifications of the parts, with the campaign that counts them, or 0.
type Known = HashMap<Num, CampaignNum>;

async fn write(
    tx: Tx,
    notes: Arc<Vec<(Num, Box<Accept>)>>,
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
    let found = || parts.iter().map(|(_, part)| part).filter(|part| known.contains_key(&part.num));
    outcome::add(&tx, found()).await?;
    let counts = found().filter_map(|part| {
        let campaign = known.get(&part.num).copied().filter(|campaign| *campaign != 0)?;
        Some(Count { campaign, num: Some(part.num), outcome: part.outcome, reason: None, count: part.count })
    });
    campaign_sum::count(&tx, counts).await?;
    Ok(known)
}

#[cfg(test)]
mod tests {
    use noroshi_types::{DeviceNum, Outcome, Timestamp};

    use super::*;

    fn part(num: Num, outcome: Outcome, at: u64, devices: &[u64]) -> Part {
        Part::of(num, outcome, Timestamp(at), devices.iter().copied().map(DeviceNum).collect())
    }

    #[test]
    fn parts_of_one_fan_out_become_one_row() {
        let now = Instant::now();
        let earlier = now.checked_sub(Duration::from_millis(1)).expect("a millisecond ago");
        let mut unknown = part(7, Outcome::Offline, 1_010, &[]);
        unknown.count = 5;
        let mut parts = vec![
            (now, part(7, Outcome::Written, 1_020, &[2, 4])),
            (now, unknown.clone()),
            (now, unknown),
            (now, part(3, Outcome::Written, 1_000, &[9])),
            (earlier, part(7, Outcome::Written, 1_000, &[1, 3])),
            (now, part(7, Outcome::Written, 1_051, &[5])),
            (now, part(7, Outcome::Slow, 1_020, &[6])),
        ];
        merge(&mut parts);
        let merged: Vec<_> = parts
            .into_iter()
            .map(|(since, part)| {
                let devices: Vec<u64> = part.devices.iter().map(|device| device.0).collect();
                (since, part.num, part.outcome, part.at.0, devices, part.count)
            })
            .collect();
        let expected = [
            (now, 3, Outcome::Written, 1_000, vec![9], 1),
            (earlier, 7, Outcome::Written, 1_000, vec![1, 2, 3, 4], 4),
            (now, 7, Outcome::Written, 1_051, vec![5], 1),
            (now, 7, Outcome::Offline, 1_010, vec![], 10),
            (now, 7, Outcome::Slow, 1_020, vec![6], 1),
        ];
        assert_eq!(merged, expected);
    }
}
