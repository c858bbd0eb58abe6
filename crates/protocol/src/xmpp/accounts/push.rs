//! Push registrations of accounts (XEP-0357): where the server reports an account's stored messages while no
//! resource is available. Since there is no other server, the target is a resource of another account, which
//! receives the request itself, or a node at the PubSub service to which the account may publish.
//!
//! Invariant: a report contains the number of stored messages, but neither contents nor senders (§12).

use bytes::Bytes;

use super::nodes::{NodeError, NodeRequest};
use super::{Accounts, Outbox, Relayed};
use crate::xmpp::error::{Refusal, StanzaError};
use crate::xmpp::jid::{self, Jid};
use crate::xmpp::namespace as ns;
use crate::xmpp::xml::Element;
use crate::xmpp::xml::write::{content_of, push_end, push_start, push_text, push_with};

/// Limit of registrations per account.
pub(super) const REGISTRATIONS_MAX: usize = 5;
const NODE_BYTES_MAX: usize = super::nodes::NAME_BYTES_MAX;
/// Limit of the client's publish options.
const OPTIONS_BYTES_MAX: usize = 2_048;
/// Prefix of request ids; a count follows.
const REQUEST: &str = "push-notification-";

const BAD_REQUEST: StanzaError = StanzaError::BadRequest;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushRegistration {
    /// In canonical form: `local@domain/resource`, or the PubSub service.
    jid: Box<str>,
    /// Empty without node.
    node: Box<str>,
    /// `<publish-options/>`, if any; empty for a node at the PubSub service.
    options: Bytes,
    /// The number in the id of its last request; 0 before the first one.
    request: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PushChange {
    /// Add a registration, or replace it.
    Enable(PushRegistration),
    /// Of all nodes, or of one.
    Disable { jid: Box<str>, node: Option<Box<str>> },
}

impl PushChange {
    /// `own`: the account's bare address.
    pub(in crate::xmpp) fn parse(
        command: Element<'_>,
        (domain, pubsub, own): (&str, &str, &str),
    ) -> Result<Self, StanzaError> {
        let jid = Jid::parse(command.attribute("jid").unwrap_or_default()).map_err(|_| BAD_REQUEST)?; // §5
        let canonical = jid.canonical();
        let node = command.attribute("node").filter(|node| !node.is_empty());
        if node.is_some_and(|node| node.len() > NODE_BYTES_MAX) {
            return Err(StanzaError::NotAcceptable);
        }
        if command.name() == "disable" {
            return Ok(Self::Disable { jid: canonical, node: node.map(Into::into) });
        }
        let is_service = *canonical == *pubsub;
        if !is_service && *jid.domain != *domain {
            return Err(StanzaError::RemoteServerNotFound); // RFC 6120 §8.3.3.16
        }
        // The account itself has no resource to notify, and a bare account address would be answered by the
        // server.
        if jid.has_bare(own) || (!is_service && (jid.local.is_none() || jid.resource.is_none())) {
            return Err(StanzaError::NotAcceptable);
        }
        if is_service && node.is_none() {
            return Err(BAD_REQUEST);
        }
        let options = match command.child(ns::FORM, "x") {
            None => Bytes::new(),
            Some(_) if is_service => return Err(StanzaError::NotAcceptable),
            Some(_) => {
                let content =
                    content_of(command, Some(ns::PUBSUB), OPTIONS_BYTES_MAX, |it| !it.is(ns::FORM, "x"));
                content.ok_or(StanzaError::NotAcceptable)?.into()
            }
        };
        let node = node.unwrap_or_default().into();
        Ok(Self::Enable(PushRegistration { jid: canonical, node, options, request: 0 }))
    }
}

/// §7: the published notification.
fn notification(waiting: usize) -> Vec<u8> {
    let mut out = Vec::new();
    push_start(&mut out, "notification", &[("xmlns", ns::PUSH)]);
    push_start(&mut out, "x", &[("xmlns", ns::FORM), ("type", "submit")]);
    for (name, value) in [("FORM_TYPE", "urn:xmpp:push:summary"), ("message-count", &waiting.to_string())] {
        push_with(&mut out, "field", &[("var", name)], |out| push_text(out, "value", &[], value));
    }
    push_end(&mut out, "x");
    push_end(&mut out, "notification");
    out
}

impl PushRegistration {
    fn request(&self, from: &str, id: &str, content: &[u8]) -> Bytes {
        let mut out = Vec::new();
        let attributes =
            [("xmlns", ns::CLIENT), ("type", "set"), ("id", id), ("from", from), ("to", &*self.jid)];
        push_start(&mut out, "iq", &attributes);
        push_start(&mut out, "pubsub", &[("xmlns", ns::PUBSUB)]);
        push_start(&mut out, "publish", &[("node", &*self.node)]);
        push_with(&mut out, "item", &[], |out| out.extend_from_slice(content));
        push_end(&mut out, "publish");
        if !self.options.is_empty() {
            push_with(&mut out, "publish-options", &[], |out| out.extend_from_slice(&self.options));
        }
        push_end(&mut out, "pubsub");
        push_end(&mut out, "iq");
        out.into()
    }
}

impl<S: Copy + Eq> Accounts<S> {
    pub fn change_push(&mut self, user: &str, change: PushChange) -> Result<(), Refusal> {
        let pushes = &mut self.accounts.get_mut(user).ok_or(Refusal::Forbidden)?.pushes;
        match change {
            PushChange::Disable { jid, node } => {
                let is_meant = |it: &PushRegistration| {
                    it.jid == jid && node.as_ref().is_none_or(|node| *node == it.node)
                };
                pushes.retain(|it| !is_meant(it));
            }
            PushChange::Enable(new) => {
                let is_full = pushes.len() >= REGISTRATIONS_MAX;
                match pushes.iter_mut().find(|it| it.jid == new.jid && it.node == new.node) {
                    Some(known) => *known = new,
                    None if is_full => return Err(Refusal::Overloaded),
                    None => pushes.push(new),
                }
            }
        }
        Ok(())
    }

    /// Reports that the account has stored messages.
    pub(super) fn push_waiting(&mut self, user: &str, outbox: &mut Outbox<S>) {
        let Some(account) = self.accounts.get_mut(user) else { return };
        if account.pushes.is_empty() {
            return;
        }
        let content = notification(account.kept.len());
        let mut pushes = std::mem::take(&mut account.pushes);
        let (own, service) = (self.bare(user), self.pubsub());
        pushes.retain_mut(|registration| match *registration.jid == *service {
            true => self.push_to_node(user, registration, &content, outbox),
            false => self.push_to_resource(&own, registration, &content, outbox),
        });
        if let Some(account) = self.accounts.get_mut(user) {
            account.pushes = pushes;
        }
    }

    fn push_to_node(
        &mut self,
        user: &str,
        registration: &PushRegistration,
        content: &[u8],
        outbox: &mut Outbox<S>,
    ) -> bool {
        let request = NodeRequest::publish(&registration.node, content);
        match self.ask_node(user, request, outbox) {
            Ok(_) => true,
            Err(NodeError::Absent) => false,
            // RFC 6120 §8.3.2: it may succeed later.
            Err(NodeError::Refused(error, _)) => error.kind() == "wait",
        }
    }

    /// Returns false if the target account no longer exists. An unavailable resource may return.
    fn push_to_resource(
        &mut self,
        own: &str,
        registration: &mut PushRegistration,
        content: &[u8],
        outbox: &mut Outbox<S>,
    ) -> bool {
        let (bare, Some(resource)) = jid::split(&registration.jid) else { return false };
        let Some(name) = self.name_of(bare).filter(|name| self.has(name)) else { return false };
        self.push_requests += 1;
        registration.request = self.push_requests;
        let id = format!("{REQUEST}{}", self.push_requests);
        if let Some(session) = self.resource(&name, resource).and_then(|it| it.session) {
            outbox.push((session, registration.request(own, &id, content)));
        }
        true
    }

    /// Handles the response to a push request sent by the account `name`. Any error except type `wait`
    /// removes the registration that sent the request (§7.1). Returns false if the stanza is not such a
    /// response.
    pub(super) fn handle_push_response(&mut self, name: &str, from: &str, answer: &Relayed) -> bool {
        let is_answer = answer.name == "iq" && matches!(&*answer.kind, "result" | "error");
        let Some(number) = answer.id.strip_prefix(REQUEST).filter(|_| is_answer) else { return false };
        if *answer.kind == *"error"
            && !answer.is_temporary
            && let Some(account) = self.accounts.get_mut(name)
        {
            account.pushes.retain(|it| *it.jid != *from || *it.request.to_string() != *number);
        }
        true
    }

    /// Removes the registrations that target an account: a later account with its name must not receive their
    /// requests.
    pub(super) fn remove_push_registrations(&mut self, user: &str) {
        let bare = self.bare(user);
        for account in self.accounts.values_mut() {
            account.pushes.retain(|it| *jid::bare_part(&it.jid) != *bare);
        }
    }

    /// Removes the registrations that target a node: a later node with its name must not receive their items.
    pub(super) fn remove_node_push_registrations(&mut self, node: &str) {
        let service = self.pubsub();
        for account in self.accounts.values_mut() {
            account.pushes.retain(|it| *it.jid != *service || *it.node != *node);
        }
    }
}

#[cfg(test)]
mod tests;
