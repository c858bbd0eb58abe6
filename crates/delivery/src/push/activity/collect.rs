//! Collects the devices of new activities, ends those whose time is over, and removes those whose retention is over. Only
//! the leader does it.
//!
//! A page of devices and the cursor are one commit, so that a crash neither skips nor repeats a device.

use std::time::{Duration, Instant};

use noroshi_store::{Activity, Audience, Error, Names};
use noroshi_types::{DeviceNum, Target};

use super::Sender;
use crate::activity::spec;

/// Devices of one commit: a slice.
const PAGE: usize = noroshi_types::limits::ACTIVITY_SLICE_DEVICES;
/// Users or devices of the request that one commit covers: a user has few devices.
const NAMES: usize = 250;
/// Activities that take turns.
const AT_ONCE: usize = 16;
/// How often the leader looks for activities whose time is over.
const INTERVAL: Duration = Duration::from_secs(2);
const EXPIRED_MAX: usize = 256;
/// How often the leader removes activities whose retention is over.
const PRUNE_INTERVAL: Duration = Duration::from_secs(10);
/// Rows removed in one commit.
const ROWS: usize = 2_000;

pub(super) async fn run(sender: &Sender) {
    let pipeline = &sender.pipeline;
    let mut pruned: Option<Instant> = None;
    loop {
        let woken = pipeline.work.activity_collector.notified();
        if pipeline.leadership.is_ours()
            && let Err(error) = round(sender, &mut pruned).await
        {
            if matches!(error, Error::Closed) {
                return std::future::pending().await;
            }
            pipeline.metrics.store_errors.inc();
            tracing::warn!(%error, "could not collect the devices of activities; retrying");
        }
        let _ = tokio::time::timeout(INTERVAL, woken).await;
    }
}

async fn round(sender: &Sender, pruned: &mut Option<Instant>) -> Result<(), Error> {
    let store = &sender.pipeline.context.store;
    loop {
        let found = store.activities_to_collect(AT_ONCE).await?;
        if found.is_empty() {
            break;
        }
        for activity in found {
            page(sender, activity).await?;
        }
        sender.pipeline.work.wake_activities();
        if !sender.pipeline.leadership.is_ours() {
            return Ok(());
        }
    }
    let now = sender.pipeline.context.now();
    for (app, id) in store.expired_activities(now, EXPIRED_MAX).await? {
        if let Err(error) = sender.activities.expire(app, &id).await {
            tracing::debug!(%error, %id, "could not end an activity whose time is over; retrying");
        }
    }
    if pruned.is_none_or(|at| at.elapsed() >= PRUNE_INTERVAL) {
        while store.prune_activities(now, ROWS).await?.1 {
            // Other writes run between two parts.
            tokio::task::yield_now().await;
        }
        *pruned = Some(Instant::now());
    }
    Ok(())
}

/// Adds the next devices of an activity.
async fn page(sender: &Sender, activity: Activity) -> Result<(), Error> {
    let store = &sender.pipeline.context.store;
    let Some(cursor) = activity.cursor else { return Ok(()) };
    let target = activity.target.as_ref().and_then(|target| spec::target_of(target).ok());
    let (devices, next) = match target {
        // A newer program wrote it: its nodes collect.
        None => return Ok(()),
        Some(Target::Users(users)) => {
            let (part, next) = part(&users, cursor);
            (store.named_devices(activity.app, Names::Users(part)).await?, next)
        }
        Some(Target::Devices(devices)) => {
            let (part, next) = part(&devices, cursor);
            (store.named_devices(activity.app, Names::Devices(part)).await?, next)
        }
        Some(Target::Topic(topic)) => audience(sender, &activity, Audience::Topic(topic), cursor).await?,
        Some(Target::Condition(condition)) => {
            audience(sender, &activity, Audience::Condition(condition), cursor).await?
        }
        Some(Target::Everyone) => audience(sender, &activity, Audience::Everyone, cursor).await?,
    };
    let now = sender.pipeline.context.now();
    store.add_activity_devices(activity.num, cursor, next, devices, now).await.map(drop)
}

/// The names from the cursor on, and the next cursor.
fn part<T: Clone>(names: &[T], cursor: u64) -> (Vec<T>, Option<u64>) {
    let from = usize::try_from(cursor).unwrap_or(usize::MAX).min(names.len());
    let to = (from + NAMES).min(names.len());
    (names[from..to].to_vec(), (to < names.len()).then_some(to as u64))
}

async fn audience(
    sender: &Sender,
    activity: &Activity,
    audience: Audience,
    cursor: u64,
) -> Result<(Vec<DeviceNum>, Option<u64>), Error> {
    let store = &sender.pipeline.context.store;
    let page = store.audience(activity.app, &audience, cursor, PAGE, None).await?;
    Ok((page.members.into_iter().map(|member| member.num).collect(), page.next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_in_parts() {
        let names: Vec<usize> = (0..600).collect();
        assert_eq!(part(&names, 0).1, Some(250));
        assert_eq!(part(&names, 250).0.first(), Some(&250));
        assert_eq!((part(&names, 500).0.len(), part(&names, 500).1), (100, None));
        assert_eq!(part(&names, 9_999), (Vec::new(), None));
    }
}
