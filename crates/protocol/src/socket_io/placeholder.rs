//! Placeholders: `{"_placeholder":true,"num":0}` in a binary packet's JSON refers to an attachment. As in the
//! JavaScript parser, every placeholder must refer to an attachment that exists.
//!
//! Only binary packets are parsed this deeply; serde_json stops at 128 levels.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

/// Whether every placeholder in `json` refers to one of `attachments`.
pub(super) fn are_valid(json: &str, attachments: usize) -> bool {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    Check { attachments: attachments as u64 }.deserialize(&mut deserializer).is_ok()
}

#[derive(Clone, Copy)]
struct Check {
    attachments: u64,
}

impl<'de> DeserializeSeed<'de> for Check {
    type Value = Seen;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Seen, D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// The kind of a value, as far as placeholders are concerned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    True,
    Number(u64),
    Else,
}

impl<'de> Visitor<'de> for Check {
    type Value = Seen;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Seen, E> {
        Ok(if value { Seen::True } else { Seen::Else })
    }

    fn visit_u64<E>(self, value: u64) -> Result<Seen, E> {
        Ok(Seen::Number(value))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Seen, E> {
        Ok(Seen::Else)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Seen, E> {
        Ok(Seen::Else)
    }

    fn visit_str<E>(self, _: &str) -> Result<Seen, E> {
        Ok(Seen::Else)
    }

    fn visit_unit<E>(self) -> Result<Seen, E> {
        Ok(Seen::Else)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Seen, A::Error> {
        while seq.next_element_seed(self)?.is_some() {}
        Ok(Seen::Else)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Seen, A::Error> {
        let (mut placeholder, mut num) = (false, None);
        while let Some(key) = map.next_key::<Key>()? {
            let seen = map.next_value_seed(self)?;
            match key {
                Key::Placeholder => placeholder = seen == Seen::True,
                Key::Num => num = Some(seen),
                Key::Else => {}
            }
        }
        let names_one = matches!(num, Some(Seen::Number(num)) if num < self.attachments);
        match placeholder && !names_one {
            true => Err(serde::de::Error::custom("a placeholder refers to a missing attachment")),
            false => Ok(Seen::Else),
        }
    }
}

#[derive(Deserialize)]
#[serde(field_identifier)]
enum Key {
    #[serde(rename = "_placeholder")]
    Placeholder,
    #[serde(rename = "num")]
    Num,
    #[serde(other)]
    Else,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_placeholder_names_an_attachment() {
        let check = |json: &str, attachments, expected: bool| {
            assert_eq!(are_valid(json, attachments), expected, "{json} of {attachments}");
        };
        check(r#"["a",{"_placeholder":true,"num":0}]"#, 1, true);
        check(r#"["a",{"num":1,"_placeholder":true},{"x":[{"_placeholder":true,"num":0}]}]"#, 2, true);
        check(r#"["a",{"_placeholder":true,"num":0},{"_placeholder":true,"num":0}]"#, 1, true);
        check(r#"["a"]"#, 3, true);
        check(r#"["a",{"_placeholder":false,"num":9},{"num":9},{"_placeholder":1}]"#, 0, true);
        check(r#"["a",{"_placeholder":true,"num":0}]"#, 0, false);
        check(r#"["a",{"_placeholder":true,"num":1}]"#, 1, false);
        check(r#"["a",{"x":{"y":[{"_placeholder":true,"num":2}]}}]"#, 2, false);
        for num in ["-1", "0.5", "\"0\"", "null", "true", "1e300"] {
            check(&format!(r#"["a",{{"_placeholder":true,"num":{num}}}]"#), 9, false);
        }
        check(r#"["a",{"_placeholder":true}]"#, 9, false);
    }

    #[test]
    fn depth_is_bounded() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(!are_valid(&deep, 1));
    }
}
