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

/// A request to a node; `node` is empty if the client named none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRequest {
    pub(in crate::xmpp) node: Box<str>,
    pub(in crate::xmpp) command: NodeCommand,
}

/// Forms are `None` if the client cancelled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::xmpp) enum NodeCommand {
    /// §8.1; without a name the service generates one.
    Create(Fields),
    /// §8.3
    Defaults,
    /// §8.2
    Configuration,
    /// §8.2.4
    Configure(Option<Fields>),
    /// §8.4
    Delete,
    /// §8.5
    Purge,
    /// §8.9
    Affiliations,
    /// §8.9.2
    Affiliate(Vec<(Box<str>, Affiliation)>),
    /// §8.8
    Subscribers,
    /// Addresses, and whether each is subscribed afterwards.
    ChangeSubscribers(Vec<(Box<str>, bool)>),
    /// §5.7; of one node if it is named.
    OwnAffiliations,
    /// §5.6
    OwnSubscriptions,
    /// §6.1, §6.2. Nodes of accounts reject options (§6.3).
    Subscribe { jid: Box<str>, has_options: bool },
    /// §6.2
    Unsubscribe { jid: Box<str> },
    /// §7.1. Nodes of accounts reject options (§7.1.5).
    Publish { item: Option<NewItem>, has_options: bool },
    /// §7.2
    Retract { id: Box<str>, tells: bool },
    /// §6.5
    Items { ids: Vec<Box<str>>, max: usize },
    /// §5.3
    Describe,
    /// §5.2; for a node its items, §5.5.
    List,
}

/// An item to publish. Without an id the service generates one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::xmpp) struct NewItem {
    pub(super) id: Option<Box<str>>,
    /// Empty without payload.
    pub(super) payload: Bytes,
}

fn named(command: Element<'_>) -> Option<&str> {
    command.attribute("node").filter(|node| !node.is_empty())
}

/// `None`: not a request that nodes of accounts support.
type Parsed = Option<Result<NodeRequest, Refused>>;

impl NodeRequest {
    pub(in crate::xmpp) fn new(node: &str, command: NodeCommand) -> Self {
        Self { node: node.into(), command }
    }

    /// Parses `<pubsub/>` in the general namespace.
    pub(in crate::xmpp) fn parse(kind: &str, pubsub: Element<'_>) -> Parsed {
        let mut children = pubsub.children().filter(|child| child.namespace() == ns::PUBSUB);
        let command = children.next()?;
        let and = children.next();
        let has = |options: &str| pubsub.child(ns::PUBSUB, options).is_some();
        let node = named(command);
        let parsed = match (kind, command.name()) {
            ("set", "create") => create(node, and),
            ("set", "subscribe") => address(command)
                .map(|jid| NodeCommand::Subscribe { jid, has_options: has("options") })
                .and_then(|command| node.map(|_| command).ok_or(NODE_REQUIRED)),
            ("set", "unsubscribe") => address(command)
                .map(|jid| NodeCommand::Unsubscribe { jid })
                .and_then(|command| node.map(|_| command).ok_or(NODE_REQUIRED)),
            ("get", "affiliations") => Ok(NodeCommand::OwnAffiliations),
            // For all nodes: these include topics, so the service requests its own part.
            ("get", "subscriptions") => node.map(|_| Ok(NodeCommand::OwnSubscriptions))?,
            ("set", "publish" | "retract") | ("get", "items") if node.is_none() => Err(NODE_REQUIRED),
            ("set", "publish") => publish(command, has("publish-options")),
            ("set", "retract") => retract(command),
            ("get", "items") => items(command),
            _ => return None,
        };
        Some(parsed.map(|command| Self::new(node.unwrap_or_default(), command)))
    }

