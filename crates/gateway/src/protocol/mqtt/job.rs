//! Jobs that an MQTT client requests of the store: publications, and subscriptions that outlast its connection. The
//! jobs of one connection run one after the other, outside the shard, so that they take effect in the client's order.
//! Publications that wait next to each other are one job and share commits, unless requests wait for room in the node's
//! queues.
//!
//! Bounds: [`QUEUED_MAX`] and [`QUEUED_BYTES_MAX`] for a connection, [`crate::protocol::jobs::JOBS_MAX`] jobs of a
//! shard at once. The shard does not read a connection that has used a quarter of its bounds, so TCP slows a client
//! down that publishes faster than the node accepts. Messages that a client published before it left are still
//! published. The exception is a message with QoS 2 whose job did not start: a client whose session lasts sends it
//! again, since it got no answer.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;

use noroshi_delivery::Delivery;
use noroshi_store::{Error as StoreError, Leave};
use noroshi_types::CloseReason;

use super::session::owed;
use super::stored::StoredSession;
use super::task::{Job, Outcome, Task, share};
use super::{Mqtt, service};
use crate::protocol::context::Context;
use crate::protocol::effect::Effect;
use crate::protocol::jobs::{Completed, Jobs, Outside};
use crate::protocol::services::Services;
use crate::session::phase::Phase;
use crate::session::registry::Session;

/// Jobs of one connection that wait.
const QUEUED_MAX: usize = 256;
/// Bytes of their publications.
const QUEUED_BYTES_MAX: usize = 256 << 10;
/// From a fourth of either bound on, the shard reads nothing more. The rest is for what it has read already.
const PAUSE_SHARE: usize = 4;

/// The result of a job.
pub(crate) struct Done {
    session: Arc<Session>,
    outcome: Outcome,
}

impl Completed for Done {
    fn settle(self: Box<Self>, outside: &mut Outside<'_>) -> Option<Box<dyn Any>> {
        let Outside { services, delivery, jobs, at, is_connected } = outside;
        match &self.outcome {
            Outcome::Retained(_) => jobs.scans.done(self.session.app),
            _ => jobs.running -= 1,
        }
        let orphans = jobs.orphans.remove(at).and_then(|orphans| orphans.downcast().ok());
        let mut orphans: Box<VecDeque<Task>> = orphans.unwrap_or_default();
        if !*is_connected {
            undo(&self.outcome, &mut orphans);
        }
        if !orphans.is_empty() {
            run_all(services, delivery, self.session.clone(), *orphans);
        }
        if *is_connected {
            return Some(self);
        }
        // If the session's next connection sends it again, it is the same message (§4.3.3).
        if let Outcome::Published(all) = self.outcome {
            let accepted = all.into_iter().filter_map(|(answer, result)| answer.filter(|_| result.is_ok()));
            accepted.for_each(|answer| service(services).sessions.published(&self.session, answer));
        }
        None
    }
}

/// Jobs of one connection; exists while one waits or runs.
#[derive(Default)]
pub(crate) struct Queue {
    tasks: VecDeque<Task>,
    bytes: usize,
    /// One runs, or waits for its turn.
    busy: bool,
    /// One runs, so its end takes what the connection leaves behind.
    runs: bool,
}

impl Queue {
    pub(super) fn is_busy(&self) -> bool {
        self.busy
    }

    pub(super) fn pauses_reading(&self) -> bool {
        self.tasks.len() * PAUSE_SHARE >= QUEUED_MAX || self.bytes * PAUSE_SHARE >= QUEUED_BYTES_MAX
    }

    pub(super) fn front(&self) -> Option<&Task> {
        self.tasks.front()
    }

    fn pop(&mut self) -> Option<Task> {
        let task = self.tasks.pop_front()?;
        self.bytes -= task.bytes();
        Some(task)
    }

    /// Whether the next job is a scan; scans have a separate order ([`super::scan`]).
    fn scans_next(&self) -> bool {
        matches!(self.tasks.front(), Some(Task::Retained { .. }))
    }
}

