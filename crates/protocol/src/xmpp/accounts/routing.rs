//! Messages and requests between accounts (RFC 6121 §8.5), with these choices: a message to an account is
//! sent to the resources with the highest non-negative priority; a chat message to a missing resource is sent
//! to the account, other types are returned; undeliverable messages are stored (XEP-0160).
//!
//! Invariant: the responses for a missing account equal those for an offline one, so a stranger cannot tell
//! them apart (§8.5.1 leaves the choice for messages; RFC 6120 §13.11).

use bytes::Bytes;
use noroshi_types::Timestamp;

use super::archive::Numbers;
use super::{Accounts, OFFLINE_BYTES_MAX, OFFLINE_MESSAGES_MAX, Outbox, Recipient, Relayed, Resource};
use crate::xmpp::namespace as ns;
use crate::xmpp::xml::write::push_empty;

/// A message's context.
struct Sent<'a> {
    from: &'a str,
    /// The element with its id in the recipient's archive; empty if it is not archived.
    stanza_id: &'a [u8],
    now: Timestamp,
}

/// The outcome of a stanza.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Delivered, stored, or no response needed.
    Done,
    /// The response is `service-unavailable`, if there is one at all.
    Refused,
}

impl<S: Copy + Eq> Accounts<S> {
    /// Relays a message or request, with copies for other resources and archives.
    pub fn route(
        &mut self,
        user: &str,
        session: S,
        to: &Recipient,
        stanza: &Relayed,
        now: Timestamp,
        outbox: &mut Outbox<S>,
    ) -> Outcome {
        let Some(from) = self.full(user, session) else { return Outcome::Refused };
        let Some(name) = self.name_of(&to.bare) else { return Outcome::Refused };
        if to.resource.is_none() && self.handle_push_response(&name, &from, stanza) {
            return Outcome::Done;
        }
        let address = &*to.address();
        let numbers = match stanza.is_archived {
            true => self.number(user, &from, &name, address),
            false => Numbers::default(),
        };
        let (before, waiting) = (outbox.len(), self.waiting(&name));
        let sent = Sent { from: &from, stanza_id: &self.stanza_id(&name, numbers.recipient), now };
        let outcome = self.route_to(user, &name, to, stanza, &sent, outbox);
        if outcome == Outcome::Done {
            self.send_carbons((user, session), to, stanza, numbers, before, outbox);
            let message = stanza.addressed(&from, &to.asked);
            self.archive((user, address), numbers.sender, now, &message);
            self.archive((&name, &from), numbers.recipient, now, &message);
            if self.waiting(&name) > waiting {
                self.push_waiting(&name, outbox);
            }
        }
        outcome
    }

    fn route_to(
        &mut self,
        user: &str,
        name: &str,
        to: &Recipient,
        stanza: &Relayed,
        sent: &Sent<'_>,
        outbox: &mut Outbox<S>,
    ) -> Outcome {
        let Sent { from, stanza_id, now } = *sent;
        let bytes = stanza.with(from, &to.asked, stanza_id);
        if let Some(resource) = to.resource.as_deref() {
            if let Some(session) = self.resource(name, resource).and_then(|it| it.session) {
                outbox.push((session, bytes)); // §8.5.3.1
                return Outcome::Done;
            }
            // §8.5.3.2: there is no such resource.
            match (stanza.name, &*stanza.kind) {
                ("message", "chat") => {}
                ("message", "error" | "headline") | ("iq", "result" | "error") => return Outcome::Done,
                _ => return Outcome::Refused,
            }
        }
        match (stanza.name, &*stanza.kind) {
            // §8.5.2.1.3: requests to the bare account that the server does not handle itself.
            ("iq", _) | (_, "groupchat") => Outcome::Refused,
            (_, "error") => Outcome::Done,
            _ if !self.has(name) => Outcome::Done, // §8.5.1
            (_, kind) => {
                let kept = || {
                    let mut more = stanza_id.to_vec();
                    let stamp = now.to_string();
                    let attributes = [("xmlns", ns::DELAY), ("from", &*self.domain), ("stamp", &*stamp)];
                    push_empty(&mut more, "delay", &attributes);
                    stanza.with(from, &to.asked, &more)
                };
                let kept = (kind != "headline").then(kept);
                let outcome = self.deliver_message(name, bytes, kept, stanza.is_kept, outbox);
                // Only accounts that may know the recipient learn that its storage is full.
                if self.knows(user, &to.bare) { outcome } else { Outcome::Done }
            }
        }
    }

    /// Delivers a message to an account (§8.5.2). `kept`: the form in which it is stored; `None` for a
    /// headline, which is never stored.
    fn deliver_message(
        &mut self,
        user: &str,
        bytes: Bytes,
        kept: Option<Bytes>,
        is_kept: bool,
        outbox: &mut Outbox<S>,
    ) -> Outcome {
        let priority = |it: &Resource<S>| it.presence.as_ref().map_or(-1, |presence| presence.priority);
        let highest = self.available(user).map(priority).max().unwrap_or(-1);
        // §8.5.2.1.1: a headline is sent to all resources with non-negative priority.
        let least = if kept.is_some() { highest } else { 0 };
        if highest >= 0 {
            let meant = self.available(user).filter(|it| priority(it) >= least);
            outbox.extend(meant.filter_map(|it| it.session).map(|session| (session, bytes.clone())));
            return Outcome::Done;
        }
        let Some(account) = self.accounts.get_mut(user) else { return Outcome::Refused };
        match kept.filter(|_| is_kept) {
            None => Outcome::Done,
            Some(_) if account.kept.len() >= OFFLINE_MESSAGES_MAX => Outcome::Refused,
            Some(stanza)
                if account.kept.iter().map(Bytes::len).sum::<usize>() + stanza.len() > OFFLINE_BYTES_MAX =>
            {
                Outcome::Refused
            }
            Some(stanza) => {
                account.kept.push_back(stanza);
                Outcome::Done
            }
        }
    }

    /// The number of an account's offline messages.
    fn waiting(&self, user: &str) -> usize {
        self.accounts.get(user).map_or(0, |account| account.kept.len())
    }

    /// Sends the account's offline messages.
    pub(super) fn send_offline_messages(&mut self, user: &str, session: S, outbox: &mut Outbox<S>) {
        if let Some(account) = self.accounts.get_mut(user) {
            outbox.extend(account.kept.drain(..).map(|stanza| (session, stanza)));
        }
    }
}

#[cfg(test)]
mod tests;
