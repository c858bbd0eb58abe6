//! Who is there (RFC 6121 §4): what a resource announces goes to the contacts that may know it and to the account's
//! other resources; with its first presence it learns who else is there, what waited for it and who asked for
//! a subscription.

use super::subscription::Kind;
use super::{Accounts, DIRECTED_MAX, Recipient, Relayed, Resource, Told};
use crate::xmpp::jid;

impl<S: Copy + Eq> Accounts<S> {
    /// Presence for all who may know it: without a type, or `unavailable`.
    pub fn announce(&mut self, user: &str, session: S, presence: Relayed, told: &mut Told<S>) {
        let Some(from) = self.full(user, session) else { return };
        let is_available = presence.kind.is_empty();
        let priority = presence.priority;
        let Some(resource) = self.session_mut(user, session) else { return };
        let before = resource.presence.take();
        if is_available {
            resource.presence = Some(presence.clone());
            self.broadcast(user, &from, &presence, told);
            self.ask_capabilities(user, session, &presence, told);
        } else {
            let directed = std::mem::take(&mut resource.directed);
            if before.is_some() {
                self.broadcast(user, &from, &presence, told); // §4.5.2
            }
            // §4.6.3: and to whom nothing of that went.
            for address in directed {
                let (bare, resource) = jid::split(&address);
                if before.is_none() || !self.is_heard_by(user, bare) {
                    self.deliver_presence(&from, bare, resource, &presence, told);
                }
            }
            return;
        }
        if before.is_none() {
            self.welcome(user, session, told);
        }
        if priority >= 0 && before.is_none_or(|before| before.priority < 0) {
            self.tell_kept(user, session, told);
            self.tell_approvals(user, session, told);
        }
    }

    /// To the contacts and to the account's own resources (§4.2.2, §4.4.2).
    fn broadcast(&self, user: &str, from: &str, presence: &Relayed, told: &mut Told<S>) {
        let Some(account) = self.accounts.get(user) else { return };
        let own = self.bare(user);
        self.deliver_presence(from, &own, None, presence, told);
        for (contact, _) in account.roster.iter().filter(|(_, item)| item.from) {
            self.deliver_presence(from, contact, None, presence, told);
        }
    }

    /// What a resource gets with its first presence.
    fn welcome(&self, user: &str, session: S, told: &mut Told<S>) {
        let Some(account) = self.accounts.get(user) else { return };
        let own = self.bare(user);
        let others = self.available(user).filter(|other| other.session != Some(session));
        others.for_each(|other| self.push_presence(user, other, &own, session, told));
        for (contact, _) in account.roster.iter().filter(|(_, item)| item.to) {
            self.probe(&own, contact, None, session, told);
        }
        self.tell_pending(user, session, told);
    }

    /// Presence with an address: of one resource to whom it likes, a probe, or one of the subscription's.
    pub fn direct(&mut self, user: &str, session: S, to: &Recipient, presence: &Relayed, told: &mut Told<S>) {
        if let Some(kind) = Kind::parse(&presence.kind) {
            return self.say_subscription(user, &to.bare, kind, presence, told);
        }
        let Some(from) = self.full(user, session) else { return };
        let resource = to.resource.as_deref();
        match &*presence.kind {
            "probe" => {
                let own = self.bare(user);
                self.probe(&own, &to.bare, resource, session, told);
            }
            kind => {
                let address = to.address();
                if let Some(own) = self.session_mut(user, session) {
                    match kind {
                        "" if own.directed.len() < DIRECTED_MAX => drop(own.directed.insert(address)),
                        "unavailable" => drop(own.directed.remove(&address)),
                        _ => {}
                    }
                }
                self.deliver_presence(&from, &to.bare, resource, presence, told);
            }
        }
    }

    /// §8.5.2.1.2, §8.5.3.1: to all that are available, or to the one that is named.
    fn deliver_presence(
        &self,
        from: &str,
        bare: &str,
        resource: Option<&str>,
        presence: &Relayed,
        told: &mut Told<S>,
    ) {
        let account = self.name_of(bare).and_then(|name| self.accounts.get(&*name));
        let Some(account) = account else { return };
        let to = resource.map(|resource| format!("{bare}/{resource}"));
        let bytes = presence.addressed(from, to.as_deref().unwrap_or(bare));
        let meant = |it: &&Resource<S>| resource.map_or(it.is_available(), |name| *it.name == *name);
        let sessions = account.resources.iter().filter(meant).filter_map(|it| it.session);
        told.extend(sessions.map(|session| (session, bytes.clone())));
    }

    /// §4.3.2: what `own` may know of a contact, told to one of its sessions.
    fn probe(&self, own: &str, contact: &str, resource: Option<&str>, session: S, told: &mut Told<S>) {
        let Some(name) = self.name_of(contact) else { return };
        if *own != *contact && !self.is_heard_by(&name, own) {
            told.push((session, Relayed::presence("unsubscribed").addressed(contact, own)));
            return;
        }
        let before = told.len();
        let meant = self.available(&name).filter(|it| resource.is_none_or(|resource| *it.name == *resource));
        meant.for_each(|it| self.push_presence(&name, it, own, session, told));
        if told.len() == before {
            told.push((session, Relayed::unavailable().addressed(contact, own)));
        }
    }

    fn push_presence(&self, user: &str, resource: &Resource<S>, to: &str, session: S, told: &mut Told<S>) {
        let Some(presence) = &resource.presence else { return };
        let from = format!("{}/{}", self.bare(user), resource.name);
        told.push((session, presence.addressed(&from, to)));
    }

    /// Whether an account may know that there is one at this address (XEP-0030 §8).
    pub fn knows(&self, user: &str, owner: &str) -> bool {
        let own = self.bare(user);
        *own == *owner || self.name_of(owner).is_some_and(|name| self.is_heard_by(&name, &own))
    }

    /// Whether a contact gets an account's presence.
    pub(super) fn is_heard_by(&self, user: &str, contact: &str) -> bool {
        let item = self.accounts.get(user).and_then(|account| account.roster.get(contact));
        item.is_some_and(|item| item.from)
    }

    /// §3.1.5: a contact that was approved learns who is there.
    pub(super) fn tell_presence(&self, user: &str, contact: &str, told: &mut Told<S>) {
        self.tell_each(user, contact, None, told);
    }

    /// §3.2.2, §3.3.3: and that nobody is, when that is over.
    pub(super) fn tell_ended(&self, user: &str, contact: &str, told: &mut Told<S>) {
        self.tell_each(user, contact, Some(&Relayed::unavailable()), told);
    }

    fn tell_each(&self, user: &str, contact: &str, instead: Option<&Relayed>, told: &mut Told<S>) {
        let own = self.bare(user);
        for resource in self.available(user) {
            if let Some(presence) = instead.or(resource.presence.as_ref()) {
                let from = format!("{own}/{}", resource.name);
                self.deliver_presence(&from, contact, None, presence, told);
            }
        }
    }
}
