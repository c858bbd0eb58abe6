//! From a checked request to an accepted notification in transit.
//!
//! Two paths, one for each promise. A stored message passes through the store's writer and is handed to the edge in
//! commit order; so does one that takes a topic's offset, has an idempotency key, or is for push services. A message
//! only for connected recipients goes to the edge at once and is recorded for the trace.
//!
//! The store writes push work in the same commit; this module only wakes the senders.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;

use futures_util::future::BoxFuture;
use futures_util::poll;
use noroshi_events::event::Routed;
use noroshi_store::{Accept, Accepted, Cancelled, Idempotency, OfCampaign};
use noroshi_telemetry::metrics;
use noroshi_telemetry::span::Open;
use noroshi_types::{AppId, CampaignId, NotificationId, PushMode, Request, Target, When, limits};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::oneshot;

use crate::backpressure::{Admitted, Backpressure, By, Needs, Outline};
use crate::cluster::Nodes;
use crate::cluster::outbox::Item;
use crate::context::Context;
use crate::error::Error;
use crate::freshness::Freshness;
use crate::items::Items;
use crate::push_work::PushWork;
use crate::quota::{Counted, Origin, Room, Usage};
use crate::share_feed::ShareFeed;
use crate::spans;

metrics! {
    pub(crate) struct Metrics {
        refused_overloaded: Counter = "Requests refused because the node is overloaded",
    }
}

/// The answer to a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    pub id: NotificationId,
    /// The number of named targets; `None` for topics, conditions and everyone.
    pub targets: Option<u64>,
    /// Inbox rows written.
    pub kept: u64,
    /// The answer repeats that of an earlier request with the same idempotency key.
    pub replayed: bool,
}

/// A publish that has room.
struct Begun {
    span: Option<Open>,
    app: AppId,
    request: Arc<Request>,
    idempotency: Option<Idempotency>,
    campaign: Option<OfCampaign>,
    room: Room,
    admitted: Admitted,
}

/// How a request gets room in the node's queues.
enum Entry {
    Wait,
    AtOnce,
    /// It has it.
    Admitted(Admitted),
}

/// Messages that are published in order, none of which waits for the commit of the one before.
pub struct Series {
    publisher: Arc<Publisher>,
    app: AppId,
    /// One waited in vain for room: later ones do not wait, or the caller would for longer than it does for one.
    found_no_room: bool,
}

/// A message of a [`Series`], which has its place in the order.
pub enum Publishing {
    Done(Result<Receipt, Error>),
    Waiting(BoxFuture<'static, Result<Receipt, Error>>),
}

impl Series {
    pub fn new(publisher: &Arc<Publisher>, app: AppId) -> Self {
        Self { publisher: publisher.clone(), app, found_no_room: false }
    }

    /// Waits for room in the node's queues and in the app's quotas, which may read the store. When this returns, the
    /// message is in the store's queue, behind those of earlier calls. Dropping the future publishes nothing, or
    /// publishes without an answer; a token of the app's rate may be used up.
    pub async fn begin(
        &mut self,
        request: Request,
        idempotency: Option<Idempotency>,
        origin: Origin,
    ) -> Result<Publishing, Error> {
        let entry = if self.found_no_room { Entry::AtOnce } else { Entry::Wait };
        let begun = self.publisher.begin(self.app, request, idempotency, origin, entry).await;
        self.found_no_room |= matches!(begun, Err(Error::NoRoom { .. }));
        let (publisher, begun) = (self.publisher.clone(), begun?);
        let mut publish = Box::pin(async move { publisher.finish_publish(begun).await });
        Ok(match poll!(publish.as_mut()) {
            Poll::Ready(result) => Publishing::Done(result),
            Poll::Pending => Publishing::Waiting(publish),
        })
    }
}

impl Publishing {
    /// The answer, after the commit. Dropping the future loses only the answer.
    pub async fn receipt(self) -> Result<Receipt, Error> {
        match self {
            Publishing::Done(result) => result,
            Publishing::Waiting(publish) => publish.await,
        }
    }
}

/// Accepts notifications and hands them to connections, other nodes and push services.
pub struct Publisher {
    pub(crate) context: Arc<Context>,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) freshness: Arc<Freshness>,
    pub(crate) usage: Arc<Usage>,
    pub(crate) feed: Arc<ShareFeed>,
    pub(crate) items: Arc<Items>,
    pub(crate) push_work: Arc<PushWork>,
    pub(crate) backpressure: Arc<Backpressure>,
    pub(crate) metrics: Metrics,
}

