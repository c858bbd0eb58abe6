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

mod access;
mod content;
mod discovery;
mod event;
mod form;
mod item;
mod owner;
mod request;
mod subscriber;

use form::NodeConfig;
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

/// XEP-0060 §4.1, without unsupported affiliations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Affiliation {
    Outcast,
    None,
    Member,
    Publisher,
    Owner,
}

impl Affiliation {
    const ALL: [Self; 5] = [Self::Outcast, Self::None, Self::Member, Self::Publisher, Self::Owner];

    fn as_str(self) -> &'static str {
        match self {
            Affiliation::Outcast => "outcast",
            Affiliation::None => "none",
            Affiliation::Member => "member",
            Affiliation::Publisher => "publisher",
            Affiliation::Owner => "owner",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == text)
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
        match request {
            NodeRequest::Create { node, form } => self.create_node(user, node, &form),
            NodeRequest::Defaults => Ok(Some(NodeConfig::default().default_form())),
            NodeRequest::Configuration { node } => self.node_configuration(user, &node),
            NodeRequest::Configure { node, form } => {
                self.configure_node(user, &node, form.as_deref(), outbox)
            }
            NodeRequest::Delete { node } => self.delete_node(user, &node, outbox),
            NodeRequest::Purge { node } => self.purge_node(user, &node, outbox),
            NodeRequest::Affiliations { node } => self.node_affiliations(user, &node),
            NodeRequest::Affiliate { node, list } => self.affiliate(user, &node, &list, outbox),
            NodeRequest::Subscribers { node } => self.node_subscribers(user, &node),
            NodeRequest::ChangeSubscribers { node, list } => {
                self.change_subscribers(user, &node, &list, outbox)
            }
            NodeRequest::OwnAffiliations { node } => self.own_affiliations(user, node.as_deref()),
            NodeRequest::OwnSubscriptions { node } => self.own_subscriptions(user, &node),
            NodeRequest::Subscribe { node, jid, has_options } => {
                self.subscribe_node(user, &node, &jid, has_options, outbox)
            }
            NodeRequest::Unsubscribe { node, jid } => self.unsubscribe_node(user, &node, &jid),
            NodeRequest::Publish { node, item, has_options } => {
                self.publish_item(user, &node, item, has_options, outbox)
            }
            NodeRequest::Retract { node, id, tells } => self.retract_item(user, &node, &id, tells, outbox),
            NodeRequest::Items { node, ids, max } => self.node_items(user, &node, &ids, max),
            NodeRequest::Describe { node } => self.describe_node(user, &node),
            NodeRequest::List { node } => self.list_nodes(user, node.as_deref()),
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
