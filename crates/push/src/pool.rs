//! The pool of one origin and credential: a queue of pushes and the few connections that drain it.
//!
//! ```text
//!   send ──► Queue (extra, direct, campaign) ◄── take ── connection (own task) ──► push service
//!              ▲            │ full: send waits            │ one more is opened when those
//!              └─ put_back ─┴── unprocessed, renewed ─────┘ all have no free stream
//! ```
//!
//! Connections pull: each takes as many pushes as it has free streams, many at a time under one lock, and parks when the
//! queue is empty. A new push wakes one parked connection, always the first, so that a small load stays on one connection
//! and travels in few packets.
//!
//! One connection at a time is being opened. A failure while others live counts as the peer's limit and is not retried
//! for a while. Failures without any connection back off, and after a few of them the queued pushes are answered `Later`.
//! A connection gets pushes only after its peer has spoken (its SETTINGS arrived), so a rejected connection loses none.
//!
//! Reading order: `queue`, `pending`, `account` (what pools of a credential share), this file, `growth`, `connect`,
//! `connection` (HTTP/2) with its `health`, `http1`, `verdict`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Waker;
use std::time::{Duration, Instant};

use noroshi_egress::target::Target;
use noroshi_types::Lane;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

mod account;
mod connect;
mod connection;
mod growth;
mod http1;
mod pending;
mod queue;
mod verdict;

pub(crate) use account::{Account, AccountContext, wall_clock};
pub(crate) use pending::Pending;

use crate::Answer;
use crate::push::Reason;
use account::Admitted;
use queue::Queue;

/// Pushes answered in a row: some 100 µs.
const ANSWERS_MAX: usize = 64;

#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) account: Arc<Account>,
    origin: Arc<str>,
    pub(crate) target: Target,
    pub(crate) authority: Box<str>,
    /// Never held while a push is answered or a connection is woken.
    state: Mutex<State>,
    /// A copy of the length in `state`, readable without the lock.
    queued: AtomicUsize,
    in_flight: AtomicUsize,
    /// Milliseconds from `started` until the queue was last found empty.
    used_ms: AtomicU64,
    started: Instant,
    /// By lane, notifies callers that wait for room.
    room: [Notify; Lane::ALL.len()],
}

#[derive(Debug)]
struct State {
    queue: Queue,
    /// Whether callers wait for room, by lane.
    waiting: [bool; Lane::ALL.len()],
    members: Vec<Member>,
    next_member: u32,
    connecting: bool,
    /// Failures in a row.
    connect_failures: u32,
    connect_at: Option<Instant>,
    /// Until then no connection is possible, and pushes are answered at once.
    unreachable: Option<(Reason, Instant)>,
    /// The number of connections that the peer seems to allow, and until when this is assumed.
    ceiling: Option<(usize, Instant)>,
    ceilings_in_a_row: u32,
    /// When one of our quotas or pauses last held back the queue.
    paced_at: Option<Instant>,
    closing: bool,
    aborted: bool,
}

/// A connection that takes pushes.
#[derive(Debug)]
struct Member {
    id: u32,
    waker: Waker,
    /// Whether it waits for pushes.
    parked: bool,
}

/// What a connection does after it asked for pushes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Take {
    /// It got some, and there may be more.
    Some { probe: bool },
    /// The queue is empty; the pool wakes the connection when that changes.
    Parked,
    /// Nothing may be sent before this time.
    Wait(Instant),
    /// The queue is empty and the pool is closing: the connection closes.
    Close,
}

impl Pool {
    pub(crate) fn new(account: Arc<Account>, origin: &Arc<str>) -> Result<Arc<Self>, Reason> {
        let (target, _) = Target::of_url(origin).map_err(|error| error.label())?;
        let queue = Queue::new(account.context.config.queue_max);
        Ok(Arc::new(Self {
            authority: target.authority().into(),
            target,
            origin: origin.clone(),
            account,
            state: Mutex::new(State {
                queue,
                waiting: [false; Lane::ALL.len()],
                members: Vec::new(),
                next_member: 0,
                connecting: false,
                connect_failures: 0,
                connect_at: None,
                unreachable: None,
                ceiling: None,
                ceilings_in_a_row: 0,
                paced_at: None,
                closing: false,
                aborted: false,
            }),
            queued: AtomicUsize::new(0),
            in_flight: AtomicUsize::new(0),
            used_ms: AtomicU64::new(0),
            started: Instant::now(),
            room: Default::default(),
        }))
    }

    pub(crate) fn origin(&self) -> &Arc<str> {
        &self.origin
    }

