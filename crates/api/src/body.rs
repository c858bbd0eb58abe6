//! Parses and validates request bodies into domain types. Pure: no request, no clock, no store. The fuzz target
//! `api_bodies` calls these functions.
//!
//! Each file has the wire form of one kind of body and its conversion.

mod activity;
mod app;
mod broadcast;
mod campaign;
mod device;
mod drain;
mod endpoint;
mod experiment;
mod item;
mod mirror;
mod notice;
mod notification;
mod outline;
pub(crate) mod person;
mod preferences;
mod push_token;
mod quota;
mod relay;
mod time_zone;
mod topic_rules;

pub use activity::{activity, activity_end, activity_id, activity_update};
pub use app::{Author, NewAppKey, app, app_change, key};
pub use broadcast::{broadcast, channel, channel_change, channel_id};
pub(crate) use campaign::draft;
pub(crate) use campaign::placed;
pub use campaign::{campaign, recipient};
pub(crate) use device::PLATFORMS;
pub use device::{Registering, device, device_change};
pub use drain::{DrainRequest, drain};
pub use endpoint::{EndpointRequest, endpoint};
pub use experiment::{experiment, exposures, killing};
pub use item::item_change;
pub use mirror::mirror;
pub use notice::notice;
pub use notification::notification;
pub(crate) use outline::outline;
pub use preferences::preferences;
pub use push_token::{
    RestoreRequest, Rotation, TestTarget, push_test, push_token, restore, rotation, token_key, token_of_path,
};
pub use quota::{quota_changes, quotas};
pub use relay::{Relayed, relayed};
pub(crate) use time_zone::TimeZone;
pub use topic_rules::topic_rules;

use noroshi_types::{DeviceId, Invalid, NotificationId, Presence, UserId, limits};
use serde::Deserialize;

use crate::error::{Code, Problem};
use crate::json::{self, Bounded, FromText, Text};

/// A certificate chain with its key in PEM has about 10 KiB.
const PUSH_CREDENTIAL_BYTES_MAX: usize = 64 << 10;

/// Configurable limits of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// A request body, including a whole batch.
    pub body_bytes: usize,
    /// `data` of a notification.
    pub data_bytes: usize,
    /// Default number of recipients in one batch of a campaign.
    pub campaign_batch: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: limits::BODY_BYTES,
            data_bytes: limits::DATA_BYTES,
            campaign_batch: limits::CAMPAIGN_BATCH,
        }
    }
}

/// `{"users": […]}`: the users of a presence query, without duplicates.
pub fn presence_query(bytes: &[u8]) -> Result<Vec<UserId>, Problem> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Body {
        users: Bounded<Text<UserId>, { limits::PRESENCE_USERS_MAX }>,
    }
    let users = json::parse::<Body>(bytes)?.users.all("users")?;
    Ok(each_once(users.into_iter().map(|user| user.0).collect()))
}

/// `{"state": "active" | "idle"}`.
pub fn presence(bytes: &[u8]) -> Result<Presence, Problem> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Body {
        state: Text<State>,
    }
    struct State(Presence);
    impl FromText for State {
        const WHAT: &'static str = "\"active\" or \"idle\"";
        fn from_text(text: &str) -> Result<Self, Invalid> {
            [Presence::Active, Presence::Idle]
                .into_iter()
                .find(|presence| presence.as_str() == text)
                .map(State)
                .ok_or_else(|| Invalid::new("must be \"active\" or \"idle\""))
        }
    }
    Ok(json::parse::<Body>(bytes)?.state.0.0)
}

/// `{"ids": […]}`: acknowledged or opened messages, without duplicates.
pub fn ids(bytes: &[u8]) -> Result<Vec<NotificationId>, Problem> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Body {
        ids: Bounded<Text<NotificationId>, { limits::ACK_IDS_MAX }>,
    }
    let ids = json::parse::<Body>(bytes)?.ids.all("ids")?;
    Ok(each_once(ids.into_iter().map(|id| id.0).collect()))
}

/// Checks only that the credential is one small JSON object of limited depth. The push service's own module parses it.
pub fn push_credential(bytes: &[u8]) -> Result<(), Problem> {
    if bytes.len() > PUSH_CREDENTIAL_BYTES_MAX {
        let rule = format!("a credential is at most {PUSH_CREDENTIAL_BYTES_MAX} bytes");
        return Err(Problem::new(Code::BodyTooLarge, rule));
    }
    json::parse::<serde_json::Map<String, serde_json::Value>>(bytes).map(drop)
}

/// Removes duplicates, keeping the order.
fn each_once<T: Eq + std::hash::Hash>(named: Vec<T>) -> Vec<T> {
    let mut seen = std::collections::HashSet::with_capacity(named.len());
    let first: Vec<bool> = named.iter().map(|item| seen.insert(item)).collect();
    match first.iter().all(|first| *first) {
        true => named,
        false => named.into_iter().zip(first).filter_map(|(item, first)| first.then_some(item)).collect(),
    }
}

/// A `device` parameter of a path.
pub fn device_id(text: &str) -> Result<DeviceId, Problem> {
    DeviceId::parse(text).map_err(|invalid| Problem::from(invalid).at("device"))
}
