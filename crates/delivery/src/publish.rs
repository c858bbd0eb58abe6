//! From a checked request to accepted and on its way.
//!
//! Two ways, one for each promise: what is kept (or consumes a topic's offset, answers to an idempotency
//! key, or is for push services) passes through the store's writer and is handed to the edge in commit order;
//! what is only for who is here now goes to the edge at once and leaves its trace behind.
//!
//! Push work is written by the store in the same commit; here its sender is only woken.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use noroshi_events::event::Routed;
use noroshi_store::{Accept, Accepted, Idempotency, OfCampaign};
use noroshi_telemetry::span::Open;
use noroshi_types::{AppId, CampaignId, NotificationId, PushMode, Request, Target, When};
use tokio::sync::oneshot;

use crate::cluster::outbox::Item;
use crate::delivery::{Delivery, Error};
use crate::quota::Origin;
use crate::quota::admit::Room;
use crate::spans;

/// What a provider is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    pub id: NotificationId,
    /// How many were named; none for topics, conditions and everyone.
    pub targets: Option<u64>,
    /// Inbox rows written.
    pub kept: u64,
    /// An earlier request with the same idempotency key was answered.
    pub replayed: bool,
}

/// A publish that has room ([`Delivery::begin_publish`]).
#[must_use]
pub struct Begun {
    span: Option<Open>,
    app: AppId,
    request: Arc<Request>,
    idempotency: Option<Idempotency>,
    campaign: Option<OfCampaign>,
    room: Room,
}

impl Delivery {
    /// Accepts a request. When this returns a receipt, what must survive is on stable storage and
    /// what is for connected devices is on its way. Cancel-safe: a dropped future may still have
    /// accepted it.
    pub async fn publish(
        self: &Arc<Self>,
        app: AppId,
        request: Request,
        idempotency: Option<Idempotency>,
    ) -> Result<Receipt, Error> {
        let span = spans::publish(self.spans(), &request, false);
        self.publish_within(span, app, request, idempotency, (Origin::Client, None)).await
    }

    /// As [`Delivery::publish`], for what came by no request that is traced or left out: a trace may begin here.
    pub async fn publish_as_root(
        self: &Arc<Self>,
        app: AppId,
        request: Request,
        idempotency: Option<Idempotency>,
    ) -> Result<Receipt, Error> {
        let span = spans::publish(self.spans(), &request, true);
        self.publish_within(span, app, request, idempotency, (Origin::Client, None)).await
    }

    /// As [`Delivery::publish_as_root`], for what the node itself says.
    pub(crate) async fn publish_own(
        self: &Arc<Self>,
        app: AppId,
        request: Request,
    ) -> Result<Receipt, Error> {
        let span = spans::publish(self.spans(), &request, true);
        self.publish_within(span, app, request, None, (Origin::Node, None)).await
    }

    /// As [`Delivery::publish_own`], for a copy of what was published before: no trace begins here.
    pub(crate) async fn publish_copy(
        self: &Arc<Self>,
        app: AppId,
        request: Request,
        idempotency: Option<Idempotency>,
    ) -> Result<Receipt, Error> {
        self.publish_within(None, app, request, idempotency, (Origin::Node, None)).await
    }

    /// As [`Delivery::publish`]; a campaign's outcomes are counted there too, and its push work takes the
    /// campaign's lane.
    pub(crate) async fn publish_for(
        self: &Arc<Self>,
        app: AppId,
        request: Request,
        idempotency: Option<Idempotency>,
        campaign: Option<OfCampaign>,
    ) -> Result<Receipt, Error> {
        let span = spans::publish(self.spans(), &request, false);
        self.publish_within(span, app, request, idempotency, (Origin::Campaign, campaign)).await
    }

    async fn publish_within(
        self: &Arc<Self>,
        span: Option<Open>,
        app: AppId,
        request: Request,
        idempotency: Option<Idempotency>,
        of: (Origin, Option<OfCampaign>),
    ) -> Result<Receipt, Error> {
        let begun = self.begin(span, app, request, idempotency, of).await?;
        self.finish_publish(begun).await
    }

    /// The first half of [`Delivery::publish`], for those who publish several messages in order: decides whether there is
    /// room, which may have to read the store. Await it for one message before the next.
    pub async fn begin_publish(
        &self,
        app: AppId,
        request: Request,
        idempotency: Option<Idempotency>,
        origin: Origin,
    ) -> Result<Begun, Error> {
        let span = spans::publish(self.spans(), &request, false);
        self.begin(span, app, request, idempotency, (origin, None)).await
    }

    /// As [`Delivery::begin_publish`], for what came by no request that is traced or left out.
    pub async fn begin_publish_as_root(&self, app: AppId, request: Request) -> Result<Begun, Error> {
        let span = spans::publish(self.spans(), &request, true);
        self.begin(span, app, request, None, (Origin::Client, None)).await
    }

    async fn begin(
        &self,
        mut span: Option<Open>,
        app: AppId,
        request: Request,
        idempotency: Option<Idempotency>,
        (origin, campaign): (Origin, Option<OfCampaign>),
    ) -> Result<Begun, Error> {
        let request = match &span {
            // What is done for it later is a child of this.
            Some(span) => Request { trace: span.context(), ..request },
            None => request,
        };
        match self.find_room(app, &request, origin).await {
            Ok(room) => Ok(Begun { span, app, request: Arc::new(request), idempotency, campaign, room }),
            Err(error) => {
                if let Some(span) = &mut span {
                    spans::refused(span, &error);
                }
                Err(error)
            }
        }
    }