    pub(crate) fn queued(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(crate) fn connections(&self) -> usize {
        self.state.lock().members.len()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.queued() == 0 && self.in_flight() == 0
    }

    pub(crate) fn is_full(&self, lane: Lane) -> bool {
        let state = self.state.lock();
        // Waiting callers are notified when half the lane is free; until then another caller would wait too.
        state.queue.is_full(lane) || state.waiting[lane as usize - 1]
    }

    /// When the queue last ran empty.
    pub(crate) fn used_at(&self) -> Instant {
        self.started + Duration::from_millis(self.used_ms.load(Ordering::Relaxed))
    }

    /// Waits while the lane is full. If dropped, the push is answered `Later`.
    pub(crate) async fn send(self: &Arc<Self>, pending: Pending) {
        let lane = pending.lane();
        let Err(mut pending) = self.offer(pending) else { return };
        let room = &self.room[lane as usize - 1];
        loop {
            // Subscribes before it checks, so that no notification is missed.
            let mut called = std::pin::pin!(room.notified());
            called.as_mut().enable();
            match self.offer(pending) {
                Ok(()) => return,
                Err(back) => pending = back,
            }
            called.await;
        }
    }

    /// Returns the push if its lane is full.
    fn offer(self: &Arc<Self>, pending: Pending) -> Result<(), Pending> {
        let lane = pending.lane();
        let mut state = self.state.lock();
        if let Some((reason, after)) = state.rejection(self.account.retry_after()) {
            drop(state);
            pending.later(reason, after, &self.account.counters);
            return Ok(());
        }
        if let Err(back) = state.queue.push(pending) {
            state.waiting[lane as usize - 1] = true;
            return Err(back);
        }
        self.queued.store(state.queue.len(), Ordering::Relaxed);
        let waker = state.unpark();
        let connect = waker.is_none() && state.members.is_empty() && self.may_connect(&mut state);
        drop(state);
        self.account.counters.queued(lane).inc();
        self.act(waker, connect);
        Ok(())
    }

    /// Performs, without the lock, what was decided under it.
    fn act(self: &Arc<Self>, waker: Option<Waker>, connect: bool) {
        if let Some(waker) = waker {
            waker.wake();
        }
        if connect {
            let context = &self.account.context;
            context.tasks.spawn_on(connect::run(self.clone()), &context.runtime);
        }
    }

    /// Moves up to `room` pushes into `batch` for a connection.
    pub(crate) fn take(&self, id: u32, room: usize, waker: &Waker, batch: &mut Vec<Pending>) -> Take {
        let mut state = self.state.lock();
        if state.is_ended() {
            return Take::Close;
        }
        let parked = state.queue.is_empty();
        state.register(id, waker, parked);
        if parked {
            drop(state);
            let used_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
            self.used_ms.store(used_ms, Ordering::Relaxed);
            return Take::Parked;
        }
        let wanted = room.min(state.queue.len());
        let now = Instant::now();
        let (count, probe) = match self.account.admit(wanted, now) {
            Admitted::Some { count, probe } => (count, probe),
            Admitted::Wait(until) => {
                state.paced_at = Some(now);
                return Take::Wait(until);
            }
            Admitted::Refuse { reason, after } => {
                self.flush(state, &Answer::Later { reason, after });
                return Take::Some { probe: false };
            }
        };
        let before = batch.len();
        batch.extend(std::iter::from_fn(|| state.queue.pop()).take(count));
        self.queued.store(state.queue.len(), Ordering::Relaxed);
        self.taken(state, count_lanes(&batch[before..]));
        Take::Some { probe }
    }

    /// Counts pushes that left the queue, and notifies callers that wait for room.
    fn taken(&self, mut state: MutexGuard<'_, State>, taken: [i64; Lane::ALL.len()]) {
        let mut call = [false; Lane::ALL.len()];
        for (lane, call) in Lane::ALL.into_iter().zip(&mut call) {
            let waiting = &mut state.waiting[lane as usize - 1];
            *call = std::mem::take(waiting);
            if *call && !state.queue.has_ample_room(lane) {
                state.waiting[lane as usize - 1] = true;
                *call = false;
            }
        }
        drop(state);
        for ((lane, count), call) in Lane::ALL.into_iter().zip(taken).zip(call) {
            if count > 0 {
                self.account.counters.queued(lane).dec_by(count);
            }
            if call {
                self.room[lane as usize - 1].notify_waiters();
            }
        }
    }

    /// Returns pushes that the peer did not process, or whose authorization it rejected, to the head of the queue.
    pub(crate) fn put_back(self: &Arc<Self>, again: &mut Vec<Pending>) {
        if again.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        if state.aborted {
            drop(state);
            again.drain(..).for_each(|pending| {
                pending.later("drain", self.account.retry_after(), &self.account.counters);
            });
            return;
        }
        // From last to first, so that they keep their order.
        for pending in again.drain(..).rev() {
            self.account.counters.queued(pending.lane()).inc();
            state.queue.put_back(pending);
        }
        self.queued.store(state.queue.len(), Ordering::Relaxed);
        let waker = state.unpark();
        let connect = waker.is_none() && state.members.is_empty() && self.may_connect(&mut state);
        drop(state);
        self.act(waker, connect);
    }

    /// Answers all queued pushes. A full queue takes milliseconds: a separate task answers those beyond the first
    /// [`ANSWERS_MAX`], so that other tasks of the thread run in between.
    fn flush(&self, mut state: MutexGuard<'_, State>, answer: &Answer) {
        let mut all: Vec<Pending> = std::iter::from_fn(|| state.queue.pop()).collect();
        self.queued.store(0, Ordering::Relaxed);
        self.taken(state, count_lanes(&all));
        let mut rest = all.split_off(all.len().min(ANSWERS_MAX));
        all.into_iter().for_each(|pending| pending.answer(answer.clone(), &self.account.counters));
        if rest.is_empty() {
            return;
        }
        let (account, answer) = (self.account.clone(), answer.clone());
        let task = async move {
            while !rest.is_empty() {
                tokio::task::yield_now().await;
                let next = rest.drain(..rest.len().min(ANSWERS_MAX));
                next.for_each(|pending| pending.answer(answer.clone(), &account.counters));
            }
        };
        let context = &self.account.context;
        context.tasks.spawn_on(task, &context.runtime);
    }

    /// Counts a connection's pushes in flight.
    pub(crate) fn count_in_flight(&self, before: usize, after: usize) {
        if after >= before {
            self.in_flight.fetch_add(after - before, Ordering::Relaxed);
        } else {
            self.in_flight.fetch_sub(before - after, Ordering::Relaxed);
        }
        self.account.counters.in_flight.inc_by(after as i64 - before as i64);
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.state.lock().aborted
    }

    /// Whether the queue is empty and the pool is closing.
    pub(crate) fn is_ended(&self) -> bool {
        self.state.lock().is_ended()
    }

    /// Makes every connection check again: there is an authorization, or the pool closes.
    pub(crate) fn wake(&self) {
        let wakers: Vec<Waker> = {
            let mut state = self.state.lock();
            state.members.iter_mut().map(|member| (member.parked = false, member.waker.clone()).1).collect()
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Finishes queued and in-flight pushes, then closes.
    pub(crate) fn close(&self) {
        self.state.lock().closing = true;
        self.wake();
    }

    /// Answers `Later` for everything at once.
    pub(crate) fn abort(&self) {
        let mut state = self.state.lock();
        state.closing = true;
        state.aborted = true;
        self.flush(state, &Answer::Later { reason: "drain", after: self.account.retry_after() });
        self.wake();
    }
}

fn count_lanes(pushes: &[Pending]) -> [i64; Lane::ALL.len()] {
    let mut counts = [0; Lane::ALL.len()];
    pushes.iter().for_each(|pending| counts[pending.lane() as usize - 1] += 1);
    counts
}

impl State {
    /// Why a push need not be queued at all.
    fn rejection(&mut self, retry_after: Duration) -> Option<(Reason, Duration)> {
        if self.aborted {
            return Some(("drain", retry_after));
        }
        let (reason, until) = self.unreachable?;
        match until.saturating_duration_since(Instant::now()) {
            Duration::ZERO => {
                self.unreachable = None;
                None
            }
            // Nothing was sent, so this is no retry for the push service.
            after => Some((reason, after)),
        }
    }

    fn is_ended(&self) -> bool {
        self.aborted || self.closing && self.queue.is_empty()
    }

    /// A push wakes only parked connections; those that wait for a time have a timer.
    fn register(&mut self, id: u32, waker: &Waker, parked: bool) {
        if let Some(member) = self.members.iter_mut().find(|member| member.id == id) {
            member.parked = parked;
            if !member.waker.will_wake(waker) {
                member.waker = waker.clone();
            }
        }
    }

    /// The first parked connection, which is unparked.
    fn unpark(&mut self) -> Option<Waker> {
        let member = self.members.iter_mut().find(|member| member.parked)?;
        member.parked = false;
        Some(member.waker.clone())
    }
}
