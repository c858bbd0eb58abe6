//! A device in responses, the same for providers and for the device itself.

use noroshi_delivery::Session;
use noroshi_store::Device;
use noroshi_types::{Presence, Topic};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::push_token::{self, SuspectBody, TokenBody};
use crate::error::Problem;

/// A device.
#[derive(Serialize)]
pub(crate) struct DeviceBody {
    device: String,
    user: Option<String>,
    platform: Option<String>,
    locale: Option<String>,
    timezone: Option<String>,
    app_version: Option<String>,
    tags: std::collections::BTreeMap<String, String>,
    topics: Vec<String>,
    push_token: Option<Box<RawValue>>,
    /// Set if a push service rejected the push token: it is not used until the device registers a new one.
    push_suspect: Option<SuspectBody>,
    /// The main token and all others, without what is needed to send to them.
    push_tokens: Vec<TokenBody>,
    presence: &'static str,
    created_at: String,
    /// The day in UTC; null if it was never seen. Absent in what the device itself reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_seen: Option<Value>,
}

/// A device with the presence of its session, for a provider.
pub(crate) fn with_session(device: Device, session: Option<Session>) -> Result<DeviceBody, Problem> {
    let last_seen = device.last_seen.map_or(Value::Null, |day| day.to_string().into());
    let body = with_presence(device, session.map_or(Presence::Offline, |session| session.presence))?;
    Ok(DeviceBody { last_seen: Some(last_seen), ..body })
}

/// A device with this presence.
pub(crate) fn with_presence(device: Device, presence: Presence) -> Result<DeviceBody, Problem> {
    let push_tokens = push_token::list(&device, false)?;
    Ok(DeviceBody {
        push_tokens,
        device: device.id.to_string(),
        user: device.user.map(|user| user.to_string()),
        platform: device.attributes.platform,
        locale: device.attributes.locale,
        timezone: device.attributes.timezone,
        app_version: device.attributes.app_version,
        tags: device.attributes.tags,
        topics: device.topics.iter().map(Topic::to_string).collect(),
        push_token: super::raw(device.push_token.as_ref().map(|token| &token.json))?,
        push_suspect: device.push_suspect.map(SuspectBody::from),
        presence: presence.as_str(),
        created_at: device.created_at.to_string(),
        last_seen: None,
    })
}
