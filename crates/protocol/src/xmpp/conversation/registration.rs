//! In-band registration (XEP-0077), for conformance suites that create their own accounts.

use noroshi_types::CloseReason;

use super::stanza::Stanza;
use super::{
    Context, Conversation, Element, Output, StanzaError, StreamError, ns, push_empty, push_end, push_start,
    push_text,
};
use crate::native::Token;
use crate::xmpp::action::{About, Action};

impl Conversation {
    /// Registers an account before a log-in.
    pub(super) fn handle_registration(&mut self, cx: &Context<'_>, iq: Element<'_>, out: &mut Output) {
        let Some(query) = iq.child(ns::REGISTER, "query") else {
            return self.fail(
                cx,
                StreamError::NotAuthorized,
                "log in first, or register an account",
                CloseReason::Unauthorized,
                out,
            );
        };
        let [id, to] = ["id", "to"].map(|name| iq.attribute(name).unwrap_or_default());
        let stanza = Stanza::iq(id, to);
        match iq.attribute("type") {
            Some("get") => self.push_result(cx, stanza, out, |out| push_form(out, None)),
            Some("set") if self.may_log_in(cx) => self.register(cx, stanza, query, out),
            _ => self.push_error(cx, stanza, StanzaError::NotAcceptable, "", out),
        }
    }

    /// On an open session: reports the registration, changes the password, or removes the account.
    pub(super) fn handle_account_registration(
        &mut self,
        cx: &Context<'_>,
        stanza: Stanza<'_>,
        kind: &str,
        query: Element<'_>,
        out: &mut Output,
    ) {
        let name = self.identity.as_ref().map_or(String::new(), |it| it.device.as_str().to_owned());
        if kind == "get" {
            self.push_result(cx, stanza, out, |out| push_form(out, Some(&name)));
        } else if query.child(ns::REGISTER, "remove").is_some() {
            out.actions.push(Action::Unregister { request: stanza.request(About::Nothing) });
        } else {
            self.register(cx, stanza, query, out);
        }
    }

    fn register(&mut self, cx: &Context<'_>, stanza: Stanza<'_>, query: Element<'_>, out: &mut Output) {
        let [user, password] = ["username", "password"].map(|name| {
            query.child(ns::REGISTER, name).map(|field| field.text()).filter(|text| !text.is_empty())
        });
        match (user, password) {
            (Some(user), Some(password)) => out.actions.push(Action::Register {
                user: user.into(),
                password: Token::new(&password),
                request: stanza.request(About::Nothing),
            }),
            // XEP-0077 §3.1.1: a required field is missing.
            _ => self.push_error(cx, stanza, StanzaError::NotAcceptable, "", out),
        }
    }
}

fn push_form(out: &mut Vec<u8>, registered: Option<&str>) {
    push_start(out, "query", &[("xmlns", ns::REGISTER)]);
    match registered {
        Some(name) => {
            push_empty(out, "registered", &[]);
            push_text(out, "username", &[], name);
        }
        None => {
            push_text(out, "instructions", &[], "Choose a name and a password.");
            push_empty(out, "username", &[]);
        }
    }
    push_empty(out, "password", &[]);
    push_end(out, "query");
}
