//! Stanzas that go out: results, errors (RFC 6120 §8.2.3, §8.3) and answers to what the session was asked.

use bytes::Bytes;
use noroshi_types::CloseReason;

use super::{
    Config, Context, Conversation, Keep, Output, StanzaError, ns, push_empty, push_end, push_framed,
    push_start, push_text,
};
use crate::xmpp::action::{About, Answer, Refusal, Request};
use crate::xmpp::encode::push_item;

/// Begins the ids of our own requests; the count that they ask for follows.
pub(super) const QUESTION: &str = "noroshi-";

/// What a stanza of the client's is answered by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stanza<'a> {
    pub(super) name: &'static str,
    pub(super) id: &'a str,
    /// Its `to`; empty is the client's own account.
    pub(super) asked: &'a str,
}

impl<'a> Stanza<'a> {
    pub(super) fn iq(id: &'a str, asked: &'a str) -> Self {
        Self { name: "iq", id, asked }
    }

    pub(super) fn request(self, about: About) -> Request {
        Request { stanza: self.name, id: self.id.into(), asked: self.asked.into(), about }
    }
}

impl Conversation {
    /// Writes a stanza and counts it (XEP-0198 §4).
    pub(super) fn push_stanza(
        &mut self,
        cx: &Context<'_>,
        out: &mut Output,
        build: impl FnOnce(&mut Vec<u8>),
    ) {
        // The one before may have ended the stream.
        if self.is_closed() {
            return;
        }
        let start = out.bytes.len();
        push_framed(&mut out.bytes, self.framing, build);
        let Some(management) = self.management.as_mut().filter(|it| it.counts) else { return };
        let bytes = || Bytes::copy_from_slice(&out.bytes[start..]);
        let Config { unacked_bytes_max, unacked_max, unacked_patience_ms, .. } = cx.config;
        management.push(None, Keep::Needed, *unacked_bytes_max, bytes);
        // Notifications stop at the limit, other stanzas do not. A client that answers requests confirms them in time,
        // however many went out before it heard the request; of the others nothing more is kept meanwhile.
        if management.is_exhausted(2 * unacked_max, cx.now_ms, *unacked_patience_ms) {
            return self.close(cx, CloseReason::SlowConsumer, None, out);
        }
        if management.is_due(*unacked_bytes_max) {
            self.ask_to_confirm(cx.config, out);
        }
    }

    /// [`Conversation::push_checkpoint`], where the client's answer is off the allowance that the caller keeps.
    pub(super) fn ask_to_confirm(&mut self, config: &Config, out: &mut Output) {
        let before = out.bytes.len();
        self.push_checkpoint(config, &mut out.bytes);
        out.requests += u32::from(out.bytes.len() > before);
    }

    fn push_answer(
        &mut self,
        cx: &Context<'_>,
        stanza: Stanza<'_>,
        kind: &str,
        out: &mut Output,
        content: impl FnOnce(&mut Vec<u8>),
    ) {
        let client = self.framing.client();
        let to = self.address().unwrap_or_default().to_owned();
        self.push_stanza(cx, out, |out| {
            let attributes =
                [("xmlns", client), ("type", kind), ("id", stanza.id), ("from", stanza.asked), ("to", &to)];
            push_start(out, stanza.name, &attributes);
            content(out);
            push_end(out, stanza.name);
        });
    }

    pub(super) fn push_result(
        &mut self,
        cx: &Context<'_>,
        stanza: Stanza<'_>,
        out: &mut Output,
        content: impl FnOnce(&mut Vec<u8>),
    ) {
        self.push_answer(cx, stanza, "result", out, content);
    }

