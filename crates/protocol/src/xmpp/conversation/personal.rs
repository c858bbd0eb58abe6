//! What an account publishes of itself (XEP-0163): requests for its own nodes or those of somebody else, and what
//! its client says that it wants to hear of (XEP-0115, `+notify`).

use super::stanza::Stanza;
use super::{Context, Conversation, Element, Output, StanzaError, ns};
use crate::xmpp::accounts::PersonalItem;
use crate::xmpp::action::{About, Action};

impl Conversation {
    /// `owner`: a bare address, the account's own if it is none.
    pub(super) fn handle_personal(
        &mut self,
        cx: &Context<'_>,
        stanza: Stanza<'_>,
        kind: &str,
        owner: Option<&str>,
        pubsub: Element<'_>,
        out: &mut Output,
    ) {
        let own = self.identity.as_ref().map_or("", |identity| identity.bare());
        let command = pubsub.children().next();
        let node = command.and_then(|command| command.attribute("node")).filter(|node| !node.is_empty());
        let (Some(command), Some(node)) = (command, node) else {
            return self.push_error(cx, stanza, StanzaError::BadRequest, "nodeid-required", out);
        };
        let action = match (command.namespace(), command.name(), kind, owner) {
            (ns::PUBSUB, "items", "get", owner) => Action::PersonalItems {
                owner: owner.unwrap_or(own).into(),
                node: node.into(),
                request: stanza.request(About::Nothing),
            },
            (ns::PUBSUB, "publish", "set", None) => {
                match PersonalItem::parse(node, command.child(ns::PUBSUB, "item")) {
                    Ok(item) => Action::PublishPersonal { item, request: stanza.request(About::Nothing) },
                    Err((error, detail)) => return self.push_error(cx, stanza, error, detail, out),
                }
            }
            (_, _, _, Some(_)) => return self.push_error(cx, stanza, StanzaError::Forbidden, "", out),
            _ => return self.push_error(cx, stanza, StanzaError::FeatureNotImplemented, "", out),
        };
        out.actions.push(action);
    }

    /// The answer to what [`Accounts`](crate::xmpp::Accounts) asked a client with new capabilities.
    pub(super) fn handle_capabilities(&mut self, iq: Element<'_>, out: &mut Output) {
        let Some(query) = iq.child(ns::DISCO_INFO, "query") else { return };
        let features = query.children().filter(|child| child.is(ns::DISCO_INFO, "feature"));
        let wanted = features.filter_map(|feature| feature.attribute("var")?.strip_suffix("+notify"));
        out.actions.push(Action::Want(wanted.map(Into::into).collect()));
    }
}
