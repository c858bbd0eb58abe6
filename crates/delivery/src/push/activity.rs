//! Sends Live Activities: collects the devices of new ones, and sends the newest state to the slices that are due.
//!
//! ```text
//!   collect (leader) ──► devices in slices ─┐
//!   Activities::update ──► slices due ──────┴─► take ──► one task for each slice ──► Outlet::send
//!                                                 ▲            │ answers
//!                                                 └─ settle ◄──┘
//! ```
//!
//! A slice is read and rendered when it is taken, so it always gets the newest state. A slice whose process is killed is
//! taken again after its lease, with the state that is newest then: pushes without a written answer are sent twice at
//! most, those of one slice with the same `apns-id` if the state is the same.
//!
//! Bounds: [`RECIPIENTS_MAX`] devices in flight, a part of them for each app, and no more than its push service and this
//! machine send at once (`window`): what is taken early gets old. The store holds the rest.

mod collect;
mod recipient;
mod slice;
mod window;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use noroshi_store::{SettledSlice, TakeSlices, TakenSlices, TokenReport};
use noroshi_types::{AppId, Timestamp, limits};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;

use super::finisher::{PAUSE_MAX, PAUSE_MIN};
use super::pipeline::Pipeline;
use crate::activity::Activities;
use crate::holder;
use window::Window;

/// Devices in flight. As many as batches may have: a service that answers after 300 ms allows 100,000 pushes a second.
const RECIPIENTS_MAX: usize = 32_768;
/// Of one app: an app whose push service does not answer leaves a quarter to the others.
const RECIPIENTS_PER_APP_MAX: usize = 24_576;
/// Slices of one take, which is one commit, and about how many devices they have: few, so that the next slices are taken
/// when they can be sent.
const SLICES_MAX: usize = 128;
const TAKE_RECIPIENTS: usize = 2_000;
/// How long a slice belongs to this process.
const LEASE: Duration = Duration::from_secs(60);
const RENEW: Duration = Duration::from_secs(15);
/// Finished slices in one commit.
const COMMIT_MAX: usize = 64;
const READY_MAX: usize = 256;
/// The shortest pause between two takes, so that takes of many small activities share commits.
const PAUSE: Duration = Duration::from_millis(5);
/// The pause while all slices that are due belong to busy apps.
const PAUSE_BUSY: Duration = Duration::from_millis(50);

/// What the tasks of activities share.
pub(super) struct Sender {
    pub(super) pipeline: Arc<Pipeline>,
    pub(super) activities: Arc<Activities>,
    pub(super) holder: u64,
    in_flight: InFlight,
    /// The last renewal of all leases, measured from before the request. Guards only itself.
    renewed: Mutex<Option<Instant>>,
    pub(super) ready: mpsc::Sender<Ready>,
}

/// The results of a slice.
pub(super) struct Ready {
    pub(super) settled: SettledSlice,
    pub(super) reports: Vec<TokenReport>,
    pub(super) app: AppId,
    pub(super) members: usize,
    /// From the take to the last answer; `None`: nothing was sent.
    pub(super) took: Option<Duration>,
}

#[derive(Default)]
struct InFlight {
    recipients: AtomicUsize,
    /// Devices in flight of each app, and their bound. An entry remains, so that its window does; there are as many as apps.
    /// Guards only the map.
    apps: Mutex<HashMap<AppId, (usize, Window)>>,
    /// Guards only the set.
    slices: Mutex<HashSet<u64>>,
    /// There is more room.
    room: Notify,
}

impl InFlight {
    fn begin(&self, app: AppId, slice: u64, members: usize) {
        self.slices.lock().insert(slice);
        self.recipients.fetch_add(members, Ordering::SeqCst);
        self.apps.lock().entry(app).or_default().0 += members;
    }

