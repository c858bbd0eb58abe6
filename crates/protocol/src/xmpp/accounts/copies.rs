//! Message Carbons (XEP-0280): copies for an account's other resources of messages that one of them sends or
//! receives. A resource gets no copy of a message that it received itself.

use super::archive::Numbers;
use super::{Accounts, Outbox, Recipient, Relayed};
use crate::xmpp::namespace as ns;
use crate::xmpp::xml::write::{push_end, push_start};

noroshi_types::names! {
    #[derive(Debug, Clone, Copy)]
    enum Direction {
        Sent => "sent",
        Received => "received",
    }
}

impl<S: Copy + Eq> Accounts<S> {
    /// Enables or disables carbons for a resource (§4, §5).
    pub fn copy(&mut self, user: &str, session: S, wanted: bool) {
        if let Some(resource) = self.session_mut(user, session) {
            resource.copies = wanted;
        }
    }

    /// Sends carbons of a message that was sent to the sessions from `before` on, or stored, to the other
    /// resources of both accounts.
    pub(super) fn send_carbons(
        &self,
        (user, session): (&str, S),
        to: &Recipient,
        stanza: &Relayed,
        numbers: Numbers,
        before: usize,
        outbox: &mut Outbox<S>,
    ) {
        let Some(from) = self.full(user, session).filter(|_| stanza.is_carbon_copied) else { return };
        // With the id in the archive of the carbon's recipient.
        let bytes = |user: &str, number| stanza.with(&from, &to.asked, &self.stanza_id(user, number));
        let direct: Vec<S> = outbox[before..].iter().map(|(session, _)| *session).collect();
        let recipient = self.name_of(&to.bare);
        // A message to oneself is a received one.
        if recipient.as_deref() != Some(user) {
            let sent = bytes(user, numbers.sender);
            self.push_carbons(user, Direction::Sent, &[session], &sent, outbox);
        }
        if let Some(name) = recipient.filter(|_| !direct.is_empty()) {
            let received = bytes(&name, numbers.recipient);
            self.push_carbons(&name, Direction::Received, &direct, &received, outbox);
        }
    }

    fn push_carbons(
        &self,
        user: &str,
        direction: Direction,
        without: &[S],
        bytes: &[u8],
        outbox: &mut Outbox<S>,
    ) {
        let Some(account) = self.accounts.get(user) else { return };
        let own = self.bare(user);
        let name = direction.as_str();
        for resource in account.resources.iter().filter(|resource| resource.copies) {
            let Some(session) = resource.session.filter(|session| !without.contains(session)) else {
                continue;
            };
            let to = format!("{own}/{}", resource.name);
            let mut out = Vec::with_capacity(bytes.len() + 256);
            // §8: from the account, and of type chat whatever the copied type.
            let attributes = [("xmlns", ns::CLIENT), ("from", &*own), ("to", &*to), ("type", "chat")];
            push_start(&mut out, "message", &attributes);
            push_start(&mut out, name, &[("xmlns", ns::CARBONS)]);
            push_start(&mut out, "forwarded", &[("xmlns", ns::FORWARD)]);
            out.extend_from_slice(bytes);
            push_end(&mut out, "forwarded");
            push_end(&mut out, name);
            push_end(&mut out, "message");
            outbox.push((session, out.into()));
        }
    }
}
