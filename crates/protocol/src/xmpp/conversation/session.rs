//! The open session: stanzas by recipient (RFC 6120 §8, §10; RFC 6121), stream management and client state.
//! Every request gets a response; stanzas to other accounts are relayed only for accounts.

use noroshi_types::{NotificationId, Presence};

use super::stanza::{Handler, QUESTION, Stanza};
use super::{
    Context, Conversation, Element, Output, Show, StanzaError, StreamError, ns, push_empty, push_end,
    push_framed, push_start, push_text,
};
use crate::xmpp::accounts::{
    CAPABILITIES, Card, Command, PRESENCE_BYTES_MAX, PushChange, Recipient, Relayed, RosterChange,
};
use crate::xmpp::action::{About, Action};
use crate::xmpp::jid::Jid;
use crate::xmpp::management::Arrived;

/// The version of a roster that never changes (RFC 6121 §2.6).
const EMPTY_ROSTER: &str = "0";

/// The recipient of a stanza.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    /// The client's own account, or no `to`.
    Account,
    Service,
    PubSub,
    /// Another account of this domain.
    Other,
    Foreign,
}

/// Whether it is an XEP-0030 query for the account as a whole.
fn is_disco_query(query: Element<'_>) -> bool {
    matches!(query.namespace(), ns::DISCO_INFO | ns::DISCO_ITEMS)
        && query.name() == "query"
        && query.attribute("node").is_none_or(str::is_empty)
}

impl Conversation {
    pub(super) fn handle_stanza(&mut self, cx: &Context<'_>, root: Element<'_>, out: &mut Output) {
        match (root.namespace(), root.name()) {
            (ns::CLIENT, "iq") => self.handle_addressed(cx, "iq", root, out),
            (ns::CLIENT, "message") => self.handle_addressed(cx, "message", root, out),
            (ns::CLIENT, "presence") => self.handle_addressed(cx, "presence", root, out),
            (ns::SM, "enable") => self.handle_enable(cx, root, out),
            (ns::SM, "r") => self.push_count(out),
            (ns::SM, "a") => self.handle_count(cx, root, out),
            (ns::SM, _) => self.push_sm_failure("unexpected-request", None, out),
            (ns::CSI, "active") => self.set_state(self.show, false, out),
            (ns::CSI, "inactive") => self.set_state(self.show, true, out),
            // RFC 6120 §4.9.3.24
            _ => self.fail(
                cx,
                StreamError::UnsupportedStanzaType,
                "only `iq`, `message` and `presence` exist",
                out,
            ),
        }
    }

    fn handle_addressed(
        &mut self,
        cx: &Context<'_>,
        name: &'static str,
        root: Element<'_>,
        out: &mut Output,
    ) {
        if let Some(management) = self.management.as_mut().filter(|it| it.counts) {
            management.handled = management.handled.wrapping_add(1);
        }
        if !self.is_own(root.attribute("from")) {
            return self.fail(
                cx,
                StreamError::InvalidFrom,
                "`from` is not this connection's address; it may be omitted",
                out,
            ); // §8.1.2.1
        }
        let asked = root.attribute("to").unwrap_or_default();
        let [id, kind] = ["id", "type"].map(|name| root.attribute(name).unwrap_or_default());
        let stanza = Stanza { name, kind, id, asked };
        let to = match asked {
            "" => None,
            text => match Jid::parse(text) {
                Ok(jid) => Some(jid),
                Err(_) if root.attribute("type") == Some("error") => return,
                // §8.3.3.8; the error is sent from the account, since the address does not exist.
                Err(_) => {
                    let stanza = Stanza { asked: "", ..stanza };
                    return self.on(cx, stanza, out).push_error(StanzaError::JidMalformed, "");
                }
            },
        };
        let mut target = self.target(cx, to.as_ref());
        // A resource of the account is a possible recipient, including the own one.
        if self.account && target == Target::Account && to.as_ref().is_some_and(|to| to.resource.is_some()) {
            target = Target::Other;
        }
        let mut handler = self.on(cx, stanza, out);
        match name {
            "iq" => handler.handle_iq(root, (target, to)),
            "message" => handler.handle_message(root, (target, to)),
            _ => handler.handle_presence(root, to),
        }
    }

