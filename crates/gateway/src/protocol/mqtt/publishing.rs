//! What a client publishes: where its app allows it, as a notification to a topic.

use noroshi_protocol::mqtt::{Answer, Publication, PublishRefused, filter_matches};
use noroshi_store::App;
use noroshi_types::topic::needs_rule;
use noroshi_types::{AppId, Topic};

use super::origin;
use super::work::Job;
use crate::session::operation::{Op, Published};
use crate::shard::Shard;

/// The longest `data` that a publication may become. What stands around a payload, what escapes or base64 add to it
/// and its properties have as much room again: without a bound 64 KiB of user properties, each byte of which is six
/// in JSON, would pass a limit of 4 KiB.
pub(super) const fn data_bytes_max(payload_bytes_max: usize) -> usize {
    payload_bytes_max.saturating_mul(2).saturating_add(512)
}

impl Shard {
    /// Whether clients of an app may publish to a topic.
    pub(crate) fn may_publish(&self, app: AppId, topic: &Topic) -> bool {
        let may_publish = |app: &App| {
            let open = self.shared.config.anonymous_app.as_deref() == Some(app.name.as_str());
            open || app.settings.client_publish.iter().any(|filter| filter_matches(filter, topic.as_str()))
        };
        !needs_rule(topic.as_str()) && self.shared.auth.with_app(app, may_publish).unwrap_or(false)
    }

    pub(super) fn publish_mqtt(&mut self, slot: u32, publication: &Publication<'_>, answer: Option<Answer>) {
        let session = self.connection(slot).and_then(|connection| connection.session.clone());
        let Some(session) = session else { return };
        let limit = self.shared.config.publish_bytes_max;
        let too_big = |shard: &mut Self| {
            if let Some(answer) = answer {
                let refused = Err(PublishRefused::TooBig);
                shard.answer_mqtt(slot, |conversation, out| conversation.published(answer, refused, out));
            }
        };
        // Before it may wait for a webhook.
        if publication.payload.len() > limit {
            return too_big(self);
        }
        let data = publication.data(origin(&session));
        if data.as_str().len() > data_bytes_max(limit) {
            return too_big(self);
        }
        let published = Published {
            topic: publication.topic.clone(),
            data,
            qos: publication.qos,
            retain: publication.retain,
            has_payload: !publication.payload.is_empty(),
            expiry_s: publication.expiry_s,
        };
        self.run_op(slot, Op::MqttPublish { published: Box::new(published), answer });
    }

    /// `allowed`: topic rules, or the app's filters, let the client publish it.
    pub(crate) fn publish_mqtt_allowed(
        &mut self,
        slot: u32,
        published: Published,
        answer: Option<Answer>,
        allowed: bool,
    ) {
        let refused = if !allowed {
            Some(PublishRefused::NotAllowed)
        } else {
            let (request, clears) = published.request();
            let job = Job::Publish { request: Box::new(request), clears, answer };
            (!self.queue_job(slot, job)).then_some(PublishRefused::OverQuota)
        };
        if let (Some(refused), Some(answer)) = (refused, answer) {
            self.answer_mqtt(slot, |conversation, out| conversation.published(answer, Err(refused), out));
        }
    }
}
