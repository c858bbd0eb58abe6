//! What the store keeps of an activity: its [`Spec`], which never changes, and its [`State`], which each update replaces.
//!
//! New fields need a default, and no field may change its meaning, because activities of older versions are read back.

use std::time::Duration;

use noroshi_types::{
    Condition, DeviceId, Invalid, JsonText, PushService, Target, Timestamp, Topic, UserId, When,
};
use serde::{Deserialize, Serialize};
use serde_json::Number;

use super::budget::Budget;
use crate::texts::json;

/// Updates that follow each other faster than this are *quick*: Android devices that are offline get none of them, so
/// that they do not pile up at FCM.
const QUICK: Duration = Duration::from_secs(60);

/// What never changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// The Swift type of the attributes.
    pub attributes_type: String,
    #[serde(default, with = "json", skip_serializing_if = "Option::is_none")]
    pub attributes: Option<JsonText>,
    #[serde(with = "when")]
    pub when: When,
    /// The way to iOS; `None`: APNs if the app has a credential for it, otherwise FCM.
    #[serde(default, with = "service", skip_serializing_if = "Option::is_none")]
    pub ios_via: Option<PushService>,
    /// The app declares `NSSupportsLiveActivitiesFrequentUpdates`.
    #[serde(default)]
    pub frequent_updates: bool,
    /// Only users or devices that the request names take part: every push is recorded. Set by the start.
    #[serde(default)]
    pub named: bool,
}

/// The newest state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// An object with the fields of the app's `ContentState`.
    #[serde(default, with = "json", skip_serializing_if = "Option::is_none")]
    pub content: Option<JsonText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stale_at_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relevance: Option<Number>,
    /// An object with what Android devices show.
    #[serde(default, with = "json", skip_serializing_if = "Option::is_none")]
    pub android: Option<JsonText>,
    /// Of the newest version that had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alert: Option<Alert>,
    /// The version that the alert belongs to.
    #[serde(default)]
    pub(super) alert_version: u64,
    /// The newest version with a high priority.
    #[serde(default)]
    pub(super) urgent_version: u64,
    /// The update came soon after the one before.
    #[serde(default)]
    pub(super) quick: bool,
    /// When the state was true; never earlier than that of the version before.
    at_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dismiss_at_ms: Option<u64>,
    /// The activity's time was over.
    #[serde(default)]
    pub expired: bool,
    #[serde(default)]
    pub(super) budget: Budget,
}

/// Lights up the screen; devices show the texts where they cannot show the activity itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Alert {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sound: Option<String>,
}

/// What an update changes; the rest stays.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Update {
    pub content: Option<JsonText>,
    /// `Some(None)`: the state does not become stale any more.
    #[allow(clippy::option_option)] // absent, null and a value are three different wishes of a PATCH
    pub stale_at: Option<Option<Timestamp>>,
    pub relevance: Option<Number>,
    pub android: Option<JsonText>,
    pub alert: Option<Alert>,
    /// Asks for priority 10.
    pub high: bool,
}

impl State {
    /// The first version: a start always has a high priority, which the budget does not count.
    pub(super) fn new(update: Update, now: Timestamp) -> Self {
        Self {
            content: update.content,
            stale_at_ms: update.stale_at.flatten().map(|at| at.0),
            relevance: update.relevance,
            android: update.android,
            alert_version: u64::from(update.alert.is_some()),
            alert: update.alert,
            urgent_version: 1,
            quick: false,
            at_ms: now.0,
            dismiss_at_ms: None,
            expired: false,
            budget: Budget::default(),
        }
    }

    /// The state of `version`, which follows this one. Returns whether it has a high priority.
    pub(super) fn next(&self, update: Update, version: u64, frequent: bool, now: Timestamp) -> (Self, bool) {
        let (budget, high) = if update.high { self.budget.take(frequent, now) } else { (self.budget, false) };
        let is_new = update.alert.is_some();
        let next = Self {
            content: update.content.or_else(|| self.content.clone()),
            stale_at_ms: update.stale_at.map_or(self.stale_at_ms, |at| at.map(|at| at.0)),
            relevance: update.relevance.or_else(|| self.relevance.clone()),
            android: update.android.or_else(|| self.android.clone()),
            alert_version: if is_new { version } else { self.alert_version },
            alert: update.alert.or_else(|| self.alert.clone()),
            urgent_version: if high { version } else { self.urgent_version },
            quick: now.saturating_since(Timestamp(self.at_ms)) < QUICK,
            at_ms: self.at_ms.max(now.0),
            dismiss_at_ms: self.dismiss_at_ms,
            expired: false,
            budget,
        };
        (next, high)
    }

    /// The last state. The end always has a high priority.
    pub(super) fn end(
        &self,
        update: Update,
        version: u64,
        dismiss_at: Option<Timestamp>,
        (expired, now): (bool, Timestamp),
    ) -> Self {
        let (next, _) = self.next(Update { high: false, ..update }, version, false, now);
        let dismiss_at_ms = dismiss_at.map(|at| at.0);
        Self { urgent_version: version, quick: false, dismiss_at_ms, expired, ..next }
    }

    pub fn at(&self) -> Timestamp {
        Timestamp(self.at_ms)
    }

    pub fn stale_at(&self) -> Option<Timestamp> {
        self.stale_at_ms.map(Timestamp)
    }

    pub fn dismiss_at(&self) -> Option<Timestamp> {
        self.dismiss_at_ms.map(Timestamp)
    }
}

