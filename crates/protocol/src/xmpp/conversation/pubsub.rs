//! The PubSub service (XEP-0060): topics are its nodes. The account's own address subscribes durably, the
//! connection's address for as long as the connection lasts.

use noroshi_types::json::lone_surrogate;
use noroshi_types::{JsonText, NotificationId, Topic};

use super::stanza::Stanza;
use super::{Context, Conversation, Element, Output, StanzaError, ns};
use crate::xmpp::action::{About, Action};
use crate::xmpp::jid::Jid;

/// Items in one answer.
const ITEMS_MAX: usize = 100;

/// A condition and what XEP-0060 adds to it.
type Refused = (StanzaError, &'static str);

const NOT_IMPLEMENTED: Refused = (StanzaError::FeatureNotImplemented, "");

impl Conversation {
    pub(super) fn handle_pubsub_iq(
        &mut self,
        cx: &Context<'_>,
        stanza: Stanza<'_>,
        kind: &str,
        iq: Element<'_>,
        out: &mut Output,
    ) {
        let Some(child) = iq.children().next() else { return };
        let result = match (child.namespace(), child.name(), kind) {
            (ns::PUBSUB, "pubsub", _) => self.pubsub(stanza, kind, child),
            (ns::PUBSUB_OWNER, "pubsub", _) => Err((StanzaError::NotAllowed, "")), // §8: topics are providers'
            (ns::PING, "ping", "get") => return self.push_result(cx, stanza, out, |_| {}),
            (ns::DISCO_INFO | ns::DISCO_ITEMS, "query", "get") => {
                return self.handle_disco(cx, stanza, &super::disco::PUBSUB, child, out);
            }
            _ => Err((StanzaError::ServiceUnavailable, "")),
        };
        match result {
            Ok(action) => out.actions.push(action),
            Err((error, detail)) => self.push_error(cx, stanza, error, detail, out),
        }
    }

    fn pubsub(&self, stanza: Stanza<'_>, kind: &str, pubsub: Element<'_>) -> Result<Action, Refused> {
        let mut children = pubsub.children().filter(|child| child.namespace() == ns::PUBSUB);
        let command = children.next().ok_or((StanzaError::BadRequest, ""))?;
        let and = children.next().map(|child| child.name());
        match (kind, command.name()) {
            ("set", "subscribe") if and == Some("options") => Err(NOT_IMPLEMENTED), // §6.3.7
            ("set", "subscribe") => {
                let (topic, node) = required_node(command)?;
                let (jid, durable) = self.subscriber(command)?;
                let request = stanza.request(About::Subscription { node, jid });
                Ok(Action::Subscribe { topic, durable, request })
            }
            ("set", "unsubscribe") => {
                let (topic, _) = required_node(command)?;
                let (_, durable) = self.subscriber(command)?;
                let request = stanza.request(About::Nothing);
                Ok(Action::Unsubscribe { topic, durable, request })
            }
            ("get", "subscriptions") => {
                let node = node(command)?;
                let (topic, node) = node.map_or((None, None), |(topic, node)| (Some(topic), Some(node)));
                let request = stanza.request(About::Subscriptions { node });
                Ok(Action::Subscriptions { topic, request })
            }
            ("get", "items") => items(stanza, command),
            ("set", "publish") => publish(stanza, command),
            // §8.1: a topic begins with what is published to it.
            ("set", "create") => Err((StanzaError::NotAllowed, "")),
            _ => Err(NOT_IMPLEMENTED),
        }
    }

    /// Who subscribes, and whether it outlives the connection; §6.1.3.1: nobody but the client itself.
    fn subscriber(&self, command: Element<'_>) -> Result<(Box<str>, bool), Refused> {
        let wrong = (StanzaError::BadRequest, "invalid-jid");
        let identity = self.identity.as_ref().ok_or(wrong)?;
        let text = command.attribute("jid").ok_or(wrong)?;
        let jid = Jid::parse(text).map_err(|_| wrong)?;
        match jid.resource {
            _ if !jid.has_bare(identity.bare()) => Err(wrong),
            None => Ok((identity.bare().into(), true)),
            Some(resource) if identity.jid[identity.bare_len + 1..] == *resource => {
                Ok((identity.jid.clone(), false))
            }
            Some(_) => Err(wrong),
        }
    }
}

fn node(command: Element<'_>) -> Result<Option<(Topic, Box<str>)>, Refused> {
    match command.attribute("node").filter(|node| !node.is_empty()) {
        None => Ok(None),
        Some(node) => match Topic::parse(node) {
            Ok(topic) => Ok(Some((topic, node.into()))),
            Err(_) => Err((StanzaError::ItemNotFound, "")),
        },
    }
}

fn required_node(command: Element<'_>) -> Result<(Topic, Box<str>), Refused> {
    node(command)?.ok_or((StanzaError::BadRequest, "nodeid-required"))
}

/// §6.5
fn items(stanza: Stanza<'_>, command: Element<'_>) -> Result<Action, Refused> {
    let (topic, node) = required_node(command)?;
    let max = match command.attribute("max_items").map(str::parse::<usize>) {
        None => ITEMS_MAX,
        Some(Ok(max @ 1..)) => max.min(ITEMS_MAX),
        Some(_) => return Err((StanzaError::BadRequest, "")),
    };
    let mut wanted = command.children().filter(|child| child.is(ns::PUBSUB, "item"));
    let id = match (wanted.next(), wanted.next()) {
        (None, _) => None,
        (Some(_), Some(_)) => return Err(NOT_IMPLEMENTED),
        (Some(item), None) => {
            let id = item.attribute("id").and_then(|id| NotificationId::parse(id).ok());
            Some(id.ok_or((StanzaError::ItemNotFound, ""))?)
        }
    };
    Ok(Action::Items { topic, id, max, request: stanza.request(About::Items { node }) })
}

/// §7.1: one item, whose payload is a JSON container (XEP-0335).
fn publish(stanza: Stanza<'_>, command: Element<'_>) -> Result<Action, Refused> {
    let (topic, node) = required_node(command)?;
    let mut items = command.children().filter(|child| child.is(ns::PUBSUB, "item"));
    let item = items.next().ok_or((StanzaError::BadRequest, "item-required"))?;
    if items.next().is_some() {
        return Err((StanzaError::BadRequest, "max-items-exceeded"));
    }
    let mut payloads = item.children();
    let payload = payloads.next().ok_or((StanzaError::BadRequest, "payload-required"))?;
    let invalid = (StanzaError::BadRequest, "invalid-payload");
    if payloads.next().is_some() || !payload.is(ns::JSON, "json") {
        return Err(invalid);
    }
    let json = payload.text();
    let is_json = serde_json::from_str::<serde::de::IgnoredAny>(&json).is_ok()
        && lone_surrogate(json.as_bytes()).is_none();
    let data = is_json.then(|| JsonText::from_valid(json.trim())).ok_or(invalid)?;
    Ok(Action::Publish { topic, data, request: stanza.request(About::Publication { node }) })
}
