//! Nodes that accounts create at the PubSub service (XEP-0060): affiliations, subscriptions, items and
//! configuration. In memory, like accounts. A node belongs to the account that created it, and is deleted
//! with it.
//!
//! Modules: `request` parses requests, `form` the configuration, `access` authorizes, `owner` handles owner
//! requests, `item` publishing, `event` notifications to subscribers, `discovery` node metadata.
//!
//! Invariants: a node has an owner, one of them the account that created it. Only the subscriber can create a
//! subscription: an owner may approve or end it, so no account receives messages that it did not ask for.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use noroshi_types::limits;

use super::{Accounts, Outbox};
use crate::xmpp::error::{Refused, StanzaError};
use crate::xmpp::jid::bare_part;
use crate::xmpp::xml::write::{element, push_with};

mod access;
mod discovery;
mod event;
mod form;
mod item;
mod owner;
mod request;
mod subscriber;

use form::NodeConfig;
pub(in crate::xmpp) use request::NodeCommand;
pub use request::NodeRequest;

/// For all accounts together.
const NODES_MAX: usize = 1_000;
/// Nodes that one account may create.
const OWN_NODES_MAX: usize = 20;
/// Limit of the items in an account's nodes: 64 MiB for [`super::ACCOUNTS_MAX`].
const OWN_BYTES_MAX: usize = 64 << 10;
pub(super) const NAME_BYTES_MAX: usize = 255;
const AFFILIATIONS_MAX: usize = 100;
/// Owners of a node. Each owner receives every approval request, and an account can be made an owner without
/// its consent.
const OWNERS_MAX: usize = 10;
const SUBSCRIBERS_MAX: usize = 100;
/// Limit of a subscriber's address, escaped: one response lists all subscribers of a node.
const ADDRESS_BYTES_MAX: usize = 512;
/// Limit of nodes, affiliations or subscriptions in one response, whose length other accounts control.
const LIST_BYTES_MAX: usize = limits::SEND_QUEUE_BYTES / 2;
/// Limit of addresses of one account that subscribe to a node.
const ADDRESSES_MAX: usize = super::RESOURCES_MAX;

/// Why a request fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeError {
    /// No account created a node with this name.
    Absent,
    Refused(StanzaError, &'static str),
}

impl From<Refused> for NodeError {
    fn from((error, detail): Refused) -> Self {
        NodeError::Refused(error, detail)
    }
}

/// The child element of the response, if any.
pub type NodeAnswer = Result<Option<Bytes>, NodeError>;

/// The response `<pubsub/>` in one of the two namespaces of XEP-0060.
fn content(namespace: &str, build: impl FnOnce(&mut Vec<u8>)) -> NodeAnswer {
    Ok(Some(element("pubsub", &[("xmlns", namespace)], build)))
}

/// The response with a child `name` for the node.
fn answer(namespace: &str, name: &str, node: &str, build: impl FnOnce(&mut Vec<u8>)) -> NodeAnswer {
    content(namespace, |out| push_with(out, name, &[("node", node)], build))
}

noroshi_types::names! {
    /// XEP-0060 §4.1, without unsupported affiliations.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub(in crate::xmpp) enum Affiliation {
        Outcast => "outcast",
        None => "none",
        Member => "member",
        Publisher => "publisher",
        Owner => "owner",
    }
}

#[derive(Debug)]
pub(super) struct Node {
    /// The account that created it.
    creator: Box<str>,
    config: NodeConfig,
    /// By bare address; [`Affiliation::None`] is not stored.
    affiliations: BTreeMap<Box<str>, Affiliation>,
    subscribers: Vec<Subscriber>,
    /// Oldest first.
    items: VecDeque<Item>,
}

#[derive(Debug)]
struct Subscriber {
    /// Bare, or with a resource.
    jid: Box<str>,
    state: SubscriptionState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SubscriptionState {
    Subscribed,
    /// An owner must approve it.
    Pending,
    /// The subscriber withdrew it before an owner answered. It is kept, so that another request does not ask
    /// the owners again.
    Withdrawn,
}

impl Subscriber {
    fn bare(&self) -> &str {
        bare_part(&self.jid)
    }

    fn is_subscribed(&self) -> bool {
        self.state == SubscriptionState::Subscribed
    }

