//! What there is (XEP-0030): the service, its PubSub service, and the client's own account.

use super::stanza::Stanza;
use super::{Context, Conversation, Element, Output, StanzaError, ns, push_empty, push_end, push_start};

/// An entity that can be asked.
#[derive(Debug)]
pub(super) struct Entity {
    category: &'static str,
    kind: &'static str,
    name: &'static str,
    features: &'static [&'static str],
    /// The PubSub service is found at it.
    is_parent: bool,
}

pub(super) static SERVICE: Entity = Entity {
    category: "server",
    kind: "im",
    name: "Noroshi",
    // `msgoffline`: XEP-0160 §4.
    features: &[ns::DISCO_INFO, ns::DISCO_ITEMS, ns::PING, "msgoffline"],
    is_parent: true,
};

pub(super) static ACCOUNT: Entity = Entity {
    category: "account",
    kind: "registered",
    name: "",
    features: &[ns::DISCO_INFO, ns::DISCO_ITEMS, ns::PING, ns::ROSTER],
    is_parent: false,
};

/// What an account that is no device can besides, of XEP-0163 and XEP-0060.
static PERSONAL: [&str; 9] = [
    ns::PUBSUB,
    "http://jabber.org/protocol/pubsub#access-presence",
    "http://jabber.org/protocol/pubsub#auto-create",
    "http://jabber.org/protocol/pubsub#auto-subscribe",
    "http://jabber.org/protocol/pubsub#filtered-notifications",
    "http://jabber.org/protocol/pubsub#item-ids",
    "http://jabber.org/protocol/pubsub#last-published",
    "http://jabber.org/protocol/pubsub#publish",
    "http://jabber.org/protocol/pubsub#retrieve-items",
];

/// XEP-0060 §10, what of it is here.
pub(super) static PUBSUB: Entity = Entity {
    category: "pubsub",
    kind: "service",
    name: "Topics",
    features: &[
        ns::DISCO_INFO,
        ns::DISCO_ITEMS,
        ns::PING,
        ns::PUBSUB,
        "http://jabber.org/protocol/pubsub#access-open",
        "http://jabber.org/protocol/pubsub#auto-create",
        "http://jabber.org/protocol/pubsub#item-ids",
        "http://jabber.org/protocol/pubsub#last-published",
        "http://jabber.org/protocol/pubsub#persistent-items",
        "http://jabber.org/protocol/pubsub#publish",
        "http://jabber.org/protocol/pubsub#retrieve-items",
        "http://jabber.org/protocol/pubsub#retrieve-subscriptions",
        "http://jabber.org/protocol/pubsub#subscribe",
    ],
    is_parent: false,
};

/// A topic, as a node of the PubSub service.
static NODE: Entity = Entity {
    category: "pubsub",
    kind: "leaf",
    name: "",
    features: &[ns::DISCO_INFO, ns::DISCO_ITEMS, ns::PUBSUB],
    is_parent: false,
};

impl Conversation {
    pub(super) fn handle_disco(
        &mut self,
        cx: &Context<'_>,
        stanza: Stanza<'_>,
        entity: &'static Entity,
        query: Element<'_>,
        out: &mut Output,
    ) {
        let node = query.attribute("node").unwrap_or_default();
        let is_pubsub = entity.category == PUBSUB.category;
        let entity = match node {
            "" => entity,
            // Every topic is there once somebody asks; which ones there are is not told.
            node if is_pubsub && noroshi_types::Topic::parse(node).is_ok() => &NODE,
            _ => return self.push_error(cx, stanza, StanzaError::ItemNotFound, "", out),
        };
        self.push_entity(cx, stanza, entity, (query.namespace(), node), out);
    }

    pub(super) fn push_entity(
        &mut self,
        cx: &Context<'_>,
        stanza: Stanza<'_>,
        entity: &'static Entity,
        (namespace, node): (&str, &str),
        out: &mut Output,
    ) {
        let is_info = namespace == ns::DISCO_INFO;
        let is_account = self.account;
        self.push_result(cx, stanza, out, |out| {
            push_start(out, "query", &[("xmlns", namespace), ("node", node)]);
            if is_info {
                let Entity { category, kind, name, features, .. } = entity;
                push_empty(out, "identity", &[("category", category), ("type", kind), ("name", name)]);
                let registration = (entity.is_parent && cx.config.registration).then_some(&ns::REGISTER);
                // XEP-0163 §6.1
                let personal = is_account && entity.category == ACCOUNT.category;
                if personal {
                    push_empty(out, "identity", &[("category", "pubsub"), ("type", "pep")]);
                }
                let personal = PERSONAL.iter().filter(|_| personal);
                for feature in features.iter().chain(registration).chain(personal) {
                    push_empty(out, "feature", &[("var", feature)]);
                }
            } else if entity.is_parent {
                push_empty(out, "item", &[("jid", &cx.config.pubsub), ("name", PUBSUB.name)]);
            }
            push_end(out, "query");
        });
    }
}
