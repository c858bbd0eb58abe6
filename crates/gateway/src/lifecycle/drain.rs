//! Moves devices away at a chosen rate, because an operator wants to empty the node or because the node shuts down.
//!
//! All shards share one allowance: a shard with few connections leaves its part of the rate to the others. A shard
//! visits its connections in turn (`Round`) and never more than a bounded number in a turn, so a drain of hundreds of
//! thousands delays no delivery.
//!
//! During an operator's drain the node still accepts connections: it serves requests of the API and tells each device
//! how long to wait before it reconnects. After `Drain::cancel` it serves devices again. The shutdown of the node takes
//! over from this drain and cannot be cancelled.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

/// How often a shard asks whether it may close more.
const STEP_MS: u64 = 20;
/// The same for a shard without connections to close: devices that log in during a drain were already on the way.
const IDLE_STEP_MS: u64 = 200;
/// Connections closed in one turn of a shard: some microseconds each.
pub(crate) const MOVES_PER_TURN: usize = 512;
/// Slots visited in one turn of a shard; many are empty when a drain is nearly done.
const PLACES_PER_TURN: usize = 16_384;

/// How devices are moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// Connections closed a second; at least 1.
    pub rate_per_second: u32,
    /// The gateway spreads the reconnects of devices over this time: each gets its own delay.
    pub spread: Duration,
    /// After this time the rest is closed at once; none: the rate applies to the last.
    pub deadline: Option<Duration>,
}

/// Whether the node serves devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Serving,
    /// Devices are being moved away; none is admitted.
    Draining,
    /// No device is connected and none is admitted.
    Drained,
    /// The node ends, which cannot be cancelled.
    Stopping,
}

/// Progress of a drain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub state: State,
    /// Connections that are still open, including those that were closed but have not left.
    pub remaining: usize,
    pub progress: Option<Progress>,
}

/// The drain in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    pub order: Order,
    /// Connections closed since it began.
    pub moved: u64,
    /// When it began; a change of the order does not restart it.
    pub began_at: SystemTime,
    pub elapsed: Duration,
    /// When the rest is closed at once.
    pub deadline_at: Option<SystemTime>,
}

/// The node ends, so a drain can be neither ordered nor cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the node is stopping")]
pub struct Stopping;

/// What all shards share of a drain.
pub(crate) struct Drain {
    /// A copy of the state of `active`, to be read without its lock.
    phase: AtomicU8,
    spread_ms: AtomicU32,
    /// Held for some instructions by each shard once in `STEP_MS`; no other lock is taken under it.
    active: Mutex<Option<ActiveDrain>>,
}

const SERVING: u8 = 0;
const MOVING: u8 = 1;
const ENDING: u8 = 2;

struct ActiveDrain {
    order: Order,
    began: Instant,
    until: Option<Instant>,
    /// The same two by the wall clock, for reports: read once, so that they do not change.
    began_at: SystemTime,
    deadline_at: Option<SystemTime>,
    ending: bool,
    allowance: Allowance,
    moved: u64,
    /// Its completion was reported.
    told: bool,
}

/// Whole connections at a steady rate, in thousandths; an unused part lasts for a second.
struct Allowance {
    per_second: u32,
    refilled_ms: u64,
    thousandths: u64,
}

impl Allowance {
    fn refill(&mut self, now_ms: u64) -> u64 {
        let elapsed_ms = now_ms.saturating_sub(self.refilled_ms);
        // A connection a second is a thousandth of a connection a millisecond.
        let full = u64::from(self.per_second) * 1_000;
        let refill = elapsed_ms.saturating_mul(u64::from(self.per_second));
        self.thousandths = self.thousandths.saturating_add(refill).min(full);
        self.refilled_ms = now_ms;
        self.thousandths / 1_000
    }

    pub(crate) fn take(&mut self, now_ms: u64, wanted: u64) -> u64 {
        let taken = self.refill(now_ms).min(wanted);
        self.thousandths -= taken * 1_000;
        taken
    }
}

impl ActiveDrain {
    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn is_over_time(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }
}

impl Drain {
    pub(crate) fn new() -> Self {
        Self { phase: AtomicU8::new(SERVING), spread_ms: AtomicU32::new(0), active: Mutex::new(None) }
    }

    /// Begins a drain, or changes the order of the one in progress. True if it began.
    pub(crate) fn begin(&self, order: Order, ending: bool) -> Result<bool, Stopping> {
        let mut active = self.active.lock();
        let (now, now_at) = (Instant::now(), SystemTime::now());
        let until = order.deadline.map(|deadline| now + deadline);
        let deadline_at = order.deadline.map(|deadline| now_at + deadline);
        let per_second = order.rate_per_second.max(1);
        let spread_ms = u32::try_from(order.spread.as_millis()).unwrap_or(u32::MAX);
        let began = active.is_none();
        match &mut *active {
            Some(active) if active.ending => return Err(Stopping),
            Some(active) => {
                active.allowance.refill(active.now_ms());
                active.allowance.per_second = per_second;
                (active.order, active.until, active.ending, active.told) = (order, until, ending, false);
                active.deadline_at = deadline_at;
            }
            None => {
                let allowance = Allowance { per_second, refilled_ms: 0, thousandths: 0 };
                *active = Some(ActiveDrain {
                    order,
                    began: now,
                    until,
                    began_at: now_at,
                    deadline_at,
                    ending,
                    allowance,
                    moved: 0,
                    told: false,
                });
            }
        }
        self.spread_ms.store(spread_ms, Ordering::Relaxed);
        self.phase.store(if ending { ENDING } else { MOVING }, Ordering::SeqCst);
        Ok(began)
    }

