//! The PubSub service (XEP-0060), whose nodes are topics. The account's bare address subscribes durably, the
//! connection's full address until the connection ends.

use bytes::Bytes;
use noroshi_types::json::lone_surrogate;
use noroshi_types::{JsonText, NotificationId, Topic};

use super::stanza::{Handler, Stanza};
use super::{Conversation, Element, StanzaError, ns};
use crate::xmpp::action::{About, Action};
use crate::xmpp::error::Refused;
use crate::xmpp::jid::Jid;

/// Limit of items per response.
const ITEMS_MAX: usize = 100;

const NOT_IMPLEMENTED: Refused = (StanzaError::FeatureNotImplemented, "");
/// §6.3.7, §7.2.3.6, §5.6: with the missing feature.
const NO_OPTIONS: Refused = (StanzaError::FeatureNotImplemented, "unsupported subscription-options");
const NO_RETRACTION: Refused = (StanzaError::FeatureNotImplemented, "unsupported delete-items");
const NO_AFFILIATIONS: Refused = (StanzaError::FeatureNotImplemented, "unsupported retrieve-affiliations");

impl Conversation {
    /// §8: the provider owns topics; devices own none.
    fn owner(&self, pubsub: Element<'_>) -> Refused {
        let command = pubsub.children().find(|child| child.namespace() == ns::PUBSUB_OWNER);
        let is_named = |it: &Element<'_>| it.attribute("node").is_some_and(|node| !node.is_empty());
        match command {
            None => (StanzaError::BadRequest, ""),
            Some(command) if command.name() != "default" && !is_named(&command) => {
                (StanzaError::BadRequest, "nodeid-required")
            }
            // For an account, nodes of others do not exist.
            Some(_) if self.account => (StanzaError::ItemNotFound, ""),
            Some(_) => (StanzaError::Forbidden, ""),
        }
    }

    /// The subscriber, and whether the subscription is durable; §6.1.3.1: only the client itself.
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

impl Handler<'_> {
    pub(super) fn handle_pubsub_iq(&mut self, iq: Element<'_>) {
        let Some(child) = iq.children().next() else { return };
        match (child.namespace(), child.name(), self.stanza.kind) {
            (ns::PUBSUB, "pubsub", _) => {
                let topic = self.pubsub(child);
                self.handle_nodes(child, topic);
            }
            (ns::PUBSUB_OWNER, "pubsub", _) => {
                let refused = Err(self.conversation.owner(child));
                self.handle_nodes(child, refused);
            }
            (ns::PING, "ping", "get") => self.push_result(|_| {}),
            (ns::DISCO_INFO | ns::DISCO_ITEMS, "query", "get") => {
                if !self.conversation.account || !self.discover_nodes(child) {
                    self.handle_disco(&super::disco::PUBSUB, child);
                }
            }
            _ => self.push_error(StanzaError::ServiceUnavailable, ""),
        }
    }

    fn pubsub(&self, pubsub: Element<'_>) -> Result<Action, Refused> {
        let mut children = pubsub.children().filter(|child| child.namespace() == ns::PUBSUB);
        let command = children.next().ok_or((StanzaError::BadRequest, ""))?;
        let and = children.next();
        let has_options = and.is_some_and(|child| child.name() == "options");
        match (self.stanza.kind, command.name()) {
            ("set", "subscribe") if has_options => Err(NO_OPTIONS),
            ("get" | "set", "options") => Err(NO_OPTIONS),
            ("set", "subscribe") => {
                let (topic, node) = required_node(command)?;
                let (jid, durable) = self.conversation.subscriber(command)?;
                let request = self.stanza.request(About::Subscription { node, jid });
                Ok(Action::Subscribe { topic, durable, request })
            }
            ("set", "unsubscribe") => {
                let (topic, _) = required_node(command)?;
                let (_, durable) = self.conversation.subscriber(command)?;
                // §6.2.3.4: for an account, a node may not exist.
                let about = if self.conversation.account { About::Unsubscription } else { About::Nothing };
                let request = self.stanza.request(about);
                Ok(Action::Unsubscribe { topic, durable, request })
            }
            ("get", "subscriptions") => {
                let node = node(command)?;
                let (topic, node) = node.map_or((None, None), |(topic, node)| (Some(topic), Some(node)));
                let request = self.stanza.request(About::Subscriptions { node, more: Bytes::new() });
                Ok(Action::Subscriptions { topic, request })
            }
            ("get", "items") => items(self.stanza, command),
            ("set", "publish") => publish(self.stanza, command),
            ("set", "create") => create(self.stanza, command, and),
            ("get", "affiliations") => {
                let (topic, node) = node(command)?.ok_or(NO_AFFILIATIONS)?;
                Ok(Action::Affiliation { topic, request: self.stanza.request(About::Affiliation { node }) })
            }
            ("set", "retract") => Err(NO_RETRACTION),
            _ => Err(NOT_IMPLEMENTED),
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

/// §8.1: a topic exists from its first publication, so creating one only checks the permission to publish.
fn create(stanza: Stanza<'_>, command: Element<'_>, and: Option<Element<'_>>) -> Result<Action, Refused> {
    // §8.1.2: the provider chooses topic names.
    let (topic, node) = node(command)?.ok_or((StanzaError::NotAcceptable, "nodeid-required"))?;
    // §8.1.3
    if and.is_some_and(|it| it.name() == "configure" && it.child(ns::FORM, "x").is_some()) {
        return Err((StanzaError::FeatureNotImplemented, "unsupported create-and-configure"));
    }
    Ok(Action::Create { topic, request: stanza.request(About::Creation { node }) })
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

/// §7.1: exactly one item, whose payload is a JSON container (XEP-0335).
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
