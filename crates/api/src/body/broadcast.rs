//! Broadcast channels, and what is sent to them: `POST /v1/push/channels`, `PATCH /v1/push/channels/{name}`,
//! `POST /v1/push/channels/{name}/broadcasts`, and `push.broadcast` of a notification.
//!
//! A broadcast is rendered here, so that one that is too large for APNs is never accepted.

use std::time::Duration;

use noroshi_delivery::push::ChannelSpec;
use noroshi_push::{ActivityAlert, ActivityEvent, ActivityUpdate, BROADCAST_BYTES_MAX, is_channel_id};
use noroshi_types::{
    Broadcast, Invalid, JsonText, Label, PushEnvironment, StoragePolicy, Timestamp, Topic, Ttl,
};
use serde::Deserialize;
use serde_json::Number;
use serde_json::value::RawValue;

use super::push_token::Moment;
use crate::error::{Code, Problem};
use crate::json::{self, FromText, Span, Text};

/// Of a broadcast to one channel. A Live Activity changes for some hours at most, and an update is soon outdated.
const TTL_DEFAULT: Duration = Duration::from_secs(3_600);
/// At once. APNs delivers others in bursts, to save power.
const PRIORITY_DEFAULT: u8 = 10;
const PRIORITIES: [u8; 3] = [1, 5, 10];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChannelBody {
    name: Text<Label>,
    environment: Option<Text<PushEnvironment>>,
    storage: Option<Text<StoragePolicy>>,
    topic: Option<Text<Topic>>,
    apns_id: Option<Text<ChannelId>>,
}

struct ChannelId(String);

/// Parses a channel to create.
pub fn channel(bytes: &[u8]) -> Result<ChannelSpec, Problem> {
    let body: ChannelBody = json::parse(bytes)?;
    Ok(ChannelSpec {
        name: body.name.0,
        environment: body.environment.map_or(PushEnvironment::Production, |environment| environment.0),
        policy: body.storage.map(|storage| storage.0),
        topic: body.topic.map(|topic| topic.0),
        adopt: body.apns_id.map(|id| id.0.0),
    })
}

/// Parses `{"topic": "…"}` or `{"topic": null}`.
pub fn channel_change(bytes: &[u8]) -> Result<Option<Topic>, Problem> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Body {
        #[serde(deserialize_with = "Option::deserialize")]
        topic: Option<Text<Topic>>,
    }
    Ok(json::parse::<Body>(bytes)?.topic.map(|topic| topic.0))
}