    /// Whether `from` is missing or the client's own address, with or without resource.
    fn is_own(&self, from: Option<&str>) -> bool {
        let (Some(from), Some(identity)) = (from, &self.identity) else { return true };
        let own = Jid::parse(from).ok().filter(|jid| jid.has_bare(identity.bare()));
        own.is_some_and(|jid| jid.resource.is_none_or(|it| identity.jid[identity.bare_len + 1..] == *it))
    }

    fn target(&self, cx: &Context<'_>, to: Option<&Jid<'_>>) -> Target {
        let Some(to) = to else { return Target::Account };
        if to.has_bare(self.bare()) {
            Target::Account
        } else if to.local.is_none() && *to.domain == *cx.config.domain {
            Target::Service
        } else if to.local.is_none() && *to.domain == *cx.config.pubsub {
            Target::PubSub
        } else if *to.domain == *cx.config.domain {
            Target::Other
        } else {
            Target::Foreign
        }
    }

    fn set_state(&mut self, show: Show, inactive: bool, out: &mut Output) {
        let before = self.show.presence(self.inactive);
        (self.show, self.inactive) = (show, inactive);
        let now = show.presence(inactive);
        if now != before {
            out.actions.push(Action::Presence(now));
        }
    }

    /// Handles the answer to a ping: the client has read everything before it.
    fn handle_answer(&mut self, cx: &Context<'_>, count: u32, out: &mut Output) {
        let Some(management) = self.management.as_mut().filter(|it| !it.counts && it.was_asked(count)) else {
            return;
        };
        let arrived = management.acknowledge(count).unwrap_or_default();
        if management.is_spent() {
            self.management = None;
        }
        self.report_arrived(cx, arrived, out);
    }

    fn report_arrived(&mut self, cx: &Context<'_>, arrived: Arrived, out: &mut Output) {
        if arrived.more {
            self.ask_to_acknowledge(cx.config, out);
        }
        let left = self.management.as_ref().map_or(0, |management| management.unacknowledged());
        let made_room = left < cx.config.unacked_max && left + arrived.count >= cx.config.unacked_max;
        if made_room || !arrived.ids.is_empty() {
            out.actions.push(Action::Acknowledge(arrived.ids));
        }
    }

    /// XEP-0198 §4.
    fn push_count(&mut self, out: &mut Output) {
        match self.management.as_ref().filter(|it| it.counts) {
            Some(management) => push_framed(&mut out.bytes, self.framing, |out| {
                push_empty(out, "a", &[("xmlns", ns::SM), ("h", &management.handled.to_string())]);
            }),
            None => self.push_sm_failure("unexpected-request", None, out),
        }
    }

    fn handle_count(&mut self, cx: &Context<'_>, answer: Element<'_>, out: &mut Output) {
        let Some(management) = self.management.as_mut().filter(|it| it.counts) else {
            return self.push_sm_failure("unexpected-request", None, out);
        };
        let Some(count) = answer.attribute("h").and_then(|count| count.parse().ok()) else {
            return self.fail(cx, StreamError::BadFormat, "`h` must be a count of stanzas", out);
        };
        match management.acknowledge(count) {
            Ok(arrived) => self.report_arrived(cx, arrived, out),
            Err(high) => self.fail_count(cx, count, high.sent, out),
        }
    }

    /// The client's presence for its session.
    pub fn presence(&self) -> Presence {
        self.show.presence(self.inactive)
    }
}

