//! Who may do what with a node (XEP-0060 §4.1, §4.5): by affiliation first, then by the node's access model and publish
//! model.

use super::form::{Access, Publishers};
use super::{Accounts, Affiliation, Node, NodeError, Refused, Told};
use crate::xmpp::error::StanzaError;

const FORBIDDEN: Refused = (StanzaError::Forbidden, "");

/// What a subscription needs yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    Open,
    /// An owner's approval.
    Pending,
}

impl<S: Copy + Eq> Accounts<S> {
    /// A node that the account owns (§8).
    pub(super) fn owned(&self, user: &str, name: &str) -> Result<&Node, NodeError> {
        let node = self.node(name)?;
        match node.affiliation(&self.bare(user)) {
            Affiliation::Owner => Ok(node),
            _ => Err(FORBIDDEN.into()),
        }
    }

    /// Whether an account may subscribe (§6.1.3).
    pub(super) fn entry(&self, bare: &str, node: &Node) -> Result<Entry, Refused> {
        match node.affiliation(bare) {
            Affiliation::Outcast => return Err(FORBIDDEN), // §6.1.3.8
            Affiliation::Member | Affiliation::Publisher | Affiliation::Owner => return Ok(Entry::Open),
            Affiliation::None => {}
        }
        match node.config.access {
            Access::Open => Ok(Entry::Open),
            Access::Authorize => Ok(Entry::Pending),
            Access::Whitelist => Err((StanzaError::NotAllowed, "closed-node")),
            Access::Presence if self.owners(node).any(|owner| self.is_heard_by(&owner, bare)) => {
                Ok(Entry::Open)
            }
            Access::Presence => Err((StanzaError::NotAuthorized, "presence-subscription-required")),
            Access::Roster if self.owners(node).any(|owner| self.is_in_group(&owner, bare, node)) => {
                Ok(Entry::Open)
            }
            Access::Roster => Err((StanzaError::NotAuthorized, "not-in-roster-group")),
        }
    }

    /// Whether an account may read the items (§6.5.9).
    pub(super) fn check_reader(&self, bare: &str, node: &Node) -> Result<(), Refused> {
        match self.entry(bare, node)? {
            Entry::Open => Ok(()),
            Entry::Pending if node.is_subscribed(bare) => Ok(()),
            Entry::Pending => Err((StanzaError::NotAuthorized, "not-subscribed")),
        }
    }

    /// §7.1.3.1
    pub(super) fn check_publisher(&self, bare: &str, node: &Node) -> Result<(), Refused> {
        let may = match node.affiliation(bare) {
            Affiliation::Outcast => false,
            Affiliation::Owner | Affiliation::Publisher => true,
            Affiliation::Member | Affiliation::None => match node.config.publishers {
                Publishers::Affiliated => false,
                Publishers::Subscribers => node.is_subscribed(bare),
                Publishers::Open => true,
            },
        };
        may.then_some(()).ok_or(FORBIDDEN)
    }

    /// The roster of an account changed: ends subscriptions to its nodes that it no longer allows.
    pub(in crate::xmpp::accounts) fn check_owned_nodes(&mut self, user: &str, told: &mut Told<S>) {
        let bare = self.bare(user);
        let is_concerned = |node: &Node| {
            matches!(node.config.access, Access::Presence | Access::Roster)
                && node.affiliation(&bare) == Affiliation::Owner
        };
        let concerned = self.nodes.iter().filter(|(_, node)| is_concerned(node));
        let names: Vec<Box<str>> = concerned.map(|(name, _)| name.clone()).collect();
        names.iter().for_each(|name| self.check_subscribers(name, told));
    }

    /// Names of accounts.
    fn owners<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = String> + 'a {
        let owners = node.affiliations.iter().filter(|(_, known)| **known == Affiliation::Owner);
        owners.filter_map(|(bare, _)| self.name_of(bare))
    }

    fn is_in_group(&self, owner: &str, bare: &str, node: &Node) -> bool {
        let item = self.accounts.get(owner).and_then(|account| account.roster.get(bare));
        item.is_some_and(|item| item.groups.iter().any(|group| node.config.groups.contains(group)))
    }
}
