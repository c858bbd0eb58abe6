//! Service discovery (XEP-0060 §5.2 to §5.5): accounts that may subscribe see a node's metadata; others see
//! only that the name is taken.

use super::form::{push_field, push_form_start};
use super::{Accounts, LIST_BYTES_MAX, NodeAnswer};
use crate::xmpp::namespace as ns;
use crate::xmpp::xml::write::{element, push_empty, push_end};

/// Limit of nodes per response.
const LISTED_MAX: usize = 100;

const META_DATA: &str = "http://jabber.org/protocol/pubsub#meta-data";

fn query(namespace: &str, node: &str, build: impl FnOnce(&mut Vec<u8>)) -> NodeAnswer {
    Ok(Some(element("query", &[("xmlns", namespace), ("node", node)], build)))
}

impl<S: Copy + Eq> Accounts<S> {
    pub(super) fn describe_node(&self, user: &str, name: &str) -> NodeAnswer {
        let node = self.node(name)?;
        let is_open = self.admission(&self.bare(user), node).is_ok();
        query(ns::DISCO_INFO, name, |out| {
            let title = if is_open { &*node.config.title } else { "" };
            push_empty(out, "identity", &[("category", "pubsub"), ("type", "leaf"), ("name", title)]);
            for feature in [ns::DISCO_INFO, ns::DISCO_ITEMS, ns::PUBSUB] {
                push_empty(out, "feature", &[("var", feature)]);
            }
            if is_open {
                let subscribers = node.subscribers.iter().filter(|it| it.is_subscribed()).count();
                push_form_start(out, "result", META_DATA);
                push_field(out, "pubsub#type", "text-single", &node.config.kind);
                push_field(out, "pubsub#creator", "jid-single", &self.bare(&node.creator));
                push_field(out, "pubsub#title", "text-single", &node.config.title);
                push_field(out, "pubsub#description", "text-single", &node.config.description);
                push_field(out, "pubsub#access_model", "list-single", node.config.access.as_str());
                push_field(out, "pubsub#publish_model", "list-single", node.config.publishers.as_str());
                push_field(out, "pubsub#max_items", "text-single", &node.config.items_max.to_string());
                push_field(out, "pubsub#num_subscribers", "text-single", &subscribers.to_string());
                push_end(out, "x");
            }
        })
    }

    /// Lists the nodes if the name is empty, otherwise the items of one.
    pub(super) fn list_nodes(&self, user: &str, name: &str) -> NodeAnswer {
        let (bare, service) = (self.bare(user), self.pubsub());
        if name.is_empty() {
            let open = self.nodes.iter().filter(|(_, node)| self.admission(&bare, node).is_ok());
            return query(ns::DISCO_ITEMS, name, |out| {
                for (name, node) in open.take(LISTED_MAX) {
                    if out.len() > LIST_BYTES_MAX {
                        break;
                    }
                    let title = &*node.config.title;
                    push_empty(out, "item", &[("jid", &service), ("node", name), ("name", title)]);
                }
            });
        }
        let node = self.node(name)?;
        self.check_reader(&bare, node)?;
        query(ns::DISCO_ITEMS, name, |out| {
            // §5.5: items have no `node` attribute.
            let items = node.items.iter();
            items.for_each(|item| push_empty(out, "item", &[("jid", &service), ("name", &*item.id)]));
        })
    }
}
