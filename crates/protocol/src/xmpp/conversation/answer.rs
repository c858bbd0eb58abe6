//! Responses to requests that the session core answered: one element per kind of question.

use super::disco::{ACCOUNT, NODE};
use super::stanza::Stanza;
use super::{Context, Conversation, Output, StanzaError, ns, push_empty, push_end, push_start};
use crate::xmpp::action::{About, Answer, Request};
use crate::xmpp::encode::push_item;
use crate::xmpp::refusal::Refusal;

impl Conversation {
    /// Writes the response for an answer of the session core. A mismatched answer is an internal error.
    pub fn answer(&mut self, cx: &Context<'_>, request: Request, answer: Answer, out: &mut Output) {
        if self.is_closed() {
            return;
        }
        let Request { stanza, id, asked, about } = request;
        let stanza = Stanza { name: stanza, id: &id, asked: &asked };
        match (about, answer) {
            // XEP-0030 §8: without permission, or for a missing account, the response is an empty list.
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
                self.push_entity(cx, stanza, &ACCOUNT, (namespace, ""), out);
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
                self.push_entity(cx, stanza, &NODE, (namespace, &node), out);
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