impl Publisher {
    /// Accepts a request. When this returns a receipt, what must survive is on stable storage and messages for
    /// connected devices are in transit. Cancel-safe: a dropped future may still have accepted it.
    pub async fn publish(
        self: &Arc<Self>,
        app: AppId,
        request: Request,
        idempotency: Option<Idempotency>,
    ) -> Result<Receipt, Error> {
        self.publish_from(app, request, idempotency, Origin::Client).await
    }

    /// Whether requests wait for room in the node's queues.
    pub fn is_crowded(&self) -> bool {
        self.backpressure.is_waiting()
    }

    /// Waits for room for a request whose body is not parsed yet, if others wait: a request that is rejected then costs
    /// less. `outline` is called only then; `None` from it: the body must be parsed first.
    pub async fn wait_for_room(
        &self,
        app: AppId,
        outline: impl FnOnce() -> Option<Outline>,
    ) -> Result<Option<Admitted>, Error> {
        let outline = if self.is_crowded() { outline() } else { None };
        match outline {
            Some(outline) => {
                let by = By { app, is_campaign: false, may_wait: true };
                self.enter(by, outline.into(), &Origin::Client).await.map(Some)
            }
            None => Ok(None),
        }
    }

    /// As [`Publisher::publish`], for a request that may have waited for room.
    pub async fn publish_admitted(
        self: &Arc<Self>,
        app: AppId,
        request: Request,
        idempotency: Option<Idempotency>,
        admitted: Option<Admitted>,
    ) -> Result<Receipt, Error> {
        let entry = admitted.map_or(Entry::Wait, Entry::Admitted);
        let begun = self.begin(app, request, idempotency, Origin::Client, entry).await?;
        self.finish_publish(begun).await
    }

    /// As [`Publisher::publish`], for any origin.
    pub async fn publish_from(
        self: &Arc<Self>,
        app: AppId,
        request: Request,
        idempotency: Option<Idempotency>,
        origin: Origin,
    ) -> Result<Receipt, Error> {
        let begun = self.begin(app, request, idempotency, origin, Entry::Wait).await?;
        self.finish_publish(begun).await
    }

    async fn begin(
        &self,
        app: AppId,
        request: Request,
        idempotency: Option<Idempotency>,
        origin: Origin,
        entry: Entry,
    ) -> Result<Begun, Error> {
        let may_begin_trace = matches!(origin, Origin::Untraced | Origin::Node);
        let mut span = match origin {
            Origin::Copy => None,
            _ => spans::publish(self.context.spans(), &request, may_begin_trace),
        };
        let category = request.category.map(|category| match category.is_essential {
            true => category,
            false => self.context.category(app, category.name),
        });
        let request = Request { category, ..request };
        let request = match &span {
            // Later work for the message is a child of this span.
            Some(span) => Request { trace: span.context(), ..request },
            None => request,
        };
        let campaign = if let Origin::Campaign(campaign) = origin { Some(campaign) } else { None };
        let room = async {
            if let Some(token) = &request.push.token {
                self.nodes.require_token(token)?;
            }
            if request.push.broadcast.is_some() {
                self.require_channel(app, &request.target).await?;
            }
            let admitted = match entry {
                Entry::Admitted(admitted) => admitted,
                Entry::Wait | Entry::AtOnce => {
                    let may_wait = matches!(entry, Entry::Wait);
                    let by = By { app, is_campaign: campaign.is_some(), may_wait };
                    let is_transient = !needs_store(&request, idempotency.as_ref());
                    self.enter(by, self.backpressure.needs(app, &request, is_transient), &origin).await?
                }
            };
            Ok((admitted, self.usage.admit_publish(app, &request, origin).await?))
        };
        match room.await {
            Ok((admitted, room)) => {
                Ok(Begun { span, app, request: Arc::new(request), idempotency, campaign, room, admitted })
            }
            Err(error) => {
                if let Some(span) = &mut span {
                    spans::refused(span, &error);
                }
                Err(error)
            }
        }
    }

