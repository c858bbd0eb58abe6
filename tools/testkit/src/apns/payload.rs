//! The payload of a push: size, JSON with an `aps` object, and in `aps` only the keys of Apple's "Generating
//! a remote notification", each with the right type.

use serde_json::{Map, Value};

use super::Wrong;
use super::headers::Headers;

const BYTES_MAX: usize = 4_096;
const VOIP_BYTES_MAX: usize = 5_120;
const STRICT: Wrong = Wrong(400, "StrictPayload");

/// Returns the title that would be shown.
pub(super) fn check(body: &[u8], headers: &Headers<'_>) -> Result<Option<String>, Wrong> {
    if body.is_empty() {
        return Err(Wrong(400, "PayloadEmpty"));
    }
    let bytes_max = if headers.push_type == "voip" { VOIP_BYTES_MAX } else { BYTES_MAX };
    if body.len() > bytes_max {
        return Err(Wrong(413, "PayloadTooLarge"));
    }
    let payload: Map<String, Value> = serde_json::from_slice(body).map_err(|_| STRICT)?;
    if headers.push_type == "mdm" {
        return if payload.contains_key("mdm") { Ok(None) } else { Err(STRICT) };
    }
    let aps = payload.get("aps").and_then(Value::as_object).ok_or(STRICT)?;
    check_aps(aps)?;
    let shows = ["alert", "badge", "sound"].iter().any(|key| aps.contains_key(*key));
    let silent = aps.get("content-available").is_some_and(|flag| flag == 1);
    match headers.push_type {
        // "The payload must have content-available and none of alert, badge, sound."
        "background" if shows || !silent => return Err(STRICT),
        "alert" if !shows => return Err(STRICT),
        "liveactivity" if !aps.contains_key("event") || !aps.contains_key("timestamp") => return Err(STRICT),
        _ => {}
    }
    Ok(title(aps))
}

/// The payload of a Live Activity with one of these events. Returns the title of its alert.
pub(super) fn check_activity(body: &[u8], events: &[&str]) -> Result<Option<String>, Wrong> {
    let payload: Map<String, Value> = serde_json::from_slice(body).map_err(|_| STRICT)?;
    let aps = payload.get("aps").and_then(Value::as_object).ok_or(STRICT)?;
    check_aps(aps)?;
    let event = aps.get("event").and_then(Value::as_str).ok_or(STRICT)?;
    let has_state = aps.contains_key("content-state");
    match events.contains(&event) && aps.contains_key("timestamp") && (has_state || event == "end") {
        true => Ok(title(aps)),
        false => Err(STRICT),
    }
}

fn check_aps(aps: &Map<String, Value>) -> Result<(), Wrong> {
    for (key, value) in aps {
        let right = match key.as_str() {
            "alert" if aps.contains_key("event") => value.as_object().is_some_and(is_activity_alert),
            "alert" => value.is_string() || value.as_object().is_some_and(is_alert),
            "badge" => value.is_u64(),
            "sound" => value.is_string() || value.as_object().is_some_and(is_sound),
            "thread-id" | "category" | "target-content-id" | "filter-criteria" | "attributes-type" => {
                value.is_string()
            }
            "content-available" | "mutable-content" | "input-push-token" => value == 1,
            "interruption-level" => value
                .as_str()
                .is_some_and(|level| ["passive", "active", "time-sensitive", "critical"].contains(&level)),
            // "a number between 0 and 1"; for Live Activities any number.
            "relevance-score" if aps.contains_key("event") => value.is_number(),
            "relevance-score" => value.as_f64().is_some_and(|score| (0.0..=1.0).contains(&score)),
            "stale-date" | "timestamp" | "dismissal-date" => value.is_u64(),
            "content-state" | "attributes" => value.is_object(),
            "event" => value.as_str().is_some_and(|event| ["start", "update", "end"].contains(&event)),
            "url-args" => value.is_array(),
            "content-changed" => value.is_boolean(),
            "input-push-channel" => value.is_string(),
            _ => false,
        };
        if !right {
            return Err(STRICT);
        }
    }
    Ok(())
}

fn is_alert(alert: &Map<String, Value>) -> bool {
    let texts = [
        "title",
        "subtitle",
        "body",
        "launch-image",
        "title-loc-key",
        "subtitle-loc-key",
        "loc-key",
        "action-loc-key",
    ];
    let lists = ["title-loc-args", "subtitle-loc-args", "loc-args"];
    let is_list = |value: &Value| value.as_array().is_some_and(|list| list.iter().all(Value::is_string));
    alert.iter().all(|(key, value)| match key.as_str() {
        key if texts.contains(&key) => value.is_string(),
        key if lists.contains(&key) => is_list(value),
        _ => false,
    })
}

/// Of a Live Activity: its texts may be localized, and the sound is in the alert.
fn is_activity_alert(alert: &Map<String, Value>) -> bool {
    let localized = |value: &Value| {
        value.as_object().is_some_and(|text| {
            text.get("loc-key").is_some_and(Value::is_string)
                && text.iter().all(|(key, value)| match key.as_str() {
                    "loc-key" => value.is_string(),
                    "loc-args" => value.as_array().is_some_and(|list| list.iter().all(Value::is_string)),
                    _ => false,
                })
        })
    };
    alert.iter().all(|(key, value)| match key.as_str() {
        "title" | "body" => value.is_string() || localized(value),
        "sound" => value.is_string(),
        _ => false,
    })
}

/// "For regular notifications, use the sound string instead."
fn is_sound(sound: &Map<String, Value>) -> bool {
    sound.get("critical").is_some_and(|critical| critical == 1)
        && sound.iter().all(|(key, value)| match key.as_str() {
            "critical" => value == 1,
            "name" => value.is_string(),
            "volume" => value.as_f64().is_some_and(|volume| (0.0..=1.0).contains(&volume)),
            _ => false,
        })
}

fn title(aps: &Map<String, Value>) -> Option<String> {
    match aps.get("alert")? {
        Value::String(text) => Some(text.clone()),
        alert => {
            let text = |key: &str| alert.get(key).and_then(Value::as_str).map(str::to_owned);
            text("title").or_else(|| text("body"))
        }
    }
}
