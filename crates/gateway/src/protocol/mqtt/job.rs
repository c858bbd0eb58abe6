//! What an MQTT client asks of the store: publications, and subscriptions that outlast its connection. The jobs of one
//! connection run one after the other, outside the shard, so that they take effect in the client's order.
//!
//! Bounds: [`QUEUED_MAX`] and [`QUEUED_BYTES_MAX`] for a connection, [`crate::protocol::requests::JOBS_MAX`] jobs of a shard at once. What a client
//! published before it left is published all the same. The exception is a message that has to be published exactly once
//! and whose job did not start: a client whose session lasts sends it again, since it got no answer.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::future::{FutureExt, join_all};
use noroshi_delivery::rules::AppRules;
use noroshi_delivery::{Delivery, Error};
use noroshi_protocol::mqtt::{
    Answer, PublishRefused, SubscribeRefused, SubscribeRequest, TopicFilter, UnsubscribeRequest,
};
use noroshi_store::{Error as StoreError, JoinShares, Leave, LeaveShares, Share};
use noroshi_types::{CloseReason, Message, NotificationId, Request as Publication, Target, Topic};

use super::final_write::FinalWrite;
use super::session::owed;
use super::stored::StoredSession;
use super::subscribe::share;
use super::{Mqtt, Request, scan, service};
use crate::protocol::context::Context;
use crate::protocol::effect::Effect;
use crate::protocol::requests::{Completed, Outside, PendingRequests, Turn};
use crate::protocol::services::Services;
use crate::session::phase::Phase;
use crate::session::registry::Session;

/// Jobs of one connection that wait.
const QUEUED_MAX: usize = 256;
/// Bytes of their publications.
const QUEUED_BYTES_MAX: usize = 256 << 10;

#[derive(Debug)]
pub(crate) enum Task {
    Publish {
        request: Box<Publication>,
        clears: bool,
        answer: Option<Answer>,
    },
    Subscribe {
        request: SubscribeRequest,
        lasts: bool,
        /// The rules that allowed it.
        rules: Option<Arc<AppRules>>,
        /// The shared subscriptions that the client has when the job starts.
        had: Vec<Share>,
    },
    Unsubscribe {
        request: UnsubscribeRequest,
        lasts: bool,
        /// Messages of its shares that the client has not confirmed when the job starts: it still confirms them.
        held: Vec<NotificationId>,
    },
    /// Joins the shared subscriptions of a session that continues, with the QoS that was granted.
    Join {
        shares: Vec<(Share, u8)>,
    },
    /// The client leaves shared subscriptions without UNSUBSCRIBE.
    LeaveShares {
        what: Leave,
        held: Vec<NotificationId>,
    },
    /// Ends the durable subscriptions of an earlier session. `write`: if the session ends with its connection.
    Forget {
        topics: Vec<Topic>,
        write: Option<FinalWrite>,
    },
    /// Stores the session of a connection that is over.
    Store {
        session: Box<StoredSession>,
        write: FinalWrite,
    },
    /// Ends durable subscriptions that were made for a client that got no answer.
    Undo {
        topics: Vec<Topic>,
    },
    /// Reads the retained messages of the topics that these filters match, of those accepted up to an id.
    Retained {
        filters: Vec<Box<str>>,
        up_to: NotificationId,
    },
}

impl Task {
    fn bytes(&self) -> usize {
        match self {
            Task::Publish { request, .. } => request.data.as_ref().map_or(0, |data| data.as_str().len()),
            _ => 0,
        }
    }
}

/// How a task ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    Published {
        answer: Option<Answer>,
        result: Result<(), PublishRefused>,
    },
    Subscribed {
        request: SubscribeRequest,
        lasts: bool,
        rules: Option<Arc<AppRules>>,
        /// The durable and the shared subscriptions that are new.
        made: Vec<Topic>,
        joined: Vec<Share>,
    },
    Unsubscribed {
        request: UnsubscribeRequest,
    },
    Forgotten,
    Retained(Result<Vec<Arc<Message>>, StoreError>),
    /// The session's shared subscriptions are over the app's limits.
    OverQuota,
    /// A defect: the client gets no answer.
    Failed,
}

/// A task with what it needs.
struct Job {
    services: Arc<Services>,
    delivery: Arc<Delivery>,
    session: Arc<Session>,
    task: Task,
    /// What the store has of the session afterwards.
    stored: Option<StoredSession>,
    expiry_s: u32,
}

/// The result of a job.
pub(crate) struct Done {
    session: Arc<Session>,
    outcome: Outcome,
}

