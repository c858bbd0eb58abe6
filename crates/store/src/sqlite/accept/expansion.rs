//! Accepting a notification as a job of the writer, and what its expansion leaves to the clean-up
//! (see [`crate::engine::expansion`]).
//!
//! ```text
//!   begin ─┬─ accepted ──────────────────────────────► answer
//!          └─ too many devices ─► [count] ─► slice ─► slice ─► … ─► last slice, accepted ─► answer
//!                                            each in its own commit
//! ```
//!
//! With a gate, the devices are counted first: the gate decides before the first row is written. A step that fails ends
//! the expansion with its error. The position is in memory: a new process continues no expansion.

use std::time::Instant;

use noroshi_types::{AppId, Condition, DeviceNum, Outcome, Target, Timestamp};

use super::{Begun, Stored};
use crate::engine::device_list;
use crate::engine::expansion::{Row, SETTLED_MAX, SLICE, SLICE_DEVICES, SlicedDevices, State};
use crate::engine::notification::Standing;
use crate::engine::outcome::Part;
use crate::engine::preferences;
use crate::engine::record::Record;
use crate::ids::Num;
use crate::metrics::Held;
use crate::sqlite::inbox::{self, RemovedRows};
use crate::sqlite::statement::{Db, ready};
use crate::sqlite::writer::{Job, JobKind, Next, Write};
use crate::sqlite::{audience, outcome};
use crate::{Accept, Accepted, Done, Error, Gate, Pruned, RemovedMessages};

/// Devices between two looks at the clock: about 5 ms.
const CHUNK: usize = 250;
/// The same for counting, which is faster.
const COUNT_CHUNK: usize = 5_000;

/// How far an acceptance is, up to the last commit.
enum Progress {
    New,
    /// Devices before this place were counted.
    Counting {
        after: u64,
        count: u64,
    },
    Writing {
        num: Num,
        after: u64,
        kept: SlicedDevices,
        muted: SlicedDevices,
        departed: RemovedMessages,
    },
}

/// What the current commit adds.
enum Step {
    Accepted(Accepted),
    Count {
        after: u64,
        count: u64,
    },
    /// The number is drawn.
    Numbered(Num),
    Written {
        after: u64,
        devices: Vec<DeviceNum>,
        muted: Vec<DeviceNum>,
        departed: RemovedMessages,
    },
}

/// Accepts a notification, in as many commits as it needs.
pub(super) struct AcceptJob {
    rows: usize,
    accept: Accept,
    done: Option<Done>,
    progress: Progress,
    step: Option<Step>,
    /// It did not run in this group, because an expansion of its app has not ended.
    is_set_aside: bool,
}

impl AcceptJob {
    pub(super) fn new(rows: usize, accept: Accept, done: Done) -> Self {
        let (progress, step) = (Progress::New, None);
        Self { rows: rows + 1, accept, done: Some(done), progress, step, is_set_aside: false }
    }

    fn answer(&mut self, result: Result<Accepted, Error>) -> Next {
        if let Some(done) = self.done.take() {
            done(result);
        }
        Next::Done
    }

    /// It takes longer from now on.
    fn waits(&self) {
        if let Some(gate) = &self.accept.gate {
            gate.waits();
        }
    }
}

impl Job for AcceptJob {
    fn rows(&self) -> usize {
        self.rows
    }

    fn kind(&self) -> JobKind {
        JobKind::Repeatable
    }

    fn app(&self) -> Option<AppId> {
        Some(self.accept.app)
    }

    fn expansion(&self) -> Option<Num> {
        match self.progress {
            Progress::Writing { num, .. } => Some(num),
            Progress::New | Progress::Counting { .. } => None,
        }
    }

    fn run(&mut self, w: &mut Write<'_>) -> Result<(), Error> {
        let is_new = matches!(self.progress, Progress::New);
        self.is_set_aside = is_new && w.expanding.has(self.accept.app);
        if self.is_set_aside {
            return Ok(());
        }
        w.held.set(Held::Accept);
        let accept = &self.accept;
        let step = match &self.progress {
            Progress::New => match super::begin(w, accept)? {
                Begun::Accepted(accepted) => Step::Accepted(accepted),
                Begun::TooMany => {
                    // Later notifications of the app in this group wait too.
                    w.expanding.add_app(accept.app);
                    match &accept.gate {
                        Some(gate) if gate.decides() => Step::Count { after: 0, count: 0 },
                        _ => Step::Numbered(number(w, accept)?),
                    }
                }
            },
            &Progress::Counting { after, count } => count_slice(w, accept, after, count)?,
            Progress::Writing { num, after, kept, muted, departed } => {
                slice(w, accept, *num, *after, (kept, muted, departed))?
            }
        };
        if let Step::Numbered(num) = &step {
            w.expanding.add_num(*num);
        }
        self.step = Some(step);
        Ok(())
    }

