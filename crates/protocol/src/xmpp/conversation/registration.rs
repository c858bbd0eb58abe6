//! In-band registration (XEP-0077), for conformance suites that create their own accounts.

use noroshi_types::CloseReason;

use super::stanza::{Handler, Stanza};
use super::{
    Context, Conversation, Element, Output, StanzaError, StreamError, ns, push_empty, push_end, push_start,
    push_text,
};
use crate::native::Token;
use crate::xmpp::action::Action;

impl Conversation {
    /// Registers an account before a log-in.
    pub(super) fn handle_registration(&mut self, cx: &Context<'_>, iq: Element<'_>, out: &mut Output) {
        let Some(query) = iq.child(ns::REGISTER, "query") else {
            let error = (StreamError::NotAuthorized, "log in first, or register an account");
            return self.end(cx, Some(error), CloseReason::Unauthorized, out, |_| {});
        };
        let [id, to] = ["id", "to"].map(|name| iq.attribute(name).unwrap_or_default());
        let mut handler = self.on(cx, Stanza::iq(id, to), out);
        match iq.attribute("type") {
            Some("get") => handler.push_result(|out| push_form(out, None)),
            Some("set") if handler.conversation.may_log_in(cx) => handler.register(query),
            _ => handler.push_error(StanzaError::NotAcceptable, ""),
        }
    }
}

impl Handler<'_> {
    /// On an open session: reports the registration, changes the password, or removes the account.
    pub(super) fn handle_account_registration(&mut self, query: Element<'_>) {
        let name =
            self.conversation.identity.as_ref().map_or(String::new(), |it| it.device.as_str().to_owned());
        if self.stanza.kind == "get" {
            self.push_result(|out| push_form(out, Some(&name)));
        } else if query.child(ns::REGISTER, "remove").is_some() {
            self.out.actions.push(Action::Unregister { request: self.request() });
        } else {
            self.register(query);
        }
    }

    fn register(&mut self, query: Element<'_>) {
        let [user, password] = ["username", "password"].map(|name| {
            query.child(ns::REGISTER, name).map(|field| field.text()).filter(|text| !text.is_empty())
        });
        match (user, password) {
            (Some(user), Some(password)) => self.out.actions.push(Action::Register {
                user: user.into(),
                password: Token::new(&password),
                request: self.request(),
            }),
            // XEP-0077 §3.1.1: a required field is missing.
            _ => self.push_error(StanzaError::NotAcceptable, ""),
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