impl Handler<'_> {
    fn handle_iq(&mut self, iq: Element<'_>, (target, to): (Target, Option<Jid<'_>>)) {
        let kind = self.stanza.kind;
        if matches!(kind, "result" | "error") {
            let mine = self.stanza.id.strip_prefix(QUESTION).and_then(|count| count.parse().ok());
            if self.conversation.account && target == Target::Service && self.stanza.id == CAPABILITIES {
                return self.conversation.handle_capabilities(iq, self.out);
            }
            return match (mine, target, to) {
                (Some(count), Target::Account | Target::Service, _) => {
                    self.conversation.handle_answer(self.cx, count, self.out)
                }
                (_, Target::Other, Some(to)) if self.conversation.account => self.relay(iq, &to),
                _ => {}
            };
        }
        let mut children = iq.children();
        let (child, more) = (children.next(), children.next());
        // §8.2.3: an id, a type, and exactly one child.
        let (Some(child), None, "get" | "set") = (child, more, kind) else {
            return self.push_error(StanzaError::BadRequest, "");
        };
        if self.stanza.id.is_empty() {
            return self.push_error(StanzaError::BadRequest, "");
        }
        match (target, to) {
            (Target::Account, _) => self.handle_account_iq(child),
            (Target::Service, _) => self.handle_service_iq(child),
            (Target::PubSub, _) => self.handle_pubsub_iq(iq),
            // RFC 6121 §2.1.5
            (Target::Other, Some(to))
                if self.conversation.account && to.resource.is_none() && child.is(ns::ROSTER, "query") =>
            {
                self.push_error(StanzaError::Forbidden, "");
            }
            (Target::Other, Some(to))
                if self.conversation.account && to.resource.is_none() && is_disco_query(child) =>
            {
                let is_info = child.namespace() == ns::DISCO_INFO;
                let namespace = if is_info { ns::DISCO_INFO } else { ns::DISCO_ITEMS };
                let request = self.stanza.request(About::Account { namespace });
                let command = Command::Describe { owner: to.bare() };
                self.out.actions.push(Action::Account { command, request: Some(request) });
            }
            (Target::Other, Some(to))
                if self.conversation.account && to.resource.is_none() && child.is(ns::PUBSUB, "pubsub") =>
            {
                self.handle_personal(Some(&to.bare()), child);
            }
            (Target::Other, Some(to))
                if self.conversation.account && to.resource.is_none() && child.is(ns::CARD, "vCard") =>
            {
                match kind {
                    "get" => self.ask(Command::Card { owner: Some(to.bare()) }),
                    // XEP-0054 §3.2: only the account itself may change its vCard.
                    _ => self.push_error(StanzaError::Forbidden, ""),
                }
            }
            (Target::Other, Some(to)) if self.conversation.account => self.relay(iq, &to),
            // XEP-0030 §8: devices have no contacts.
            (Target::Other, Some(to))
                if to.resource.is_none() && is_disco_query(child) && child.namespace() == ns::DISCO_ITEMS =>
            {
                self.push_no_items();
            }
            (Target::Other, _) => self.push_error(StanzaError::ServiceUnavailable, ""),
            (Target::Foreign, _) => self.push_error(StanzaError::RemoteServerNotFound, ""),
        }
    }

    fn handle_account_iq(&mut self, child: Element<'_>) {
        match (child.namespace(), child.name(), self.stanza.kind) {
            (ns::PUBSUB, "pubsub", _) if self.conversation.account => {
                self.handle_personal(None, child);
            }
            (ns::ROSTER, "query", "get") if self.conversation.account => {
                self.ask(Command::Roster { known: child.attribute("ver").map(Into::into) });
            }
            (ns::ROSTER, "query", _) if self.conversation.account => {
                let change = RosterChange::parse(child, self.conversation.bare());
                self.try_ask(change.map(Command::ChangeRoster));
            }
            (ns::CARD, "vCard", "get") if self.conversation.account => {
                self.ask(Command::Card { owner: None });
            }
            (ns::CARD, "vCard", _) if self.conversation.account => {
                self.try_ask(Card::new(child).map(Command::PutCard).ok_or(StanzaError::NotAcceptable));
            }
            // RFC 6121 §2.1.4: an empty roster that cannot be changed.
            (ns::ROSTER, "query", "get") => self.push_result(|out| {
                let (known, version) = (child.attribute("ver"), EMPTY_ROSTER);
                if known != Some(version) {
                    let version = if known.is_some() { version } else { "" };
                    push_empty(out, "query", &[("xmlns", ns::ROSTER), ("ver", version)]);
                }
            }),
            (ns::ROSTER, "query", _) => self.push_error(StanzaError::NotAllowed, ""),
            (ns::SESSION, "session", "set") => self.push_result(|_| {}),
            // RFC 6120 §7.6.2.2: one resource per stream.
            (ns::BIND, "bind", "set") => self.push_error(StanzaError::NotAllowed, ""),
            (ns::REGISTER, "query", _) if self.cx.config.registration => {
                self.handle_account_registration(child);
            }
            (ns::PING, "ping", "get") => self.push_result(|_| {}),
            (ns::DISCO_INFO | ns::DISCO_ITEMS, "query", "get") => {
                self.handle_disco(&super::disco::ACCOUNT, child);
            }
            (ns::ARCHIVE, "query", _) => self.handle_archive_query(child),
            (ns::ARCHIVE, "prefs", _) => self.handle_archive_rules(child),
            (ns::PUSH, "enable" | "disable", "set") if self.conversation.account => {
                let own = self.conversation.bare();
                let change = PushChange::parse(child, (&self.cx.config.domain, &self.cx.config.pubsub, own));
                self.try_ask(change.map(Command::ChangePush));
            }
            (ns::CARBONS, name @ ("enable" | "disable"), "set") if self.conversation.account => {
                self.ask(Command::Copy { wanted: name == "enable" });
            }
            // §8.4, including carbons (XEP-0280): a device has only one session.
            _ => self.push_error(StanzaError::ServiceUnavailable, ""),
        }
    }

    fn handle_service_iq(&mut self, child: Element<'_>) {
        match (child.namespace(), child.name(), self.stanza.kind) {
            (ns::PING, "ping", "get") => self.push_result(|_| {}),
            (ns::VERSION, "query", "get") => self.push_version(),
            // RFC 3921 §3 sends it to the server.
            (ns::SESSION, "session", "set") => self.push_result(|_| {}),
            (ns::DISCO_INFO | ns::DISCO_ITEMS, "query", "get") => {
                self.handle_disco(&super::disco::SERVICE, child);
            }
            (ns::REGISTER, "query", _) if self.cx.config.registration => {
                self.handle_account_registration(child);
            }
            _ => self.push_error(StanzaError::ServiceUnavailable, ""),
        }
    }

    fn handle_message(&mut self, message: Element<'_>, (target, to): (Target, Option<Jid<'_>>)) {
        if matches!(target, Target::Service | Target::PubSub | Target::Account) {
            let received = message.children().filter(|child| child.is(ns::RECEIPTS, "received"));
            let ids = received.filter_map(|child| NotificationId::parse(child.attribute("id")?).ok());
            let ids: Vec<_> = ids.collect();
            if !ids.is_empty() {
                if let Some(management) = &mut self.conversation.management {
                    ids.iter().for_each(|id| management.acknowledge_one(*id));
                }
                return self.out.actions.push(Action::Acknowledge(ids));
            }
        }
        if target == Target::PubSub
            && message.attribute("type") != Some("error")
            && self.handle_decision(message)
        {
            return;
        }
        match (message.attribute("type"), target, to) {
            // RFC 6120 §8.3.1: errors are never answered. RFC 6121 §8.5.1: nor are undeliverable headlines.
            (Some("error" | "headline"), target, _)
                if !matches!(target, Target::Other | Target::Account) || !self.conversation.account => {}
            (_, Target::Foreign, _) => {
                self.push_error(StanzaError::RemoteServerNotFound, "");
            }
            (_, Target::Other | Target::Account, to) if self.conversation.account => {
                let own = self.conversation.bare().to_owned();
                let to = to.or_else(|| Jid::parse(&own).ok());
                to.into_iter().for_each(|to| self.relay(message, &to));
            }
            _ => self.push_error(StanzaError::ServiceUnavailable, ""),
        }
    }

    fn handle_presence(&mut self, presence: Element<'_>, to: Option<Jid<'_>>) {
        if let Some(to) = to {
            // RFC 6121 §3.1.3, §4.6: presence for unknown accounts is ignored.
            return self.direct_presence(presence, &to);
        }
        match presence.attribute("type") {
            None => match Show::parse(presence) {
                Some(show) => {
                    self.conversation.set_state(show, self.conversation.inactive, self.out);
                    match self.conversation.account {
                        true => self.announce(presence),
                        false => self.echo_presence(presence),
                    }
                }
                None => self.push_error(StanzaError::BadRequest, ""),
            },
            Some("unavailable") => {
                self.conversation.set_state(Show::Unavailable, self.conversation.inactive, self.out);
                if self.conversation.account {
                    self.announce(presence);
                }
            }
            Some("error" | "probe" | "subscribe" | "subscribed" | "unsubscribe" | "unsubscribed") => {}
            Some(_) => self.push_error(StanzaError::BadRequest, ""),
        }
    }

    fn direct_presence(&mut self, presence: Element<'_>, to: &Jid<'_>) {
        match presence.attribute("type") {
            None | Some("unavailable" | "probe" | "error") => {}
            Some("subscribe" | "subscribed" | "unsubscribe" | "unsubscribed") => {}
            Some(_) => return self.push_error(StanzaError::BadRequest, ""), // §4.7.1
        }
        if self.conversation.account {
            self.relay(presence, to);
        }
    }

    /// RFC 6121 §4.2.2: presence is sent to all of the account's resources, including the sender.
    fn echo_presence(&mut self, presence: Element<'_>) {
        let (client, own) =
            (self.conversation.framing.client(), self.conversation.address().unwrap_or_default().to_owned());
        self.conversation.push_stanza(self.cx, self.out, |out| {
            let attributes = [("xmlns", client), ("from", &*own), ("to", &own), ("id", self.stanza.id)];
            push_start(out, "presence", &attributes);
            for name in ["show", "status", "priority"] {
                if let Some(child) = presence.child(ns::CLIENT, name) {
                    push_text(out, name, &[], &child.text());
                }
            }
            push_end(out, "presence");
        });
    }

    fn announce(&mut self, presence: Element<'_>) {
        if let Some(presence) = self.relayed(presence) {
            let command = Command::Announce(presence);
            self.out.actions.push(Action::Account { command, request: None });
        }
    }

    /// Builds a stanza for others. `None` if it is too large in serialized form; the sender then gets an
    /// error.
    fn relayed(&mut self, root: Element<'_>) -> Option<Relayed> {
        let bytes_max = self.cx.config.xml.element_bytes_max;
        let is_presence = self.stanza.name == "presence";
        let bytes_max = if is_presence { bytes_max.min(PRESENCE_BYTES_MAX) } else { bytes_max };
        let relayed = Relayed::new(self.stanza.name, root, bytes_max);
        // RFC 6120 §8.3.1: errors and results are never answered.
        if relayed.is_none() && !matches!(root.attribute("type"), Some("result" | "error")) {
            self.push_error(StanzaError::PolicyViolation, "");
        }
        relayed
    }

    /// Relays a stanza.
    fn relay(&mut self, root: Element<'_>, to: &Jid<'_>) {
        let Some(relayed) = self.relayed(root) else { return };
        let kind = root.attribute("type").unwrap_or_default();
        let is_answered = self.stanza.name != "presence" && !matches!(kind, "result" | "error" | "headline");
        let bare = to.bare();
        let asked = if self.stanza.asked.is_empty() { bare.clone() } else { self.stanza.asked.into() };
        let to = Recipient { asked, bare, resource: to.resource.map(Into::into) };
        let command = Command::Relay { to, stanza: relayed };
        let request = is_answered.then(|| self.request());
        self.out.actions.push(Action::Account { command, request });
    }
}
