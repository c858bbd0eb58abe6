//! Authorization for nodes (XEP-0060 §4.1, §4.5): by affiliation first, then by the node's access and publish
//! models.

use super::form::{Access, Publishers};
use super::{Accounts, Affiliation, Node, NodeError, Outbox, Refused};
use crate::xmpp::error::StanzaError;

const FORBIDDEN: Refused = (StanzaError::Forbidden, "");

/// Whether a subscription needs approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    Open,
    /// An owner's approval.
    Pending,
}

impl<S: Copy + Eq> Accounts<S> {
    /// A node, if the account owns it (§8).
    pub(super) fn owned(&self, user: &str, name: &str) -> Result<&Node, NodeError> {
        let node = self.node(name)?;
        match node.affiliation(&self.bare(user)) {
            Affiliation::Owner => Ok(node),
            _ => Err(FORBIDDEN.into()),
        }
    }

    /// Whether an account may subscribe (§6.1.3).
    pub(super) fn admission(&self, bare: &str, node: &Node) -> Result<Admission, Refused> {
        match node.affiliation(bare) {
            Affiliation::Outcast => return Err(FORBIDDEN), // §6.1.3.8
            Affiliation::Member | Affiliation::Publisher | Affiliation::Owner => return Ok(Admission::Open),
            Affiliation::None => {}
        }
        match node.config.access {
            Access::Open => Ok(Admission::Open),
            Access::Authorize => Ok(Admission::Pending),
            Access::Whitelist => Err((StanzaError::NotAllowed, "closed-node")),
            Access::Presence if self.owners(node).any(|owner| self.is_visible_to(&owner, bare)) => {
                Ok(Admission::Open)
            }
            Access::Presence => Err((StanzaError::NotAuthorized, "presence-subscription-required")),
            Access::Roster if self.owners(node).any(|owner| self.is_in_group(&owner, bare, node)) => {
                Ok(Admission::Open)
            }
            Access::Roster => Err((StanzaError::NotAuthorized, "not-in-roster-group")),
        }
    }

    /// Checks that an account may read the items (§6.5.9).
    pub(super) fn check_reader(&self, bare: &str, node: &Node) -> Result<(), Refused> {
        match self.admission(bare, node)? {
            Admission::Open => Ok(()),
            Admission::Pending if node.is_subscribed(bare) => Ok(()),
            Admission::Pending => Err((StanzaError::NotAuthorized, "not-subscribed")),
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

    /// Ends subscriptions to an account's nodes that its changed roster no longer permits.
    pub(in crate::xmpp::accounts) fn check_owned_nodes(&mut self, user: &str, outbox: &mut Outbox<S>) {
        let bare = self.bare(user);
        let is_concerned = |node: &Node| {
            matches!(node.config.access, Access::Presence | Access::Roster)
                && node.affiliation(&bare) == Affiliation::Owner
        };
        let concerned = self.nodes.iter().filter(|(_, node)| is_concerned(node));
        let names: Vec<Box<str>> = concerned.map(|(name, _)| name.clone()).collect();
        names.iter().for_each(|name| self.check_subscribers(name, outbox));
    }

    /// Account names of the owners.
    fn owners<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = String> + 'a {
        let owners = node.affiliations.iter().filter(|(_, known)| **known == Affiliation::Owner);
        owners.filter_map(|(bare, _)| self.name_of(bare))
    }

    fn is_in_group(&self, owner: &str, bare: &str, node: &Node) -> bool {
        let item = self.accounts.get(owner).and_then(|account| account.roster.get(bare));
        item.is_some_and(|item| item.groups.iter().any(|group| node.config.groups.contains(group)))
    }
}
