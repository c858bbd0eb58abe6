//! From a checked request to an accepted notification in transit.
//!
//! Two paths, one for each promise. A stored message passes through the store's writer and is handed to the edge in
//! commit order; so does one that takes a topic's offset, has an idempotency key, or is for push services. A message
//! only for connected recipients goes to the edge at once and is recorded for the trace.
//!
//! The store writes push work in the same commit; this module only wakes the senders.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use noroshi_events::event::Routed;
use noroshi_store::{Accept, Accepted, Cancelled, Idempotency, OfCampaign};
use noroshi_telemetry::metrics;
use noroshi_telemetry::span::Open;
use noroshi_types::{AppId, CampaignId, NotificationId, PushMode, Request, Target, When};
use prometheus_client::metrics::counter::Counter;
use tokio::sync::oneshot;

use crate::backpressure::{Admitted, Backpressure, Needs};
use crate::cluster::Nodes;
use crate::cluster::outbox::Item;
use crate::context::Context;
use crate::error::Error;
use crate::freshness::Freshness;
use crate::push_work::PushWork;
use crate::quota::{Origin, Room, Usage};
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

/// A publish that has room ([`Publisher::begin_publish`]).
#[must_use]
pub struct Begun {
    span: Option<Open>,
    app: AppId,
    request: Arc<Request>,
    idempotency: Option<Idempotency>,
    campaign: Option<OfCampaign>,
    room: Room,
    admitted: Admitted,
}

/// Accepts notifications and hands them to connections, other nodes and push services.
pub struct Publisher {
    pub(crate) context: Arc<Context>,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) freshness: Arc<Freshness>,
    pub(crate) usage: Arc<Usage>,
    pub(crate) feed: Arc<ShareFeed>,
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

    /// As [`Publisher::publish`], for any origin.
    pub async fn publish_from(
        self: &Arc<Self>,
        app: AppId,
        request: Request,
        idempotency: Option<Idempotency>,
        origin: Origin,
    ) -> Result<Receipt, Error> {
        let begun = self.begin_publish(app, request, idempotency, origin).await?;
        self.finish_publish(begun).await
    }

    /// The first half of [`Publisher::publish`], for callers that publish several messages in order: waits for room in
    /// the node's queues and in the app's quotas, which may read the store. Await it for one message before the next.
    /// Dropping the future publishes nothing; a token of the app's rate may be used up.
    pub async fn begin_publish(
        &self,
        app: AppId,
        request: Request,
        idempotency: Option<Idempotency>,
        origin: Origin,
    ) -> Result<Begun, Error> {
        self.begin(app, request, idempotency, origin, true).await
    }

    /// As [`Publisher::begin_publish`], without waiting for room in the node's queues: for what follows a message that
    /// waited in vain.
    pub async fn begin_publish_at_once(
        &self,
        app: AppId,
        request: Request,
        idempotency: Option<Idempotency>,
        origin: Origin,
    ) -> Result<Begun, Error> {
        self.begin(app, request, idempotency, origin, false).await
    }

    async fn begin(
        &self,
        app: AppId,
        request: Request,
        idempotency: Option<Idempotency>,
        origin: Origin,
        may_wait: bool,
    ) -> Result<Begun, Error> {
        let may_begin_trace = matches!(origin, Origin::Untraced | Origin::Node);
        let mut span = match origin {
            Origin::Copy => None,
            _ => spans::publish(self.context.spans(), &request, may_begin_trace),
        };
        let request = match &span {
            // Later work for the message is a child of this span.
            Some(span) => Request { trace: span.context(), ..request },
            None => request,
        };
        let campaign = if let Origin::Campaign(campaign) = origin { Some(campaign) } else { None };
        let is_stored = needs_store(&request, idempotency.as_ref());
        let needs = Needs { app, request: &request, is_stored, is_campaign: campaign.is_some(), may_wait };
        match self.find_room(&needs, origin).await {
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

    async fn find_room(&self, needs: &Needs<'_>, origin: Origin) -> Result<(Admitted, Room), Error> {
        let (app, request) = (needs.app, needs.request);
        let admitted = match self.backpressure.try_admit(needs) {
            Some(admitted) => admitted,
            None => {
                // An app over its rate does not wait for an answer that is known.
                self.usage.check_publish(app, &origin).await?;
                self.backpressure.admit(needs).await.inspect_err(|_| {
                    self.metrics.refused_overloaded.inc();
                })?
            }
        };
        Ok((admitted, self.usage.admit_publish(app, request, origin).await?))
    }

    /// The second half. Its first poll puts the message into the store's queue, behind those polled before. Stored
    /// messages keep that order.
    pub async fn finish_publish(self: &Arc<Self>, begun: Begun) -> Result<Receipt, Error> {
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
        accept: Accept,
        admitted: Admitted,
    ) -> Result<(Accepted, Option<u64>), Error> {
        let (reply, answer) = oneshot::channel();
        let publisher = self.clone();
        let (owner, request) = (owner(&accept), accept.request.clone());
        let span = spans::store(self.context.spans(), &request);
        let done = Box::new(move |result: Result<Accepted, noroshi_store::Error>| {
            spans::stored(span, &result);
            let result = result.map(|accepted| {
                let ticket = publisher.hand_over_stored(owner, &accepted, &request);
                (accepted, ticket)
            });
            drop(admitted);
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
        let to = if self.nodes.peers().is_some() { Routed::Nodes } else { Routed::Here };
        outcomes.routed(accepted.message.id, to);
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
        if request.push.mode != PushMode::Never {
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
    request.when == When::Stored || idempotency.is_some() || !named || pushed
}