    fn end(&mut self, result: Result<(), Error>) -> Next {
        if std::mem::take(&mut self.is_set_aside) {
            return Next::Aside;
        }
        let step = self.step.take();
        match (result, step) {
            (Err(error), _) => self.answer(Err(error)),
            (Ok(()), None) => self.answer(Err(Error::Closed)),
            (Ok(()), Some(Step::Accepted(accepted))) => self.answer(Ok(accepted)),
            (Ok(()), Some(Step::Count { after, count })) => {
                self.progress = Progress::Counting { after, count };
                self.waits();
                Next::Again
            }
            (Ok(()), Some(Step::Numbered(num))) => {
                let (kept, muted) = (SlicedDevices::default(), SlicedDevices::default());
                let departed = RemovedMessages::default();
                self.progress = Progress::Writing { num, after: 0, kept, muted, departed };
                self.waits();
                Next::Again
            }
            (Ok(()), Some(Step::Written { after: written, devices, muted: without, departed: more })) => {
                if let Progress::Writing { after, kept, muted, departed, .. } = &mut self.progress {
                    *after = written;
                    kept.add(&devices);
                    muted.add(&without);
                    departed.append(more);
                }
                Next::Again
            }
        }
    }

    fn refuse(&mut self, error: Error) {
        self.answer(Err(error));
    }

    fn set_aside(&mut self) {
        self.waits();
    }
}

impl Drop for AcceptJob {
    fn drop(&mut self) {
        self.answer(Err(Error::Closed));
    }
}

/// Draws the number. The row of `expansions` outlives a crash.
fn number(w: &Write<'_>, accept: &Accept) -> Result<Num, Error> {
    let num = w.ids.next(accept.now);
    let sql = "INSERT INTO expansions (num, app, state, place, until) VALUES (?1, ?2, ?3, 0, 0)";
    w.db.run(sql, (num, accept.app.0, State::Writing as u8))?;
    Ok(num)
}

fn condition(accept: &Accept) -> Result<&Condition, Error> {
    match &accept.request.target {
        Target::Condition(condition) => Ok(condition),
        _ => Err(Error::Engine("an expansion without a condition".to_owned())),
    }
}

/// Counts devices for some milliseconds. The gate gets the sum, and the number is drawn.
fn count_slice(w: &Write<'_>, accept: &Accept, mut after: u64, mut count: u64) -> Result<Step, Error> {
    let (condition, started) = (condition(accept)?, Instant::now());
    loop {
        let (devices, next) = audience::numbers(w.db, accept.app, condition, after as i64, COUNT_CHUNK)?;
        count += devices.len() as u64;
        match next {
            None => {
                Gate::check(accept.gate.as_ref(), usize::try_from(count).unwrap_or(usize::MAX))?;
                return number(w, accept).map(Step::Numbered);
            }
            Some(next) => after = next,
        }
        if started.elapsed() >= SLICE {
            return Ok(Step::Count { after, count });
        }
    }
}

/// Writes inbox rows for some milliseconds. The last slice accepts.
fn slice(
    w: &mut Write<'_>,
    accept: &Accept,
    num: Num,
    mut after: u64,
    (kept, muted, departed): (&SlicedDevices, &SlicedDevices, &RemovedMessages),
) -> Result<Step, Error> {
    let Accept { app, request, now, .. } = accept;
    if !w.db.has_row("SELECT 1 FROM apps WHERE id = ?1", (app.0,))? {
        return Err(Error::NotFound);
    }
    super::check_space(w)?;
    let (condition, started) = (condition(accept)?, Instant::now());
    let (mut written, mut without, mut removed) = (Vec::new(), Vec::new(), RemovedRows::default());
    let key = request.collapse_key.as_deref();
    let next = loop {
        let (devices, next) = audience::numbers(w.db, *app, condition, after as i64, CHUNK)?;
        let devices = devices.into_iter().map(|device| DeviceNum(device as u64)).collect();
        let (devices, muting) = ready(preferences::split_muted(w.db, request.category.as_ref(), devices))?;
        without.extend(muting);
        inbox::write(w, num, key, &devices, &mut removed)?;
        written.extend(devices);
        match next {
            Some(next) if started.elapsed() < SLICE && written.len() + without.len() < SLICE_DEVICES => {
                after = next
            }
            next => break next,
        }
    };
    outcome::add(w.db, &Part::of(num, Outcome::Kept, *now, written.clone()))?;
    if !without.is_empty() {
        outcome::add(w.db, &Part::of(num, Outcome::Muted, *now, without.clone()))?;
    }
    let evicted = removed.record(w, *app, *now)?;
    if let Some(after) = next {
        return Ok(Step::Written { after, devices: written, muted: without, departed: evicted });
    }
    let mut all = departed.clone();
    all.append(evicted);
    let id = w.ids.id(num);
    let part = kept.with(&written).part((*app, id), Outcome::Kept, *now);
    let standing = if part.is_some() { Standing::Kept } else { Standing::Nothing };
    let muted = muted.with(&without).part((*app, id), Outcome::Muted, *now);
    let parts = part.into_iter().chain(muted).collect();
    let stored = Stored { standing, parts, departed: all, ..Stored::default() };
    let accepted = super::finish(w, accept, num, stored, &[])?;
    match key {
        Some(_) if standing == Standing::Kept => {
            let sql = "UPDATE expansions SET state = ?2 WHERE num = ?1";
            w.db.run(sql, (num, State::Collapsing as u8))?;
        }
        _ => forget(w.db, num)?,
    }
    Ok(Step::Accepted(accepted))
}

