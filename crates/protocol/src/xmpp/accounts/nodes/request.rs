//! Requests of clients to the nodes of accounts, as parsed from their stanzas (XEP-0060, and XEP-0030 for
//! discovery).

use bytes::Bytes;

use super::form::{Fields, FormKind, PAYLOAD_BYTES_MAX, parse_authorization, parse_form};
use super::{Affiliation, NAME_BYTES_MAX, Refused};
use crate::xmpp::error::StanzaError;
use crate::xmpp::jid::Jid;
use crate::xmpp::namespace as ns;
use crate::xmpp::xml::Element;
use crate::xmpp::xml::write::content_of;

/// Limit of items per response, and of changes per request.
const LIST_MAX: usize = 100;
/// Limit of an item's id.
const ID_BYTES_MAX: usize = 255;

const BAD_REQUEST: Refused = (StanzaError::BadRequest, "");
const NODE_REQUIRED: Refused = (StanzaError::BadRequest, "nodeid-required");

/// Forms are `None` if the client cancelled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeRequest {
    /// §8.1; without a name the service generates one.
    Create {
        node: Option<Box<str>>,
        form: Fields,
    },
    /// §8.3
    Defaults,
    /// §8.2
    Configuration {
        node: Box<str>,
    },
    Configure {
        node: Box<str>,
        form: Option<Fields>,
    },
    /// §8.4
    Delete {
        node: Box<str>,
    },
    /// §8.5
    Purge {
        node: Box<str>,
    },
    /// §8.9
    Affiliations {
        node: Box<str>,
    },
    Affiliate {
        node: Box<str>,
        list: Vec<(Box<str>, NewAffiliation)>,
    },
    /// §8.8
    Subscribers {
        node: Box<str>,
    },
    /// Addresses, and whether each is subscribed afterwards.
    ChangeSubscribers {
        node: Box<str>,
        list: Vec<(Box<str>, bool)>,
    },
    /// §5.7
    OwnAffiliations {
        node: Option<Box<str>>,
    },
    /// §5.6
    OwnSubscriptions {
        node: Box<str>,
    },
    /// §6.1, §6.2. Nodes of accounts reject options (§6.3).
    Subscribe {
        node: Box<str>,
        jid: Box<str>,
        has_options: bool,
    },
    Unsubscribe {
        node: Box<str>,
        jid: Box<str>,
    },
    /// §7.1. Nodes of accounts reject options (§7.1.5).
    Publish {
        node: Box<str>,
        item: Option<NewItem>,
        has_options: bool,
    },
    /// §7.2
    Retract {
        node: Box<str>,
        id: Box<str>,
        tells: bool,
    },
    /// §6.5
    Items {
        node: Box<str>,
        ids: Vec<Box<str>>,
        max: usize,
    },
    /// §5.3
    Describe {
        node: Box<str>,
    },
    /// §5.2; for a node its items, §5.5.
    List {
        node: Option<Box<str>>,
    },
}

/// The new affiliation of an entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewAffiliation(pub(super) Affiliation);

/// An item to publish. Without an id the service generates one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewItem {
    pub(super) id: Option<Box<str>>,
    /// Empty without payload.
    pub(super) payload: Bytes,
}

fn named(command: Element<'_>) -> Option<&str> {
    command.attribute("node").filter(|node| !node.is_empty())
}

fn required(command: Element<'_>) -> Result<Box<str>, Refused> {
    named(command).map(Into::into).ok_or(NODE_REQUIRED)
}

/// `None`: not a request that nodes of accounts support.
type Parsed = Option<Result<NodeRequest, Refused>>;

