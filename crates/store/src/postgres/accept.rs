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

mod waiting;

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use deadpool_postgres::ClientWrapper;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use noroshi_supervision::{Heartbeat, What};
use noroshi_types::{AppId, Target};
use tokio::sync::mpsc;

pub(super) use self::waiting::Waiting;
use super::connect::Connector;
use super::expansion;
use super::group::{self, Answer, Form, Mark, Ranks};
use super::order;
use super::queue::Queued;
use super::transaction::{Failed, error_of, is_connection_lost};
use super::{Postgres, StoreContext};
use crate::engine::accept::is_stored;
use crate::metrics::Metrics;
use crate::{Accept, Done, Error, statement_log};

/// Awaited after the answers of a group, before any node commits the next one.
pub(super) type HandOver = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// Expansions that ended and wait for the task: each app has one at a time, and more wait themselves.
const ENDINGS: usize = 64;

/// An expansion that ended: with the operation to accept, unless it was answered.
struct Ending {
    app: AppId,
    operation: Option<Operation>,
}

/// Between two attempts, doubled each time up to the second value.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// A notification to accept and its answer. It is answered exactly once, at the latest by its drop.
pub(super) struct Operation {
    pub accept: Accept,
    pub form: Form,
    done: Option<Done>,
    queued_at: Instant,
}

impl Operation {
    pub(super) fn new(accept: Accept, done: Done) -> Self {
        Self { accept, form: Form::Whole, done: Some(done), queued_at: Instant::now() }
    }

    /// Rows that it may write, about.
    pub(super) fn rows(&self) -> usize {
        rows_of(&self.accept)
    }

    /// Its wait for others does not count.
    pub(super) fn begin_again(&mut self) {
        self.queued_at = Instant::now();
    }

    /// It takes longer than one commit, or waits for one that does.
    pub(super) fn waits(&self) {
        if let Some(gate) = &self.accept.gate {
            gate.waits();
        }
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

/// Rows that an acceptance may write, about.
pub(super) fn rows_of(accept: &Accept) -> usize {
    accept.request.target.named_count().unwrap_or(0) as usize + 1
}

/// The accepting task.
pub(super) struct Acceptor {
    pub store: Postgres,
    pub connector: Connector,
    pub context: Arc<StoreContext>,
    pub metrics: Metrics,
    pub queued: Queued<Operation>,
    pub hand_over: Arc<OnceLock<HandOver>>,
    /// `None` before first use, and after the connection was lost.
    pub session: Option<ClientWrapper>,
    /// Empty after an attempt that failed.
    pub ranks: Ranks,
    /// The mark of the last group that was tried.
    pub mark: Mark,
    pub waiting: Waiting,
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
    /// Expansions of other nodes: operations of these apps wait. Nothing was done.
    Waits(HashSet<AppId>),
}

impl From<tokio_postgres::Error> for AttemptError {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Failed(error)
    }
}

impl Acceptor {
    /// Runs until the queue is closed and empty, and nothing waits.
    pub(super) async fn run(mut self) {
        let (operations_max, rows_max) =
            (self.context.options.group_operations_max, self.context.options.group_rows_max);
        let (ended, mut endings) = mpsc::channel(ENDINGS);
        let mut is_open = true;
        while is_open || !self.waiting.is_idle() {
            let group = tokio::select! {
                biased;
                Some(Ending { app, operation }) = endings.recv() => {
                    self.end(operation).await;
                    self.waiting.ended(app);
                    continue;
                }
                released = self.waiting.released(operations_max) => released,
                group = self.queued.group(operations_max, rows_max), if is_open => match group {
                    Some(group) => {
                        self.metrics.queue_operations.dec_by(group.len() as i64);
                        let (group, refused) = self.waiting.pass(group, &self.context.options);
                        self.metrics.refused.inc_by(refused.len() as u64);
                        for operation in refused {
                            operation.finish(Err(Error::Overloaded));
                        }
                        group
                    }
                    None => {
                        is_open = false;
                        continue;
                    }
                },
            };
            // A commit has its own timeouts, so starting a group counts as progress.
            self.pulse.working();
            self.pulse.waiting();
            let (group, later) = split(&self.store, group).await;
            self.commit(group).await;
            for operation in later {
                let app = operation.accept.app;
                if self.waiting.has(app) {
                    self.waiting.set_aside(operation);
                    continue;
                }
                self.waiting.begin(app);
                let (store, ended) = (self.store.clone(), ended.clone());
                let expansion = async move {
                    let operation = expand(&store, operation).await;
                    // The acceptor waits for it.
                    let _ = ended.send(Ending { app, operation }).await;
                };
                self.store.tasks.spawn(expansion);
            }
        }
    }