impl Mqtt {
    /// False if there is no room.
    pub(super) fn enqueue(&mut self, cx: &mut Context<'_>, task: Task) -> bool {
        let queue = self.queue.get_or_insert_default();
        if queue.tasks.len() >= QUEUED_MAX
            || queue.bytes + task.bytes() > QUEUED_BYTES_MAX && !queue.tasks.is_empty()
        {
            return false;
        }
        queue.bytes += task.bytes();
        queue.tasks.push_back(task);
        if !std::mem::replace(&mut queue.busy, true) {
            cx.jobs.waiting.push_back(cx.facts.at());
        }
        true
    }

    /// Closes the connection if there is no room.
    pub(super) fn enqueue_or_close(&mut self, cx: &mut Context<'_>, task: Task) {
        if !self.enqueue(cx, task) {
            cx.close(CloseReason::RateLimited);
        }
    }

    pub(super) fn run_scan(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(session) = cx.session.cloned() else { return false };
        let Some(queue) = self.queue.as_mut().filter(|queue| queue.scans_next()) else { return false };
        let Some(task) = queue.pop() else { return false };
        queue.runs = true;
        run(cx, session, task, None, 0);
        true
    }

    pub(super) fn run_job(&mut self, cx: &mut Context<'_>) -> bool {
        let (sent, from) = (cx.progress.sent_by_wildcard(self.since), cx.progress.offered());
        if cx.facts.phase != Phase::Open {
            return false;
        }
        let catch_up = cx.progress.catch_up.as_deref_mut();
        let (left_out, unsent, due) =
            catch_up.map(|it| (it.gaps().begin(), it.unsent(), it.retained_due())).unwrap_or_default();
        let Some(session) = cx.session.cloned() else { return false };
        if self.queue.as_ref().is_some_and(|queue| queue.scans_next()) {
            cx.jobs.scans.push(session.app, cx.facts.at());
            return false;
        }
        self.since = sent;
        let (since, expiry_s) = (left_out.map_or(sent, |place| place.min(sent)), self.expiry_s);
        let Some(queue) = self.queue.as_mut() else { return false };
        let Some(mut task) = queue.pop() else { return false };
        queue.runs = true;
        match &mut task {
            Task::Unsubscribe { held, .. } => {
                *held = self.conversation.in_flight().map(|owed| owed.id).collect();
            }
            // While publications wait for room, each gets its answer before the next one waits.
            Task::Publish(all) if !cx.delivery.publisher.is_crowded() => {
                while let Some(Task::Publish(_)) = queue.front()
                    && let Some(Task::Publish(next)) = queue.pop()
                {
                    all.extend(next);
                }
            }
            Task::Subscribe { had, .. } => {
                let held = self.conversation.subscriptions();
                *had = held.filter_map(|held| share(&held.filter)).collect();
            }
            _ => {}
        }
        let held = || self.subscriptions(&due);
        let store = |subscriptions| {
            let owed = owed(self.conversation.in_flight(), &unsent);
            Some(StoredSession { since, expiry_s, owed, subscriptions })
        };
        // What the session will be, stored before the client gets its answer.
        let stored = match &task {
            Task::Subscribe { request, lasts: true, .. } => {
                let mut subscriptions = held();
                for mut new in request.subscriptions(from.0) {
                    if let Some(at) = subscriptions.iter().position(|old| old.filter == new.filter) {
                        new.since = subscriptions.remove(at).since;
                    }
                    subscriptions.push(new);
                }
                store(subscriptions)
            }
            Task::Unsubscribe { request, lasts: true, .. } => {
                let mut subscriptions = held();
                subscriptions.retain(|old| request.filters().all(|filter| *filter != old.filter));
                store(subscriptions)
            }
            _ => None,
        };
        cx.jobs.running += 1;
        run(cx, session, task, stored, expiry_s);
        true
    }