    fn end(&self, app: AppId, slice: u64, members: usize) {
        self.slices.lock().remove(&slice);
        self.recipients.fetch_sub(members, Ordering::SeqCst);
        if let Some((count, _)) = self.apps.lock().get_mut(&app) {
            *count = count.saturating_sub(members);
        }
        self.room.notify_one();
    }

    fn room(&self) -> usize {
        RECIPIENTS_MAX.saturating_sub(self.recipients.load(Ordering::SeqCst))
    }

    fn busy(&self) -> Vec<AppId> {
        let apps = self.apps.lock();
        apps.iter().filter(|(_, (count, window))| *count >= window.limit()).map(|(app, _)| *app).collect()
    }

    /// A slice was answered; it is still in flight.
    fn answered(&self, app: AppId, members: usize, took: Duration) {
        if let Some((count, window)) = self.apps.lock().get_mut(&app) {
            window.answered(members, took, *count, Instant::now(), RECIPIENTS_PER_APP_MAX);
        }
    }
}

/// Runs until `drain` is true, then gives slices in flight time until the deadline.
pub(super) async fn run(
    pipeline: Arc<Pipeline>,
    activities: Arc<Activities>,
    mut drain: watch::Receiver<bool>,
) {
    let (ready, waiting) = mpsc::channel(READY_MAX);
    let sender = Arc::new(Sender {
        pipeline: pipeline.clone(),
        activities,
        holder: holder::draw(),
        in_flight: InFlight::default(),
        renewed: Mutex::new(None),
        ready,
    });
    let mut tasks = JoinSet::new();
    let finisher = tokio::spawn(finish(sender.clone(), waiting));
    tokio::select! {
        _ = drain.wait_for(|draining| *draining) => {}
        () = take_forever(&sender, &mut tasks) => {}
        () = renew_forever(&sender) => {}
        () = collect::run(&sender) => {}
    }
    let finished = async {
        while tasks.join_next().await.is_some() {}
        // Dropped with the last task: the finisher ends when it has written everything.
        drop(sender);
        let _ = finisher.await;
    };
    if tokio::time::timeout(pipeline.config.drain, finished).await.is_err() {
        tracing::info!("unfinished updates of activities are left to the next start");
    }
}

async fn take_forever(sender: &Arc<Sender>, tasks: &mut JoinSet<()>) {
    let (mut pause, mut average) = (PAUSE_MIN, limits::ACTIVITY_SLICE_DEVICES);
    let pipeline = &sender.pipeline;
    loop {
        while tasks.try_join_next().is_some() {}
        // Before the look: later work ends the wait.
        let woken = pipeline.work.activities.notified();
        let room = sender.in_flight.room();
        if room == 0 {
            sender.in_flight.room.notified().await;
            continue;
        }
        let slices_max = (room.min(TAKE_RECIPIENTS) / average.max(1)).clamp(1, SLICES_MAX);
        let (now, taken_at) = (pipeline.context.now(), Instant::now());
        let mut busy = sender.in_flight.busy();
        let is_any_busy = !busy.is_empty();
        busy.extend(pipeline.quotas.push_debts().into_iter().map(|(app, _)| app));
        let take = TakeSlices { now, lease: LEASE, holder: sender.holder, slices_max, busy };
        let TakenSlices { slices, activities, next_due } =
            match pipeline.context.store.take_slices(take).await {
                Ok(taken) => taken,
                Err(noroshi_store::Error::Closed) => return std::future::pending().await,
                Err(error) => {
                    pipeline.metrics.store_errors.inc();
                    tracing::warn!(%error, "could not take activities; retrying");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                    continue;
                }
            };
        pause = PAUSE_MIN;
        let full = slices.len() >= slices_max;
        let members: usize = slices.iter().map(|slice| slice.members as usize).sum();
        if let Some(of_one) = members.checked_div(slices.len()) {
            average = of_one;
        }
        slice::start_all(sender, slices, activities, taken_at, tasks);
        if full {
            tokio::task::yield_now().await;
            continue;
        }
        let until =
            next_due.map_or(pipeline.config.sleep_max(), |due| due.saturating_since(pipeline.context.now()));
        let pause_min = if members == 0 { PAUSE_BUSY } else { PAUSE };
        // A busy app may have slices that are due: room for them ends the wait too.
        let woken = async {
            tokio::select! {
                () = woken => {}
                () = sender.in_flight.room.notified(), if is_any_busy => {}
            }
        };
        let sleep = until.clamp(pause_min, pipeline.config.sleep_max());
        let _ = tokio::time::timeout(sleep, woken).await;
    }
}

