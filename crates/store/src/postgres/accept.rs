//! The task that accepts: it commits groups under the order lock and hands them over before it releases the lock.
//!
//! ```text
//!   BEGIN, order lock, read ─► plan ─► write, COMMIT AND CHAIN ─► answers in order ─► hand over ─► unlock
//!   └─────── round trip ──────┘        └───── round trip ─────┘
//! ```
//!
//! Everything that other nodes accept comes before or after the whole group, also in the order of hand-over. A group
//! that fails for a transient reason is retried with new numbers until its callers time out. If the answer to the
//! commit is lost, the task takes the lock on a new connection, which waits until the old session is gone. The mark
//! that each group leaves in its transaction then shows whether it was committed; transaction numbers do not, because
//! a server that crashed may assign the same number again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use deadpool_postgres::ClientWrapper;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use noroshi_supervision::{Heartbeat, What};

use super::StoreContext;
use super::connect::Connector;
use super::group::{self, Answer, Mark};
use super::order;
use super::queue::Queued;
use super::transaction::{Failed, error_of, is_connection_lost};
use crate::metrics::Metrics;
use crate::{Accept, Done, Error, statement_log};

/// Awaited after the answers of a group, before any node commits the next one.
pub(super) type HandOver = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// Between two attempts, doubled each time up to the second value.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// A notification to accept and its answer. It is answered exactly once, at the latest by its drop.
pub(super) struct Operation {
    accept: Accept,
    done: Option<Done>,
    queued_at: Instant,
}

impl Operation {
    pub(super) fn new(accept: Accept, done: Done) -> Self {
        Self { accept, done: Some(done), queued_at: Instant::now() }
    }

    /// False if the callback of the answer panicked.
    pub(super) fn finish(mut self, answer: Answer) -> bool {
        self.deliver(answer)
    }

    fn deliver(&mut self, answer: Answer) -> bool {
        let Some(done) = self.done.take() else { return true };
        let ran = catch_unwind(AssertUnwindSafe(|| done(answer))).is_ok();
        if !ran {
            tracing::error!("the answer to a write panicked");
        }
        ran
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        self.deliver(Err(Error::Closed));
    }
}

/// The accepting task.
pub(super) struct Acceptor {
    pub connector: Connector,
    pub context: Arc<StoreContext>,
    pub metrics: Metrics,
    pub queued: Queued<Operation>,
    pub hand_over: Arc<OnceLock<HandOver>>,
    /// `None` before first use, and after the connection was lost.
    pub session: Option<ClientWrapper>,
    /// The mark of the last group that was tried.
    pub mark: Mark,
    pub pulse: Heartbeat,
}

/// A group whose commit was not answered.
struct UnansweredCommit {
    mark: Mark,
    answers: Vec<Answer>,
}

/// Why an attempt failed.
enum AttemptError {
    /// The answer to the commit was lost.
    UnknownCommit(UnansweredCommit, Error),
    Failed(tokio_postgres::Error),
    /// The server did not answer in the maximum time.
    Silent,
    /// Planning the group panicked before anything of it was committed.
    Panicked,
}

impl From<tokio_postgres::Error> for AttemptError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Failed(error)
    }
}

impl Acceptor {
    /// Runs until the queue is closed and empty.
    pub(super) async fn run(mut self) {
        let (operations_max, rows_max) =
            (self.context.options.group_operations_max, self.context.options.group_rows_max);
        while let Some(group) = self.queued.group(operations_max, rows_max).await {
            self.metrics.queue_operations.dec_by(group.len() as i64);
            // A commit has its own timeouts, so starting a group counts as progress.
            self.pulse.working();
            self.pulse.waiting();
            self.commit(group).await;
        }
    }