    /// Parses `<pubsub/>` in the owner namespace.
    pub(in crate::xmpp) fn parse_owner(kind: &str, pubsub: Element<'_>) -> Parsed {
        let command = pubsub.children().find(|child| child.namespace() == ns::PUBSUB_OWNER)?;
        let parsed = match (kind, command.name()) {
            ("get", "default") => return Some(Ok(Self::new("", NodeCommand::Defaults))),
            ("get", "configure") => Ok(NodeCommand::Configuration),
            ("set", "configure") => {
                let form = command.child(ns::FORM, "x").ok_or(BAD_REQUEST);
                let form = form.and_then(|form| parse_form(form, FormKind::Configuration));
                form.map(NodeCommand::Configure)
            }
            ("set", "delete") => Ok(NodeCommand::Delete),
            ("set", "purge") => Ok(NodeCommand::Purge),
            ("get", "affiliations") => Ok(NodeCommand::Affiliations),
            ("set", "affiliations") => {
                let parse = |change: Element<'_>| Affiliation::named(change.attribute("affiliation")?);
                changes(command, "affiliation", parse).map(NodeCommand::Affiliate)
            }
            ("get", "subscriptions") => Ok(NodeCommand::Subscribers),
            ("set", "subscriptions") => {
                let parse = |change: Element<'_>| match change.attribute("subscription") {
                    Some("subscribed") => Some(true),
                    Some("none") => Some(false),
                    _ => None,
                };
                changes(command, "subscription", parse).map(NodeCommand::ChangeSubscribers)
            }
            _ => return None,
        };
        let node = named(command).ok_or(NODE_REQUIRED);
        Some(node.and_then(|node| Ok(Self::new(node, parsed?))))
    }

    /// Parses an owner's decision about a subscription (§8.6).
    pub(in crate::xmpp) fn parse_decision(form: Element<'_>) -> Result<Self, Refused> {
        let fields = parse_form(form, FormKind::Authorization)?.ok_or(BAD_REQUEST)?;
        let (node, jid, allow) = parse_authorization(&fields)?;
        Ok(Self { node, command: NodeCommand::ChangeSubscribers(vec![(jid, allow)]) })
    }

    /// Publishes one item without an id.
    pub(in crate::xmpp::accounts) fn publish(node: &str, payload: &[u8]) -> Self {
        let item = NewItem { id: None, payload: Bytes::copy_from_slice(payload) };
        Self::new(node, NodeCommand::Publish { item: Some(item), has_options: false })
    }
}

/// §8.1.2, §8.1.3
fn create(node: Option<&str>, configure: Option<Element<'_>>) -> Result<NodeCommand, Refused> {
    if node.is_some_and(|node| node.len() > NAME_BYTES_MAX) {
        return Err((StanzaError::NotAcceptable, ""));
    }
    let form = configure.filter(|it| it.name() == "configure").and_then(|it| it.child(ns::FORM, "x"));
    let form = match form {
        Some(form) => parse_form(form, FormKind::Configuration)?.ok_or(BAD_REQUEST)?,
        None => Fields::new(),
    };
    Ok(NodeCommand::Create(form))
}

/// §6.1.3.1: in canonical form.
fn address(command: Element<'_>) -> Result<Box<str>, Refused> {
    canonical(command).ok_or((StanzaError::BadRequest, "invalid-jid"))
}

fn canonical(element: Element<'_>) -> Option<Box<str>> {
    Jid::parse(element.attribute("jid")?).ok().map(|jid| jid.canonical())
}

/// §7.1.3: exactly one item.
fn publish(command: Element<'_>, has_options: bool) -> Result<NodeCommand, Refused> {
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
    Ok(NodeCommand::Publish { item: item.transpose()?, has_options })
}

fn retract(command: Element<'_>) -> Result<NodeCommand, Refused> {
    let item = command.child(ns::PUBSUB, "item");
    let id = item.and_then(|item| item.attribute("id")).filter(|id| !id.is_empty());
    let id = id.ok_or((StanzaError::BadRequest, "item-required"))?; // §7.2.3.4
    let tells = matches!(command.attribute("notify"), Some("1" | "true"));
    Ok(NodeCommand::Retract { id: id.into(), tells })
}

fn items(command: Element<'_>) -> Result<NodeCommand, Refused> {
    let max = match command.attribute("max_items").map(str::parse::<usize>) {
        None => LIST_MAX,
        Some(Ok(max @ 1..)) => max.min(LIST_MAX),
        Some(_) => return Err(BAD_REQUEST),
    };
    let wanted = command.children().filter(|child| child.is(ns::PUBSUB, "item")).take(LIST_MAX);
    let ids = wanted.filter_map(|item| item.attribute("id")).map(Into::into).collect();
    Ok(NodeCommand::Items { ids, max })
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
