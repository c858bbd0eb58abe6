//! Rosters (RFC 6121 §2): contacts of an account, roster pushes and changes by clients.
//!
//! A contact that only requested a subscription is stored as an item too, but not listed until the account
//! acts on it (Appendix A, "None + Pending In").

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{Accounts, Outbox, ROSTER_BYTES_MAX, ROSTER_MAX};
use crate::xmpp::error::{Refusal, StanzaError};
use crate::xmpp::jid::Jid;
use crate::xmpp::namespace as ns;
use crate::xmpp::xml::Element;
use crate::xmpp::xml::write::{element, push_empty, push_text, push_with};

/// Limit of a name, and of a group.
const NAME_BYTES_MAX: usize = 1_023;
const GROUPS_MAX: usize = 100;

/// The state of RFC 6121 Appendix A, and the client's data about the contact.
#[derive(Debug, Default)]
pub(super) struct Item {
    pub(super) listed: bool,
    pub(super) name: Box<str>,
    pub(super) groups: Vec<Box<str>>,
    /// The account receives the contact's presence.
    pub(super) to: bool,
    /// The contact receives the account's presence.
    pub(super) from: bool,
    /// Pending out: `ask='subscribe'`.
    pub(super) asked: bool,
    /// §3.4: pre-approved.
    pub(super) approved: bool,
    /// Pending in: the request as received.
    pub(super) pending: Option<Bytes>,
}

/// A roster set.
#[derive(Debug, PartialEq, Eq)]
pub struct RosterChange {
    pub(super) bare: Box<str>,
    /// `None`: remove the contact.
    pub(super) put: Option<(Box<str>, Vec<Box<str>>)>,
}

impl RosterChange {
    /// `own`: the account's bare address.
    pub(in crate::xmpp) fn parse(query: Element<'_>, own: &str) -> Result<Self, StanzaError> {
        let mut items = query.children().filter(|child| child.is(ns::ROSTER, "item"));
        // §2.1.5, §2.3.3: exactly one.
        let (Some(item), None) = (items.next(), items.next()) else { return Err(StanzaError::BadRequest) };
        let jid = Jid::parse(item.attribute("jid").unwrap_or_default());
        let jid = jid.map_err(|_| StanzaError::BadRequest)?;
        if jid.has_bare(own) {
            return Err(StanzaError::NotAllowed);
        }
        let bare = jid.bare();
        if item.attribute("subscription") == Some("remove") {
            return Ok(Self { bare, put: None });
        }
        let name = item.attribute("name").unwrap_or_default();
        let mut groups: Vec<Box<str>> = Vec::new();
        for group in item.children().filter(|child| child.is(ns::ROSTER, "group")) {
            let group = group.text();
            // §2.3.3: empty, or too long.
            if group.is_empty() || group.len() > NAME_BYTES_MAX || groups.len() == GROUPS_MAX {
                return Err(StanzaError::NotAcceptable);
            }
            if groups.iter().any(|known| **known == *group) {
                return Err(StanzaError::BadRequest);
            }
            groups.push(group.into());
        }
        if name.len() > NAME_BYTES_MAX {
            return Err(StanzaError::NotAcceptable);
        }
        Ok(Self { bare, put: Some((name.into(), groups)) })
    }
}

impl Item {
    /// Whether nothing remains to be stored about the contact.
    pub(super) fn is_empty(&self) -> bool {
        !self.listed && self.pending.is_none()
    }

    fn bytes(&self) -> usize {
        self.name.len() + self.groups.iter().map(|group| group.len()).sum::<usize>()
    }

    fn push(&self, out: &mut Vec<u8>, bare: &str) {
        let subscription = match (self.to, self.from) {
            (false, false) => "none",
            (true, false) => "to",
            (false, true) => "from",
            (true, true) => "both",
        };
        let attributes = [
            ("jid", bare),
            ("name", &*self.name),
            ("subscription", subscription),
            ("ask", if self.asked { "subscribe" } else { "" }),
            ("approved", if self.approved { "true" } else { "" }),
        ];
        push_with(out, "item", &attributes, |out| {
            self.groups.iter().for_each(|group| push_text(out, "group", &[], group));
        });
    }
}

