//! The open session: stanzas by recipient (RFC 6120 §8, §10; RFC 6121), stream management and client state.
//! Every request gets a response; stanzas to other accounts are relayed only for accounts.

use noroshi_types::{CloseReason, NotificationId, Presence};

use super::stanza::{QUESTION, Stanza};
use super::{
    Context, Conversation, Element, Output, Show, StanzaError, StreamError, ns, push_empty, push_end,
    push_framed, push_start, push_text,
};
use crate::xmpp::accounts::{
    CAPABILITIES, Card, PRESENCE_BYTES_MAX, PushChange, Recipient, Relayed, RosterChange,
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
                CloseReason::BadMessage,
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
                CloseReason::BadMessage,
                out,
            ); // §8.1.2.1
        }
        let asked = root.attribute("to").unwrap_or_default();
        let stanza = Stanza { name, id: root.attribute("id").unwrap_or_default(), asked };
        let to = match asked {
            "" => None,
            text => match Jid::parse(text) {
                Ok(jid) => Some(jid),
                Err(_) if root.attribute("type") == Some("error") => return,
                // §8.3.3.8; the error is sent from the account, since the address does not exist.
                Err(_) => {
                    let stanza = Stanza { asked: "", ..stanza };
                    return self.push_error(cx, stanza, StanzaError::JidMalformed, "", out);
                }
            },
        };
        let mut target = self.target(cx, to.as_ref());
        // A resource of the account is a possible recipient, including the own one.
        if self.account && target == Target::Account && to.as_ref().is_some_and(|to| to.resource.is_some()) {
            target = Target::Other;
        }
        match name {
            "iq" => self.handle_iq(cx, stanza, root, (target, to), out),
            "message" => self.handle_message(cx, stanza, root, (target, to), out),
            _ => self.handle_presence(cx, stanza, root, to, out),
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
        let bare = self.identity.as_ref().map_or("", |identity| identity.bare());
        if to.has_bare(bare) {
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

    fn handle_iq(
        &mut self,
        cx: &Context<'_>,
        stanza: Stanza<'_>,
        iq: Element<'_>,
        (target, to): (Target, Option<Jid<'_>>),
        out: &mut Output,
    ) {
        let kind = iq.attribute("type").unwrap_or_default();
        if matches!(kind, "result" | "error") {
            let mine = stanza.id.strip_prefix(QUESTION).and_then(|count| count.parse().ok());
            if self.account && target == Target::Service && stanza.id == CAPABILITIES {
                return self.handle_capabilities(iq, out);
            }
            return match (mine, target, to) {
                (Some(count), Target::Account | Target::Service, _) => self.handle_answer(cx, count, out),
                (_, Target::Other, Some(to)) if self.account => self.relay(cx, stanza, iq, &to, out),
                _ => {}
            };
        }
        let mut children = iq.children();
        let (child, more) = (children.next(), children.next());
        // §8.2.3: an id, a type, and exactly one child.
        let (Some(child), None, "get" | "set") = (child, more, kind) else {
            return self.push_error(cx, stanza, StanzaError::BadRequest, "", out);
        };
        if stanza.id.is_empty() {
            return self.push_error(cx, stanza, StanzaError::BadRequest, "", out);
        }
        match (target, to) {
            (Target::Account, _) => self.handle_account_iq(cx, stanza, kind, child, out),
            (Target::Service, _) => self.handle_service_iq(cx, stanza, kind, child, out),
            (Target::PubSub, _) => self.handle_pubsub_iq(cx, stanza, kind, iq, out),
            // RFC 6121 §2.1.5
            (Target::Other, Some(to))
                if self.account && to.resource.is_none() && child.is(ns::ROSTER, "query") =>
            {
                self.push_error(cx, stanza, StanzaError::Forbidden, "", out);
            }
            (Target::Other, Some(to)) if self.account && to.resource.is_none() && is_disco_query(child) => {
                let is_info = child.namespace() == ns::DISCO_INFO;
                let namespace = if is_info { ns::DISCO_INFO } else { ns::DISCO_ITEMS };
                let request = stanza.request(About::Account { namespace });
                out.actions.push(Action::Describe { owner: to.bare(), request });
            }
            (Target::Other, Some(to))
                if self.account && to.resource.is_none() && child.is(ns::PUBSUB, "pubsub") =>
            {
                self.handle_personal(cx, stanza, kind, Some(&to.bare()), child, out);
            }
            (Target::Other, Some(to))
                if self.account && to.resource.is_none() && child.is(ns::CARD, "vCard") =>
            {
                match kind {
                    "get" => {
                        let (owner, request) = (Some(to.bare()), stanza.request(About::Nothing));
                        out.actions.push(Action::Card { owner, request });
                    }
                    // XEP-0054 §3.2: only the account itself may change its vCard.
                    _ => self.push_error(cx, stanza, StanzaError::Forbidden, "", out),
                }
            }
            (Target::Other, Some(to)) if self.account => self.relay(cx, stanza, iq, &to, out),
            // XEP-0030 §8: devices have no contacts.
            (Target::Other, Some(to))
                if to.resource.is_none() && is_disco_query(child) && child.namespace() == ns::DISCO_ITEMS =>
            {
                self.push_no_items(cx, stanza, out);
            }
            (Target::Other, _) => self.push_error(cx, stanza, StanzaError::ServiceUnavailable, "", out),
            (Target::Foreign, _) => self.push_error(cx, stanza, StanzaError::RemoteServerNotFound, "", out),
        }
    }

    fn handle_account_iq(
        &mut self,
        cx: &Context<'_>,
        stanza: Stanza<'_>,
        kind: &str,
        child: Element<'_>,
        out: &mut Output,
    ) {
        match (child.namespace(), child.name(), kind) {
            (ns::PUBSUB, "pubsub", _) if self.account => {
                self.handle_personal(cx, stanza, kind, None, child, out);
            }
            (ns::ROSTER, "query", "get") if self.account => {
                let known = child.attribute("ver").map(Into::into);
                out.actions.push(Action::Roster { known, request: stanza.request(About::Nothing) });
            }
            (ns::ROSTER, "query", _) if self.account => {
                let own = self.identity.as_ref().map_or("", |identity| identity.bare());
                match RosterChange::parse(child, own) {
                    Ok(change) => {
                        let request = stanza.request(About::Nothing);
                        out.actions.push(Action::ChangeRoster { change, request });
                    }
                    Err(error) => self.push_error(cx, stanza, error, "", out),
                }
            }
            (ns::CARD, "vCard", "get") if self.account => {
                out.actions.push(Action::Card { owner: None, request: stanza.request(About::Nothing) });
            }
            (ns::CARD, "vCard", _) if self.account => match Card::new(child) {
                Some(card) => {
                    let request = stanza.request(About::Nothing);
                    out.actions.push(Action::PutCard { card, request });
                }
                None => self.push_error(cx, stanza, StanzaError::NotAcceptable, "", out),
            },
            // RFC 6121 §2.1.4: an empty roster that cannot be changed.
            (ns::ROSTER, "query", "get") => self.push_result(cx, stanza, out, |out| {
                let (known, version) = (child.attribute("ver"), EMPTY_ROSTER);
                if known != Some(version) {
                    let version = if known.is_some() { version } else { "" };
                    push_empty(out, "query", &[("xmlns", ns::ROSTER), ("ver", version)]);
                }
            }),
            (ns::ROSTER, "query", _) => self.push_error(cx, stanza, StanzaError::NotAllowed, "", out),
            (ns::SESSION, "session", "set") => self.push_result(cx, stanza, out, |_| {}),
            // RFC 6120 §7.6.2.2: one resource per stream.
            (ns::BIND, "bind", "set") => self.push_error(cx, stanza, StanzaError::NotAllowed, "", out),
            (ns::REGISTER, "query", _) if cx.config.registration => {
                self.handle_account_registration(cx, stanza, kind, child, out);
            }
            (ns::PING, "ping", "get") => self.push_result(cx, stanza, out, |_| {}),
            (ns::DISCO_INFO | ns::DISCO_ITEMS, "query", "get") => {
                self.handle_disco(cx, stanza, &super::disco::ACCOUNT, child, out);
            }
            (ns::ARCHIVE, "query", _) => self.handle_archive_query(cx, stanza, kind, child, out),
            (ns::ARCHIVE, "prefs", _) => self.handle_archive_rules(cx, stanza, kind, child, out),
            (ns::PUSH, "enable" | "disable", "set") if self.account => {
                let own = self.identity.as_ref().map_or("", |identity| identity.bare());
                match PushChange::parse(child, (&cx.config.domain, &cx.config.pubsub, own)) {
                    Ok(change) => {
                        let request = stanza.request(About::Nothing);
                        out.actions.push(Action::ChangePush { change, request });
                    }
                    Err(error) => self.push_error(cx, stanza, error, "", out),
                }
            }
            (ns::CARBONS, name @ ("enable" | "disable"), "set") if self.account => {
                let request = stanza.request(About::Nothing);
                out.actions.push(Action::Copy { wanted: name == "enable", request });
            }
            // §8.4, including carbons (XEP-0280): a device has only one session.
            _ => self.push_error(cx, stanza, StanzaError::ServiceUnavailable, "", out),
        }
    }

    fn handle_service_iq(
        &mut self,
        cx: &Context<'_>,
        stanza: Stanza<'_>,
        kind: &str,
        child: Element<'_>,
        out: &mut Output,
    ) {
        match (child.namespace(), child.name(), kind) {
            (ns::PING, "ping", "get") => self.push_result(cx, stanza, out, |_| {}),
            (ns::VERSION, "query", "get") => self.push_version(cx, stanza, out),
            // RFC 3921 §3 sends it to the server.
            (ns::SESSION, "session", "set") => self.push_result(cx, stanza, out, |_| {}),
            (ns::DISCO_INFO | ns::DISCO_ITEMS, "query", "get") => {
                self.handle_disco(cx, stanza, &super::disco::SERVICE, child, out);
            }
            (ns::REGISTER, "query", _) if cx.config.registration => {
                self.handle_account_registration(cx, stanza, kind, child, out);
            }
            _ => self.push_error(cx, stanza, StanzaError::ServiceUnavailable, "", out),
        }
    }

    fn handle_message(
        &mut self,
        cx: &Context<'_>,
        stanza: Stanza<'_>,
        message: Element<'_>,
        (target, to): (Target, Option<Jid<'_>>),
        out: &mut Output,
    ) {
        if matches!(target, Target::Service | Target::PubSub | Target::Account) {
            let received = message.children().filter(|child| child.is(ns::RECEIPTS, "received"));
            let ids = received.filter_map(|child| NotificationId::parse(child.attribute("id")?).ok());
            let ids: Vec<_> = ids.collect();
            if !ids.is_empty() {
                if let Some(management) = &mut self.management {
                    ids.iter().for_each(|id| management.confirm(*id));
                }
                return out.actions.push(Action::Acknowledge(ids));
            }
        }
        if target == Target::PubSub
            && message.attribute("type") != Some("error")
            && self.handle_decision(cx, stanza, message, out)
        {
            return;
        }
        match (message.attribute("type"), target, to) {
            // RFC 6120 §8.3.1: errors are never answered. RFC 6121 §8.5.1: nor are undeliverable headlines.
            (Some("error" | "headline"), target, _)
                if !matches!(target, Target::Other | Target::Account) || !self.account => {}
            (_, Target::Foreign, _) => {
                self.push_error(cx, stanza, StanzaError::RemoteServerNotFound, "", out);
            }
            (_, Target::Other | Target::Account, to) if self.account => {
                let own = self.identity.as_ref().map_or(String::new(), |it| it.bare().to_owned());
                let to = to.or_else(|| Jid::parse(&own).ok());
                to.into_iter().for_each(|to| self.relay(cx, stanza, message, &to, out));
            }
            _ => self.push_error(cx, stanza, StanzaError::ServiceUnavailable, "", out),
        }
    }

    fn handle_presence(
        &mut self,
        cx: &Context<'_>,
        stanza: Stanza<'_>,
        presence: Element<'_>,
        to: Option<Jid<'_>>,
        out: &mut Output,
    ) {
        if let Some(to) = to {
            // RFC 6121 §3.1.3, §4.6: presence for unknown accounts is ignored.
            return self.direct_presence(cx, stanza, presence, &to, out);
        }
        match presence.attribute("type") {
            None => match Show::parse(presence) {
                Some(show) => {
                    self.set_state(show, self.inactive, out);
                    match self.account {
                        true => self.announce(cx, stanza, presence, out),
                        false => self.echo_presence(cx, stanza, presence, out),
                    }
                }
                None => self.push_error(cx, stanza, StanzaError::BadRequest, "", out),
            },
            Some("unavailable") => {
                self.set_state(Show::Unavailable, self.inactive, out);
                if self.account {
                    self.announce(cx, stanza, presence, out);
                }
            }
            Some("error" | "probe" | "subscribe" | "subscribed" | "unsubscribe" | "unsubscribed") => {}
            Some(_) => self.push_error(cx, stanza, StanzaError::BadRequest, "", out),
        }
    }

    fn direct_presence(
        &mut self,
        cx: &Context<'_>,
        stanza: Stanza<'_>,
        presence: Element<'_>,
        to: &Jid<'_>,
        out: &mut Output,
    ) {
        match presence.attribute("type") {
            None | Some("unavailable" | "probe" | "error") => {}
            Some("subscribe" | "subscribed" | "unsubscribe" | "unsubscribed") => {}
            Some(_) => return self.push_error(cx, stanza, StanzaError::BadRequest, "", out), // §4.7.1
        }
        if self.account {
            self.relay(cx, stanza, presence, to, out);
        }
    }

    /// RFC 6121 §4.2.2: presence is sent to all of the account's resources, including the sender.
    fn echo_presence(
        &mut self,
        cx: &Context<'_>,
        stanza: Stanza<'_>,
        presence: Element<'_>,
        out: &mut Output,
    ) {
        let (client, own) = (self.framing.client(), self.address().unwrap_or_default().to_owned());
        self.push_stanza(cx, out, |out| {
            let attributes = [("xmlns", client), ("from", &*own), ("to", &own), ("id", stanza.id)];
            push_start(out, "presence", &attributes);
            for name in ["show", "status", "priority"] {
                if let Some(child) = presence.child(ns::CLIENT, name) {
                    push_text(out, name, &[], &child.text());
                }
            }
            push_end(out, "presence");
        });
    }

    fn set_state(&mut self, show: Show, inactive: bool, out: &mut Output) {
        let before = self.show.presence(self.inactive);
        (self.show, self.inactive) = (show, inactive);
        let now = show.presence(inactive);
        if now != before {
            out.actions.push(Action::Presence(now));
        }
    }

    fn announce(&mut self, cx: &Context<'_>, stanza: Stanza<'_>, presence: Element<'_>, out: &mut Output) {
        if let Some(presence) = self.relayed(cx, stanza, presence, out) {
            out.actions.push(Action::Announce(presence));
        }
    }

    /// Builds a stanza for others. `None` if it is too large in serialized form; the sender then gets an
    /// error.
    fn relayed(
        &mut self,
        cx: &Context<'_>,
        stanza: Stanza<'_>,
        root: Element<'_>,
        out: &mut Output,
    ) -> Option<Relayed> {
        let bytes_max = cx.config.xml.element_bytes_max;
        let is_presence = stanza.name == "presence";
        let bytes_max = if is_presence { bytes_max.min(PRESENCE_BYTES_MAX) } else { bytes_max };
        let relayed = Relayed::new(stanza.name, root, bytes_max);
        // RFC 6120 §8.3.1: errors and results are never answered.
        if relayed.is_none() && !matches!(root.attribute("type"), Some("result" | "error")) {
            self.push_error(cx, stanza, StanzaError::PolicyViolation, "", out);
        }
        relayed
    }

    /// Relays a stanza.
    fn relay(
        &mut self,
        cx: &Context<'_>,
        stanza: Stanza<'_>,
        root: Element<'_>,
        to: &Jid<'_>,
        out: &mut Output,
    ) {
        let Some(relayed) = self.relayed(cx, stanza, root, out) else { return };
        let kind = root.attribute("type").unwrap_or_default();
        let is_answered = stanza.name != "presence" && !matches!(kind, "result" | "error" | "headline");
        let bare = to.bare();
        let asked = if stanza.asked.is_empty() { bare.clone() } else { stanza.asked.into() };
        let to = Recipient { asked, bare, resource: to.resource.map(Into::into) };
        out.actions.push(Action::Relay {
            to,
            stanza: relayed,
            request: is_answered.then(|| stanza.request(About::Nothing)),
        });
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
            self.ask_to_confirm(cx.config, out);
        }
        let left = self.management.as_ref().map_or(0, |management| management.unconfirmed());
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
            return self.fail(
                cx,
                StreamError::BadFormat,
                "`h` must be a count of stanzas",
                CloseReason::BadMessage,
                out,
            );
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
