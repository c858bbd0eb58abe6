//! Renders a message for Web Push: the plaintext and the headers. Pure; `encryption` seals the plaintext for each
//! subscription.
//!
//! | Noroshi | Web Push |
//! |---|---|
//! | notification, data, id | plaintext `{"id", "notification", "data"}`, as on a live connection, for the service worker to show |
//! | urgency | `Urgency`, unchanged (RFC 8030 §5.3 has the same four) |
//! | ttl | `TTL`: remaining whole seconds, 0 is now or never (RFC 8030 §5.2) |
//! | collapse key | `Topic`: unchanged, or hashed unless it has at most 32 characters of base64url (RFC 8030 §5.4) |

use bytes::Bytes;
use noroshi_types::{PushService, Timestamp};

use super::encryption::PLAINTEXT_BYTES_MAX;
use crate::collapse::{is_web_push_topic, web_push_topic};
use crate::content;
use crate::fields::{Fields, InvalidContent, own_fields, own_headers};

const TTL: &str = "TTL";
const URGENCY: &str = "Urgency";
const TOPIC: &str = "Topic";

/// The plaintext for the service worker, and the headers of the request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Payload {
    pub(super) plaintext: Bytes,
    pub(super) urgency: Bytes,
    pub(super) topic: Option<Bytes>,
    ttl: Option<Bytes>,
    expires_at: Timestamp,
}

impl content::Payload for Payload {
    const SERVICE: PushService = PushService::WebPush;

    fn new(fields: &Fields) -> Result<Self, InvalidContent> {
        let mut own = own_fields(PushService::WebPush, fields.webpush.as_ref(), &["headers", "payload"])?;
        let (mut ttl, mut topic) =
            (None, fields.collapse_key.as_deref().map(|key| web_push_topic(key).into()));
        let mut urgency = Bytes::from_static(fields.urgency.as_str().as_bytes());
        for (name, value) in own_headers(PushService::WebPush, &mut own, &[TTL, URGENCY, TOPIC])? {
            let wrong = |rule: &'static str| {
                Err(InvalidContent::invalid(
                    PushService::WebPush,
                    format!("push.webpush.headers.{name}"),
                    rule,
                ))
            };
            match name {
                // RFC 8030 §5.2: a non-negative number of seconds; 2^31 represents any greater one.
                TTL if value.parse::<u32>().is_ok_and(|seconds| seconds < 1 << 31) => {
                    ttl = Some(value.into())
                }
                TTL => return wrong("must be a whole number of seconds below 2147483648"),
                URGENCY if ["very-low", "low", "normal", "high"].contains(&value.as_str()) => {
                    urgency = value.into();
                }
                URGENCY => return wrong("must be very-low, low, normal or high"),
                _ if is_web_push_topic(&value) => topic = Some(value.into()),
                _ => return wrong("must be 1 to 32 characters of base64url"),
            }
        }
        let plaintext = own.remove("payload").map_or_else(|| derived(fields), |payload| payload.to_string());
        let plaintext = Bytes::from(plaintext);
        if plaintext.len() > PLAINTEXT_BYTES_MAX {
            let (bytes, bytes_max) = (plaintext.len(), PLAINTEXT_BYTES_MAX);
            return Err(InvalidContent::TooLarge { service: PushService::WebPush, bytes, bytes_max });
        }
        Ok(Self { plaintext, urgency, topic, ttl, expires_at: fields.expires_at })
    }
}

impl Payload {
    pub(super) fn ttl(&self, now: Timestamp) -> Bytes {
        match &self.ttl {
            Some(own) => own.clone(),
            // Rounded down, so that nothing is delivered after its expiry.
            None => self.expires_at.saturating_since(now).as_secs().to_string().into(),
        }
    }
}

/// Embeds the JSON texts unchanged.
fn derived(fields: &Fields) -> String {
    let id = fields.notification_id.map(|id| format!("\"id\":\"{id}\""));
    let notification = fields.notification.as_ref().map(|text| format!("\"notification\":{}", text.as_str()));
    let data = fields.data.as_ref().map(|text| format!("\"data\":{}", text.as_str()));
    let members: Vec<String> = [id, notification, data].into_iter().flatten().collect();
    format!("{{{}}}", members.join(","))
}

#[cfg(test)]
mod tests;