    /// `None`: the subscriber withdrew it.
    fn state(&self) -> Option<&'static str> {
        match self.state {
            SubscriptionState::Subscribed => Some("subscribed"),
            SubscriptionState::Pending => Some("pending"),
            SubscriptionState::Withdrawn => None,
        }
    }
}

/// A published item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    id: Box<str>,
    /// The publisher's bare address; empty after its account was removed.
    publisher: Box<str>,
    /// Empty without payload.
    payload: Bytes,
}

impl Item {
    fn bytes(&self) -> usize {
        self.id.len() + self.publisher.len() + self.payload.len()
    }
}

impl Node {
    fn affiliation(&self, bare: &str) -> Affiliation {
        self.affiliations.get(bare).copied().unwrap_or(Affiliation::None)
    }

    fn is_subscribed(&self, bare: &str) -> bool {
        self.subscribers.iter().any(|it| it.is_subscribed() && it.bare() == bare)
    }

    fn bytes(&self) -> usize {
        self.items.iter().map(Item::bytes).sum()
    }
}

impl<S: Copy + Eq> Accounts<S> {
    /// Executes an account's request.
    pub fn ask_node(&mut self, user: &str, request: NodeRequest, outbox: &mut Outbox<S>) -> NodeAnswer {
        let node = &*request.node;
        match request.command {
            NodeCommand::Create(form) => self.create_node(user, node, &form),
            NodeCommand::Defaults => Ok(Some(NodeConfig::default().default_form())),
            NodeCommand::Configuration => self.node_configuration(user, node),
            NodeCommand::Configure(form) => self.configure_node(user, node, form.as_deref(), outbox),
            NodeCommand::Delete => self.delete_node(user, node, outbox),
            NodeCommand::Purge => self.purge_node(user, node, outbox),
            NodeCommand::Affiliations => self.node_affiliations(user, node),
            NodeCommand::Affiliate(list) => self.affiliate(user, node, &list, outbox),
            NodeCommand::Subscribers => self.node_subscribers(user, node),
            NodeCommand::ChangeSubscribers(list) => self.change_subscribers(user, node, &list, outbox),
            NodeCommand::OwnAffiliations => self.own_affiliations(user, node),
            NodeCommand::OwnSubscriptions => self.own_subscriptions(user, node),
            NodeCommand::Subscribe { jid, has_options } => {
                self.subscribe_node(user, node, &jid, has_options, outbox)
            }
            NodeCommand::Unsubscribe { jid } => self.unsubscribe_node(user, node, &jid),
            NodeCommand::Publish { item, has_options } => {
                self.publish_item(user, node, item, has_options, outbox)
            }
            NodeCommand::Retract { id, tells } => self.retract_item(user, node, &id, tells, outbox),
            NodeCommand::Items { ids, max } => self.node_items(user, node, &ids, max),
            NodeCommand::Describe => self.describe_node(user, node),
            NodeCommand::List => self.list_nodes(user, node),
        }
    }

    fn node(&self, name: &str) -> Result<&Node, NodeError> {
        self.nodes.get(name).ok_or(NodeError::Absent)
    }

    fn node_mut(&mut self, name: &str) -> Result<&mut Node, NodeError> {
        self.nodes.get_mut(name).ok_or(NodeError::Absent)
    }

    /// The service's address.
    pub(super) fn pubsub(&self) -> String {
        format!("pubsub.{}", self.domain)
    }

    /// Removes an account's nodes, and its affiliations and subscriptions at other nodes.
    pub(super) fn remove_nodes(&mut self, user: &str, outbox: &mut Outbox<S>) {
        let bare = self.bare(user);
        let made = self.nodes.iter().filter(|(_, node)| *node.creator == *user);
        let made: Vec<Box<str>> = made.map(|(name, _)| name.clone()).collect();
        for name in made {
            self.end_node(&name, outbox);
        }
        let mut owned = Vec::new();
        for (name, node) in &mut self.nodes {
            if node.affiliations.remove(&*bare) == Some(Affiliation::Owner) {
                owned.push(name.clone());
            }
            node.subscribers.retain(|it| it.bare() != bare);
            for item in node.items.iter_mut().filter(|item| *item.publisher == *bare) {
                item.publisher = "".into();
            }
        }
        owned.iter().for_each(|name| self.check_subscribers(name, outbox));
    }
}

#[cfg(test)]
mod tests;