    /// Accepts a notification whose rows are written.
    async fn end(&mut self, operation: Option<Operation>) {
        let Some(mut operation) = operation else { return };
        let num = if let Form::Expanded(expanded) = &operation.form { Some(expanded.num) } else { None };
        operation.begin_again();
        self.commit(vec![operation]).await;
        if let Some(num) = num {
            // Does nothing if it was accepted.
            let store = self.store.clone();
            self.store.tasks.spawn(async move { expansion::abandon(&store, num).await });
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
            let forms: Vec<&Form> = group.iter().map(|operation| &operation.form).collect();
            match self.attempt(&accepts, &forms, unanswered.take()).await {
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
                Err(AttemptError::Waits(apps)) => {
                    self.abandon(false);
                    group = self.waiting.wait_for(&apps, group);
                    continue;
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
        forms: &[&Form],
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
        let mut ranks = std::mem::take(&mut self.ranks);
        let planned = async {
            #[cfg(debug_assertions)]
            noroshi_supervision::fault::strike("store-plan");
            let reading = group::read(session, &lock, accepts, forms, &self.context.ids, &mut ranks).await?;
            let waits = accepts.iter().zip(forms).filter(|(accept, form)| reading.waits(accept.app, form));
            let waits: HashSet<AppId> = waits.map(|(accept, _)| accept.app).collect();
            if !waits.is_empty() {
                return Err(AttemptError::Waits(waits));
            }
            let mut plan = group::plan(accepts, forms, &reading, &self.context.options, &self.context.ids);
            group::make_room(session, &mut plan, self.context.options.inbox_rows).await?;
            Ok::<_, AttemptError>(plan)
        };
        let planned = AssertUnwindSafe(planned).catch_unwind();
        let planned = tokio::time::timeout(limit, planned).await.map_err(|_| AttemptError::Silent)?;
        let plan = planned.map_err(|_| AttemptError::Panicked)??;
        let mut ready = plan.ready(accepts, &self.context.ids);
        let (last, written_ranks) = ready.ranks();
        self.mark.count += 1;
        let mark = self.mark;
        let result = tokio::time::timeout(limit, ready.commit(session, &mark)).await;
        let (writes, answers) = (ready.writes(), ready.answers);
        match (result, writes) {
            (Ok(Ok(())), _) => {
                ranks.committed(last, written_ranks);
                self.ranks = ranks;
                Ok(answers)
            }
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
        for sql in group::reading_statements().iter().map(String::as_str).chain(group::writing_statements()) {
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

/// Writes the inbox rows of a large condition. Returns the operation with the form in which a group accepts it, or
/// answers it with an error.
async fn expand(store: &Postgres, mut operation: Operation) -> Option<Operation> {
    operation.waits();
    let rows = expansion::write(store, Arc::new(operation.accept.clone()));
    let panicked = |_| Err(Error::Engine("an operation panicked".to_owned()));
    match AssertUnwindSafe(rows).catch_unwind().await.unwrap_or_else(panicked) {
        Ok(form) => {
            operation.form = form;
            Some(operation)
        }
        Err(error) => {
            operation.finish(Err(error));
            None
        }
    }
}

/// Separates conditions that select many devices, and operations of their apps that come after them.
async fn split(store: &Postgres, group: Vec<Operation>) -> (Vec<Operation>, Vec<Operation>) {
    let accepts: Vec<&Accept> = group.iter().map(|operation| &operation.accept).collect();
    let measured = expansion::measure(store, &accepts).await;
    let (mut now, mut later) = (Vec::with_capacity(group.len()), Vec::new());
    let mut apps = HashSet::new();
    for (place, operation) in group.into_iter().enumerate() {
        let is_large = match &measured {
            Some(is_large) => is_large.get(place).is_some_and(|large| *large),
            // It will try again for longer.
            None => {
                let accept = &operation.accept;
                matches!(accept.request.target, Target::Condition(_)) && is_stored(accept)
            }
        };
        let app = operation.accept.app;
        if apps.contains(&app) || is_large {
            apps.insert(app);
            later.push(operation);
        } else {
            now.push(operation);
        }
    }
    (now, later)
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
