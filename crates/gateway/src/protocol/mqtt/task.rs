//! Work of an MQTT client outside the shard: publishing, and subscriptions in the store.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use noroshi_delivery::rules::AppRules;
use noroshi_delivery::{Delivery, Error, Origin, Publishing, Series};
use noroshi_protocol::mqtt::{
    Answer, PublishRefused, Qos, SubscribeRefused, SubscribeRequest, TopicFilter, UnsubscribeRequest,
};
use noroshi_store::{Error as StoreError, JoinShares, Leave, LeaveShares, Share};
use noroshi_types::{
    AppId, JsonText, Message, NotificationId, Request as Publication, Target, Topic, When, limits,
};

use super::final_write::FinalWrite;
use super::stored::StoredSession;
use super::{scan, service};
use crate::protocol::services::{Services, publication};
use crate::session::registry::{Registry, Session};

pub(crate) enum Task {
    /// One while it waits. Those that are next to each other run together, so that one commit has them.
    Publish(Vec<ToPublish>),
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
        /// Messages of its shares that the client has not acknowledged when the job starts: it still acknowledges them.
        held: Vec<NotificationId>,
    },
    /// Joins the shared subscriptions of a session that continues, with the QoS that was granted.
    Join { shares: Vec<(Share, u8)> },
    /// The client leaves shared subscriptions without UNSUBSCRIBE.
    LeaveShares { what: Leave, held: Vec<NotificationId> },
    /// Ends the durable subscriptions of an earlier session. `write`: if the session ends with its connection.
    Forget { topics: Vec<Topic>, write: Option<FinalWrite> },
    /// Stores the session of a connection that has ended.
    Store { session: Box<StoredSession>, write: FinalWrite },
    /// Ends durable subscriptions that were made for a client that got no answer.
    Undo { topics: Vec<Topic> },
    /// Reads the retained messages of the topics that these filters match, of those accepted up to an id.
    Retained { filters: Vec<Box<str>>, up_to: NotificationId },
}

impl Task {
    pub(super) fn bytes(&self) -> usize {
        match self {
            Task::Publish(all) => {
                let data = all.iter().filter_map(|one| one.request.data.as_ref());
                data.map(|data| data.as_str().len()).sum()
            }
            _ => 0,
        }
    }
}

pub(crate) struct ToPublish {
    pub(super) request: Publication,
    pub(super) clears: bool,
    pub(super) answer: Option<Answer>,
}

/// How a task ended.
pub(crate) enum Outcome {
    /// In the client's order.
    Published(Vec<Answered>),
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

/// A task with its context.
pub(super) struct Job {
    pub(super) services: Arc<Services>,
    pub(super) delivery: Arc<Delivery>,
    pub(super) session: Arc<Session>,
    pub(super) task: Task,
    /// What the store has of the session afterwards.
    pub(super) stored: Option<StoredSession>,
    pub(super) expiry_s: u32,
}

/// A publication in the terms of a provider's request.
pub(crate) struct Published {
    pub(crate) topic: Topic,
    pub(crate) data: JsonText,
    pub(crate) qos: Qos,
    pub(crate) retain: bool,
    pub(crate) has_payload: bool,
    pub(crate) expiry_s: Option<u32>,
}

impl Published {
    /// The second value: whether to delete the topic's retained message first ([MQTT-3.3.1-6]).
    pub(crate) fn request(self) -> (Publication, bool) {
        // Without an expiry it is stored for the longest time possible.
        let life = self.expiry_s.map_or(limits::TTL_MAX, |seconds| Duration::from_secs(seconds.into()));
        let clears = self.retain && !self.has_payload;
        // At most once: for connected devices only.
        let when = if self.qos == Qos::AtMostOnce { When::Connected } else { When::Stored };
        (publication(self.topic, self.data, when, life, self.retain && !clears), clears)
    }
}

impl Job {
    pub(super) async fn carry_out(self) -> Outcome {
        let Self { services, delivery, session, task, stored, expiry_s } = self;
        let (delivery, session) = (&delivery, &*session);
        // Waits for the writes of the device's previous connection, since this task continues from their state.
        if !matches!(task, Task::Publish(_) | Task::Retained { .. }) {
            let writes = service(&services).sessions.final_writes();
            writes.wait_for_earlier(session.device_key, session.address.generation).await;
        }
        match task {
            Task::Publish(all) => return Outcome::Published(publish_all(delivery, session.app, all).await),
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
                return Outcome::Subscribed { request, lasts, rules, made, joined };
            }
            Task::Join { shares } => {
                if let Err(error) = join(delivery, session, shares, expiry_s).await {
                    if matches!(error, Error::Store(StoreError::Limit(_))) {
                        return Outcome::OverQuota;
                    }
                    tracing::warn!(%error, "could not restore a session's shared subscriptions; closing its connection");
                    return Outcome::Failed;
                }
            }
            Task::LeaveShares { what, held } => {
                if let Err(error) = leave_shares(delivery, session, what, held).await {
                    tracing::warn!(%error, "could not report that a member of shared subscriptions left");
                }
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
                return Outcome::Unsubscribed { request };
            }
            Task::Forget { topics, write } => {
                forget(delivery, session, &topics, None).await;
                if write.is_some() {
                    // A log-in that read the session from the store before it ended reads again.
                    services.stamps.stamp_now(Registry::change_key(session.device_key));
                }
                drop(write);
            }
            Task::Undo { topics } => unsubscribe(delivery, session, &topics).await,
            Task::Store { session: stored, write } => {
                // Another node that has the device by now writes for itself.
                let is_elsewhere = delivery.sessions.elsewhere(session.app, &session.device).await.is_some();
                if !is_elsewhere
                    && let Err(error) =
                        delivery.store().keep_session(session.num, Some(stored.encode())).await
                {
                    tracing::warn!(%error, "could not save a session's position; its client may receive messages again");
                }
                drop(write);
            }
            Task::Retained { filters, up_to } => {
                return Outcome::Retained(scan::scan(&services, delivery, session, &filters, up_to).await);
            }
        }
        Outcome::Forgotten
    }
}