impl Completed for Done {
    fn settle(self: Box<Self>, outside: &mut Outside<'_>) -> Option<Box<dyn Any>> {
        let Outside { services, delivery, requests, at, is_connected } = outside;
        match &self.outcome {
            Outcome::Retained(_) => requests.scans.done(self.session.app),
            _ => requests.running -= 1,
        }
        let orphans = requests.orphans.remove(at).and_then(|orphans| orphans.downcast().ok());
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
        if let Outcome::Published { answer: Some(answer), result: Ok(()) } = self.outcome {
            service(services).sessions.published(&self.session, answer);
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
}

impl Queue {
    pub(super) fn is_busy(&self) -> bool {
        self.busy
    }

    pub(super) fn front(&self) -> Option<&Task> {
        self.tasks.front()
    }

    fn pop(&mut self) -> Option<Task> {
        let task = self.tasks.pop_front()?;
        self.bytes -= task.bytes();
        Some(task)
    }

    /// The next one is a scan, which has an order of its own ([`super::scan`]).
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
            cx.requests.waiting.push_back(cx.facts.at());
        }
        true
    }

    /// It is this connection's turn. Returns whether a job starts; [`PendingRequests`] counts those that run.
    pub(super) fn take_turn(&mut self, cx: &mut Context<'_>, turn: Turn) -> bool {
        match turn {
            Turn::Job if cx.facts.phase == Phase::Open && self.end_names_of_next(cx) => {
                cx.push(Effect::Continue(Request::RunJob.into()));
                true
            }
            Turn::Job => self.run_job(cx),
            Turn::Scan => self.run_scan(cx),
        }
    }

    fn run_scan(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(session) = cx.session.cloned() else { return false };
        let Some(queue) = self.queue.as_mut().filter(|queue| queue.scans_next()) else { return false };
        let Some(task) = queue.pop() else { return false };
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
            cx.requests.scans.push(session.app, cx.facts.at());
            return false;
        }
        self.since = sent;
        let (since, expiry_s) = (left_out.map_or(sent, |place| place.min(sent)), self.expiry_s);
        let Some(mut task) = self.queue.as_mut().and_then(|queue| queue.pop()) else { return false };
        match &mut task {
            Task::Unsubscribe { held, .. } => {
                *held = self.conversation.in_flight().map(|owed| owed.id).collect();
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
        cx.requests.running += 1;
        run(cx, session, task, stored, expiry_s);
        true
    }

    pub(super) fn finish_job(&mut self, cx: &mut Context<'_>, done: Done) {
        match done.outcome {
            Outcome::Published { answer: Some(answer), result } => {
                self.answer(cx, |conversation, out| conversation.published(answer, result, out));
            }
            Outcome::Published { answer: None, .. } | Outcome::Forgotten => {}
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
            Some(_) => cx.requests.waiting.push_back(cx.facts.at()),
            None => {}
        }
    }
}

fn run(cx: &Context<'_>, session: Arc<Session>, task: Task, stored: Option<StoredSession>, expiry_s: u32) {
    let (services, delivery) = (cx.services.clone(), cx.delivery.clone());
    let scans = matches!(task, Task::Retained { .. });
    cx.run(async move {
        let job =
            Job { services: services.clone(), delivery, session: session.clone(), task, stored, expiry_s };
        let outcome = AssertUnwindSafe(job.carry_out()).catch_unwind().await.unwrap_or_else(|_| {
            services.metrics.panics.inc();
            match scans {
                true => Outcome::Retained(Err(StoreError::Overloaded)),
                false => Outcome::Failed,
            }
        });
        Done { session, outcome }
    });
}

/// The connection is over: its publications are still published, and `last` is done behind them. `lasts`: its session does
/// not end.
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
        Task::Publish { answer, .. } => !lasts || answer.is_none_or(|answer| !answer.is_exactly_once()),
        task => matches!(task, Task::Forget { .. } | Task::LeaveShares { .. }),
    };
    let mut tasks: VecDeque<Task> = queue.tasks.into_iter().filter(goes_on).collect();
    tasks.extend(last);
    let PendingRequests { waiting, scans, orphans, .. } = cx.requests;
    let waits = waiting.iter().any(|waiting| *waiting == at) || scans.remove(session.app, at);
    match queue.busy && !waits {
        _ if tasks.is_empty() => {}
        true => drop(orphans.insert(at, Box::new(tasks))),
        false => run_all(cx.services, cx.delivery, session.clone(), tasks),
    }
}

/// Runs the tasks of a connection that is over.
fn run_all(services: &Arc<Services>, delivery: &Arc<Delivery>, session: Arc<Session>, tasks: VecDeque<Task>) {
    let (services, of_job) = (services.clone(), delivery.clone());
    delivery.work(async move {
        for task in tasks {
            let (services, delivery, session) = (services.clone(), of_job.clone(), session.clone());
            Job { services, delivery, session, task, stored: None, expiry_s: 0 }.carry_out().await;
        }
    });
}

