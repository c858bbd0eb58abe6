//! The writer thread: group commit.
//!
//! ```text
//!   submit ──► bounded queue ──► BEGIN ─ op ─ op ─ op ─ staged rows ─ COMMIT (fsync) ──► answers, in order
//!                  ▲                     each in its savepoint                                  │
//!                  └───────────────── what arrives meanwhile is the next group ◄────────────────┘
//! ```
//!
//! Operations that accept or acknowledge notifications stage rows ([`super::staged`]). All other operations see these
//! rows, because the writer writes them first.
//!
//! The writer does not wait for fuller groups: the next group gathers during the fsync of the current one. A failed
//! operation only rolls back its own changes; a failed commit fails the whole group. A savepoint copies every page
//! before its first change, so operations that can run again go without at first: if one fails half way, the writer
//! rolls back the transaction and runs them again, each in its savepoint. Every operation is answered exactly once,
//! at the latest by its `Drop`. An answer that panics does not affect other answers, but ends the node: its message
//! is committed and may not have been delivered, and the next start reads it.

mod unfinished;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use noroshi_supervision::{Heartbeat, Kind, Threads, What};
use noroshi_types::AppId;
use prometheus_client::metrics::histogram::Histogram;

use self::unfinished::Unfinished;
use super::expanding::Expanding;
use super::expiring::Expiring;
use super::options::Options;
use super::reader::Read;
use super::room::Room;
use super::staged::Staged;
use super::statement::Db;
use crate::Error;
use crate::ids::{Ids, Num};
use crate::metrics::{Held, Metrics};

/// For how long the operations of a group run, with the writing of their rows: half of the 100 ms that a commit may
/// take. The last operation may exceed it.
const GROUP_TIME: Duration = Duration::from_millis(50);
/// What writing a staged row takes, about.
const STAGED_ROW: Duration = Duration::from_micros(5);

/// The context of an operation.
pub(crate) struct Write<'a> {
    pub db: &'a Db,
    pub ids: &'a Ids,
    pub room: &'a mut Room,
    pub staged: &'a mut Staged,
    pub expiring: &'a mut Expiring,
    pub expanding: &'a mut Expanding,
    pub options: &'a Options,
    /// For metrics; an operation sets it.
    pub held: Cell<Held>,
    held_seconds: &'a [Histogram],
}

impl<'a> Write<'a> {
    pub(super) fn read(&self) -> Read<'a> {
        Read { db: self.db, ids: self.ids }
    }

    /// Whether the rest of the group belongs to the next commit.
    fn is_out_of_time(&self, started: Instant, results: &[Result<(), Error>]) -> bool {
        let staged = STAGED_ROW * u32::try_from(self.staged.len()).unwrap_or(u32::MAX);
        !results.is_empty() && started.elapsed() + staged >= GROUP_TIME
    }

    /// Writes the staged rows.
    fn write_staged(&mut self) -> Result<(), Error> {
        self.staged.write(self.db)?;
        self.room.trim();
        Ok(())
    }

    /// Forgets what is known of rows, after a rollback of the whole transaction brought back rows that had been
    /// removed.
    fn forget(&mut self) {
        self.staged.clear();
        self.room.clear();
        self.expiring.clear();
    }
}

