//! What subscribers do (XEP-0060 §6.1, §6.2, §5.6, §5.7).

use bytes::Bytes;

use super::access::Entry;
use super::{
    ADDRESS_BYTES_MAX, ADDRESSES_MAX, Accounts, LIST_BYTES_MAX, Node, NodeAnswer, NodeError, Refused,
    SUBSCRIBERS_MAX, Standing, Subscriber, Told,
};
use crate::xmpp::error::StanzaError;
use crate::xmpp::jid::bare_part;
use crate::xmpp::namespace as ns;
use crate::xmpp::xml::write::{push_empty, push_end, push_start, written_len};

const FORBIDDEN: Refused = (StanzaError::Forbidden, "");

/// An answer in the namespace that everybody uses.
pub(super) fn content(build: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let mut out = Vec::new();
    push_start(&mut out, "pubsub", &[("xmlns", ns::PUBSUB)]);
    build(&mut out);
    push_end(&mut out, "pubsub");
    out.into()
}

pub(super) fn push_subscription(out: &mut Vec<u8>, node: &str, jid: &str, state: &str) {
    push_empty(out, "subscription", &[("node", node), ("jid", jid), ("subscription", state)]);
}

/// The subscriptions of one account.
fn push_own(out: &mut Vec<u8>, name: &str, node: &Node, bare: &str) {
    let own = node.subscribers.iter().filter(|it| it.bare() == bare);
    for (jid, state) in own.filter_map(|it| Some((&*it.jid, it.state()?))) {
        push_subscription(out, name, jid, state);
    }
}

impl<S: Copy + Eq> Accounts<S> {
    pub(super) fn subscribe_node(
        &mut self,
        user: &str,
        name: &str,
        jid: &str,
        has_options: bool,
        told: &mut Told<S>,
    ) -> NodeAnswer {
        let bare = self.bare(user);
        let node = self.node(name)?;
        if *bare_part(jid) != *bare {
            return Err((StanzaError::BadRequest, "invalid-jid").into()); // §6.1.3.1
        }
        if has_options {
            // §6.3.7
            return Err((StanzaError::FeatureNotImplemented, "unsupported subscription-options").into());
        }
        if written_len(jid) > ADDRESS_BYTES_MAX {
            return Err((StanzaError::NotAcceptable, "").into());
        }
        let entry = self.entry(&bare, node)?;
        let answer = |state: &str| Ok(Some(content(|out| push_subscription(out, name, jid, state))));
        let known = node.subscribers.iter().position(|it| *it.jid == *jid);
        match known.map(|at| (at, node.subscribers[at].standing)) {
            None => {}
            Some((_, Standing::Subscribed)) => return answer("subscribed"), // §6.1.6
            Some((_, Standing::Pending)) => {
                return Err((StanzaError::NotAuthorized, "pending-subscription").into()); // §6.1.3.7
            }
            Some((at, Standing::Withdrawn)) => {
                self.node_mut(name)?.subscribers[at].standing = Standing::Pending;
                return answer("pending");
            }
        }
        let own = node.subscribers.iter().filter(|it| it.bare() == bare).count();
        if node.subscribers.len() >= SUBSCRIBERS_MAX || own >= ADDRESSES_MAX {
            return Err((StanzaError::PolicyViolation, "too-many-subscriptions").into()); // §6.1.3.9
        }
        let standing = match entry {
            Entry::Pending => Standing::Pending,
            Entry::Open => Standing::Subscribed,
        };
        self.node_mut(name)?.subscribers.push(Subscriber { jid: jid.into(), standing });
        match entry {
            Entry::Pending => {
                self.ask_owners(name, jid, told);
                answer("pending")
            }
            Entry::Open => {
                self.tell_last_item(name, jid, told);
                answer("subscribed")
            }
        }
    }

    pub(super) fn unsubscribe_node(&mut self, user: &str, name: &str, jid: &str) -> NodeAnswer {
        let bare = self.bare(user);
        let node = self.node_mut(name)?;
        if *bare_part(jid) != *bare {
            return Err(FORBIDDEN.into()); // §6.2.3.3
        }
        let at = node.subscribers.iter().position(|it| *it.jid == *jid && it.state().is_some());
        let at = at.ok_or(NodeError::Refused(StanzaError::UnexpectedRequest, "not-subscribed"))?;
        match node.subscribers[at].standing {
            Standing::Pending => node.subscribers[at].standing = Standing::Withdrawn,
            Standing::Subscribed | Standing::Withdrawn => drop(node.subscribers.remove(at)),
        }
        Ok(None)
    }

    pub(super) fn own_subscriptions(&self, user: &str, name: &str) -> NodeAnswer {
        let bare = self.bare(user);
        let node = self.node(name)?;
        Ok(Some(content(|out| {
            push_start(out, "subscriptions", &[("node", name)]);
            push_own(out, name, node, &bare);
            push_end(out, "subscriptions");
        })))
    }

    /// Elements for all nodes that an account subscribes to; its topics are others.
    pub fn subscriptions(&self, user: &str) -> Bytes {
        let (bare, mut out) = (self.bare(user), Vec::new());
        for (name, node) in &self.nodes {
            if out.len() > LIST_BYTES_MAX {
                break;
            }
            push_own(&mut out, name, node, &bare);
        }
        out.into()
    }

    pub(super) fn own_affiliations(&self, user: &str, name: Option<&str>) -> NodeAnswer {
        let bare = self.bare(user);
        if let Some(name) = name {
            self.node(name)?;
        }
        Ok(Some(content(|out| {
            push_start(out, "affiliations", &[("node", name.unwrap_or_default())]);
            let nodes = self.nodes.iter().filter(|(known, _)| name.is_none_or(|name| *name == ***known));
            for (name, node) in nodes {
                if out.len() > LIST_BYTES_MAX {
                    break;
                }
                if let Some(affiliation) = node.affiliations.get(&*bare) {
                    let attributes = [("node", &**name), ("affiliation", affiliation.as_str())];
                    push_empty(out, "affiliation", &attributes);
                }
            }
            push_end(out, "affiliations");
        })))
    }
}
