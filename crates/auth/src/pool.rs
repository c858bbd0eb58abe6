//! Threads that verify tokens with public keys, so that neither a shard nor an API thread does.
//!
//! The queue is bounded and shared by the apps: an app may add a task while it has fewer than three per free place (the
//! dynamic thresholds of packet switches). One app thus fills at most three quarters of the queue, a second one three
//! quarters of the rest, and under a continued flood their shares converge as the queue drains. A suspect (`failures`)
//! may add a task while its app has fewer than one per free place, so suspects leave room for others. A task without
//! room is dropped, and the log-in is rejected with advice to retry.
//!
//! The threads serve the apps in turn, one task each, so an app's next task waits for at most one task of each other
//! app. When the pool is dropped, the threads finish the queued tasks and end.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use noroshi_supervision::{Heartbeat, Kind, Threads};
use noroshi_types::AppId;
use parking_lot::{Condvar, Mutex};

use crate::failures::Standing;

/// Queued tasks of all apps: 0.2 s of one thread's work (RSA-2048 or P-256, 50 µs each).
pub const QUEUE_MAX: usize = 4_096;
/// A quarter of the cores; the others serve connections.
const THREADS_MAX: usize = 8;

pub(crate) type Task = Box<dyn FnOnce() + Send>;

pub(crate) struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    /// The lock guards the queue. No other lock is taken under it, and no task runs or is dropped under it.
    queue: Mutex<Queue>,
    ready: Condvar,
}

/// Invariants: `turns` lists each app of `tasks` once, and their lists are not empty; `len` is the sum of their
/// lengths.
struct Queue {
    tasks: HashMap<AppId, VecDeque<Task>>,
    turns: VecDeque<AppId>,
    len: usize,
    len_max: usize,
    is_closed: bool,
}

impl Queue {
    /// Returns the task if there is no room.
    fn push(&mut self, app: AppId, standing: Standing, task: Task) -> Result<(), Task> {
        let held = self.tasks.get(&app).map_or(0, VecDeque::len);
        let free = self.len_max - self.len;
        let held_max = match standing {
            Standing::Good => 3 * free,
            Standing::Suspect => free,
        };
        if held >= held_max {
            return Err(task);
        }
        if held == 0 {
            self.turns.push_back(app);
        }
        self.tasks.entry(app).or_default().push_back(task);
        self.len += 1;
        Ok(())
    }

    fn pop(&mut self) -> Option<Task> {
        let app = self.turns.pop_front()?;
        let tasks = self.tasks.get_mut(&app)?;
        let task = tasks.pop_front()?;
        self.len -= 1;
        match tasks.is_empty() {
            true => drop(self.tasks.remove(&app)),
            false => self.turns.push_back(app),
        }
        Some(task)
    }
}

impl Pool {
    pub(crate) fn start(threads: &Threads) -> io::Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self::with((cores / 4).clamp(1, THREADS_MAX), QUEUE_MAX, threads)
    }

    fn with(count: usize, len_max: usize, threads: &Threads) -> io::Result<Self> {
        let queue =
            Queue { tasks: HashMap::new(), turns: VecDeque::new(), len: 0, len_max, is_closed: false };
        let pool = Self { shared: Arc::new(Shared { queue: Mutex::new(queue), ready: Condvar::new() }) };
        for index in 0..count {
            let shared = pool.shared.clone();
            threads.spawn(Kind::Verifier, format!("verify-{index}"), move |pulse| work(&shared, pulse))?;
        }
        Ok(pool)
    }

    /// False if there is no room for the app; then the task is dropped.
    pub(crate) fn submit(&self, app: AppId, standing: Standing, task: Task) -> bool {
        // Drops a rejected task after releasing the lock.
        let pushed = self.shared.queue.lock().push(app, standing, task);
        if pushed.is_ok() {
            self.shared.ready.notify_one();
        }
        pushed.is_ok()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.queue.lock().is_closed = true;
        self.shared.ready.notify_all();
    }
}