/// An operation of the writer with its answer.
pub(super) trait Job: Send {
    /// Approximate number of rows it writes.
    fn rows(&self) -> usize;
    fn kind(&self) -> JobKind;
    /// The app whose notification it accepts. It waits for an earlier acceptance that takes several commits.
    fn app(&self) -> Option<AppId> {
        None
    }
    /// The number of the notification that it writes in several commits.
    fn expansion(&self) -> Option<Num> {
        None
    }
    fn run(&mut self, write: &mut Write<'_>) -> Result<(), Error>;
    /// Called after the commit.
    fn end(&mut self, result: Result<(), Error>) -> Next;
    /// Answers it with an error. It is dropped afterwards.
    fn refuse(&mut self, error: Error);
    /// It waits for an acceptance of its app.
    fn set_aside(&mut self) {}
}

/// What becomes of a job after a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// It was answered.
    Done,
    /// It needs another commit.
    Again,
    /// It did not run, because an acceptance of its app takes several commits.
    Aside,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum JobKind {
    /// Runs once, after the staged rows are written.
    Any,
    /// May run again after a rollback. Does not depend on staged rows, so it may run before they are written: it adds
    /// rows to inboxes, or removes rows of earlier commits, and reads no traces.
    Repeatable,
}

struct Op<W, T, D: FnOnce(Result<T, Error>)> {
    rows: usize,
    kind: JobKind,
    work: W,
    output: Option<T>,
    done: Option<D>,
}

impl<W, T, D> Job for Op<W, T, D>
where
    W: FnMut(&mut Write<'_>) -> Result<T, Error> + Send,
    T: Send,
    D: FnOnce(Result<T, Error>) + Send,
{
    fn rows(&self) -> usize {
        self.rows
    }

    fn kind(&self) -> JobKind {
        self.kind
    }

    fn run(&mut self, write: &mut Write<'_>) -> Result<(), Error> {
        self.output = Some((self.work)(write)?);
        Ok(())
    }

    fn end(&mut self, result: Result<(), Error>) -> Next {
        let output = self.output.take();
        if let Some(done) = self.done.take() {
            done(result.and_then(|()| output.ok_or(Error::Closed)));
        }
        Next::Done
    }

    fn refuse(&mut self, error: Error) {
        self.end(Err(error));
    }
}

impl<W, T, D: FnOnce(Result<T, Error>)> Drop for Op<W, T, D> {
    fn drop(&mut self) {
        if let Some(done) = self.done.take() {
            done(Err(Error::Closed));
        }
    }
}

type Queue = Sender<Box<dyn Job>>;

/// The name of the lock in failure reports.
const LOCK: &str = "the write queue";

/// The handle of the writer thread.
pub(super) struct Writer {
    /// None once closed. The lock is held for a `try_send` and never across an await.
    queue: RwLock<Option<Queue>>,
    /// Rows that queued operations may write.
    queued_rows: Arc<AtomicUsize>,
    rows_max: usize,
    threads: Threads,
    metrics: Metrics,
}

impl Writer {
    /// Returns the handle, and the loop for the writer's thread.
    pub(super) fn new(options: &Options, metrics: Metrics) -> (Self, Loop) {
        let (queue, jobs) = bounded(options.write_queue);
        let queued_rows = Arc::new(AtomicUsize::new(0));
        let writer = Self {
            queue: RwLock::new(Some(queue)),
            queued_rows: Arc::clone(&queued_rows),
            rows_max: options.write_queue_rows,
            threads: options.threads.clone(),
            metrics: metrics.clone(),
        };
        let held_seconds = metrics.held();
        (writer, Loop { jobs, queued_rows, metrics, held_seconds })
    }

    /// Queues an operation without waiting. `done` gets the result: at once if the queue is full, otherwise on the
    /// writer's thread after the commit.
    pub(super) fn submit<T: Send + 'static>(
        &self,
        rows: usize,
        work: impl FnOnce(&mut Write<'_>) -> Result<T, Error> + Send + 'static,
        done: impl FnOnce(Result<T, Error>) + Send + 'static,
    ) {
        let mut once = Some(work);
        let work = move |write: &mut Write<'_>| once.take().ok_or(Error::Closed)?(write);
        self.submit_job(Op { rows: rows + 1, kind: JobKind::Any, work, output: None, done: Some(done) });
    }

    /// The same for an operation that can run again and does not depend on staged rows.
    pub(super) fn submit_repeatable<T: Send + 'static>(
        &self,
        rows: usize,
        work: impl Fn(&mut Write<'_>) -> Result<T, Error> + Send + 'static,
        done: impl FnOnce(Result<T, Error>) + Send + 'static,
    ) {
        self.submit_job(Op {
            rows: rows + 1,
            kind: JobKind::Repeatable,
            work,
            output: None,
            done: Some(done),
        });
    }

    pub(super) fn submit_job(&self, job: impl Job + 'static) {
        if let Err((mut job, error)) = self.queue_up(Box::new(job)) {
            self.metrics.refused.inc();
            job.refuse(error);
        }
    }

    /// Queues a background operation, which can run again and does not use inboxes. It is dropped if the queue is more
    /// than half full, so that traces do not displace requests.
    pub(super) fn submit_background(
        &self,
        rows: usize,
        work: impl Fn(&mut Write<'_>) -> Result<(), Error> + Send + 'static,
    ) {
        let half_full = {
            let queue = self.threads.unpoison(LOCK, Kind::StoreWriter, self.queue.read());
            queue.as_ref().is_none_or(|queue| queue.len() * 2 >= queue.capacity().unwrap_or(usize::MAX))
        };
        let done = |result: Result<(), Error>| {
            if let Err(error) = result {
                tracing::debug!(%error, "an outcome was not recorded");
            }
        };
        let job = Op { rows: rows + 1, kind: JobKind::Repeatable, work, output: None, done: Some(done) };
        if half_full
            || self.queued_rows.load(Ordering::Relaxed) * 2 > self.rows_max
            || self.queue_up(Box::new(job)).is_err()
        {
            self.metrics.dropped_behind.inc();
        }
    }

    fn queue_up(&self, job: Box<dyn Job>) -> Result<(), (Box<dyn Job>, Error)> {
        let queue = self.threads.unpoison(LOCK, Kind::StoreWriter, self.queue.read());
        let Some(queue) = queue.as_ref() else { return Err((job, Error::Closed)) };
        let rows = job.rows();
        // A single operation is always accepted, however large.
        if self.queued_rows.fetch_add(rows, Ordering::Relaxed) > self.rows_max {
            self.queued_rows.fetch_sub(rows, Ordering::Relaxed);
            return Err((job, Error::Overloaded));
        }
        queue.try_send(job).map_err(|error| {
            self.queued_rows.fetch_sub(rows, Ordering::Relaxed);
            match error {
                TrySendError::Full(job) => (job, Error::Overloaded),
                TrySendError::Disconnected(job) => (job, Error::Closed),
            }
        })?;
        self.metrics.queue_operations.inc();
        Ok(())
    }

    /// Accepts no more operations; the loop ends when the queue is empty.
    pub(super) fn close(&self) {
        self.threads.unpoison(LOCK, Kind::StoreWriter, self.queue.write()).take();
    }
}

/// The writer thread's end of the queue.
pub(super) struct Loop {
    jobs: Receiver<Box<dyn Job>>,
    queued_rows: Arc<AtomicUsize>,
    metrics: Metrics,
    /// By [`Held`].
    held_seconds: Vec<Histogram>,
}

impl Loop {
    /// Runs until the queue is closed and empty.
    pub(super) fn run(self, db: &Db, ids: &Ids, options: &Options, pulse: &Heartbeat) {
        let (mut room, mut staged, mut expiring) = (Room::default(), Staged::default(), Expiring::default());
        let mut expanding = Expanding::default();
        let mut write = Write {
            db,
            ids,
            room: &mut room,
            staged: &mut staged,
            expiring: &mut expiring,
            expanding: &mut expanding,
            options,
            held: Cell::new(Held::Other),
            held_seconds: &self.held_seconds,
        };
        let (mut group, mut unfinished) = (Vec::new(), Unfinished::default());
        loop {
            pulse.waiting();
            if !self.gather(&mut group, &mut unfinished, write.expanding, options, pulse) {
                return;
            }
            let started = Instant::now();
            let results = commit(&mut group, &mut write, pulse);
            self.metrics.commit_seconds.observe(started.elapsed().as_secs_f64());
            self.metrics.commit_operations.observe(results.len() as f64);
            match results.iter().any(Result::is_ok) {
                true => self.metrics.commits.inc(),
                false => self.metrics.commit_failures.inc(),
            };
            let mut aside = Vec::new();
            let mut jobs = group.drain(..);
            for (result, mut job) in results.into_iter().zip(&mut jobs) {
                match catch_unwind(AssertUnwindSafe(|| job.end(result))) {
                    Ok(Next::Done) => {}
                    Ok(Next::Again) => unfinished.again(job),
                    Ok(Next::Aside) => aside.push(job),
                    Err(_) => {
                        tracing::error!("the answer to a committed write panicked");
                        pulse.fail(What::Unanswered);
                    }
                }
            }
            write.expanding.reset(unfinished.expanding().map(|job| (job.app(), job.expansion())));
            let (waiting, postponed): (Vec<_>, Vec<_>) =
                jobs.partition(|job| job.app().is_some_and(|app| write.expanding.has(app)));
            aside.extend(waiting);
            aside.iter_mut().for_each(|job| job.set_aside());
            unfinished.set_aside_first(aside);
            unfinished.postpone(postponed);
        }
    }

    /// Waits for work, and takes queued operations, up to the size of a group. Returns false at the end.
    fn gather(
        &self,
        group: &mut Vec<Box<dyn Job>>,
        unfinished: &mut Unfinished,
        expanding: &Expanding,
        options: &Options,
        pulse: &Heartbeat,
    ) -> bool {
        let mut rows = unfinished.begin(group, expanding, options);
        while rows < options.group_rows_max && group.len() < options.group_operations_max {
            let job = match group.is_empty() && !unfinished.has_work() {
                true => match self.jobs.recv() {
                    Ok(job) => job,
                    Err(_) => return false,
                },
                false => match self.jobs.try_recv() {
                    Ok(job) => job,
                    Err(_) => break,
                },
            };
            self.queued_rows.fetch_sub(job.rows(), Ordering::Relaxed);
            self.metrics.queue_operations.dec();
            if job.app().is_some_and(|app| expanding.has(app) || unfinished.has_aside(app)) {
                self.set_aside(job, unfinished, options);
                continue;
            }
            rows += job.rows();
            group.push(job);
        }
        pulse.working();
        true
    }

    /// The job waits for an expansion of its app.
    fn set_aside(&self, mut job: Box<dyn Job>, unfinished: &mut Unfinished, options: &Options) {
        if unfinished.is_full(options) {
            self.metrics.refused.inc();
            return job.refuse(Error::Overloaded);
        }
        job.set_aside();
        unfinished.set_aside(job);
    }
}

/// Runs a group in one transaction. Returns a result for each job that ran: the first ones, at least one.
fn commit(group: &mut [Box<dyn Job>], write: &mut Write<'_>, pulse: &Heartbeat) -> Vec<Result<(), Error>> {
    let mut results: Vec<Result<(), Error>> = Vec::with_capacity(group.len());
    let repeatable = group.iter().take_while(|job| job.kind() == JobKind::Repeatable).count();
    let started = Instant::now();
    if !run_without_savepoints(&mut group[..repeatable], write, &mut results, pulse, started) {
        roll_back(write.db, "ROLLBACK");
        write.forget();
        results.clear();
    }
    for job in group.iter_mut().skip(results.len()) {
        if write.is_out_of_time(started, &results) {
            break;
        }
        // A group may take long on a slow disk, but a single operation must not.
        pulse.working();
        if job.kind() == JobKind::Any || write.staged.is_full(write.options.inbox_rows) {
            write_staged(write, &mut results);
        }
        // SQLite may have rolled back the whole transaction after an error; then the rest starts a new one.
        let begun = if write.db.is_autocommit() { execute(write.db, "BEGIN IMMEDIATE") } else { Ok(()) };
        let result = begun.and_then(|()| run_in_savepoint(job.as_mut(), write));
        if let Err(error) = &result
            && write.db.is_autocommit()
        {
            fail_all(&mut results, error);
            write.forget();
        }
        results.push(result);
    }
    pulse.working();
    write_staged(write, &mut results);
    if !write.db.is_autocommit()
        && let Err(error) = execute(write.db, "COMMIT")
    {
        roll_back(write.db, "ROLLBACK");
        fail_all(&mut results, &error);
        write.forget();
    }
    results
}

/// Runs repeatable operations until one fails half way; then false, and all must be rolled back.
fn run_without_savepoints(
    jobs: &mut [Box<dyn Job>],
    write: &mut Write<'_>,
    results: &mut Vec<Result<(), Error>>,
    pulse: &Heartbeat,
    started: Instant,
) -> bool {
    if jobs.is_empty() {
        return true;
    }
    if execute(write.db, "BEGIN IMMEDIATE").is_err() {
        return false;
    }
    for job in jobs {
        if write.is_out_of_time(started, results) {
            break;
        }
        pulse.working();
        if write.staged.is_full(write.options.inbox_rows) && write.write_staged().is_err() {
            return false;
        }
        let (changes, staged) = (write.db.total_changes(), write.staged.mark());
        let result = run_caught(job.as_mut(), write);
        if result.is_err() {
            write.staged.truncate(staged);
            if write.db.total_changes() != changes || write.db.is_autocommit() {
                return false;
            }
        }
        results.push(result);
    }
    true
}

/// Runs an operation and measures how long it holds the writer.
fn run_caught(job: &mut dyn Job, write: &mut Write<'_>) -> Result<(), Error> {
    let started = Instant::now();
    write.held.set(Held::Other);
    let result = run_guarded(job, write);
    if let Some(held) = write.held_seconds.get(write.held.get() as usize) {
        held.observe(started.elapsed().as_secs_f64());
    }
    result
}

fn run_guarded(job: &mut dyn Job, write: &mut Write<'_>) -> Result<(), Error> {
    catch_unwind(AssertUnwindSafe(|| job.run(write)))
        .unwrap_or_else(|_| Err(Error::Engine("an operation panicked".to_owned())))
}

/// Writes the staged rows of the operations so far. If that fails, so do these operations.
fn write_staged(write: &mut Write<'_>, results: &mut [Result<(), Error>]) {
    if let Err(error) = write.write_staged() {
        roll_back(write.db, "ROLLBACK");
        fail_all(results, &error);
        write.forget();
    }
}

fn fail_all(results: &mut [Result<(), Error>], error: &Error) {
    for result in results.iter_mut().filter(|result| result.is_ok()) {
        *result = Err(error.clone());
    }
}

fn run_in_savepoint(job: &mut dyn Job, write: &mut Write<'_>) -> Result<(), Error> {
    let db = write.db;
    execute(db, "SAVEPOINT op")?;
    let staged = write.staged.mark();
    let result = run_caught(job, write).and_then(|()| execute(db, "RELEASE op"));
    if result.is_err() {
        write.staged.truncate(staged);
    }
    if result.is_err() && !db.is_autocommit() {
        roll_back(db, "ROLLBACK TO op");
        roll_back(db, "RELEASE op");
    }
    result
}

fn execute(db: &Db, sql: &str) -> Result<(), Error> {
    db.prepare_cached(sql)?.execute(())?;
    Ok(())
}

fn roll_back(db: &Db, sql: &str) {
    if let Err(error) = execute(db, sql)
        && !db.is_autocommit()
    {
        tracing::error!(%error, "a write could not be rolled back");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use prometheus_client::registry::Registry;

    use super::*;
    use crate::sqlite::schema;

    type Work = fn(&mut Write<'_>) -> Result<(), Error>;

    /// Runs operations in one group on a fresh database, and compares results and stored rows. The group starts with
    /// any number of repeatable operations.
    fn check(work: &[Work], expected: &[Result<(), &str>], kept: &[&str]) {
        (0..=work.len()).for_each(|repeatable| check_with(repeatable, work, expected, kept));
    }

    fn check_with(repeatable: usize, work: &[Work], expected: &[Result<(), &str>], kept: &[&str]) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let db = schema::open_writer(&folder.path().join("noroshi.db"), None).expect("opened");
        db.execute_batch(
            "PRAGMA foreign_keys = ON; CREATE TABLE parent (id INTEGER PRIMARY KEY);
             CREATE TABLE child (parent REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)",
        )
        .expect("created");
        let options = Options::default();
        let (writer, work_loop) = Writer::new(&options, Metrics::register(&mut Registry::default()));
        let (answer, answers) = mpsc::sync_channel(work.len());
        for (at, &work) in work.iter().enumerate() {
            let answer = answer.clone();
            let done = move |result| answer.send(result).expect("room");
            match at < repeatable {
                true => writer.submit_repeatable(1, work, done),
                false => writer.submit(1, work, done),
            }
        }
        writer.close();
        let pulse = Threads::default().register(Kind::StoreWriter, "store-writer");
        work_loop.run(&db, &Ids::new(&[0; 16], 0), &options, &pulse);
        let results: Vec<_> =
            answers.try_iter().map(|result| result.map_err(|error| error.to_string())).collect();
        assert_eq!(results.len(), expected.len());
        for (result, expected) in results.iter().zip(expected) {
            match (result, expected) {
                (Ok(()), Ok(())) => {}
                (Err(error), Err(part)) if error.contains(part) => {}
                _ => panic!("{result:?}, expected {expected:?}"),
            }
        }
        let mut names = db.prepare("SELECT name FROM secrets ORDER BY name").expect("prepared");
        let names: Vec<String> =
            names.query_map((), |row| row.get(0)).expect("read").collect::<Result<_, _>>().expect("read");
        assert_eq!(names, kept);
    }

    fn put(w: &Write<'_>, name: &str) -> Result<(), Error> {
        w.db.execute("INSERT INTO secrets VALUES (?1, x'00')", (name,))?;
        Ok(())
    }

    #[test]
    fn a_failed_operation_rolls_back_only_itself() {
        let fails: Work = |w| put(w, "b").and(Err(Error::NotFound));
        let panics: Work = |w| panic!("a panic for this test: {:?}", put(w, "c"));
        let twice: Work = |w| put(w, "d").and(put(w, "d"));
        check(
            &[|w| put(w, "a"), fails, panics, twice, |w| put(w, "e")],
            &[Ok(()), Err("not found"), Err("panicked"), Err("UNIQUE"), Ok(())],
            &["a", "e"],
        );
    }

    #[test]
    fn a_panicking_answer_fails_the_thread_but_not_other_answers() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let db = schema::open_writer(&folder.path().join("noroshi.db"), None).expect("opened");
        let options = Options::default();
        let (writer, work_loop) = Writer::new(&options, Metrics::register(&mut Registry::default()));
        let (answer, answers) = mpsc::sync_channel(2);
        for (name, answer) in [("a", Some(answer.clone())), ("b", None), ("c", Some(answer))] {
            let work = move |w: &mut Write<'_>| put(w, name);
            writer.submit(1, work, move |result| match answer {
                Some(answer) => answer.send(result).expect("room"),
                None => panic!("a panic for this test"),
            });
        }
        writer.close();
        let pulse = options.threads.register(Kind::StoreWriter, "store-writer");
        work_loop.run(&db, &Ids::new(&[0; 16], 0), &options, &pulse);
        assert_eq!(answers.try_iter().filter(Result::is_ok).count(), 2);
        let kept: i64 = db.query_row("SELECT count(*) FROM secrets", (), |row| row.get(0)).expect("read");
        assert_eq!(kept, 3);
        assert_eq!(options.threads.failure().map(|failure| failure.what), Some(What::Unanswered));
    }

    #[test]
    fn a_failed_commit_fails_the_group() {
        let breaks_the_commit: Work = |w| {
            w.db.execute("INSERT INTO child VALUES (7)", ())?;
            Ok(())
        };
        check(
            &[|w| put(w, "a"), breaks_the_commit, |_| Err(Error::NotFound)],
            &[Err("FOREIGN KEY"), Err("FOREIGN KEY"), Err("not found")],
            &[],
        );
    }

    #[test]
    fn a_lost_transaction_fails_its_operations() {
        let loses: Work = |w| {
            w.db.execute_batch("ROLLBACK")?;
            Err(Error::Full)
        };
        check(&[|w| put(w, "a"), loses, |w| put(w, "b")], &[Err("full"), Err("full"), Ok(())], &["b"]);
    }
}
