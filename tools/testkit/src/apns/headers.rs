//! The headers of a push, as listed in Apple's documentation "Sending notification requests to APNs".

use http::HeaderMap;

use super::Wrong;
use crate::keys::TOPIC;
use crate::rules::single;

const COLLAPSE_ID_BYTES_MAX: usize = 64;
/// The push types and their topic suffixes.
const TYPES: [(&str, &str); 11] = [
    ("alert", ""),
    ("background", ""),
    ("location", ".location-query"),
    ("voip", ".voip"),
    ("complication", ".complication"),
    ("fileprovider", ".pushkit.fileprovider"),
    ("mdm", ""),
    ("liveactivity", ".push-type.liveactivity"),
    ("pushtotalk", ".voip-ptt"),
    ("widgets", ".push-type.widgets"),
    ("controls", ".push-type.controls"),
];
/// Allowed headers, in addition to those that begin with `apns-`.
pub(super) const NAMES: [&str; 8] = [
    "traceparent",
    "authorization",
    "content-type",
    "content-length",
    "user-agent",
    "accept",
    "accept-encoding",
    "host",
];
const APNS_NAMES: [&str; 6] =
    ["apns-id", "apns-expiration", "apns-priority", "apns-topic", "apns-collapse-id", "apns-push-type"];

/// What the payload and the device are checked against.
#[derive(Debug)]
pub(super) struct Headers<'a> {
    pub(super) push_type: &'static str,
    topic: &'a str,
    suffix: &'static str,
}

impl<'a> Headers<'a> {
    pub(super) fn read(headers: &'a HeaderMap, by_certificate: bool) -> Result<Self, Wrong> {
        let text = |name| single(headers, name).map_err(|()| Wrong(400, "DuplicateHeaders"));
        let push_type = text("apns-push-type")?.ok_or(Wrong(400, "InvalidPushType"))?;
        let (push_type, suffix) =
            TYPES.into_iter().find(|(name, _)| *name == push_type).ok_or(Wrong(400, "InvalidPushType"))?;
        check_priority(text("apns-priority")?, push_type)?;
        if let Some(expiration) = text("apns-expiration")? {
            let seconds = expiration.bytes().all(|byte| byte.is_ascii_digit()) && expiration.len() <= 10;
            if !seconds || expiration.is_empty() {
                return Err(Wrong(400, "BadExpirationDate"));
            }
        }
        let collapse_id = text("apns-collapse-id")?;
        if collapse_id.is_some_and(|id| id.is_empty() || id.len() > COLLAPSE_ID_BYTES_MAX) {
            return Err(Wrong(400, "BadCollapseId"));
        }
        let content_type = text("content-type")?;
        if content_type.is_some_and(|content_type| content_type != "application/json") {
            return Err(Wrong(400, "StrictContentType"));
        }
        // A certificate for a single topic implies it.
        let topic = match text("apns-topic")? {
            None if by_certificate => TOPIC,
            None => return Err(Wrong(400, "MissingTopic")),
            Some(topic) => topic,
        };
        let headers = Self { push_type, topic, suffix };
        headers.check_topic()?;
        Ok(headers)
    }

    fn check_topic(&self) -> Result<(), Wrong> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'-';
        if self.topic.is_empty() || !self.topic.bytes().all(allowed) || !self.topic.ends_with(self.suffix) {
            return Err(Wrong(400, "BadTopic"));
        }
        if is_own(self.bundle()) { Ok(()) } else { Err(Wrong(400, "TopicDisallowed")) }
    }

    /// The topic without the push type's suffix.
    pub(super) fn bundle(&self) -> &str {
        self.topic.strip_suffix(self.suffix).unwrap_or(self.topic)
    }
}

/// The bundle ids of the team: the registered one and all below `com.example.`.
pub(super) fn is_own(bundle: &str) -> bool {
    bundle == TOPIC || bundle.starts_with("com.example.")
}

/// Only headers that Apple knows, each at most once.
pub(super) fn check_names(headers: &HeaderMap) -> Result<(), Wrong> {
    if headers.keys_len() != headers.len() {
        return Err(Wrong(400, "DuplicateHeaders"));
    }
    let known = |name: &str| NAMES.contains(&name) || APNS_NAMES.contains(&name);
    match headers.keys().all(|name| known(name.as_str())) {
        true => Ok(()),
        false => Err(Wrong(400, "StrictHeaderName")),
    }
}

pub(super) fn id(headers: &HeaderMap) -> Result<Option<uuid::Uuid>, Wrong> {
    uuid_of(headers, "apns-id")
}

/// A canonical UUID in lower case.
pub(super) fn uuid_of(headers: &HeaderMap, name: &str) -> Result<Option<uuid::Uuid>, Wrong> {
    let bad = Wrong(400, "BadMessageId");
    let Some(text) = single(headers, name).map_err(|()| bad)? else { return Ok(None) };
    let id = uuid::Uuid::parse_str(text).map_err(|_| bad)?;
    let mut canonical = uuid::Uuid::encode_buffer();
    match *id.hyphenated().encode_lower(&mut canonical) == *text {
        true => Ok(Some(id)),
        false => Err(bad),
    }
}

fn check_priority(priority: Option<&str>, push_type: &str) -> Result<(), Wrong> {
    match (priority, push_type) {
        // Absent means 10, which is invalid for background pushes
        (Some("5"), _) => Ok(()),
        (_, "background") => Err(Wrong(400, "BadPriority")),
        (None | Some("10" | "1"), _) => Ok(()),
        _ => Err(Wrong(400, "BadPriority")),
    }
}
