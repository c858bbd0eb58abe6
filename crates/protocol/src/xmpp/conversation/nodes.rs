//! Requests to nodes that accounts create (XEP-0060 §8). A topic is a node too: the action contains the topic
//! request to execute if no account created the node.

use super::stanza::Handler;
use super::{Element, StanzaError, ns};
use crate::xmpp::accounts::{NodeCommand, NodeRequest};
use crate::xmpp::action::{About, Action};
use crate::xmpp::error::Refused;

impl Handler<'_> {
    /// `topic`: the request to execute if no account created a node with this name.
    pub(super) fn handle_nodes(&mut self, pubsub: Element<'_>, topic: Result<Action, Refused>) {
        let command = match pubsub.namespace() {
            _ if !self.conversation.account => None,
            ns::PUBSUB_OWNER => NodeRequest::parse_owner(self.stanza.kind, pubsub),
            _ => NodeRequest::parse(self.stanza.kind, pubsub),
        };
        match (command, topic) {
            (Some(Ok(command)), topic) => {
                let topic = topic.map(Box::new);
                let request = self.request();
                self.out.actions.push(Action::Node { command, topic, request });
            }
            (Some(Err((error, detail))), _) | (None, Err((error, detail))) => {
                self.push_error(error, detail);
            }
            (None, Ok(topic)) => self.out.actions.push(topic),
        }
    }

    /// Lists the PubSub service's nodes for an account.
    pub(super) fn discover_nodes(&mut self, query: Element<'_>) -> bool {
        let node = query.attribute("node").filter(|node| !node.is_empty());
        let is_info = query.namespace() == ns::DISCO_INFO;
        let (command, namespace) = match (is_info, node) {
            (true, Some(node)) => (NodeRequest::new(node, NodeCommand::Describe), ns::DISCO_INFO),
            (true, None) => return false,
            (false, node) => (NodeRequest::new(node.unwrap_or_default(), NodeCommand::List), ns::DISCO_ITEMS),
        };
        // Every valid topic exists.
        let topic = match node.filter(|node| noroshi_types::Topic::parse(node).is_ok()) {
            Some(node) => Ok(Box::new(Action::DescribeTopic {
                request: self.stanza.request(About::Topic { node: node.into(), namespace }),
            })),
            None => Err((StanzaError::ItemNotFound, "")),
        };
        self.out.actions.push(Action::Node { command, topic, request: self.request() });
        true
    }

    /// Handles an owner's decision about a subscription (§8.6). Returns whether the message is one.
    pub(super) fn handle_decision(&mut self, message: Element<'_>) -> bool {
        let Some(form) = message.child(ns::FORM, "x").filter(|_| self.conversation.account) else {
            return false;
        };
        match NodeRequest::parse_decision(form) {
            Ok(command) => {
                let topic = Err((StanzaError::ItemNotFound, ""));
                self.out.actions.push(Action::Node {
                    command,
                    topic,
                    request: self.stanza.request(About::Decision),
                });
            }
            Err((error, detail)) => self.push_error(error, detail),
        }
        true
    }
}
