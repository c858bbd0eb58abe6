//! PubSub as topics: items that clients publish, and new nodes.

use noroshi_delivery::{Origin, Series};
use noroshi_protocol::xmpp::{Answer, Refusal, Request};
use noroshi_store::Recover;
use noroshi_types::{JsonText, Topic, When, limits};
use tokio::sync::oneshot;

use super::Xmpp;
use crate::protocol::context::Context;
use crate::protocol::jobs::QUERIES_MAX;
use crate::protocol::services::publication;

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
            () if cx.jobs.queries == QUERIES_MAX => Some(Refusal::Overloaded),
            () => None,
        };
        if let Some(refused) = refused {
            return self.answer(cx, request, Answer::Refused(refused));
        }
        let notification = publication(topic, data, When::Stored, limits::TTL_MAX, true);
        let (done, last) = oneshot::channel();
        let before = cx.jobs.publishing.insert(cx.facts.slot, last);
        self.query(cx, request, |delivery| async move {
            // Dropped in any case, also by a panic.
            let done: oneshot::Sender<()> = done;
            if let Some(before) = before {
                // Ends when the sender is dropped.
                let _ = before.await;
            }
            let mut series = Series::new(&delivery.publisher, app);
            let publishing = series.begin(notification, None, Origin::Untraced).await?;
            // It has its place in the order: the next one need not wait for its commit.
            drop(done);
            Ok(Answer::Published(publishing.receipt().await?.id))
        });
    }

    /// A topic exists from its first message on. A client that may publish may create it while it has none.
    pub(super) fn create(&mut self, cx: &mut Context<'_>, topic: Topic, request: Request, allowed: bool) {
        let Some(app) = cx.session.map(|session| session.app) else { return };
        if !allowed {
            return self.answer(cx, request, Answer::Refused(Refusal::Forbidden));
        }
        self.query(cx, request, |delivery| async move {
            let now = delivery.clock().now();
            let recover = Recover { app, topic, since: None, retained: true, now };
            let found = delivery.store().recover(recover).await?;
            let has_log = found.heads.iter().any(|head| head.position.offset > 0);
            let is_new = !has_log && found.retained.is_empty();
            Ok(if is_new { Answer::Done } else { Answer::Refused(Refusal::Conflict) })
        });
    }
}
