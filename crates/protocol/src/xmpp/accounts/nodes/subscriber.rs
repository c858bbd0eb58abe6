//! Requests of subscribers (XEP-0060 §6.1, §6.2, §5.6, §5.7).

use bytes::Bytes;

use super::access::Admission;
use super::{
    ADDRESS_BYTES_MAX, ADDRESSES_MAX, Accounts, LIST_BYTES_MAX, Node, NodeAnswer, NodeError, Outbox, Refused,
    SUBSCRIBERS_MAX, Subscriber, SubscriptionState, answer, content,
};
use crate::xmpp::error::StanzaError;
use crate::xmpp::jid::bare_part;
use crate::xmpp::namespace as ns;
use crate::xmpp::xml::write::{push_empty, written_len};

const FORBIDDEN: Refused = (StanzaError::Forbidden, "");

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
        outbox: &mut Outbox<S>,
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
        let admission = self.admission(&bare, node)?;
        let answer = |state: &str| content(ns::PUBSUB, |out| push_subscription(out, name, jid, state));
        let known = node.subscribers.iter().position(|it| *it.jid == *jid);
        match known.map(|at| (at, node.subscribers[at].state)) {
            None => {}
            Some((_, SubscriptionState::Subscribed)) => return answer("subscribed"), // §6.1.6
            Some((_, SubscriptionState::Pending)) => {
                return Err((StanzaError::NotAuthorized, "pending-subscription").into()); // §6.1.3.7
            }
            Some((at, SubscriptionState::Withdrawn)) => {
                self.node_mut(name)?.subscribers[at].state = SubscriptionState::Pending;
                return answer("pending");
            }
        }
        let own = node.subscribers.iter().filter(|it| it.bare() == bare).count();
        if node.subscribers.len() >= SUBSCRIBERS_MAX || own >= ADDRESSES_MAX {
            return Err((StanzaError::PolicyViolation, "too-many-subscriptions").into()); // §6.1.3.9
        }
        let state = match admission {
            Admission::Pending => SubscriptionState::Pending,
            Admission::Open => SubscriptionState::Subscribed,
        };
        self.node_mut(name)?.subscribers.push(Subscriber { jid: jid.into(), state });
        match admission {
            Admission::Pending => {
                self.ask_owners(name, jid, outbox);
                answer("pending")
            }
            Admission::Open => {
                self.send_last_item(name, jid, outbox);
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
        match node.subscribers[at].state {
            SubscriptionState::Pending => node.subscribers[at].state = SubscriptionState::Withdrawn,
            SubscriptionState::Subscribed | SubscriptionState::Withdrawn => drop(node.subscribers.remove(at)),
        }
        Ok(None)
    }

    pub(super) fn own_subscriptions(&self, user: &str, name: &str) -> NodeAnswer {
        let bare = self.bare(user);
        let node = self.node(name)?;
        answer(ns::PUBSUB, "subscriptions", name, |out| {
            push_own(out, name, node, &bare);
        })
    }

    /// Elements for all of an account's node subscriptions, without its topics.
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

    /// Of one node, or of all if the name is empty.
    pub(super) fn own_affiliations(&self, user: &str, name: &str) -> NodeAnswer {
        let bare = self.bare(user);
        if !name.is_empty() {
            self.node(name)?;
        }
        answer(ns::PUBSUB, "affiliations", name, |out| {
            let nodes = self.nodes.iter().filter(|(known, _)| name.is_empty() || *name == ***known);
            for (name, node) in nodes {
                if out.len() > LIST_BYTES_MAX {
                    break;
                }
                if let Some(affiliation) = node.affiliations.get(&*bare) {
                    let attributes = [("node", &**name), ("affiliation", affiliation.as_str())];
                    push_empty(out, "affiliation", &attributes);
                }
            }
        })
    }
}
