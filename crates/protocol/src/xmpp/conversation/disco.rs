//! Service discovery (XEP-0030): the service, its PubSub service, and the client's own account.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest;

use super::stanza::Handler;
use super::{Context, Element, StanzaError, ns, push_empty, push_end, push_start, push_text};

/// The node of our capabilities (XEP-0115 §4).
const SOFTWARE: &str = "urn:noroshi";

/// A discoverable entity.
#[derive(Debug)]
pub(super) struct Entity {
    category: &'static str,
    kind: &'static str,
    name: &'static str,
    features: &'static [&'static str],
    /// Lists the PubSub service as its item.
    is_parent: bool,
}

pub(super) static SERVICE: Entity = Entity {
    category: "server",
    kind: "im",
    name: "Noroshi",
    // `msgoffline`: XEP-0160 §4.
    features: &[ns::CAPABILITIES, ns::DISCO_INFO, ns::DISCO_ITEMS, ns::VERSION, ns::PING, "msgoffline"],
    is_parent: true,
};

pub(super) static ACCOUNT: Entity = Entity {
    category: "account",
    kind: "registered",
    name: "",
    features: &[ns::ARCHIVE, ns::DISCO_INFO, ns::DISCO_ITEMS, ns::PING, ns::ROSTER],
    is_parent: false,
};

/// Additional features of the service for an account (not a device).
static OF_ACCOUNTS: [&str; 1] = [ns::CARBONS];

/// Additional features of the PubSub service for an account: nodes that accounts create (XEP-0060 §10).
static OF_NODES: [&str; 21] = [
    "http://jabber.org/protocol/pubsub#access-authorize",
    "http://jabber.org/protocol/pubsub#access-presence",
    "http://jabber.org/protocol/pubsub#access-roster",
    "http://jabber.org/protocol/pubsub#access-whitelist",
    "http://jabber.org/protocol/pubsub#config-node",
    "http://jabber.org/protocol/pubsub#config-node-max",
    "http://jabber.org/protocol/pubsub#create-and-configure",
    "http://jabber.org/protocol/pubsub#delete-items",
    "http://jabber.org/protocol/pubsub#delete-nodes",
    "http://jabber.org/protocol/pubsub#instant-nodes",
    "http://jabber.org/protocol/pubsub#manage-subscriptions",
    "http://jabber.org/protocol/pubsub#member-affiliation",
    "http://jabber.org/protocol/pubsub#meta-data",
    "http://jabber.org/protocol/pubsub#modify-affiliations",
    "http://jabber.org/protocol/pubsub#multi-items",
    "http://jabber.org/protocol/pubsub#outcast-affiliation",
    "http://jabber.org/protocol/pubsub#publisher-affiliation",
    "http://jabber.org/protocol/pubsub#purge-nodes",
    "http://jabber.org/protocol/pubsub#retract-items",
    "http://jabber.org/protocol/pubsub#retrieve-default",
    "http://jabber.org/protocol/pubsub#subscription-notifications",
];

/// Additional features of an account (not a device): XEP-0357, XEP-0359, XEP-0054, XEP-0163 and XEP-0060.
static PERSONAL: [&str; 13] = [
    ns::PUSH,
    ns::STANZA_ID,
    ns::CARD,
    ns::PUBSUB,
    "http://jabber.org/protocol/pubsub#access-presence",
    "http://jabber.org/protocol/pubsub#auto-create",
    "http://jabber.org/protocol/pubsub#auto-subscribe",
    "http://jabber.org/protocol/pubsub#filtered-notifications",
    "http://jabber.org/protocol/pubsub#item-ids",
    "http://jabber.org/protocol/pubsub#last-published",
    "http://jabber.org/protocol/pubsub#publish",
    "http://jabber.org/protocol/pubsub#publish-options",
    "http://jabber.org/protocol/pubsub#retrieve-items",
];

/// The supported part of XEP-0060 §10.
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
        "http://jabber.org/protocol/pubsub#create-nodes",
        "http://jabber.org/protocol/pubsub#item-ids",
        "http://jabber.org/protocol/pubsub#last-published",
        "http://jabber.org/protocol/pubsub#persistent-items",
        "http://jabber.org/protocol/pubsub#publish",
        "http://jabber.org/protocol/pubsub#retrieve-affiliations",
        "http://jabber.org/protocol/pubsub#retrieve-items",
        "http://jabber.org/protocol/pubsub#retrieve-subscriptions",
        "http://jabber.org/protocol/pubsub#subscribe",
    ],
    is_parent: false,
};

/// A topic, as a node of the PubSub service.
pub(super) static NODE: Entity = Entity {
    category: "pubsub",
    kind: "leaf",
    name: "",
    features: &[ns::DISCO_INFO, ns::DISCO_ITEMS, ns::PUBSUB],
    is_parent: false,
};

