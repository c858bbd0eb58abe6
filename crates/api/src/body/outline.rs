//! What of a notification decides when it is admitted, read without collecting or checking the rest: a request that waits
//! in vain is not parsed.

use std::fmt;

use noroshi_delivery::Outline;
use noroshi_types::{PushMode, Urgency, When, limits};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};

use crate::json::Text;

#[derive(Deserialize)]
struct Body {
    to: To,
    when: Option<Text<When>>,
    urgency: Option<Text<Urgency>>,
    push: Option<PushBody>,
}

#[derive(Deserialize)]
struct To {
    users: Option<Length>,
    devices: Option<Length>,
}

#[derive(Deserialize)]
struct PushBody {
    mode: Option<Text<PushMode>>,
}

/// The number of elements of an array.
struct Length(usize);

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Counter;
        impl<'de> Visitor<'de> for Counter {
            type Value = Length;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Length, A::Error> {
                let mut length = 0;
                while seq.next_element::<IgnoredAny>()?.is_some() {
                    length += 1;
                }
                Ok(Length(length))
            }
        }
        deserializer.deserialize_seq(Counter)
    }
}

/// `None` if the target is not a list, or the body must be parsed to tell what is wrong with it.
pub(crate) fn outline(bytes: &[u8], has_idempotency_key: bool) -> Option<Outline> {
    let Body { to, when, urgency, push } = serde_json::from_slice(bytes).ok()?;
    let Length(recipients) = to.users.or(to.devices)?;
    let when = when.map_or(When::Stored, |when| when.0);
    let mode = push.and_then(|push| push.mode).map_or(PushMode::Never, |mode| mode.0);
    Some(Outline {
        recipients: recipients.min(limits::TARGETS_MAX),
        urgency: urgency.map_or(Urgency::Normal, |urgency| urgency.0),
        when,
        is_transient: when != When::Stored && !has_idempotency_key && mode == PushMode::Never,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_recipients_is_counted_and_nothing_else_is_read() {
        let outline =
            |text: &str, has_key| outline(text.as_bytes(), has_key).map(|outline| format!("{outline:?}"));
        let found = |recipients, urgency, when, is_transient| {
            Some(format!("{:?}", Outline { recipients, urgency, when, is_transient }))
        };
        let stored = r#"{"data":{"users":[1]},"to":{"users":["a","b","a"]},"push":{"apns":{"x":[[]]}}}"#;
        assert_eq!(outline(stored, false), found(3, Urgency::Normal, When::Stored, false));
        let live = r#"{"to":{"devices":["a"]},"when":"connected","urgency":"high","data":1}"#;
        assert_eq!(outline(live, false), found(1, Urgency::High, When::Connected, true));
        assert_eq!(outline(live, true), found(1, Urgency::High, When::Connected, false));
        let pushed = r#"{"to":{"users":["a"]},"when":"active","push":{"mode":"always"}}"#;
        assert_eq!(outline(pushed, false), found(1, Urgency::Normal, When::Active, false));
        for other in [
            r#"{"to":{"topic":"news"},"data":1}"#,
            r#"{"to":{"users":"a"},"data":1}"#,
            r#"{"to":{"users":["a"]},"urgency":"extreme"}"#,
            r#"{"to":{"users":["a"]}"#,
            "",
        ] {
            assert_eq!(outline(other, false), None, "{other}");
        }
    }
}