    /// `detail`: what XEP-0060 adds to the condition, or `""`; with the feature that is missing, `unsupported FEATURE`.
    pub(super) fn push_error(
        &mut self,
        cx: &Context<'_>,
        stanza: Stanza<'_>,
        error: StanzaError,
        detail: &str,
        out: &mut Output,
    ) {
        self.push_answer(cx, stanza, "error", out, |out| {
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

    /// What came of a question. An answer that does not fit it is our own failure.
    pub fn answer(&mut self, cx: &Context<'_>, request: Request, answer: Answer, out: &mut Output) {
        if self.is_closed() {
            return;
        }
        let Request { stanza, id, asked, about } = request;
        let stanza = Stanza { name: stanza, id: &id, asked: &asked };
        match (about, answer) {
            // XEP-0030 §8: who may not know an account, or asks of none, is told of no items.
            (About::Account { namespace: ns::DISCO_ITEMS }, Answer::Refused(Refusal::Unavailable)) => {
                self.push_no_items(cx, stanza, out);
            }
            (_, Answer::Error(error, detail)) => self.push_error(cx, stanza, error, detail, out),
            (About::Unsubscription, Answer::Refused(Refusal::NotSubscribed)) => {
                self.push_error(cx, stanza, StanzaError::ItemNotFound, "", out);
            }
            (_, Answer::Refused(refusal)) => {
                let (error, detail) = refusal.condition();
                self.push_error(cx, stanza, error, detail, out);
            }
            (About::Account { namespace }, Answer::Done) => {
                self.push_entity(cx, stanza, &super::disco::ACCOUNT, (namespace, ""), out);
            }
            (About::Archive { query_id }, Answer::Archive(page)) => {
                self.push_archive(cx, stanza, &query_id, &page, out);
            }
            (About::Nothing, Answer::Content(content)) => {
                self.push_result(cx, stanza, out, |out| out.extend_from_slice(&content));
            }
            (About::Decision, Answer::Done) => {}
            (About::Nothing | About::Unsubscription, Answer::Done) => {
                self.push_result(cx, stanza, out, |_| {});
            }
            (About::Topic { node, namespace }, Answer::Done) => {
                self.push_entity(cx, stanza, &super::disco::NODE, (namespace, &node), out);
            }
            (About::Creation { node }, Answer::Done) => self.push_pubsub(cx, stanza, out, |out| {
                push_empty(out, "create", &[("node", &node)]);
            }),
            (About::Affiliation { node }, Answer::Affiliation(affiliation)) => {
                self.push_pubsub(cx, stanza, out, |out| {
                    push_start(out, "affiliations", &[("node", &node)]);
                    push_empty(out, "affiliation", &[("node", &node), ("affiliation", affiliation)]);
                    push_end(out, "affiliations");
                });
            }
            (About::Subscription { node, jid }, Answer::Done) => {
                self.push_pubsub(cx, stanza, out, |out| push_subscription(out, &node, &jid));
            }
            (About::Subscriptions { node, more }, Answer::Subscriptions(list)) => {
                let full = self.address().unwrap_or_default().to_owned();
                let bare = self.identity.as_ref().map_or(String::new(), |it| it.bare().to_owned());
                self.push_pubsub(cx, stanza, out, |out| {
                    push_start(out, "subscriptions", &[("node", node.as_deref().unwrap_or_default())]);
                    out.extend_from_slice(&more);
                    for (topic, durable) in &list {
                        push_subscription(out, topic.as_str(), if *durable { &bare } else { &full });
                    }
                    push_end(out, "subscriptions");
                });
            }
            (About::Items { node }, Answer::Items(items)) => {
                self.push_pubsub(cx, stanza, out, |out| {
                    push_start(out, "items", &[("node", &node)]);
                    items.iter().for_each(|message| push_item(out, message));
                    push_end(out, "items");
                });
            }
            (About::Publication { node }, Answer::Published(id)) => {
                self.push_pubsub(cx, stanza, out, |out| {
                    push_start(out, "publish", &[("node", &node)]);
                    push_empty(out, "item", &[("id", &id.to_string())]);
                    push_end(out, "publish");
                });
            }
            _ => self.push_error(cx, stanza, StanzaError::InternalServerError, "", out),
        }
    }

    pub(super) fn push_no_items(&mut self, cx: &Context<'_>, stanza: Stanza<'_>, out: &mut Output) {
        self.push_result(cx, stanza, out, |out| push_empty(out, "query", &[("xmlns", ns::DISCO_ITEMS)]));
    }

    fn push_pubsub(
        &mut self,
        cx: &Context<'_>,
        stanza: Stanza<'_>,
        out: &mut Output,
        content: impl FnOnce(&mut Vec<u8>),
    ) {
        self.push_result(cx, stanza, out, |out| {
            push_start(out, "pubsub", &[("xmlns", ns::PUBSUB)]);
            content(out);
            push_end(out, "pubsub");
        });
    }
}

fn push_subscription(out: &mut Vec<u8>, node: &str, jid: &str) {
    push_empty(out, "subscription", &[("node", node), ("jid", jid), ("subscription", "subscribed")]);
}