impl Entity {
    /// `account`: as seen by an account instead of a device.
    fn features(&self, cx: &Context<'_>, account: bool) -> impl Iterator<Item = &'static str> {
        let registration = (self.is_parent && cx.config.registration).then_some(ns::REGISTER);
        let of_accounts = OF_ACCOUNTS.iter().filter(move |_| account && self.is_parent);
        // XEP-0163 §6.1
        let personal = PERSONAL.iter().filter(move |_| account && self.category == ACCOUNT.category);
        let of_nodes = OF_NODES.iter().filter(move |_| account && std::ptr::eq(self, &PUBSUB));
        self.features.iter().chain(of_accounts).chain(personal).chain(of_nodes).copied().chain(registration)
    }

    /// XEP-0115 §5.1, for an entity with one identity and no forms.
    fn verification(&self, cx: &Context<'_>, account: bool) -> String {
        let Entity { category, kind, name, .. } = self;
        let mut features: Vec<&str> = self.features(cx, account).collect();
        features.sort_unstable();
        let text = format!("{category}/{kind}//{name}<{}<", features.join("<"));
        STANDARD.encode(digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes()))
    }
}

/// The service's capabilities, as a feature of the stream (XEP-0115 §6.3).
pub(super) fn push_capabilities(cx: &Context<'_>, account: bool, out: &mut Vec<u8>) {
    let ver = SERVICE.verification(cx, account);
    let attributes =
        [("xmlns", ns::CAPABILITIES), ("hash", "sha-1"), ("node", SOFTWARE), ("ver", ver.as_str())];
    push_empty(out, "c", &attributes);
}

impl Handler<'_> {
    /// XEP-0092, without the operating system.
    pub(super) fn push_version(&mut self) {
        self.push_result(|out| {
            push_start(out, "query", &[("xmlns", ns::VERSION)]);
            push_text(out, "name", &[], SERVICE.name);
            push_text(out, "version", &[], env!("CARGO_PKG_VERSION"));
            push_end(out, "query");
        });
    }

    pub(super) fn handle_disco(&mut self, entity: &'static Entity, query: Element<'_>) {
        let node = query.attribute("node").unwrap_or_default();
        let is_pubsub = entity.category == PUBSUB.category;
        let is_info = query.namespace() == ns::DISCO_INFO;
        let is_capabilities = || {
            let ver = node.strip_prefix(SOFTWARE).and_then(|rest| rest.strip_prefix('#'));
            entity.is_parent
                && is_info
                && ver.is_some_and(|ver| *ver == *entity.verification(self.cx, self.conversation.account))
        };
        let entity = match node {
            "" => entity,
            _ if is_capabilities() => entity,
            // Every valid topic exists; the existing ones are not listed.
            node if is_pubsub && noroshi_types::Topic::parse(node).is_ok() => &NODE,
            _ => return self.push_error(StanzaError::ItemNotFound, ""),
        };
        self.push_entity(entity, (query.namespace(), node));
    }

    pub(super) fn push_entity(&mut self, entity: &'static Entity, (namespace, node): (&str, &str)) {
        let is_info = namespace == ns::DISCO_INFO;
        let (cx, is_account) = (self.cx, self.conversation.account);
        self.push_result(|out| {
            push_start(out, "query", &[("xmlns", namespace), ("node", node)]);
            if is_info {
                let Entity { category, kind, name, .. } = entity;
                push_empty(out, "identity", &[("category", category), ("type", kind), ("name", name)]);
                if is_account && entity.category == ACCOUNT.category {
                    push_empty(out, "identity", &[("category", "pubsub"), ("type", "pep")]);
                }
                for feature in entity.features(cx, is_account) {
                    push_empty(out, "feature", &[("var", feature)]);
                }
            } else if entity.is_parent {
                push_empty(out, "item", &[("jid", &cx.config.pubsub), ("name", PUBSUB.name)]);
            }
            push_end(out, "query");
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xmpp::Config;

    #[test]
    fn example_of_xep_0115() {
        // §5.2
        static EXODUS: Entity = Entity {
            category: "client",
            kind: "pc",
            name: "Exodus 0.9.1",
            features: &[ns::DISCO_INFO, ns::DISCO_ITEMS, "http://jabber.org/protocol/muc", ns::CAPABILITIES],
            is_parent: false,
        };
        let cx = Context { config: &Config::new("x.example"), random: &|_| {}, now_ms: 0 };
        assert_eq!(EXODUS.verification(&cx, false), "QgayPKawpkPSDYmwT/WM94uAlu0=");
    }
}
