//! PubSub as topics: items that clients publish, and new nodes.

use std::pin::pin;
use std::task::Poll;

use futures_util::poll;
use noroshi_delivery::Origin;
use noroshi_protocol::xmpp::{Answer, Refusal, Request};
use noroshi_store::Recover;
use noroshi_types::{JsonText, Push, Request as Notification, Target, Topic, Ttl, Urgency, When, limits};
use tokio::sync::oneshot;

use super::Xmpp;
use super::subscribe::refusal;
use crate::protocol::context::Context;
use crate::protocol::requests::QUERIES_MAX;

impl Xmpp {
    /// Publishes an item: it is stored, and becomes the node's last item. Items of one client are published in its
    /// order. `allowed`: topic rules, or the app's filters, let the client publish it.
    pub(super) fn publish(
        &mut self,
        cx: &mut Context<'_>,
        topic: Topic,
        data: JsonText,
        request: Request,
        allowed: bool,
    ) {
        let Some(app) = cx.session.map(|session| session.app) else { return };
        let refused = match () {
            () if !allowed => Some(Refusal::Forbidden),
            () if data.as_str().len() > cx.config().publish_bytes_max => Some(Refusal::TooBig),
            () if cx.requests.queries == QUERIES_MAX => Some(Refusal::Overloaded),
            () => None,
        };
        if let Some(refused) = refused {
            return self.answer(cx, request, Answer::Refused(refused));
        }
        let notification = Notification {
            target: Target::Topic(topic),
            when: When::Stored,
            ttl: Ttl::new(limits::TTL_MAX).unwrap_or_default(),
            urgency: Urgency::Normal,
            waits_for_use: false,
            collapse_key: None,
            retain: true,
            notification: None,
            data: Some(data),
            push: Push::default(),
            trace: None,
        };
        let (done, last) = oneshot::channel();
        let before = cx.requests.publishing.insert(cx.facts.slot, last);
        let delivery = cx.delivery.clone();
        self.query(cx, request, async move {
            // Dropped in any case, also by a panic.
            let done: oneshot::Sender<()> = done;
            if let Some(before) = before {
                // Ends when the sender is dropped.
                let _ = before.await;
            }
            let result =
                match delivery.publisher.begin_publish(app, notification, None, Origin::Untraced).await {
                    Ok(begun) => {
                        let mut finish = pin!(delivery.publisher.finish_publish(begun));
                        // The first poll gives it its place in the order: the next one need not wait for its commit.
                        let first = poll!(finish.as_mut());
                        drop(done);
                        match first {
                            Poll::Ready(result) => result,
                            Poll::Pending => finish.await,
                        }
                    }
                    Err(error) => Err(error),
                };
            match result {
                Ok(receipt) => Answer::Published(receipt.id),
                Err(error) => Answer::Refused(refusal(&error)),
            }
        });
    }

    /// A topic exists from its first message on. A client that may publish may create it while it has none.
    pub(super) fn create(&mut self, cx: &mut Context<'_>, topic: Topic, request: Request, allowed: bool) {
        let Some(app) = cx.session.map(|session| session.app) else { return };
        if !allowed {
            return self.answer(cx, request, Answer::Refused(Refusal::Forbidden));
        }
        let delivery = cx.delivery.clone();
        self.query(cx, request, async move {
            let now = delivery.clock().now();
            let recover = Recover { app, topic, since: None, retained: true, now };
            match delivery.store().recover(recover).await {
                Ok(found) => {
                    let has_log = found.heads.iter().any(|head| head.position.offset > 0);
                    let is_new = !has_log && found.retained.is_empty();
                    if is_new { Answer::Done } else { Answer::Refused(Refusal::Conflict) }
                }
                Err(error) => Answer::Refused(refusal(&error.into())),
            }
        });
    }
}
