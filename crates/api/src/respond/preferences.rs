//! Preferences in responses, in the form of requests. An absent field is no preference.

use std::collections::BTreeMap;

use noroshi_types::{CategoryPreference, Channels, Preferences, QuietTime};
use serde::Serialize;

#[derive(Serialize, Default)]
pub(crate) struct PreferencesBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    channels: Option<Vec<&'static str>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    muted_topics: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    categories: BTreeMap<String, CategoryBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    quiet_hours: Option<QuietBody>,
}

#[derive(Serialize)]
struct CategoryBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    muted: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    channels: Option<Vec<&'static str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    daily_max: Option<u32>,
}

#[derive(Serialize)]
struct QuietBody {
    from: String,
    to: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    timezone: Option<String>,
}

impl From<&Preferences> for PreferencesBody {
    fn from(preferences: &Preferences) -> Self {
        let categories = preferences.categories.iter();
        Self {
            channels: preferences.channels.map(names),
            muted_topics: preferences.muted_topics.iter().map(ToString::to_string).collect(),
            categories: categories.map(|(name, of)| (name.to_string(), CategoryBody::from(*of))).collect(),
            quiet_hours: preferences.quiet_hours.as_ref().map(QuietBody::from),
        }
    }
}

impl From<CategoryPreference> for CategoryBody {
    fn from(preference: CategoryPreference) -> Self {
        let CategoryPreference { muted, channels, daily_max } = preference;
        Self { muted, channels: channels.map(names), daily_max }
    }
}

impl From<&QuietTime> for QuietBody {
    fn from(quiet: &QuietTime) -> Self {
        Self {
            from: quiet.hours.from.to_string(),
            to: quiet.hours.to.to_string(),
            timezone: quiet.timezone.as_deref().map(str::to_owned),
        }
    }
}

fn names(channels: Channels) -> Vec<&'static str> {
    channels.iter().map(noroshi_types::Channel::as_str).collect()
}
