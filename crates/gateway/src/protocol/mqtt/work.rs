//! What an MQTT client asks of the store: publishing, and subscriptions that outlast its connection. Done one
//! after the other for each connection, off the shard, so that what a client did first happens first.
//!
//! Bounds: [`QUEUED_MAX`] and [`QUEUED_BYTES_MAX`] for a connection, [`OUT_MAX`] jobs of a shard at once. What
//! a client published before it left is published all the same, but for what has to be published exactly once
//! and was not begun: a client whose session lasts sends it again, as nobody told it that it was received.

use std::collections::{HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::future::{FutureExt, join_all};
use noroshi_delivery::rules::AppRules;
use noroshi_delivery::{Delivery, Error};
use noroshi_protocol::mqtt::{
    Answer, PublishRefused, SubscribeRefused, SubscribeRequest, TopicFilter, UnsubscribeRequest,
};
use noroshi_store::{Error as StoreError, JoinShares, Leave, LeaveShares, Place, Share};
use noroshi_types::{CloseReason, Message, NotificationId, Request, Target, Topic};

use super::kept::Kept;
use super::last_words::{LastWords, Turn};
use super::scan::Scans;
use super::session::owed;
use super::subscribing::share;
use crate::lifecycle::phase::Phase;
use crate::session::registry::Session;
use crate::shard::Shard;
use crate::shard::mailbox::Reply;

/// Jobs of one shard that are out at once.
pub(crate) const OUT_MAX: usize = 64;
/// Jobs of one connection that wait.
const QUEUED_MAX: usize = 256;
/// Of what they publish.
const QUEUED_BYTES_MAX: usize = 256 << 10;

#[derive(Debug)]
pub(crate) enum Job {
    Publish {
        request: Box<Request>,
        clears: bool,
        answer: Option<Answer>,
    },
    Subscribe {
        request: SubscribeRequest,
        lasts: bool,
        /// By which it was allowed.
        rules: Option<Arc<AppRules>>,
        /// The shared subscriptions that the client has, as the job begins.
        had: Vec<Share>,
    },
    Unsubscribe {
        request: UnsubscribeRequest,
        lasts: bool,
        /// What of its shares the client has not confirmed, as the job begins: it goes on.
        held: Vec<NotificationId>,
    },
    /// The session that goes on has these shared subscriptions, with what was granted.
    Join {
        shares: Vec<(Share, u8)>,
    },
    /// The client leaves shared subscriptions without UNSUBSCRIBE.
    LeaveShares {
        what: Leave,
        held: Vec<NotificationId>,
    },
    /// The durable subscriptions of an earlier session. `turn`: of one that ends with its connection.
    Forget {
        topics: Vec<Topic>,
        turn: Option<Turn>,
    },
    /// What the store keeps of the session whose connection is over.
    Keep {
        kept: Box<Kept>,
        turn: Turn,
    },
    /// Durable subscriptions that were made for a client that was not told of them.
    Undo {
        topics: Vec<Topic>,
    },
    /// What the topics of these filters retain of what was accepted up to an id.
    Retained {
        filters: Vec<Box<str>>,
        up_to: NotificationId,
    },
}

impl Job {
    fn bytes(&self) -> usize {
        match self {
            Job::Publish { request, .. } => request.data.as_ref().map_or(0, |data| data.as_str().len()),
            _ => 0,
        }
    }
}

/// How a job ended.
#[derive(Debug)]
pub(crate) enum Done {
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
    /// By a defect: the client is not answered.
    Failed,
}

/// Of one connection; there while something is to be done.
#[derive(Default)]
pub(crate) struct Queue {
    jobs: VecDeque<Job>,
    bytes: usize,
    /// One is out, or it waits for its turn.
    busy: bool,
}

impl Queue {
    pub(super) fn is_busy(&self) -> bool {
        self.busy
    }

    pub(super) fn pop(&mut self) -> Option<Job> {
        let job = self.jobs.pop_front()?;
        self.bytes -= job.bytes();
        Some(job)
    }

    pub(super) fn front(&self) -> Option<&Job> {
        self.jobs.front()
    }

    /// What comes next is a scan, which has an order of its own ([`super::scan`]).
    fn scans_next(&self) -> bool {
        matches!(self.jobs.front(), Some(Job::Retained { .. }))
    }
}

/// Of one shard.
#[derive(Default)]
pub(crate) struct Works {
    waiting: VecDeque<(u32, u64)>,
    out: usize,
    pub(super) scans: Scans,
    /// What connections that are gone still had to publish, behind the job that is out.
    orphans: HashMap<(u32, u64), VecDeque<Job>>,
}

impl Shard {
    /// Whether something the client asked for is not done yet.
    pub(super) fn has_work(&mut self, slot: u32) -> bool {
        self.mqtt(slot).is_some_and(|mqtt| mqtt.queue.is_some())
    }

    /// False if there is no room.
    pub(super) fn queue_job(&mut self, slot: u32, job: Job) -> bool {
        let Some(generation) = self.connection(slot).map(|connection| connection.generation) else {
            return true;
        };
        let Some(mqtt) = self.mqtt(slot) else { return true };
        let queue = mqtt.queue.get_or_insert_default();
        if queue.jobs.len() >= QUEUED_MAX
            || queue.bytes + job.bytes() > QUEUED_BYTES_MAX && !queue.jobs.is_empty()
        {
            return false;
        }
        queue.bytes += job.bytes();
        queue.jobs.push_back(job);
        if !std::mem::replace(&mut queue.busy, true) {
            self.works.waiting.push_back((slot, generation));
        }
        true
    }

    /// Sends the jobs whose turn it is.
    pub(crate) fn send_works(&mut self) {
        self.send_jobs();
        self.send_scans();
    }

    fn send_jobs(&mut self) {
        while self.works.out < OUT_MAX {
            let Some((slot, generation)) = self.works.waiting.pop_front() else { return };
            self.end_names_next(slot, generation);
            let floor = self.mqtt(slot).map_or(Place(0), |mqtt| mqtt.since);
            let (sent, from) = (self.sent_by_wildcard(slot, floor), self.heard_from(slot));
            let left_out = self.left_out_behind(slot);
            let Some(connection) = self.at(slot, generation).filter(|it| it.phase == Phase::Open) else {
                continue;
            };
            let unsent = connection.catch_up.as_ref().map(|catch_up| catch_up.unsent()).unwrap_or_default();
            let due =
                connection.catch_up.as_ref().map(|catch_up| catch_up.retained_due()).unwrap_or_default();
            let Some(session) = connection.session.clone() else { continue };
            let Some(mqtt) = self.mqtt(slot) else { continue };
            if mqtt.queue.as_ref().is_some_and(|queue| queue.scans_next()) {
                self.works.scans.push(session.app, (slot, generation));
                continue;
            }
            mqtt.since = sent;
            let (since, expiry_s) = (left_out.map_or(sent, |place| place.min(sent)), mqtt.expiry_s);
            let Some(mut job) = mqtt.queue.as_mut().and_then(|queue| queue.pop()) else { continue };
            match &mut job {
                Job::Unsubscribe { held, .. } => {
                    *held = mqtt.conversation.in_flight().map(|owed| owed.id).collect();
                }
                Job::Subscribe { had, .. } => {
                    let held = mqtt.conversation.subscriptions();
                    *had = held.filter_map(|held| share(&held.filter)).collect();
                }
                _ => {}
            }
            let held = || mqtt.subscriptions(&due);
            let keep = |subscriptions| {
                let owed = owed(mqtt.conversation.in_flight(), &unsent);
                Some(Kept { since, expiry_s, owed, subscriptions })
            };
            // What the session will be, kept before the client is told.
            let kept = match &job {
                Job::Subscribe { request, lasts: true, .. } => {
                    let mut subscriptions = held();
                    for mut new in request.subscriptions(from.0) {
                        if let Some(at) = subscriptions.iter().position(|old| old.filter == new.filter) {
                            new.since = subscriptions.remove(at).since;
                        }
                        subscriptions.push(new);
                    }
                    keep(subscriptions)
                }
                Job::Unsubscribe { request, lasts: true, .. } => {
                    let mut subscriptions = held();
                    subscriptions.retain(|old| request.filters().all(|filter| *filter != old.filter));
                    keep(subscriptions)
                }
                _ => None,
            };
            let expiry_s = mqtt.expiry_s;
            self.works.out += 1;
            let (shared, index) = (self.shared.clone(), usize::from(self.index));
            let delivery = self.delivery.clone();
            self.delivery.work(async move {
                let words = shared.lefts.last_words();
                let run = run(&delivery, words, &session, job, kept, expiry_s);
                let ran = AssertUnwindSafe(run).catch_unwind().await;
                let done = ran.unwrap_or_else(|_| {
                    shared.metrics.panics.inc();
                    Done::Failed
                });
                let to = (slot, generation);
                shared.mailboxes[index].reply(Reply::Worked { to, session, done: Box::new(done) });
            });
        }
    }

    pub(crate) fn handle_worked(
        &mut self,
        (slot, generation): (u32, u64),
        session: &Arc<Session>,
        done: Done,
    ) {
        match &done {
            Done::Retained(_) => self.works.scans.done(session.app),
            _ => self.works.out -= 1,
        }
        let mut orphans = self.works.orphans.remove(&(slot, generation)).unwrap_or_default();
        if self.at(slot, generation).is_none() {
            undo(&done, &mut orphans);
        }
        if !orphans.is_empty() {
            self.publish_left(session.clone(), orphans);
        }
        if self.at(slot, generation).is_none() {
            // Sent again by the session's next connection it is the same message (§4.3.3).
            if let Done::Published { answer: Some(answer), result: Ok(()) } = done {
                self.shared.lefts.published(session, answer);
            }
            return;
        }
        self.guard(Some(slot), |shard| {
            shard.finish_job(slot, done);
            let Some(mqtt) = shard.mqtt(slot) else { return };
            match &mut mqtt.queue {
                Some(queue) if queue.jobs.is_empty() => mqtt.queue = None,
                Some(_) => shard.works.waiting.push_back((slot, generation)),
                None => {}
            }
        });
    }

    fn finish_job(&mut self, slot: u32, done: Done) {
        match done {
            Done::Published { answer: Some(answer), result } => {
                self.answer_mqtt(slot, |conversation, out| conversation.published(answer, result, out));
            }
            Done::Published { answer: None, .. } | Done::Forgotten => {}
            Done::OverQuota => self.begin_close(slot, CloseReason::QuotaExceeded),
            Done::Failed => self.begin_close(slot, CloseReason::Internal),
            Done::Subscribed { request, lasts, rules, .. } => {
                self.finish_subscribe(slot, request, lasts);
                self.recheck_if_changed(slot, rules.as_ref());
            }
            Done::Unsubscribed { request } => self.finish_unsubscribe(slot, request),
            Done::Retained(Ok(messages)) => {
                let Some(connection) = self.connection(slot) else { return };
                if let Some(catch_up) = &mut connection.catch_up {
                    catch_up.take_retained(messages);
                }
                self.advance(slot);
            }
            Done::Retained(Err(error)) => {
                tracing::warn!(%error, "what topics retain could not be read for a new subscription");
                self.begin_close(slot, CloseReason::Overloaded);
            }
        }
    }

    /// The connection is over: what it published goes on, and `last` behind it. `lasts`: its session does not end.
    pub(super) fn leave_work(
        &mut self,
        slot: u32,
        session: &Arc<Session>,
        queue: Option<Queue>,
        lasts: bool,
        last: impl IntoIterator<Item = Job>,
    ) {
        let generation = session.address.generation;
        let queue = queue.unwrap_or_default();
        let goes_on = |job: &Job| match job {
            Job::Publish { answer, .. } => !lasts || answer.is_none_or(|answer| !answer.is_exactly_once()),
            job => matches!(job, Job::Forget { .. } | Job::LeaveShares { .. }),
        };
        let mut jobs: VecDeque<Job> = queue.jobs.into_iter().filter(goes_on).collect();
        jobs.extend(last);
        let waits = self.works.waiting.iter().any(|waiting| *waiting == (slot, generation))
            || self.works.scans.remove(session.app, (slot, generation));
        match queue.busy && !waits {
            _ if jobs.is_empty() => {}
            true => drop(self.works.orphans.insert((slot, generation), jobs)),
            false => self.publish_left(session.clone(), jobs),
        }
    }

    fn publish_left(&self, session: Arc<Session>, jobs: VecDeque<Job>) {
        let (delivery, shared) = (self.delivery.clone(), self.shared.clone());
        self.delivery.work(async move {
            for job in jobs {
                run(&delivery, shared.lefts.last_words(), &session, job, None, 0).await;
            }
        });
    }
}

async fn run(
    delivery: &Arc<Delivery>,
    words: &LastWords,
    session: &Session,
    job: Job,
    kept: Option<Kept>,
    expiry_s: u32,
) -> Done {
    // What it writes goes on from what the device's connection before writes.
    if !matches!(job, Job::Publish { .. } | Job::Retained { .. }) {
        words.wait_for_earlier(session.device_key, session.address.generation).await;
    }
    match job {
        Job::Publish { request, clears, answer } => {
            let result = publish(delivery, session, *request, clears).await;
            Done::Published { answer, result }
        }
        Job::Subscribe { mut request, lasts, rules, had } => {
            let kept = join_shares(delivery, session, &mut request, expiry_s, kept).await;
            let joined = request.shares().filter_map(|(filter, _)| share(filter));
            let mut joined: Vec<Share> = joined.filter(|share| !had.contains(share)).collect();
            let mut made = Vec::new();
            if lasts && let Err(refused) = subscribe(delivery, session, &request, kept, &mut made).await {
                request.refuse(|_| Some(refused));
                unsubscribe(delivery, session, &std::mem::take(&mut made)).await;
                let joined = std::mem::take(&mut joined);
                if !joined.is_empty()
                    && let Err(error) =
                        leave_shares(delivery, session, Leave::Shares(joined), Vec::new()).await
                {
                    tracing::warn!(%error, "could not undo shared subscriptions that were refused");
                    return Done::Failed;
                }
            }
            Done::Subscribed { request, lasts, rules, made, joined }
        }
        Job::Join { shares } => {
            if let Err(error) = join(delivery, session, shares, expiry_s).await {
                if matches!(error, Error::Store(StoreError::Limit(_))) {
                    return Done::OverQuota;
                }
                tracing::warn!(%error, "could not restore a session's shared subscriptions; closing its connection");
                return Done::Failed;
            }
            Done::Forgotten
        }
        Job::LeaveShares { what, held } => {
            if let Err(error) = leave_shares(delivery, session, what, held).await {
                tracing::warn!(%error, "could not report that a member of shared subscriptions left");
            }
            Done::Forgotten
        }
        Job::Unsubscribe { request, lasts, held } => {
            let shares: Vec<Share> = request.filters().filter_map(share).collect();
            if !shares.is_empty()
                && let Err(error) = leave_shares(delivery, session, Leave::Shares(shares), held).await
            {
                tracing::warn!(%error, "could not end shared subscriptions; closing the connection");
                return Done::Failed;
            }
            if lasts {
                let topics: Vec<Topic> = request.filters().filter_map(|filter| filter.topic()).collect();
                forget(delivery, session, &topics, kept.map(|kept| kept.encode())).await;
            }
            Done::Unsubscribed { request }
        }
        Job::Forget { topics, turn } => {
            forget(delivery, session, &topics, None).await;
            drop(turn);
            Done::Forgotten
        }
        Job::Undo { topics } => {
            unsubscribe(delivery, session, &topics).await;
            Done::Forgotten
        }
        Job::Keep { kept, turn } => {
            // Another node that has the device by now writes for itself.
            let is_elsewhere = delivery.session_elsewhere(session.app, &session.device).await.is_some();
            if !is_elsewhere
                && let Err(error) = delivery.store().keep_session(session.num, Some(kept.encode())).await
            {
                tracing::warn!(%error, "could not save a session's position; its client may receive messages again");
            }
            drop(turn);
            Done::Forgotten
        }
        // Sent by `send_scans`, and of a connection that is gone not at all.
        Job::Retained { .. } => Done::Forgotten,
    }
}

pub(super) async fn publish(
    delivery: &Arc<Delivery>,
    session: &Session,
    request: Request,
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
            tracing::debug!(%error, "what a client published was not accepted");
            Err(PublishRefused::Unavailable)
        }
    }
}

