//! The configuration of a node as a data form (XEP-0060 §16.4.4, XEP-0004): only the supported options.
//! Options missing from a form stay unchanged; a form with an unknown option is rejected as a whole.

use bytes::Bytes;
use noroshi_types::names;

use super::Refused;
use crate::xmpp::error::StanzaError;
use crate::xmpp::namespace as ns;
use crate::xmpp::xml::Element;
use crate::xmpp::xml::write::{element, push_empty, push_end, push_start, push_text, push_with, written_len};

/// Limit of an item's payload.
pub(super) const PAYLOAD_BYTES_MAX: usize = 10_000;
/// Limit of items per node.
const ITEMS_MAX: usize = 20;
/// Limit of a title, description or type.
const TEXT_BYTES_MAX: usize = 1_023;
/// Limit of title, description, type and groups together, escaped.
const TEXTS_BYTES_MAX: usize = 10_000;
const GROUPS_MAX: usize = 20;
const FIELDS_MAX: usize = 40;

const NOT_ACCEPTABLE: Refused = (StanzaError::NotAcceptable, "");
const BAD_REQUEST: Refused = (StanzaError::BadRequest, "");

names! {
    /// Who may subscribe and read (§4.5).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) enum Access {
        Authorize => "authorize",
        Open => "open",
        Presence => "presence",
        Roster => "roster",
        Whitelist => "whitelist",
    }
}
names! {
    /// Who may publish, apart from owners and publishers.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) enum Publishers {
        Affiliated => "publishers",
        Subscribers => "subscribers",
        Open => "open",
    }
}
names! {
    /// When a subscriber receives the last item (§6.1.7).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(super) enum LastItem {
        Never => "never",
        OnSubscribing => "on_sub",
    }
}

names! {
    /// The type of a form.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(in crate::xmpp) enum FormKind {
        Configuration => "http://jabber.org/protocol/pubsub#node_config",
        Authorization => "http://jabber.org/protocol/pubsub#subscribe_authorization",
    }
}

/// The fields of a submitted form, with their values.
pub(in crate::xmpp) type Fields = Vec<Field>;
pub(in crate::xmpp) type Field = (Box<str>, Vec<Box<str>>);

/// `None`: the client cancelled (XEP-0004 §3.1).
pub(in crate::xmpp) fn parse_form(form: Element<'_>, kind: FormKind) -> Result<Option<Fields>, Refused> {
    match form.attribute("type") {
        Some("cancel") => return Ok(None),
        Some("submit") | None => {}
        Some(_) => return Err(BAD_REQUEST),
    }
    let mut fields = Fields::new();
    for field in form.children().filter(|child| child.is(ns::FORM, "field")) {
        let name = field.attribute("var").unwrap_or_default();
        let values = field.children().filter(|child| child.is(ns::FORM, "value"));
        let values: Vec<Box<str>> = values.map(|value| value.text().into()).collect();
        if name == "FORM_TYPE" {
            if values.first().is_none_or(|value| **value != *kind.as_str()) {
                return Err(BAD_REQUEST);
            }
            continue;
        }
        if fields.len() == FIELDS_MAX {
            return Err(NOT_ACCEPTABLE);
        }
        fields.push((name.into(), values));
    }
    Ok(Some(fields))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NodeConfig {
    pub(super) title: Box<str>,
    pub(super) description: Box<str>,
    /// A description of the payloads, for people.
    pub(super) kind: Box<str>,
    pub(super) access: Access,
    pub(super) groups: Vec<Box<str>>,
    pub(super) publishers: Publishers,
    pub(super) last_item: LastItem,
    pub(super) is_persistent: bool,
    /// `1 <= items_max <= ITEMS_MAX`
    pub(super) items_max: usize,
    pub(super) payload_bytes_max: usize,
    pub(super) has_payloads: bool,
    pub(super) notifies_items: bool,
    pub(super) notifies_configuration: bool,
    pub(super) notifies_deletion: bool,
    pub(super) notifies_retraction: bool,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            title: "".into(),
            description: "".into(),
            kind: "".into(),
            access: Access::Open,
            groups: Vec::new(),
            publishers: Publishers::Affiliated,
            last_item: LastItem::OnSubscribing,
            is_persistent: true,
            items_max: 10,
            payload_bytes_max: PAYLOAD_BYTES_MAX,
            has_payloads: true,
            notifies_items: true,
            notifies_configuration: false,
            notifies_deletion: true,
            notifies_retraction: true,
        }
    }
}

