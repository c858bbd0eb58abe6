//! Parses a message like Google's JSON parser: only field names of the schema, in camelCase or as in the
//! .proto file, with values of the right type; then FCM's own rules: exactly one target, string values in
//! `data`, sizes, reserved keys.

mod schema;

use serde_json::{Map, Value};

use super::Wrong;
use schema::{Fields, Kind, REQUEST};

const BYTES_MAX: usize = 4_096;
const TOPIC_BYTES_MAX: usize = 2_048;
/// 28 days.
const TTL_S_MAX: f64 = 2_419_200.0;

#[derive(Debug)]
pub(super) struct Message<'a> {
    pub(super) token: &'a str,
    pub(super) title: Option<&'a str>,
}

pub(super) fn check(request: &Value) -> Result<Message<'_>, Wrong> {
    check_object(request, &[REQUEST], "")?;
    let message = request.get("message").and_then(Value::as_object);
    let message = message.ok_or_else(|| invalid("message", "Message is required."))?;
    let targets = ["token", "topic", "condition"];
    let given: Vec<&str> = targets.into_iter().filter(|target| message.contains_key(*target)).collect();
    let [target] = given[..] else {
        return Err(invalid("message", "Exactly one of token, topic or condition is required."));
    };
    let token = message[target].as_str().filter(|token| !token.is_empty());
    let token = token.ok_or_else(|| invalid(&format!("message.{target}"), "The target is empty."))?;
    check_data(message.get("data"))?;
    check_size(message, if target == "topic" { TOPIC_BYTES_MAX } else { BYTES_MAX })?;
    if target != "token" {
        return Err(invalid(&format!("message.{target}"), "This fake only supports tokens."));
    }
    let title = |key: &str| message.get("notification")?.get(key)?.as_str();
    Ok(Message { token, title: title("title").or_else(|| title("body")) })
}

/// "The key should not be a reserved word ("from", "message_type", or any word starting with "google." or
/// "gcm.")", interpreted as broadly as by the server. Some of Google's guides also list "notification", which
/// the server accepts.
fn check_data(data: Option<&Value>) -> Result<(), Wrong> {
    let data = data.and_then(Value::as_object).into_iter().flatten();
    for (key, _) in data {
        let reserved = ["from", "message_type"].contains(&key.as_str());
        if reserved || key.starts_with("google.") || key.starts_with("gcm.") || key.is_empty() {
            return Err(invalid("message.data", &format!("Invalid data payload key: {key}")));
        }
    }
    Ok(())
}

/// The size of notification and data, without platform options.
fn check_size(message: &Map<String, Value>, bytes_max: usize) -> Result<(), Wrong> {
    let texts = |value: Option<&Value>| -> usize {
        let fields = value.and_then(Value::as_object).into_iter().flatten();
        fields.map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum()
    };
    let android = message.get("android").and_then(|android| android.get("data"));
    let data = if android.is_some() { android } else { message.get("data") };
    match texts(data) + texts(message.get("notification")) {
        bytes if bytes <= bytes_max => Ok(()),
        _ => Err(invalid("message", &format!("Android message is too big: at most {bytes_max} bytes"))),
    }
}

fn check_object(value: &Value, fields: &[Fields], path: &str) -> Result<(), Wrong> {
    let object = value.as_object().ok_or_else(|| unreadable(path, value))?;
    let mut seen: Vec<&str> = Vec::new();
    for (key, value) in object {
        let found = fields.iter().copied().flatten().find(|(name, _)| name == key || is_camel(name, key));
        let Some((name, kind)) = found else {
            let at = if path.is_empty() { String::new() } else { format!(" at '{path}'") };
            let description =
                format!("Invalid JSON payload received. Unknown name \"{key}\"{at}: Cannot find field.");
            return Err(invalid(path, &description));
        };
        if seen.contains(name) {
            return Err(invalid(path, &format!("Field {name} is repeated.")));
        }
        seen.push(name);
        let path = if path.is_empty() { (*name).to_owned() } else { format!("{path}.{name}") };
        check_value(value, kind, &path)?;
    }
    Ok(())
}

fn check_value(value: &Value, kind: &Kind, path: &str) -> Result<(), Wrong> {
    let right = match kind {
        Kind::Object(fields) => return check_object(value, fields, path),
        Kind::Text => value.is_string(),
        Kind::Flag => value.is_boolean(),
        Kind::Int => value.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
        Kind::Share => value.as_f64().is_some_and(|number| (0.0..=1.0).contains(&number)),
        Kind::Any => value.is_object(),
        Kind::Texts => value.as_array().is_some_and(|list| list.iter().all(Value::is_string)),
        Kind::TextMap => value.as_object().is_some_and(|map| map.values().all(Value::is_string)),
        Kind::Duration => value.as_str().is_some_and(is_duration),
        Kind::Durations => {
            let is = |value: &Value| value.as_str().is_some_and(is_duration);
            value.as_array().is_some_and(|list| list.iter().all(is))
        }
        Kind::Time => value.as_str().is_some_and(|time| time.len() >= 20 && time.contains('T')),
        Kind::Color => value.as_str().is_some_and(|color| {
            color.len() == 7
                && color.starts_with('#')
                && color[1..].bytes().all(|byte| byte.is_ascii_hexdigit())
        }),
        Kind::Label => value.as_str().is_some_and(|label| {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~%".contains(&byte);
            (1..=50).contains(&label.len()) && label.bytes().all(allowed)
        }),
        Kind::One(words) => value.as_str().is_some_and(|word| words.contains(&word)),
    };
    if right { Ok(()) } else { Err(unreadable(path, value)) }
}

/// `3.5s`: seconds with up to nine decimal places.
fn is_duration(text: &str) -> bool {
    let Some(seconds) = text.strip_suffix('s') else { return false };
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, "0"));
    !whole.is_empty()
        && digits(whole)
        && digits(fraction)
        && (1..=9).contains(&fraction.len())
        && seconds.parse().is_ok_and(|seconds: f64| seconds <= TTL_S_MAX)
}

fn unreadable(path: &str, value: &Value) -> Wrong {
    let mut shown = value.to_string();
    if shown.len() > 100 {
        shown = "…".to_owned();
    }
    invalid(path, &format!("Invalid value at '{path}', {shown}"))
}

fn invalid(field: &str, description: &str) -> Wrong {
    Wrong::Invalid { field: field.to_owned(), description: description.to_owned() }
}

/// Whether `key` is the JSON name of a field: of `collapse_key` it is `collapseKey`.
fn is_camel(name: &str, key: &str) -> bool {
    let mut key = key.chars();
    let mut upper = false;
    let same = name.chars().all(|c| match c {
        '_' => {
            upper = true;
            true
        }
        c if std::mem::take(&mut upper) => key.next() == Some(c.to_ascii_uppercase()),
        c => key.next() == Some(c),
    });
    same && key.next().is_none()
}
