//! Personal events (XEP-0163): requests to the account's own nodes or those of others, and the events that
//! its client wants (XEP-0115, `+notify`).

use super::stanza::Handler;
use super::{Conversation, Element, Output, StanzaError, ns};
use crate::xmpp::accounts::{Command, PersonalItem};
use crate::xmpp::action::Action;

/// Whether the client's publish options match the fixed node configuration (XEP-0060 §7.1.5): the last item
/// only, for those who receive the account's presence. An item for a smaller audience must not be published.
fn matches_configuration(pubsub: Element<'_>) -> bool {
    let options = pubsub.child(ns::PUBSUB, "publish-options").and_then(|it| it.child(ns::FORM, "x"));
    let fields = options.into_iter().flat_map(|form| form.children());
    let mut fields = fields.filter(|field| field.is(ns::FORM, "field"));
    fields.all(|field| {
        let value = field.child(ns::FORM, "value").map(|value| value.text()).unwrap_or_default();
        match field.attribute("var").unwrap_or_default() {
            "FORM_TYPE" => value == "http://jabber.org/protocol/pubsub#publish-options",
            "pubsub#access_model" => value == "presence",
            "pubsub#max_items" => value == "1",
            "pubsub#persist_items" | "pubsub#deliver_payloads" => matches!(&*value, "1" | "true"),
            "pubsub#send_last_published_item" => value == "on_sub_and_presence",
            _ => false,
        }
    })
}

impl Conversation {
    /// The response to a capabilities request of [`Accounts`](crate::xmpp::Accounts).
    pub(super) fn handle_capabilities(&mut self, iq: Element<'_>, out: &mut Output) {
        let Some(query) = iq.child(ns::DISCO_INFO, "query") else { return };
        let features = query.children().filter(|child| child.is(ns::DISCO_INFO, "feature"));
        let wanted = features.filter_map(|feature| feature.attribute("var")?.strip_suffix("+notify"));
        let command = Command::Want(wanted.map(Into::into).collect());
        out.actions.push(Action::Account { command, request: None });
    }
}

impl Handler<'_> {
    /// `owner`: a bare address; `None`: the account itself.
    pub(super) fn handle_personal(&mut self, owner: Option<&str>, pubsub: Element<'_>) {
        let command = pubsub.children().next();
        let node = command.and_then(|command| command.attribute("node")).filter(|node| !node.is_empty());
        let (Some(command), Some(node)) = (command, node) else {
            return self.push_error(StanzaError::BadRequest, "nodeid-required");
        };
        let command = match (command.namespace(), command.name(), self.stanza.kind, owner) {
            (ns::PUBSUB, "items", "get", owner) => {
                let owner = owner.unwrap_or(self.conversation.bare());
                Ok(Command::PersonalItems { owner: owner.into(), node: node.into() })
            }
            // XEP-0060 §7.1.5
            (ns::PUBSUB, "publish", "set", None) if !matches_configuration(pubsub) => {
                Err((StanzaError::Conflict, "precondition-not-met"))
            }
            (ns::PUBSUB, "publish", "set", None) => {
                let item = PersonalItem::parse(node, command.child(ns::PUBSUB, "item"));
                item.map(Command::PublishPersonal)
            }
            (_, _, _, Some(_)) => Err((StanzaError::Forbidden, "")),
            _ => Err((StanzaError::FeatureNotImplemented, "")),
        };
        match command {
            Ok(command) => self.ask(command),
            Err((error, detail)) => self.push_error(error, detail),
        }
    }
}
