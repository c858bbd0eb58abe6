//! Outgoing stanzas: results and errors (RFC 6120 §8.2.3, §8.3).

use bytes::Bytes;
use noroshi_types::CloseReason;

use super::{
    Config, Context, Conversation, Keep, Output, StanzaError, ns, push_empty, push_end, push_framed,
    push_start, push_text,
};
use crate::xmpp::accounts::Command;
use crate::xmpp::action::{About, Action, Request};

/// Prefix of the ids of our own requests; the count to acknowledge follows.
pub(super) const QUESTION: &str = "noroshi-";

/// The properties of a client's stanza that its response needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stanza<'a> {
    pub(super) name: &'static str,
    /// Its `type`.
    pub(super) kind: &'a str,
    pub(super) id: &'a str,
    /// Its `to`; empty for the client's own account.
    pub(super) asked: &'a str,
}

impl<'a> Stanza<'a> {
    pub(super) fn iq(id: &'a str, asked: &'a str) -> Self {
        Self { name: "iq", kind: "", id, asked }
    }

    pub(super) fn request(self, about: About) -> Request {
        Request { stanza: self.name, id: self.id.into(), asked: self.asked.into(), about }
    }
}

/// A stanza that is being handled or answered.
pub(super) struct Handler<'a> {
    pub(super) conversation: &'a mut Conversation,
    pub(super) cx: &'a Context<'a>,
    pub(super) stanza: Stanza<'a>,
    pub(super) out: &'a mut Output,
}

impl Conversation {
    pub(super) fn on<'a>(
        &'a mut self,
        cx: &'a Context<'a>,
        stanza: Stanza<'a>,
        out: &'a mut Output,
    ) -> Handler<'a> {
        Handler { conversation: self, cx, stanza, out }
    }

    /// Writes a stanza and counts it (XEP-0198 §4).
    pub(super) fn push_stanza(
        &mut self,
        cx: &Context<'_>,
        out: &mut Output,
        build: impl FnOnce(&mut Vec<u8>),
    ) {
        // The previous stanza may have ended the stream.
        if self.is_closed() {
            return;
        }
        let start = out.bytes.len();
        push_framed(&mut out.bytes, self.framing, build);
        let Some(management) = self.management.as_mut().filter(|it| it.counts) else { return };
        let bytes = || Bytes::copy_from_slice(&out.bytes[start..]);
        let Config { unacked_bytes_max, unacked_max, unacked_timeout_ms, .. } = cx.config;
        management.push(None, Keep::Needed, *unacked_bytes_max, bytes);
        // Notifications stop at the limit, other stanzas do not. A client that answers requests acknowledges
        // them in time, however many were sent before it received the request; other clients get no further
        // state.
        if management.is_exhausted(2 * unacked_max, cx.now_ms, *unacked_timeout_ms) {
            return self.close(cx, CloseReason::SlowConsumer, None, out);
        }
        if management.is_due(*unacked_bytes_max) {
            self.ask_to_acknowledge(cx.config, out);
        }
    }

    /// [`Conversation::push_checkpoint`], with the client's answer deducted from the allowance that the
    /// caller tracks.
    pub(super) fn ask_to_acknowledge(&mut self, config: &Config, out: &mut Output) {
        let before = out.bytes.len();
        self.push_checkpoint(config, &mut out.bytes);
        out.requests += u32::from(out.bytes.len() > before);
    }
}

impl Handler<'_> {
    /// The client's question, whose answer needs nothing else.
    pub(super) fn request(&self) -> Request {
        self.stanza.request(About::Nothing)
    }

    /// Asks the table of accounts.
    pub(super) fn ask(&mut self, command: Command) {
        let request = Some(self.request());
        self.out.actions.push(Action::Account { command, request });
    }

    /// Asks the table of accounts, unless the request is not valid.
    pub(super) fn try_ask(&mut self, command: Result<Command, StanzaError>) {
        match command {
            Ok(command) => self.ask(command),
            Err(error) => self.push_error(error, ""),
        }
    }

    fn push_answer(&mut self, kind: &str, content: impl FnOnce(&mut Vec<u8>)) {
        let client = self.conversation.framing.client();
        let to = self.conversation.address().unwrap_or_default().to_owned();
        let Stanza { name, id, asked, .. } = self.stanza;
        self.conversation.push_stanza(self.cx, self.out, |out| {
            let attributes = [("xmlns", client), ("type", kind), ("id", id), ("from", asked), ("to", &to)];
            push_start(out, name, &attributes);
            content(out);
            push_end(out, name);
        });
    }

    pub(super) fn push_result(&mut self, content: impl FnOnce(&mut Vec<u8>)) {
        self.push_answer("result", content);
    }

    /// `detail`: the XEP-0060 detail, or `""`; with a missing feature, `unsupported FEATURE`.
    pub(super) fn push_error(&mut self, error: StanzaError, detail: &str) {
        self.push_answer("error", |out| {
            push_start(out, "error", &[("type", error.kind())]);
            push_empty(out, error.as_str(), &[("xmlns", ns::STANZA_ERRORS)]);
            let text = [("xmlns", ns::STANZA_ERRORS), ("xml:lang", "en")];
            push_text(out, "text", &text, error.explain());
            if !detail.is_empty() {
                let (name, feature) = detail.split_once(' ').unwrap_or((detail, ""));
                push_empty(out, name, &[("xmlns", ns::PUBSUB_ERRORS), ("feature", feature)]);
            }
            push_end(out, "error");
        });
    }

    pub(super) fn push_no_items(&mut self) {
        self.push_result(|out| push_empty(out, "query", &[("xmlns", ns::DISCO_ITEMS)]));
    }
}
