//! Requests of owners (XEP-0060 §8): create, configure, purge and delete nodes, and manage affiliations and
//! subscribers.

use std::collections::{BTreeMap, VecDeque};

use noroshi_types::DeviceId;

use super::access::Admission;
use super::form::{Field, NodeConfig};
use super::{
    AFFILIATIONS_MAX, Accounts, Affiliation, NODES_MAX, Node, NodeAnswer, OWN_NODES_MAX, OWNERS_MAX, Outbox,
    Refused, SubscriptionState, answer, content,
};
use crate::xmpp::error::StanzaError;
use crate::xmpp::namespace as ns;
use crate::xmpp::xml::write::push_empty;

const NOT_ACCEPTABLE: Refused = (StanzaError::NotAcceptable, "");

impl<S: Copy + Eq> Accounts<S> {
    /// Without a name, the service generates one.
    pub(super) fn create_node(&mut self, user: &str, name: &str, form: &[Field]) -> NodeAnswer {
        if !self.has(user) {
            return Err((StanzaError::Forbidden, "").into());
        }
        if self.nodes.contains_key(name) {
            return Err((StanzaError::Conflict, "").into()); // §8.1.2
        }
        let own = self.nodes.values().filter(|node| *node.creator == *user).count();
        if self.nodes.len() >= NODES_MAX || own >= OWN_NODES_MAX {
            return Err((StanzaError::ResourceConstraint, "").into());
        }
        let config = NodeConfig::default().changed(form)?;
        let name: Box<str> = match name {
            "" => {
                self.generated_names += 1;
                format!("{:x}-node-{}", self.epoch, self.generated_names).into()
            }
            name => name.into(),
        };
        if self.nodes.contains_key(&name) {
            return Err((StanzaError::Conflict, "").into());
        }
        let affiliations = BTreeMap::from([(self.bare(user).into(), Affiliation::Owner)]);
        let (subscribers, items) = (Vec::new(), VecDeque::new());
        let creator = user.into();
        self.nodes.insert(name.clone(), Node { creator, config, affiliations, subscribers, items });
        content(ns::PUBSUB, |out| push_empty(out, "create", &[("node", &*name)]))
    }

    pub(super) fn node_configuration(&self, user: &str, name: &str) -> NodeAnswer {
        let node = self.owned(user, name)?;
        answer(ns::PUBSUB_OWNER, "configure", name, |out| node.config.push_form(out, "form"))
    }

    pub(super) fn configure_node(
        &mut self,
        user: &str,
        name: &str,
        form: Option<&[Field]>,
        outbox: &mut Outbox<S>,
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
        self.check_subscribers(name, outbox);
        self.notify_configuration(name, outbox);
        Ok(None)
    }

    /// Ends subscriptions that the access model no longer permits, and approves pending ones that need no
    /// approval any more.
    pub(super) fn check_subscribers(&mut self, name: &str, outbox: &mut Outbox<S>) {
        let Ok(node) = self.node(name) else { return };
        let entries: Vec<_> = node.subscribers.iter().map(|it| self.admission(it.bare(), node)).collect();
        let Ok(node) = self.node_mut(name) else { return };
        let mut changed = Vec::new();
        let mut entries = entries.into_iter();
        node.subscribers.retain_mut(|subscriber| match entries.next() {
            Some(Ok(Admission::Open)) if subscriber.state == SubscriptionState::Pending => {
                subscriber.state = SubscriptionState::Subscribed;
                changed.push((subscriber.jid.clone(), true));
                true
            }
            Some(Ok(Admission::Open)) => subscriber.is_subscribed(),
            Some(Ok(Admission::Pending)) => true,
            Some(Err(_)) | None => {
                if subscriber.state != SubscriptionState::Withdrawn {
                    changed.push((subscriber.jid.clone(), false));
                }
                false
            }
        });
        for (jid, is_subscribed) in changed {
            self.notify_subscription_change(name, &jid, is_subscribed, outbox);
        }
    }

    /// Informs a subscriber that its subscription was approved or ended.
    fn notify_subscription_change(&self, name: &str, jid: &str, is_subscribed: bool, outbox: &mut Outbox<S>) {
        self.notify_subscription(name, jid, if is_subscribed { "subscribed" } else { "none" }, outbox);
        if is_subscribed {
            self.send_last_item(name, jid, outbox); // §6.1.7
        }
    }

