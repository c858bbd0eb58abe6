//! A stanza that is relayed from one account to another, without its addresses.

use bytes::Bytes;

use crate::xmpp::namespace as ns;
use crate::xmpp::xml::Element;
use crate::xmpp::xml::write::{content_of, push_end, push_start};

/// Limit of an id, type or language. Escaped, each byte may take six.
const ATTRIBUTE_BYTES_MAX: usize = 255;

/// A stanza without its addresses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Relayed {
    /// `iq`, `message` or `presence`.
    pub(super) name: &'static str,
    /// Its type; empty if absent.
    pub(super) kind: Box<str>,
    pub(super) id: Box<str>,
    pub(super) lang: Box<str>,
    /// The serialized children.
    pub(super) content: Bytes,
    /// XEP-0160 §3: stored if the recipient is offline.
    pub(super) is_kept: bool,
    /// XEP-0313 §6.1: archived.
    pub(super) is_archived: bool,
    /// XEP-0280: copied to other resources.
    pub(super) is_carbon_copied: bool,
    /// For errors: temporary (RFC 6120 §8.3.2).
    pub(super) is_temporary: bool,
    /// For presence: RFC 6121 §4.7.2.3.
    pub(super) priority: i8,
    /// For presence: the capabilities, as the node that describes them (XEP-0115 §6.2).
    pub(super) capabilities: Option<Box<str>>,
}

fn capabilities(tag: Element<'_>) -> Option<Box<str>> {
    Some(format!("{}#{}", tag.attribute("node")?, tag.attribute("ver")?).into())
}

/// The recipient that a client addressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipient {
    /// The address as written.
    pub asked: Box<str>,
    /// `local@domain`, or the domain, in canonical form.
    pub bare: Box<str>,
    pub resource: Option<Box<str>>,
}

impl Recipient {
    /// The full address in canonical form.
    pub(super) fn address(&self) -> Box<str> {
        match &self.resource {
            Some(resource) => format!("{}/{resource}", self.bare).into(),
            None => self.bare.clone(),
        }
    }
}

impl Relayed {
    /// Returns `None` if the content as sent to recipients exceeds `bytes_max`, or the id, type or language
    /// exceeds [`ATTRIBUTE_BYTES_MAX`].
    pub(in crate::xmpp) fn new(name: &'static str, root: Element<'_>, bytes_max: usize) -> Option<Self> {
        let lang = root.attributes().find(|(namespace, name, _)| (*namespace, *name) == (ns::XML, "lang"));
        let lang = lang.map_or("", |it| it.2);
        let kind = root.attribute("type").unwrap_or_default();
        let id = root.attribute("id").unwrap_or_default();
        if [kind, id, lang].iter().any(|it| it.len() > ATTRIBUTE_BYTES_MAX) {
            return None;
        }
        // XEP-0280 §7: recipients do not learn that the message is private. XEP-0359 §6: only the owner of an
        // archive may set the archive id.
        let content = content_of(root, Some(ns::CLIENT), bytes_max, |child| {
            child.is(ns::CARBONS, "private") || child.is(ns::STANZA_ID, "stanza-id")
        })?;
        // XEP-0160 §3: only chat messages with a body; XEP-0334 §4.
        let has_body = root.child(ns::CLIENT, "body").is_some();
        let says = kind != "chat" || has_body;
        let has_hint = |name: &str| root.child(ns::HINTS, name).is_some();
        let is_said = name == "message" && has_body && matches!(kind, "" | "normal" | "chat");
        let error_kind = root.child(ns::CLIENT, "error").and_then(|error| error.attribute("type"));
        let priority = root.child(ns::CLIENT, "priority").and_then(|it| it.text().trim().parse().ok());
        Some(Self {
            name,
            kind: kind.into(),
            id: id.into(),
            lang: lang.into(),
            content: content.into(),
            is_kept: says && !has_hint("no-store"),
            is_archived: is_said && !has_hint("no-store") && !has_hint("no-permanent-store"),
            is_carbon_copied: is_carbon_copied(name, kind, root),
            is_temporary: error_kind == Some("wait"),
            priority: priority.unwrap_or_default(),
            capabilities: root.child(ns::CAPABILITIES, "c").and_then(capabilities),
        })
    }

    pub fn is_presence(&self) -> bool {
        self.name == "presence"
    }

    /// Presence of an account that the server generates.
    pub(super) fn presence(kind: &str) -> Self {
        Self { name: "presence", kind: kind.into(), ..Self::default() }
    }

    /// Presence for a stream that ends (RFC 6121 §4.5.2).
    pub(super) fn unavailable() -> Self {
        Self::presence("unavailable")
    }

    pub(in crate::xmpp) fn addressed(&self, from: &str, to: &str) -> Bytes {
        self.with(from, to, b"")
    }

    /// With additional elements.
    pub(super) fn with(&self, from: &str, to: &str, more: &[u8]) -> Bytes {
        let mut out = Vec::with_capacity(self.content.len() + 256);
        let attributes = [
            ("xmlns", ns::CLIENT),
            ("from", from),
            ("to", to),
            ("type", &*self.kind),
            ("id", &*self.id),
            ("xml:lang", &*self.lang),
        ];
        push_start(&mut out, self.name, &attributes);
        out.extend_from_slice(&self.content);
        out.extend_from_slice(more);
        push_end(&mut out, self.name);
        out.into()
    }
}

/// XEP-0280 §6.1: chat messages and other messages between people, except private ones (§7, XEP-0334 §4.3).
fn is_carbon_copied(name: &str, kind: &str, message: Element<'_>) -> bool {
    let is_of = |child: Element<'_>| {
        matches!(child.namespace(), ns::RECEIPTS | ns::CHAT_STATES) || child.is(ns::CLIENT, "body")
    };
    let is_said = match kind {
        "chat" => true,
        "" | "normal" => message.children().any(is_of),
        _ => false,
    };
    let is_private = message.child(ns::CARBONS, "private").is_some();
    name == "message" && is_said && !is_private && message.child(ns::HINTS, "no-copy").is_none()
}