/// None if the pool was dropped and the queue is empty.
fn next(shared: &Shared) -> Option<Task> {
    let mut queue = shared.queue.lock();
    loop {
        match queue.pop() {
            Some(task) => return Some(task),
            None if queue.is_closed => return None,
            None => shared.ready.wait(&mut queue),
        }
    }
}

fn work(shared: &Shared, pulse: &Heartbeat) {
    loop {
        pulse.waiting();
        let Some(task) = next(shared) else { return };
        pulse.working();
        // Dropping the task answers the caller (`verify::Answer`).
        if catch_unwind(AssertUnwindSafe(task)).is_err() {
            tracing::error!("the verification of a token panicked; the log-in is rejected");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const LOUD: AppId = AppId(1);
    const QUIET: AppId = AppId(2);

    fn queue(len_max: usize) -> Queue {
        Queue { tasks: HashMap::new(), turns: VecDeque::new(), len: 0, len_max, is_closed: false }
    }

    /// The number of accepted tasks.
    fn flood(queue: &mut Queue, app: AppId, standing: Standing) -> usize {
        (0..1_000).filter(|_| queue.push(app, standing, Box::new(|| {})).is_ok()).count()
    }

    #[test]
    fn apps_that_flood_the_queue_leave_room_for_another() {
        let mut queue = queue(256);
        assert_eq!(flood(&mut queue, LOUD, Standing::Good), 192);
        assert_eq!(flood(&mut queue, QUIET, Standing::Good), 48);
        assert_eq!(flood(&mut queue, AppId(3), Standing::Suspect), 8);
        assert_eq!(flood(&mut queue, AppId(4), Standing::Good), 6);
        assert_eq!((queue.len, queue.turns.len()), (254, 4));
    }

    #[test]
    fn the_shares_of_flooding_apps_converge() {
        let mut queue = queue(64);
        for _ in 0..1_000 {
            for app in [LOUD, QUIET, AppId(3)] {
                flood(&mut queue, app, Standing::Good);
            }
            assert!(queue.pop().is_some());
        }
        let held = |app| queue.tasks.get(&app).map_or(0, VecDeque::len);
        let shares = [held(LOUD), held(QUIET), held(AppId(3))];
        assert!(shares.iter().all(|share| (17..=20).contains(share)), "{shares:?}");
    }

    #[test]
    fn suspects_leave_room_for_others() {
        let mut queue = queue(64);
        assert_eq!(flood(&mut queue, LOUD, Standing::Suspect), 32);
        assert_eq!(flood(&mut queue, LOUD, Standing::Good), 16);
    }

    #[test]
    fn apps_are_served_in_turn() {
        let mut queue = queue(64);
        let (sender, served) = mpsc::sync_channel(6);
        for (app, count) in [(LOUD, 4), (QUIET, 2)] {
            for _ in 0..count {
                let sender = sender.clone();
                let task = Box::new(move || sender.send(app).expect("the test listens"));
                assert!(queue.push(app, Standing::Good, task).is_ok());
            }
        }
        while let Some(task) = queue.pop() {
            task();
        }
        assert_eq!(served.try_iter().collect::<Vec<_>>(), [LOUD, QUIET, LOUD, QUIET, LOUD, LOUD]);
        assert!(queue.tasks.is_empty() && queue.len == 0);
    }

    #[test]
    fn a_panic_ends_only_its_task_and_dropping_the_pool_ends_none() {
        let pool = Pool::with(1, 16, &Threads::default()).expect("threads");
        let (done, finished) = mpsc::sync_channel(4);
        let submit = |task: Task| assert!(pool.submit(LOUD, Standing::Good, task));
        submit(Box::new(|| panic!("a task of the test")));
        for _ in 0..3 {
            let done = done.clone();
            submit(Box::new(move || done.send(()).expect("the test listens")));
        }
        drop((pool, done));
        assert_eq!(finished.iter().count(), 3, "queued tasks are done");
    }
}
