//! Writes a row of this node every 10 s. The leader sums rows up to rows of a minute and an hour of all nodes, and keeps the
//! table within its bounds.
//!
//! Bounds: rows of 10 s are kept for 2 hours, those of a minute for 3 days, those of an hour for 31 days.
//!
//! | step | rows | each on disk at most | |
//! |---|---|---|---|
//! | 10 s | 18,000 (25 nodes × 720; of more nodes a shorter time) | 1.5 KiB: 960 bytes and the key, 3 to a page of 4 KiB; 64 bytes in the index | 28 MB |
//! | 1 min | 4,320 | 4 KiB: 3,600 bytes and the key; 32 bytes in the index | 18 MB |
//! | 1 h | 744 | the same | 3 MB |
//!
//! Together less than 50 MB. Usual rows have 200 to 400 bytes.
//!
//! A row begins at a multiple of its step on the node's wall clock, so rows of different nodes have the same times. A node
//! whose clock is more than a minute behind the leader's is missing in the sums, as a stopped one is.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use noroshi_delivery::Clock;
use noroshi_store::{Error, SeriesBound, SeriesRange, SeriesRow, Store};
use noroshi_types::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::figure::{ROWS, STEPS};
use crate::metrics::Metrics;
use crate::row::{NODE_ROW_BYTES_MAX, Row, TOTAL_ROW_BYTES_MAX, Values, activity};
use crate::sampler::{Sampler, since};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Step {
    TenSeconds,
    Minute,
    Hour,
}

impl Step {
    pub const ALL: [Step; 3] = [Step::TenSeconds, Step::Minute, Step::Hour];

    pub fn seconds(self) -> u32 {
        match self {
            Step::TenSeconds => 10,
            Step::Minute => 60,
            Step::Hour => 3_600,
        }
    }

    pub fn ms(self) -> u64 {
        u64::from(self.seconds()) * 1_000
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Step::TenSeconds => "10s",
            Step::Minute => "1m",
            Step::Hour => "1h",
        }
    }

    pub fn retention(self) -> Duration {
        Duration::from_secs(match self {
            Step::TenSeconds => 2 * 3_600,
            Step::Minute => 3 * 86_400,
            Step::Hour => 31 * 86_400,
        })
    }

    pub fn rows_max(self) -> usize {
        match self {
            Step::TenSeconds => 18_000,
            Step::Minute => 4_320,
            Step::Hour => 744,
        }
    }

    /// The step whose rows it sums up.
    pub fn finer(self) -> Option<Step> {
        match self {
            Step::TenSeconds => None,
            Step::Minute => Some(Step::TenSeconds),
            Step::Hour => Some(Step::Minute),
        }
    }

    /// How long after its end a step is summed up: nodes write late, and their clocks differ.
    fn settles_after(self) -> u64 {
        match self {
            Step::TenSeconds => 0,
            Step::Minute => 60_000,
            Step::Hour => 150_000,
        }
    }

    /// The begin of the step at this time.
    pub fn begin(self, time: Timestamp) -> Timestamp {
        Timestamp(time.0 - time.0 % self.ms())
    }
}

/// The apps of a row before its size decides.
const APPS_MAX: usize = 32;
/// The begin and end of a step may be this far apart. A process that was suspended for longer leaves a gap, because what it
/// counts belongs to no step.
const ELAPSED_MAX: Duration = Duration::from_secs(20);
/// Written this long after the end of a step, so that the gauges of the node are current, and all nodes do not write at once.
const WRITE_DELAY: Duration = Duration::from_millis(200);
/// Steps that are summed up in one commit.
const SUMMED_MAX: u64 = 10;
/// Rows of one read: more than the table has of a step, and those of 10 minutes of 300 nodes.
const READ_MAX: usize = 20_000;
/// Decoded without a break: about a millisecond.
const DECODED_MAX: usize = 128;
const PRUNE_EVERY: Duration = Duration::from_secs(60);
const PRUNED_MAX: usize = 1_000;
/// Rows of the future, which a node with a wrong clock wrote.
const FUTURE_MAX: Duration = Duration::from_secs(300);

