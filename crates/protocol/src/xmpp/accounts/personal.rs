//! Personal events of accounts (XEP-0163): the last item of each node, sent to the account's resources and to
//! contacts that receive its presence, if their clients want it. A client is asked for its capabilities
//! whenever its presence announces new ones (XEP-0115 §6).

use bytes::Bytes;
use noroshi_types::limits;

use super::{Accounts, Outbox, Relayed, Resource};
use crate::xmpp::error::{Refusal, Refused, StanzaError};
use crate::xmpp::namespace as ns;
use crate::xmpp::xml::Element;
use crate::xmpp::xml::write::{content_of, element, push_empty, push_with, written_len};

/// The id of requests that ask clients for their capabilities.
pub(in crate::xmpp) const CAPABILITIES: &str = "capabilities";
/// Limit of nodes per account.
const NODES_MAX: usize = 20;
/// Limit of an item, escaped, with its id and node name.
const ITEM_BYTES_MAX: usize = 10_000;
/// Limit of nodes per resource whose events it wants.
const WANTED_MAX: usize = 100;
/// Limit of the last items that are sent at once; the client may request the others.
const LAST_ITEMS_BYTES_MAX: usize = limits::SEND_QUEUE_BYTES / 2;

/// The last item of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersonalItem {
    pub(super) node: Box<str>,
    id: Box<str>,
    content: Bytes,
}

impl PersonalItem {
    /// The error contains the XEP-0060 detail.
    pub(in crate::xmpp) fn parse(node: &str, item: Option<Element<'_>>) -> Result<Self, Refused> {
        let item = item.filter(|item| item.children().next().is_some());
        let item = item.ok_or((StanzaError::BadRequest, "item-required"))?;
        // XEP-0060 §7.1.2: the service names an unnamed item.
        let id = item.attribute("id").filter(|id| !id.is_empty()).unwrap_or("current");
        let left = ITEM_BYTES_MAX.checked_sub(written_len(node) + written_len(id));
        // An event has another default namespace than the request.
        let content = left.and_then(|left| content_of(item, None, left, |_| false));
        let content = content.ok_or((StanzaError::NotAcceptable, "payload-too-big"))?; // §7.1.3.4
        Ok(Self { node: node.into(), id: id.into(), content: content.into() })
    }

    fn push(&self, out: &mut Vec<u8>) {
        push_with(out, "items", &[("node", &*self.node)], |out| {
            push_with(out, "item", &[("id", &*self.id)], |out| out.extend_from_slice(&self.content));
        });
    }
}

impl<S: Copy + Eq> Accounts<S> {
    /// Replaces the node's last item and notifies interested resources. Returns the content of the response.
    pub fn publish(
        &mut self,
        user: &str,
        item: PersonalItem,
        outbox: &mut Outbox<S>,
    ) -> Result<Bytes, Refusal> {
        let account = self.accounts.get_mut(user).ok_or(Refusal::Forbidden)?;
        let nodes = &mut account.nodes;
        let is_full = nodes.len() >= NODES_MAX;
        match nodes.iter_mut().find(|known| known.node == item.node) {
            Some(known) => *known = item.clone(),
            None if is_full => return Err(Refusal::Overloaded),
            None => nodes.push(item.clone()),
        }
        self.send_item(user, user, &item, outbox);
        let contacts = self.accounts[user].roster.iter().filter(|(_, known)| known.from);
        for name in contacts.filter_map(|(contact, _)| self.name_of(contact)) {
            self.send_item(user, &name, &item, outbox);
        }
        Ok(element("pubsub", &[("xmlns", ns::PUBSUB)], |out| {
            let id = [("id", &*item.id)];
            push_with(out, "publish", &[("node", &*item.node)], |out| push_empty(out, "item", &id));
        }))
    }

    /// The item of a node, for those who receive its owner's presence (XEP-0163 §6).
    pub fn items(&self, user: &str, owner: &str, node: &str) -> Result<Bytes, Refusal> {
        let name = self.name_of(owner).filter(|_| self.knows(user, owner)).ok_or(Refusal::Forbidden)?;
        let nodes = self.accounts.get(&*name).map(|account| account.nodes.iter());
        let item = nodes.into_iter().flatten().find(|item| *item.node == *node).ok_or(Refusal::NotFound)?;
        Ok(element("pubsub", &[("xmlns", ns::PUBSUB)], |out| item.push(out)))
    }

    /// Asks a client for its capabilities if its presence announces a change.
    pub(super) fn ask_capabilities(
        &mut self,
        user: &str,
        session: S,
        presence: &Relayed,
        outbox: &mut Outbox<S>,
    ) {
        let Some(to) = self.full(user, session) else { return };
        let domain = self.domain.clone();
        let Some(resource) = self.session_mut(user, session) else { return };
        if resource.capabilities == presence.capabilities {
            return;
        }
        resource.capabilities.clone_from(&presence.capabilities);
        if let Some(node) = &presence.capabilities {
            let attributes = [
                ("xmlns", ns::CLIENT),
                ("type", "get"),
                ("id", CAPABILITIES),
                ("from", &*domain),
                ("to", &*to),
            ];
            let query = [("xmlns", ns::DISCO_INFO), ("node", &**node)];
            outbox.push((session, element("iq", &attributes, |out| push_empty(out, "query", &query))));
        }
    }

    /// Records the nodes whose events a client wants, and sends the last items of new ones.
    pub fn want(&mut self, user: &str, session: S, mut interests: Vec<Box<str>>, outbox: &mut Outbox<S>) {
        interests.truncate(WANTED_MAX);
        let Some(resource) = self.session_mut(user, session) else { return };
        let before = std::mem::replace(&mut resource.interests, interests.clone());
        interests.retain(|node| !before.contains(node));
        let Some(account) = self.accounts.get(user) else { return };
        let contacts = account.roster.iter().filter(|(_, item)| item.to);
        let owners = contacts.filter_map(|(contact, _)| self.name_of(contact)).chain([user.to_owned()]);
        let mut left = LAST_ITEMS_BYTES_MAX;
        for owner in owners {
            let nodes = self.accounts.get(&*owner).map(|account| account.nodes.iter());
            for item in nodes.into_iter().flatten().filter(|item| interests.contains(&item.node)) {
                let event = self.event(&owner, user, item);
                match left.checked_sub(event.len()) {
                    Some(rest) => left = rest,
                    None => return,
                }
                outbox.push((session, event));
            }
        }
    }

    fn send_item(&self, owner: &str, user: &str, item: &PersonalItem, outbox: &mut Outbox<S>) {
        let wants = |it: &&Resource<S>| it.interests.contains(&item.node);
        let sessions = self.available(user).filter(wants).filter_map(|resource| resource.session);
        outbox.extend(sessions.map(|session| (session, self.event(owner, user, item))));
    }

    fn event(&self, owner: &str, user: &str, item: &PersonalItem) -> Bytes {
        let (from, to) = (self.bare(owner), self.bare(user));
        let attributes =
            [("xmlns", ns::CLIENT), ("from", &*from), ("to", &*to), ("type", "headline"), ("id", &*item.id)];
        element("message", &attributes, |out| {
            push_with(out, "event", &[("xmlns", ns::PUBSUB_EVENT)], |out| item.push(out));
        })
    }
}
