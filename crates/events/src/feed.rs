//! The queue of one sink: in memory, moving to disk in order when the sink is behind.
//!
//! The worker sees the oldest batches until it reports them as accepted, so they may move to disk meanwhile:
//! everything on disk is older than everything in memory, and the head is wherever the oldest is.
//!
//! Without a spool (files, standard output) the collector waits a moment for room, and then the newest batch is lost.
//! With a spool it never waits: batches that do not fit into memory, or wait there for long, go to disk; when that is
//! full, the newest are lost. Losses are counted.
//!
//! The lock guards this sink's queue. The collector and the worker take it, emitting threads do not. The spool's files
//! are written under it; no other lock is taken under it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::batch::Batch;
use crate::metrics::{Loss, OfSink};
use crate::spool::{Refused, Spool};

/// How long the collector waits for a slow sink without a spool.
const PATIENCE: Duration = Duration::from_secs(1);

pub(crate) struct Feed {
    bytes_max: usize,
    /// A batch that waits in memory for longer goes to disk.
    spill_after: Duration,
    metrics: OfSink,
    state: Mutex<State>,
    changed: Condvar,
}

/// What the worker does next.
pub(crate) enum Head {
    /// Send these: the oldest ones.
    Batches(Vec<Batch>),
    /// Nothing came until the given time.
    Calm,
    /// There will be none.
    Over,
}

struct State {
    memory: VecDeque<Batch>,
    memory_bytes: usize,
    spool: Option<Spool>,
    /// Whether the last attempt failed: the collector does not wait for such a sink.
    failing: bool,
    /// Since when the oldest batch has waited, as far as this process knows.
    head_since: Option<Instant>,
    /// Nothing more is added.
    closed: bool,
    /// The worker ends at once.
    abandoned: bool,
    /// Whether the spool's failure was logged.
    reported: bool,
}

impl Feed {
    pub(crate) fn new(
        bytes_max: usize,
        spill_after: Duration,
        spool: Option<Spool>,
        metrics: OfSink,
    ) -> Self {
        let head_since = spool.as_ref().filter(|spool| !spool.is_empty()).map(|_| Instant::now());
        let state = State {
            memory: VecDeque::new(),
            memory_bytes: 0,
            spool,
            failing: false,
            head_since,
            closed: false,
            abandoned: false,
            reported: false,
        };
        Self { bytes_max, spill_after, metrics, state: Mutex::new(state), changed: Condvar::new() }
    }

    // -- for the collector --------------------------------------------------------------------------

    /// Appends a batch, or counts it as lost.
    pub(crate) fn push(&self, batch: Batch) {
        let mut state = self.state.lock();
        state.head_since.get_or_insert(batch.since);
        if state.spool.is_some() {
            if state.is_spooling() || !state.has_room(&batch, self.bytes_max) {
                self.spill(&mut state);
            }
            if state.is_spooling() && state.memory.is_empty() {
                match state.append(&batch) {
                    Ok(()) => return self.changed(state),
                    Err(refused) => self.report(&mut state, &refused),
                }
            }
        } else {
            self.wait_for_room(&mut state, &batch);
        }
        if state.has_room(&batch, self.bytes_max) && !(state.is_spooling() && state.memory.is_empty()) {
            state.memory_bytes += batch.bytes.len();
            state.memory.push_back(batch);
        } else {
            self.metrics.lost(Loss::SpoolFull, batch.events);
        }
        self.changed(state);
    }

    fn wait_for_room(&self, state: &mut MutexGuard<'_, State>, batch: &Batch) {
        let deadline = Instant::now() + PATIENCE;
        while !state.has_room(batch, self.bytes_max) && !state.failing && !state.abandoned {
            if self.changed.wait_until(state, deadline).timed_out() {
                state.failing = true;
            }
        }
    }

    /// Moves batches from memory to disk, as many as it holds.
    fn spill(&self, state: &mut State) {
        while let Some(batch) = state.memory.front().cloned() {
            if let Err(refused) = state.append(&batch) {
                return self.report(state, &refused);
            }
            state.memory.pop_front();
            state.memory_bytes -= batch.bytes.len();
        }
    }

    /// Logged once per failure, not for each batch.
    fn report(&self, state: &mut State, refused: &Refused) {
        if !std::mem::replace(&mut state.reported, true) {
            tracing::error!(reason = %refused, "the spool of a sink accepts no more events; the newest are lost from now on");
        }
    }

    /// Checks the queue's age; call it at every interval.
    pub(crate) fn tick(&self, now: Instant) {
        let mut state = self.state.lock();
        let old =
            state.memory.front().is_some_and(|batch| now.duration_since(batch.since) > self.spill_after);
        if old && state.spool.is_some() {
            self.spill(&mut state);
        }
        self.show(&mut state, now);
    }

    fn changed(&self, mut state: MutexGuard<'_, State>) {
        self.show(&mut state, Instant::now());
        drop(state);
        self.changed.notify_all();
    }