/// Makes the durable ones of the subscriptions that are asked for, and keeps the session. Those that are new are `made`, also
/// where others fail.
async fn subscribe(
    delivery: &Arc<Delivery>,
    session: &Session,
    request: &SubscribeRequest,
    kept: Option<Kept>,
    made: &mut Vec<Topic>,
) -> Result<(), SubscribeRefused> {
    let (store, now) = (delivery.store(), delivery.clock().now());
    let topics: Vec<Topic> = request.subscriptions(0).filter_map(|one| one.filter.topic()).collect();
    let held = match delivery.admit_subscriptions(session.app, &session.device, &topics).await {
        Ok(held) => held,
        Err(Error::OverQuota(_)) => return Err(SubscribeRefused::OverQuota),
        Err(error) => {
            tracing::warn!(%error, "the quota of a subscription could not be checked");
            return Err(SubscribeRefused::Unavailable);
        }
    };
    // At once, so that they are one commit.
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
            tracing::warn!(%error, "a subscription could not be kept");
            SubscribeRefused::Unavailable
        }
    };
    for result in all {
        result.map_err(refused)?;
    }
    held.settle();
    let kept = kept.map(|kept| kept.encode());
    store.keep_session(session.num, kept).await.map_err(refused)
}

/// Makes the shared ones of the subscriptions that are asked for, or refuses them, all together. What is to be kept of the
/// session is without those that were refused.
async fn join_shares(
    delivery: &Delivery,
    session: &Session,
    request: &mut SubscribeRequest,
    expiry_s: u32,
    mut kept: Option<Kept>,
) -> Option<Kept> {
    let asked = request.shares().filter_map(|(filter, qos)| Some((share(filter)?, qos as u8)));
    let shares: Vec<(Share, u8)> = asked.collect();
    if shares.is_empty() {
        return kept;
    }
    let refused = match join(delivery, session, shares, expiry_s).await {
        Ok(()) => return kept,
        Err(Error::Store(StoreError::Limit(_))) => SubscribeRefused::OverQuota,
        Err(error) => {
            tracing::warn!(%error, "could not make a shared subscription");
            SubscribeRefused::Unavailable
        }
    };
    if let Some(kept) = &mut kept {
        let new: Vec<TopicFilter> = request.shares().map(|(filter, _)| filter.clone()).collect();
        kept.subscriptions.retain(|held| !new.contains(&held.filter));
    }
    request.refuse(|filter| filter.share().map(|_| refused));
    kept
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

/// Ends durable subscriptions; what is kept besides becomes `kept`.
pub(super) async fn forget(
    delivery: &Arc<Delivery>,
    session: &Session,
    topics: &[Topic],
    kept: Option<Vec<u8>>,
) {
    let store = delivery.store();
    // Of a session that ended: nothing is kept.
    if kept.is_none()
        && delivery.has_shares(session.app)
        && let Err(error) = leave_shares(delivery, session, Leave::Session, Vec::new()).await
    {
        tracing::warn!(%error, "could not end a session's shared subscriptions; the leader ends them when the session expires");
    }
    unsubscribe(delivery, session, topics).await;
    let failed = store.keep_session(session.num, kept).await.err();
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

/// A job ended after its connection: the client was not told. New subscriptions are undone before anything else is written.
/// The saved session drops the filters that were unsubscribed.
fn undo(done: &Done, jobs: &mut VecDeque<Job>) {
    match done {
        Done::Subscribed { made, joined, .. } => {
            if !joined.is_empty() {
                jobs.push_front(Job::LeaveShares { what: Leave::Shares(joined.clone()), held: Vec::new() });
            }
            if !made.is_empty() {
                jobs.push_front(Job::Undo { topics: made.clone() });
            }
        }
        Done::Unsubscribed { request } => {
            for job in jobs {
                if let Job::Keep { kept, .. } = job {
                    kept.subscriptions.retain(|held| request.filters().all(|filter| *filter != held.filter));
                }
            }
        }
        _ => {}
    }
}