fn boolean(text: &str) -> Result<bool, Refused> {
    match text {
        "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err(NOT_ACCEPTABLE),
    }
}

fn short(text: &str) -> Result<Box<str>, Refused> {
    (text.len() <= TEXT_BYTES_MAX).then(|| text.into()).ok_or(NOT_ACCEPTABLE)
}

/// A number up to a limit; `max` represents the limit.
fn number(text: &str, max: usize) -> Result<usize, Refused> {
    let number = if text == "max" { Some(max) } else { text.parse().ok() };
    number.filter(|it| (1..=max).contains(it)).ok_or(NOT_ACCEPTABLE)
}

impl NodeConfig {
    /// The configuration with `fields` applied (§8.2.4, §8.1.3).
    pub(super) fn changed(&self, fields: &[Field]) -> Result<Self, Refused> {
        let mut changed = self.clone();
        for (name, values) in fields {
            changed.set(name, values)?;
        }
        let texts = [&changed.title, &changed.description, &changed.kind].into_iter().chain(&changed.groups);
        let bytes: usize = texts.map(|text| written_len(text)).sum();
        (bytes <= TEXTS_BYTES_MAX).then_some(changed).ok_or(NOT_ACCEPTABLE)
    }

    fn set(&mut self, name: &str, values: &[Box<str>]) -> Result<(), Refused> {
        let name = name.strip_prefix("pubsub#").ok_or(NOT_ACCEPTABLE)?;
        if name == "roster_groups_allowed" {
            let groups = values.iter().map(|group| short(group)).collect::<Result<Vec<_>, _>>()?;
            self.groups = (groups.len() <= GROUPS_MAX).then_some(groups).ok_or(NOT_ACCEPTABLE)?;
            return Ok(());
        }
        let value = match values {
            [] => "",
            [value] => value,
            _ => return Err(NOT_ACCEPTABLE),
        };
        match name {
            "title" => self.title = short(value)?,
            "description" => self.description = short(value)?,
            "type" => self.kind = short(value)?,
            "node_type" if value == "leaf" => {}
            "access_model" => self.access = Access::named(value).ok_or(NOT_ACCEPTABLE)?,
            "publish_model" => self.publishers = Publishers::named(value).ok_or(NOT_ACCEPTABLE)?,
            "send_last_published_item" => self.last_item = LastItem::named(value).ok_or(NOT_ACCEPTABLE)?,
            "persist_items" => self.is_persistent = boolean(value)?,
            "max_items" => self.items_max = number(value, ITEMS_MAX)?,
            "max_payload_size" => self.payload_bytes_max = number(value, PAYLOAD_BYTES_MAX)?,
            "deliver_payloads" => self.has_payloads = boolean(value)?,
            "deliver_notifications" => self.notifies_items = boolean(value)?,
            "notify_config" => self.notifies_configuration = boolean(value)?,
            "notify_delete" => self.notifies_deletion = boolean(value)?,
            "notify_retract" => self.notifies_retraction = boolean(value)?,
            _ => return Err(NOT_ACCEPTABLE),
        }
        Ok(())
    }