    /// Whether a channel is bound to the topic and takes a broadcast. Requests that are accepted at the same moment may
    /// exceed the limit of waiting broadcasts by their number.
    async fn require_channel(&self, app: AppId, target: &Target) -> Result<(), Error> {
        self.nodes.require_broadcasts()?;
        let Target::Topic(topic) = target else { return Err(Error::NoChannel) };
        let mut channels = self.context.store.channels_of_topic(app, topic).await?;
        channels.retain(|channel| channel.apple.is_some());
        if channels.is_empty() {
            return Err(Error::NoChannel);
        }
        let waiting_max = limits::BROADCASTS_WAITING_MAX as u64;
        match channels.iter().find(|channel| channel.waiting >= waiting_max) {
            Some(full) => {
                let text = format!("{waiting_max} broadcasts of the channel \"{}\" wait already", full.name);
                Err(noroshi_store::Error::Limit(text).into())
            }
            None => Ok(()),
        }
    }

    async fn enter(&self, by: By, needs: Needs, origin: &Origin) -> Result<Admitted, Error> {
        if let Some(admitted) = self.backpressure.try_admit(needs) {
            return Ok(admitted);
        }
        // An app over its rate does not wait for an answer that is known.
        self.usage.check_publish(by.app, origin).await?;
        let admitted = self.backpressure.admit(by, needs).await;
        admitted.inspect_err(|_| {
            self.metrics.refused_overloaded.inc();
        })
    }

    /// The second half. Its first poll puts the message into the store's queue, behind those polled before. Stored
    /// messages keep that order.
    async fn finish_publish(self: &Arc<Self>, begun: Begun) -> Result<Receipt, Error> {
        let Begun { span, app, request, idempotency, campaign, room, admitted } = begun;
        let gate = room.gate();
        let accept = Accept { app, request, now: self.context.now(), idempotency, campaign, gate };
        let result = self.publish_in(accept, room, admitted).await;
        if let Some(mut span) = span {
            match &result {
                Ok(receipt) => spans::published(&mut span, receipt.id, receipt.replayed),
                Err(error) => spans::refused(&mut span, error),
            }
        }
        result
    }

    async fn publish_in(
        self: &Arc<Self>,
        accept: Accept,
        room: Room,
        admitted: Admitted,
    ) -> Result<Receipt, Error> {
        let accepted = match needs_store(&accept.request, accept.idempotency.as_ref()) {
            true => self.publish_stored(accept, admitted).await,
            false => {
                let published = self.publish_unstored(accept);
                drop(admitted);
                Ok(published)
            }
        };
        let (accepted, ticket) = match accepted {
            Ok(accepted) => accepted,
            Err(Error::Store(noroshi_store::Error::Refused)) => {
                return Err(room.refused().map_or(Error::Overloaded, Error::OverQuota));
            }
            Err(error) => return Err(error),
        };
        match accepted.replayed {
            true => room.give_back(),
            false => room.settle(),
        }
        // Otherwise the provider's next request, on another node, could overtake this one.
        self.nodes.handed_over(ticket).await;
        let (targets, kept, replayed) = (accepted.targets, accepted.kept(), accepted.replayed);
        Ok(Receipt { id: accepted.message.id, targets, kept, replayed })
    }

    async fn publish_stored(
        self: &Arc<Self>,
        mut accept: Accept,
        admitted: Admitted,
    ) -> Result<(Accepted, Option<u64>), Error> {
        let (reply, answer) = oneshot::channel();
        // What takes several commits, or waits for such a message of its app, must not keep other apps out.
        let admitted = Arc::new(Mutex::new(Some(admitted)));
        let released = admitted.clone();
        let release = move || drop(released.lock().take());
        accept.gate = Some(accept.gate.unwrap_or_default().with_waits(release));
        let publisher = self.clone();
        let (owner, request) = (owner(&accept), accept.request.clone());
        let span = spans::store(self.context.spans(), &request);
        let done = Box::new(move |result: Result<Accepted, noroshi_store::Error>| {
            spans::stored(span, &result);
            let result = result.map(|accepted| {
                let ticket = publisher.hand_over_stored(owner, &accepted, &request);
                (accepted, ticket)
            });
            drop(admitted.lock().take());
            // The caller may be gone; the notification is accepted anyway.
            let _ = reply.send(result);
        });
        self.context.store.accept(accept, done);
        match answer.await {
            Ok(Ok(accepted)) => Ok(accepted),
            Ok(Err(noroshi_store::Error::Overloaded)) => {
                self.metrics.refused_overloaded.inc();
                Err(Error::Overloaded)
            }
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(noroshi_store::Error::Closed.into()),
        }
    }