    async fn find_room(&self, app: AppId, request: &Request, origin: Origin) -> Result<Room, Error> {
        let has_room_here = self.edge().is_none_or(|edge| edge.has_room(&request.target));
        if !has_room_here || !self.peers().is_none_or(|peers| peers.outbox.has_room()) {
            self.metrics.refused_overloaded.inc();
            return Err(Error::Overloaded);
        }
        self.admit_publish(app, request, origin).await
    }

    /// The second half: when this is first polled, the message is in the store's queue, behind all that was polled before.
    /// Messages that are stored are in that order.
    pub async fn finish_publish(self: &Arc<Self>, begun: Begun) -> Result<Receipt, Error> {
        let Begun { span, app, request, idempotency, campaign, room } = begun;
        let gate = room.gate();
        let accept = Accept { app, request, now: self.clock.now(), idempotency, campaign, gate };
        let result = self.publish_in(accept, room).await;
        if let Some(mut span) = span {
            spans::published(&mut span, &result);
        }
        result
    }

    async fn publish_in(self: &Arc<Self>, accept: Accept, room: Room) -> Result<Receipt, Error> {
        let accepted = match needs_store(&accept) {
            true => self.accept(accept).await,
            false => Ok(self.pass_on(accept)),
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
        // Else the provider's next request, at another node, could overtake this one.
        if let (Some(peers), Some(ticket)) = (self.peers(), ticket) {
            peers.handed_over(ticket).await;
        }
        let (targets, kept, replayed) = (accepted.targets, accepted.kept(), accepted.replayed);
        Ok(Receipt { id: accepted.message.id, targets, kept, replayed })
    }

    async fn accept(self: &Arc<Self>, accept: Accept) -> Result<(Accepted, Option<u64>), Error> {
        let (reply, answer) = oneshot::channel();
        let delivery = self.clone();
        let (about, request) = (about(&accept), accept.request.clone());
        let span = spans::store(self.spans(), &request);
        let done = Box::new(move |result: Result<Accepted, noroshi_store::Error>| {
            spans::stored(span, &result);
            let result = result.map(|accepted| {
                let ticket = delivery.hand_on_kept(about, &accepted, &request);
                (accepted, ticket)
            });
            // The caller may be gone; the notification is accepted all the same.
            let _ = reply.send(result);
        });
        self.store.accept(accept, done);
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

    /// Hands on what is committed, on the store's thread. After a panic the message is in the store and may have reached
    /// nobody: sessions read it from there, at every node, and the provider is answered as always. A panic in that ends
    /// the node (`store`), and the next start reads it.
    fn hand_on_kept(&self, about: About, accepted: &Accepted, request: &Arc<Request>) -> Option<u64> {
        let handed_on = catch_unwind(AssertUnwindSafe(|| {
            #[cfg(debug_assertions)]
            noroshi_supervision::fault::strike("hand-on");
            self.hand_on(about, accepted, request)
        }));
        handed_on.unwrap_or_else(|_| {
            tracing::error!(id = %accepted.message.id, "delivering a committed message panicked; sessions read their backlogs again");
            self.inboxes_changed(accepted, request);
            if let Some(edge) = self.edge() {
                edge.reread_all();
            }
            if let Some(peers) = self.peers() {
                peers.untold(accepted.message.id);
            }
            self.wake_push();
            None
        })
    }

    fn pass_on(&self, accept: Accept) -> (Accepted, Option<u64>) {
        let (about, request) = (about(&accept), accept.request.clone());
        let accepted = self.store.note(accept);
        let ticket = self.hand_on(about, &accepted, &request);
        (accepted, ticket)
    }

    /// To this node's connections or, where there are others, to whoever has the recipients: then with the
    /// number under which it waits for its turn.
    fn hand_on(&self, about: About, accepted: &Accepted, request: &Arc<Request>) -> Option<u64> {
        if accepted.replayed {
            return None;
        }
        self.accepted(request, about, accepted);
        let to = if self.peers().is_some() { Routed::Nodes } else { Routed::Here };
        self.routed(accepted.message.id, to);
        self.inboxes_changed(accepted, request);
        let message = accepted.message.clone();
        let ticket = match self.peers() {
            Some(peers) => Some(peers.outbox.push(Item::Deliver { message, request: request.clone() })),
            None => {
                self.shares.passed(&message, &request.target);
                if let Some(edge) = self.edge() {
                    edge.deliver(message, &request.target);
                }
                None
            }
        };
        if request.push.mode != PushMode::Never {
            self.wake_push();
        }
        ticket
    }
}

/// Whose it is.
type About = (AppId, Option<CampaignId>);

fn about(accept: &Accept) -> About {
    (accept.app, accept.campaign.map(|of| of.id))
}

/// Whether anything but a trace has to survive.
fn needs_store(accept: &Accept) -> bool {
    let request = &accept.request;
    let named = matches!(request.target, Target::Users(_) | Target::Devices(_) | Target::Condition(_));
    let pushed = request.push.mode != PushMode::Never;
    request.when == When::Stored || accept.idempotency.is_some() || !named || pushed
}
