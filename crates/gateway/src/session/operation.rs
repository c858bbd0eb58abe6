//! What a client asks for that topic rules decide about.

use std::time::Duration;

use noroshi_delivery::rules::{Reason, Verdict};
use noroshi_protocol::mqtt::{Answer, Qos, SubscribeRequest, UnsubscribeRequest};
use noroshi_protocol::{socket_io, xmpp};
use noroshi_types::rule::{Action, Denied};
use noroshi_types::topic::needs_rule;
use noroshi_types::{
    JsonText, NotificationId, Position, Push, Request, Target, Topic, Ttl, Urgency, When, limits,
};

use crate::session::permission::Verdicts;

/// What a name takes besides its text, and an operation besides its names.
const NAME_BYTES: usize = 48;

/// What a client asks for.
pub(crate) enum Op {
    Subscribe { topics: Vec<Topic>, since: Vec<(Topic, Position)>, reply: Option<socket_io::Reply> },
    Unsubscribe { topics: Vec<Topic> },
    MqttSubscribe(SubscribeRequest),
    MqttUnsubscribe(UnsubscribeRequest),
    MqttPublish { published: Box<Published>, answer: Option<Answer> },
    XmppSubscribe { topic: Topic, durable: bool, request: xmpp::Request },
    XmppUnsubscribe { topic: Topic, durable: bool, request: xmpp::Request },
    XmppItems { topic: Topic, id: Option<NotificationId>, max: usize, request: xmpp::Request },
    XmppPublish { topic: Topic, data: JsonText, request: xmpp::Request },
    XmppCreate { topic: Topic, request: xmpp::Request },
}

impl Op {
    pub(crate) fn action(&self) -> Action {
        match self {
            Op::MqttPublish { .. } | Op::XmppPublish { .. } | Op::XmppCreate { .. } => Action::Publish,
            _ => Action::Subscribe,
        }
    }

    /// What it holds while it waits: what the client sent, and what each name and the operation itself take.
    pub(crate) fn bytes(&self) -> usize {
        let name = |name: &str| NAME_BYTES + name.len();
        let names = |topics: &[Topic]| topics.iter().map(|topic| name(topic.as_str())).sum::<usize>();
        let sent = match self {
            Op::Subscribe { topics, since, .. } => {
                names(topics) + since.iter().map(|(topic, _)| name(topic.as_str())).sum::<usize>()
            }
            Op::Unsubscribe { topics } => names(topics),
            Op::MqttSubscribe(request) => request.subscriptions(0).map(|one| name(one.filter.as_str())).sum(),
            Op::MqttUnsubscribe(request) => request.filters().map(|filter| name(filter.as_str())).sum(),
            Op::MqttPublish { published, .. } => {
                name(published.topic.as_str()) + published.data.as_str().len()
            }
            Op::XmppPublish { topic, data, request } => {
                name(topic.as_str()) + data.as_str().len() + request.held_bytes()
            }
            Op::XmppSubscribe { topic, request, .. }
            | Op::XmppUnsubscribe { topic, request, .. }
            | Op::XmppCreate { topic, request }
            | Op::XmppItems { topic, request, .. } => name(topic.as_str()) + request.held_bytes(),
        };
        NAME_BYTES + sent
    }

    /// What no app without rules opens. Other protocols than MQTT cannot name it.
    pub(crate) fn denied_without_rules(&self) -> Verdicts {
        let denied = Verdict::Denied(Reason::Rule(Denied::NoRule));
        match self {
            Op::MqttSubscribe(_) => {
                let names = self.names().into_iter();
                names.filter(|name| needs_rule(name)).map(|name| (name, denied)).collect()
            }
            _ => Verdicts::new(),
        }
    }

    /// The topics and filters that need a permission, in order.
    pub(crate) fn names(&self) -> Vec<Box<str>> {
        match self {
            Op::Subscribe { topics, .. } => topics.iter().map(|topic| topic.as_str().into()).collect(),
            Op::MqttSubscribe(request) => {
                request.subscriptions(0).map(|one| one.filter.plain().into()).collect()
            }
            Op::MqttPublish { published, .. } => vec![published.topic.as_str().into()],
            Op::XmppSubscribe { topic, .. }
            | Op::XmppItems { topic, .. }
            | Op::XmppCreate { topic, .. }
            | Op::XmppPublish { topic, .. } => vec![topic.as_str().into()],
            Op::Unsubscribe { .. } | Op::MqttUnsubscribe(_) | Op::XmppUnsubscribe { .. } => Vec::new(),
        }
    }
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
