//! Nodes that accounts make at the PubSub service (XEP-0060): who owns, publishes to and subscribes to them, their items
//! and their configuration. In memory, like accounts. A node belongs to the account that made it, and ends with it.
//!
//! `request` is what a client may ask, `form` the configuration, `access` who may do what, `owner` what owners do, `item`
//! publishing, `event` what subscribers are told, `discovery` what is told about a node.
//!
//! Invariants: a node has an owner, one of them the account that made it. A subscription is its subscriber's own wish:
//! an owner may approve it and end it, not make it, so nobody gets messages that they did not ask for.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use noroshi_types::limits;

use super::{Accounts, Told};
use crate::xmpp::error::StanzaError;
use crate::xmpp::jid::bare_part;

mod access;
mod discovery;
mod event;
mod form;
mod item;
mod owner;
mod request;
mod subscriber;

use form::NodeConfig;
pub use request::NodeRequest;

/// Of all accounts.
const NODES_MAX: usize = 1_000;
/// Of one account: what it made.
const OWN_NODES_MAX: usize = 20;
/// What the items of an account's nodes hold: 64 MiB of [`super::ACCOUNTS_MAX`].
const OWN_BYTES_MAX: usize = 64 << 10;
pub(super) const NAME_BYTES_MAX: usize = 255;
const AFFILIATIONS_MAX: usize = 100;
/// Owners of a node. Each owner receives every approval request, and an account can be made an owner without its consent.
const OWNERS_MAX: usize = 10;
const SUBSCRIBERS_MAX: usize = 100;
/// Of an address that subscribes, escaped: one answer lists all subscribers of a node.
const ADDRESS_BYTES_MAX: usize = 512;
/// Of a list of nodes, affiliations or subscriptions in one answer: other accounts decide how long these are.
const LIST_BYTES_MAX: usize = limits::SEND_QUEUE_BYTES / 2;
/// Addresses of one account that subscribe to a node.
const ADDRESSES_MAX: usize = super::RESOURCES_MAX;

/// A condition, and what XEP-0060 adds to it.
pub type Refused = (StanzaError, &'static str);

/// Why a request is not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeError {
    /// No account made a node of this name.
    Absent,
    Refused(StanzaError, &'static str),
}

impl From<Refused> for NodeError {
    fn from((error, detail): Refused) -> Self {
        NodeError::Refused(error, detail)
    }
}

/// The only child of the answer, if it has one.
pub type NodeAnswer = Result<Option<Bytes>, NodeError>;

/// XEP-0060 §4.1, without those that are not offered.
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
    /// The account that made it.
    maker: Box<str>,
    config: NodeConfig,
    /// By bare address; [`Affiliation::None`] is not kept.
    affiliations: BTreeMap<Box<str>, Affiliation>,
    subscribers: Vec<Subscriber>,
    /// Oldest first.
    items: VecDeque<Item>,
}

#[derive(Debug)]
struct Subscriber {
    /// Bare, or of one resource.
    jid: Box<str>,
    standing: Standing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Subscribed,
    /// An owner has to approve it.
    Pending,
    /// The subscriber withdrew it before an owner answered. The node keeps it, so that it does not ask the owners again.
    Withdrawn,
}

impl Subscriber {
    fn bare(&self) -> &str {
        bare_part(&self.jid)
    }

    fn is_subscribed(&self) -> bool {
        self.standing == Standing::Subscribed
    }

    /// None: the subscriber withdrew it.
    fn state(&self) -> Option<&'static str> {
        match self.standing {
            Standing::Subscribed => Some("subscribed"),
            Standing::Pending => Some("pending"),
            Standing::Withdrawn => None,
        }
    }
}

/// Something that was published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    id: Box<str>,
    /// Its bare address; empty once the account was removed.
    publisher: Box<str>,
    /// Empty where it has none.
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
    /// What an account asks of the service.
    pub fn ask_node(&mut self, user: &str, request: NodeRequest, told: &mut Told<S>) -> NodeAnswer {
        match request {
            NodeRequest::Create { node, form } => self.create_node(user, node, &form),
            NodeRequest::Defaults => Ok(Some(NodeConfig::default().default_form())),
            NodeRequest::Configuration { node } => self.node_configuration(user, &node),
            NodeRequest::Configure { node, form } => self.configure_node(user, &node, form.as_deref(), told),
            NodeRequest::Delete { node } => self.delete_node(user, &node, told),
            NodeRequest::Purge { node } => self.purge_node(user, &node, told),
            NodeRequest::Affiliations { node } => self.node_affiliations(user, &node),
            NodeRequest::Affiliate { node, list } => self.affiliate(user, &node, &list, told),
            NodeRequest::Subscribers { node } => self.node_subscribers(user, &node),
            NodeRequest::ChangeSubscribers { node, list } => {
                self.change_subscribers(user, &node, &list, told)
            }
            NodeRequest::OwnAffiliations { node } => self.own_affiliations(user, node.as_deref()),
            NodeRequest::OwnSubscriptions { node } => self.own_subscriptions(user, &node),
            NodeRequest::Subscribe { node, jid, has_options } => {
                self.subscribe_node(user, &node, &jid, has_options, told)
            }
            NodeRequest::Unsubscribe { node, jid } => self.unsubscribe_node(user, &node, &jid),
            NodeRequest::Publish { node, item, has_options } => {
                self.publish_item(user, &node, item, has_options, told)
            }
            NodeRequest::Retract { node, id, tells } => self.retract_item(user, &node, &id, tells, told),
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

    /// The service's own address.
    pub(super) fn pubsub(&self) -> String {
        format!("pubsub.{}", self.domain)
    }

    /// The account goes: so do the nodes that it made, and what it was to others.
    pub(super) fn forget_nodes(&mut self, user: &str, told: &mut Told<S>) {
        let bare = self.bare(user);
        let made = self.nodes.iter().filter(|(_, node)| *node.maker == *user);
        let made: Vec<Box<str>> = made.map(|(name, _)| name.clone()).collect();
        for name in made {
            self.end_node(&name, told);
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
        owned.iter().for_each(|name| self.check_subscribers(name, told));
    }
}

#[cfg(test)]
mod tests;
