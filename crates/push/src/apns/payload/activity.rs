//! Renders an update or the end of a Live Activity: the JSON that a push to one activity and a broadcast to a channel
//! have in common. Pure.
//!
//! Times are rounded down to seconds, which is what ActivityKit reads. ActivityKit drops an update whose `timestamp` is
//! older than that of the update it shows, so the timestamp decides the order, not the arrival.
//!
//! The rules are from Apple's "Starting and updating Live Activities with ActivityKit push notifications".

use bytes::Bytes;
use noroshi_types::{JsonText, Timestamp};
use serde_json::{Map, Number, Value, json};

use super::insert;

noroshi_types::names! {
    /// What happens to a Live Activity that exists: `aps.event`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum ActivityEvent {
        Update => "update",
        End => "end",
    }
}

/// An update or the end of a Live Activity.
#[derive(Debug, Clone, PartialEq)]
pub struct ActivityUpdate {
    pub event: ActivityEvent,
    /// When the state was true.
    pub timestamp: Timestamp,
    /// A JSON object with the fields of the app's `ContentState`. An end without it leaves the last state.
    pub content_state: Option<JsonText>,
    /// From then on the activity counts as outdated.
    pub stale_at: Option<Timestamp>,
    /// When an activity that ended leaves the Lock Screen; without it after four hours.
    pub dismiss_at: Option<Timestamp>,
    /// The greatest one of an app's activities is in the Dynamic Island.
    pub relevance: Option<Number>,
    pub alert: Option<ActivityAlert>,
}

/// Lights up the screen; devices show the texts where they cannot show the activity itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ActivityAlert {
    pub title: Option<String>,
    pub body: Option<String>,
    /// "default", or a sound of the app.
    pub sound: Option<String>,
}

impl ActivityUpdate {
    /// The object `aps`.
    pub fn aps(&self) -> Map<String, Value> {
        let mut aps = Map::new();
        aps.insert("timestamp".to_owned(), seconds(self.timestamp));
        aps.insert("event".to_owned(), self.event.as_str().into());
        // Valid JSON by the type's contract.
        let state = self.content_state.as_ref().and_then(|state| serde_json::from_str(state.as_str()).ok());
        if let Some(state) = state {
            aps.insert("content-state".to_owned(), state);
        }
        if let Some(time) = self.stale_at {
            aps.insert("stale-date".to_owned(), seconds(time));
        }
        if let Some(time) = self.dismiss_at {
            aps.insert("dismissal-date".to_owned(), seconds(time));
        }
        if let Some(relevance) = &self.relevance {
            aps.insert("relevance-score".to_owned(), Value::Number(relevance.clone()));
        }
        if let Some(alert) = &self.alert {
            aps.insert("alert".to_owned(), alert.json());
        }
        aps
    }

    /// The whole payload.
    pub fn body(&self) -> Bytes {
        Bytes::from(json!({"aps": self.aps()}).to_string())
    }
}

impl ActivityAlert {
    fn json(&self) -> Value {
        let mut alert = Map::new();
        insert(&mut alert, "title", self.title.as_deref());
        insert(&mut alert, "body", self.body.as_deref());
        insert(&mut alert, "sound", self.sound.as_deref());
        Value::Object(alert)
    }
}

fn seconds(time: Timestamp) -> Value {
    (time.0 / 1_000).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update() -> ActivityUpdate {
        ActivityUpdate {
            event: ActivityEvent::Update,
            timestamp: Timestamp(1_700_000_000_999),
            content_state: Some(JsonText::from_valid(r#"{"home":1,"away":0}"#)),
            stale_at: None,
            dismiss_at: None,
            relevance: None,
            alert: None,
        }
    }

    fn body(update: &ActivityUpdate) -> Value {
        serde_json::from_slice(&update.body()).unwrap()
    }

    #[test]
    fn an_update_has_its_state_and_time() {
        let expected = json!({"aps": {"timestamp": 1_700_000_000, "event": "update", "content-state": {"home": 1, "away": 0}}});
        assert_eq!(body(&update()), expected);
    }

    #[test]
    fn an_end_may_have_every_field() {
        let end = ActivityUpdate {
            event: ActivityEvent::End,
            stale_at: Some(Timestamp(1_700_000_060_000)),
            dismiss_at: Some(Timestamp(1_700_000_120_001)),
            relevance: Number::from_f64(0.5),
            alert: Some(ActivityAlert {
                title: Some("Final".to_owned()),
                body: Some("2:1".to_owned()),
                sound: Some("horn.caf".to_owned()),
            }),
            ..update()
        };
        let expected = json!({"aps": {
            "timestamp": 1_700_000_000, "event": "end", "content-state": {"home": 1, "away": 0},
            "stale-date": 1_700_000_060, "dismissal-date": 1_700_000_120, "relevance-score": 0.5,
            "alert": {"title": "Final", "body": "2:1", "sound": "horn.caf"},
        }});
        assert_eq!(body(&end), expected);
    }

    #[test]
    fn an_end_needs_no_state() {
        let end = ActivityUpdate { event: ActivityEvent::End, content_state: None, ..update() };
        assert_eq!(body(&end), json!({"aps": {"timestamp": 1_700_000_000, "event": "end"}}));
    }
}
