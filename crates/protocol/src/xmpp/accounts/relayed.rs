//! A stanza on its way from one account to another: what its recipient gets of it, whoever that is.

use bytes::Bytes;

use super::copies::is_copied;
use crate::xmpp::namespace as ns;
use crate::xmpp::xml::Element;
use crate::xmpp::xml::write::{content_of, push_end, push_start};

/// Of an id, a type or a language. Escaped, each byte may take six.
const ATTRIBUTE_BYTES_MAX: usize = 255;

/// What was said, without its addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relayed {
    /// `iq`, `message` or `presence`.
    pub(super) name: &'static str,
    /// Its type; empty where it has none.
    pub(super) kind: Box<str>,
    pub(super) id: Box<str>,
    pub(super) lang: Box<str>,
    /// What stands inside.
    pub(super) content: Bytes,
    /// XEP-0160 §3: a message that waits for who is away.
    pub(super) is_kept: bool,
    /// XEP-0313 §6.1: what archives keep of messages.
    pub(super) is_archived: bool,
    /// XEP-0280: other resources get copies of it.
    pub(super) is_copied: bool,
    /// Of an error: it may pass (RFC 6120 §8.3.2).
    pub(super) may_be_tried_again: bool,
    /// Of presence: RFC 6121 §4.7.2.3.
    pub(super) priority: i8,
    /// Of presence: what the client can, as the node that tells it (XEP-0115 §6.2).
    pub(super) capabilities: Option<Box<str>>,
}

fn capabilities(tag: Element<'_>) -> Option<Box<str>> {
    Some(format!("{}#{}", tag.attribute("node")?, tag.attribute("ver")?).into())
}

/// Whom a client named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipient {
    /// The address as it was written.
    pub asked: Box<str>,
    /// `local@domain`, or the domain, in canonical form.
    pub bare: Box<str>,
    pub resource: Option<Box<str>>,
}

impl Recipient {
    /// In canonical form.
    pub(super) fn address(&self) -> Box<str> {
        match &self.resource {
            Some(resource) => format!("{}/{resource}", self.bare).into(),
            None => self.bare.clone(),
        }
    }
}

impl Relayed {
    /// None if its content is longer than `bytes_max` as its recipients get it, or its id, type or language is longer than
    /// [`ATTRIBUTE_BYTES_MAX`].
    pub(in crate::xmpp) fn new(name: &'static str, root: Element<'_>, bytes_max: usize) -> Option<Self> {
        let lang = root.attributes().find(|(namespace, name, _)| (*namespace, *name) == (ns::XML, "lang"));
        let lang = lang.map_or("", |it| it.2);
        let kind = root.attribute("type").unwrap_or_default();
        let id = root.attribute("id").unwrap_or_default();
        if [kind, id, lang].iter().any(|it| it.len() > ATTRIBUTE_BYTES_MAX) {
            return None;
        }
        // XEP-0280 §7: that its sender keeps it to itself is nobody else's business; XEP-0359 §6: what it is called in an
        // archive nobody says but who has that.
        let content = content_of(root, Some(ns::CLIENT), bytes_max, |child| {
            child.is(ns::CARBONS, "private") || child.is(ns::STANZA_ID, "stanza-id")
        })?;
        // XEP-0160 §3: of chats only what says something; XEP-0334 §4.
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
            is_copied: is_copied(name, kind, root),
            may_be_tried_again: error_kind == Some("wait"),
            priority: priority.unwrap_or_default(),
            capabilities: root.child(ns::CAPABILITIES, "c").and_then(capabilities),
        })
    }

    pub fn is_presence(&self) -> bool {
        self.name == "presence"
    }

    /// The server's own presence of an account.
    pub(super) fn presence(kind: &str) -> Self {
        Self {
            name: "presence",
            kind: kind.into(),
            id: "".into(),
            lang: "".into(),
            content: Bytes::new(),
            is_kept: false,
            is_archived: false,
            is_copied: false,
            may_be_tried_again: false,
            priority: 0,
            capabilities: None,
        }
    }

    /// Of a stream that just ends (RFC 6121 §4.5.2).
    pub(super) fn unavailable() -> Self {
        Self::presence("unavailable")
    }

    pub(in crate::xmpp) fn addressed(&self, from: &str, to: &str) -> Bytes {
        self.with(from, to, b"")
    }

    /// With more elements.
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
