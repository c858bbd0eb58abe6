//! Accepting: the task that commits groups under the order lock, and hands them over before it lets go of it.
//!
//! ```text
//!   BEGIN, order lock, read ─► plan ─► write, COMMIT AND CHAIN ─► answers in order ─► hand over ─► unlock
//!   └─────── round trip ──────┘        └───── round trip ─────┘
//! ```
//!
//! What other nodes accept is before or behind all of a group, also in how it is handed over. A group that fails for
//! a reason that passes is tried again, with new numbers, as long as those who wait for it have patience. If the
//! answer to its commit is lost, the lock is taken on a new connection (which waits until the old session is
//! gone), and the mark that each group leaves in its transaction tells what became of it: after a crash the engine
//! may give the same transaction number, and this store the same notification numbers, to others.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use deadpool_postgres::ClientWrapper;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use noroshi_supervision::{Pulse, What};

use super::connect::Connector;
use super::group::{self, Answer, Mark};
use super::options::PostgresOptions;
use super::order;
use super::queue::Queued;
use super::transaction::{Failed, error_of, is_lost};
use crate::ids::Ids;
use crate::metrics::Metrics;
use crate::{Accept, Done, Error};

/// Awaited after the answers of a group, before the next one of any node is committed.
pub(super) type HandOver = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// Between two tries, doubled each time up to the second.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// What is to be accepted, and whom to tell. Told exactly once, whatever happens: the last resort is its drop.
pub(super) struct Operation {
    accept: Accept,
    done: Option<Done>,
    queued_at: Instant,
}

impl Operation {
    pub(super) fn new(accept: Accept, done: Done) -> Self {
        Self { accept, done: Some(done), queued_at: Instant::now() }
    }

    /// False if whoever waited for the answer panicked over it.
    pub(super) fn finish(mut self, answer: Answer) -> bool {
        self.tell(answer)
    }

    fn tell(&mut self, answer: Answer) -> bool {
        let Some(done) = self.done.take() else { return true };
        let told = catch_unwind(AssertUnwindSafe(|| done(answer))).is_ok();
        if !told {
            tracing::error!("the answer to a write panicked");
        }
        told
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        self.tell(Err(Error::Closed));
    }
}

/// The task that accepts.
pub(super) struct Accepting {
    pub connector: Connector,
    pub options: Arc<PostgresOptions>,
    pub ids: Arc<Ids>,
    pub metrics: Metrics,
    pub queued: Queued<Operation>,
    pub hand_over: Arc<OnceLock<HandOver>>,
    /// None until it is needed, and after it was lost.
    pub session: Option<ClientWrapper>,
    /// Of the last group that was tried.
    pub mark: Mark,
    pub pulse: Pulse,
}

/// A group whose commit was not answered.
struct Doubt {
    mark: Mark,
    answers: Vec<Answer>,
}

/// Why a try came to nothing.
enum Trial {
    /// The answer to the commit was lost.
    InDoubt(Doubt, Error),
    Failed(tokio_postgres::Error),
    /// Nothing was heard for longer than anything may take.
    Silent,
    /// Planning the group panicked, before anything of it was committed.
    Panicked,
}

impl From<tokio_postgres::Error> for Trial {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Failed(error)
    }
}

impl Accepting {
    /// Runs until the queue is closed and empty.
    pub(super) async fn run(mut self) {
        let (operations_max, rows_max) = (self.options.group_operations_max, self.options.group_rows_max);
        while let Some(group) = self.queued.group(operations_max, rows_max).await {
            self.metrics.queue_operations.dec_by(group.len() as i64);
            // What a commit waits for has limits of its own: it is progress that a group is begun.
            self.pulse.working();
            self.pulse.waiting();
            self.commit(group).await;
        }
    }