macro_rules! stored_json {
    ($($name:ident)*) => { $(impl $name {
        pub(super) fn to_json(&self) -> JsonText {
            JsonText::from_valid(serde_json::to_string(self).unwrap_or_default())
        }

        /// Fails if only a newer program can read it.
        pub fn from_json(text: &JsonText) -> Result<Self, Invalid> {
            serde_json::from_str(text.as_str()).map_err(|error| Invalid::new(error.to_string()))
        }
    })* };
}
stored_json! { Spec State }

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredTarget {
    Users(Vec<String>),
    Devices(Vec<String>),
    Topic(String),
    Condition(String),
    Everyone,
}

pub(super) fn target_json(target: &Target) -> JsonText {
    let stored = match target {
        Target::Users(users) => StoredTarget::Users(users.iter().map(UserId::to_string).collect()),
        Target::Devices(devices) => StoredTarget::Devices(devices.iter().map(DeviceId::to_string).collect()),
        Target::Topic(topic) => StoredTarget::Topic(topic.as_str().to_owned()),
        Target::Condition(condition) => StoredTarget::Condition(condition.as_str().to_owned()),
        Target::Everyone => StoredTarget::Everyone,
    };
    JsonText::from_valid(serde_json::to_string(&stored).unwrap_or_default())
}

pub fn target_of(text: &JsonText) -> Result<Target, Invalid> {
    let stored = serde_json::from_str(text.as_str()).map_err(|error| Invalid::new(error.to_string()))?;
    Ok(match stored {
        StoredTarget::Users(users) => {
            Target::Users(users.iter().map(|user| UserId::parse(user)).collect::<Result<_, _>>()?)
        }
        StoredTarget::Devices(devices) => {
            Target::Devices(devices.iter().map(|device| DeviceId::parse(device)).collect::<Result<_, _>>()?)
        }
        StoredTarget::Topic(topic) => Target::Topic(Topic::parse(&topic)?),
        StoredTarget::Condition(condition) => Target::Condition(Condition::parse(&condition)?),
        StoredTarget::Everyone => Target::Everyone,
    })
}

/// By the number.
mod when {
    use noroshi_types::When;
    use serde::{Deserialize, Deserializer, Serializer};

    #[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
    pub(super) fn serialize<S: Serializer>(when: &When, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(*when as u8)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<When, D::Error> {
        let code = u8::deserialize(deserializer)?;
        When::from_code(code).ok_or_else(|| serde::de::Error::custom("an unknown `when`"))
    }
}

/// By the number.
mod service {
    use noroshi_types::PushService;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[allow(clippy::ref_option, clippy::trivially_copy_pass_by_ref)] // serde's signature
    pub(super) fn serialize<S: Serializer>(
        service: &Option<PushService>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        service.map(|service| service as u8).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<PushService>, D::Error> {
        Ok(Option::<u8>::deserialize(deserializer)?.and_then(PushService::from_code))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp(1_800_000_000_000 + seconds * 1_000)
    }

    fn content(text: &str) -> Option<JsonText> {
        Some(JsonText::from_valid(text))
    }

    fn first() -> State {
        let alert = Some(Alert { title: Some("Kick-off".to_owned()), ..Alert::default() });
        let update = Update {
            content: content(r#"{"n":1}"#),
            stale_at: Some(Some(at(60))),
            alert,
            ..Update::default()
        };
        State::new(update, at(0))
    }

    #[test]
    fn an_update_changes_what_it_names() {
        let (next, high) =
            first().next(Update { content: content("{}"), ..Update::default() }, 2, false, at(90));
        assert!(!high && !next.quick);
        assert_eq!((next.content.clone(), next.stale_at()), (content("{}"), Some(at(60))));
        assert_eq!((next.alert_version, next.urgent_version), (1, 1));
        let clear = Update { stale_at: Some(None), high: true, ..Update::default() };
        let (next, high) = next.next(clear, 3, false, at(91));
        assert!(high && next.quick);
        assert_eq!((next.stale_at(), next.urgent_version), (None, 3));
    }

    #[test]
    fn time_never_goes_back() {
        let (next, _) = first().next(Update::default(), 2, false, Timestamp(5));
        assert_eq!(next.at(), at(0), "a device drops a state that is older than its own");
    }

    #[test]
    fn beyond_the_budget_an_update_has_a_low_priority() {
        let mut state = first();
        let mut granted = 0;
        for version in 2..30 {
            let (next, high) =
                state.next(Update { high: true, ..Update::default() }, version, false, at(version));
            granted += u32::from(high);
            state = next;
        }
        assert_eq!(granted, 10);
        assert_eq!(state.urgent_version, 11);
        let end = state.end(Update::default(), 30, Some(at(99)), (false, at(40)));
        assert_eq!((end.urgent_version, end.dismiss_at(), end.quick), (30, Some(at(99)), false));
    }

    #[test]
    fn what_is_stored_is_read_back() {
        let (state, _) = first().next(Update { high: true, ..Update::default() }, 2, false, at(1));
        assert_eq!(State::from_json(&state.to_json()), Ok(state));
        let spec = Spec {
            attributes_type: "Match".to_owned(),
            attributes: content(r#"{"a":1}"#),
            when: When::Connected,
            ios_via: Some(PushService::Fcm),
            frequent_updates: true,
            named: true,
        };
        assert_eq!(Spec::from_json(&spec.to_json()), Ok(spec));
        let condition = Condition::parse("'a' in topics && 'b' in topics").expect("a condition");
        for target in [
            Target::Users(vec![UserId::parse("u\"1").expect("a user")]),
            Target::Devices(vec![DeviceId::parse("d").expect("a device")]),
            Target::Topic(Topic::parse("news").expect("a topic")),
            Target::Condition(condition),
            Target::Everyone,
        ] {
            assert_eq!(target_of(&target_json(&target)), Ok(target));
        }
    }
}
