//! Bounds the work that is queued for one resource by its age, and makes publishers wait for room.
//!
//! A gate knows how long the queued work would take. While that is more than the target, new requests wait here
//! ([`super::waiting`]), each for at most `wait_max`. The resource calls [`Gate::advance`] when it has less to do.
//!
//! Bound: [`Limits::waiting_max`] requests. One more evicts another, of the app that has the most.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::waiting::{self, Entrant, Waiting};

/// A campaign's batch waits longer than requests: nobody waits for its answer.
const CAMPAIGN_WAIT: Duration = Duration::from_secs(30);

/// The resource behind a gate.
pub(super) trait Resource: Send + Sync {
    /// How long `more` units would wait behind what is queued. `None`: the resource takes nothing.
    fn delay(&self, more: usize) -> Option<Duration>;

    /// Whether the delay is short enough. `held`: units that were admitted and are not queued yet. Takes no lock that is
    /// held while a gate is called.
    fn has_room(&self, held: usize) -> bool;

    /// Units are not held any more; `held` still are.
    fn ended(&self, _units: usize, _held: usize) {}
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) wait_max: Duration,
    pub(super) waiting_max: usize,
}

/// There was no room in time. A retry after this time is likely to find some.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NoRoom {
    pub(super) after: Duration,
}

pub(super) struct Gate<R: Resource> {
    /// Units that were admitted and are not queued at the resource yet.
    held: AtomicUsize,
    is_waiting: AtomicBool,
    /// Only [`Resource::has_room`] is called under the lock.
    waiting: Mutex<Waiting<oneshot::Sender<Held<R>>>>,
    resource: R,
}

/// Units that were admitted. Dropped when they are queued at the resource, or given up.
pub(super) struct Held<R: Resource> {
    gate: Arc<Gate<R>>,
    units: usize,
}

impl<R: Resource> Drop for Held<R> {
    fn drop(&mut self) {
        let held = self.gate.held.fetch_sub(self.units, Ordering::SeqCst) - self.units;
        self.gate.resource.ended(self.units, held);
        self.gate.advance();
    }
}

impl<R: Resource> Gate<R> {
    pub(super) fn new(resource: R) -> Arc<Self> {
        Arc::new(Self {
            held: AtomicUsize::new(0),
            is_waiting: AtomicBool::new(false),
            waiting: Mutex::default(),
            resource,
        })
    }

    /// Requests that wait.
    pub(super) fn waiting(&self) -> usize {
        match self.is_waiting() {
            true => self.waiting.lock().len(),
            false => 0,
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::Relaxed)
    }

    /// Admits units if there is room and nobody waits.
    pub(super) fn try_enter(self: &Arc<Self>, units: usize) -> Option<Held<R>> {
        let is_open = !self.is_waiting.load(Ordering::SeqCst)
            && self.resource.has_room(self.held.load(Ordering::SeqCst));
        is_open.then(|| self.hold(units))
    }

    /// Waits for room. Cancel-safe.
    pub(super) async fn enter(
        self: &Arc<Self>,
        who: Entrant,
        units: usize,
        limits: Limits,
    ) -> Result<Held<R>, NoRoom> {
        if let Some(held) = self.try_enter(units) {
            return Ok(held);
        }
        let (granted, mut answer) = oneshot::channel();
        let mut waiter = self.queue(who, units, granted, limits.waiting_max);
        // Room may have appeared before the request was queued.
        self.advance();
        let wait_max = if who.is_campaign { CAMPAIGN_WAIT.max(limits.wait_max) } else { limits.wait_max };
        match tokio::time::timeout(wait_max, &mut answer).await {
            Ok(Ok(held)) => Ok(held),
            // Evicted.
            Ok(Err(_)) => Err(self.no_room()),
            Err(_) => {
                waiter.expired = true;
                drop(waiter);
                // It may have been admitted meanwhile.
                answer.try_recv().map_err(|_| self.no_room())
            }
        }
    }

    fn queue(
        self: &Arc<Self>,
        who: Entrant,
        units: usize,
        granted: oneshot::Sender<Held<R>>,
        waiting_max: usize,
    ) -> Waiter<R> {
        let mut waiting = self.waiting.lock();
        let place = waiting.push(who, units, granted, Instant::now());
        // Dropped below: its request is rejected.
        let evicted = if waiting.len() > waiting_max { waiting.evict() } else { None };
        self.is_waiting.store(waiting.len() > 0, Ordering::SeqCst);
        drop(waiting);
        drop(evicted);
        Waiter { gate: self.clone(), place, expired: false }
    }

    /// Admits requests while there is room. Called by the resource when it has less to do; costs one load if nobody
    /// waits.
    pub(super) fn advance(self: &Arc<Self>) {
        if !self.is_waiting.load(Ordering::SeqCst) {
            return;
        }
        let now = Instant::now();
        let mut granted = Vec::new();
        let mut waiting = self.waiting.lock();
        while self.resource.has_room(self.held.load(Ordering::SeqCst)) {
            let Some((waiter, units)) = waiting.pop(now) else { break };
            granted.push((waiter, self.hold(units)));
        }
        self.is_waiting.store(waiting.len() > 0, Ordering::SeqCst);
        drop(waiting);
        for (waiter, held) in granted {
            // Given back if the request was cancelled: its drop calls this method again.
            drop(waiter.send(held));
        }
    }

    fn hold(self: &Arc<Self>, units: usize) -> Held<R> {
        self.held.fetch_add(units, Ordering::SeqCst);
        Held { gate: self.clone(), units }
    }

    fn no_room(&self) -> NoRoom {
        let units = self.waiting.lock().units() + self.held.load(Ordering::SeqCst);
        NoRoom { after: self.resource.delay(units).unwrap_or(Duration::ZERO) }
    }
}