    /// Brings a group to an end, one way or the other.
    async fn commit(&mut self, mut group: Vec<Operation>) {
        let started = Instant::now();
        let mut pause = BACKOFF.0;
        let mut doubt = None;
        if self.session.is_none() {
            // The server was away a moment ago: who waited through that has waited enough.
            group = self.without_impatient(group, &Error::Overloaded);
        }
        while !group.is_empty() {
            let accepts: Vec<&Accept> = group.iter().map(|operation| &operation.accept).collect();
            match self.attempt(&accepts, doubt.take()).await {
                Ok(answers) => {
                    self.metrics.commit_seconds.observe(started.elapsed().as_secs_f64());
                    self.metrics.commit_operations.observe(group.len() as f64);
                    self.metrics.commits.inc();
                    for (operation, answer) in group.into_iter().zip(answers) {
                        if !operation.finish(answer) {
                            // It is committed and may not have been handed over: the next start reads it.
                            self.pulse.fail(What::Unanswered);
                        }
                    }
                    return self.let_go().await;
                }
                Err(Trial::InDoubt(of_it, error)) => {
                    self.session = None;
                    tracing::warn!(%error, "the answer to a commit was lost; looking what became of it");
                    // It is looked for a little longer than a group that is known to be lost is tried.
                    if started.elapsed() > self.options.accept_wait * 2 {
                        let text = "the answer to a commit was lost, and what became of it is not known";
                        return self.refuse(group, &Error::Engine(text.to_owned()));
                    }
                    doubt = Some(of_it);
                }
                Err(Trial::Failed(error)) => {
                    let told = error_of(&error);
                    let lost = is_lost(&error);
                    self.abandon(lost);
                    let failed = Failed::Database(error);
                    if !failed.is_transient() && !matches!(told, Error::Overloaded) {
                        return self.refuse_or_part(group, &told).await;
                    }
                    group = self.without_impatient(group, &told);
                }
                Err(Trial::Panicked) => {
                    // The connection goes, and the transaction with it. The operation at fault is refused alone.
                    self.session = None;
                    return self.refuse_or_part(group, &Error::Engine("an operation panicked".to_owned())).await;
                }
                Err(Trial::Silent) => {
                    self.session = None;
                    group = self.without_impatient(group, &Error::Overloaded);
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(BACKOFF.1);
        }
    }

    /// Refuses those that waited long enough; the others.
    fn without_impatient(&self, group: Vec<Operation>, error: &Error) -> Vec<Operation> {
        let wait = self.options.accept_wait;
        let (tired, patient): (Vec<_>, Vec<_>) =
            group.into_iter().partition(|operation| operation.queued_at.elapsed() >= wait);
        self.refuse(tired, error);
        patient
    }

    fn refuse(&self, group: Vec<Operation>, error: &Error) {
        if !group.is_empty() {
            self.metrics.commit_failures.inc();
        }
        for operation in group {
            operation.finish(Err(error.clone()));
        }
    }

    /// Where one of a group is at fault, it is refused alone.
    async fn refuse_or_part(&mut self, group: Vec<Operation>, error: &Error) {
        if group.len() == 1 || matches!(error, Error::Full) {
            return self.refuse(group, error);
        }
        for operation in group {
            Box::pin(self.commit(vec![operation])).await;
        }
    }

    /// Ends the transaction of a failed group; the connection, if that is lost.
    fn abandon(&mut self, lost: bool) {
        match &self.session {
            Some(session) if !lost => release(session),
            _ => self.session = None,
        }
    }

    async fn attempt(&mut self, accepts: &[&Accept], doubt: Option<Doubt>) -> Result<Vec<Answer>, Trial> {
        // More than the server itself lets anything take.
        let limit = self.options.lock_timeout + self.options.statement_timeout * 2;
        match tokio::time::timeout(limit, self.connected()).await {
            Ok(Ok(())) => {}
            failed => {
                return Err(match (doubt, failed) {
                    (Some(doubt), Ok(Err(error))) => Trial::InDoubt(doubt, error_of(&error)),
                    (Some(doubt), _) => Trial::InDoubt(doubt, Error::Overloaded),
                    (None, Ok(Err(error))) => Trial::Failed(error),
                    (None, _) => Trial::Silent,
                });
            }
        }
        let Some(session) = &self.session else { return Err(Trial::Silent) };
        let lock = format!("BEGIN; SELECT pg_advisory_lock({})", order::LOCK);
        if let Some(doubt) = doubt {
            match tokio::time::timeout(limit, was_committed(session, &lock, &doubt)).await {
                Ok(Ok(true)) => return Ok(doubt.answers),
                Ok(Ok(false)) => release(session),
                Ok(Err(error)) => return Err(Trial::InDoubt(doubt, error_of(&error))),
                Err(_) => return Err(Trial::InDoubt(doubt, Error::Overloaded)),
            }
        }
        let planned = async {
            let reading = group::read(session, &lock, accepts, &self.ids).await?;
            let mut plan = group::plan(accepts, &reading, &self.options, &self.ids);
            group::make_room(session, &mut plan, self.options.inbox_rows).await?;
            Ok::<_, tokio_postgres::Error>(plan)
        };
        let planned = AssertUnwindSafe(planned).catch_unwind();
        let planned = tokio::time::timeout(limit, planned).await.map_err(|_| Trial::Silent)?;
        let plan = planned.map_err(|_| Trial::Panicked)??;
        let ready = plan.ready(accepts, &self.ids);
        self.mark.count += 1;
        let mark = self.mark;
        let result = tokio::time::timeout(limit, ready.commit(session, &mark)).await;
        let (writes, answers) = (ready.writes(), ready.answers);
        match (result, writes) {
            (Ok(Ok(())), _) => Ok(answers),
            (Ok(Err(error)), true) if is_lost(&error) => {
                Err(Trial::InDoubt(Doubt { mark, answers }, error_of(&error)))
            }
            (Ok(Err(error)), _) => Err(Trial::Failed(error)),
            (Err(_), true) => Err(Trial::InDoubt(Doubt { mark, answers }, Error::Overloaded)),
            (Err(_), false) => Err(Trial::Silent),
        }
    }

    /// Connects if need be, and prepares what groups need, so that their statements go out together.
    async fn connected(&mut self) -> Result<(), tokio_postgres::Error> {
        if self.session.as_ref().is_some_and(|session| !session.is_closed()) {
            return Ok(());
        }
        self.session = None;
        let session = self.connector.session().await?;
        for sql in group::reading_statements().iter().map(String::as_str).chain(group::WRITING_STATEMENTS) {
            session.prepare_cached(sql).await?;
        }
        self.session = Some(session);
        Ok(())
    }

    /// Hands over what was answered, and lets the next group of any node go.
    async fn let_go(&mut self) {
        if let Some(hand_over) = self.hand_over.get()
            && tokio::time::timeout(self.options.hand_over_timeout, hand_over()).await.is_err()
        {
            tracing::debug!("what was accepted is still being handed over");
        }
        if let Some(session) = &self.session {
            release(session);
        }
    }
}

/// Ends the transaction and gives the order lock back, without waiting for the answer: what follows on the
/// connection comes behind it.
fn release(session: &ClientWrapper) {
    // Polled once, it is sent; an error is met by whatever follows.
    let _ = session.batch_execute("ROLLBACK; SELECT pg_advisory_unlock_all()").now_or_never();
}

/// Whether a group was committed. Afterwards the lock is held.
async fn was_committed(
    session: &ClientWrapper,
    lock: &str,
    doubt: &Doubt,
) -> Result<bool, tokio_postgres::Error> {
    session.batch_execute(lock).await?;
    let Mark { instance, count } = doubt.mark;
    let found = "SELECT 1 FROM accept_marks WHERE instance = $1 AND mark = $2";
    Ok(session.query_opt(found, &[&instance, &count]).await?.is_some())
}