    /// Commits a group or refuses it.
    async fn commit(&mut self, mut group: Vec<Operation>) {
        let started = Instant::now();
        let mut pause = BACKOFF.0;
        let mut unanswered = None;
        if self.session.is_none() {
            // The server was unavailable a moment ago: callers that waited through that have waited long enough.
            group = self.refuse_expired(group, &Error::Overloaded);
        }
        while !group.is_empty() {
            let accepts: Vec<&Accept> = group.iter().map(|operation| &operation.accept).collect();
            match self.attempt(&accepts, unanswered.take()).await {
                Ok(answers) => {
                    self.metrics.commit_seconds.observe(started.elapsed().as_secs_f64());
                    self.metrics.commit_operations.observe(group.len() as f64);
                    self.metrics.commits.inc();
                    for (operation, answer) in group.into_iter().zip(answers) {
                        if !operation.finish(answer) {
                            // It is committed but may not have been handed over: the next start reads it.
                            self.pulse.fail(What::Unanswered);
                        }
                    }
                    return self.hand_over_and_release().await;
                }
                Err(AttemptError::UnknownCommit(commit, error)) => {
                    self.session = None;
                    tracing::warn!(%error, "the answer to a commit was lost; looking up its outcome");
                    // The outcome of a commit is looked up a little longer than a failed group is retried.
                    if started.elapsed() > self.context.options.accept_wait * 2 {
                        let text = "the answer to a commit was lost, and its outcome is unknown";
                        return self.refuse(group, &Error::Engine(text.to_owned()));
                    }
                    unanswered = Some(commit);
                }
                Err(AttemptError::Failed(error)) => {
                    let reported = error_of(&error);
                    let lost = is_connection_lost(&error);
                    self.abandon(lost);
                    let failed = Failed::Database(error);
                    if !failed.is_transient() && !matches!(reported, Error::Overloaded) {
                        return self.refuse_or_split(group, &reported).await;
                    }
                    group = self.refuse_expired(group, &reported);
                }
                Err(AttemptError::Panicked) => {
                    // Dropping the connection ends the transaction. Only the operation at fault is refused.
                    self.session = None;
                    return self
                        .refuse_or_split(group, &Error::Engine("an operation panicked".to_owned()))
                        .await;
                }
                Err(AttemptError::Silent) => {
                    self.session = None;
                    group = self.refuse_expired(group, &Error::Overloaded);
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(BACKOFF.1);
        }
    }

    /// Refuses operations that waited long enough. Returns the others.
    fn refuse_expired(&self, group: Vec<Operation>, error: &Error) -> Vec<Operation> {
        let wait = self.context.options.accept_wait;
        let (expired, waiting): (Vec<_>, Vec<_>) =
            group.into_iter().partition(|operation| operation.queued_at.elapsed() >= wait);
        self.refuse(expired, error);
        waiting
    }

    fn refuse(&self, group: Vec<Operation>, error: &Error) {
        if !group.is_empty() {
            self.metrics.commit_failures.inc();
        }
        for operation in group {
            operation.finish(Err(error.clone()));
        }
    }

    /// Retries the operations of a failed group one by one, so that only the one at fault is refused.
    async fn refuse_or_split(&mut self, group: Vec<Operation>, error: &Error) {
        if group.len() == 1 || matches!(error, Error::Full) {
            return self.refuse(group, error);
        }
        for operation in group {
            Box::pin(self.commit(vec![operation])).await;
        }
    }

    /// Rolls back the transaction of a failed group, or drops the connection if it is lost.
    fn abandon(&mut self, lost: bool) {
        match &self.session {
            Some(session) if !lost => release(session),
            _ => self.session = None,
        }
    }

    async fn attempt(
        &mut self,
        accepts: &[&Accept],
        unanswered: Option<UnansweredCommit>,
    ) -> Result<Vec<Answer>, AttemptError> {
        // Longer than the server's own timeouts.
        let limit = self.context.options.lock_timeout + self.context.options.statement_timeout * 2;
        match tokio::time::timeout(limit, self.connected()).await {
            Ok(Ok(())) => {}
            failed => {
                return Err(match (unanswered, failed) {
                    (Some(unanswered), Ok(Err(error))) => {
                        AttemptError::UnknownCommit(unanswered, error_of(&error))
                    }
                    (Some(unanswered), _) => AttemptError::UnknownCommit(unanswered, Error::Overloaded),
                    (None, Ok(Err(error))) => AttemptError::Failed(error),
                    (None, _) => AttemptError::Silent,
                });
            }
        }
        let Some(session) = &self.session else { return Err(AttemptError::Silent) };
        let lock = format!("BEGIN; SELECT pg_advisory_lock({})", order::LOCK);
        if let Some(unanswered) = unanswered {
            match tokio::time::timeout(limit, was_committed(session, &lock, &unanswered)).await {
                Ok(Ok(true)) => return Ok(unanswered.answers),
                Ok(Ok(false)) => release(session),
                Ok(Err(error)) => return Err(AttemptError::UnknownCommit(unanswered, error_of(&error))),
                Err(_) => return Err(AttemptError::UnknownCommit(unanswered, Error::Overloaded)),
            }
        }
        let planned = async {
            #[cfg(debug_assertions)]
            noroshi_supervision::fault::strike("store-plan");
            let reading = group::read(session, &lock, accepts, &self.context.ids).await?;
            let mut plan = group::plan(accepts, &reading, &self.context.options, &self.context.ids);
            group::make_room(session, &mut plan, self.context.options.inbox_rows).await?;
            Ok::<_, tokio_postgres::Error>(plan)
        };
        let planned = AssertUnwindSafe(planned).catch_unwind();
        let planned = tokio::time::timeout(limit, planned).await.map_err(|_| AttemptError::Silent)?;
        let plan = planned.map_err(|_| AttemptError::Panicked)??;
        let ready = plan.ready(accepts, &self.context.ids);
        self.mark.count += 1;
        let mark = self.mark;
        let result = tokio::time::timeout(limit, ready.commit(session, &mark)).await;
        let (writes, answers) = (ready.writes(), ready.answers);
        match (result, writes) {
            (Ok(Ok(())), _) => Ok(answers),
            (Ok(Err(error)), true) if is_connection_lost(&error) => {
                Err(AttemptError::UnknownCommit(UnansweredCommit { mark, answers }, error_of(&error)))
            }
            (Ok(Err(error)), _) => Err(AttemptError::Failed(error)),
            (Err(_), true) => {
                Err(AttemptError::UnknownCommit(UnansweredCommit { mark, answers }, Error::Overloaded))
            }
            (Err(_), false) => Err(AttemptError::Silent),
        }
    }

    /// Connects if necessary, and prepares the statements of groups, so that they go out together.
    async fn connected(&mut self) -> Result<(), tokio_postgres::Error> {
        if self.session.as_ref().is_some_and(|session| !session.is_closed()) {
            return Ok(());
        }
        self.session = None;
        let session = self.connector.session().await?;
        for sql in group::reading_statements().iter().map(String::as_str).chain(group::WRITING_STATEMENTS) {
            statement_log::postgres(sql);
            session.prepare_cached(sql).await?;
        }
        self.session = Some(session);
        Ok(())
    }

    /// Hands over the answered group, and releases the lock for the next group of any node.
    async fn hand_over_and_release(&mut self) {
        if let Some(hand_over) = self.hand_over.get()
            && tokio::time::timeout(self.context.options.hand_over_timeout, hand_over()).await.is_err()
        {
            tracing::debug!("the hand-over of accepted messages takes longer than its timeout");
        }
        if let Some(session) = &self.session {
            release(session);
        }
    }
}

/// Ends the transaction and releases the order lock without waiting for the answer: later statements on the
/// connection run after it.
fn release(session: &ClientWrapper) {
    // Polling once sends it; later statements see its error.
    let _ = session.batch_execute("ROLLBACK; SELECT pg_advisory_unlock_all()").now_or_never();
}

/// Whether a group was committed. Afterwards the lock is held.
async fn was_committed(
    session: &ClientWrapper,
    lock: &str,
    unanswered: &UnansweredCommit,
) -> Result<bool, tokio_postgres::Error> {
    session.batch_execute(lock).await?;
    let Mark { instance, count } = unanswered.mark;
    let found = "SELECT 1 FROM accept_marks WHERE instance = $1 AND mark = $2";
    Ok(session.query_opt(found, &[&instance, &count]).await?.is_some())
}
