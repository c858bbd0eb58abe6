//! What waits for one sink: a queue in memory that moves to disk, in order, when the sink is behind.
//!
//! The oldest batch is shown to the worker until it says that the sink has it, so it may move to disk meanwhile: whatever
//! is on disk is older than whatever is in memory, and the head is wherever the oldest is.
//!
//! Without a spool (files, standard output) the collector waits a moment for room, and then the newest is lost. With one
//! it never waits: what does not fit into memory, or waits there for long, goes to disk, and when that is full the newest
//! is lost. Both are counted.
//!
//! Lock: guards this sink's queue. The collector and the worker take it, no one who emits; the spool's files are written
//! under it, nothing else is locked.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::batch::Batch;
use crate::metrics::{Loss, OfSink};
use crate::spool::{Refused, Spool};

/// So long the collector waits for a sink without a spool that is only slow.
const PATIENCE: Duration = Duration::from_secs(1);

pub(crate) struct Feed {
    bytes_max: usize,
    /// What waits in memory longer than this goes to disk.
    spill_after: Duration,
    metrics: OfSink,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    memory: VecDeque<Batch>,
    memory_bytes: usize,
    spool: Option<Spool>,
    /// The last attempt failed: nobody waits for such a sink.
    failing: bool,
    /// The oldest has waited since then, as far as this process knows.
    head_since: Option<Instant>,
    /// Nothing is added any more.
    closed: bool,
    /// The worker ends at once.
    abandoned: bool,
    /// The spool's trouble was told.
    told: bool,
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
            told: false,
        };
        Self { bytes_max, spill_after, metrics, state: Mutex::new(state), changed: Condvar::new() }
    }

    // -- for the collector --------------------------------------------------------------------------

    /// Adds a batch behind all others, or counts it as lost.
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
                    Err(refused) => self.tell(&mut state, &refused),
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

    /// Moves memory to disk, as much as it takes.
    fn spill(&self, state: &mut State) {
        while let Some(batch) = state.memory.front().cloned() {
            if let Err(refused) = state.append(&batch) {
                return self.tell(state, &refused);
            }
            state.memory.pop_front();
            state.memory_bytes -= batch.bytes.len();
        }
    }

    /// Once for each trouble: it would be told for each batch.
    fn tell(&self, state: &mut State, refused: &Refused) {
        if !std::mem::replace(&mut state.told, true) {
            tracing::error!(reason = %refused, "events that a sink does not take are lost from now on: the newest");
        }
    }

    /// Looks at what waits; to be called at every interval.
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

    /// Nothing is added any more: the worker ends when it has sent what there is, or cannot.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }

    /// The deadline: what was not taken goes to disk, or is lost. How many events are lost, and how many kept.
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

    /// The oldest batch; waits for one. None: there will be none.
    pub(crate) fn head(&self) -> Option<Batch> {
        let mut state = self.state.lock();
        loop {
            if state.abandoned {
                return None;
            }
            if let Some(batch) = state.head() {
                return Some(batch);
            }
            if state.closed {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }

    /// The sink took the oldest batch, but for what it refused for good.
    pub(crate) fn taken(&self, batch: &Batch, refused: u64) {
        let mut state = self.state.lock();
        self.metrics.sent.inc_by(batch.events.saturating_sub(refused));
        self.metrics.lost(Loss::Refused, refused);
        (state.failing, state.told) = (false, false);
        // It went to the disk or was given up meanwhile, after the deadline.
        state.remove_head();
        state.head_since = state.head_since_now();
        self.changed(state);
    }

    /// An attempt failed. Waits before the next; false: there shall be none.
    pub(crate) fn failed(&self, pause: Duration) -> bool {
        let mut state = self.state.lock();
        self.metrics.failed.inc();
        state.failing = true;
        self.changed.notify_all();
        let deadline = Instant::now() + pause;
        loop {
            // Who goes has no time for a sink that is down, where there is a disk.
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

    fn head(&mut self) -> Option<Batch> {
        let spooled = self.spool.as_mut().and_then(Spool::head);
        spooled.or_else(|| self.memory.front().cloned())
    }

    fn remove_head(&mut self) {
        match &mut self.spool {
            Some(spool) if !spool.is_empty() => {
                // It was read here, unless it moved to the disk after it was shown.
                if spool.head().is_some() {
                    spool.take();
                }
            }
            _ => {
                if let Some(batch) = self.memory.pop_front() {
                    self.memory_bytes -= batch.bytes.len();
                }
            }
        }
    }

    /// What is read from the disk is as old as the one before it, which is the most that is known.
    fn head_since_now(&self) -> Option<Instant> {
        match self.is_spooling() {
            true => self.head_since,
            false => self.memory.front().map(|batch| batch.since),
        }
    }
}

#[cfg(test)]
mod tests;
