//! Before a log-in: handles the negotiation of features (RFC 6120 §4.3), and rejects everything else.

use noroshi_types::CloseReason;

use super::{
    Context, Conversation, Element, Output, Phase, Security, StreamError, ns, push_empty, push_framed,
};
use crate::xmpp::action::Action;
use crate::xmpp::sasl::Mechanism;

impl Conversation {
    /// Whether credentials may be sent on this connection.
    pub(super) fn may_log_in(&self, cx: &Context<'_>) -> bool {
        self.security == Security::Encrypted || cx.config.allow_plaintext
    }

    pub(super) fn offers(&self, cx: &Context<'_>, mechanism: Mechanism) -> bool {
        match mechanism {
            Mechanism::Plain => true,
            Mechanism::Scram(_) => cx.config.scram,
        }
    }

    pub(super) fn negotiate(&mut self, cx: &Context<'_>, root: Element<'_>, out: &mut Output) {
        match (root.namespace(), root.name()) {
            (ns::TLS, "starttls") => self.begin_tls(out),
            (ns::SASL, "auth") => self.handle_auth(cx, root, out),
            (ns::SASL2, "authenticate") => self.handle_authenticate(cx, root, out),
            (ns::SASL | ns::SASL2, "response") => self.handle_response(cx, root, out),
            (ns::SASL | ns::SASL2, "abort") => self.handle_abort(cx, root, out),
            (ns::CLIENT, "iq") if cx.config.registration && self.phase == Phase::Negotiating => {
                self.handle_registration(cx, root, out);
            }
            // RFC 6120 §6.3.1
            (ns::CLIENT, "iq" | "message" | "presence") => {
                let error = (StreamError::NotAuthorized, "log in before sending stanzas");
                self.end(cx, Some(error), CloseReason::Unauthorized, out, |_| {});
            }
            (ns::SM, _) => self.push_sm_failure("unexpected-request", None, out),
            _ => self.fail(cx, StreamError::UnsupportedStanzaType, "expected a log-in", out),
        }
    }

    /// RFC 6120 §5.4.2.
    fn begin_tls(&mut self, out: &mut Output) {
        let proceeds = self.security == Security::StartTls && self.phase == Phase::Negotiating;
        let answer = if proceeds { "proceed" } else { "failure" };
        push_framed(&mut out.bytes, self.framing, |out| push_empty(out, answer, &[("xmlns", ns::TLS)]));
        if proceeds {
            self.phase = Phase::Encrypting;
            out.actions.push(Action::StartTls);
        } else {
            self.finish(CloseReason::BadMessage, "", out); // §5.4.2.2: the failure ends the stream
        }
    }

    /// The TLS handshake is complete: the client starts over, and its earlier input does not count
    /// (§5.4.3.3).
    pub fn encrypted(&mut self) {
        if self.phase == Phase::Encrypting {
            self.phase = Phase::Header;
            self.security = Security::Encrypted;
            self.opened = false;
        }
    }
}