    /// Admits devices again. False if there was nothing to cancel.
    pub(crate) fn cancel(&self) -> Result<bool, Stopping> {
        let mut active = self.active.lock();
        if active.as_ref().is_some_and(|active| active.ending) {
            return Err(Stopping);
        }
        self.phase.store(SERVING, Ordering::SeqCst);
        Ok(active.take().is_some())
    }

    /// No device is admitted.
    pub(crate) fn is_active(&self) -> bool {
        self.phase.load(Ordering::SeqCst) != SERVING
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.phase.load(Ordering::SeqCst) == ENDING
    }

    pub(crate) fn spread_ms(&self) -> u32 {
        self.spread_ms.load(Ordering::Relaxed)
    }

    pub(crate) fn report(&self, remaining: usize) -> Report {
        let active = self.active.lock();
        let state = match &*active {
            None => State::Serving,
            Some(active) if active.ending => State::Stopping,
            Some(_) if remaining == 0 => State::Drained,
            Some(_) => State::Draining,
        };
        let progress = active.as_ref().map(|active| Progress {
            order: active.order.clone(),
            moved: active.moved,
            began_at: active.began_at,
            elapsed: active.began.elapsed(),
            deadline_at: active.deadline_at,
        });
        Report { state, remaining, progress }
    }

    /// True the first time after a drain is complete.
    pub(crate) fn is_news(&self) -> bool {
        self.active
            .lock()
            .as_mut()
            .is_some_and(|active| !active.ending && !std::mem::replace(&mut active.told, true))
    }

    /// How many connections may be closed now.
    fn allowed(&self) -> usize {
        let mut active = self.active.lock();
        let Some(active) = &mut *active else { return 0 };
        let now_ms = active.now_ms();
        match active.is_over_time() {
            true => usize::MAX,
            false => usize::try_from(active.allowance.refill(now_ms)).unwrap_or(usize::MAX),
        }
    }

    /// Takes from the allowance of all shards.
    fn take(&self, wanted: usize) -> usize {
        let mut active = self.active.lock();
        let Some(active) = &mut *active else { return 0 };
        let (wanted, now_ms) = (wanted as u64, active.now_ms());
        let taken = if active.is_over_time() { wanted } else { active.allowance.take(now_ms, wanted) };
        active.moved += taken;
        // At most what was wanted, which was a `usize`.
        usize::try_from(taken).unwrap_or(usize::MAX)
    }
}

/// The position of a shard in its round through its connections.
#[derive(Default)]
pub(crate) struct Round {
    next: usize,
    /// Slots visited since the last connection was found.
    barren: usize,
    /// When to continue, by the shard's clock.
    due_ms: u64,
}

impl Round {
    /// How long the loop may sleep.
    pub(crate) fn patience_ms(&self, now_ms: u64) -> u64 {
        self.due_ms.saturating_sub(now_ms)
    }

    /// The slots of the next connections to close, as many as the drain allows now.
    pub(crate) fn next(
        &mut self,
        drain: &Drain,
        now_ms: u64,
        places: usize,
        is_movable: impl Fn(usize, bool) -> bool,
    ) -> Vec<usize> {
        if now_ms < self.due_ms {
            return Vec::new();
        }
        let ending = drain.is_ending();
        let wanted = drain.allowed().min(MOVES_PER_TURN);
        let mut found = self.look(places, wanted, |place| is_movable(place, ending));
        self.schedule(now_ms, places, found.len(), wanted);
        // Another shard may have been faster; the rest is found in the next round.
        found.truncate(drain.take(found.len()));
        found
    }

    /// The next connections to close: at most `wanted`, and at most as many slots visited as a turn allows.
    fn look(&mut self, places: usize, wanted: usize, is_movable: impl Fn(usize) -> bool) -> Vec<usize> {
        let mut found = Vec::new();
        for _ in 0..places.min(PLACES_PER_TURN) {
            if found.len() == wanted {
                break;
            }
            self.next = if self.next >= places { 0 } else { self.next };
            self.barren += 1;
            if is_movable(self.next) {
                self.barren = 0;
                found.push(self.next);
            }
            self.next += 1;
        }
        found
    }

    /// Sets when to continue: at once if only the turn's bound ended it.
    fn schedule(&mut self, now_ms: u64, places: usize, found: usize, wanted: usize) {
        let wait_ms = match found < wanted {
            true if self.barren >= places => IDLE_STEP_MS,
            true => 0,
            false if found == MOVES_PER_TURN => 0,
            false => STEP_MS,
        };
        self.due_ms = now_ms + wait_ms;
    }
}

#[cfg(test)]
mod tests;
