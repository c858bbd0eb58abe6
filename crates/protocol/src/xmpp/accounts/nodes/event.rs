//! Notifications to subscribers of a node (XEP-0060 §7.1.2, §8.4.2): headlines to each available resource
//! with non-negative priority, or to the subscribed one. Nothing is stored for offline subscribers, since the
//! node has its items.

use bytes::Bytes;

use super::form::{LastItem, authorization};
use super::subscriber::push_subscription;
use super::{Accounts, Affiliation, Item, Outbox};
use crate::xmpp::accounts::PENDING_BYTES_MAX;
use crate::xmpp::jid;
use crate::xmpp::namespace as ns;
use crate::xmpp::xml::write::{element, push_end, push_start, push_with};

impl<S: Copy + Eq> Accounts<S> {
    pub(super) fn notify_item(&self, name: &str, item: &Item, outbox: &mut Outbox<S>) {
        let Ok(node) = self.node(name) else { return };
        if node.config.notifies_items {
            self.notify_subscribers(name, outbox, |out| push_item(out, name, item, node.config.has_payloads));
        }
    }

    /// §6.1.7
    pub(super) fn send_last_item(&self, name: &str, jid: &str, outbox: &mut Outbox<S>) {
        let Ok(node) = self.node(name) else { return };
        let wants = node.config.last_item == LastItem::OnSubscribing && node.config.notifies_items;
        if let Some(item) = node.items.back().filter(|_| wants) {
            let content = event(|out| push_item(out, name, item, node.config.has_payloads));
            self.send_to(jid, "headline", &content, outbox);
        }
    }

    /// §8.2.5.4
    pub(super) fn notify_configuration(&self, name: &str, outbox: &mut Outbox<S>) {
        let Ok(node) = self.node(name) else { return };
        if node.config.notifies_configuration {
            self.notify_subscribers(name, outbox, |out| {
                push_start(out, "configuration", &[("node", name)]);
                if node.config.has_payloads {
                    node.config.push_form(out, "result");
                }
                push_end(out, "configuration");
            });
        }
    }

    /// Sends an event to all subscribers of a node.
    pub(super) fn notify_subscribers(
        &self,
        name: &str,
        outbox: &mut Outbox<S>,
        build: impl FnOnce(&mut Vec<u8>),
    ) {
        let Ok(node) = self.node(name) else { return };
        let content = event(build);
        for subscriber in node.subscribers.iter().filter(|it| it.is_subscribed()) {
            self.send_to(&subscriber.jid, "headline", &content, outbox);
        }
    }

    /// §8.8.4: reports the new state of a subscription.
    pub(super) fn notify_subscription(&self, name: &str, jid: &str, state: &str, outbox: &mut Outbox<S>) {
        let content = element("pubsub", &[("xmlns", ns::PUBSUB)], |out| {
            push_subscription(out, name, jid, state);
        });
        self.send_to(jid, "", &content, outbox);
    }

    /// §8.6
    pub(super) fn ask_owners(&self, name: &str, subscriber: &str, outbox: &mut Outbox<S>) {
        let Ok(node) = self.node(name) else { return };
        let content = authorization(name, subscriber);
        let owners = node.affiliations.iter().filter(|(_, known)| **known == Affiliation::Owner);
        owners.for_each(|(owner, _)| self.send_to(owner, "", &content, outbox));
    }

    /// Sends the approval requests that no owner has answered (§8.6) to an owner's resource that became
    /// available. Those for the nodes that the account created come first, since others can make it an
    /// owner of their nodes.
    pub(in crate::xmpp::accounts) fn send_approval_requests(
        &self,
        user: &str,
        session: S,
        outbox: &mut Outbox<S>,
    ) {
        let bare = self.bare(user);
        let owned = self.nodes.iter().filter(|(_, node)| node.affiliation(&bare) == Affiliation::Owner);
        let (made, others): (Vec<_>, Vec<_>) = owned.partition(|(_, node)| *node.creator == *user);
        let mut left = PENDING_BYTES_MAX;
        for (name, node) in made.into_iter().chain(others) {
            for subscriber in node.subscribers.iter().filter(|it| !it.is_subscribed()) {
                let request = self.message(&bare, "", &authorization(name, &subscriber.jid));
                let Some(rest) = left.checked_sub(request.len()) else { return };
                left = rest;
                outbox.push((session, request));
            }
        }
    }

    fn send_to(&self, jid: &str, kind: &str, content: &[u8], outbox: &mut Outbox<S>) {
        let (bare, resource) = jid::split(jid);
        let Some(name) = self.name_of(bare) else { return };
        let meant = self.available(&name).filter(|it| match resource {
            Some(resource) => *it.name == *resource,
            None => it.presence.as_ref().is_some_and(|presence| presence.priority >= 0),
        });
        let sessions: Vec<S> = meant.filter_map(|it| it.session).collect();
        if sessions.is_empty() {
            return;
        }
        let bytes = self.message(jid, kind, content);
        outbox.extend(sessions.into_iter().map(|session| (session, bytes.clone())));
    }

    fn message(&self, to: &str, kind: &str, content: &[u8]) -> Bytes {
        let from = self.pubsub();
        let attributes = [("xmlns", ns::CLIENT), ("from", &*from), ("to", to), ("type", kind)];
        element("message", &attributes, |out| {
            out.reserve(content.len() + "</message>".len());
            out.extend_from_slice(content);
        })
    }
}

fn event(build: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    element("event", &[("xmlns", ns::PUBSUB_EVENT)], build)
}

fn push_item(out: &mut Vec<u8>, name: &str, item: &Item, with_payload: bool) {
    push_with(out, "items", &[("node", name)], |out| item.push(out, with_payload));
}