/// Apple's id of a channel, from a path.
pub fn channel_id(text: &str) -> Result<String, Problem> {
    ChannelId::from_text(text).map(|id| id.0).map_err(|invalid| Problem::from(invalid).at("id"))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BroadcastBody<'a> {
    event: Text<ActivityEvent>,
    #[serde(borrow)]
    content_state: Option<&'a RawValue>,
    timestamp: Option<Text<Moment>>,
    stale_at: Option<Text<Moment>>,
    dismiss_at: Option<Text<Moment>>,
    relevance: Option<Number>,
    alert: Option<AlertBody>,
    priority: Option<u8>,
    replaceable: Option<bool>,
    ttl: Option<Span>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AlertBody {
    title: Option<String>,
    body: Option<String>,
    sound: Option<String>,
}

/// Parses a broadcast to one channel.
pub fn broadcast(bytes: &[u8], now: Timestamp) -> Result<(Broadcast, Ttl), Problem> {
    let mut body: BroadcastBody<'_> = json::parse(bytes)?;
    let ttl = body.ttl.take().map_or(TTL_DEFAULT, |Span(duration)| duration);
    let ttl = Ttl::new(ttl).map_err(|invalid| Problem::field("ttl", invalid.0))?;
    Ok((rendered(body, now, "")?, ttl))
}

/// The field `push.broadcast` of a notification, whose path is `field`. Its ttl is the notification's.
pub(super) fn of_notification(raw: &RawValue, now: Timestamp, field: &str) -> Result<Broadcast, Problem> {
    let body: BroadcastBody<'_> = json::parse_part(raw.get(), field)?;
    if body.ttl.is_some() {
        let rule = "the ttl of the notification is that of the broadcast";
        return Err(Problem::new(Code::UnknownField, rule).at(format!("{field}.ttl")));
    }
    rendered(body, now, &format!("{field}."))
}

/// `prefix`: the path of the broadcast, with its dot.
fn rendered(body: BroadcastBody<'_>, now: Timestamp, prefix: &str) -> Result<Broadcast, Problem> {
    let wrong = |name: &str, rule: &'static str| Err(Problem::field(format!("{prefix}{name}"), rule));
    let event = body.event.0;
    match body.content_state {
        None if event == ActivityEvent::Update => {
            return wrong("content_state", "an update needs the new state of the activity");
        }
        Some(raw) if !raw.get().starts_with('{') => {
            return wrong("content_state", "must be an object with the fields of the app's `ContentState`");
        }
        _ => {}
    }
    if body.dismiss_at.is_some() && event != ActivityEvent::End {
        return wrong("dismiss_at", "only an activity that ends is dismissed");
    }
    let priority = body.priority.unwrap_or(PRIORITY_DEFAULT);
    if !PRIORITIES.contains(&priority) {
        return wrong("priority", "must be 1, 5 or 10");
    }
    let alert = body.alert.map(|AlertBody { title, body, sound }| ActivityAlert { title, body, sound });
    if alert.as_ref().is_some_and(|alert| alert.title.is_none() && alert.body.is_none()) {
        return wrong("alert", "must have a title or a body");
    }
    let time = |at: Option<Text<Moment>>| at.map(|at| at.0.0);
    let update = ActivityUpdate {
        event,
        timestamp: time(body.timestamp).unwrap_or(now),
        content_state: body.content_state.map(|raw| JsonText::from_valid(raw.get())),
        stale_at: time(body.stale_at),
        dismiss_at: time(body.dismiss_at),
        relevance: body.relevance,
        alert,
    };
    let payload = update.body();
    if payload.len() > BROADCAST_BYTES_MAX {
        let detail = format!(
            "the payload of the broadcast would have {} bytes, the limit of apns is {BROADCAST_BYTES_MAX}",
            payload.len()
        );
        return Err(Problem::new(Code::PushPayloadTooLarge, detail).at(prefix.trim_end_matches('.')));
    }
    let payload = String::from_utf8(payload.to_vec()).map_err(Problem::internal)?;
    let replaceable = body.replaceable.unwrap_or(false);
    Ok(Broadcast { payload: JsonText::from_valid(payload), priority, replaceable })
}

impl FromText for ChannelId {
    const WHAT: &'static str = "an id of Apple (a string)";
    fn from_text(text: &str) -> Result<Self, Invalid> {
        match is_channel_id(text) {
            true => Ok(Self(text.to_owned())),
            false => Err(Invalid::new("must be Apple's id of a channel, such as \"dHN0LXNyY2gtY2hubA==\"")),
        }
    }
}

impl FromText for StoragePolicy {
    const WHAT: &'static str = "a storage policy (a string)";
    fn from_text(text: &str) -> Result<Self, Invalid> {
        Self::named(text).ok_or_else(|| Invalid::new("must be \"none\" or \"latest\""))
    }
}

impl FromText for ActivityEvent {
    const WHAT: &'static str = "an event (a string)";
    fn from_text(text: &str) -> Result<Self, Invalid> {
        Self::named(text).ok_or_else(|| Invalid::new("must be \"update\" or \"end\""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_700_000_000_500);

    fn payload(body: &str) -> String {
        broadcast(body.as_bytes(), NOW).expect(body).0.payload.as_str().to_owned()
    }

    fn refused(body: &str, field: &str) {
        let problem = broadcast(body.as_bytes(), NOW).expect_err(body);
        assert_eq!(problem.field_path(), Some(field), "{body}");
    }

    #[test]
    fn a_broadcast_is_rendered() {
        let (short, ttl) = broadcast(br#"{"event":"update","content_state":{"a":1}}"#, NOW).expect("valid");
        assert_eq!((short.priority, short.replaceable, ttl.duration()), (10, false, TTL_DEFAULT));
        assert_eq!(
            short.payload.as_str(),
            r#"{"aps":{"content-state":{"a":1},"event":"update","timestamp":1700000000}}"#
        );
        let full = r#"{"event":"end","content_state":{},"timestamp":"2026-01-15T09:30:00Z",
            "stale_at":"2026-01-15T09:31:00Z","dismiss_at":"2026-01-15T09:32:00Z","relevance":75,
            "alert":{"title":"Final","body":"2:1","sound":"default"},"priority":5,"replaceable":true,"ttl":"10m"}"#;
        let (full, ttl) = broadcast(full.as_bytes(), NOW).expect("valid");
        assert_eq!((full.priority, full.replaceable, ttl.duration()), (5, true, Duration::from_secs(600)));
        assert!(full.payload.as_str().contains(r#""dismissal-date":1768469520"#), "{full:?}");
        assert_eq!(payload(r#"{"event":"end"}"#), r#"{"aps":{"event":"end","timestamp":1700000000}}"#);
    }

    #[test]
    fn errors_name_the_field() {
        refused("{}", "event");
        refused(r#"{"event":"start","content_state":{}}"#, "event");
        refused(r#"{"event":"update"}"#, "content_state");
        refused(r#"{"event":"update","content_state":[]}"#, "content_state");
        refused(r#"{"event":"update","content_state":{},"dismiss_at":"2026-01-15T09:32:00Z"}"#, "dismiss_at");
        refused(r#"{"event":"update","content_state":{},"priority":7}"#, "priority");
        refused(r#"{"event":"update","content_state":{},"alert":{"sound":"x"}}"#, "alert");
        refused(r#"{"event":"update","content_state":{},"stale_at":"soon"}"#, "stale_at");
        refused(r#"{"event":"update","content_state":{},"score":1}"#, "score");
    }

    #[test]
    fn a_payload_fits_the_limit_of_apns() {
        let of =
            |bytes: usize| format!(r#"{{"event":"update","content_state":{{"a":"{}"}}}}"#, "x".repeat(bytes));
        let frame = payload(&of(0)).len();
        assert_eq!(payload(&of(BROADCAST_BYTES_MAX - frame)).len(), BROADCAST_BYTES_MAX);
        let over = broadcast(of(BROADCAST_BYTES_MAX - frame + 1).as_bytes(), NOW).expect_err("too large");
        assert_eq!(over.code(), Code::PushPayloadTooLarge);
    }

    #[test]
    fn a_channel_is_parsed() {
        let spec =
            channel(br#"{"name":"final","environment":"sandbox","storage":"latest","topic":"game/1"}"#);
        let spec = spec.expect("valid");
        assert_eq!((spec.environment, spec.policy), (PushEnvironment::Sandbox, Some(StoragePolicy::Latest)));
        for (body, field) in [
            (r#"{"name":"A b"}"#, "name"),
            (r#"{"name":"a","storage":"all"}"#, "storage"),
            (r#"{"name":"a","topic":"a/+"}"#, "topic"),
            (r#"{"name":"a","apns_id":"a b"}"#, "apns_id"),
            (r#"{"name":"a","id":"x"}"#, "id"),
        ] {
            let problem = channel(body.as_bytes()).expect_err(body);
            assert_eq!(problem.field_path(), Some(field), "{body}");
        }
        assert_eq!(channel_change(br#"{"topic":null}"#).expect("valid"), None);
        assert!(channel_change(br#"{"topic":"game/1"}"#).expect("valid").is_some());
        assert!(channel_change(b"{}").is_err());
    }
}