async fn renew_forever(sender: &Sender) {
    loop {
        tokio::time::sleep(RENEW).await;
        let (begun, slices) = (Instant::now(), sender.in_flight.slices.lock().iter().copied().collect());
        let store = &sender.pipeline.context.store;
        match store.renew_slices(sender.holder, slices, LEASE, sender.pipeline.context.now()).await {
            Ok(()) => *sender.renewed.lock() = Some(begun),
            Err(error) => tracing::debug!(%error, "could not renew leases of activities"),
        }
    }
}

impl Sender {
    /// Whether no other node can have taken a slice that was taken then. A node with a store of its own ignores the
    /// lease.
    pub(super) fn may_send(&self, taken_at: Instant) -> bool {
        let renewed = self.renewed.lock().map_or(taken_at, |renewed| renewed.max(taken_at));
        !self.pipeline.config.shared || renewed.elapsed() < LEASE
    }
}

/// Writes results, several in one commit, until no task is left.
async fn finish(sender: Arc<Sender>, mut ready: mpsc::Receiver<Ready>) {
    let (pipeline, holder) = (sender.pipeline.clone(), sender.holder);
    // Only the tasks hold the channel open.
    let in_flight = Arc::downgrade(&sender);
    drop(sender);
    let mut together = Vec::new();
    while ready.recv_many(&mut together, COMMIT_MAX).await > 0 {
        let due = write(&pipeline, holder, &together).await;
        for one in together.drain(..) {
            if let Some(sender) = in_flight.upgrade() {
                if let Some(took) = one.took {
                    sender.in_flight.answered(one.app, one.members, took);
                }
                sender.in_flight.end(one.app, one.settled.slice, one.members);
            }
        }
        if due.is_some() {
            pipeline.work.activities.notify_one();
        }
    }
}

/// Returns when the first of the slices is due again.
async fn write(pipeline: &Pipeline, holder: u64, together: &[Ready]) -> Option<Timestamp> {
    let mut pause = PAUSE_MIN;
    loop {
        match write_once(pipeline, holder, together).await {
            Ok(due) => return due,
            // The node ends; the slices are sent again after its next start.
            Err(noroshi_store::Error::Closed) => return None,
            Err(error) => {
                pipeline.metrics.store_errors.inc();
                tracing::warn!(%error, slices = together.len(), "could not write results of activities; retrying");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

async fn write_once(
    pipeline: &Pipeline,
    holder: u64,
    together: &[Ready],
) -> Result<Option<Timestamp>, noroshi_store::Error> {
    let now = pipeline.context.now();
    let reports: Vec<TokenReport> = together.iter().flat_map(|one| one.reports.iter().cloned()).collect();
    if !reports.is_empty() {
        // First: if this is repeated, the tokens are gone already.
        let (removed, suspended) = pipeline.context.store.invalidate_tokens(reports.clone(), now).await?;
        pipeline.metrics.tokens_removed.inc_by(removed);
        pipeline.metrics.tokens_set_aside.inc_by(suspended);
        let gone = reports.iter().flat_map(|report| report.gone.iter().map(|gone| gone.device));
        let suspects = reports.iter().flat_map(|report| report.suspects.iter().map(|suspect| suspect.device));
        pipeline.freshness.nums_changed(gone.chain(suspects));
    }
    let settled = together.iter().map(|one| one.settled.clone()).collect();
    pipeline.context.store.settle_slices(holder, settled, now).await
}
