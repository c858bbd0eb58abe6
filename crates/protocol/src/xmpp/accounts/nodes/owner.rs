//! What owners do with their nodes (XEP-0060 §8): make, configure, empty and delete them, and say who is what.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use noroshi_types::DeviceId;

use super::access::Entry;
use super::form::{Field, NodeConfig};
use super::request::NewAffiliation;
use super::{
    AFFILIATIONS_MAX, Accounts, Affiliation, NODES_MAX, Node, NodeAnswer, OWN_NODES_MAX, OWNERS_MAX, Refused,
    Standing, Told,
};
use crate::xmpp::error::StanzaError;
use crate::xmpp::namespace as ns;
use crate::xmpp::xml::write::{push_empty, push_end, push_start};

const NOT_ACCEPTABLE: Refused = (StanzaError::NotAcceptable, "");

/// An answer in the namespace of owners.
pub(super) fn owner_content(build: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let mut out = Vec::new();
    push_start(&mut out, "pubsub", &[("xmlns", ns::PUBSUB_OWNER)]);
    build(&mut out);
    push_end(&mut out, "pubsub");
    out.into()
}

impl<S: Copy + Eq> Accounts<S> {
    pub(super) fn create_node(&mut self, user: &str, name: Option<Box<str>>, form: &[Field]) -> NodeAnswer {
        if !self.has(user) {
            return Err((StanzaError::Forbidden, "").into());
        }
        if name.as_ref().is_some_and(|name| self.nodes.contains_key(name)) {
            return Err((StanzaError::Conflict, "").into()); // §8.1.2
        }
        let own = self.nodes.values().filter(|node| *node.maker == *user).count();
        if self.nodes.len() >= NODES_MAX || own >= OWN_NODES_MAX {
            return Err((StanzaError::ResourceConstraint, "").into());
        }
        let config = NodeConfig::default().changed(form)?;
        let name = name.unwrap_or_else(|| {
            self.nodes_made += 1;
            format!("{:x}-node-{}", self.epoch, self.nodes_made).into()
        });
        if self.nodes.contains_key(&name) {
            return Err((StanzaError::Conflict, "").into());
        }
        let affiliations = BTreeMap::from([(self.bare(user).into(), Affiliation::Owner)]);
        let (subscribers, items) = (Vec::new(), VecDeque::new());
        let maker = user.into();
        self.nodes.insert(name.clone(), Node { maker, config, affiliations, subscribers, items });
        let mut out = Vec::new();
        push_start(&mut out, "pubsub", &[("xmlns", ns::PUBSUB)]);
        push_empty(&mut out, "create", &[("node", &*name)]);
        push_end(&mut out, "pubsub");
        Ok(Some(out.into()))
    }

    pub(super) fn node_configuration(&self, user: &str, name: &str) -> NodeAnswer {
        let node = self.owned(user, name)?;
        Ok(Some(owner_content(|out| {
            push_start(out, "configure", &[("node", name)]);
            node.config.push_form(out, "form");
            push_end(out, "configure");
        })))
    }

    pub(super) fn configure_node(
        &mut self,
        user: &str,
        name: &str,
        form: Option<&[Field]>,
        told: &mut Told<S>,
    ) -> NodeAnswer {
        let config = self.owned(user, name)?.config.changed(form.unwrap_or_default())?;
        let node = self.node_mut(name)?;
        if node.config == config {
            return Ok(None);
        }
        node.config = config;
        let keeps = if node.config.is_persistent { node.config.items_max } else { 0 };
        let surplus = node.items.len().saturating_sub(keeps);
        node.items.drain(..surplus);
        self.check_subscribers(name, told);
        self.tell_configuration(name, told);
        Ok(None)
    }

    /// Subscriptions that the access model does not allow any more end; those that it allows now need no approval.
    pub(super) fn check_subscribers(&mut self, name: &str, told: &mut Told<S>) {
        let Ok(node) = self.node(name) else { return };
        let entries: Vec<_> = node.subscribers.iter().map(|it| self.entry(it.bare(), node)).collect();
        let Ok(node) = self.node_mut(name) else { return };
        let mut changed = Vec::new();
        let mut entries = entries.into_iter();
        node.subscribers.retain_mut(|subscriber| match entries.next() {
            Some(Ok(Entry::Open)) if subscriber.standing == Standing::Pending => {
                subscriber.standing = Standing::Subscribed;
                changed.push((subscriber.jid.clone(), true));
                true
            }
            Some(Ok(Entry::Open)) => subscriber.is_subscribed(),
            Some(Ok(Entry::Pending)) => true,
            Some(Err(_)) | None => {
                if subscriber.standing != Standing::Withdrawn {
                    changed.push((subscriber.jid.clone(), false));
                }
                false
            }
        });
        for (jid, is_subscribed) in changed {
            self.tell_changed(name, &jid, is_subscribed, told);
        }
    }

