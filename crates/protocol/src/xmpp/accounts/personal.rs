//! What accounts publish of themselves (XEP-0163): of each node the last item, told to the account's resources and
//! to the contacts that get its presence, where their clients want it. What a client wants is asked of it
//! whenever its presence says that it can something else (XEP-0115 §6).

use bytes::Bytes;
use noroshi_types::limits;

use super::{Accounts, Relayed, Resource, Told};
use crate::xmpp::action::Refusal;
use crate::xmpp::error::StanzaError;
use crate::xmpp::namespace as ns;
use crate::xmpp::xml::Element;
use crate::xmpp::xml::write::{content_of, push_empty, push_end, push_start, written_len};

/// Of the requests that ask clients what they can.
pub(in crate::xmpp) const CAPABILITIES: &str = "capabilities";
/// Nodes of one account.
const NODES_MAX: usize = 20;
/// Of an item, escaped, with its id and the name of its node.
const ITEM_BYTES_MAX: usize = 10_000;
/// Nodes that one resource wants to hear of.
const WANTED_MAX: usize = 100;
/// Of the last items that it is told at once; it may ask for the others.
const LAST_ITEMS_BYTES_MAX: usize = limits::SEND_QUEUE_BYTES / 2;

/// The last item of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersonalItem {
    pub(super) node: Box<str>,
    id: Box<str>,
    content: Bytes,
}

impl PersonalItem {
    /// The error has what XEP-0060 adds to its condition.
    pub(in crate::xmpp) fn parse(
        node: &str,
        item: Option<Element<'_>>,
    ) -> Result<Self, (StanzaError, &'static str)> {
        let item = item.filter(|item| item.children().next().is_some());
        let item = item.ok_or((StanzaError::BadRequest, "item-required"))?;
        // XEP-0060 §7.1.2: the service names what has no name.
        let id = item.attribute("id").filter(|id| !id.is_empty()).unwrap_or("current");
        let left = ITEM_BYTES_MAX.checked_sub(written_len(node) + written_len(id));
        // An event has another default namespace than the request.
        let content = left.and_then(|left| content_of(item, None, left, |_| false));
        let content = content.ok_or((StanzaError::NotAcceptable, "payload-too-big"))?; // §7.1.3.4
        Ok(Self { node: node.into(), id: id.into(), content: content.into() })
    }

    fn push(&self, out: &mut Vec<u8>) {
        push_start(out, "items", &[("node", &*self.node)]);
        push_start(out, "item", &[("id", &*self.id)]);
        out.extend_from_slice(&self.content);
        push_end(out, "item");
        push_end(out, "items");
    }
}

impl<S: Copy + Eq> Accounts<S> {
    /// Keeps an item in place of the node's last one, and tells who wants it. The content of the answer.
    pub fn publish(&mut self, user: &str, item: PersonalItem, told: &mut Told<S>) -> Result<Bytes, Refusal> {
        let account = self.accounts.get_mut(user).ok_or(Refusal::Forbidden)?;
        let nodes = &mut account.nodes;
        let is_full = nodes.len() >= NODES_MAX;
        match nodes.iter_mut().find(|known| known.node == item.node) {
            Some(known) => *known = item.clone(),
            None if is_full => return Err(Refusal::Overloaded),
            None => nodes.push(item.clone()),
        }
        self.tell_item(user, user, &item, told);
        let contacts = self.accounts[user].roster.iter().filter(|(_, known)| known.from);
        for name in contacts.filter_map(|(contact, _)| self.name_of(contact)) {
            self.tell_item(user, &name, &item, told);
        }
        let mut out = Vec::new();
        push_start(&mut out, "pubsub", &[("xmlns", ns::PUBSUB)]);
        push_start(&mut out, "publish", &[("node", &*item.node)]);
        push_empty(&mut out, "item", &[("id", &*item.id)]);
        push_end(&mut out, "publish");
        push_end(&mut out, "pubsub");
        Ok(out.into())
    }