impl Job {
    async fn carry_out(self) -> Outcome {
        let Self { services, delivery, session, task, stored, expiry_s } = self;
        let (delivery, session) = (&delivery, &*session);
        // It continues from what the device's connection before writes.
        if !matches!(task, Task::Publish { .. } | Task::Retained { .. }) {
            let writes = service(&services).sessions.final_writes();
            writes.wait_for_earlier(session.device_key, session.address.generation).await;
        }
        match task {
            Task::Publish { request, clears, answer } => {
                let result = publish(delivery, session, *request, clears).await;
                Outcome::Published { answer, result }
            }
            Task::Subscribe { mut request, lasts, rules, had } => {
                let stored = join_shares(delivery, session, &mut request, expiry_s, stored).await;
                let joined = request.shares().filter_map(|(filter, _)| share(filter));
                let mut joined: Vec<Share> = joined.filter(|share| !had.contains(share)).collect();
                let mut made = Vec::new();
                if lasts && let Err(refused) = subscribe(delivery, session, &request, stored, &mut made).await
                {
                    request.refuse(|_| Some(refused));
                    unsubscribe(delivery, session, &std::mem::take(&mut made)).await;
                    let joined = std::mem::take(&mut joined);
                    if !joined.is_empty()
                        && let Err(error) =
                            leave_shares(delivery, session, Leave::Shares(joined), Vec::new()).await
                    {
                        tracing::warn!(%error, "could not undo shared subscriptions that were refused");
                        return Outcome::Failed;
                    }
                }
                Outcome::Subscribed { request, lasts, rules, made, joined }
            }
            Task::Join { shares } => {
                if let Err(error) = join(delivery, session, shares, expiry_s).await {
                    if matches!(error, Error::Store(StoreError::Limit(_))) {
                        return Outcome::OverQuota;
                    }
                    tracing::warn!(%error, "could not restore a session's shared subscriptions; closing its connection");
                    return Outcome::Failed;
                }
                Outcome::Forgotten
            }
            Task::LeaveShares { what, held } => {
                if let Err(error) = leave_shares(delivery, session, what, held).await {
                    tracing::warn!(%error, "could not report that a member of shared subscriptions left");
                }
                Outcome::Forgotten
            }
            Task::Unsubscribe { request, lasts, held } => {
                let shares: Vec<Share> = request.filters().filter_map(share).collect();
                if !shares.is_empty()
                    && let Err(error) = leave_shares(delivery, session, Leave::Shares(shares), held).await
                {
                    tracing::warn!(%error, "could not end shared subscriptions; closing the connection");
                    return Outcome::Failed;
                }
                if lasts {
                    let topics: Vec<Topic> = request.filters().filter_map(|filter| filter.topic()).collect();
                    forget(delivery, session, &topics, stored.map(|stored| stored.encode())).await;
                }
                Outcome::Unsubscribed { request }
            }
            Task::Forget { topics, write } => {
                forget(delivery, session, &topics, None).await;
                drop(write);
                Outcome::Forgotten
            }
            Task::Undo { topics } => {
                unsubscribe(delivery, session, &topics).await;
                Outcome::Forgotten
            }
            Task::Store { session: stored, write } => {
                // Another node that has the device by now writes for itself.
                let is_elsewhere = delivery.session_elsewhere(session.app, &session.device).await.is_some();
                if !is_elsewhere
                    && let Err(error) =
                        delivery.store().keep_session(session.num, Some(stored.encode())).await
                {
                    tracing::warn!(%error, "could not save a session's position; its client may receive messages again");
                }
                drop(write);
                Outcome::Forgotten
            }
            Task::Retained { filters, up_to } => {
                Outcome::Retained(scan::scan(&services, delivery, session, &filters, up_to).await)
            }
        }
    }
}

pub(super) async fn publish(
    delivery: &Arc<Delivery>,
    session: &Session,
    request: Publication,
    clears: bool,
) -> Result<(), PublishRefused> {
    let store = delivery.store();
    if clears && let Target::Topic(topic) = &request.target {
        store.delete_retained(session.app, topic).await.map_err(|_| PublishRefused::Unavailable)?;
    }
    match delivery.publish_as_root(session.app, request, None).await {
        Ok(_) => Ok(()),
        Err(Error::Store(StoreError::Limit(_)) | Error::OverQuota(_)) => Err(PublishRefused::OverQuota),
        Err(error) => {
            tracing::debug!(%error, "a client's publication was not accepted");
            Err(PublishRefused::Unavailable)
        }
    }
}

