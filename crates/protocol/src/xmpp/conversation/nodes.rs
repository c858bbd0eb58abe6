//! Requests to nodes that accounts create (XEP-0060 §8). A topic is a node too: the action contains the topic
//! request to execute if no account created the node.

use super::pubsub::Refused;
use super::stanza::Stanza;
use super::{Context, Conversation, Element, Output, StanzaError, ns};
use crate::xmpp::accounts::NodeRequest;
use crate::xmpp::action::{About, Action};

impl Conversation {
    /// `topic`: the request to execute if no account created a node with this name.
    pub(super) fn handle_nodes(
        &mut self,
        cx: &Context<'_>,
        stanza: Stanza<'_>,
        kind: &str,
        pubsub: Element<'_>,
        topic: Result<Action, Refused>,
        out: &mut Output,
    ) {
        let command = match pubsub.namespace() {
            _ if !self.account => None,
            ns::PUBSUB_OWNER => NodeRequest::parse_owner(kind, pubsub),
            _ => NodeRequest::parse(kind, pubsub),
        };
        match (command, topic) {
            (Some(Ok(command)), topic) => {
                let topic = topic.map(Box::new);
                let request = stanza.request(About::Nothing);
                out.actions.push(Action::Node { command, topic, request });
            }
            (Some(Err((error, detail))), _) | (None, Err((error, detail))) => {
                self.push_error(cx, stanza, error, detail, out);
            }
            (None, Ok(topic)) => out.actions.push(topic),
        }
    }

    /// Lists the PubSub service's nodes for an account.
    pub(super) fn discover_nodes(
        &mut self,
        stanza: Stanza<'_>,
        query: Element<'_>,
        out: &mut Output,
    ) -> bool {
        let node = query.attribute("node").filter(|node| !node.is_empty());
        let is_info = query.namespace() == ns::DISCO_INFO;
        let (command, namespace) = match (is_info, node) {
            (true, Some(node)) => (NodeRequest::Describe { node: node.into() }, ns::DISCO_INFO),
            (true, None) => return false,
            (false, node) => (NodeRequest::List { node: node.map(Into::into) }, ns::DISCO_ITEMS),
        };
        // Every valid topic exists.
        let topic = match node.filter(|node| noroshi_types::Topic::parse(node).is_ok()) {
            Some(node) => Ok(Box::new(Action::DescribeTopic {
                request: stanza.request(About::Topic { node: node.into(), namespace }),
            })),
            None => Err((StanzaError::ItemNotFound, "")),
        };
        out.actions.push(Action::Node { command, topic, request: stanza.request(About::Nothing) });
        true
    }

    /// Handles an owner's decision about a subscription (§8.6). Returns whether the message is one.
    pub(super) fn handle_decision(
        &mut self,
        cx: &Context<'_>,
        stanza: Stanza<'_>,
        message: Element<'_>,
        out: &mut Output,
    ) -> bool {
        let Some(form) = message.child(ns::FORM, "x").filter(|_| self.account) else { return false };
        match NodeRequest::parse_decision(form) {
            Ok(command) => {
                let topic = Err((StanzaError::ItemNotFound, ""));
                out.actions.push(Action::Node { command, topic, request: stanza.request(About::Decision) });
            }
            Err((error, detail)) => self.push_error(cx, stanza, error, detail, out),
        }
        true
    }
}