/// A request in the queue. Dropped, it leaves.
struct Waiter<R: Resource> {
    gate: Arc<Gate<R>>,
    place: waiting::Place,
    expired: bool,
}

impl<R: Resource> Drop for Waiter<R> {
    fn drop(&mut self) {
        let mut waiting = self.gate.waiting.lock();
        let left = waiting.remove(self.place, self.expired);
        self.gate.is_waiting.store(waiting.len() > 0, Ordering::SeqCst);
        drop(waiting);
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use noroshi_types::{AppId, Urgency};

    use super::*;

    /// Has room while fewer than `capacity` units are in use.
    #[derive(Default)]
    struct Tank {
        capacity: usize,
        used: AtomicUsize,
    }

    impl Resource for Tank {
        fn delay(&self, more: usize) -> Option<Duration> {
            Some(Duration::from_millis((self.used.load(Ordering::SeqCst) + more) as u64))
        }

        fn has_room(&self, held: usize) -> bool {
            self.used.load(Ordering::SeqCst) + held < self.capacity
        }
    }

    const PATIENT: Limits = Limits { wait_max: Duration::from_secs(600), waiting_max: 8 };

    fn gate(capacity: usize) -> Arc<Gate<Tank>> {
        Gate::new(Tank { capacity, ..Tank::default() })
    }

    fn who(app: u32) -> Entrant {
        Entrant { app: AppId(app), urgency: Urgency::Normal, is_campaign: false }
    }

    /// What was admitted is queued at the resource.
    fn begin(held: Held<Tank>) {
        held.gate.resource.used.fetch_add(held.units, Ordering::SeqCst);
    }

    fn end(gate: &Arc<Gate<Tank>>, units: usize) {
        gate.resource.used.fetch_sub(units, Ordering::SeqCst);
        gate.advance();
    }

    type Log = Arc<Mutex<Vec<String>>>;

    /// Starts a request, which writes its name to the log when it gets in, and waits until it is queued.
    async fn request(
        gate: &Arc<Gate<Tank>>,
        app: u32,
        name: &'static str,
        log: &Log,
    ) -> tokio::task::JoinHandle<()> {
        let before = gate.waiting() + log.lock().len();
        let (its_gate, its_log) = (gate.clone(), log.clone());
        let task = tokio::spawn(async move {
            let entered = its_gate.enter(who(app), 1, PATIENT).await;
            its_log.lock().push(entered.map_or(format!("{name} rejected"), |held| {
                begin(held);
                name.to_owned()
            }));
        });
        while gate.waiting() + log.lock().len() == before {
            tokio::task::yield_now().await;
        }
        task
    }

    async fn until(mut condition: impl FnMut() -> bool) {
        while !condition() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn requests_get_in_when_there_is_room() {
        let (gate, log) = (gate(1), Log::default());
        begin(gate.try_enter(1).expect("room"));
        assert!(gate.try_enter(1).is_none());
        for name in ["first", "second"] {
            request(&gate, 1, name, &log).await;
        }
        assert_eq!((gate.waiting(), log.lock().len()), (2, 0));
        end(&gate, 1);
        until(|| log.lock().len() == 1).await;
        end(&gate, 1);
        until(|| log.lock().len() == 2).await;
        assert_eq!(*log.lock(), ["first", "second"]);
        assert_eq!((gate.waiting(), gate.held.load(Ordering::SeqCst)), (0, 0));
    }

    #[tokio::test]
    async fn units_that_are_admitted_count_until_they_are_queued() {
        let gate = gate(10);
        let held = gate.try_enter(10).expect("room");
        assert!(gate.try_enter(1).is_none());
        drop(held);
        assert!(gate.try_enter(1).is_some());
    }

    #[tokio::test]
    async fn a_request_without_room_is_rejected_with_the_time_of_the_backlog() {
        let (gate, log) = (gate(1), Log::default());
        begin(gate.try_enter(40).expect("room"));
        request(&gate, 1, "patient", &log).await;
        let impatient = Limits { wait_max: Duration::ZERO, ..PATIENT };
        let no_room = gate.enter(who(1), 2, impatient).await.err().expect("no room");
        // 40 units of work and the patient request.
        assert_eq!(no_room.after, Duration::from_millis(41));
        assert_eq!(gate.waiting(), 1);
    }

    #[tokio::test]
    async fn a_cancelled_request_leaves_nothing() {
        let (gate, log) = (gate(1), Log::default());
        begin(gate.try_enter(1).expect("room"));
        let cancelled = request(&gate, 1, "cancelled", &log).await;
        request(&gate, 1, "next", &log).await;
        cancelled.abort();
        until(|| gate.waiting() == 1).await;
        end(&gate, 1);
        until(|| log.lock().len() == 1).await;
        assert_eq!(*log.lock(), ["next"]);
        // Let in, and cancelled before it runs.
        let late = request(&gate, 1, "late", &log).await;
        end(&gate, 1);
        late.abort();
        until(|| gate.held.load(Ordering::SeqCst) == 0).await;
        assert!(gate.waiting() == 0 && log.lock().len() == 1);
    }

    #[tokio::test]
    async fn one_request_too_many_evicts_one_of_the_largest_app() {
        let (gate, log) = (gate(0), Log::default());
        for _ in 1..PATIENT.waiting_max {
            request(&gate, 1, "large", &log).await;
        }
        request(&gate, 2, "small", &log).await;
        assert!(log.lock().is_empty());
        request(&gate, 2, "small", &log).await;
        until(|| !log.lock().is_empty()).await;
        assert_eq!(*log.lock(), ["large rejected"]);
        assert_eq!(gate.waiting(), PATIENT.waiting_max);
    }
}