/// Publishes in the client's order, without waiting for the commit of one before the next.
async fn publish_all(delivery: &Arc<Delivery>, app: AppId, all: Vec<ToPublish>) -> Vec<Answered> {
    let mut series = Series::new(&delivery.publisher, app);
    let (mut waiting, mut answered) = (Vec::new(), Vec::with_capacity(all.len()));
    for ToPublish { request, clears, answer } in all {
        if clears && let Target::Topic(topic) = &request.target {
            // Behind the commits of earlier ones, which may retain a message.
            settle(&mut waiting, &mut answered).await;
            if delivery.store().delete_retained(app, topic).await.is_err() {
                answered.push((answer, Err(PublishRefused::Unavailable)));
                continue;
            }
        }
        let publishing = series.begin(request, None, Origin::Untraced).await;
        waiting.push((answer, publishing.unwrap_or_else(|error| Publishing::Done(Err(error)))));
    }
    settle(&mut waiting, &mut answered).await;
    answered
}

/// Waits for commits.
async fn settle(waiting: &mut Vec<(Option<Answer>, Publishing)>, answered: &mut Vec<Answered>) {
    for (answer, publishing) in waiting.drain(..) {
        let result = publishing.receipt().await;
        answered.push((answer, result.map(drop).map_err(|error| refused(&error))));
    }
}

/// Publishes a will.
pub(super) async fn publish(
    delivery: &Arc<Delivery>,
    app: AppId,
    request: Publication,
    clears: bool,
) -> Result<(), PublishRefused> {
    let answered = publish_all(delivery, app, vec![ToPublish { request, clears, answer: None }]).await;
    answered.into_iter().try_for_each(|(_, result)| result)
}

/// What a publication is answered with, and whether it was accepted.
pub(super) type Answered = (Option<Answer>, Result<(), PublishRefused>);

fn refused(error: &Error) -> PublishRefused {
    match error {
        Error::Store(StoreError::Limit(_)) | Error::OverQuota(_) => PublishRefused::OverQuota,
        error => {
            tracing::debug!(%error, "a client's publication was not accepted");
            PublishRefused::Unavailable
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
    let held = match delivery.usage.admit_subscriptions(session.app, &session.device, &topics).await {
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
    delivery.freshness.device_changed(session.app, &session.device);
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

/// Makes the shared subscriptions of a request, or refuses all of them. Returns what to store of the session, without
/// those that were refused.
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
    delivery.shares.join(JoinShares { app, device, shares, generation, expiry_s }).await
}

async fn leave_shares(
    delivery: &Delivery,
    session: &Session,
    what: Leave,
    held: Vec<NotificationId>,
) -> Result<(), Error> {
    let (device, generation) = (session.num, session.address.generation);
    delivery.shares.leave(session.app, LeaveShares { device, generation, what, held }).await
}

/// Ends durable subscriptions. `stored` becomes the stored state of the session.
pub(super) async fn forget(
    delivery: &Arc<Delivery>,
    session: &Session,
    topics: &[Topic],
    stored: Option<Vec<u8>>,
) {
    let store = delivery.store();
    // The session ended: the store keeps nothing of it.
    if stored.is_none()
        && delivery.shares.has(session.app)
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
    delivery.freshness.device_changed(session.app, &session.device);
    if let Some(error) = failed.filter(|error| !matches!(error, StoreError::NotFound)) {
        tracing::warn!(%error, "could not remove the durable subscriptions of a session");
    }
}

/// What a shared subscription shares.
pub(super) fn share(filter: &TopicFilter) -> Option<Share> {
    let (name, filter) = filter.share()?;
    Some(Share { name: name.into(), filter: filter.into() })
}