const TASK: &str = "series";
const LEAD_FOR: Duration = Duration::from_secs(30);

pub struct Recorder {
    store: Arc<dyn Store>,
    sampler: Arc<Sampler>,
    clock: Clock,
    node: String,
    /// Identifies this process among those that want to lead.
    holder: u64,
    metrics: Metrics,
    /// Totals at the end of the last step.
    totals: Values,
    apps: HashMap<u32, Values>,
    pruned: Option<Instant>,
}

impl Recorder {
    pub fn new(
        store: Arc<dyn Store>,
        sampler: Arc<Sampler>,
        clock: Clock,
        node: String,
        holder: u64,
        metrics: Metrics,
    ) -> Self {
        let (totals, apps) = Default::default();
        Self { store, sampler, clock, node, holder, metrics, totals, apps, pruned: None }
    }

    /// Until `end`; then what was counted since the last step is lost.
    pub async fn run(mut self, end: CancellationToken) {
        let mut sampled = Instant::now();
        loop {
            let now = self.clock.now();
            let rest = Step::TenSeconds.ms() - now.0 % Step::TenSeconds.ms();
            let pause = Duration::from_millis(rest) + WRITE_DELAY;
            if end.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                break;
            }
            let elapsed = sampled.elapsed();
            sampled = Instant::now();
            self.record(elapsed).await;
            self.lead().await;
        }
        // Another node need not wait for the end of the lease.
        if let Err(error) = self.store.release_lead(TASK, self.holder).await {
            tracing::debug!(%error, "the lead of the time series ends with its lease");
        }
    }

    /// Writes the row of the step that ended last. `elapsed`: since the last call.
    pub async fn record(&mut self, elapsed: Duration) {
        let now = self.clock.now();
        let row = self.sample();
        if elapsed > ELAPSED_MAX {
            tracing::debug!(?elapsed, "the time series has a gap, because this process did not run");
            return;
        }
        // The clock may have jumped: the row belongs to the step before the present one, whatever was awaited.
        let at = Timestamp(Step::TenSeconds.begin(now).0.saturating_sub(Step::TenSeconds.ms()));
        let row = stored(Step::TenSeconds, at, self.node.clone(), row);
        match self.store.write_series(vec![row]).await {
            Ok(()) => drop(self.metrics.series_rows_written.inc()),
            Err(error) => self.failed("a row could not be written", &error),
        }
    }

    /// What happened since the last call.
    fn sample(&mut self) -> Row {
        let (totals, apps) = (self.sampler.totals(), self.sampler.apps());
        let mut values = since(&self.totals, &totals);
        values.insert(STEPS, 1);
        values.insert(ROWS, 1);
        let mut changed: Vec<(u64, u32, Values)> = Vec::new();
        for (app, totals) in &apps {
            let values = since(self.apps.get(app).unwrap_or(&Values::new()), totals);
            if !values.is_empty() {
                changed.push((activity(&values), *app, values));
            }
        }
        changed.sort_unstable_by_key(|(activity, app, _)| (std::cmp::Reverse(*activity), *app));
        let has_more_apps = changed.len() > APPS_MAX;
        let busiest = changed.into_iter().take(APPS_MAX).map(|(_, app, mut values)| {
            values.insert(ROWS, 1);
            (app, values)
        });
        let row = Row { values, apps: busiest.collect(), has_more_apps, nodes: BTreeMap::new() };
        (self.totals, self.apps) = (totals, apps);
        row
    }

    /// Sums up and removes rows, if this node leads.
    pub async fn lead(&mut self) {
        match self.store.lead(TASK, self.holder, LEAD_FOR).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => return self.failed("this node could not become the leader", &error),
        }
        let now = self.clock.now();
        for step in [Step::Minute, Step::Hour] {
            if let Err(error) = self.sum_up(step, now).await {
                self.failed("rows could not be summed up", &error);
            }
        }
        if self.pruned.is_none_or(|at| at.elapsed() >= PRUNE_EVERY) {
            self.pruned = Some(Instant::now());
            if let Err(error) = prune(&*self.store, now).await {
                self.failed("old rows could not be removed", &error);
            }
        }
    }

    /// Writes the rows of all steps that ended and have none yet.
    async fn sum_up(&self, step: Step, now: Timestamp) -> Result<(), Error> {
        let Some(finer) = step.finer() else { return Ok(()) };
        let end = step.begin(Timestamp(now.0.saturating_sub(step.settles_after())));
        let oldest = step.begin(before(now, finer.retention()));
        let newest = self.store.newest_series(step.seconds(), end).await?;
        let mut from = newest.map_or(oldest, |newest| Timestamp(newest.0 + step.ms()).max(oldest));
        while from < end {
            let until = Timestamp(from.0 + SUMMED_MAX * step.ms()).min(end);
            let rows = rows(&*self.store, finer, from, until).await?;
            let sums = sums(step, &rows).into_iter();
            let sums: Vec<SeriesRow> = sums.map(|(at, row)| stored(step, at, String::new(), row)).collect();
            if !sums.is_empty() {
                self.metrics.series_rows_written.inc_by(sums.len() as u64);
                self.store.write_series(sums).await?;
            }
            from = until;
        }
        Ok(())
    }

    fn failed(&self, what: &str, error: &Error) {
        self.metrics.series_failures.inc();
        tracing::warn!(%error, "time series: {what}");
    }
}