    pub(super) fn finish_job(&mut self, cx: &mut Context<'_>, done: Done) {
        if let Some(queue) = &mut self.queue {
            queue.runs = false;
        }
        match done.outcome {
            Outcome::Published(all) => {
                self.answer(cx, |conversation, out| {
                    let mut answered = all.into_iter().filter_map(|(answer, result)| Some((answer?, result)));
                    answered.try_for_each(|(answer, result)| conversation.published(answer, result, out))
                });
            }
            Outcome::Forgotten => {}
            Outcome::OverQuota => cx.close(CloseReason::QuotaExceeded),
            Outcome::Failed => cx.close(CloseReason::Internal),
            Outcome::Subscribed { request, lasts, rules, .. } => {
                self.finish_subscribe(cx, request, lasts);
                cx.push(Effect::Recheck(rules));
            }
            Outcome::Unsubscribed { request } => self.finish_unsubscribe(cx, request),
            Outcome::Retained(Ok(messages)) => {
                if let Some(catch_up) = cx.progress.catch_up.as_mut() {
                    catch_up.take_retained(messages);
                }
                cx.push(Effect::Advance);
            }
            Outcome::Retained(Err(error)) => {
                tracing::warn!(%error, "could not read retained messages for a new subscription");
                cx.close(CloseReason::Overloaded);
            }
        }
        match &mut self.queue {
            Some(queue) if queue.tasks.is_empty() => self.queue = None,
            Some(_) => cx.jobs.waiting.push_back(cx.facts.at()),
            None => {}
        }
    }
}

fn run(cx: &Context<'_>, session: Arc<Session>, task: Task, stored: Option<StoredSession>, expiry_s: u32) {
    let (services, delivery) = (cx.services.clone(), cx.delivery.clone());
    let failed = match task {
        Task::Retained { .. } => Outcome::Retained(Err(StoreError::Overloaded)),
        _ => Outcome::Failed,
    };
    let job = Job { services, delivery, session: session.clone(), task, stored, expiry_s };
    cx.run(job.carry_out(), move |outcome| Done { session, outcome: outcome.unwrap_or(failed) });
}

/// The connection is over: its publications are still published, and `last` is done behind them. `lasts`: its session
/// does not end.
pub(super) fn leave(
    cx: &mut Context<'_>,
    session: &Arc<Session>,
    queue: Option<Queue>,
    lasts: bool,
    last: impl IntoIterator<Item = Task>,
) {
    let at = (cx.facts.slot, session.address.generation);
    let queue = queue.unwrap_or_default();
    let goes_on = |task: &Task| match task {
        Task::Publish(all) => {
            !lasts || all.iter().all(|one| one.answer.is_none_or(|answer| !answer.is_exactly_once()))
        }
        task => matches!(task, Task::Forget { .. } | Task::LeaveShares { .. }),
    };
    let mut tasks: VecDeque<Task> = queue.tasks.into_iter().filter(goes_on).collect();
    tasks.extend(last);
    let Jobs { scans, orphans, .. } = cx.jobs;
    scans.remove(session.app, at);
    match queue.runs {
        _ if tasks.is_empty() => {}
        true => drop(orphans.insert(at, Box::new(tasks))),
        false => run_all(cx.services, cx.delivery, session.clone(), tasks),
    }
}

/// Runs the tasks of a connection that has ended.
fn run_all(services: &Arc<Services>, delivery: &Arc<Delivery>, session: Arc<Session>, tasks: VecDeque<Task>) {
    let (services, of_job) = (services.clone(), delivery.clone());
    delivery.work(async move {
        for task in tasks {
            let (services, delivery, session) = (services.clone(), of_job.clone(), session.clone());
            Job { services, delivery, session, task, stored: None, expiry_s: 0 }.carry_out().await;
        }
    });
}

/// Undoes a job that ended after its connection, since the client got no answer. New subscriptions end before anything
/// else is written. The stored session drops the filters that were unsubscribed.
fn undo(done: &Outcome, tasks: &mut VecDeque<Task>) {
    match done {
        Outcome::Subscribed { made, joined, .. } => {
            if !joined.is_empty() {
                tasks.push_front(Task::LeaveShares { what: Leave::Shares(joined.clone()), held: Vec::new() });
            }
            if !made.is_empty() {
                tasks.push_front(Task::Undo { topics: made.clone() });
            }
        }
        Outcome::Unsubscribed { request } => {
            for task in tasks {
                if let Task::Store { session, .. } = task {
                    session
                        .subscriptions
                        .retain(|held| request.filters().all(|filter| *filter != held.filter));
                }
            }
        }
        _ => {}
    }
}