    /// What is kept of a node, for those who get its owner's presence (XEP-0163 §6).
    pub fn items(&self, user: &str, owner: &str, node: &str) -> Result<Bytes, Refusal> {
        let name = self.name_of(owner).filter(|_| self.knows(user, owner)).ok_or(Refusal::Forbidden)?;
        let nodes = self.accounts.get(&*name).map(|account| account.nodes.iter());
        let item = nodes.into_iter().flatten().find(|item| *item.node == *node).ok_or(Refusal::NotFound)?;
        let mut out = Vec::new();
        push_start(&mut out, "pubsub", &[("xmlns", ns::PUBSUB)]);
        item.push(&mut out);
        push_end(&mut out, "pubsub");
        Ok(out.into())
    }

    /// Asks what a client wants, if its presence says that this may have changed.
    pub(super) fn ask_capabilities(
        &mut self,
        user: &str,
        session: S,
        presence: &Relayed,
        told: &mut Told<S>,
    ) {
        let Some(to) = self.full(user, session) else { return };
        let domain = self.domain.clone();
        let Some(resource) = self.session_mut(user, session) else { return };
        if resource.capabilities == presence.capabilities {
            return;
        }
        resource.capabilities.clone_from(&presence.capabilities);
        if let Some(node) = &presence.capabilities {
            let mut out = Vec::new();
            let attributes = [
                ("xmlns", ns::CLIENT),
                ("type", "get"),
                ("id", CAPABILITIES),
                ("from", &*domain),
                ("to", &*to),
            ];
            push_start(&mut out, "iq", &attributes);
            push_empty(&mut out, "query", &[("xmlns", ns::DISCO_INFO), ("node", &**node)]);
            push_end(&mut out, "iq");
            told.push((session, out.into()));
        }
    }

    /// A client said which nodes it wants to hear of: of those it did not hear of it gets the last items.
    pub fn want(&mut self, user: &str, session: S, mut wanted: Vec<Box<str>>, told: &mut Told<S>) {
        wanted.truncate(WANTED_MAX);
        let Some(resource) = self.session_mut(user, session) else { return };
        let before = std::mem::replace(&mut resource.wanted, wanted.clone());
        wanted.retain(|node| !before.contains(node));
        let Some(account) = self.accounts.get(user) else { return };
        let contacts = account.roster.iter().filter(|(_, item)| item.to);
        let owners = contacts.filter_map(|(contact, _)| self.name_of(contact)).chain([user.to_owned()]);
        let mut left = LAST_ITEMS_BYTES_MAX;
        for owner in owners {
            let nodes = self.accounts.get(&*owner).map(|account| account.nodes.iter());
            for item in nodes.into_iter().flatten().filter(|item| wanted.contains(&item.node)) {
                let event = self.event(&owner, user, item);
                match left.checked_sub(event.len()) {
                    Some(rest) => left = rest,
                    None => return,
                }
                told.push((session, event));
            }
        }
    }

    fn tell_item(&self, owner: &str, user: &str, item: &PersonalItem, told: &mut Told<S>) {
        let wants = |it: &&Resource<S>| it.wanted.contains(&item.node);
        let sessions = self.available(user).filter(wants).filter_map(|resource| resource.session);
        told.extend(sessions.map(|session| (session, self.event(owner, user, item))));
    }

    fn event(&self, owner: &str, user: &str, item: &PersonalItem) -> Bytes {
        let mut out = Vec::new();
        let (from, to) = (self.bare(owner), self.bare(user));
        let attributes =
            [("xmlns", ns::CLIENT), ("from", &*from), ("to", &*to), ("type", "headline"), ("id", &*item.id)];
        push_start(&mut out, "message", &attributes);
        push_start(&mut out, "event", &[("xmlns", ns::PUBSUB_EVENT)]);
        item.push(&mut out);
        push_end(&mut out, "event");
        push_end(&mut out, "message");
        out.into()
    }
}