fn before(now: Timestamp, duration: Duration) -> Timestamp {
    Timestamp(now.0.saturating_sub(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
}

fn stored(step: Step, at: Timestamp, node: String, mut row: Row) -> SeriesRow {
    let bytes_max = match step {
        Step::TenSeconds => NODE_ROW_BYTES_MAX,
        Step::Minute | Step::Hour => TOTAL_ROW_BYTES_MAX,
    };
    SeriesRow { step_s: step.seconds(), at, node, data: row.encode_within(bytes_max) }
}

/// Readable rows in their order, each with its nodes.
pub async fn rows(
    store: &dyn Store,
    step: Step,
    from: Timestamp,
    until: Timestamp,
) -> Result<Vec<(Timestamp, Row)>, Error> {
    let range = SeriesRange { step_s: step.seconds(), from, until, rows_max: READ_MAX };
    let mut rows = Vec::new();
    for (index, SeriesRow { at, node, data, .. }) in store.series(range).await?.into_iter().enumerate() {
        if index % DECODED_MAX == DECODED_MAX - 1 {
            tokio::task::yield_now().await;
        }
        // A row of a newer version is a gap.
        let Ok(mut row) = Row::decode(&data) else { continue };
        if step == Step::TenSeconds {
            row.nodes = BTreeMap::from([(node, 1)]);
        }
        rows.push((at, row));
    }
    Ok(rows)
}

/// The rows of a step from finer ones, which are ordered by time.
pub fn sums(step: Step, rows: &[(Timestamp, Row)]) -> Vec<(Timestamp, Row)> {
    let steps = rows.chunk_by(|(one, _), (other, _)| step.begin(*one) == step.begin(*other));
    let sum = |rows: &[(Timestamp, Row)]| Row::sum(rows.iter().map(|(at, row)| (at.0, row)));
    steps.map(|rows| (step.begin(rows[0].0), sum(rows))).collect()
}

/// Removes what is too old or too much.
pub async fn prune(store: &dyn Store, now: Timestamp) -> Result<u64, Error> {
    let bound = |step: Step| SeriesBound {
        step_s: step.seconds(),
        since: before(now, step.retention()),
        until: now.saturating_add(FUTURE_MAX),
        rows_max: step.rows_max(),
        removed_max: PRUNED_MAX,
    };
    store.prune_series(Step::ALL.map(bound).to_vec()).await
}
