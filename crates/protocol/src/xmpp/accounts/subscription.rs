//! Presence subscriptions (RFC 6121 §3): what each of the four stanzas makes of an item, by the tables of
//! Appendix A, on the side that sends it and on the side that gets it.

use bytes::Bytes;

use super::roster::Item;
use super::{ASKED_BYTES_MAX, Accounts, PENDING_MAX, Relayed, Told};

/// The four of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Subscribe,
    Subscribed,
    Unsubscribe,
    Unsubscribed,
}

/// What is to be done besides changing the item.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Effect {
    /// To the other side, or to the account's own resources.
    passes: bool,
    /// The item is another now.
    changed: bool,
    /// The contact got presence until now, and gets none from now on.
    ends: bool,
    /// §3.1.3, §3.4.2: the server answers for the account.
    approves: bool,
}

impl Kind {
    pub(super) fn parse(kind: &str) -> Option<Self> {
        Some(match kind {
            "subscribe" => Kind::Subscribe,
            "subscribed" => Kind::Subscribed,
            "unsubscribe" => Kind::Unsubscribe,
            "unsubscribed" => Kind::Unsubscribed,
            _ => return None,
        })
    }

    fn as_str(self) -> &'static str {
        match self {
            Kind::Subscribe => "subscribe",
            Kind::Subscribed => "subscribed",
            Kind::Unsubscribe => "unsubscribe",
            Kind::Unsubscribed => "unsubscribed",
        }
    }
}

impl Item {
    /// Appendix A.2: the account says it.
    fn say(&mut self, kind: Kind) -> Effect {
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
            // §3.4.2: in advance, which the contact is not told.
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

    /// Appendix A.3: the contact said it, in these bytes.
    fn hear(&mut self, kind: Kind, stanza: &Bytes) -> Effect {
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
    /// An account says one of the four to a contact.
    pub(super) fn say_subscription(
        &mut self,
        user: &str,
        contact: &str,
        kind: Kind,
        stanza: &Relayed,
        told: &mut Told<S>,
    ) {
        let own = self.bare(user);
        if *own == *contact {
            return; // of its own resources it hears anyway
        }
        let Some(effect) = self.item(user, contact).map(|item| item.say(kind)) else { return };
        self.settle(user, contact, effect.changed, told);
        if !effect.passes {
            return;
        }
        // §8.5.1: an account that does not exist answers nothing, like one that has not made up its mind.
        if let Some(name) = self.name_of(contact).filter(|name| self.has(name)) {
            self.hear_subscription(&name, &own, kind, stanza, told);
        }
        if effect.ends {
            self.tell_ended(user, contact, told);
        } else if kind == Kind::Subscribed {
            self.tell_presence(user, contact, told); // §3.1.5
        }
    }

    /// An account is told one of the four by a contact.
    fn hear_subscription(
        &mut self,
        user: &str,
        contact: &str,
        kind: Kind,
        stanza: &Relayed,
        told: &mut Told<S>,
    ) {
        let own = self.bare(user);
        // What the server says for another has nothing of the stanza that it answers.
        let bytes = match *stanza.kind == *kind.as_str() {
            true => stanza.addressed(contact, &own),
            false => Relayed::presence(kind.as_str()).addressed(contact, &own),
        };
        // Who asks is anybody: what they ask must neither fill the roster nor what is told at log-in.
        if kind == Kind::Subscribe && self.is_asked_enough(user, contact) {
            return;
        }
        let Some(effect) = self.item(user, contact).map(|item| item.hear(kind, &bytes)) else { return };
        if effect.passes
            && let Some(account) = self.accounts.get(user)
        {
            let hears = |it: &&super::Resource<S>| match kind {
                Kind::Subscribe => it.is_available(), // §3.1.3
                _ => it.interested || it.is_available(),
            };
            let sessions = account.resources.iter().filter(hears).filter_map(|resource| resource.session);
            told.extend(sessions.map(|session| (session, bytes.clone())));
        }
        self.settle(user, contact, effect.changed, told);
        if effect.approves
            && let Some(name) = self.name_of(contact)
        {
            self.hear_subscription(&name, &own, Kind::Subscribed, stanza, told);
            self.tell_presence(user, contact, told);
        }
        if effect.ends {
            self.tell_ended(user, contact, told); // §3.3.3
        }
    }

    /// Whether another request would be one too many. One that is answered at once needs no room.
    fn is_asked_enough(&self, user: &str, contact: &str) -> bool {
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

    /// A contact is removed: subscriptions end both ways (§2.5.2), and the item is no more.
    pub(super) fn forget_contact(&mut self, user: &str, contact: &str, told: &mut Told<S>) {
        let own = self.bare(user);
        let Some(item) = self.item(user, contact) else { return };
        // What the contact asked for stays asked for.
        let pending = item.pending.take();
        let before = std::mem::replace(item, Item { pending, ..Item::default() });
        if before.listed {
            self.push_item(user, contact, told);
        }
        self.settle(user, contact, false, told);
        if let Some(name) = self.name_of(contact).filter(|name| self.has(name)) {
            let due = [(before.to || before.asked, Kind::Unsubscribe), (before.from, Kind::Unsubscribed)];
            for (_, kind) in due.into_iter().filter(|(is_due, _)| *is_due) {
                let stanza = Relayed::presence(kind.as_str());
                self.hear_subscription(&name, &own, kind, &stanza, told);
            }
        }
        if before.from {
            self.tell_ended(user, contact, told);
        }
    }

    /// Pushes what is listed, drops what means nothing any more, and checks the subscriptions to the account's nodes.
    fn settle(&mut self, user: &str, contact: &str, changed: bool, told: &mut Told<S>) {
        if changed {
            self.push_item(user, contact, told);
        }
        if let Some(account) = self.accounts.get_mut(user)
            && account.roster.get(contact).is_some_and(Item::is_empty)
        {
            account.roster.remove(contact);
        }
        self.check_owned_nodes(user, told);
    }

    /// The requests that an account has not answered (§3.1.3), for a resource that is there now.
    pub(super) fn tell_pending(&self, user: &str, session: S, told: &mut Told<S>) {
        let Some(account) = self.accounts.get(user) else { return };
        let mut left = ASKED_BYTES_MAX;
        for stanza in account.roster.values().filter_map(|item| item.pending.as_ref()) {
            let Some(rest) = left.checked_sub(stanza.len()) else { return };
            left = rest;
            told.push((session, stanza.clone()));
        }
    }
}

#[cfg(test)]
mod tests;
