//! What a client publishes: a notification to a topic, if the app allows it.

use noroshi_protocol::mqtt::{Answer, Publication, PublishRefused};

use super::task::{Published, Task, ToPublish};
use super::{Mqtt, Request, origin};
use crate::protocol::context::Context;

/// The longest `data` that a publication may become. JSON around a payload, escapes, base64 and properties have as much
/// room as the payload: without a bound 64 KiB of user properties, each byte of which is six in JSON, would pass a
/// limit of 4 KiB.
pub(super) const fn data_bytes_max(payload_bytes_max: usize) -> usize {
    payload_bytes_max.saturating_mul(2).saturating_add(512)
}

impl Mqtt {
    pub(super) fn publish(
        &mut self,
        cx: &mut Context<'_>,
        publication: &Publication<'_>,
        answer: Option<Answer>,
    ) {
        let Some(session) = cx.session else { return };
        let limit = cx.config().publish_bytes_max;
        // Checked before it may wait for a webhook.
        let data = (publication.payload.len() <= limit).then(|| publication.data(origin(session)));
        let Some(data) = data.filter(|data| data.as_str().len() <= data_bytes_max(limit)) else {
            return self.refuse_publication(cx, answer, PublishRefused::TooBig);
        };
        let published = Published {
            topic: publication.topic.clone(),
            data,
            qos: publication.qos,
            retain: publication.retain,
            has_payload: !publication.payload.is_empty(),
            expiry_s: publication.expiry_s,
        };
        cx.authorize(Request::Publish { published: Box::new(published), answer });
    }

    /// `allowed`: topic rules, or the app's filters, let the client publish it.
    pub(super) fn publish_decided(
        &mut self,
        cx: &mut Context<'_>,
        published: Published,
        answer: Option<Answer>,
        allowed: bool,
    ) {
        if !allowed {
            return self.refuse_publication(cx, answer, PublishRefused::NotAllowed);
        }
        let (request, clears) = published.request();
        let task = Task::Publish(vec![ToPublish { request, clears, answer }]);
        if !self.enqueue(cx, task) {
            self.refuse_publication(cx, answer, PublishRefused::OverQuota);
        }
    }

    fn refuse_publication(&mut self, cx: &mut Context<'_>, answer: Option<Answer>, why: PublishRefused) {
        if let Some(answer) = answer {
            self.answer(cx, |conversation, out| conversation.published(answer, Err(why), out));
        }
    }
}