impl NodeRequest {
    /// Parses `<pubsub/>` in the general namespace.
    pub(in crate::xmpp) fn parse(kind: &str, pubsub: Element<'_>) -> Parsed {
        let mut children = pubsub.children().filter(|child| child.namespace() == ns::PUBSUB);
        let command = children.next()?;
        let and = children.next();
        let has = |options: &str| pubsub.child(ns::PUBSUB, options).is_some();
        let node = || required(command);
        Some(match (kind, command.name()) {
            ("set", "create") => create(command, and),
            ("set", "subscribe") => address(command).and_then(|jid| {
                Ok(NodeRequest::Subscribe { node: node()?, jid, has_options: has("options") })
            }),
            ("set", "unsubscribe") => {
                address(command).and_then(|jid| Ok(NodeRequest::Unsubscribe { node: node()?, jid }))
            }
            ("set", "publish") => publish(command, has("publish-options")),
            ("set", "retract") => retract(command),
            ("get", "items") => items(command),
            ("get", "affiliations") => {
                Ok(NodeRequest::OwnAffiliations { node: named(command).map(Into::into) })
            }
            // For all nodes: these include topics, so the service requests its own part.
            ("get", "subscriptions") => Ok(NodeRequest::OwnSubscriptions { node: named(command)?.into() }),
            _ => return None,
        })
    }

    /// Parses `<pubsub/>` in the owner namespace.
    pub(in crate::xmpp) fn parse_owner(kind: &str, pubsub: Element<'_>) -> Parsed {
        let command = pubsub.children().find(|child| child.namespace() == ns::PUBSUB_OWNER)?;
        let node = required(command);
        Some(match (kind, command.name()) {
            ("get", "default") => Ok(NodeRequest::Defaults),
            ("get", "configure") => node.map(|node| NodeRequest::Configuration { node }),
            ("set", "configure") => node.and_then(|node| {
                let form = command.child(ns::FORM, "x").ok_or(BAD_REQUEST)?;
                Ok(NodeRequest::Configure { node, form: parse_form(form, FormKind::Configuration)? })
            }),
            ("set", "delete") => node.map(|node| NodeRequest::Delete { node }),
            ("set", "purge") => node.map(|node| NodeRequest::Purge { node }),
            ("get", "affiliations") => node.map(|node| NodeRequest::Affiliations { node }),
            ("set", "affiliations") => node.and_then(|node| {
                let parse = |change: Element<'_>| {
                    let word = change.attribute("affiliation").unwrap_or_default();
                    Affiliation::parse(word).map(NewAffiliation)
                };
                Ok(NodeRequest::Affiliate { node, list: changes(command, "affiliation", parse)? })
            }),
            ("get", "subscriptions") => node.map(|node| NodeRequest::Subscribers { node }),
            ("set", "subscriptions") => node.and_then(|node| {
                let parse = |change: Element<'_>| match change.attribute("subscription") {
                    Some("subscribed") => Some(true),
                    Some("none") => Some(false),
                    _ => None,
                };
                let list = changes(command, "subscription", parse)?;
                Ok(NodeRequest::ChangeSubscribers { node, list })
            }),
            _ => return None,
        })
    }

    /// Parses an owner's decision about a subscription (§8.6).
    pub(in crate::xmpp) fn parse_decision(form: Element<'_>) -> Result<Self, Refused> {
        let fields = parse_form(form, FormKind::Authorization)?.ok_or(BAD_REQUEST)?;
        let (node, jid, allow) = parse_authorization(&fields)?;
        Ok(NodeRequest::ChangeSubscribers { node, list: vec![(jid, allow)] })
    }

    /// Publishes one item without an id.
    pub(in crate::xmpp::accounts) fn publish(node: &str, payload: &[u8]) -> Self {
        let item = NewItem { id: None, payload: Bytes::copy_from_slice(payload) };
        NodeRequest::Publish { node: node.into(), item: Some(item), has_options: false }
    }
}

