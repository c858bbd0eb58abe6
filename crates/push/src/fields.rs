//! What a provider requested for push services, and the rules that all services' folders share: how a
//! notification is read, which of a provider's own fields are allowed, and how they override derived ones.
//!
//! Overrides follow JSON Merge Patch (RFC 7396): objects merge key by key, any other value replaces the derived
//! one, and `null` removes it. Nothing here knows a particular service.

use std::borrow::Cow;

use noroshi_types::{JsonText, NotificationId, OwnFields, PushService, Timestamp, TokenKind, Urgency};
use serde_json::{Map, Value};

use crate::shown::{Badge, Shown, UNREAD_BADGE};

/// The fields of a provider's request that concern push services.
#[derive(Debug, Clone)]
pub struct Fields {
    /// Sent to the device with the push, so that it can drop what it received live or from its inbox.
    pub notification_id: Option<NotificationId>,
    /// The visible part: the module `shown` lists its fields.
    pub notification: Option<JsonText>,
    pub data: Option<JsonText>,
    pub urgency: Urgency,
    pub collapse_key: Option<Box<str>>,
    /// No push service may deliver it later.
    pub expires_at: Timestamp,
    /// The unread items of the user, for a badge that counts them; `None`: unknown, the push sets no badge.
    pub unread: Option<u32>,
    /// The kind of the tokens that it goes to; `None`: the main token of each device.
    pub kind: Option<TokenKind>,
    /// Fields for one service only: they override derived ones.
    pub own: OwnFields,
}

/// Why a push service would reject the content. Reported before anything is accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidContent {
    #[error("the payload for {} would have {bytes} bytes, the limit is {bytes_max}", service.as_str())]
    TooLarge { service: PushService, bytes: usize, bytes_max: usize },
    /// A field that the service is known to reject: its path in the request, and the rule.
    #[error("{field}: {rule}")]
    Invalid { service: PushService, field: String, rule: Cow<'static, str> },
}

impl InvalidContent {
    pub(crate) fn invalid(
        service: PushService,
        field: impl Into<String>,
        rule: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self::Invalid { service, field: field.into(), rule: rule.into() }
    }

    pub(crate) fn reason(&self) -> &'static str {
        match self {
            InvalidContent::TooLarge { .. } => "payload_too_large",
            InvalidContent::Invalid { .. } => "invalid_push_fields",
        }
    }
}

impl Fields {
    /// Whether tokens of this service get it.
    pub(crate) fn goes_to(&self, service: PushService) -> bool {
        self.kind.is_none_or(|kind| kind.service() == service)
    }

    /// None: a data message without a visible part.
    pub(crate) fn shown(&self) -> Option<Shown> {
        let shown: Shown = serde_json::from_str(self.notification.as_ref()?.as_str()).ok()?;
        Some(Shown { unread: self.unread, ..shown })
    }

    /// Whether the badge counts the user's unread items.
    pub(crate) fn counts_unread(&self) -> bool {
        // Most notifications do not have the word at all.
        let has_word = |text: &JsonText| text.as_str().contains(UNREAD_BADGE);
        self.notification.as_ref().is_some_and(has_word)
            && self.shown().is_some_and(|shown| shown.badge == Some(Badge::Unread))
    }

    pub(crate) fn data(&self) -> Option<Value> {
        serde_json::from_str(self.data.as_ref()?.as_str()).ok()
    }
}

/// A provider's own fields for one service: an object with only these keys.
pub(crate) fn own_fields(
    service: PushService,
    fields: &Fields,
    allowed: &[&str],
) -> Result<Map<String, Value>, InvalidContent> {
    let path = format!("push.{}", service.as_str());
    let Some(json) = fields.own.get(service) else { return Ok(Map::new()) };
    let Ok(Value::Object(fields)) = serde_json::from_str(json.as_str()) else {
        return Err(InvalidContent::invalid(service, path, "must be an object"));
    };
    match fields.keys().find(|key| !allowed.contains(&key.as_str())) {
        Some(key) => Err(InvalidContent::invalid(
            service,
            format!("{path}.{key}"),
            format!("is not allowed; allowed fields are {}", allowed.join(", ")),
        )),
        None => Ok(fields),
    }
}

/// The headers among a provider's own fields: strings or whole numbers, by lower-case name.
pub(crate) fn own_headers(
    service: PushService,
    fields: &mut Map<String, Value>,
    allowed: &[&'static str],
) -> Result<Vec<(&'static str, String)>, InvalidContent> {
    let path = format!("push.{}.headers", service.as_str());
    let headers = match fields.remove("headers") {
        None => return Ok(Vec::new()),
        Some(Value::Object(headers)) => headers,
        Some(_) => return Err(InvalidContent::invalid(service, path, "must be an object")),
    };
    let header = |(name, value): (String, Value)| {
        let path = format!("{path}.{name}");
        let known = allowed.iter().find(|known| known.eq_ignore_ascii_case(&name)).ok_or_else(|| {
            let rule = format!("is not allowed; allowed headers are {}", allowed.join(", "));
            InvalidContent::invalid(service, path.clone(), rule)
        })?;
        let value = match value {
            Value::String(text) if is_header_value(&text) => text,
            Value::Number(number) if number.is_u64() => number.to_string(),
            _ => {
                return Err(InvalidContent::invalid(
                    service,
                    path,
                    "must be a string of visible ASCII, or a whole number",
                ));
            }
        };
        Ok((*known, value))
    };
    headers.into_iter().map(header).collect()
}

/// RFC 9110 §5.5, without spaces and obs-text, which no header of a push service needs.
pub(crate) fn is_header_value(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// RFC 7396 §2.
pub(crate) fn merge_patch(target: &mut Map<String, Value>, patch: Map<String, Value>) {
    for (key, value) in patch {
        match value {
            Value::Null => {
                target.remove(&key);
            }
            Value::Object(patch) => {
                let inner = target.entry(key).or_insert(Value::Null);
                if !inner.is_object() {
                    *inner = Value::Object(Map::new());
                }
                if let Value::Object(inner) = inner {
                    merge_patch(inner, patch);
                }
            }
            value => {
                target.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// Empty fields with a fixed id and one day to live from the epoch.
    pub(crate) fn fields() -> Fields {
        Fields {
            notification_id: NotificationId::parse("0197b3f0-1111-7222-8333-444455556666").ok(),
            notification: None,
            data: None,
            urgency: Urgency::Normal,
            collapse_key: None,
            expires_at: Timestamp(86_400_000),
            unread: None,
            kind: None,
            own: OwnFields::default(),
        }
    }

    pub(crate) fn json_text(value: &Value) -> Option<JsonText> {
        Some(JsonText::from_valid(value.to_string()))
    }

    /// A provider's own fields for one service.
    pub(crate) fn own_fields(service: PushService, value: &Value) -> OwnFields {
        match value {
            Value::Null => OwnFields::default(),
            value => OwnFields::from_iter([(service, JsonText::from_valid(value.to_string()))]),
        }
    }

    fn check(mut target: Value, patch: Value, expected: Value) {
        let (Value::Object(into), Value::Object(patch)) = (&mut target, patch) else { unreachable!() };
        merge_patch(into, patch);
        assert_eq!(target, expected);
    }

    #[test]
    fn merge_patch_follows_rfc_7396() {
        // Appendix A: the rows whose target and patch are objects.
        check(json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"}));
        check(json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"}));
        check(json!({"a": "b"}), json!({"a": null}), json!({}));
        check(json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"}));
        check(json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"}));
        check(json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]}));
        check(json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}}));
        check(json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]}));
        check(json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1}));
        check(json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}}));
    }
}
