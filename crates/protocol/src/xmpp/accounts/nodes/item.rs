//! Items of a node (XEP-0060 §7, §6.5): a node keeps the newest items up to its limit; an equal id replaces.

use std::collections::VecDeque;

use super::request::NewItem;
use super::{Accounts, Affiliation, Item, NodeAnswer, OWN_BYTES_MAX, Outbox, Refused, answer};
use crate::xmpp::error::StanzaError;
use crate::xmpp::namespace as ns;
use crate::xmpp::xml::write::{push_empty, push_with};

const BAD_REQUEST: Refused = (StanzaError::BadRequest, "");

impl Item {
    /// `with_payload`: whether the node delivers payloads.
    pub(super) fn push(&self, out: &mut Vec<u8>, with_payload: bool) {
        let payload = if with_payload { &self.payload[..] } else { &[] };
        push_with(out, "item", &[("id", &*self.id)], |out| out.extend_from_slice(payload));
    }
}

impl<S: Copy + Eq> Accounts<S> {
    pub(super) fn publish_item(
        &mut self,
        user: &str,
        name: &str,
        item: Option<NewItem>,
        has_options: bool,
        outbox: &mut Outbox<S>,
    ) -> NodeAnswer {
        let publisher = self.bare(user);
        let node = self.node(name)?;
        self.check_publisher(&publisher, node)?;
        if has_options {
            return Err((StanzaError::Conflict, "precondition-not-met").into()); // §7.1.5
        }
        let config = &node.config;
        let has_items = config.is_persistent || config.has_payloads;
        match &item {
            None if has_items => return Err((BAD_REQUEST.0, "item-required").into()), // §7.1.3.5
            Some(_) if !has_items => return Err((BAD_REQUEST.0, "item-forbidden").into()), // §7.1.3.6
            Some(item) if config.has_payloads && item.payload.is_empty() => {
                return Err((BAD_REQUEST.0, "payload-required").into());
            }
            Some(item) if item.payload.len() > config.payload_bytes_max => {
                return Err((StanzaError::NotAcceptable, "payload-too-big").into()); // §7.1.3.4
            }
            _ => {}
        }
        let Some(NewItem { id, payload }) = item else {
            self.notify_subscribers(name, outbox, |out| push_empty(out, "items", &[("node", name)]));
            return Ok(None);
        };
        let id = id.unwrap_or_else(|| {
            self.generated_names += 1;
            format!("{:x}-{}", self.epoch, self.generated_names).into()
        });
        let item = Item { id, publisher: publisher.into(), payload };
        self.keep_item(name, &item)?;
        self.notify_item(name, &item, outbox);
        answer(ns::PUBSUB, "publish", name, |out| {
            push_empty(out, "item", &[("id", &*item.id)]);
        })
    }

    fn keep_item(&mut self, name: &str, item: &Item) -> Result<(), Refused> {
        let Some(node) = self.nodes.get(name).filter(|node| node.config.is_persistent) else { return Ok(()) };
        // §7.1.2: only owners may replace an item of another publisher.
        let known = node.items.iter().find(|known| known.id == item.id);
        let is_owner = node.affiliation(&item.publisher) == Affiliation::Owner;
        if known.is_some_and(|known| known.publisher != item.publisher && !is_owner) {
            return Err((StanzaError::Forbidden, ""));
        }
        let keep = |known: &&Item| known.id != item.id;
        let others: VecDeque<Item> = node.items.iter().filter(keep).cloned().collect();
        let surplus = (others.len() + 1).saturating_sub(node.config.items_max);
        let others: VecDeque<Item> = others.into_iter().skip(surplus).chain([item.clone()]).collect();
        let made_by_maker =
            self.nodes.iter().filter(|(known, it)| ***known != *name && it.creator == node.creator);
        let elsewhere: usize = made_by_maker.map(|(_, node)| node.bytes()).sum();
        if elsewhere + others.iter().map(Item::bytes).sum::<usize>() > OWN_BYTES_MAX {
            return Err((StanzaError::ResourceConstraint, ""));
        }
        if let Some(node) = self.nodes.get_mut(name) {
            node.items = others;
        }
        Ok(())
    }

    pub(super) fn retract_item(
        &mut self,
        user: &str,
        name: &str,
        id: &str,
        tells: bool,
        outbox: &mut Outbox<S>,
    ) -> NodeAnswer {
        let bare = self.bare(user);
        let node = self.node(name)?;
        let is_owner = node.affiliation(&bare) == Affiliation::Owner;
        self.check_publisher(&bare, node)?;
        if !node.config.is_persistent {
            // §7.2.3.5
            return Err((StanzaError::FeatureNotImplemented, "unsupported persistent-items").into());
        }
        let at = node.items.iter().position(|item| *item.id == *id);
        let at = at.ok_or((StanzaError::ItemNotFound, ""))?;
        if !is_owner && *node.items[at].publisher != *bare {
            return Err((StanzaError::Forbidden, "").into());
        }
        let tells = tells || node.config.notifies_retraction;
        self.node_mut(name)?.items.remove(at);
        if tells {
            self.notify_subscribers(name, outbox, |out| {
                push_with(out, "items", &[("node", name)], |out| push_empty(out, "retract", &[("id", id)]));
            });
        }
        Ok(None)
    }

    pub(super) fn node_items(&self, user: &str, name: &str, ids: &[Box<str>], max: usize) -> NodeAnswer {
        let node = self.node(name)?;
        self.check_reader(&self.bare(user), node)?;
        if !node.config.is_persistent {
            // §6.5.9.7
            return Err((StanzaError::FeatureNotImplemented, "unsupported persistent-items").into());
        }
        let skipped = node.items.len().saturating_sub(max);
        let wanted = |item: &&Item| ids.is_empty() || ids.contains(&item.id);
        let mut items = node.items.iter().filter(wanted).skip(if ids.is_empty() { skipped } else { 0 });
        let first = items.next();
        if !ids.is_empty() && first.is_none() {
            return Err((StanzaError::ItemNotFound, "").into());
        }
        answer(ns::PUBSUB, "items", name, |out| {
            first.into_iter().chain(items).for_each(|item| item.push(out, true));
        })
    }
}
