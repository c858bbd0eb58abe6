//! Presence subscriptions (RFC 6121 §3): the state transitions of the four subscription stanzas, by the
//! tables of Appendix A, for the sending and the receiving side.

use bytes::Bytes;

use super::roster::Item;
use super::{Accounts, Outbox, PENDING_BYTES_MAX, PENDING_MAX, Relayed};

noroshi_types::names! {
    /// The four subscription stanzas.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) enum Kind {
        Subscribe => "subscribe",
        Subscribed => "subscribed",
        Unsubscribe => "unsubscribe",
        Unsubscribed => "unsubscribed",
    }
}

/// What happens apart from the change of the item.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Effect {
    /// The stanza is forwarded to the other side, or to the account's own resources.
    passes: bool,
    /// The item changed.
    changed: bool,
    /// The contact loses the account's presence.
    ends: bool,
    /// §3.1.3, §3.4.2: the server responds for the account.
    approves: bool,
}

impl Item {
    /// Appendix A.2: outbound stanza.
    fn outbound(&mut self, kind: Kind) -> Effect {
        match kind {
            Kind::Subscribe => {
                let changed = !self.to && !self.asked;
                (self.asked, self.listed) = (!self.to, true);
                Effect { passes: true, changed, ..Effect::default() }
            }
            Kind::Unsubscribe => {
                let changed = self.to || self.asked;
                (self.to, self.asked) = (false, false);
                Effect { passes: true, changed, ..Effect::default() }
            }
            Kind::Subscribed if self.pending.take().is_some() => {
                (self.from, self.listed) = (true, true);
                Effect { passes: true, changed: true, ..Effect::default() }
            }
            // §3.4.2: pre-approval, which the contact does not learn.
            Kind::Subscribed => {
                let changed = !self.from && !self.approved;
                if changed {
                    (self.approved, self.listed) = (true, true);
                }
                Effect { changed, ..Effect::default() }
            }
            Kind::Unsubscribed => {
                let (ends, asked) = (self.from, self.pending.take().is_some());
                let changed = self.from || self.approved;
                (self.from, self.approved) = (false, false);
                Effect { passes: ends || asked, changed, ends, approves: false }
            }
        }
    }

    /// Appendix A.3: inbound stanza, with its bytes.
    fn inbound(&mut self, kind: Kind, stanza: &Bytes) -> Effect {
        match kind {
            Kind::Subscribe if self.from => Effect { approves: true, ..Effect::default() },
            Kind::Subscribe if self.approved => {
                self.from = true;
                Effect { approves: true, changed: true, ..Effect::default() }
            }
            Kind::Subscribe => {
                let passes = self.pending.is_none();
                self.pending.get_or_insert_with(|| stanza.clone());
                Effect { passes, ..Effect::default() }
            }
            Kind::Unsubscribe => {
                let (ends, asked) = (self.from, self.pending.take().is_some());
                self.from = false;
                Effect { passes: ends || asked, changed: ends, ends, approves: false }
            }
            Kind::Subscribed => {
                let changed = self.asked;
                (self.to, self.asked) = (self.to || changed, false);
                Effect { passes: changed, changed, ..Effect::default() }
            }
            Kind::Unsubscribed => {
                let changed = self.to || self.asked;
                (self.to, self.asked) = (false, false);
                Effect { passes: changed, changed, ..Effect::default() }
            }
        }
    }
}

impl<S: Copy + Eq> Accounts<S> {
    /// Handles a subscription stanza from an account to a contact.
    pub(super) fn send_subscription(
        &mut self,
        user: &str,
        contact: &str,
        kind: Kind,
        stanza: &Relayed,
        outbox: &mut Outbox<S>,
    ) {
        let own = self.bare(user);
        if *own == *contact {
            return; // own resources receive presence anyway
        }
        let Some(effect) = self.item(user, contact).map(|item| item.outbound(kind)) else { return };
        self.settle(user, contact, effect.changed, outbox);
        if !effect.passes {
            return;
        }
        // §8.5.1: a missing account does not respond, like one that has not decided yet.
        if let Some(name) = self.name_of(contact).filter(|name| self.has(name)) {
            self.receive_subscription(&name, &own, kind, stanza, outbox);
        }
        if effect.ends {
            self.send_unavailable_to_contact(user, contact, outbox);
        } else if kind == Kind::Subscribed {
            self.send_presence_to_contact(user, contact, outbox); // §3.1.5
        }
    }