    /// Hands over a committed message, on the store's thread. After a panic the message is in the store but may not
    /// have reached any session: sessions of every node read it from there, and the provider gets the usual answer. A
    /// panic in that code ends the node (`store`), and devices read the message after the next start.
    fn hand_over_stored(&self, owner: Owner, accepted: &Accepted, request: &Arc<Request>) -> Option<u64> {
        let handed_over = catch_unwind(AssertUnwindSafe(|| {
            #[cfg(debug_assertions)]
            noroshi_supervision::fault::strike("hand-on");
            self.hand_over(owner, accepted, request)
        }));
        handed_over.unwrap_or_else(|_| {
            tracing::error!(id = %accepted.message.id, "delivering a committed message panicked; sessions read their backlogs again");
            self.freshness.inboxes_changed(accepted, request);
            if let Some(edge) = self.context.edge() {
                edge.reread_all();
            }
            if let Some(peers) = self.nodes.peers() {
                peers.undelivered(accepted.message.id);
            }
            self.push_work.wake();
            None
        })
    }

    fn publish_unstored(&self, accept: Accept) -> (Accepted, Option<u64>) {
        let (owner, request) = (owner(&accept), accept.request.clone());
        let accepted = self.context.store.note(accept);
        let ticket = self.hand_over(owner, &accepted, &request);
        (accepted, ticket)
    }

    /// Hands the message to this node's connections or, with other nodes, to the outbox. Returns its number in the
    /// outbox.
    fn hand_over(&self, owner: Owner, accepted: &Accepted, request: &Arc<Request>) -> Option<u64> {
        if accepted.replayed {
            return None;
        }
        let outcomes = &self.context.outcomes;
        outcomes.accepted(request, owner, accepted);
        self.usage.quotas.count(owner.0, Counted::Publishes, 1);
        let to = if self.nodes.peers().is_some() { Routed::Nodes } else { Routed::Here };
        outcomes.routed(owner.0, accepted.message.id, to);
        self.freshness.inboxes_changed(accepted, request);
        let message = accepted.message.clone();
        let ticket = match self.nodes.peers() {
            Some(peers) => Some(peers.outbox.push(Item::Deliver { message, request: request.clone() })),
            None => {
                self.feed.message(&message, &request.target);
                if let Some(edge) = self.context.edge() {
                    edge.deliver(message, &request.target);
                }
                None
            }
        };
        // After the message, so that most devices have it when their count changes.
        self.items.added(accepted);
        if request.push.mode != PushMode::Never || request.push.broadcast.is_some() {
            self.push_work.wake();
        }
        ticket
    }

    /// Cancels a notification on every device that has not acknowledged it.
    pub async fn cancel(&self, app: AppId, id: NotificationId) -> Result<Cancelled, Error> {
        let cancelled = self.context.store.cancel(app, id, self.context.now()).await?;
        self.context.outcomes.departed(&cancelled.departed);
        self.context.outcomes.campaigns_done(&cancelled.done);
        if cancelled.removed > 0 {
            self.freshness.app_changed(app);
        }
        Ok(cancelled)
    }
}

/// The app, and the campaign if the message belongs to one.
type Owner = (AppId, Option<CampaignId>);

fn owner(accept: &Accept) -> Owner {
    (accept.app, accept.campaign.map(|of| of.id))
}

/// Whether anything but the trace must survive a crash.
fn needs_store(request: &Request, idempotency: Option<&Idempotency>) -> bool {
    let named = matches!(request.target, Target::Users(_) | Target::Devices(_) | Target::Condition(_));
    let pushed = request.push.mode != PushMode::Never;
    request.when == When::Stored || idempotency.is_some() || !named || pushed || request.item.is_some()
}