    pub(super) fn delete_node(&mut self, user: &str, name: &str, outbox: &mut Outbox<S>) -> NodeAnswer {
        self.owned(user, name)?;
        self.end_node(name, outbox);
        Ok(None)
    }

    pub(super) fn end_node(&mut self, name: &str, outbox: &mut Outbox<S>) {
        if self.node(name).is_ok_and(|node| node.config.notifies_deletion) {
            self.notify_subscribers(name, outbox, |out| push_empty(out, "delete", &[("node", name)])); // §8.4.2
        }
        self.nodes.remove(name);
        self.remove_node_push_registrations(name);
    }

    pub(super) fn purge_node(&mut self, user: &str, name: &str, outbox: &mut Outbox<S>) -> NodeAnswer {
        if !self.owned(user, name)?.config.is_persistent {
            // §8.5.3.3
            return Err((StanzaError::FeatureNotImplemented, "unsupported persistent-items").into());
        }
        self.node_mut(name)?.items.clear();
        if self.node(name)?.config.notifies_retraction {
            self.notify_subscribers(name, outbox, |out| push_empty(out, "purge", &[("node", name)]));
        }
        Ok(None)
    }

    pub(super) fn node_affiliations(&self, user: &str, name: &str) -> NodeAnswer {
        let node = self.owned(user, name)?;
        answer(ns::PUBSUB_OWNER, "affiliations", name, |out| {
            for (bare, affiliation) in &node.affiliations {
                push_empty(out, "affiliation", &[("jid", bare), ("affiliation", affiliation.as_str())]);
            }
        })
    }

    /// Applies all changes or none.
    pub(super) fn affiliate(
        &mut self,
        user: &str,
        name: &str,
        list: &[(Box<str>, Affiliation)],
        outbox: &mut Outbox<S>,
    ) -> NodeAnswer {
        let node = self.owned(user, name)?;
        let creator = self.bare(&node.creator);
        let mut affiliations = node.affiliations.clone();
        for (jid, affiliation) in list {
            // Accepts every valid account name, so the response does not reveal which accounts exist.
            let could_be = self.name_of(jid).is_some_and(|name| DeviceId::parse(&name).is_ok());
            if !could_be || jid.contains('/') {
                return Err(NOT_ACCEPTABLE.into());
            }
            // §8.9.2.3: a node always has an owner, and its creator stays one, since it counts against the
            // creator's limits.
            if **jid == *creator && *affiliation != Affiliation::Owner {
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
        self.check_subscribers(name, outbox);
        Ok(None)
    }

    pub(super) fn node_subscribers(&self, user: &str, name: &str) -> NodeAnswer {
        let node = self.owned(user, name)?;
        answer(ns::PUBSUB_OWNER, "subscriptions", name, |out| {
            for (jid, state) in node.subscribers.iter().filter_map(|it| Some((&*it.jid, it.state()?))) {
                push_empty(out, "subscription", &[("jid", jid), ("subscription", state)]);
            }
        })
    }

    /// Applies all changes or none; only for existing subscribers.
    pub(super) fn change_subscribers(
        &mut self,
        user: &str,
        name: &str,
        list: &[(Box<str>, bool)],
        outbox: &mut Outbox<S>,
    ) -> NodeAnswer {
        let node = self.owned(user, name)?;
        let is_subscriber = |jid: &str| node.subscribers.iter().any(|it| *it.jid == *jid);
        if !list.iter().all(|(jid, _)| is_subscriber(jid)) {
            return Err(NOT_ACCEPTABLE.into());
        }
        for (jid, stays) in list {
            let node = self.node_mut(name)?;
            let Some(at) = node.subscribers.iter().position(|it| *it.jid == **jid) else { continue };
            let before = node.subscribers[at].state;
            // The subscriber withdrew it, so approval has no effect.
            let stays = *stays && before != SubscriptionState::Withdrawn;
            match stays {
                true => node.subscribers[at].state = SubscriptionState::Subscribed,
                false => drop(node.subscribers.remove(at)),
            }
            match before {
                SubscriptionState::Pending => self.notify_subscription_change(name, jid, stays, outbox),
                SubscriptionState::Subscribed if !stays => {
                    self.notify_subscription_change(name, jid, false, outbox)
                }
                SubscriptionState::Subscribed | SubscriptionState::Withdrawn => {}
            }
        }
        Ok(None)
    }
}