/// Whether a contact may be added, or grow by `more` bytes.
fn has_room(roster: &BTreeMap<Box<str>, Item>, contact: &str, more: usize) -> bool {
    let is_new = !roster.contains_key(contact);
    let held: usize = roster.iter().map(|(bare, item)| bare.len() + item.bytes()).sum();
    let more = more + if is_new { contact.len() } else { 0 };
    // A change that adds no bytes is always accepted.
    (!is_new || roster.len() < ROSTER_MAX) && (more == 0 || held + more <= ROSTER_BYTES_MAX)
}

impl<S: Copy + Eq> Accounts<S> {
    /// The response to a roster get (§2.1.4), after which the session receives roster pushes (§2.2). `None`:
    /// `known` is the current version (§2.6.2).
    pub fn roster(&mut self, user: &str, session: S, known: Option<&str>) -> Option<Bytes> {
        if let Some(resource) = self.session_mut(user, session) {
            resource.interested = true;
        }
        let version = self.roster_version(user);
        if known == Some(&*version) {
            return None;
        }
        // A client that sends no version does not support them.
        let version = if known.is_some() { &*version } else { "" };
        Some(element("query", &[("xmlns", ns::ROSTER), ("ver", version)], |out| {
            let contacts = self.accounts.get(user).into_iter().flat_map(|account| &account.roster);
            contacts.filter(|(_, item)| item.listed).for_each(|(bare, item)| item.push(out, bare));
        }))
    }

    /// Differs from every other state of a roster, also across restarts.
    pub(super) fn roster_version(&self, user: &str) -> String {
        self.counted(user, self.accounts.get(user).map_or(0, |account| account.roster_changes))
    }

    /// A roster set (§2.3 to §2.5). Pushes the change; does not change subscriptions.
    pub fn change_roster(
        &mut self,
        user: &str,
        change: RosterChange,
        outbox: &mut Outbox<S>,
    ) -> Result<(), Refusal> {
        let RosterChange { bare, put } = change;
        let roster = &mut self.accounts.get_mut(user).ok_or(Refusal::Forbidden)?.roster;
        let listed = roster.get(&bare).is_some_and(|item| item.listed);
        match put {
            None if !listed => return Err(Refusal::NotFound), // §2.5.3
            None => self.remove_contact(user, &bare, outbox),
            Some((name, groups)) => {
                let more = name.len() + groups.iter().map(|group| group.len()).sum::<usize>();
                let before = roster.get(&bare).map_or(0, Item::bytes);
                if !has_room(roster, &bare, more.saturating_sub(before)) {
                    return Err(Refusal::Overloaded);
                }
                let item = roster.entry(bare.clone()).or_default();
                (item.listed, item.name, item.groups) = (true, name, groups);
                self.push_item(user, &bare, outbox);
                self.check_owned_nodes(user, outbox);
            }
        }
        Ok(())
    }

    /// The item of a contact, created if there is room.
    pub(super) fn item(&mut self, user: &str, contact: &str) -> Option<&mut Item> {
        let roster = &mut self.accounts.get_mut(user)?.roster;
        if !roster.contains_key(contact) && !has_room(roster, contact, 0) {
            return None;
        }
        Some(roster.entry(contact.into()).or_default())
    }

    /// Pushes a changed item to interested resources (§2.1.6).
    pub(super) fn push_item(&mut self, user: &str, contact: &str, outbox: &mut Outbox<S>) {
        if let Some(account) = self.accounts.get_mut(user) {
            account.roster_changes += 1;
        }
        let version = self.roster_version(user);
        let Some(account) = self.accounts.get(user) else { return };
        let bare = self.bare(user);
        let interested = account.resources.iter().filter(|resource| resource.interested);
        for (resource, session) in interested.filter_map(|it| Some((it, it.session?))) {
            let to = format!("{bare}/{}", resource.name);
            let id = format!("push-{}", outbox.len());
            let attributes =
                [("xmlns", ns::CLIENT), ("type", "set"), ("id", &id), ("from", &bare), ("to", &to)];
            let query = |out: &mut Vec<u8>| match account.roster.get(contact).filter(|item| item.listed) {
                Some(item) => item.push(out, contact),
                None => push_empty(out, "item", &[("jid", contact), ("subscription", "remove")]),
            };
            let bytes = element("iq", &attributes, |out| {
                push_with(out, "query", &[("xmlns", ns::ROSTER), ("ver", &version)], query);
            });
            outbox.push((session, bytes));
        }
    }
}