/// Makes the durable subscriptions of a request and stores the session. `made` has the new ones, also if others fail.
async fn subscribe(
    delivery: &Arc<Delivery>,
    session: &Session,
    request: &SubscribeRequest,
    stored: Option<StoredSession>,
    made: &mut Vec<Topic>,
) -> Result<(), SubscribeRefused> {
    let (store, now) = (delivery.store(), delivery.clock().now());
    let topics: Vec<Topic> = request.subscriptions(0).filter_map(|one| one.filter.topic()).collect();
    let held = match delivery.admit_subscriptions(session.app, &session.device, &topics).await {
        Ok(held) => held,
        Err(Error::OverQuota(_)) => return Err(SubscribeRefused::OverQuota),
        Err(error) => {
            tracing::warn!(%error, "could not check the quota of a subscription");
            return Err(SubscribeRefused::Unavailable);
        }
    };
    // Together, so that they are one commit.
    let all =
        join_all(topics.iter().map(|topic| store.subscribe(session.app, &session.device, topic, now))).await;
    delivery.device_changed(session.app, &session.device);
    let is_new = |(topic, result): (&Topic, &Result<bool, StoreError>)| {
        matches!(result, Ok(true)).then(|| topic.clone())
    };
    made.extend(topics.iter().zip(&all).filter_map(is_new));
    let refused = |error: StoreError| match error {
        StoreError::Limit(_) => SubscribeRefused::OverQuota,
        error => {
            tracing::warn!(%error, "could not store a subscription");
            SubscribeRefused::Unavailable
        }
    };
    for result in all {
        result.map_err(refused)?;
    }
    held.settle();
    let stored = stored.map(|stored| stored.encode());
    store.keep_session(session.num, stored).await.map_err(refused)
}

/// Makes the shared subscriptions of a request, or refuses all of them. Returns what to store of the session, without those
/// that were refused.
async fn join_shares(
    delivery: &Delivery,
    session: &Session,
    request: &mut SubscribeRequest,
    expiry_s: u32,
    mut stored: Option<StoredSession>,
) -> Option<StoredSession> {
    let asked = request.shares().filter_map(|(filter, qos)| Some((share(filter)?, qos as u8)));
    let shares: Vec<(Share, u8)> = asked.collect();
    if shares.is_empty() {
        return stored;
    }
    let refused = match join(delivery, session, shares, expiry_s).await {
        Ok(()) => return stored,
        Err(Error::Store(StoreError::Limit(_))) => SubscribeRefused::OverQuota,
        Err(error) => {
            tracing::warn!(%error, "could not make a shared subscription");
            SubscribeRefused::Unavailable
        }
    };
    if let Some(stored) = &mut stored {
        let new: Vec<TopicFilter> = request.shares().map(|(filter, _)| filter.clone()).collect();
        stored.subscriptions.retain(|held| !new.contains(&held.filter));
    }
    request.refuse(|filter| filter.share().map(|_| refused));
    stored
}

async fn join(
    delivery: &Delivery,
    session: &Session,
    shares: Vec<(Share, u8)>,
    expiry_s: u32,
) -> Result<(), Error> {
    let (app, device, generation) = (session.app, session.num, session.address.generation);
    delivery.join_shares(JoinShares { app, device, shares, generation, expiry_s }).await
}

async fn leave_shares(
    delivery: &Delivery,
    session: &Session,
    what: Leave,
    held: Vec<NotificationId>,
) -> Result<(), Error> {
    let (device, generation) = (session.num, session.address.generation);
    delivery.leave_shares(session.app, LeaveShares { device, generation, what, held }).await
}

/// Ends durable subscriptions. `stored` becomes what the store has of the session.
pub(super) async fn forget(
    delivery: &Arc<Delivery>,
    session: &Session,
    topics: &[Topic],
    stored: Option<Vec<u8>>,
) {
    let store = delivery.store();
    // The session ended: the store keeps nothing of it.
    if stored.is_none()
        && delivery.has_shares(session.app)
        && let Err(error) = leave_shares(delivery, session, Leave::Session, Vec::new()).await
    {
        tracing::warn!(%error, "could not end a session's shared subscriptions; the leader ends them when the session expires");
    }
    unsubscribe(delivery, session, topics).await;
    let failed = store.keep_session(session.num, stored).await.err();
    if let Some(error) = failed.filter(|error| !matches!(error, StoreError::NotFound)) {
        tracing::warn!(%error, "could not save what is left of a session");
    }
}

async fn unsubscribe(delivery: &Arc<Delivery>, session: &Session, topics: &[Topic]) {
    let store = delivery.store();
    let all = topics.iter().map(|topic| store.unsubscribe(session.app, &session.device, topic));
    let failed = join_all(all).await.into_iter().find_map(Result::err);
    delivery.device_changed(session.app, &session.device);
    if let Some(error) = failed.filter(|error| !matches!(error, StoreError::NotFound)) {
        tracing::warn!(%error, "could not remove the durable subscriptions of a session");
    }
}

/// A job ended after its connection: the client got no answer. New subscriptions end before anything else is written.
/// The stored session drops the filters that were unsubscribed.
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
