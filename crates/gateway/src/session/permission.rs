//! Topic rules where they are enforced: what a client asks for passes them before it is carried out.
//!
//! What rules decide by themselves is carried out at once. Where a webhook decides, the operation waits at a gate
//! ([`crate::session::gate`]).
//!
//! Without rules of the app all of this is one look-up. The way of a delivery has no check: a connection hears only
//! what it was allowed to subscribe to ([`crate::session::recheck`] sees to it when rules change).

use std::sync::Arc;

use noroshi_delivery::rules::{AppRules, Holder, Reason, Verdict};
use noroshi_protocol::mqtt::{Answer, SubscribeRequest, UnsubscribeRequest};
use noroshi_protocol::socket_io;
use noroshi_protocol::xmpp::{self};
use noroshi_types::rule::{Action, Denied, Needs};
use noroshi_types::topic::needs_rule;
use noroshi_types::{JsonText, NotificationId, Position, Topic};

use crate::protocol::mqtt::publishing::Published;
use crate::session::registry::Session;

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

/// What the rules say to the names of an operation. Empty where the app has none.
pub(crate) type Verdicts = Vec<(Box<str>, Verdict)>;

/// What the rules say to an operation, and which rules these are.
pub(crate) struct Decided {
    /// None where the app has none.
    pub(crate) rules: Option<Arc<AppRules>>,
    pub(crate) verdicts: Verdicts,
}

/// Topics and filters that a webhook allowed for a log-in. They are valid only under the rules that asked the webhook.
#[derive(Default)]
pub(crate) struct Permissions {
    rules: Option<Arc<AppRules>>,
    names: Vec<Box<str>>,
}

impl Permissions {
    pub(crate) fn add(&mut self, rules: &Arc<AppRules>, name: Box<str>) {
        if !self.rules.as_ref().is_some_and(|mine| Arc::ptr_eq(mine, rules)) {
            (self.rules, self.names) = (Some(rules.clone()), Vec::new());
        }
        self.names.push(name);
    }

    pub(crate) fn has(&self, rules: &Arc<AppRules>, name: &str) -> bool {
        let is_current = self.rules.as_ref().is_some_and(|mine| Arc::ptr_eq(mine, rules));
        is_current && self.names.iter().any(|known| **known == *name)
    }
}

/// Under which rules a session stands.
pub(crate) enum Ruling {
    /// The app has none.
    None,
    By(Arc<AppRules>, Holder),
    /// The session kept too little of its token: it has to log in again.
    Unknown,
}

/// Whether a session kept enough for the rules of its app.
pub(crate) fn knows(session: &Session, needs: &Needs) -> bool {
    match &*session.known.load() {
        Some(known) if session.is_of_jwt() && known.claims.is_none() => !needs_claims(needs),
        Some(known) => known.covers(needs),
        // It began while there were no rules. A device token has no claims, so only the user can be missing.
        None if session.is_of_jwt() => Needs::default().covers(needs),
        None => session.user_key == 0 || !needs.user,
    }
}

pub(crate) fn needs_claims(needs: &Needs) -> bool {
    needs.topics || !needs.claims.is_empty()
}

pub(crate) fn holder_of(session: &Session) -> Holder {
    let known = session.known.load();
    let known = known.as_ref();
    Holder {
        app: session.app,
        device: session.device.clone(),
        user: known.and_then(|known| known.user.clone()),
        claims: known.and_then(|known| known.claims.clone()),
    }
}
