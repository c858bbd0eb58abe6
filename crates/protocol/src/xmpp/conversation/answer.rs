//! Responses to requests that the session core answered: one element per kind of question.

use super::disco::{ACCOUNT, NODE};
use super::stanza::{Handler, Stanza};
use super::{Context, Conversation, Output, StanzaError, ns, push_empty, push_end, push_start};
use crate::xmpp::action::{About, Request};
use crate::xmpp::answer::Answer;
use crate::xmpp::encode::push_item;
use crate::xmpp::error::Refusal;

impl Conversation {
    /// Writes the response for an answer of the session core. A mismatched answer is an internal error.
    pub fn answer(&mut self, cx: &Context<'_>, request: Request, answer: Answer, out: &mut Output) {
        if self.is_closed() {
            return;
        }
        let Request { stanza, id, asked, about } = request;
        let stanza = Stanza { name: stanza, kind: "", id: &id, asked: &asked };
        let mut handler = self.on(cx, stanza, out);
        match (about, answer) {
            // XEP-0030 §8: without permission, or for a missing account, the response is an empty list.
            (About::Account { namespace: ns::DISCO_ITEMS }, Answer::Refused(Refusal::Unavailable)) => {
                handler.push_no_items();
            }
            (_, Answer::Error(error, detail)) => handler.push_error(error, detail),
            (About::Unsubscription, Answer::Refused(Refusal::NotSubscribed)) => {
                handler.push_error(StanzaError::ItemNotFound, "");
            }
            (_, Answer::Refused(refusal)) => {
                let (error, detail) = refusal.condition();
                handler.push_error(error, detail);
            }
            (About::Account { namespace }, Answer::Done) => {
                handler.push_entity(&ACCOUNT, (namespace, ""));
            }
            (About::Archive { query_id }, Answer::Archive(page)) => {
                handler.push_archive(&query_id, &page);
            }
            (About::Nothing, Answer::Content(content)) => {
                handler.push_result(|out| out.extend_from_slice(&content));
            }
            (About::Decision, Answer::Done) => {}
            (About::Nothing | About::Unsubscription, Answer::Done) => {
                handler.push_result(|_| {});
            }
            (About::Topic { node, namespace }, Answer::Done) => {
                handler.push_entity(&NODE, (namespace, &node));
            }
            (About::Creation { node }, Answer::Done) => handler.push_pubsub(|out| {
                push_empty(out, "create", &[("node", &node)]);
            }),
            (About::Affiliation { node }, Answer::Affiliation(affiliation)) => {
                handler.push_pubsub(|out| {
                    push_start(out, "affiliations", &[("node", &node)]);
                    push_empty(out, "affiliation", &[("node", &node), ("affiliation", affiliation)]);
                    push_end(out, "affiliations");
                });
            }
            (About::Subscription { node, jid }, Answer::Done) => {
                handler.push_pubsub(|out| push_subscription(out, &node, &jid));
            }
            (About::Subscriptions { node, more }, Answer::Subscriptions(list)) => {
                let full = handler.conversation.address().unwrap_or_default().to_owned();
                let bare = handler.conversation.bare().to_owned();
                handler.push_pubsub(|out| {
                    push_start(out, "subscriptions", &[("node", node.as_deref().unwrap_or_default())]);
                    out.extend_from_slice(&more);
                    for (topic, durable) in &list {
                        push_subscription(out, topic.as_str(), if *durable { &bare } else { &full });
                    }
                    push_end(out, "subscriptions");
                });
            }
            (About::Items { node }, Answer::Items(items)) => {
                handler.push_pubsub(|out| {
                    push_start(out, "items", &[("node", &node)]);
                    items.iter().for_each(|message| push_item(out, message));
                    push_end(out, "items");
                });
            }
            (About::Publication { node }, Answer::Published(id)) => {
                handler.push_pubsub(|out| {
                    push_start(out, "publish", &[("node", &node)]);
                    push_empty(out, "item", &[("id", &id.to_string())]);
                    push_end(out, "publish");
                });
            }
            _ => handler.push_error(StanzaError::InternalServerError, ""),
        }
    }
}

impl Handler<'_> {
    fn push_pubsub(&mut self, content: impl FnOnce(&mut Vec<u8>)) {
        self.push_result(|out| {
            push_start(out, "pubsub", &[("xmlns", ns::PUBSUB)]);
            content(out);
            push_end(out, "pubsub");
        });
    }
}

fn push_subscription(out: &mut Vec<u8>, node: &str, jid: &str) {
    push_empty(out, "subscription", &[("node", node), ("jid", jid), ("subscription", "subscribed")]);
}