    /// Handles a subscription stanza from a contact to an account.
    fn receive_subscription(
        &mut self,
        user: &str,
        contact: &str,
        kind: Kind,
        stanza: &Relayed,
        outbox: &mut Outbox<S>,
    ) {
        let own = self.bare(user);
        // A stanza that the server generates contains nothing of the original.
        let bytes = match *stanza.kind == *kind.as_str() {
            true => stanza.addressed(contact, &own),
            false => Relayed::presence(kind.as_str()).addressed(contact, &own),
        };
        // Anyone may send requests, so these must fill neither the roster nor the queue sent at log-in.
        if kind == Kind::Subscribe && self.has_too_many_requests(user, contact) {
            return;
        }
        let Some(effect) = self.item(user, contact).map(|item| item.inbound(kind, &bytes)) else { return };
        if effect.passes
            && let Some(account) = self.accounts.get(user)
        {
            let hears = |it: &&super::Resource<S>| match kind {
                Kind::Subscribe => it.is_available(), // §3.1.3
                _ => it.interested || it.is_available(),
            };
            let sessions = account.resources.iter().filter(hears).filter_map(|resource| resource.session);
            outbox.extend(sessions.map(|session| (session, bytes.clone())));
        }
        self.settle(user, contact, effect.changed, outbox);
        if effect.approves
            && let Some(name) = self.name_of(contact)
        {
            self.receive_subscription(&name, &own, Kind::Subscribed, stanza, outbox);
            self.send_presence_to_contact(user, contact, outbox);
        }
        if effect.ends {
            self.send_unavailable_to_contact(user, contact, outbox); // §3.3.3
        }
    }

    /// Whether the limit of pending requests is reached. A request that is answered at once needs no room.
    fn has_too_many_requests(&self, user: &str, contact: &str) -> bool {
        let Some(account) = self.accounts.get(user) else { return false };
        if account
            .roster
            .get(contact)
            .is_some_and(|item| item.from || item.approved || item.pending.is_some())
        {
            return false;
        }
        account.roster.values().filter(|item| item.pending.is_some()).count() >= PENDING_MAX
    }

    /// Removes a contact: ends subscriptions in both directions (§2.5.2) and deletes the item.
    pub(super) fn remove_contact(&mut self, user: &str, contact: &str, outbox: &mut Outbox<S>) {
        let own = self.bare(user);
        let Some(item) = self.item(user, contact) else { return };
        // A pending request of the contact stays pending.
        let pending = item.pending.take();
        let before = std::mem::replace(item, Item { pending, ..Item::default() });
        if before.listed {
            self.push_item(user, contact, outbox);
        }
        self.settle(user, contact, false, outbox);
        if let Some(name) = self.name_of(contact).filter(|name| self.has(name)) {
            let due = [(before.to || before.asked, Kind::Unsubscribe), (before.from, Kind::Unsubscribed)];
            for (_, kind) in due.into_iter().filter(|(is_due, _)| *is_due) {
                let stanza = Relayed::presence(kind.as_str());
                self.receive_subscription(&name, &own, kind, &stanza, outbox);
            }
        }
        if before.from {
            self.send_unavailable_to_contact(user, contact, outbox);
        }
    }

    /// Pushes a listed item, removes an empty one, and checks the subscriptions to the account's nodes.
    fn settle(&mut self, user: &str, contact: &str, changed: bool, outbox: &mut Outbox<S>) {
        if changed {
            self.push_item(user, contact, outbox);
        }
        if let Some(account) = self.accounts.get_mut(user)
            && account.roster.get(contact).is_some_and(Item::is_empty)
        {
            account.roster.remove(contact);
        }
        self.check_owned_nodes(user, outbox);
    }

    /// Sends pending requests (§3.1.3) to a resource that became available.
    pub(super) fn send_pending_requests(&self, user: &str, session: S, outbox: &mut Outbox<S>) {
        let Some(account) = self.accounts.get(user) else { return };
        let mut left = PENDING_BYTES_MAX;
        for stanza in account.roster.values().filter_map(|item| item.pending.as_ref()) {
            let Some(rest) = left.checked_sub(stanza.len()) else { return };
            left = rest;
            outbox.push((session, stanza.clone()));
        }
    }
}

#[cfg(test)]
mod tests;
