//! What a client publishes: where its app allows it, as a notification to a topic.

use std::time::Duration;

use noroshi_protocol::mqtt::{Answer, Publication, PublishRefused, Qos, filter_matches};
use noroshi_store::App;
use noroshi_types::topic::needs_rule;
use noroshi_types::{AppId, JsonText, Push, Request, Target, Topic, Ttl, Urgency, When, limits};

use super::origin;
use super::work::Job;
use crate::session::permission::Op;
use crate::shard::Shard;

/// The longest `data` that a publication may become. What stands around a payload, what escapes or base64 add to it
/// and its properties have as much room again: without a bound 64 KiB of user properties, each byte of which is six
/// in JSON, would pass a limit of 4 KiB.
pub(super) const fn data_bytes_max(payload_bytes_max: usize) -> usize {
    payload_bytes_max.saturating_mul(2).saturating_add(512)
}

/// What a client publishes, as a provider would say it.
pub(crate) struct Published {
    pub(crate) topic: Topic,
    pub(crate) data: JsonText,
    pub(crate) qos: Qos,
    pub(crate) retain: bool,
    pub(crate) has_payload: bool,
    pub(crate) expiry_s: Option<u32>,
}

impl Published {
    /// And whether what the topic retains is to be forgotten first ([MQTT-3.3.1-6]).
    pub(crate) fn request(self) -> (Request, bool) {
        // Without an expiry it is kept for as long as anything is.
        let life = self.expiry_s.map_or(limits::TTL_MAX, |seconds| Duration::from_secs(seconds.into()));
        let clears = self.retain && !self.has_payload;
        let request = Request {
            target: Target::Topic(self.topic),
            // At most once is for who is here.
            when: if self.qos == Qos::AtMostOnce { When::Connected } else { When::Stored },
            ttl: Ttl::new(life.min(limits::TTL_MAX)).unwrap_or_default(),
            urgency: Urgency::Normal,
            waits_for_use: false,
            collapse_key: None,
            retain: self.retain && !clears,
            notification: None,
            data: Some(self.data),
            push: Push::default(),
            trace: None,
        };
        (request, clears)
    }
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
