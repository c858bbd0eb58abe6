//! Messages and requests between accounts (RFC 6121 §8.5). Of the choices that it leaves: a message to an account
//! goes to the resources with the highest priority, if that is not negative; one to a resource that is not
//! there goes to the account if it is a chat, and back otherwise; what finds nobody waits (XEP-0160).
//!
//! Invariant: an account that does not exist is answered for like one that is away, so that no answer tells a stranger
//! which of the two it is (§8.5.1 leaves the choice for messages; RFC 6120 §13.11).

use bytes::Bytes;
use noroshi_types::Timestamp;

use super::archive::Numbers;
use super::{Accounts, KEPT_BYTES_MAX, KEPT_MAX, Recipient, Relayed, Resource, Told};
use crate::xmpp::namespace as ns;
use crate::xmpp::xml::write::push_empty;

/// What belongs to a message besides itself.
struct Sent<'a> {
    from: &'a str,
    /// What it is called in its recipient's archive, as an element; empty where it is not kept.
    stanza_id: &'a [u8],
    now: Timestamp,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Delivered, kept, or nothing to be said about.
    Done,
    /// To be answered with `service-unavailable`, if it is answered at all.
    Refused,
}

impl<S: Copy + Eq> Accounts<S> {
    /// A message or a request for somebody else, and copies of it for other resources and for archives.
    pub fn route(
        &mut self,
        user: &str,
        session: S,
        to: &Recipient,
        stanza: &Relayed,
        now: Timestamp,
        told: &mut Told<S>,
    ) -> Outcome {
        let Some(from) = self.full(user, session) else { return Outcome::Refused };
        let Some(name) = self.name_of(&to.bare) else { return Outcome::Refused };
        if to.resource.is_none() && self.hear_push_answer(&name, &from, stanza) {
            return Outcome::Done;
        }
        let address = &*to.address();
        let numbers = match stanza.is_archived {
            true => self.number(user, &from, &name, address),
            false => Numbers::default(),
        };
        let (before, waiting) = (told.len(), self.waiting(&name));
        let sent = Sent { from: &from, stanza_id: &self.stanza_id(&name, numbers.recipient), now };
        let outcome = self.route_to(user, &name, to, stanza, &sent, told);
        if outcome == Outcome::Done {
            self.tell_copies((user, session), to, stanza, numbers, before, told);
            let message = stanza.addressed(&from, &to.asked);
            self.archive((user, address), numbers.sender, now, &message);
            self.archive((&name, &from), numbers.recipient, now, &message);
            if self.waiting(&name) > waiting {
                self.push_waiting(&name, told);
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
        told: &mut Told<S>,
    ) -> Outcome {
        let Sent { from, stanza_id, now } = *sent;
        let bytes = stanza.with(from, &to.asked, stanza_id);
        if let Some(resource) = to.resource.as_deref() {
            if let Some(session) = self.resource(name, resource).and_then(|it| it.session) {
                told.push((session, bytes)); // §8.5.3.1
                return Outcome::Done;
            }
            // §8.5.3.2: nobody is there by this name.
            match (stanza.name, &*stanza.kind) {
                ("message", "chat") => {}
                ("message", "error" | "headline") | ("iq", "result" | "error") => return Outcome::Done,
                _ => return Outcome::Refused,
            }
        }
        match (stanza.name, &*stanza.kind) {
            // §8.5.2.1.3: what the account's server does not answer nobody does.
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
                let outcome = self.deliver_message(name, bytes, kept, stanza.is_kept, told);
                // Only who may know the account learns that it has no room.
                if self.knows(user, &to.bare) { outcome } else { Outcome::Done }
            }
        }
    }

    /// To an account (§8.5.2). `kept`: as it is told later; none of a headline, which is for now only.
    fn deliver_message(
        &mut self,
        user: &str,
        bytes: Bytes,
        kept: Option<Bytes>,
        is_kept: bool,
        told: &mut Told<S>,
    ) -> Outcome {
        let priority = |it: &Resource<S>| it.presence.as_ref().map_or(-1, |presence| presence.priority);
        let highest = self.available(user).map(priority).max().unwrap_or(-1);
        // §8.5.2.1.1: a headline goes to all that are not negative.
        let least = if kept.is_some() { highest } else { 0 };
        if highest >= 0 {
            let meant = self.available(user).filter(|it| priority(it) >= least);
            told.extend(meant.filter_map(|it| it.session).map(|session| (session, bytes.clone())));
            return Outcome::Done;
        }
        let Some(account) = self.accounts.get_mut(user) else { return Outcome::Refused };
        match kept.filter(|_| is_kept) {
            None => Outcome::Done,
            Some(_) if account.kept.len() >= KEPT_MAX => Outcome::Refused,
            Some(stanza)
                if account.kept.iter().map(Bytes::len).sum::<usize>() + stanza.len() > KEPT_BYTES_MAX =>
            {
                Outcome::Refused
            }
            Some(stanza) => {
                account.kept.push_back(stanza);
                Outcome::Done
            }
        }
    }

    /// How many messages wait for an account.
    fn waiting(&self, user: &str) -> usize {
        self.accounts.get(user).map_or(0, |account| account.kept.len())
    }

    /// What waited for the account.
    pub(super) fn tell_kept(&mut self, user: &str, session: S, told: &mut Told<S>) {
        if let Some(account) = self.accounts.get_mut(user) {
            told.extend(account.kept.drain(..).map(|stanza| (session, stanza)));
        }
    }
}

#[cfg(test)]
mod tests;
