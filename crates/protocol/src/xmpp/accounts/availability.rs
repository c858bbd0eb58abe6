//! Presence (RFC 6121 §4): a resource's presence is sent to authorized contacts and the account's other
//! resources. After its initial presence a resource receives the presence of others, offline messages and
//! pending subscription requests.

use super::subscription::Kind;
use super::{Accounts, DIRECTED_MAX, Outbox, Recipient, Relayed, Resource};
use crate::xmpp::jid;

impl<S: Copy + Eq> Accounts<S> {
    /// Broadcasts presence without a type or `unavailable`.
    pub fn announce(&mut self, user: &str, session: S, presence: Relayed, outbox: &mut Outbox<S>) {
        let Some(from) = self.full(user, session) else { return };
        let is_available = presence.kind.is_empty();
        let priority = presence.priority;
        let Some(resource) = self.session_mut(user, session) else { return };
        let before = resource.presence.take();
        if is_available {
            resource.presence = Some(presence.clone());
            self.broadcast(user, &from, &presence, outbox);
            self.ask_capabilities(user, session, &presence, outbox);
        } else {
            let directed = std::mem::take(&mut resource.directed);
            if before.is_some() {
                self.broadcast(user, &from, &presence, outbox); // §4.5.2
            }
            // §4.6.3: also to addresses outside the roster.
            for address in directed {
                let (bare, resource) = jid::split(&address);
                if before.is_none() || !self.is_visible_to(user, bare) {
                    self.deliver_presence(&from, bare, resource, &presence, outbox);
                }
            }
            return;
        }
        if before.is_none() {
            self.welcome(user, session, outbox);
        }
        if priority >= 0 && before.is_none_or(|before| before.priority < 0) {
            self.send_offline_messages(user, session, outbox);
            self.send_approval_requests(user, session, outbox);
        }
    }

    /// To contacts and the account's own resources (§4.2.2, §4.4.2).
    fn broadcast(&self, user: &str, from: &str, presence: &Relayed, outbox: &mut Outbox<S>) {
        let Some(account) = self.accounts.get(user) else { return };
        let own = self.bare(user);
        self.deliver_presence(from, &own, None, presence, outbox);
        for (contact, _) in account.roster.iter().filter(|(_, item)| item.from) {
            self.deliver_presence(from, contact, None, presence, outbox);
        }
    }

    /// Sends what a resource receives after its initial presence.
    fn welcome(&self, user: &str, session: S, outbox: &mut Outbox<S>) {
        let Some(account) = self.accounts.get(user) else { return };
        let own = self.bare(user);
        let others = self.available(user).filter(|other| other.session != Some(session));
        others.for_each(|other| self.push_presence(user, other, &own, session, outbox));
        for (contact, _) in account.roster.iter().filter(|(_, item)| item.to) {
            self.probe(&own, contact, None, session, outbox);
        }
        self.send_pending_requests(user, session, outbox);
    }

    /// Handles presence with an address: directed presence, a probe, or a subscription stanza.
    pub fn direct(
        &mut self,
        user: &str,
        session: S,
        to: &Recipient,
        presence: &Relayed,
        outbox: &mut Outbox<S>,
    ) {
        if let Some(kind) = Kind::named(&presence.kind) {
            return self.send_subscription(user, &to.bare, kind, presence, outbox);
        }
        let Some(from) = self.full(user, session) else { return };
        let resource = to.resource.as_deref();
        match &*presence.kind {
            "probe" => {
                let own = self.bare(user);
                self.probe(&own, &to.bare, resource, session, outbox);
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
                self.deliver_presence(&from, &to.bare, resource, presence, outbox);
            }
        }
    }

    /// §8.5.2.1.2, §8.5.3.1: to all available resources, or to the addressed one.
    fn deliver_presence(
        &self,
        from: &str,
        bare: &str,
        resource: Option<&str>,
        presence: &Relayed,
        outbox: &mut Outbox<S>,
    ) {
        let account = self.name_of(bare).and_then(|name| self.accounts.get(&*name));
        let Some(account) = account else { return };
        let to = resource.map(|resource| format!("{bare}/{resource}"));
        let bytes = presence.addressed(from, to.as_deref().unwrap_or(bare));
        let meant = |it: &&Resource<S>| resource.map_or(it.is_available(), |name| *it.name == *name);
        let sessions = account.resources.iter().filter(meant).filter_map(|it| it.session);
        outbox.extend(sessions.map(|session| (session, bytes.clone())));
    }

    /// §4.3.2: sends the presence of a contact that `own` may see to one of its sessions.
    fn probe(&self, own: &str, contact: &str, resource: Option<&str>, session: S, outbox: &mut Outbox<S>) {
        let Some(name) = self.name_of(contact) else { return };
        if *own != *contact && !self.is_visible_to(&name, own) {
            outbox.push((session, Relayed::presence("unsubscribed").addressed(contact, own)));
            return;
        }
        let before = outbox.len();
        let meant = self.available(&name).filter(|it| resource.is_none_or(|resource| *it.name == *resource));
        meant.for_each(|it| self.push_presence(&name, it, own, session, outbox));
        if outbox.len() == before {
            outbox.push((session, Relayed::unavailable().addressed(contact, own)));
        }
    }

    fn push_presence(
        &self,
        user: &str,
        resource: &Resource<S>,
        to: &str,
        session: S,
        outbox: &mut Outbox<S>,
    ) {
        let Some(presence) = &resource.presence else { return };
        let from = format!("{}/{}", self.bare(user), resource.name);
        outbox.push((session, presence.addressed(&from, to)));
    }

    /// Whether an account may learn that `owner` exists (XEP-0030 §8).
    pub fn knows(&self, user: &str, owner: &str) -> bool {
        let own = self.bare(user);
        *own == *owner || self.name_of(owner).is_some_and(|name| self.is_visible_to(&name, &own))
    }

    /// Whether a contact receives an account's presence.
    pub(super) fn is_visible_to(&self, user: &str, contact: &str) -> bool {
        let item = self.accounts.get(user).and_then(|account| account.roster.get(contact));
        item.is_some_and(|item| item.from)
    }

    /// §3.1.5: sends presence to a newly approved contact.
    pub(super) fn send_presence_to_contact(&self, user: &str, contact: &str, outbox: &mut Outbox<S>) {
        self.send_presence_of_each(user, contact, None, outbox);
    }

    /// §3.2.2, §3.3.3: sends unavailable presence when the subscription ends.
    pub(super) fn send_unavailable_to_contact(&self, user: &str, contact: &str, outbox: &mut Outbox<S>) {
        self.send_presence_of_each(user, contact, Some(&Relayed::unavailable()), outbox);
    }

    fn send_presence_of_each(
        &self,
        user: &str,
        contact: &str,
        instead: Option<&Relayed>,
        outbox: &mut Outbox<S>,
    ) {
        let own = self.bare(user);
        for resource in self.available(user) {
            if let Some(presence) = instead.or(resource.presence.as_ref()) {
                let from = format!("{own}/{}", resource.name);
                self.deliver_presence(&from, contact, None, presence, outbox);
            }
        }
    }
}
