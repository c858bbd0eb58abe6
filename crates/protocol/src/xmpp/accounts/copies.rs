//! Copies of messages for an account's other resources (XEP-0280): of what one of them sends, and of what one of them
//! receives. A resource gets none of what it was sent itself.

use super::archive::Numbers;
use super::{Accounts, Recipient, Relayed, Told};
use crate::xmpp::namespace as ns;
use crate::xmpp::xml::Element;
use crate::xmpp::xml::write::{push_end, push_start};

#[derive(Debug, Clone, Copy)]
enum Direction {
    Sent,
    Received,
}

/// §6.1: chats, and what else people say to each other; not what its sender keeps private (§7, XEP-0334 §4.3).
pub(super) fn is_copied(name: &str, kind: &str, message: Element<'_>) -> bool {
    let is_of = |child: Element<'_>| {
        matches!(child.namespace(), ns::RECEIPTS | ns::CHAT_STATES) || child.is(ns::CLIENT, "body")
    };
    let is_said = match kind {
        "chat" => true,
        "" | "normal" => message.children().any(is_of),
        _ => false,
    };
    let is_private = message.child(ns::CARBONS, "private").is_some();
    name == "message" && is_said && !is_private && message.child(ns::HINTS, "no-copy").is_none()
}

impl<S: Copy + Eq> Accounts<S> {
    /// Whether a resource wants copies from now on (§4, §5).
    pub fn copy(&mut self, user: &str, session: S, wanted: bool) {
        if let Some(resource) = self.session_mut(user, session) {
            resource.copies = wanted;
        }
    }

    /// A message was told to the sessions from `before` on, or kept: what the others of both accounts get of it.
    pub(super) fn tell_copies(
        &self,
        (user, session): (&str, S),
        to: &Recipient,
        stanza: &Relayed,
        numbers: Numbers,
        before: usize,
        told: &mut Told<S>,
    ) {
        let Some(from) = self.full(user, session).filter(|_| stanza.is_copied) else { return };
        // As it stands in the archive of who gets the copy.
        let bytes = |user: &str, number| stanza.with(&from, &to.asked, &self.stanza_id(user, number));
        let direct: Vec<S> = told[before..].iter().map(|(session, _)| *session).collect();
        let recipient = self.name_of(&to.bare);
        // What an account says to itself it receives.
        if recipient.as_deref() != Some(user) {
            let sent = bytes(user, numbers.sender);
            self.push_copies(user, Direction::Sent, &[session], &sent, told);
        }
        if let Some(name) = recipient.filter(|_| !direct.is_empty()) {
            let received = bytes(&name, numbers.recipient);
            self.push_copies(&name, Direction::Received, &direct, &received, told);
        }
    }

    fn push_copies(&self, user: &str, direction: Direction, without: &[S], bytes: &[u8], told: &mut Told<S>) {
        let Some(account) = self.accounts.get(user) else { return };
        let own = self.bare(user);
        let name = match direction {
            Direction::Sent => "sent",
            Direction::Received => "received",
        };
        for resource in account.resources.iter().filter(|resource| resource.copies) {
            let Some(session) = resource.session.filter(|session| !without.contains(session)) else {
                continue;
            };
            let to = format!("{own}/{}", resource.name);
            let mut out = Vec::with_capacity(bytes.len() + 256);
            // §8: from the account, and a chat whatever it copies.
            let attributes = [("xmlns", ns::CLIENT), ("from", &*own), ("to", &*to), ("type", "chat")];
            push_start(&mut out, "message", &attributes);
            push_start(&mut out, name, &[("xmlns", ns::CARBONS)]);
            push_start(&mut out, "forwarded", &[("xmlns", ns::FORWARD)]);
            out.extend_from_slice(bytes);
            push_end(&mut out, "forwarded");
            push_end(&mut out, name);
            push_end(&mut out, "message");
            told.push((session, out.into()));
        }
    }
}