    /// Tells a subscriber that an owner approved its subscription, or that it ended.
    fn tell_changed(&self, name: &str, jid: &str, is_subscribed: bool, told: &mut Told<S>) {
        self.tell_subscription(name, jid, if is_subscribed { "subscribed" } else { "none" }, told);
        if is_subscribed {
            self.tell_last_item(name, jid, told); // §6.1.7
        }
    }

    pub(super) fn delete_node(&mut self, user: &str, name: &str, told: &mut Told<S>) -> NodeAnswer {
        self.owned(user, name)?;
        self.end_node(name, told);
        Ok(None)
    }

    pub(super) fn end_node(&mut self, name: &str, told: &mut Told<S>) {
        if self.node(name).is_ok_and(|node| node.config.tells_deletion) {
            self.tell_event(name, told, |out| push_empty(out, "delete", &[("node", name)])); // §8.4.2
        }
        self.nodes.remove(name);
        self.forget_node_pushes(name);
    }

    pub(super) fn purge_node(&mut self, user: &str, name: &str, told: &mut Told<S>) -> NodeAnswer {
        if !self.owned(user, name)?.config.is_persistent {
            // §8.5.3.3
            return Err((StanzaError::FeatureNotImplemented, "unsupported persistent-items").into());
        }
        self.node_mut(name)?.items.clear();
        if self.node(name)?.config.tells_retraction {
            self.tell_event(name, told, |out| push_empty(out, "purge", &[("node", name)]));
        }
        Ok(None)
    }

    pub(super) fn node_affiliations(&self, user: &str, name: &str) -> NodeAnswer {
        let node = self.owned(user, name)?;
        Ok(Some(owner_content(|out| {
            push_start(out, "affiliations", &[("node", name)]);
            for (bare, affiliation) in &node.affiliations {
                push_empty(out, "affiliation", &[("jid", bare), ("affiliation", affiliation.as_str())]);
            }
            push_end(out, "affiliations");
        })))
    }

    /// All of them, or none.
    pub(super) fn affiliate(
        &mut self,
        user: &str,
        name: &str,
        list: &[(Box<str>, NewAffiliation)],
        told: &mut Told<S>,
    ) -> NodeAnswer {
        let node = self.owned(user, name)?;
        let maker = self.bare(&node.maker);
        let mut affiliations = node.affiliations.clone();
        for (jid, NewAffiliation(affiliation)) in list {
            // What could be an account; whether it is one nobody learns.
            let could_be = self.name_of(jid).is_some_and(|name| DeviceId::parse(&name).is_ok());
            if !could_be || jid.contains('/') {
                return Err(NOT_ACCEPTABLE.into());
            }
            // §8.9.2.3: a node keeps an owner, and whose room it takes stays one.
            if **jid == *maker && *affiliation != Affiliation::Owner {
                return Err(NOT_ACCEPTABLE.into());
            }
            match affiliation {
                Affiliation::None => affiliations.remove(jid),
                affiliation => affiliations.insert(jid.clone(), *affiliation),
            };
        }
        let owners = affiliations.values().filter(|known| **known == Affiliation::Owner).count();
        if affiliations.len() > AFFILIATIONS_MAX || owners > OWNERS_MAX {
            return Err((StanzaError::PolicyViolation, "").into());
        }
        self.node_mut(name)?.affiliations = affiliations;
        self.check_subscribers(name, told);
        Ok(None)
    }

    pub(super) fn node_subscribers(&self, user: &str, name: &str) -> NodeAnswer {
        let node = self.owned(user, name)?;
        Ok(Some(owner_content(|out| {
            push_start(out, "subscriptions", &[("node", name)]);
            for (jid, state) in node.subscribers.iter().filter_map(|it| Some((&*it.jid, it.state()?))) {
                push_empty(out, "subscription", &[("jid", jid), ("subscription", state)]);
            }
            push_end(out, "subscriptions");
        })))
    }

    /// All of them, or none; only of those who subscribed.
    pub(super) fn change_subscribers(
        &mut self,
        user: &str,
        name: &str,
        list: &[(Box<str>, bool)],
        told: &mut Told<S>,
    ) -> NodeAnswer {
        let node = self.owned(user, name)?;
        let is_subscriber = |jid: &str| node.subscribers.iter().any(|it| *it.jid == *jid);
        if !list.iter().all(|(jid, _)| is_subscriber(jid)) {
            return Err(NOT_ACCEPTABLE.into());
        }
        for (jid, stays) in list {
            let node = self.node_mut(name)?;
            let Some(at) = node.subscribers.iter().position(|it| *it.jid == **jid) else { continue };
            let before = node.subscribers[at].standing;
            // The subscriber withdrew it, so an approval changes nothing.
            let stays = *stays && before != Standing::Withdrawn;
            match stays {
                true => node.subscribers[at].standing = Standing::Subscribed,
                false => drop(node.subscribers.remove(at)),
            }
            match before {
                Standing::Pending => self.tell_changed(name, jid, stays, told),
                Standing::Subscribed if !stays => self.tell_changed(name, jid, false, told),
                Standing::Subscribed | Standing::Withdrawn => {}
            }
        }
        Ok(None)
    }
}