/// §8.1.2, §8.1.3
fn create(command: Element<'_>, configure: Option<Element<'_>>) -> Result<NodeRequest, Refused> {
    let node = named(command);
    if node.is_some_and(|node| node.len() > NAME_BYTES_MAX) {
        return Err((StanzaError::NotAcceptable, ""));
    }
    let form = configure.filter(|it| it.name() == "configure").and_then(|it| it.child(ns::FORM, "x"));
    let form = match form {
        Some(form) => parse_form(form, FormKind::Configuration)?.ok_or(BAD_REQUEST)?,
        None => Fields::new(),
    };
    Ok(NodeRequest::Create { node: node.map(Into::into), form })
}

/// §6.1.3.1: in canonical form.
fn address(command: Element<'_>) -> Result<Box<str>, Refused> {
    canonical(command).ok_or((StanzaError::BadRequest, "invalid-jid"))
}

fn canonical(element: Element<'_>) -> Option<Box<str>> {
    Jid::parse(element.attribute("jid")?).ok().map(|jid| jid.canonical())
}

/// §7.1.3: exactly one item.
fn publish(command: Element<'_>, has_options: bool) -> Result<NodeRequest, Refused> {
    let node = required(command)?;
    let mut items = command.children().filter(|child| child.is(ns::PUBSUB, "item"));
    let item = items.next();
    if items.next().is_some() {
        return Err((StanzaError::BadRequest, "max-items-exceeded"));
    }
    let item = item.map(|item| {
        if item.children().count() > 1 {
            return Err((StanzaError::BadRequest, "invalid-payload"));
        }
        let id = item.attribute("id").filter(|id| !id.is_empty());
        if id.is_some_and(|id| id.len() > ID_BYTES_MAX) {
            return Err((StanzaError::NotAcceptable, ""));
        }
        // An event has another default namespace than the request.
        let payload = content_of(item, None, PAYLOAD_BYTES_MAX, |_| false);
        let payload = payload.ok_or((StanzaError::NotAcceptable, "payload-too-big"))?;
        // Text around a payload is ignored.
        let payload = if item.children().next().is_some() { payload.into() } else { Bytes::new() };
        Ok(NewItem { id: id.map(Into::into), payload })
    });
    Ok(NodeRequest::Publish { node, item: item.transpose()?, has_options })
}

fn retract(command: Element<'_>) -> Result<NodeRequest, Refused> {
    let node = required(command)?;
    let item = command.child(ns::PUBSUB, "item");
    let id = item.and_then(|item| item.attribute("id")).filter(|id| !id.is_empty());
    let id = id.ok_or((StanzaError::BadRequest, "item-required"))?; // §7.2.3.4
    let tells = matches!(command.attribute("notify"), Some("1" | "true"));
    Ok(NodeRequest::Retract { node, id: id.into(), tells })
}

fn items(command: Element<'_>) -> Result<NodeRequest, Refused> {
    let node = required(command)?;
    let max = match command.attribute("max_items").map(str::parse::<usize>) {
        None => LIST_MAX,
        Some(Ok(max @ 1..)) => max.min(LIST_MAX),
        Some(_) => return Err(BAD_REQUEST),
    };
    let wanted = command.children().filter(|child| child.is(ns::PUBSUB, "item")).take(LIST_MAX);
    let ids = wanted.filter_map(|item| item.attribute("id")).map(Into::into).collect();
    Ok(NodeRequest::Items { node, ids, max })
}

/// Changes by address in canonical form.
fn changes<T>(
    command: Element<'_>,
    name: &str,
    parse: impl Fn(Element<'_>) -> Option<T>,
) -> Result<Vec<(Box<str>, T)>, Refused> {
    let changes = command.children().filter(|child| child.is(ns::PUBSUB_OWNER, name));
    let mut list = Vec::new();
    for change in changes {
        let jid = canonical(change).ok_or((StanzaError::BadRequest, "invalid-jid"))?;
        list.push((jid, parse(change).ok_or(BAD_REQUEST)?));
        if list.len() > LIST_MAX {
            return Err((StanzaError::PolicyViolation, ""));
        }
    }
    if list.is_empty() { Err(BAD_REQUEST) } else { Ok(list) }
}
