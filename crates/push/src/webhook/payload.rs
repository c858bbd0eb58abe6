//! Renders a message for providers: the fields as the request has them, because the provider decides what to make of
//! them. Pure.

use noroshi_types::{JsonText, PushService};
use serde_json::{Map, Value};

use crate::content;
use crate::fields::{Fields, InvalidContent};
use crate::shown::Shown;

/// The members of a message without its recipients, such as `"urgency":"high"`, joined by commas.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Payload {
    pub(super) members: String,
}

impl content::Payload for Payload {
    const SERVICE: PushService = PushService::Webhook;

    fn render(fields: &Fields, _: &Shown) -> Result<Self, InvalidContent> {
        let mut members = String::new();
        let mut add = |name: &str, json: &str| {
            if !members.is_empty() {
                members.push(',');
            }
            members.push('"');
            members.push_str(name);
            members.push_str("\":");
            members.push_str(json);
        };
        if let Some(id) = fields.notification_id {
            add("notification_id", &format!("\"{id}\""));
        }
        if let Some(notification) = &fields.notification {
            match fields.counts_unread() {
                true => add("notification", &with_count(notification, fields.unread)),
                false => add("notification", notification.as_str()),
            }
        }
        if let Some(data) = &fields.data {
            add("data", data.as_str());
        }
        add("urgency", &format!("\"{}\"", fields.urgency.as_str()));
        if let Some(key) = &fields.collapse_key {
            add("collapse_key", &serde_json::Value::from(&**key).to_string());
        }
        add("expires_at", &format!("\"{}\"", fields.expires_at));
        if let Some(own) = fields.own.get(PushService::Webhook) {
            add("options", own.as_str());
        }
        Ok(Self { members })
    }
}

/// The notification with the number of unread items as its badge; without a badge if the number is unknown.
fn with_count(notification: &JsonText, unread: Option<u32>) -> String {
    let mut fields: Map<String, Value> = serde_json::from_str(notification.as_str()).unwrap_or_default();
    match unread {
        Some(count) => fields.insert("badge".to_owned(), count.into()),
        None => fields.remove("badge"),
    };
    Value::Object(fields).to_string()
}

#[cfg(test)]
mod tests {
    use noroshi_types::Urgency;
    use serde_json::json;

    use super::*;
    use crate::content::Payload as _;
    use crate::fields::tests::{fields, own_fields};

    #[test]
    fn a_provider_gets_all_fields_unchanged() {
        let fields = Fields {
            notification: Some(JsonText::from_valid(r#"{"title": "T",  "n": 1.50}"#)),
            data: Some(JsonText::from_valid("[1e2]")),
            urgency: Urgency::High,
            collapse_key: Some("a\"b".into()),
            own: own_fields(PushService::Webhook, &json!({"template": "sale"})),
            ..fields()
        };
        let members = Payload::new(&fields).unwrap().members;
        assert!(members.contains(r#""notification":{"title": "T",  "n": 1.50},"data":[1e2]"#), "{members}");
        let message: Value = serde_json::from_str(&format!("{{{members}}}")).unwrap();
        assert_eq!(
            message,
            json!({"notification_id": "0197b3f0-1111-7222-8333-444455556666",
                "notification": {"title": "T", "n": 1.5}, "data": [100.0], "urgency": "high",
                "collapse_key": "a\"b", "expires_at": "1970-01-02T00:00:00.000Z", "options": {"template": "sale"}})
        );
    }

    #[test]
    fn a_message_without_fields_is_an_object_too() {
        let fields = Fields { notification_id: None, ..fields() };
        let members = Payload::new(&fields).unwrap().members;
        assert_eq!(members, r#""urgency":"normal","expires_at":"1970-01-02T00:00:00.000Z""#);
    }

    #[test]
    fn a_badge_of_unread_items_is_a_number() {
        let check = |unread, expected: &str| {
            let notification = Some(JsonText::from_valid(r#"{"title":"T","badge":"unread"}"#));
            let payload = Payload::new(&Fields { notification, unread, ..fields() }).expect("fits");
            assert!(payload.members.contains(expected), "{}", payload.members);
        };
        check(Some(3), r#""notification":{"badge":3,"title":"T"}"#);
        check(None, r#""notification":{"title":"T"}"#);
    }
}