    fn show(&self, state: &mut State, now: Instant) {
        let gauge = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let (mut events, mut disk) = (state.memory.iter().map(|batch| batch.events).sum(), 0);
        if let Some(spool) = &mut state.spool {
            events += spool.events();
            disk = spool.bytes();
            match spool.take_damaged() {
                0 => {}
                damaged => self.metrics.lost(Loss::Damaged, damaged),
            }
        }
        if events == 0 {
            state.head_since = None;
        }
        let age = state.head_since.map_or(0, |since| now.duration_since(since).as_secs());
        self.metrics.memory_bytes.set(gauge(state.memory_bytes as u64));
        self.metrics.disk_bytes.set(gauge(disk));
        self.metrics.waiting.set(gauge(events));
        self.metrics.age_seconds.set(gauge(age));
    }

    /// Nothing more is added: the worker ends when the queue is sent or the sink fails.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }

    /// The deadline: moves the rest to disk, or drops it. Returns how many events are lost, and how many kept.
    pub(crate) fn abandon(&self) -> (u64, u64) {
        let mut state = self.state.lock();
        (state.closed, state.abandoned) = (true, true);
        if state.spool.is_some() {
            self.spill(&mut state);
        }
        let lost = state.memory.drain(..).map(|batch| batch.events).sum();
        state.memory_bytes = 0;
        self.metrics.lost(Loss::Ended, lost);
        let kept = state.spool.as_ref().map_or(0, Spool::events);
        self.changed(state);
        (lost, kept)
    }

    // -- for the worker -----------------------------------------------------------------------------

    /// The oldest batches, up to `bytes_max` and at least one; waits for one, until `deadline` if there is one.
    pub(crate) fn head(&self, bytes_max: usize, deadline: Option<Instant>) -> Head {
        let mut state = self.state.lock();
        loop {
            if state.abandoned {
                return Head::Over;
            }
            let batches = state.heads(bytes_max);
            if !batches.is_empty() {
                return Head::Batches(batches);
            }
            if state.closed {
                return Head::Over;
            }
            match deadline {
                None => self.changed.wait(&mut state),
                Some(deadline) if self.changed.wait_until(&mut state, deadline).timed_out() => {
                    return Head::Calm;
                }
                Some(_) => {}
            }
        }
    }

    /// The sink accepted the oldest batches, except for rejected events.
    pub(crate) fn taken(&self, batches: &[Batch], refused: u64) {
        let events: u64 = batches.iter().map(|batch| batch.events).sum();
        let mut state = self.state.lock();
        self.metrics.sent.inc_by(events.saturating_sub(refused));
        self.metrics.lost(Loss::Refused, refused);
        (state.failing, state.reported) = (false, false);
        // They moved to disk or were dropped meanwhile, after the deadline.
        batches.iter().for_each(|_| state.remove_head());
        state.head_since = state.head_since_now();
        self.changed(state);
    }

    /// The log has ended: attempts are cancelled.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.state.lock().abandoned
    }

    /// An attempt failed. Waits before the next one; false: make no other attempt.
    pub(crate) fn failed(&self, pause: Duration) -> bool {
        let mut state = self.state.lock();
        state.failing = true;
        self.changed.notify_all();
        let deadline = Instant::now() + pause;
        loop {
            // A node that is stopping has no time for a failing sink with a spool.
            if state.abandoned || (state.closed && state.spool.is_some()) {
                return false;
            }
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return !state.abandoned;
            }
        }
    }
}

impl State {
    fn is_spooling(&self) -> bool {
        self.spool.as_ref().is_some_and(|spool| !spool.is_empty())
    }

    fn has_room(&self, batch: &Batch, bytes_max: usize) -> bool {
        self.memory.is_empty() || self.memory_bytes + batch.bytes.len() <= bytes_max
    }

    fn append(&mut self, batch: &Batch) -> Result<(), Refused> {
        match &mut self.spool {
            Some(spool) => spool.append(batch),
            None => Err(Refused::Full),
        }
    }

    fn heads(&mut self, bytes_max: usize) -> Vec<Batch> {
        let mut heads = self.spool.as_mut().map_or_else(Vec::new, |spool| spool.heads(bytes_max));
        let mut bytes: usize = heads.iter().map(|batch| batch.bytes.len()).sum();
        // A spool that gives fewer than it has must give the rest before memory does.
        let spooled: u64 = heads.iter().map(|batch| batch.events).sum();
        if self.spool.as_ref().is_some_and(|spool| spool.events() > spooled) {
            return heads;
        }
        for batch in &self.memory {
            if !heads.is_empty() && bytes >= bytes_max {
                break;
            }
            bytes += batch.bytes.len();
            heads.push(batch.clone());
        }
        heads
    }

    fn remove_head(&mut self) {
        match &mut self.spool {
            // The head is in memory unless it moved to disk after it was shown.
            Some(spool) if !spool.is_empty() => spool.take(),
            _ => {
                if let Some(batch) = self.memory.pop_front() {
                    self.memory_bytes -= batch.bytes.len();
                }
            }
        }
    }

    /// A batch from disk counts as old as the one before it, the best estimate.
    fn head_since_now(&self) -> Option<Instant> {
        match self.is_spooling() {
            true => self.head_since,
            false => self.memory.front().map(|batch| batch.since),
        }
    }
}

#[cfg(test)]
mod tests;