    /// The form that reports and requests the configuration.
    pub(super) fn push_form(&self, out: &mut Vec<u8>, kind: &str) {
        let (items_max, payload_max) = (self.items_max.to_string(), self.payload_bytes_max.to_string());
        push_form_start(out, kind, FormKind::Configuration.as_str());
        push_field(out, "pubsub#title", "text-single", &self.title);
        push_field(out, "pubsub#description", "text-single", &self.description);
        push_field(out, "pubsub#type", "text-single", &self.kind);
        push_choice(out, "pubsub#node_type", &["leaf"], "leaf");
        push_choice(out, "pubsub#access_model", &Access::ALL.map(Access::as_str), self.access.as_str());
        let groups = [("var", "pubsub#roster_groups_allowed"), ("type", "text-multi")];
        push_with(out, "field", &groups, |out| {
            self.groups.iter().for_each(|group| push_text(out, "value", &[], group));
        });
        push_choice(
            out,
            "pubsub#publish_model",
            &Publishers::ALL.map(Publishers::as_str),
            self.publishers.as_str(),
        );
        push_choice(
            out,
            "pubsub#send_last_published_item",
            &LastItem::ALL.map(LastItem::as_str),
            self.last_item.as_str(),
        );
        push_field(out, "pubsub#max_items", "text-single", &items_max);
        push_field(out, "pubsub#max_payload_size", "text-single", &payload_max);
        let switches = [
            ("pubsub#persist_items", self.is_persistent),
            ("pubsub#deliver_payloads", self.has_payloads),
            ("pubsub#deliver_notifications", self.notifies_items),
            ("pubsub#notify_config", self.notifies_configuration),
            ("pubsub#notify_delete", self.notifies_deletion),
            ("pubsub#notify_retract", self.notifies_retraction),
        ];
        for (name, is_on) in switches {
            push_field(out, name, "boolean", if is_on { "1" } else { "0" });
        }
        push_end(out, "x");
    }

    /// §8.3
    pub(super) fn default_form(&self) -> Bytes {
        element("pubsub", &[("xmlns", ns::PUBSUB_OWNER)], |out| {
            push_with(out, "default", &[], |out| self.push_form(out, "form"));
        })
    }
}

pub(super) fn push_form_start(out: &mut Vec<u8>, kind: &str, form: &str) {
    push_start(out, "x", &[("xmlns", ns::FORM), ("type", kind)]);
    push_field(out, "FORM_TYPE", "hidden", form);
}

pub(super) fn push_field(out: &mut Vec<u8>, name: &str, kind: &str, value: &str) {
    push_start(out, "field", &[("var", name), ("type", kind)]);
    match value {
        "" => push_empty(out, "value", &[]),
        value => push_text(out, "value", &[], value),
    }
    push_end(out, "field");
}

fn push_choice(out: &mut Vec<u8>, name: &str, words: &[&str], value: &str) {
    push_start(out, "field", &[("var", name), ("type", "list-single")]);
    for word in words {
        push_with(out, "option", &[], |out| push_text(out, "value", &[], word));
    }
    push_text(out, "value", &[], value);
    push_end(out, "field");
}

/// §8.6: asks an owner to approve a subscription.
pub(super) fn authorization(node: &str, subscriber: &str) -> Vec<u8> {
    let mut out = Vec::new();
    push_form_start(&mut out, "form", FormKind::Authorization.as_str());
    push_field(&mut out, "pubsub#node", "text-single", node);
    push_field(&mut out, "pubsub#subscriber_jid", "jid-single", subscriber);
    push_field(&mut out, "pubsub#allow", "boolean", "0");
    push_end(&mut out, "x");
    out
}

/// Parses the owner's answer: node, subscriber, and the decision.
pub(in crate::xmpp) fn parse_authorization(fields: &Fields) -> Result<(Box<str>, Box<str>, bool), Refused> {
    let value = |name: &str| {
        let field = fields.iter().find(|(known, _)| **known == *name);
        field.and_then(|(_, values)| values.first()).ok_or(BAD_REQUEST)
    };
    let allow = boolean(value("pubsub#allow")?).map_err(|_| BAD_REQUEST)?;
    Ok((value("pubsub#node")?.clone(), value("pubsub#subscriber_jid")?.clone(), allow))
}