fn forget(db: &Db, num: Num) -> Result<(), Error> {
    db.run("DELETE FROM expansions WHERE num = ?1", (num,)).map(drop)
}

/// The greatest number of an expansion; 0 without any. Numbers continue after it.
pub(in crate::sqlite) fn last(db: &Db) -> rusqlite::Result<Num> {
    let sql = "SELECT coalesce(max(num), 0) FROM expansions";
    db.prepare_cached(sql)?.query_row((), |row| row.get(0))
}

/// Does what expansions left to the clean-up, for some milliseconds.
pub(in crate::sqlite) fn settle(w: &mut Write<'_>, now: Timestamp) -> Result<Pruned, Error> {
    let started = Instant::now();
    let sql = "SELECT num, app, state, place FROM expansions ORDER BY num LIMIT ?1";
    let rows = w.db.all(sql, (SETTLED_MAX,), |row| {
        let (app, state) = (row.app(1)?, State::from_code(row.code(2)?));
        Ok(Row { num: row.int(0)?, app, state, place: row.int(3)? })
    })?;
    let mut pruned = Pruned { more: rows.len() as i64 == SETTLED_MAX, ..Pruned::default() };
    for row in rows {
        if w.expanding.is_active(row.num) {
            continue;
        }
        let has_ended = match row.state {
            State::Writing => undo(w, row.num, started, &mut pruned)?,
            State::Collapsing => collapse(w, row, now, started, &mut pruned)?,
        };
        if !has_ended || started.elapsed() >= SLICE {
            pruned.more = true;
            break;
        }
    }
    Ok(pruned)
}

/// Removes the rows of a notification that was never accepted. Returns true after the last.
fn undo(w: &mut Write<'_>, num: Num, started: Instant, pruned: &mut Pruned) -> Result<bool, Error> {
    // A part has the devices of one slice, or a device that was deleted meanwhile.
    let sql = "SELECT outcome, devices FROM outcomes WHERE num = ?1 ORDER BY seq LIMIT 1";
    while let Some((is_kept, devices)) = w.db.first(sql, (num,), |row| {
        let devices = device_list::decode(row.bytes(1)?).collect::<Vec<_>>();
        Ok((row.code(0)? == Outcome::Kept as u8, devices))
    })? {
        if is_kept {
            pruned.inbox += inbox::remove_from(w.db, &devices, num)?.len() as u64;
        }
        let sql = "DELETE FROM outcomes WHERE num = ?1
                   AND seq = (SELECT seq FROM outcomes WHERE num = ?1 ORDER BY seq LIMIT 1)";
        w.db.run(sql, (num,))?;
        if started.elapsed() >= SLICE {
            return Ok(false);
        }
    }
    forget(w.db, num)?;
    Ok(true)
}

/// Removes older rows with the collapse key of an accepted notification. Returns true after the last.
fn collapse(
    w: &mut Write<'_>,
    Row { num, app, place, .. }: Row,
    now: Timestamp,
    started: Instant,
    pruned: &mut Pruned,
) -> Result<bool, Error> {
    let sql = "SELECT collapse_key FROM notifications WHERE num = ?1";
    let key = w.db.first(sql, (num,), |row| row.string_or_null(0))?.flatten();
    let Some(key) = key else { return forget(w.db, num).map(|()| true) };
    let (mut last, mut removed) = (place, RemovedRows::default());
    let sql =
        "SELECT seq, devices FROM outcomes WHERE num = ?1 AND outcome = ?2 AND seq > ?3 ORDER BY seq LIMIT 1";
    let has_ended = loop {
        let Some((seq, devices)) = w.db.first(sql, (num, Outcome::Kept as u8, last), |row| {
            Ok((row.int(0)?, device_list::decode(row.bytes(1)?).collect::<Vec<_>>()))
        })?
        else {
            break true;
        };
        inbox::collapse_before(w.db, num, &key, &devices, &mut removed)?;
        last = seq;
        if started.elapsed() >= SLICE {
            break false;
        }
    };
    let removed = removed.record(w, app, now)?;
    pruned.inbox += removed.count(Outcome::Collapsed);
    pruned.departed.append(removed);
    match has_ended {
        true => forget(w.db, num)?,
        false => drop(w.db.run("UPDATE expansions SET place = ?2 WHERE num = ?1", (num, last))?),
    }
    Ok(has_ended)
}
