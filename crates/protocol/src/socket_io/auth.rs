//! The payload of CONNECT, parsed strictly: `token`, `app`, `topics`, `offsets`, and `pid` and `offset`,
//! which client libraries add when they reconnect. Error messages name fields but never contain values.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::action::LogIn;
use super::notification::Variant;
use super::recovery::{self, Offset};
use crate::native::Token;
use crate::native::client_frame::{ClientFrame, parse_fields};
use crate::native::frame_type::Kind;

/// More than there are fields.
const FIELDS_MAX: usize = 8;

/// Parses the payload of CONNECT, which is an object. `Err`: a text for the client's developer.
pub(super) fn read(payload: Option<&str>) -> Result<(LogIn, Variant), String> {
    let mut log_in = LogIn { token: None, app: None, topics: Vec::new(), pid: None, offset: None };
    let mut variant = Variant::Acks;
    let mut json = serde_json::Deserializer::from_str(payload.unwrap_or("{}"));
    let fields =
        json.deserialize_map(Fields).map_err(|_| "the handshake's auth is not an object of known fields")?;
    let mut seen = Vec::with_capacity(fields.len());
    for (name, value) in &fields {
        if seen.contains(&name) {
            return Err("a field of the handshake's auth occurs twice".to_owned());
        }
        seen.push(name);
        match &**name {
            "token" => match string(value)?.filter(|token| !token.is_empty()) {
                Some(token) => log_in.token = Some(Token::new(&token)),
                None => return Err("`token` must be a non-empty string".to_owned()),
            },
            "app" => log_in.app = Some(string(value)?.ok_or("`app` must be a string")?.into()),
            "topics" => log_in.topics = topics(value.get())?,
            "offsets" => match value.get() {
                "true" => variant = Variant::Offsets,
                "false" => {}
                _ => return Err("`offsets` must be true or false".to_owned()),
            },
            // Set by the library: an unknown value is ignored.
            "pid" => log_in.pid = string(value)?.filter(|pid| recovery::is_pid(pid)).map(Into::into),
            "offset" => log_in.offset = string(value)?.and_then(|offset| Offset::parse(&offset)),
            name => {
                let shown = &name[..name.floor_char_boundary(64)];
                return Err(format!("unknown field `{shown}` in the handshake's auth"));
            }
        }
    }
    Ok((log_in, variant))
}

/// `None` if it is not a string.
fn string(value: &RawValue) -> Result<Option<Cow<'_, str>>, &'static str> {
    match value.get().starts_with('"') {
        true => serde_json::from_str::<Text<'_>>(value.get())
            .map(|text| Some(text.0))
            .map_err(|_| "a string of the handshake's auth is not valid Unicode"),
        false => Ok(None),
    }
}

/// Parsed as in the native frame, with the same limits and messages.
fn topics(json: &str) -> Result<Vec<noroshi_types::Topic>, String> {
    match parse_fields(Kind::Sub, &format!(r#"{{"topics":{json}}}"#)) {
        Ok(ClientFrame::Sub { topics, .. }) => Ok(topics),
        Ok(_) => Err("`topics` must be an array of strings".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[derive(serde::Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// Visits a small number of names and values.
struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while let Some(name) = map.next_key::<Text<'de>>()? {
            if fields.len() == FIELDS_MAX {
                return Err(serde::de::Error::custom("too many fields"));
            }
            fields.push((name.0, map.next_value()?));
        }
        Ok(fields)
    }
}

#[cfg(test)]
mod tests {
    use noroshi_types::Topic;

    use super::*;

    #[track_caller]
    fn refused(payload: &str, expected: &str) {
        assert_eq!(read(Some(payload)).map(drop), Err(expected.to_owned()), "{payload}");
    }

    #[test]
    fn every_field_is_parsed() {
        let nothing = LogIn { token: None, app: None, topics: vec![], pid: None, offset: None };
        assert_eq!(read(None), Ok((nothing.clone(), Variant::Acks)));
        assert_eq!(read(Some("{}")), Ok((nothing, Variant::Acks)));
        let id = "01890a5d-ac96-774b-bcce-b302099a8057";
        let payload = format!(
            r#"{{"token":"a\u0062c","app":"dev","topics":["news","news","日本"],"offsets":true,"pid":"p-1","offset":"{id}"}}"#
        );
        let (log_in, variant) = read(Some(&payload)).unwrap();
        assert_eq!(log_in.token.as_ref().map(Token::as_str), Some("abc"));
        assert_eq!((log_in.app.as_deref(), log_in.pid.as_deref()), (Some("dev"), Some("p-1")));
        assert_eq!(log_in.topics, [Topic::parse("news").unwrap(), Topic::parse("日本").unwrap()]);
        assert_eq!((variant, log_in.offset), (Variant::Offsets, Offset::parse(id)));
        assert!(log_in.is_recoverable());
        assert!(!LogIn { offset: None, ..log_in.clone() }.is_recoverable());
        assert!(LogIn { offset: None, topics: vec![], ..log_in.clone() }.is_recoverable());
        assert!(!LogIn { pid: None, ..log_in }.is_recoverable());
    }

    #[test]
    fn recovery_state_of_another_server_is_ignored() {
        let (log_in, _) = read(Some(r#"{"pid":"a b","offset":"17-0"}"#)).unwrap();
        assert_eq!((log_in.pid, log_in.offset), (None, None));
        let (log_in, _) = read(Some(r#"{"pid":null,"offset":7}"#)).unwrap();
        assert_eq!((log_in.pid, log_in.offset), (None, None));
    }

    #[test]
    fn errors_name_the_field_and_no_value() {
        refused(r#"{"token":["s3cret"]}"#, "`token` must be a non-empty string");
        refused(r#"{"token":""}"#, "`token` must be a non-empty string");
        refused(r#"{"app":1}"#, "`app` must be a string");
        refused(r#"{"offsets":"true"}"#, "`offsets` must be true or false");
        refused(r#"{"topics":"news"}"#, "`topics` must be an array of strings");
        refused(r#"{"topics":["$x"]}"#, "`topics[0]`: a topic must not start with '$', which is reserved");
        refused(r#"{"x":1}"#, "unknown field `x` in the handshake's auth");
        refused(r#"{"token":"a","token":"b"}"#, "a field of the handshake's auth occurs twice");
        refused(r#"{"token":"\ud800"}"#, "a string of the handshake's auth is not valid Unicode");
        let many: Vec<_> = (0..9).map(|n| format!("\"{n}\":0")).collect();
        let unknown = "the handshake's auth is not an object of known fields";
        refused(&format!("{{{}}}", many.join(",")), unknown);
    }
}
